"""Widgets that return specifications. Each one's key is its name in the URL; presets fill in what nobody has edited."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import cycle
from types import MappingProxyType
from typing import Any

import streamlit as st

from app.fields import glossary, widgets
from app.fields.mix import known_workload, mix_input, workloads
from app.fields.uploaded import session_profiles, uploaded_file, uploaded_names
from simulator.errors import RoofcastError
from simulator.operators.formats.schemes import PLAIN_SCHEMES, SCHEME_NAMES
from simulator.planner.search.candidates import LARGE_TP_SIZES, USUAL_DP_SIZES, USUAL_TP_SIZES
from simulator.planner.what_if import kv_head_choices
from simulator.reports.words.fields import note_text
from simulator.specs.base import validate
from simulator.specs.engine.engine import DEFAULT_ENGINE
from simulator.specs.hardware.accelerator import list_hardware, load_hardware
from simulator.specs.model.loading import list_models, load_model, named_model
from simulator.specs.profiles import find_profile, list_profiles
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.plan_values import HARDWARE, MODEL
from simulator.specs.question.scenario import ScenarioSpec
from simulator.traffic.workload_presets import PRESET_NAMES, WorkloadPreset, workload_preset

_FOLDERS, _LOOKED_UP = 100, 1000
LARGEST_TOKENS = 1_048_576
LARGEST_BATCH = 512
LARGEST_WATTS = 10_000.0
NATIVE = "native"
_DTYPES = ("bf16", "int8", "int4", "fp4")
_SCHEMES = tuple(name for name in SCHEME_NAMES if name not in (*_DTYPES, *PLAIN_SCHEMES))
# Number formats by dtype, then the methods that have names of their own.
WEIGHTS = (NATIVE, *_DTYPES, *_SCHEMES)
KV_DTYPES = (NATIVE, "bf16", "fp8", "int8")
_USUAL_ENGINES = ("vllm", "sglang", "tensorrt-llm")
ENGINES = (*_USUAL_ENGINES, *(name for name in list_profiles("engines") if name not in _USUAL_ENGINES))
_TP_SIZES = (*USUAL_TP_SIZES, *LARGE_TP_SIZES)
_DP_SIZES = (1, *USUAL_DP_SIZES)
SIZES = MappingProxyType({"tp": _TP_SIZES, "pp": USUAL_TP_SIZES, "dp": _DP_SIZES, "ep": _TP_SIZES, "cp": _DP_SIZES})
"""Degrees of parallelism that pages ask for."""
LARGEST_STEP = 131_072
_LARGEST_SEQS = 4096
OWN_LIMIT = "automatic"
SAME_KIND = "as the decode pool"
"""Where the prefill pool has no accelerator of its own."""
AS_REPLICAS = "as the replicas"
"""Where encoders or experts have none of their own."""
LINKS = (OWN_LIMIT, "scale_up", "nic")
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
LISTED = "default"
"""The price list that everybody counts with until another one is chosen."""
_FLAT = "as assumed"
LAST_PRESET = "_last_preset"


def _follow_preset() -> None:
    """Move values that still are the old preset's to the new one's; leave every edited one as it is."""
    name = known_workload(st.session_state["preset"])
    if name is None:
        return  # what is typed is nothing that is known, and is not asked
    before, now = workload_preset(st.session_state[LAST_PRESET]), workload_preset(name)
    for key, field in PRESET_FIELDS.items():
        if key in st.session_state and st.session_state[key] == getattr(before, field):
            st.session_state[key] = getattr(now, field)
    st.session_state[LAST_PRESET] = now.name


def _ask_preset(name: str) -> None:
    st.session_state["preset"] = name
    _follow_preset()


def preset_input() -> WorkloadPreset:
    """The kind of demand to start from, or a mix of several."""
    state = st.session_state
    name = widgets.choice(
        "Workload",
        workloads(state.get(LAST_PRESET), state.get("preset", st.query_params.get("preset"))),
        key="preset",
        default=PRESET_NAMES[0],
        on_change=_follow_preset,
        help="Sets lengths and objectives; whatever you have edited stays. Several are typed, or put together below.",
        spelled=known_workload,
    )
    preset = workload_preset(name)
    state[LAST_PRESET] = preset.name
    st.caption(note_text(preset.source))
    mix_input(_ask_preset)
    return preset


def batch_input(preset: WorkloadPreset) -> int:
    """Sequences at a time."""
    return widgets.whole("Batch", key="batch", low=1, high=LARGEST_BATCH, value=preset.batch_size, help=glossary.BATCH)


# A session's folder of own files is never changed, another file makes another folder: what is in one is looked up once.
# Each look at a folder is a call of the system, and a page had fifteen.
_models, _hardware = lru_cache(maxsize=_FOLDERS)(list_models), lru_cache(maxsize=_FOLDERS)(list_hardware)
_kv_heads = lru_cache(maxsize=_LOOKED_UP)(kv_head_choices)


@lru_cache(maxsize=_LOOKED_UP)
def _routes_to_experts(model: str, profiles: str | None) -> bool:
    return load_model(model, profiles=profiles).has_experts


@lru_cache(maxsize=_LOOKED_UP)
def _profile_name(hardware: str, profiles: str | None) -> str:
    return load_hardware(hardware, profiles=profiles).name


def model_names() -> tuple[str, ...]:
    """Every model that can be chosen."""
    return _models(profiles=session_profiles())


def hardware_names() -> tuple[str, ...]:
    """Every accelerator that can be chosen."""
    return _hardware(profiles=session_profiles())


def routes_to_experts(model: str) -> bool:
    """Whether a model has experts, whose degrees can be chosen."""
    return _routes_to_experts(model, session_profiles())


def kv_heads(model: str) -> tuple[str, ...]:
    """Numbers of KV heads that a model could have been built with."""
    return tuple(str(count) for count in _kv_heads(model, profiles=session_profiles()))


def price_lists() -> tuple[str, ...]:
    """Every price list that can be chosen."""
    return (LISTED, *(name for name in uploaded_names("prices") if name != LISTED))


def prices_input() -> dict[str, str]:
    """The price list of a plan, where somebody has uploaded one."""
    names = price_lists()
    if names == (LISTED,):
        return {}
    chosen = widgets.choice("Price list", names, key="prices", default=LISTED, help=glossary.COST)
    return {} if chosen == LISTED else {"prices": chosen}


def recorded_hours() -> tuple[str, ...]:
    """Recorded demands that can be asked with."""
    return (_FLAT, *uploaded_names("workloads"))


def hours_input() -> dict[str, str]:
    """How demand is spread over the hours of a day or a week, where somebody has uploaded a record."""
    names = recorded_hours()
    if names == (_FLAT,):
        return {}
    chosen = widgets.choice("Demand by hour", names, key="hours", default=_FLAT, help=glossary.HOURS)
    if chosen == _FLAT:
        return {}
    hours = plan_spec({}, workload=uploaded_file(f"workloads/{chosen}.yaml")).load_profile
    return {"load_profile": ",".join(f"{hour:g}" for hour in hours)} if hours else {}


def known_hardware(name: str) -> str | None:
    """The accelerator that is called so as well: ``h100``."""
    path = find_profile("hardware", name, profiles=session_profiles())
    return None if path is None else path.stem


def known_engine(name: str) -> str | None:
    """The engine that is called so as well: ``trt-llm``."""
    path = find_profile("engines", name, profiles=session_profiles())
    return None if path is None else path.stem


def known_model(name: str) -> str | None:
    """The model that is called so as well: its Hugging Face id; no path is read."""
    try:
        return named_model(name, profiles=session_profiles()).profile
    except RoofcastError:
        return None


def profile_name(hardware: str) -> str:
    """The name under which an accelerator stands in lists."""
    return _profile_name(hardware, session_profiles())


def model_input(default: str = MODEL) -> str:
    """A model profile's name."""
    return widgets.choice(
        "Model",
        model_names(),
        key="model",
        default=default,
        help="Built-in models, and those that you upload on the Profiles page, which also tells by which name a "
        "Hugging Face id is asked about.",
        spelled=known_model,
    )


def hardware_input() -> str:
    """An accelerator's name."""
    return widgets.choice(
        "Accelerator",
        hardware_names(),
        key="gpu",
        default=profile_name(HARDWARE),
        help="Built-in accelerators, and those that you upload on the Profiles page.",
        spelled=known_hardware,
    )


def power_input(key: str) -> dict[str, float]:
    """A limit of each accelerator, where one is given, as the field of a scenario or a plan."""
    watts = widgets.optional_number(
        "Power of each accelerator (W)",
        key=key,
        low=1.0,
        high=LARGEST_WATTS,
        step=10.0,
        placeholder="no limit",
        help=glossary.POWER_CAP,
    )
    return {} if watts is None else {"power_cap_w": watts}


def tokens(label: str, *, key: str, value: int, help: str) -> int:
    """A number of tokens."""
    return widgets.count(label, key=key, low=1, high=LARGEST_TOKENS, value=value, help=help)


def length_inputs(preset: WorkloadPreset) -> tuple[int, int]:
    """Prompt and answer tokens."""
    left, right = st.columns(2)
    with left:
        isl = tokens("Prompt tokens", key="isl", value=preset.isl_tokens, help=glossary.ISL)
    with right:
        osl = tokens("Answer tokens", key="osl", value=preset.osl_tokens, help=glossary.OSL)
    return isl, osl


def objective_inputs(preset: WorkloadPreset) -> dict[str, float]:
    """Bounds of both latencies, by the field of a plan."""
    left, right = st.columns(2)
    with left:
        ttft = widgets.number(
            "TTFT p95 (s)", key="ttft", low=0.01, high=600.0, value=preset.ttft_p95_s, step=0.1, help=glossary.TTFT
        )
    with right:
        tpot = widgets.number(
            "TPOT p95 (s)", key="tpot", low=0.001, high=10.0, value=preset.tpot_p95_s, step=0.01, help=glossary.TPOT
        )
    return {"ttft_p95": ttft, "tpot_p95": tpot}


def parallelism_inputs(
    model: str, *, pool: str = "", place: str = "", first: Mapping[str, int] = MappingProxyType({}), needs: str = ""
) -> dict[str, int]:
    """Degrees of parallelism; those of attention and of experts where the model has experts.

    pool : whose they are, where they are not the deployment's; starts their names and keys
    place : ends the keys of a page with several deployments, which start where the ``first`` is
    needs : what has to be filled in before them
    """
    shown = [("tp", glossary.TP), ("pp", glossary.PP)]
    if routes_to_experts(model):
        shown.extend((("dp", glossary.DP), ("ep", glossary.EP)))
    shown.append(("cp", glossary.CP))
    columns = cycle(st.columns(2))
    found = {}
    for (name, help), column in zip(shown, columns, strict=False):
        label = f"{pool.capitalize()} {name.upper()}" if pool else name.upper()
        start = f"{pool}_" if pool else ""
        with column:
            field, key = f"{start}{name}_size", f"{start}{name}{place}"
            found[field] = widgets.choice(
                label, SIZES[name], key=key, default=first.get(field, 1), help=help, needs=needs
            )
    return found


def precision_inputs() -> dict[str, str]:
    """Number formats that differ from the checkpoint's."""
    left, right = st.columns(2)
    with left:
        fields = weights_input("weights")
    with right:
        return fields | kv_cache_input("kv")


def kv_cache_input(key: str, default: str = NATIVE) -> dict[str, str]:
    """The dtype of the KV cache, as the part of ``precision`` that it stands for."""
    name = widgets.choice("KV cache", KV_DTYPES, key=key, default=default, help=glossary.KV)
    return {} if name == NATIVE else {"kv_cache": name}


def weights_input(key: str, default: str = NATIVE) -> dict[str, str]:
    """A dtype or a named method, as the part of ``precision`` that it stands for."""
    name = widgets.choice("Weights", WEIGHTS, key=key, default=default, help=glossary.PRECISION)
    if name == NATIVE:
        return {}
    return {"scheme": name} if name in _SCHEMES else {"weights": name}


def engine_input(*, limits: bool = True) -> dict[str, Any]:
    """The engine and, where they are not its own, its limits."""
    name = widgets.choice(
        "Engine", ENGINES, key="engine", default=DEFAULT_ENGINE, help=glossary.ENGINE, spelled=known_engine
    )
    if not limits:
        return {} if name == DEFAULT_ENGINE else {"name": name}
    left, right = st.columns(2)
    with left:
        most = widgets.optional_count(
            "Largest batch", key="seqs", low=1, high=_LARGEST_SEQS, placeholder=OWN_LIMIT, help=glossary.MAX_SEQS
        )
    with right:
        step = widgets.optional_count(
            "Tokens a step",
            key="step_tokens",
            low=2,
            high=LARGEST_STEP,
            placeholder=OWN_LIMIT,
            help=glossary.MAX_BATCHED,
        )
    # What is the engine's own is left to it, and listed among the assumptions.
    given = {"name": None if name == DEFAULT_ENGINE else name, "max_num_seqs": most, "max_num_batched_tokens": step}
    return {field: value for field, value in given.items() if value is not None}


def deployment_inputs(*, limits: bool = True, capped: bool = True) -> dict[str, Any]:
    """The fields of a scenario that say what runs where; of a benchmark's server it is not ``capped``."""
    fields: dict[str, Any] = {"model": model_input(), "hardware": hardware_input()}
    fields |= power_input("cap") if capped else {}
    fields |= parallelism_inputs(fields["model"])
    fields["precision"] = precision_inputs()
    fields["engine"] = engine_input(limits=limits)
    return fields


def scenario(fields: dict[str, Any]) -> ScenarioSpec:
    """The widgets' fields as a scenario of the contract, checked as strictly as a file."""
    return validate(ScenarioSpec, {"id": "app", **fields}, where="")
