"""Quantized checkpoints that are published for models in 16 bit: which formats people serve in their place."""

from __future__ import annotations

from functools import lru_cache

from simulator.specs.base import Spec
from simulator.specs.documents import read_yaml, validate
from simulator.specs.model.precision import Dtype
from simulator.specs.profiles import profile_root


class CheckpointSpec(Spec):
    """A quantized checkpoint ``id`` of the model ``of``.

    scheme : how it is quantized, by name; dtype : whose rate multiplies it
    source : where its format is known from
    """

    of: str
    scheme: str
    dtype: Dtype
    id: str
    source: str

    @property
    def by_maker(self) -> bool:
        """Whether the model's own maker publishes it."""
        return self.id.partition("/")[0].lower() == self.of.partition("/")[0].lower()


class CheckpointTable(Spec):
    """All checkpoints that are known."""

    date: str
    checkpoints: tuple[CheckpointSpec, ...]


@lru_cache(maxsize=1)
def load_checkpoints() -> CheckpointTable:
    """The table shipped with the package (model_profiles/quality/checkpoints.yaml)."""
    path = profile_root("model_profiles") / "quality" / "checkpoints.yaml"
    return validate(CheckpointTable, read_yaml(path), where=str(path))


def published_checkpoints(model_id: str) -> tuple[CheckpointSpec, ...]:
    """Checkpoints of a model, by its Hub id in any case."""
    return tuple(item for item in load_checkpoints().checkpoints if item.of.lower() == model_id.lower())
