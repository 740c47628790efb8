"""What a capacity plan is asked for: the flags of plan-capacity, as a record and as a YAML workload file."""

import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    TypeAdapter,
    ValidationInfo,
    field_validator,
    model_validator,
)

from simulator.errors import FileError, Option, ProfileError, RoofcastError, contradiction, did_you_mean, no_effect
from simulator.specs.base import Days, Seed, Spec, open_field, reached_date, read_yaml, validate
from simulator.specs.engine.deployment import Degree, KvTiers, KvTierSpec
from simulator.specs.engine.engine import AtOnce, EngineName
from simulator.specs.model.precision import Dtype, NumberFormat, number_word
from simulator.specs.money.prices import OfferKind, PriceOf
from simulator.specs.question import plan_values
from simulator.units import GIGA, KILO, MEGA

_OBJECTIVE = re.compile(r"(ttft|tpot|e2e|latency)_p([0-9]+(?:\.[0-9]+)?)")
LONGEST_HORIZON = 120
TEXTS = ("speculation", "sparsity", "kv_policy", "weight_offload")
"""Techniques that a plan takes as text."""
STUDIES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("explain_gap", "pareto", "pools", "rental"), ()),
    "growth": ("lead_time", "start"),
    "uncertainty": ("draws", "seed", "demand_sigma"),
    "resilience": ("ramp", "startup", "autoscaler_lag"),
}
"""What asks for a study that leaves the fleet as it is, with the options that change nothing without it."""
_NEEDS: Mapping[str, str] = {
    "horizon": "growth",
    **{option: study for study, options in STUDIES.items() for option in options},
    **dict.fromkeys(("mtbf_hours", "mttr_hours"), "availability"),
    **dict.fromkeys(("image_pixels", "encoder_hardware"), "images_per_request"),
    "measured_at": "measured_rps_per_gpu",
    "kv_tiers": "trace",
}
"""By option, what it changes nothing without; a horizon also says how long commitments may be."""
FLEET_LIMITS = ("max_gpus", "max_cost_per_hour", "max_power_kw", "max_racks")
NONE = "none"
"""The text that compares with the technique left out."""
_LISTS = (
    *("hardware", "weights", "kv_cache", "tp_size", "pp_size", "dp_size", "ep_size", "cp_size", "stock"),
    *("prefill_hardware", "encoder_hardware", "kv_tiers", "max_num_seqs", "measured_at"),
    *(*TEXTS, "serving", "kv_allocation"),
)


def asked_tiers(texts: tuple[str, ...]) -> tuple[KvTierSpec, ...] | None:
    """The tiers of a plan; None without any."""
    return TypeAdapter(KvTiers).validate_python("|".join(texts)) if texts else None


def _kinds(text: str) -> str:
    shares = plan_values.workload_shares(text)
    return shares[0][0] if len(shares) == 1 else ",".join(f"{name}={share:g}" for name, share in shares)


CacheDtype = Annotated[Dtype, BeforeValidator(lambda value: number_word(value) if isinstance(value, str) else value)]
"""A dtype of cached keys and values; a block format is the dtype of its numbers."""


def _several(text: str) -> Any:
    return Field(default=(), description=text)


def _switch(text: str) -> Any:
    return Field(default=False, description=text)


class PlanSpec(Spec):
    """Every question that plan-capacity answers; ``None`` and empty mean the documented default.

    The options of the command line are made from these fields, and their help is what describes them here. Beside it:

    workload : its lengths, variation and cached share stand for what is not given; ``trace`` measures them
    objectives : written ``ttft_p95: 2s`` in files
    confidence : 50 plans for the times as predicted
    speculation, sparsity, kv_policy, weight_offload : as text (``eagle:k=4``, ``2:4``, ``h2o:1024``, ``none``)
    price_of : without it what the list marks, or the median
    verify : None: the recommended fleet, once the event simulation is compiled; False: none
    startup, autoscaler_lag : read as seconds; ramp : as a share of the rate [1/s]; growth : of demand [1/month]
    """

    meant: ClassVar[Mapping[str, str]] = {
        "disaggregation": "serving 'disaggregated', whose pools a plan sizes",
        "decode_ffn": "capacity() of a scenario with it, then measured_rps_per_gpu: its rate by its GPUs",
    }
    rate_per_s: float | None = open_field(
        "Requests/s at the peak; their mean with `peak_to_mean`.", ge=1 / GIGA, le=GIGA
    )
    model: str | None = open_field("Name, Hugging Face id, config.json or its folder.")
    hardware: tuple[str, ...] = _several("Accelerators to compare.")
    workload: Annotated[str, AfterValidator(_kinds)] | None = open_field(
        "chat, code, rag, long-context, batch, agents or reasoning; several with shares: chat=0.7,rag=0.3; or a YAML "
        "file with any of these options."
    )
    isl_tokens: float | None = open_field("Mean prompt tokens.", ge=1, le=GIGA)
    osl_tokens: float | None = open_field("Mean answer tokens, the first included.", ge=1, le=GIGA)
    isl_cv: float | None = open_field("Spread of prompt lengths, std/mean.", ge=0, le=plan_values.LARGEST_CV)
    osl_cv: float | None = open_field("Spread of answer lengths, std/mean.", ge=0, le=plan_values.LARGEST_CV)
    images_per_request: float | None = open_field(
        "Pictures in a prompt; `isl_tokens` counts their tokens too.",
        ge=plan_values.FEWEST_PICTURES,
        le=plan_values.MOST_PICTURES,
    )
    image_pixels: PositiveInt | None = open_field("Width x height of a picture.")
    trace: str | None = open_field("Lengths and peak from an Azure CSV or Mooncake JSONL.")
    peak_to_mean: float | None = open_field("Busiest over mean rate.", ge=1, le=KILO)
    cache_hit: float = Field(default=0.0, ge=0, lt=1, description="Share of requests answered without a GPU.")
    prefix_hit: float | None = open_field("Share of prompt tokens in the prefix cache.", ge=0, lt=1)
    answers_per_request: PositiveInt = Field(
        default=1, le=plan_values.MOST_ANSWERS, description="Answers to every prompt: n, or best of n."
    )
    arrival_cv: float | None = open_field(
        "Burstiness of arrivals at a replica, 1 for Poisson; 1 / sqrt(replicas) behind one router in turns.",
        gt=0,
        le=plan_values.LARGEST_CV,
    )
    objectives: tuple[plan_values.ObjectiveSpec, ...] = _several(
        "Percentiles of latencies with the bounds that they hold."
    )
    power_cap_w: float | None = open_field("Limit of each accelerator, W.", gt=0, le=MEGA)
    weights: tuple[NumberFormat, ...] = _several("Weight formats to compare.")
    kv_cache: tuple[CacheDtype, ...] = _several("KV-cache formats.")
    activations: NumberFormat | None = open_field("Format of the products.")
    scheme: str | None = open_field("Quantization method, such as gptq-g128.")
    tp_size: tuple[Degree, ...] = _several("Tensor-parallel sizes.")
    pp_size: tuple[Degree, ...] = _several("Pipeline-parallel sizes.")
    dp_size: tuple[Degree, ...] = _several("Ranks of data-parallel attention to compare, for models with experts.")
    ep_size: tuple[Degree, ...] = _several("Devices that share the experts to compare: 1, or tp x dp.")
    cp_size: tuple[Degree, ...] = _several("Ranks that share each long prompt's tokens.")
    speculation: tuple[str, ...] = _several(
        "Guesses to compare: mtp, eagle3:task=code, ngram:k=4, draft:acceptance=0.7, none."
    )
    sparsity: tuple[str, ...] = _several("Zeros in the weights to compare: 2:4, none.")
    kv_policy: tuple[str, ...] = _several("Bounded caches to compare: h2o:1024, h2o:20%, streaming:2048, none.")
    weight_offload: tuple[str, ...] = _several("Shares of weights in host memory to compare: 0.25, none.")
    two_batch_overlap: bool = _switch("Compare steps in halves: one computes while the other's tokens go to experts.")
    kv_allocation: tuple[Literal["paged", "max_length"], ...] = _several(
        "paged, or max_length: room for the longest request at once, as before PagedAttention."
    )
    engine: EngineName | None = open_field("Engine profile.")
    max_num_seqs: tuple[AtOnce, ...] = _several("Batch limits to compare.")
    max_num_batched_tokens: PositiveInt | None = open_field("Token budget of a step.")
    max_model_len: PositiveInt | None = open_field("Longest request in tokens.")
    gpu_memory_utilization: float | None = open_field("Share of memory the engine may use.", gt=0, le=1)
    kv_tiers: tuple[str, ...] = _several(
        "Tiers below the cache for a `trace` whose prompts repeat: host:2e11, nvme:4e12,bytes_per_s=2e10, remote:1e14."
    )
    encoder_hardware: tuple[str, ...] = _several(
        "Accelerators to compare for a pool that encodes the pictures, in place of the replicas."
    )
    confidence: Literal[50, 80, 90] = Field(
        default=80, description="50, 80 or 90: percent of draws of the step times in which the fleet holds (80)."
    )
    utilization: float | None = open_field("Highest share of the saturation rate.", gt=0, lt=1)
    headroom: float = Field(default=0.0, ge=0, le=KILO, description="Growth to keep free, such as 0.2.")
    spares: NonNegativeInt | None = open_field("Spare replicas.", le=MEGA)
    max_gpus: PositiveInt | None = open_field("GPUs that may be used in all.")
    round_to: Literal["server", "device"] = Field(default="server", description="server (whole servers) or device.")
    prices: str | None = open_field("Price list: a name or a YAML file (roofcast prices import writes one).")
    price_kind: OfferKind | None = open_field("Term: on_demand, reserved_1y, reserved_3y, spot or capacity_block.")
    price_of: PriceOf | None = open_field("low, median or high of the providers' prices.")
    provider: str | None = open_field(
        "Only the prices of one provider, or of hyperscaler, specialist or marketplace ones."
    )
    ownership: str | None = open_field("Figures of owning for the report: a name or a YAML file.")
    profiles: str | None = open_field("Your profiles; they override and extend.")
    search: Literal["usual", "wide"] = Field(
        default="usual", description="usual, or wide: pipeline depths and engine limits too, over 100,000 set-ups."
    )
    serving: tuple[Literal["aggregated", "disaggregated"], ...] = _several(
        "aggregated, or disaggregated: prompts and answers in pools of their own."
    )
    prefill_hardware: tuple[str, ...] = _several(
        "Accelerators of prefill pools to compare, decode pools being on another of `hardware`."
    )
    any_precision: bool = _switch("Compare number formats; answers change with them.")
    any_technique: bool = _switch(
        "Compare speculation, 2:4 sparsity and, with experts, data-parallel attention, on every accelerator that "
        "is named or may come out cheapest."
    )
    max_quality_loss: float | None = open_field(
        "Largest published loss of answer quality, such as 0.02; refuses what is unknown.", ge=0, le=1
    )
    pareto: bool = _switch("Add what no other fleet beats in cost, latency, energy and quality.")
    max_cost_per_hour: float | None = open_field("Money an hour, in the price list's currency.", gt=0, le=GIGA)
    max_power_kw: float | None = open_field("Nameplate power of the fleet in kW.", gt=0, le=GIGA)
    max_racks: PositiveInt | None = open_field("Racks that may be filled; needs whole servers.")
    stock: tuple[str, ...] = _several("Accelerators that exist and serve first, such as h100=64.")
    explain_gap: bool = _switch("What would need fewer GPUs, each step with its price in quality.")
    pools: bool = _switch("Add a split of short and long prompts into two fleets.")
    resilience: bool = _switch("Loss of replicas and servers, restarts, ramps.")
    server_spares: NonNegativeInt | None = open_field("Spares for the loss of whole servers (N+1: 1).", le=MEGA)
    availability: float | None = open_field("Percent of time with enough replicas up; sets the spares.", ge=50, lt=100)
    mtbf_hours: float | None = open_field("Hours between failures of one accelerator.", gt=0, le=GIGA)
    mttr_hours: float | None = open_field("Hours to repair a replica.", gt=0, le=GIGA)
    ramp: Annotated[float | None, BeforeValidator(plan_values.ramp_per_s)] = open_field(
        "Fastest growth of the rate, such as 10%/min of the peak."
    )
    startup: Annotated[float | None, BeforeValidator(plan_values.given_duration_s)] = open_field(
        "Start of a replica to its first answer, such as 4min."
    )
    autoscaler_lag: Annotated[float | None, BeforeValidator(plan_values.given_duration_s)] = open_field(
        "Ramp to the start of a replica."
    )
    growth: Annotated[float | None, BeforeValidator(plan_values.growth_per_month)] = open_field(
        "Growth of demand, such as 5%/month or 80%/year."
    )
    horizon: Annotated[PositiveInt | None, BeforeValidator(plan_values.horizon_months)] = open_field(
        "Months to look ahead and to commit for.", le=LONGEST_HORIZON
    )
    start: Annotated[date, AfterValidator(reached_date)] | None = open_field("First day of the forecast.")
    lead_time: Days | None = open_field("Days from order to use.")
    rental: bool = _switch("Cheapest mix of kept, on-demand and spot over day or week.")
    load_profile: Annotated[tuple[float, ...], BeforeValidator(plan_values.hourly_profile)] = _several(
        "Relative demand of 24 or 168 hours."
    )
    weekend: float | None = open_field("Demand of a weekend's day over a weekday's.", ge=0, le=1)
    uncertainty: bool = _switch("P10/P50/P90, what moves the plan, what breaks first, regret.")
    draws: PositiveInt | None = open_field("Draws of the Monte Carlo.", le=MEGA)
    seed: Seed | None = open_field("Seed of the Monte Carlo.")
    demand_sigma: float | None = open_field("Spread of log(demand / forecast).", ge=0, le=1)
    measured_rps_per_gpu: float | None = open_field("Size the fleet by what you measured on one GPU.", gt=0, le=GIGA)
    measured_at: tuple[str, ...] = _several("A percentile at that rate: latency-p95=2.8s.")
    verify: bool | None = open_field("Simulate the best fleets before one is recommended; `no_verify`: none.")

    @property
    def peak_rate_per_s(self) -> float | None:
        """The rate at the peak, where one is given: of ``rate_per_s``, which is a mean beside a peak over it [1/s]."""
        return None if self.rate_per_s is None else self.rate_per_s * (self.peak_to_mean or 1.0)

    @field_validator("stock")
    @classmethod
    def _stock_entries(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        for entry in entries:
            plan_values.stock_entry(entry)
        return entries

    @field_validator("kv_tiers")
    @classmethod
    def _readable_tiers(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        asked_tiers(texts)
        return texts

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
    def _changes_something(self) -> Self:
        """An option of a study that was not asked for changes nothing, and is refused."""
        for option, needs in _NEEDS.items():
            asked = getattr(self, needs) not in (None, False) or (option == "horizon" and self.price_kind is None)
            if getattr(self, option) not in (None, ()) and not asked:
                raise no_effect(f"changes nothing without `{needs}`", field=Option(option), hint="")
        techniques = self.speculation or self.sparsity or self.dp_size
        pools = "disaggregated" in self.serving or self.prefill_hardware
        week = len(self.load_profile) == plan_values.HOURS_PER_WEEK
        for option, beside, others in (
            ("any_precision", self.weights or self.scheme or self.activations, "`weights`, `activations` and `scheme`"),
            ("any_technique", techniques, "`speculation`, `sparsity` and `dp_size`"),
            ("weekend", week, "`load_profile` of a whole week"),
            ("prefill_hardware", self.serving == ("aggregated",), "`serving` aggregated"),
            ("kv_tiers", pools, "two pools, on which no trace is replayed"),
            ("server_spares", self.spares is not None, "`spares`"),
        ):
            if getattr(self, option) not in (None, False, ()) and beside:
                raise RoofcastError(f"contradicts {others}: give one or the other", field=Option(option))
        if self.measured_rps_per_gpu is not None and (len(self.hardware) != 1 or self.stock or self.prefill_hardware):
            raise RoofcastError(
                "holds for one accelerator, which `hardware` has to name, without `stock` and `prefill_hardware`",
                field=Option("measured_rps_per_gpu"),
                hint="`hardware` h100",
            )
        measured_objectives(self)
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
            raise contradiction("is given twice, under two names", field=name)
        match = _OBJECTIVE.fullmatch(name)
        if match:
            metric = "e2e" if match[1] == "latency" else match[1]
            objectives.append(
                {
                    "metric": metric,
                    "percentile": float(match[2]),
                    "bound_s": value if value == plan_values.READING else _bound_s(key, value),
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
    return (
        plan_values.SHORT_FIELDS.get(name, name)
        if plan_values.SHORT_FIELDS.get(name) in PlanSpec.model_fields
        else name
    )


def _bound_s(key: object, value: object) -> float:
    try:
        return plan_values.objective_s(value)
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

    Raises RoofcastError: a field is unknown or out of its range (names the field, the value and what is allowed), or
    the workload file is not YAML (file, line, reason).
    Raises FileError: the workload file cannot be read.
    """
    given = _normalised(flags)
    if workload is None:
        return _checked(given)
    if plan_values.is_workload_kind(str(workload)) and not Path(workload).is_file():
        return _checked({"workload": str(workload), **given})
    try:
        filed = _normalised(read_yaml(workload))
    except FileError as error:
        kinds = did_you_mean(
            str(workload), plan_values.WORKLOADS, otherwise=f"or one of {', '.join(plan_values.WORKLOADS)}"
        )
        hint = f"{error.hint}; {kinds}".removeprefix("; ")
        raise FileError(error.message, field=Option("workload"), hint=hint) from None
    except ProfileError as error:
        raise RoofcastError(error.message, field=Option("workload"), hint=error.hint) from None
    # The file is checked alone first, so that a bad value is reported where it stands.
    _checked(filed, where=str(workload))
    return _checked({**filed, **given})


def measured_objectives(spec: PlanSpec) -> tuple[plan_values.ObjectiveSpec, ...]:
    """The percentiles that were measured at the measured rate."""
    return plan_values.parse_objectives(spec.measured_at, flag=Option("measured_at"))
