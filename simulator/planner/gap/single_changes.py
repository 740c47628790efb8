"""One step away from a question, tried by the usual search on every accelerator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from simulator.planner.candidate import Candidate, Platform
from simulator.planner.fleet.fleet import Trial
from simulator.planner.records import FieldValue
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import Question
from simulator.planner.search.search import look_ahead, try_platform
from simulator.specs.model.precision import NumberFormat
from simulator.specs.question.plan import PlanSpec

SMALLER_FORMATS = (NumberFormat.FP8, NumberFormat.INT4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A question that differs in one thing: the field and its value, () where it is left out, None where it is open."""

    name: str
    field: str
    value: object
    spec: PlanSpec

    def given(self, candidate: Candidate) -> FieldValue:
        """What to give for a set-up that it leads to."""
        value = candidate.platform.hardware.name if self.field == "hardware" else self.value
        return FieldValue(field=self.field, value=value)


def single_changes(question: Question) -> tuple[Change, ...]:
    """One step away from the question: smaller formats, free tensor parallelism, other hardware."""
    spec = question.spec
    changes = [
        Change(
            name=f"{dtype} weights",
            field="weights",
            value=dtype,
            spec=spec.model_copy(update={"weights": (dtype,), "scheme": None}),
        )
        for dtype in SMALLER_FORMATS
        if dtype not in spec.weights
    ]
    if spec.tp_size:
        changes.append(
            Change(name="other degrees", field="tp_size", value=(), spec=spec.model_copy(update={"tp_size": ()}))
        )
    if spec.hardware:
        changes.append(
            Change(name="other hardware", field="hardware", value=None, spec=spec.model_copy(update={"hardware": ()}))
        )
    return tuple(changes)


def trial_of(question: Question, spec: PlanSpec) -> Trial:
    """Try every platform of a changed question, demand and objectives unchanged."""
    return trial_on(question, spec, platforms(spec))


def trial_on(question: Question, spec: PlanSpec, tried: Iterable[Platform]) -> Trial:
    """Try some platforms of a changed question, demand and objectives unchanged."""
    changed, tried = replace(question, spec=spec), tuple(tried)
    look_ahead(changed, tried)
    trial = Trial()
    for platform in tried:
        trial = trial.with_more(try_platform(changed, platform))
    return trial
