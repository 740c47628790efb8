"""The usual kinds of demand: named ones, several at once, and the one that given lengths are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, hypot, log, sqrt
from pathlib import Path

from simulator.errors import Option, RoofcastError, plain_word
from simulator.records import dataclass
from simulator.specs.base import Note, read_yaml
from simulator.specs.question.plan_values import workload_shares

_OURS = Note("assumed_start")


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
    source: str | Note = _OURS
    objective_source: str | Note = _OURS

    @property
    def word(self) -> str:
        """The name as command lines and files write it: ``long-context``."""
        return plain_word(self.name)

    def changed(self, given: Mapping[str, float]) -> dict[str, float]:
        """Given fields whose values are not the preset's."""
        return {name: value for name, value in given.items() if value != getattr(self, name)}


_FILE = Path(__file__).with_name("workload_presets.yaml")
*PRESETS, EMBEDDINGS = (WorkloadPreset(name=name, **given) for name, given in read_yaml(_FILE).items())
PRESET_NAMES = tuple(preset.name for preset in PRESETS)
CHAT = PRESETS[0]
"""What a demand is where nothing is said of it."""


def kind_by_lengths(isl_tokens: float, osl_tokens: float) -> WorkloadPreset:
    """The preset whose mean lengths are nearest, by their ratios; chat unless another is nearer by a factor of two.
    Never a batch: a demand has to say so.

    Where others are as near but for a factor of 1.5, spreads and bounds lie between theirs, so that none of them jumps
    where another becomes the nearest: the nearest weighs 1, one that is farther by that factor nothing.
    """
    if osl_tokens <= 1:
        return EMBEDDINGS  # what a pass gives

    def distance(item: WorkloadPreset) -> float:
        apart = hypot(log(item.isl_tokens / isl_tokens), log(item.osl_tokens / osl_tokens))
        return apart - log(2) if item is CHAT else apart

    found = sorted((preset for preset in PRESETS if preset.name != "Batch"), key=distance)
    weights = {item: 1 - (distance(item) - distance(found[0])) / log(3 / 2) for item in found}
    near = {item: weight for item, weight in weights.items() if weight > 0}
    if len(near) == 1:
        return found[0]

    def mean(field: str) -> float:
        values = [(float(getattr(item, field)), weight / sum(near.values())) for item, weight in near.items()]
        if field.endswith("_cv"):
            return sum(value * weight for value, weight in values)
        return exp(sum(log(value) * weight for value, weight in values))

    return replace(
        found[0],
        name=" and ".join(item.name for item in near),
        isl_cv=mean("isl_cv"),
        osl_cv=mean("osl_cv"),
        ttft_p95_s=mean("ttft_p95_s"),
        tpot_p95_s=mean("tpot_p95_s"),
        source=Note("between_kinds"),
        objective_source=Note("between_kinds"),
    )


def kinds_of_demand(
    name: str | None, *, isl_tokens: float | None, osl_tokens: float | None, encodes: bool = False
) -> tuple[WorkloadPreset, WorkloadPreset]:
    """Whose means, and whose variation, stand for what is not given: of the named kind, else of chat and of the kind by
    these lengths; of an encoder, which ``encodes`` and generates nothing, embeddings.
    """
    if name is not None:
        return workload_preset(name), workload_preset(name)
    if encodes:
        return EMBEDDINGS, EMBEDDINGS
    return CHAT, kind_by_lengths(isl_tokens or CHAT.isl_tokens, osl_tokens or CHAT.osl_tokens)


def workload_preset(name: str) -> WorkloadPreset:
    """The preset of that name, in any spelling; of several with their shares (``chat=0.7,rag=0.3``) one for all.

    Raises RoofcastError: there is no such kind of demand, or the shares do not sum to 1.
    """
    try:
        shares = workload_shares(name)
    except ValueError as error:
        raise RoofcastError(f"{error}, got {name!r}", field=Option("workload")) from None
    words = {preset.word: preset for preset in PRESETS}
    kinds = [(words[word], part) for (word, _), part in zip(shares, shares_of([of for _, of in shares]), strict=True)]
    return kinds[0][0] if len(kinds) == 1 else _mixed(kinds, name=name)


def shares_of(parts: Sequence[float]) -> tuple[float, ...]:
    """Each part of their sum."""
    whole = sum(parts)
    return tuple(part / whole for part in parts)


def _mixed(kinds: Sequence[tuple[WorkloadPreset, float]], *, name: str) -> WorkloadPreset:
    """One stream of requests of several kinds: means, variations and cached tokens of all, and the strictest bounds."""

    def mean(field: str) -> float:
        return sum(share * float(getattr(kind, field)) for kind, share in kinds)

    def cv(length: str) -> float:
        squares = (
            share * getattr(kind, f"{length}_tokens") ** 2 * (1 + getattr(kind, f"{length}_cv") ** 2)
            for kind, share in kinds
        )
        return sqrt(max(sum(squares) / mean(f"{length}_tokens") ** 2 - 1, 0.0))

    cached = sum(share * kind.prefix_hit * kind.isl_tokens for kind, share in kinds)
    return replace(
        min((kind for kind, _ in kinds), key=lambda kind: kind.ttft_p95_s),
        name=name,
        isl_tokens=round(mean("isl_tokens")),
        osl_tokens=round(mean("osl_tokens")),
        isl_cv=cv("isl"),
        osl_cv=cv("osl"),
        prefix_hit=cached / mean("isl_tokens"),
        tpot_p95_s=min(kind.tpot_p95_s for kind, _ in kinds),
        source=Note("of_all_kinds"),
        objective_source=Note("strictest_kind"),
    )
