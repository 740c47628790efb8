"""One step away from a question."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.planner.candidate import Candidate
from simulator.planner.records import FieldValue
from simulator.planner.search.question import Question
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
