"""Bounds that percentiles of latencies hold, as records and as command lines write them: ``ttft-p95=2s``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from simulator.errors import RoofcastError
from simulator.specs.base import Spec
from simulator.specs.documents import validate
from simulator.specs.question.plan_values import READING, objective_s


class ObjectiveSpec(Spec):
    """A percentile of a latency that must stay at or under a bound [s]. ``latency`` is another word for E2E.

    Of TPOT the bound may be ``reading``: no slower than people read.
    """

    metric: Literal["ttft", "tpot", "e2e"]
    percentile: float = Field(gt=0, lt=100)
    bound_s: Annotated[float, BeforeValidator(objective_s)]

    @field_validator("bound_s", mode="before")
    @classmethod
    def _reading_is_of_tokens(cls, value: object, info: ValidationInfo) -> object:
        if value == READING and info.data.get("metric") != "tpot":
            raise ValueError("reading is a bound of tpot, the time per token")
        return value


_WRITTEN = re.compile(r"(ttft|tpot|e2e|latency)[-_]p([0-9]+(?:\.[0-9]+)?)\s*=\s*(.+)")


def parse_objectives(texts: Sequence[str], *, flag: str) -> tuple[ObjectiveSpec, ...]:
    """One spec per text; the same percentile of the same metric twice is refused, because one of them would be idle.

    Raises
    ------
    RoofcastError
        Not METRIC-pNN=TIME, an unknown metric, a percentile outside (0, 100) or a time not above zero.
    """
    found: dict[tuple[str, float], ObjectiveSpec] = {}
    for text in texts:
        match = _WRITTEN.fullmatch(text.strip().lower())
        if match is None:
            raise RoofcastError(
                f"METRIC-pNN=TIME is needed with ttft, tpot or e2e, got {text!r}",
                field=flag,
                hint="such as ttft-p95=2s or tpot-p95=50ms",
            )
        fields = {"metric": match[1].replace("latency", "e2e"), "percentile": float(match[2]), "bound_s": match[3]}
        try:
            spec = validate(ObjectiveSpec, fields, where="")
        except RoofcastError as error:
            raise RoofcastError(f"{error.message}, in {text!r}", field=flag, hint=error.hint) from None
        key = (spec.metric, spec.percentile)
        if key in found:
            raise RoofcastError(f"{text!r} bounds what another objective bounds already", field=flag)
        found[key] = spec
    return tuple(found.values())
