"""Questions in keywords: named as the fields of a scenario and of a plan, checked by their specifications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from simulator.errors import RoofcastError, no_effect
from simulator.specs.question.plan_values import SERVED_DURATION_S

if TYPE_CHECKING:
    from datetime import date

    from simulator.specs.measured.serving_results import ServedSpec
    from simulator.specs.question.plan import PlanSpec
    from simulator.specs.question.scenario import ScenarioSpec

Given = Mapping[str, Any]
Texts = str | list[str] | tuple[str, ...]
Sizes = int | list[int] | tuple[int, ...]


class ScenarioFields(TypedDict, total=False):
    """A scenario's fields; those of its ``precision`` stand beside them, as do rate and duration of a lone stage."""

    id: str | int
    kind: str
    model: str
    hardware: str
    interconnect: str | None
    power_cap_w: float
    tp_size: int
    pp_size: int
    ep_size: int
    dp_size: int
    cp_size: int
    replicas: int
    precision: Given
    weights: str
    activations: str
    kv_cache: str
    scheme: str
    techniques: Given
    engine: str | Given
    batch_size: int
    concurrency: int
    num_requests: int
    answers_per_request: int
    isl_tokens: int
    osl_tokens: int
    range_ratio: float
    isl_cv: float
    osl_cv: float
    lengths_trace: str
    ramp_s: float
    seed: int
    images_per_request: float
    image_pixels: int
    rate_per_s: float
    duration_s: float
    workload: Given | str
    disaggregation: Given
    encoder_pool: Given
    routing: str
    objectives: Given | list[str] | tuple[str, ...]


class PlanFields(TypedDict, total=False):
    """A plan's fields; a single value may stand for a list of one."""

    rate_per_s: float
    model: str
    hardware: Texts
    prefill_hardware: Texts
    encoder_hardware: Texts
    kv_tiers: Texts
    workload: str
    isl_tokens: float
    osl_tokens: float
    isl_cv: float
    osl_cv: float
    images_per_request: float
    image_pixels: int
    trace: str
    peak_to_mean: float
    cache_hit: float
    prefix_hit: float
    answers_per_request: int
    arrival_cv: float
    objectives: Given | list[str] | tuple[str, ...]
    power_cap_w: float
    weights: Texts
    kv_cache: Texts
    activations: str
    scheme: str
    tp_size: Sizes
    pp_size: Sizes
    dp_size: Sizes
    ep_size: Sizes
    cp_size: Sizes
    speculation: Texts
    sparsity: Texts
    kv_policy: Texts
    weight_offload: Texts
    kv_allocation: Texts
    engine: str
    max_num_seqs: Sizes
    max_num_batched_tokens: int
    max_model_len: int
    gpu_memory_utilization: float
    confidence: int
    utilization: float
    headroom: float
    spares: int
    max_gpus: int
    round_to: str
    prices: str
    price_kind: str
    price_of: str
    provider: str
    ownership: str
    profiles: str
    search: str
    serving: Texts
    any_precision: bool
    any_technique: bool
    two_batch_overlap: bool
    max_quality_loss: float
    pareto: bool
    max_cost_per_hour: float
    max_power_kw: float
    max_racks: int
    stock: Texts
    explain_gap: bool
    pools: bool
    resilience: bool
    server_spares: int
    availability: float
    mtbf_hours: float
    mttr_hours: float
    ramp: float | str
    startup: float | str
    autoscaler_lag: float | str
    growth: float | str
    horizon: float | str
    start: date | str
    lead_time: int
    rental: bool
    load_profile: str | list[float] | tuple[float, ...]
    weekend: float
    uncertainty: bool
    draws: int
    seed: int
    demand_sigma: float
    measured_rps_per_gpu: float
    measured_at: Texts
    verify: bool | None


class ServedFields(TypedDict, total=False):
    """The replica behind a benchmark; fields of its ``precision`` and limits of its engine stand beside the others."""

    model: str
    tp_size: int
    pp_size: int
    ep_size: int
    dp_size: int
    cp_size: int
    weights: str
    kv_cache: str
    scheme: str
    engine: str
    engine_version: str
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    gpu_memory_utilization: float
    system_prompt_tokens: int


_PRECISION = ("weights", "activations", "kv_cache", "scheme")
_LIMITS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "gpu_memory_utilization")


def written_objectives(given: object) -> tuple[str, ...]:
    """``{"ttft-p95": "2s"}`` or ``["ttft-p95=2s"]`` as texts; a number is in seconds."""
    if isinstance(given, Mapping):
        return tuple(f"{name}={value}s" if _is_number(value) else f"{name}={value}" for name, value in given.items())
    if isinstance(given, str):
        return (given,)
    if isinstance(given, list | tuple):
        return tuple(str(item) for item in given)
    raise RoofcastError(f"{given!r} is neither a mapping nor a list of texts", field="objectives")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _workload(fields: dict[str, Any], *, profiles: str | None) -> None:
    """A rate becomes the only stage of the workload."""
    rate, duration = fields.pop("rate_per_s", None), fields.pop("duration_s", None)
    if rate is None and duration is None:
        return
    if rate is None:
        raise no_effect("changes nothing without rate_per_s", field="duration_s", hint="")
    stage = {"rate_per_s": rate, "duration_s": SERVED_DURATION_S if duration is None else duration}
    workload: Any = fields.get("workload") or {}
    if isinstance(workload, str) or not (workload or fields.keys() & {"isl_tokens", "osl_tokens"}):
        workload = requests_of_kind(workload or None, fields, model=fields.get("model"), profiles=profiles)
    # What is no mapping is refused as the field that it is.
    fields["workload"] = {**workload, "stages": [stage]} if isinstance(workload, Mapping) else workload


def requests_of_kind(
    name: str | None, fields: dict[str, Any], *, model: str | None = None, profiles: str | None = None
) -> dict[str, Any]:
    """The workload of a kind of demand, by default chat, of an encoder embeddings; lengths are taken out of ``fields``.
    Without a name they vary as those of the kind whose means are nearest, as in a plan."""
    from simulator.engine.runs.load_sweep import demand_of
    from simulator.operators.transformer import is_encoder_only
    from simulator.specs.model.loading import load_model
    from simulator.traffic.workload_presets import kinds_of_demand

    given = {key: fields.pop(key, None) for key in ("isl_tokens", "osl_tokens", "isl_cv", "osl_cv")}
    encodes = model is not None and is_encoder_only(load_model(model, profiles=profiles))
    lengths = {key: given[key] for key in ("isl_tokens", "osl_tokens")}
    means, spread = kinds_of_demand(name, **lengths, encodes=encodes)
    own = {
        **{key: getattr(means, key) for key in ("isl_tokens", "osl_tokens")},
        **{key: getattr(spread, key) for key in ("isl_cv", "osl_cv")},
    }
    chosen = own | {key: value for key, value in given.items() if value is not None}
    prefix = means.prefix_hit if name else 0.0
    return demand_of(**chosen, prefix_hit_fraction=prefix).model_dump(mode="json", exclude_unset=True)


def scenario_spec(
    scenario: ScenarioSpec | Given | None, fields: Given, *, kind: str | None = None, profiles: str | None = None
) -> ScenarioSpec:
    """The scenario that was asked for: a specification or a mapping, with keywords over it.

    kind : the kind where neither says one; else ``batch_size`` asks for a batch, ``concurrency`` for a closed loop, a
    workload or a rate for a served one, and none of them for the throughput offline
    """
    from simulator.specs.base import validate
    from simulator.specs.question.scenario import ScenarioSpec, kind_of

    if isinstance(scenario, ScenarioSpec):
        if not fields:
            return scenario
        scenario = scenario.model_dump(mode="json", exclude_unset=True)
    given: dict[str, Any] = {**(scenario or {}), **fields}
    given.setdefault("kind", kind or kind_of(given))
    given.setdefault("id", "scenario")
    flat = {name: given.pop(name) for name in _PRECISION if name in given}
    whole = {} if given.get("precision") is None else given["precision"]
    if flat and isinstance(whole, Mapping):  # What is no mapping is refused below.
        given["precision"] = {**whole, **flat}
    if isinstance(given.get("engine"), str):
        given["engine"] = {"name": given["engine"]}
    if "objectives" in given:
        given["slo"] = written_objectives(given.pop("objectives"))
    _workload(given, profiles=profiles)
    return validate(ScenarioSpec, given, where="")


def plan_question(question: PlanSpec | Given | str | None, fields: Given) -> PlanSpec:
    """The plan that was asked for: a specification, a mapping or a workload file (YAML), with keywords over it."""
    from simulator.specs.question.plan import PlanSpec, plan_spec

    if isinstance(question, PlanSpec):
        question = question.model_dump(mode="json", exclude_unset=True)
    given = {**({} if question is None or isinstance(question, str) else question), **fields}
    for text in written_objectives(given.pop("objectives")) if _in_words(given.get("objectives")) else ():
        name, _, value = text.partition("=")
        given[name] = value
    named = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return plan_spec(named, workload=question if isinstance(question, str) else None)


def _in_words(objectives: object) -> bool:
    """Whether objectives are written, not records as a specification holds them."""
    if isinstance(objectives, list | tuple):
        return all(isinstance(item, str) for item in objectives) and bool(objectives)
    return isinstance(objectives, Mapping | str)


def served_spec(hardware: str, fields: Given) -> ServedSpec:
    """The replica that answered a benchmark."""
    from simulator.specs.base import validate
    from simulator.specs.measured.serving_results import ServedSpec

    given = {name: value for name, value in fields.items() if value is not None}
    named = {"name": given.pop("engine", None), "version": given.pop("engine_version", None)}
    engine = {**named, **{name: given.pop(name) for name in _LIMITS if name in given}}
    precision = {name: given.pop(name) for name in _PRECISION if name in given}
    parts = {"engine": engine, **({"precision": precision} if precision else {})}
    return validate(ServedSpec, {"hardware": hardware, **given, **parts}, where="")
