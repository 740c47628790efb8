"""What was filled in for a user: which input, with what, and where that came from; ``reports`` words it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ValueOrigin(StrEnum):
    """Where a value came from."""

    GIVEN = "given"
    DEFAULT = "default"
    TRACE = "trace"
    MEASURED = "measured"
    FITTED = "fitted"
    RULE = "rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """An input of an answer.

    key : what it is: a field of a scenario (``engine.max_num_seqs``), or one of the planner's ``PlanInput``
    value : the value itself; None where ``detail`` says it all
    detail : what the origin needs to be said in full: a profile's name, a trace, a citation
    """

    key: str
    value: object = None
    origin: ValueOrigin = ValueOrigin.DEFAULT
    detail: object = None
