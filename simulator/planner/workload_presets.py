"""Typical demands to start from: lengths with their source, and objectives that a reader is expected to edit.

Where inputs of a plan come from, beyond the word for it. Data only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot, log

from simulator.errors import Option, RoofcastError, did_you_mean
from simulator.specs.base import ValueOrigin
from simulator.specs.spellings import plain_word

_OURS = "assumed as a starting point: replace it by your own trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPreset:
    """A named demand.

    isl_tokens, osl_tokens : means; isl_cv, osl_cv : coefficients of variation; prefix_hit : share of prompt tokens
    that are cached; ttft_p95_s, tpot_p95_s : objectives; batch, concurrency : sequences for one replica
    source : where the lengths come from; objective_source : where the bounds come from
    """

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
    source: str
    objective_source: str = _OURS

    @property
    def word(self) -> str:
        """As it is written on command lines and in files: ``long-context``."""
        return plain_word(self.name)

    def changed(self, given: Mapping[str, float]) -> dict[str, float]:
        """Of fields with their values, those that are not the preset's."""
        return {name: value for name, value in given.items() if value != getattr(self, name)}


# Lengths of chat, code and long context are measured ones [Patel2024a] [Qin2024]: means and coefficients of variation
# of the public traces as `simulator.traffic.recorded.traces.summarise` reads them. Bounds of MLPerf: [MLPerf2024].
PRESETS = (
    WorkloadPreset(
        name="Chat",
        isl_tokens=1155,
        osl_tokens=211,
        isl_cv=0.96,
        osl_cv=0.77,
        prefix_hit=0.0,
        ttft_p95_s=1.0,
        tpot_p95_s=0.05,
        batch_size=32,
        rate_per_s=100.0,
        source="Azure 2023 conversation trace, 19,366 requests",
        objective_source="between MLPerf Inference's llama2-70b Server (2 s, 200 ms) and Interactive (450 ms, 40 ms): "
        "20 tokens a second are faster than people read",
    ),
    WorkloadPreset(
        name="Code",
        isl_tokens=2048,
        osl_tokens=28,
        isl_cv=0.96,
        osl_cv=2.15,
        prefix_hit=0.0,
        ttft_p95_s=0.5,
        tpot_p95_s=0.05,
        batch_size=16,
        rate_per_s=50.0,
        source="Azure 2023 code trace, 8,819 requests",
        objective_source="assumed: a completion of 28 tokens within two seconds, while its author waits",
    ),
    WorkloadPreset(
        name="RAG",
        isl_tokens=4096,
        osl_tokens=256,
        isl_cv=0.5,
        osl_cv=0.5,
        prefix_hit=0.1,
        ttft_p95_s=2.0,
        tpot_p95_s=0.05,
        batch_size=16,
        rate_per_s=20.0,
        source=_OURS,
        objective_source="assumed: read as chat, after a search and a longer prompt",
    ),
    WorkloadPreset(
        name="Long context",
        isl_tokens=12035,
        osl_tokens=343,
        isl_cv=1.31,
        osl_cv=0.73,
        prefix_hit=0.0,
        ttft_p95_s=10.0,
        tpot_p95_s=0.1,
        batch_size=8,
        rate_per_s=5.0,
        source="Mooncake conversation trace, 12,031 requests",
        objective_source="TPOT of the Mooncake paper (100 ms between tokens), a third of its TTFT (30 s)",
    ),
    WorkloadPreset(
        name="Batch",
        isl_tokens=2048,
        osl_tokens=512,
        isl_cv=0.5,
        osl_cv=0.5,
        prefix_hit=0.0,
        ttft_p95_s=60.0,
        tpot_p95_s=1.0,
        batch_size=128,
        rate_per_s=50.0,
        source=_OURS,
    ),
    WorkloadPreset(
        name="Agents",
        isl_tokens=8192,
        osl_tokens=512,
        isl_cv=0.8,
        osl_cv=0.8,
        prefix_hit=0.8,
        ttft_p95_s=2.0,
        tpot_p95_s=0.05,
        batch_size=16,
        rate_per_s=10.0,
        source=_OURS,
    ),
    WorkloadPreset(
        name="Reasoning",
        isl_tokens=1024,
        osl_tokens=8192,
        isl_cv=0.96,
        osl_cv=0.77,
        prefix_hit=0.0,
        ttft_p95_s=2.0,
        tpot_p95_s=0.05,
        batch_size=32,
        rate_per_s=10.0,
        source="lengths of InferenceX's reasoning scenario, 1k / 8k; spread assumed, as of chat",
    ),
)
PRESET_NAMES = tuple(preset.name for preset in PRESETS)


EMBEDDINGS = WorkloadPreset(
    name="Embeddings",
    isl_tokens=256,
    osl_tokens=1,
    isl_cv=0.96,
    osl_cv=0.0,
    prefix_hit=0.0,
    ttft_p95_s=0.5,
    tpot_p95_s=0.05,
    batch_size=64,
    rate_per_s=500.0,
    source=_OURS,
    objective_source="assumed: a search waits for it",
)
"""What an encoder is asked for: texts in, one pass each."""

CHAT = PRESETS[0]
"""What a demand is where nothing is said of it."""


def nearest_preset(isl_tokens: float, osl_tokens: float) -> WorkloadPreset:
    """The preset whose mean lengths are nearest, by their ratios; chat unless another is nearer by a factor of two.

    Never a batch, for which nobody waits: a demand has to say so. One token is no answer but what a pass gives.
    """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceName:
    """Which recording a value was read from."""

    source: str
    requests: int
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFound:
    """What a trace says of an input that was left at its default; None where it cannot tell."""

    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthOrigins:
    """Where the mean and the variation of lengths come from: ``trace`` where one of them is a trace's; ``workload``
    and ``nearest`` are the kinds of demand that stand for a mean and for a variation that are not given.
    """

    mean: ValueOrigin
    cv: ValueOrigin
    trace: TraceName | None
    workload: WorkloadPreset
    nearest: WorkloadPreset


@dataclass(frozen=True, slots=True, kw_only=True)
class SparesWanted:
    """What the number of spares follows from, where it was not given itself."""

    server_spares: int | None
    availability: float | None
