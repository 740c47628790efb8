"""Section 2: the whole runs that stand behind a plan: of its engine, accelerator, parallel degrees and weights. The
letter of a plan's confidence comes from these runs alone: fits and intervals are forecasts themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain

from simulator.kernels.timing import Provenance
from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.phases.deployment import Deployment
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.money.market import offers_of, plan_rule
from simulator.planner.serving.replica_load import meeting_chances
from simulator.records import dataclass
from simulator.reports.content import document as doc
from simulator.reports.content.quantities import chance_text, counted_text, percent_text
from simulator.reports.sections.ways_to_pay import ways_table
from simulator.reports.studies import Studies
from simulator.reports.words.derivation import TERMS
from simulator.reports.words.runs import parallel_text
from simulator.specs.measured.scores import ErrorScore, error_score
from simulator.specs.measured.validation_rows import ValidationRow, load_validation_table
from simulator.specs.model.precision import Dtype, scheme_word

_FEW = 5
"""Runs from which on their mean error says something. Chosen, as the bounds below are."""
_BOUNDS = ((0.10, "A"), (0.15, "B"), (0.25, "C"))
"""Mean errors and the grades that they allow."""
_LETTERS = "ABCD"
LIKELY, UNLIKELY = 0.8, 0.5
"""Shares of draws from which a fleet serves, and below which it does not. Chosen: 80 % is what plans are sized for."""
_OFFERS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """How surely the recommended fleet keeps its promise: the one answer of report, page and summary.

    chances : that each objective holds at the planned rate with the spares down, over the draws of the step times
    letter : from A to D, what runs say of those draws; reason : the clause that defends it
    """

    chances: tuple[float, ...]
    letter: str
    reason: str

    @property
    def chance(self) -> float:
        """Of the objective that is least sure; 1 where none was asked for."""
        return min(self.chances, default=1.0)

    @property
    def word(self) -> str:
        """``Serves it``, ``May serve it`` or ``Too tight``."""
        return "Serves it" if self.chance >= LIKELY else "May serve it" if self.chance >= UNLIKELY else "Too tight"

    @property
    def text(self) -> str:
        """``Confidence B, of A to D: holds its objectives in 83 % of draws of the step times; 40 whole runs of ...``"""
        held = (
            f"holds its objectives in {chance_text(self.chance)} of draws of the step times; " if self.chances else ""
        )
        return f"Confidence {self.letter}, of A to D: {held}{self.reason}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Measured runs that share something with the plan; ``score`` is None where there are none.

    names : what they share; runs : whole runs; models : that ran; sources : who measured them
    """

    names: str
    runs: int
    models: tuple[str, ...]
    sources: tuple[str, ...]
    score: ErrorScore | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    """What a replica runs, as rows of runs say it; ``mode``: in two pools, with guesses, or neither."""

    engine: str
    hardware: str
    degrees: tuple[int, ...]
    weights: str
    model_class: str
    mode: str


def _level(names: str, rows: Sequence[ValidationRow], like: Callable[[ValidationRow], bool]) -> Evidence:
    kept = [row for row in rows if like(row)]
    return Evidence(
        names=names,
        runs=len({(row.source, row.run) for row in kept}),
        models=tuple(sorted({row.model for row in kept})),
        sources=tuple(sorted({row.source for row in kept})),
        score=error_score(kept) if kept else None,
    )


@lru_cache(maxsize=64)
def _levels(ran: _Ran) -> tuple[Evidence, ...]:
    rows = load_validation_table().rows

    def same(row: ValidationRow) -> bool:
        return (row.engine, row.hardware, row.mode) == (ran.engine, ran.hardware, ran.mode)

    how = {"aggregated": "", "disaggregated": " in two pools"}.get(ran.mode, f" with {ran.mode}")
    shape = f"{ran.engine} on {ran.hardware}{how}"
    return (
        _level(
            f"{ran.model_class} models under {shape}, {parallel_text(ran.degrees)}, {ran.weights}",
            rows,
            lambda row: (
                same(row)
                and (row.degrees, row.model_class) == (ran.degrees, ran.model_class)
                and ran.weights == (row.scheme or row.weights)
            ),
        ),
        _level(f"{shape}, other degrees or formats too", rows, same),
        _level(
            f"{ran.model_class} models on {ran.hardware}",
            rows,
            lambda row: (row.model_class, row.hardware) == (ran.model_class, ran.hardware),
        ),
        _level(f"any engine on {ran.hardware}", rows, lambda row: row.hardware == ran.hardware),
        _level(f"{ran.engine} on any accelerator", rows, lambda row: row.engine == ran.engine),
    )


def evidence_of(plan: CapacityPlan) -> tuple[Evidence, ...]:
    """Measured runs like the replica of the plan that is known worst, from the closest on."""
    return max(_every(plan), key=lambda levels: _grade(levels)[0])


def _every(plan: CapacityPlan) -> list[tuple[Evidence, ...]]:
    """Evidence of a replica on every kind of accelerator of the plan, of the last pool on it."""
    last = {pool.hardware: pool.replica.deployment for pool in plan.best.pools}
    pools, scheme = len(plan.best.pools), plan.best.scheme
    return [_levels(_ran(deployment, pools=pools, scheme=scheme)) for deployment in last.values()]


def _ran(deployment: Deployment, *, pools: int, scheme: str | None) -> _Ran:
    degrees, guesses = deployment.parallelism, deployment.speculation
    return _Ran(
        engine=deployment.engine.name,
        hardware=deployment.hardware.name,
        degrees=(degrees.tp_size, degrees.pp_size, degrees.ep_size, degrees.dp_size, degrees.cp_size),
        weights=_weights(deployment.plan, scheme),
        model_class=deployment.model.model_class,
        mode="disaggregated" if pools > 1 else "aggregated" if guesses is None else guesses.plan.method,
    )


def _weights(plan: PrecisionPlan, scheme: str | None) -> str:
    """Format of the weights as runs name it: four-bit floats by their scales, ``nvfp4``, integers by the scheme that
    was asked for, others by their dtype."""
    if scheme is not None and plan.weights in (Dtype.INT8, Dtype.INT4):
        return scheme_word(scheme)
    if plan.weights in (Dtype.FP4, Dtype.INT8, Dtype.INT4):
        return plan.linear.name.replace("_", "-")
    return plan.weights.value


def confidence_in(plan: CapacityPlan) -> Confidence:
    """The chances of the objectives, and how far whole runs bear them out.

    The letter goes by the mean error of the closest runs of which there are enough; a grade less for every step away
    from the plan. Replicas that do both say nothing of what two pools, or guesses, do on top.

    Runs of other degrees or formats allow B at best, of another engine C, and of other accelerators alone D; without
    any run of this class of models on this accelerator it is a grade less.
    """
    place, reason = _grade(evidence_of(plan))
    chances = meeting_chances(plan.best, objectives=plan.objectives)
    return Confidence(chances=chances, letter=_LETTERS[place], reason=reason)


def _grade(levels: tuple[Evidence, ...]) -> tuple[int, str]:
    """The place of the letter, and what stands for it."""
    exact, kind, same_class, hardware, engine = levels
    worst = _LETTERS.index("D")
    for found, step in ((exact, 0), (kind, 1), (hardware, 2), (engine, 3)):
        if found.score is not None and found.runs >= _FEW:
            place = max(step, _LETTERS.index(_letter(found.score.mean)) + (same_class.runs == 0))
            return min(place, worst), _defence(found, exact, same_class)
    return worst, f"no whole runs of {hardware.names} or {engine.names}"


def _letter(mean_error: float) -> str:
    return next((letter for bound, letter in _BOUNDS if mean_error <= bound), _LETTERS[-1])


def _defence(found: Evidence, exact: Evidence, same_class: Evidence) -> str:
    assert found.score is not None
    said = f"{counted_text(found.runs, 'whole run')} of {found.names}: {percent_text(found.score.mean)} off on average"
    if found is not exact:
        said += f"; {exact.runs or 'none'} of {exact.names}"
    return said if same_class.runs else f"{said}; none of {same_class.names}"


def _runs_table(levels: Sequence[Evidence]) -> doc.Table:
    bounds = ", ".join(f"{letter} within {percent_text(bound)}" for bound, letter in _BOUNDS)
    sources = sorted({name for item in levels for name in item.sources})
    heads = ("Whole runs of", "Runs", "Off on average", "Bias", "In the 80 % interval", "Models")
    return doc.table(
        "evidence",
        "Whole runs that were measured, and what the same library predicts of them",
        doc.columns(*heads, words=("Whole runs of",), wide="Models"),
        [
            (
                item.names,
                doc.count(item.runs),
                doc.fraction(None if item.score is None else item.score.mean),
                doc.fraction(None if item.score is None else item.score.bias),
                doc.fraction(None if item.score is None else item.score.coverage),
                ", ".join(item.models) or "none",
            )
            for item in levels
        ],
        note="Errors over latencies, token rates and energy; bias: positive where predictions are high. The first line "
        f"with {_FEW} runs or more decides: {bounds}, D beyond; at best B on the second line, C on the fourth; one "
        f"less where no model of this class ran. Sources: {', '.join(sources) or 'none'}.",
    )


def _kernels(studies: Studies) -> doc.Table:
    """How each part of the step times is known."""
    worst: dict[str, doc.Cell] = {}
    levels: dict[str, int] = {}
    for _, estimate in studies.steps:
        for line in estimate.rows:
            kind, level = line.work.family.value, line.timing.provenance.max()
            if int(level) >= levels.get(kind, -1):
                levels[kind] = int(level)
                worst[kind] = _known(int(level))
    return doc.table(
        "calibration",
        "Kernels of a step",
        doc.columns("Kernels", "How they are known", words=("Kernels", "How they are known")),
        [(name, worst[name]) for name in sorted(worst, key=lambda name: (-levels[name], name))],
        note="Calibrated: fitted on kernels or whole runs of this accelerator or of a sibling (the same dies with "
        "other memory); extrapolated: outside the measured shapes, or from a farther relative; assumed: a plain "
        "roofline.",
    )


def _known(level: int) -> doc.Cell:
    label = Provenance(level).label
    return doc.text(label, origin=doc.known_as(label))


def _offers(studies: Studies) -> doc.Table:
    """Who asks what for the chosen accelerators: the offers that the plan's price is made of."""
    rule, best = plan_rule(studies.spec), studies.plan.best
    rows, notes = [], ["The cheapest lasting offer of each provider."]
    for item in best.housing:
        of = (item.hardware,) if best.is_unlike else ()
        offers = offers_of(studies.prices, hardware=item.hardware, rule=rule)
        rows += [
            doc.row(
                *of,
                offer.provider,
                TERMS[offer.kind],
                doc.money(offer.per_hour),
                offer.date,
                doc.text(offer.source, origin=doc.Origin.SOURCED),
            )
            for offer in offers[:_OFFERS]
        ]
        dearer = offers[_OFFERS:]
        if dearer:
            notes.append(f"{len(dearer)} dearer ones{' of ' if of else ''}{''.join(of)} are left out.")
    taken = [f"{price.per_hour:,.4g}: {price.provider}" for price in best.cost.prices]
    if taken:
        notes.insert(1, f"The plan takes {'; '.join(taken)}.")
    heads = ("Provider", "Term", "Accelerator-hour", "Date", "Source")
    every = ("Accelerator", *heads) if best.is_unlike else heads
    words = ("Accelerator", "Provider", "Term", "Date") if best.is_unlike else ("Provider", "Term", "Date")
    return doc.table(
        "offers",
        f"Who rents {best.hardware}, and for how much",
        doc.columns(*every, words=words, wide="Source"),
        rows,
        note=" ".join(notes),
    )


def evidence_section(studies: Studies) -> doc.Section:
    """The runs, the kernels and the offers that the decision rests on."""
    blocks: tuple[doc.Block, ...] = (
        doc.Paragraph(text=confidence_in(studies.plan).text, tone=doc.Tone.LEAD),
        _runs_table(tuple(dict.fromkeys(chain(*_every(studies.plan))))),
        _kernels(studies),
        _offers(studies),
        ways_table(studies),
    )
    return doc.Section(key="evidence", title="Evidence", blocks=blocks)
