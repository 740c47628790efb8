"""What a capacity plan is asked for: the flags of plan-capacity, as a record and as a YAML workload file.

Objectives as they are written on command lines: ``ttft-p95=2s``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from simulator.errors import FileError, Option, ProfileError, RoofcastError
from simulator.specs.base import Spec
from simulator.specs.documents import read_yaml, validate
from simulator.specs.engine.engine import EngineName
from simulator.specs.model.precision import Dtype, NumberFormat
from simulator.specs.money.prices import OfferKind, PriceOf
from simulator.specs.question.plan_values import (
    HOURS_PER_WEEK,
    READING,
    given_duration_s,
    growth_per_month,
    horizon_months,
    hourly_profile,
    objective_s,
    ramp_per_s,
    stock_entry,
)
from simulator.specs.question.workload import LARGEST_CV, MOST_ANSWERS
from simulator.specs.spellings import SHORT_FIELDS, number_word, plain_word
from simulator.units import GIGA, KILO

_OBJECTIVE = re.compile(r"(ttft|tpot|e2e|latency)_p([0-9]+(?:\.[0-9]+)?)")
LONGEST_HORIZON = 120
TEXTS = ("speculation", "sparsity", "kv_policy", "weight_offload")
"""Techniques that a plan takes as text."""
NONE = "none"
"""The text that compares with the technique left out."""
_LISTS = (
    *("hardware", "weights", "kv_cache", "tp_size", "pp_size", "dp_size", "ep_size", "max_num_seqs", "stock"),
    "measured_at",
    *(*TEXTS, "serving", "kv_allocation"),
)


WorkloadName = Literal["chat", "code", "rag", "long-context", "batch", "agents", "reasoning"]
"""Kinds of demand with lengths of their own."""
WORKLOADS: tuple[str, ...] = get_args(WorkloadName)


def _word(value: object) -> object:
    return plain_word(value) if isinstance(value, str) else value


CacheDtype = Annotated[Dtype, BeforeValidator(lambda value: number_word(value) if isinstance(value, str) else value)]
"""A dtype of cached keys and values; a block format is the dtype of its numbers."""


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


class PlanSpec(Spec):
    """Every question that plan-capacity answers; ``None`` and empty mean the documented default.

    rate_per_s : requests/s at the peak that is planned for, or their mean where ``peak_to_mean`` is given
    workload : the kind of demand, whose lengths, variation and cached share stand for what is not given
    isl_tokens, osl_tokens, isl_cv, osl_cv : prompt and answer tokens, their coefficients of variation; ``trace``
        measures them
    images_per_request, image_pixels : pictures in a prompt and their width x height; ``isl_tokens`` counts their
        tokens too
    cache_hit : share of requests answered without an accelerator; prefix_hit : share of prompt tokens cached
    answers_per_request : sampled for every prompt (n, best of n), which is computed once
    arrival_cv : burstiness of arrivals (1 Poisson); objectives : written ``ttft_p95: 2s`` in files
    confidence : percent of draws of the step times in which the fleet holds its objectives; 50 plans as predicted
    utilization : highest share of a replica's saturation rate; headroom : growth kept free, as a fraction
    spares : replicas beyond the needed ones; round_to : whole servers, or single accelerators
    search : "wide" varies pipeline depths and engine limits too; any_precision : number formats as well
    serving : prompts and answers on the same replicas (aggregated), in two pools (disaggregated), or both compared
    any_technique : speculation, 2:4 sparsity and data-parallel attention as well
    speculation, sparsity, kv_policy : what-ifs to compare, as text (``eagle:k=4``, ``2:4``, ``h2o:1024``, ``none``)
    weight_offload : shares of the layers' weights in host memory to compare; kv_allocation : of the cache, in blocks
        as it fills (paged), or room for the longest request at once
    dp_size : ranks of data-parallel attention to compare, for models with experts; ep_size : that share the experts
    max_quality_loss : largest published loss of answers that is allowed, as a fraction; what is unknown is refused
    price_kind, price_of : the term (by default the cheapest of on demand and commitments within ``horizon``), and
        which of the providers' prices of it (what the list marks, or the median)
    provider : one provider's prices, by its name, or those of one kind of provider
    ownership : figures of owning for the report, by name or file
    max_* : limits of the whole fleet; stock : ``h100=64``, accelerators that exist; server_spares : in whole servers
    explain_gap, pools, resilience, rental, uncertainty, pareto : studies beside the plan
    verify : the best fleets are simulated before one is recommended; None: the recommended one, once the event
    simulation is compiled; False: none
    availability : percent of time with enough replicas up; mtbf_hours : of one accelerator; mttr_hours : of a replica
    startup : from the start of a replica's process to its first answer; autoscaler_lag : from a ramp to that start [s]
    ramp : growth of the rate that is planned for, as a share of it [1/s]; growth : of demand [1/month]
    horizon : months of growth, and the longest commitment to a rental; lead_time : days from order to use
    load_profile : relative demand by hour of a day or a week
    weekend : demand of Saturday and Sunday over that of a weekday
    demand_sigma : standard deviation of log(demand / forecast)
    measured_rps_per_gpu : requests/s that one accelerator was measured to carry, which size a fleet beside the
        predicted one; measured_at : percentiles at that rate, as text (``latency-p95=2.8s``)
    """

    rate_per_s: float | None = Field(default=None, gt=0, le=GIGA)
    model: str | None = None
    hardware: tuple[str, ...] = ()
    workload: Annotated[WorkloadName | None, BeforeValidator(_word)] = None
    isl_tokens: float | None = Field(default=None, ge=1, le=GIGA)
    osl_tokens: float | None = Field(default=None, ge=1, le=GIGA)
    isl_cv: float | None = Field(default=None, ge=0, le=LARGEST_CV)
    osl_cv: float | None = Field(default=None, ge=0, le=LARGEST_CV)
    images_per_request: float | None = Field(default=None, gt=0, le=KILO)
    image_pixels: PositiveInt | None = None
    trace: str | None = None
    peak_to_mean: float | None = Field(default=None, ge=1, le=KILO)
    cache_hit: float = Field(default=0.0, ge=0, lt=1)
    prefix_hit: float | None = Field(default=None, ge=0, lt=1)
    answers_per_request: PositiveInt = Field(default=1, le=MOST_ANSWERS)
    arrival_cv: float | None = Field(default=None, gt=0, le=LARGEST_CV)
    objectives: tuple[ObjectiveSpec, ...] = ()
    weights: tuple[NumberFormat, ...] = ()
    kv_cache: tuple[CacheDtype, ...] = ()
    activations: NumberFormat | None = None
    scheme: str | None = None
    tp_size: tuple[PositiveInt, ...] = ()
    pp_size: tuple[PositiveInt, ...] = ()
    dp_size: tuple[PositiveInt, ...] = ()
    ep_size: tuple[PositiveInt, ...] = ()
    speculation: tuple[str, ...] = ()
    sparsity: tuple[str, ...] = ()
    kv_policy: tuple[str, ...] = ()
    weight_offload: tuple[str, ...] = ()
    kv_allocation: tuple[Literal["paged", "max_length"], ...] = ()
    engine: EngineName | None = None
    max_num_seqs: tuple[PositiveInt, ...] = ()
    max_num_batched_tokens: PositiveInt | None = None
    max_model_len: PositiveInt | None = None
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    confidence: Literal[50, 80, 90] = 80
    utilization: float | None = Field(default=None, gt=0, lt=1)
    headroom: float = Field(default=0.0, ge=0, le=KILO)
    spares: NonNegativeInt | None = None
    max_gpus: PositiveInt | None = None
    round_to: Literal["server", "device"] = "server"
    prices: str | None = None
    price_kind: OfferKind | None = None
    price_of: PriceOf | None = None
    provider: str | None = None
    ownership: str | None = None
    profiles: str | None = None
    search: Literal["usual", "wide"] = "usual"
    serving: tuple[Literal["aggregated", "disaggregated"], ...] = ()
    any_precision: bool = False
    any_technique: bool = False
    max_quality_loss: float | None = Field(default=None, ge=0, le=1)
    pareto: bool = False
    max_cost_per_hour: float | None = Field(default=None, gt=0, le=GIGA)
    max_power_kw: float | None = Field(default=None, gt=0, le=GIGA)
    max_racks: PositiveInt | None = None
    stock: tuple[str, ...] = ()
    explain_gap: bool = False
    pools: bool = False
    resilience: bool = False
    server_spares: NonNegativeInt | None = None
    availability: float | None = Field(default=None, ge=50, lt=100)
    mtbf_hours: float | None = Field(default=None, gt=0, le=GIGA)
    mttr_hours: float | None = Field(default=None, gt=0, le=GIGA)
    ramp: Annotated[float | None, BeforeValidator(ramp_per_s)] = None
    startup: Annotated[float | None, BeforeValidator(given_duration_s)] = None
    autoscaler_lag: Annotated[float | None, BeforeValidator(given_duration_s)] = None
    growth: Annotated[float | None, BeforeValidator(growth_per_month)] = None
    horizon: Annotated[PositiveInt | None, BeforeValidator(horizon_months)] = Field(default=None, le=LONGEST_HORIZON)
    start: date | None = None
    lead_time: PositiveInt | None = None
    rental: bool = False
    load_profile: Annotated[tuple[float, ...], BeforeValidator(hourly_profile)] = ()
    weekend: float | None = Field(default=None, ge=0, le=1)
    uncertainty: bool = False
    draws: PositiveInt | None = None
    seed: NonNegativeInt | None = None
    demand_sigma: float | None = Field(default=None, ge=0, le=1)
    measured_rps_per_gpu: float | None = Field(default=None, gt=0, le=GIGA)
    measured_at: tuple[str, ...] = ()
    verify: bool | None = None

    @field_validator("stock")
    @classmethod
    def _stock_entries(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        for entry in entries:
            stock_entry(entry)
        return entries

    @field_validator(*TEXTS)
    @classmethod
    def _readable_techniques(cls, texts: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        # A plan without techniques does not wait for what reads them.
        from simulator.specs.question.techniques_text import techniques_spec

        for text in texts:
            if text != NONE:
                techniques_spec({str(info.field_name): text})
        return texts

    @model_validator(mode="after")
    def _changes_something(self) -> PlanSpec:
        """An option of a study that was not asked for changes nothing, and is refused."""
        for option, asked, needs in (
            ("horizon", self.growth is not None or self.price_kind is None, "growth"),
            ("lead_time", self.growth is not None, "growth"),
            ("start", self.growth is not None, "growth"),
            ("draws", self.uncertainty, "uncertainty"),
            ("seed", self.uncertainty, "uncertainty"),
            ("demand_sigma", self.uncertainty, "uncertainty"),
            ("measured_at", self.measured_rps_per_gpu is not None, "measured_rps_per_gpu"),
            ("mtbf_hours", self.availability is not None, "availability"),
            ("mttr_hours", self.availability is not None, "availability"),
            ("ramp", self.resilience, "resilience"),
            ("startup", self.resilience, "resilience"),
            ("autoscaler_lag", self.resilience, "resilience"),
        ):
            if getattr(self, option) not in (None, ()) and not asked:
                raise RoofcastError(f"changes nothing without `{needs}`", field=Option(option), code="no_effect")
        if self.any_precision and (self.weights or self.scheme or self.activations):
            flags = "`weights`, `activations` and `scheme`"
            raise RoofcastError(f"contradicts {flags}: give one or the other", field=Option("any_precision"))
        if self.any_technique and (self.speculation or self.sparsity or self.dp_size):
            raise RoofcastError(
                "contradicts `speculation`, `sparsity` and `dp_size`: give one or the other",
                field=Option("any_technique"),
            )
        if self.image_pixels is not None and self.images_per_request is None:
            raise RoofcastError(
                "changes nothing without `images_per_request`", field=Option("image_pixels"), code="no_effect"
            )
        if self.weekend is not None and len(self.load_profile) == HOURS_PER_WEEK:
            raise RoofcastError(
                "contradicts `load_profile` of a whole week: give one or the other", field=Option("weekend")
            )
        if self.measured_rps_per_gpu is not None and (len(self.hardware) != 1 or self.stock):
            raise RoofcastError(
                "holds for one accelerator, which `hardware` has to name, without `stock`",
                field=Option("measured_rps_per_gpu"),
                hint="`hardware` h100",
            )
        measured_objectives(self)
        if self.server_spares is not None and self.spares is not None:
            raise RoofcastError("contradicts `spares`: give one or the other", field=Option("server_spares"))
        return self

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, data: Any) -> Any:
        return _normalised(data) if isinstance(data, Mapping) else data


def _normalised(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Field names for flags and short words, objectives for ``ttft-p95`` keys, lists of one where lists are allowed."""
    fields: dict[str, Any] = {}
    objectives: list[object] = []
    for key, value in data.items():
        name = _field_name(key)
        if value is not None and fields.get(name) is not None:
            raise RoofcastError("is given twice, under two names", field=name, code="contradiction")
        match = _OBJECTIVE.fullmatch(name)
        if match:
            metric = "e2e" if match[1] == "latency" else match[1]
            objectives.append(
                {
                    "metric": metric,
                    "percentile": float(match[2]),
                    "bound_s": value if value == READING else _bound_s(key, value),
                }
            )
        elif name in _LISTS and isinstance(value, str | int | float):
            fields[name] = (value,)
        elif value is not None or name not in PlanSpec.model_fields:
            fields[name] = value
    if objectives:
        fields["objectives"] = (*fields.get("objectives", ()), *objectives)
    return fields


def _field_name(key: object) -> str:
    """``tp_size`` of ``tp``, ``max_num_seqs`` of ``max-num-seqs``."""
    name = str(key).replace("-", "_")
    return SHORT_FIELDS.get(name, name) if SHORT_FIELDS.get(name) in PlanSpec.model_fields else name


def _bound_s(key: object, value: object) -> float:
    try:
        return objective_s(value)
    except ValueError as error:
        raise RoofcastError(f"{error}, got {value!r}", field=str(key)) from None


def _checked(fields: Mapping[str, object], *, where: str = "") -> PlanSpec:
    """Refusals of a list name the list and not the index in it, because flags have no numbers."""
    try:
        return validate(PlanSpec, fields, where=where)
    except RoofcastError as error:
        name = error.field.partition(".")[0]
        if name in _LISTS:
            error.field = name
        # A file is reported as it is written, everything else as the field that an option may have filled.
        if not where and error.field in PlanSpec.model_fields:
            error.field = Option(error.field)
        raise


def plan_spec(flags: Mapping[str, object], *, workload: str | Path | None = None) -> PlanSpec:
    """Flags over the fields of a workload file, checked together. ``workload`` : the file, or a kind of demand.

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
    if plain_word(str(workload)) in WORKLOADS:
        return _checked({"workload": plain_word(str(workload)), **given})
    try:
        filed = _normalised(read_yaml(workload))
    except FileError as error:
        hint = f"{error.hint}; or one of {', '.join(WORKLOADS)}".removeprefix("; ")
        raise FileError(error.message, field=Option("workload"), hint=hint) from None
    except ProfileError as error:
        raise RoofcastError(error.message, field=Option("workload"), hint=error.hint) from None
    # The file is checked alone first, so that a bad value is reported where it stands.
    _checked(filed, where=str(workload))
    return _checked({**filed, **given})


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


def measured_objectives(spec: PlanSpec) -> tuple[ObjectiveSpec, ...]:
    """The percentiles that were measured at the measured rate."""
    return parse_objectives(spec.measured_at, flag=Option("measured_at"))
