"""Quantized checkpoints that somebody has published, by the model that they were made of."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from simulator.specs.base import Source, Spec
from simulator.specs.model.hub_names import CheckpointFormat, named_checkpoint
from simulator.specs.model.precision import Dtype
from simulator.specs.profiles import load_file, profile_root
from simulator.specs.spellings import plain_word

CheckpointKind = Literal["modelopt", "compressed-tensors", "fp8_block", "mxfp4", "awq", "gptq", "quark", "gguf"]
"""How the files of a quantized checkpoint are laid out: by the tool that writes them."""


class PublishedCheckpoint(Spec):
    """A checkpoint by its Hub id, the id of its base model, and the layout of its files; ``source`` names one of the
    list's sources."""

    id: str
    kind: CheckpointKind
    base: str
    source: str

    @property
    def format(self) -> CheckpointFormat:
        """What its name stands for."""
        found = named_checkpoint(self.id)
        if found is None:
            raise ValueError(f"{self.id} does not end in a format")
        return found.format


class _PublishedList(Spec):
    published: tuple[PublishedCheckpoint, ...]
    sources: dict[str, Source]


@lru_cache(maxsize=1)
def published_checkpoints() -> tuple[PublishedCheckpoint, ...]:
    """All of the list, in its order."""
    return load_file(_PublishedList, profile_root("model_profiles") / "checkpoints" / "published.yaml").published


def published_checkpoint(
    model_id: str, *, weights: Dtype, activations: Dtype, scheme: str | None, kinds: tuple[CheckpointKind, ...]
) -> PublishedCheckpoint | None:
    """The first checkpoint of ``model_id`` in these formats whose files are of one of ``kinds``.

    scheme : the quantization method that was asked for, None where the formats say it all
    """
    wanted = plain_word(model_id)
    for item in published_checkpoints():
        if plain_word(item.base) != wanted or item.kind not in kinds or item.format.weights is not weights:
            continue
        if scheme is not None and not scheme.startswith(item.format.method.partition("_")[0]):
            continue
        # Weights alone in few bits leave the products to the model's own format.
        if scheme is not None or (item.format.activations or activations) is activations:
            return item
    return None
