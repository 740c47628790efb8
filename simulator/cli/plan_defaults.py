"""What stands for every option that is not given, as its help says it; values are the library's."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.api.models import DEFAULT_LENGTHS
from simulator.operators.vision import DEFAULT_IMAGE_PIXELS
from simulator.planner.demand import DEFAULT_OBJECTIVES
from simulator.planner.fleet.availability import DEFAULT_MTTR_HOURS
from simulator.planner.fleet.records import DEFAULT_SPARES
from simulator.planner.search.question import DEFAULT_UTILIZATION
from simulator.planner.studies.growth import DEFAULT_LEAD_TIME_DAYS
from simulator.planner.studies.resilience import AUTOSCALER_LAG_S
from simulator.planner.studies.uncertainty import DEFAULT_DEMAND_SIGMA, DEFAULT_DRAWS
from simulator.specs.engine.engine import DEFAULT_ENGINE
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import (
    DEFAULT_HORIZON_MONTHS,
    HARDWARE,
    PLANNED_MODEL,
    SERVED_DURATION_S,
    STEP_CONTEXT_TOKENS,
)
from simulator.traffic.lengths import CHAT
from simulator.units import bound_text, percent_text

_ENGINE = "the engine's own"
_CHECKPOINT = "the checkpoint's"
_SEARCHED = "searched"
_NO_LIMIT = "no limit"

_WORDS: Mapping[str, str] = {
    "rate_per_s": "needed, or the trace's",
    "workload": CHAT.word,
    "isl_cv": "the kind of demand's; its lengths decide which",
    "osl_cv": "the kind of demand's; its lengths decide which",
    "trace": "none",
    "peak_to_mean": "1: the rate is the peak",
    "prefix_hit": "0, or the kind of demand's",
    "images_per_request": "none",
    "arrival_cv": "1",
    "hardware": "all that are on offer",
    **dict.fromkeys(("weights", "activations", "scheme"), _CHECKPOINT),
    "kv_cache": "as the weights are served",
    **dict.fromkeys(("tp_size", "pp_size"), _SEARCHED),
    **dict.fromkeys(("dp_size", "ep_size"), "1; searched where a model has experts"),
    "cp_size": "1",
    "power_cap_w": "what each draws at most",
    **dict.fromkeys(("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization"), _ENGINE),
    "max_model_len": "the model's",
    **dict.fromkeys(("speculation", "sparsity", "kv_policy", "weight_offload"), "none"),
    "kv_allocation": "paged",
    "kv_tiers": "none",
    "encoder_hardware": "none: replicas encode",
    "prefill_hardware": "none: both pools on one kind",
    "serving": "aggregated, and pools on the best accelerators",
    **dict.fromkeys(("max_gpus", "max_cost_per_hour", "max_power_kw", "max_racks", "max_quality_loss"), _NO_LIMIT),
    **dict.fromkeys(("stock", "measured_rps_per_gpu", "measured_at"), "none"),
    "prices": "the built-in list",
    "price_kind": "the cheapest of on demand and commitments within --horizon",
    "price_of": "median",
    "provider": "all",
    "ownership": "as the price list says",
    "profiles": "the built-in ones alone",
    "server_spares": "none",
    "availability": "no target",
    "mtbf_hours": "published, Llama 3's training",
    "ramp": "5 % a minute, assumed",
    "startup": "weights over the host link and a minute",
    "growth": "none",
    "start": "today",
    "load_profile": "a raised cosine, assumed",
    "weekend": "as weekdays",
    "seed": "0",
    "verify": "the recommended one, sized until it holds, once that takes no compiler (roofcast warm-up)",
    "report": "none written",
}


def plan_defaults() -> Mapping[str, str]:
    """By field or parameter, what its help says after "default"; flags that are off need no words."""
    own = {
        name: f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
        for name, field in PlanSpec.model_fields.items()
        if isinstance(field.default, int | float | str) and not isinstance(field.default, bool)
    }
    return {
        **own,
        **_WORDS,
        "model": PLANNED_MODEL,
        "isl_tokens": f"{CHAT.isl_tokens}, or the kind of demand's",
        "osl_tokens": f"{CHAT.osl_tokens}, or the kind of demand's",
        "image_pixels": str(DEFAULT_IMAGE_PIXELS),
        "objective": ", ".join(f"{item.name} <= {bound_text(item.bound_s)}" for item in DEFAULT_OBJECTIVES),
        "engine": DEFAULT_ENGINE,
        "utilization": f"what objectives allow, up to {percent_text(DEFAULT_UTILIZATION)}",
        "spares": str(DEFAULT_SPARES),
        "mttr_hours": f"{DEFAULT_MTTR_HOURS:g}",
        "autoscaler_lag": bound_text(AUTOSCALER_LAG_S),
        "horizon": str(DEFAULT_HORIZON_MONTHS),
        "lead_time": str(DEFAULT_LEAD_TIME_DAYS),
        "draws": str(DEFAULT_DRAWS),
        "demand_sigma": f"{DEFAULT_DEMAND_SIGMA:g}",
    }


_NONE = "none"
_WRITTEN = "none written"
_SCENARIO = "the scenario's; needed without a file"
_SERVED: Mapping[str, str] = {
    **dict.fromkeys(("model", "hardware", "rate_per_s"), _SCENARIO),
    "duration_s": f"the scenario's, or {SERVED_DURATION_S:g}",
    "workload": f"the scenario's, or {CHAT.word}",
    **dict.fromkeys(("isl_tokens", "osl_tokens", "isl_cv", "osl_cv"), "the kind of demand's"),
    **dict.fromkeys(("tp_size", "cp_size", "replicas", "answers_per_request"), "the scenario's, or 1"),
    "seed": "the scenario's, or 0",
    "routing": "the scenario's, or round_robin",
    "requests": _WRITTEN,
    "trace": _WRITTEN,
}
_ANSWERED: Mapping[str, str] = {
    "model": "the one that the file names",
    **dict.fromkeys(("tp_size", "pp_size", "dp_size", "ep_size", "cp_size"), "1"),
    "system_prompt_tokens": _NONE,
}
_OF_COMMAND: Mapping[str, Mapping[str, str]] = {
    "serve": _SERVED,
    "capacity": {**_SERVED, "slo": "needed, unless the scenario has some"},
    "compare": {
        "model": "needed without a file",
        "hardware": HARDWARE,
        "tp_size": "1",
        **dict.fromkeys(("batch_size", "isl_tokens", "osl_tokens"), "a chat's"),
        "price_kind": "the cheapest of on demand and a year's commitment",
    },
    "step": {
        "tokens": f"{STEP_CONTEXT_TOKENS}, or the most that the model takes",
        "phase": "decode, where the model generates",
    },
    "crossover": {"formats": "the usual ones that the accelerator multiplies", "speculation": _NONE},
    "calibrate": {**_ANSWERED, "hardware": "needed", "bench": _NONE, "only": "every family of the file"},
    "validate": {
        "disaggregation": "one pool",
        **_ANSWERED,
        "hardware": "all; needed with --from",
        **dict.fromkeys(("mode", "library", "part"), "all"),
        "bench": _NONE,
    },
    "published": {"topic": "all"},
    "explain": {"model": "the topic's", "tpot": "as predicted", "plot": _WRITTEN},
    "model": {"context": "4096, or the model's most", "fine_tune": _NONE, "optimizer": "mixed", "train_batch": "1"},
    "retrieval": {"vector_size": "each method's own"},
    "report": {"formats": "all", "ownership": "the plan's"},
    "mixers": {"tokens": ", ".join(map(str, DEFAULT_LENGTHS))},
    "demand": {"over": "needed for /metrics text"},
    "sweep": {"out": "needed, unless a folder is read", "backend": "none: processes here", "chart": _WRITTEN},
    **dict.fromkeys(("prices list", "prices compare"), dict.fromkeys(("hardware", "price_kind", "provider"), "all")),
}
_COMMON: Mapping[str, str] = {
    "engine": DEFAULT_ENGINE,
    **dict.fromkeys(("weights", "activations", "kv_cache", "scheme"), _CHECKPOINT),
    **dict.fromkeys(("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization"), _ENGINE),
    "max_model_len": "the model's",
    "kernel": "the scheme's own",
    "attention": "flash",
    "fusion": "fused",
    **dict.fromkeys(("mixed", "sparsity", "contextual_sparsity", "speculation", "kv_policy", "adapters"), _NONE),
    **dict.fromkeys(("structure", "early_exit", "weight_offload", "what_if", "slo"), _NONE),
    **dict.fromkeys(("power_cap", "power_cap_w"), "what it draws at most"),
    "timeout": _NO_LIMIT,
    "profiles": "the built-in ones alone",
}


def command_defaults(command: str) -> Mapping[str, str]:
    """By parameter of a command by its words (``prices list``), what its help says after "default"."""
    return {**_COMMON, **_OF_COMMAND.get(command, {})}
