"""Kinds of demand: what stands for lengths, their variation, cached shares and bounds that nobody gave."""

from __future__ import annotations

from collections.abc import Mapping
from math import hypot, log
from pathlib import Path

from simulator.errors import Option, RoofcastError, did_you_mean, plain_word
from simulator.records import dataclass
from simulator.specs.base import read_yaml

_OURS = "assumed as a starting point: replace it by your own trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPreset:
    """A named demand, as `workload_presets.yaml` describes it. Lengths are of public traces where there are any
    [Patel2024a] [Qin2024], bounds beside MLPerf's [MLPerf2024]."""

    name: str
    isl_tokens: int
    osl_tokens: int
    isl_cv: float
    osl_cv: float
    prefix_hit: float
    ttft_p95_s: float
    tpot_p95_s: float
    batch_size: int
    rate_per_s: float
    source: str = _OURS
    objective_source: str = _OURS

    @property
    def word(self) -> str:
        """As it is written on command lines and in files: ``long-context``."""
        return plain_word(self.name)

    def changed(self, given: Mapping[str, float]) -> dict[str, float]:
        """Of fields with their values, those that are not the preset's."""
        return {name: value for name, value in given.items() if value != getattr(self, name)}


_FILE = Path(__file__).with_name("workload_presets.yaml")
*PRESETS, EMBEDDINGS = (WorkloadPreset(name=name, **given) for name, given in read_yaml(_FILE).items())
PRESET_NAMES = tuple(preset.name for preset in PRESETS)
CHAT = PRESETS[0]
"""What a demand is where nothing is said of it."""


def nearest_preset(isl_tokens: float, osl_tokens: float) -> WorkloadPreset:
    """The preset whose mean lengths are nearest, by their ratios; chat unless another is nearer by a factor of two.
    Never a batch, for which nobody waits: a demand has to say so. One token is no answer but what a pass gives."""
    if osl_tokens <= 1:
        return EMBEDDINGS

    def distance(item: WorkloadPreset) -> float:
        return hypot(log(item.isl_tokens / isl_tokens), log(item.osl_tokens / osl_tokens))

    nearest = min((preset for preset in PRESETS if preset.name != "Batch"), key=distance)
    return nearest if distance(nearest) < distance(CHAT) - log(2) else CHAT


def kinds_of_demand(
    name: str | None, *, isl_tokens: float | None, osl_tokens: float | None, encodes: bool = False
) -> tuple[WorkloadPreset, WorkloadPreset]:
    """Whose means, and whose variation, stand for what is not given: of the named kind, else of chat and of the kind
    whose means are nearest; of an encoder, which ``encodes`` and generates nothing, embeddings.
    """
    if name is not None:
        return workload_preset(name), workload_preset(name)
    if encodes:
        return EMBEDDINGS, EMBEDDINGS
    return CHAT, nearest_preset(isl_tokens or CHAT.isl_tokens, osl_tokens or CHAT.osl_tokens)


def workload_preset(name: str) -> WorkloadPreset:
    """The preset of that name, in any spelling."""
    words = {preset.word: preset for preset in PRESETS}
    if plain_word(name) not in words:
        raise RoofcastError(
            f"{name!r} is no kind of demand", field=Option("workload"), hint=did_you_mean(plain_word(name), words)
        )
    return words[plain_word(name)]
