"""What a capacity plan is asked for: the flags of plan-capacity, as a record and as a YAML workload file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

from simulator.errors import ProfileError, RoofcastError
from simulator.specs.base import Spec
from simulator.specs.documents import read_yaml, validate
from simulator.specs.engine import EngineName
from simulator.specs.precision import Dtype
from simulator.specs.prices import OfferKind
from simulator.specs.workload import LARGEST_CV
from simulator.units import GIGA, KILO, MICRO, MILLI, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

_DURATION = re.compile(r"\s*([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(us|ms|s|sec|min|h)?\s*")
_SECONDS = {None: 1.0, "us": MICRO, "ms": MILLI, "s": 1.0, "sec": 1.0, "min": SECONDS_PER_MINUTE, "h": SECONDS_PER_HOUR}
_OBJECTIVE = re.compile(r"(ttft|tpot|e2e|latency)_p([0-9]+(?:\.[0-9]+)?)")
_LISTS = ("hardware", "weights", "kv_cache", "tp", "pp", "max_num_seqs")


def duration_s(value: object) -> float:
    """``2s``, ``500ms``, ``1.5 min`` or a plain number of seconds [s].

    Raises
    ------
    ValueError
        Not a duration above zero.
    """
    match = _DURATION.fullmatch(str(value))
    try:
        seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    except ValueError:
        seconds = 0.0
    if isinstance(value, bool) or not seconds > 0:
        raise ValueError("a duration above zero such as 2s or 500ms is needed")
    return seconds


class ObjectiveSpec(Spec):
    """A percentile of a latency that must stay at or under a bound [s]. ``latency`` is another word for E2E."""

    metric: Literal["ttft", "tpot", "e2e"]
    percentile: float = Field(gt=0, lt=100)
    bound_s: Annotated[float, BeforeValidator(duration_s)]


class PlanSpec(Spec):
    """Every question that plan-capacity answers; ``None`` and empty mean the documented default.

    rps : requests/s at the peak that is planned for, or their mean where ``peak_to_mean`` is given
    isl, osl, isl_cv, osl_cv : prompt and answer tokens, their coefficients of variation; ``trace`` measures them
    cache_hit : share of requests answered without an accelerator; prefix_hit : share of prompt tokens cached
    arrival_cv : burstiness of arrivals (1 Poisson); objectives : written ``ttft_p95: 2s`` in files
    utilization : highest share of a replica's saturation rate; headroom : growth kept free, as a fraction
    spares : replicas beyond the needed ones; round_to : whole servers, or single accelerators
    """

    rps: float | None = Field(default=None, gt=0, le=GIGA)
    model: str | None = None
    hardware: tuple[str, ...] = ()
    isl: float | None = Field(default=None, ge=1, le=GIGA)
    osl: float | None = Field(default=None, ge=1, le=GIGA)
    isl_cv: float | None = Field(default=None, ge=0, le=LARGEST_CV)
    osl_cv: float | None = Field(default=None, ge=0, le=LARGEST_CV)
    trace: str | None = None
    peak_to_mean: float | None = Field(default=None, ge=1, le=KILO)
    cache_hit: float = Field(default=0.0, ge=0, lt=1)
    prefix_hit: float | None = Field(default=None, ge=0, lt=1)
    arrival_cv: float | None = Field(default=None, gt=0, le=LARGEST_CV)
    objectives: tuple[ObjectiveSpec, ...] = ()
    weights: tuple[Dtype, ...] = ()
    kv_cache: tuple[Dtype, ...] = ()
    activations: Dtype | None = None
    scheme: str | None = None
    tp: tuple[PositiveInt, ...] = ()
    pp: tuple[PositiveInt, ...] = ()
    engine: EngineName | None = None
    max_num_seqs: tuple[PositiveInt, ...] = ()
    max_num_batched_tokens: PositiveInt | None = None
    max_model_len: PositiveInt | None = None
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    utilization: float | None = Field(default=None, gt=0, lt=1)
    headroom: float = Field(default=0.0, ge=0, le=KILO)
    spares: NonNegativeInt | None = None
    max_gpus: PositiveInt | None = None
    round_to: Literal["server", "device"] = "server"
    prices: str | None = None
    price_kind: OfferKind = "on_demand"
    profiles: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, data: Any) -> Any:
        return _normalised(data) if isinstance(data, Mapping) else data


def _normalised(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Flag spelling to field names, ``ttft-p95`` keys to objectives, single values to lists where lists are allowed."""
    fields: dict[str, Any] = {}
    objectives: list[object] = []
    for key, value in data.items():
        name = str(key).replace("-", "_")
        match = _OBJECTIVE.fullmatch(name)
        if match:
            metric = "e2e" if match[1] == "latency" else match[1]
            objectives.append({"metric": metric, "percentile": float(match[2]), "bound_s": _bound_s(key, value)})
        elif name in _LISTS and isinstance(value, str | int | float):
            fields[name] = (value,)
        elif value is not None:
            fields[name] = value
    if objectives:
        fields["objectives"] = (*fields.get("objectives", ()), *objectives)
    return fields


def _bound_s(key: object, value: object) -> float:
    try:
        return duration_s(value)
    except ValueError as error:
        raise RoofcastError(f"{error}, got {value!r}", field=str(key)) from None


def _checked(fields: Mapping[str, object], *, where: str = "") -> PlanSpec:
    """A list's field carries no index in a refusal: the value is shown, and flags are not numbered."""
    try:
        return validate(PlanSpec, fields, where=where)
    except RoofcastError as error:
        name = error.field.partition(".")[0]
        if name in _LISTS:
            error.field = name
        raise


def plan_spec(flags: Mapping[str, object], *, workload: str | Path | None = None) -> PlanSpec:
    """Flags over the fields of a workload file, checked together.

    Raises
    ------
    RoofcastError
        A field is unknown or out of its range (names the field, the value and what is allowed), or the workload file
        is not YAML (file, line, reason).
    FileError
        The workload file cannot be read.
    """
    given = _normalised(flags)
    if workload is None:
        return _checked(given)
    try:
        filed = _normalised(read_yaml(workload))
    except ProfileError as error:
        raise RoofcastError(error.message, field="--workload", hint=error.hint) from None
    # The file is checked alone first, so that a bad value is reported where it stands.
    _checked(filed, where=str(workload))
    return _checked({**filed, **given})
