"""Widgets that return specifications. Each one's key is its name in the URL; presets fill in what nobody has edited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from app import glossary
from app.uploaded import session_profiles
from simulator.operators.formats.schemes import PLAIN_SCHEMES, SCHEME_NAMES
from simulator.planner.comparison import has_experts
from simulator.planner.workload_presets import PRESET_NAMES, WorkloadPreset, workload_preset
from simulator.specs.documents import validate
from simulator.specs.loading import list_hardware
from simulator.specs.model.loading import list_models
from simulator.specs.question.plan import PlanSpec, plan_spec
from simulator.specs.question.scenario import ScenarioSpec

DEFAULT_MODEL = "llama-3.1-70b"
DEFAULT_HARDWARE = "h100-sxm-80gb"
LARGEST_TOKENS = 131_072
LARGEST_BATCH = 512
NATIVE = "native"
_DTYPES = ("bf16", "fp8", "int8", "int4", "fp4")
_SCHEMES = tuple(name for name in SCHEME_NAMES if name not in (*_DTYPES, *PLAIN_SCHEMES))
# Number formats by dtype, then the methods that have names of their own.
WEIGHTS = (NATIVE, *_DTYPES, *_SCHEMES)
KV_DTYPES = (NATIVE, "bf16", "fp8", "int8")
ENGINES = ("vllm", "sglang", "tensorrt-llm")
# URL key -> field of the preset. A widget that still shows its preset's value follows when the preset changes.
PRESET_FIELDS = {
    "isl": "isl_tokens",
    "osl": "osl_tokens",
    "batch": "batch_size",
    "isl_cv": "isl_cv",
    "osl_cv": "osl_cv",
    "prefix": "prefix_hit",
    "ttft": "ttft_p95_s",
    "tpot": "tpot_p95_s",
}
# Fields of a scenario that a shared baseline may set.
_SHARED = (
    "kind",
    "model",
    "hardware",
    "tp_size",
    "pp_size",
    "ep_size",
    "precision",
    "engine",
    "batch_size",
    "isl_tokens",
    "osl_tokens",
    "techniques",
)
# Fields of a plan that a shared baseline may set; addresses that were shared earlier have the short words.
_PLAN_FLAGS = (
    "model",
    *("rate_per_s", "rps"),
    *("isl_tokens", "isl"),
    *("osl_tokens", "osl"),
    "workload",
    "ttft_p95",
    "tpot_p95",
    "hardware",
    "isl_cv",
    "osl_cv",
    "prefix_hit",
    "weights",
    "scheme",
    "utilization",
    "spares",
    "price_kind",
    "price_of",
    "provider",
    "growth",
    "horizon",
    "lead_time",
    "availability",
)
_LAST_PRESET = "_last_preset"
_KEPT = "_kept"
_PAGE = "_page"
# What one page hands on to the next.
_CARRIED = (*PRESET_FIELDS, "preset", "model", "gpu", "tp", "pp", "weights", "kv", "engine")


def _follow_preset() -> None:
    """Move values that still are the old preset's to the new one's; leave every edited one as it is."""
    before, now = workload_preset(st.session_state[_LAST_PRESET]), workload_preset(st.session_state["preset"])
    for key, field in PRESET_FIELDS.items():
        if key in st.session_state and st.session_state[key] == getattr(before, field):
            st.session_state[key] = getattr(now, field)
    st.session_state[_LAST_PRESET] = now.name


def carry_over(page: str) -> None:
    """Let the widgets of ``page`` show what a shared link set on the page before; called before a page runs.

    Streamlit carries over what its user touched, and forgets what only the address said.
    """
    if st.session_state.get(_PAGE, page) != page:
        for key, value in st.session_state.get(_KEPT, {}).items():
            if key not in st.query_params:
                st.session_state[key] = value
                st.query_params[key] = str(value)
    st.session_state[_PAGE] = page


def keep_shown() -> None:
    """Remember what the address says; called when a page is complete."""
    given = (key for key in _CARRIED if key in st.query_params and key in st.session_state)
    st.session_state[_KEPT] = {key: st.session_state[key] for key in given}


def preset_input() -> WorkloadPreset:
    """The kind of demand to start from."""
    name = st.selectbox(
        "Workload",
        PRESET_NAMES,
        key="preset",
        bind="query-params",
        on_change=_follow_preset,
        help="Sets lengths and objectives; whatever you have edited stays.",
    )
    preset = workload_preset(name)
    st.session_state[_LAST_PRESET] = preset.name
    st.caption(preset.source)
    return preset


def batch_input(preset: WorkloadPreset) -> int:
    """Sequences at a time."""
    return st.slider(
        "Batch", 1, LARGEST_BATCH, preset.batch_size, key="batch", bind="query-params", help=glossary.BATCH
    )


def choice(label: str, options: Sequence[str], *, key: str, default: str, help: str) -> str:
    """One of a few names, never typed: what a browser sends is looked up in the list."""
    index = options.index(default) if default in options else 0
    found: str = st.selectbox(label, options, index=index, key=key, bind="query-params", help=help)
    return found


def model_names() -> tuple[str, ...]:
    """Every model that can be chosen."""
    return list_models(profiles=session_profiles())


def model_input() -> str:
    """A model profile's name."""
    return choice(
        "Model",
        model_names(),
        key="model",
        default=DEFAULT_MODEL,
        help="Built-in models, and those that you upload on the Profiles page.",
    )


def hardware_input() -> str:
    """An accelerator's name."""
    return choice(
        "Accelerator",
        list_hardware(profiles=session_profiles()),
        key="gpu",
        default=DEFAULT_HARDWARE,
        help="Built-in accelerators, and those that you upload on the Profiles page.",
    )


def tokens(label: str, *, key: str, value: int, help: str) -> int:
    """A number of tokens."""
    return int(st.number_input(label, 1, LARGEST_TOKENS, value, key=key, bind="query-params", help=help))


def number(label: str, *, key: str, low: float, high: float, value: float, step: float, help: str) -> float:
    """A real number within bounds."""
    return float(st.number_input(label, low, high, value, step, key=key, bind="query-params", help=help))


def length_inputs(preset: WorkloadPreset) -> tuple[int, int]:
    """Prompt and answer tokens."""
    left, right = st.columns(2)
    with left:
        isl = tokens("Prompt tokens", key="isl", value=preset.isl_tokens, help=glossary.ISL)
    with right:
        osl = tokens("Answer tokens", key="osl", value=preset.osl_tokens, help=glossary.OSL)
    return isl, osl


def parallelism_inputs() -> dict[str, int]:
    """Tensor and pipeline degrees."""
    left, right = st.columns(2)
    with left:
        tp = st.selectbox("TP", (1, 2, 4, 8), index=2, key="tp", bind="query-params", help=glossary.TP)
    with right:
        pp = st.selectbox("PP", (1, 2, 4), key="pp", bind="query-params", help=glossary.PP)
    return {"tp_size": tp, "pp_size": pp}


def expert_parallelism_input(model: str) -> dict[str, int]:
    """The expert-parallel degree of a model that has experts."""
    if not has_experts(model, profiles=session_profiles()):
        return {}
    return {"ep_size": st.selectbox("EP", (1, 2, 4, 8), key="ep", bind="query-params", help=glossary.EP)}


def precision_inputs() -> dict[str, str]:
    """Number formats that differ from the checkpoint's."""
    left, right = st.columns(2)
    with left:
        fields = weights_input("weights")
    with right:
        return fields | kv_cache_input("kv")


def kv_cache_input(key: str) -> dict[str, str]:
    """The dtype of the KV cache, as the part of ``precision`` that it stands for."""
    name = choice("KV cache", KV_DTYPES, key=key, default=NATIVE, help=glossary.KV)
    return {} if name == NATIVE else {"kv_cache": name}


def weights_input(key: str) -> dict[str, str]:
    """A dtype or a named method, as the part of ``precision`` that it stands for."""
    name = choice("Weights", WEIGHTS, key=key, default=NATIVE, help=glossary.PRECISION)
    if name == NATIVE:
        return {}
    return {"scheme": name} if name in _SCHEMES else {"weights": name}


def deployment_inputs() -> dict[str, Any]:
    """The fields of a scenario that say what runs where."""
    fields: dict[str, Any] = {"model": model_input(), "hardware": hardware_input()}
    fields |= parallelism_inputs()
    fields["precision"] = precision_inputs()
    engine = choice("Engine", ENGINES, key="engine", default="vllm", help=glossary.ENGINE)
    fields["engine"] = {"name": engine}
    return fields


def shared_scenario(fields: dict[str, Any]) -> ScenarioSpec | None:
    """A static batch that a shared link names, held to what the widgets allow: no name may become a path."""
    found = scenario({name: fields[name] for name in _SHARED if name in fields})
    guess = found.techniques.speculation
    models = {found.model, guess.draft_model or found.model if guess else found.model}
    hardware = {found.hardware, guess.draft_hardware or found.hardware if guess else found.hardware}
    if found.kind != "batch" or not models <= set(model_names()):
        return None
    if not hardware <= set(list_hardware(profiles=session_profiles())):
        return None
    if max(found.isl_tokens or 0, found.osl_tokens or 0) > LARGEST_TOKENS or (found.batch_size or 0) > LARGEST_BATCH:
        return None
    return found


def shared_plan(fields: dict[str, Any]) -> PlanSpec | None:
    """A plan that a shared link names, held to what the widgets allow: neither files nor studies."""
    if not fields.keys() <= set(_PLAN_FLAGS):
        return None
    spec = plan_spec({**fields, "hardware": tuple(fields.get("hardware", ())), "profiles": session_profiles()})
    if spec.model not in model_names() or not set(spec.hardware) <= set(list_hardware(profiles=spec.profiles)):
        return None
    return spec


def scenario(fields: dict[str, Any]) -> ScenarioSpec:
    """The widgets' fields as a scenario of the contract, checked as strictly as a file."""
    return validate(ScenarioSpec, {"id": "app", **fields}, where="")
