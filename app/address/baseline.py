"""The pinned baseline: kept in the address, so that a shared link compares with the same thing."""

from __future__ import annotations

import json
from typing import Any

import streamlit as st

from app.fields import inputs
from app.fields.uploaded import session_profiles
from simulator.specs.question.plan import PlanSpec, plan_spec
from simulator.specs.question.scenario import ScenarioSpec

KEYS = ("baseline", "plan_baseline")
"""What pages call theirs in the address."""
# Fields of a scenario that a shared baseline may set.
_SHARED = (
    *("kind", "model", "hardware", "power_cap_w", "tp_size", "pp_size", "ep_size", "cp_size", "dp_size"),
    *("precision", "engine", "batch_size", "isl_tokens", "osl_tokens", "techniques"),
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
    *("hardware", "prefill_hardware"),
    "isl_cv",
    "osl_cv",
    "prefix_hit",
    "weights",
    "scheme",
    "utilization",
    "spares",
    "round_to",
    "price_kind",
    "price_of",
    "provider",
    "growth",
    "horizon",
    "lead_time",
    "availability",
    "confidence",
    "verify",
    "max_gpus",
    "max_cost_per_hour",
    "max_power_kw",
    "power_cap_w",
    "stock",
    "prices",
    "load_profile",
)
_LONGEST = 4000
"""Characters of a baseline in an address; ours have a few hundred."""


def pin(key: str, fields: dict[str, Any]) -> None:
    """Compare with ``fields`` from now on."""
    _show(key, json.dumps(fields, separators=(",", ":")))


def unpin(key: str) -> None:
    """Compare with nothing pinned."""
    st.session_state.pop(f"_{key}", None)
    st.query_params.pop(key, None)


def pinned(key: str) -> dict[str, Any] | None:
    """The pinned fields as the address has them; their reader has to check them. None without a usable one."""
    text = st.session_state.get(f"_{key}") or st.query_params.get(key)
    if not text or len(text) > _LONGEST:
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    _show(key, text)
    return fields


def is_usable(key: str) -> bool:
    """Whether what the address pins can be read at all."""
    return pinned(key) is not None


def _show(key: str, text: str) -> None:
    st.session_state[f"_{key}"] = text
    if st.query_params.get(key) != text:
        st.query_params[key] = text


def pin_button(key: str, fields: dict[str, Any]) -> None:
    """The button that pins what is shown, and once something is pinned the one that takes it away."""
    st.button(
        "Pin as baseline",
        key=f"pin_{key}",
        on_click=pin,
        args=(key, fields),
        icon=":material/push_pin:",
        help="Later changes are shown against what stands here now; the address keeps it.",
    )
    if st.session_state.get(f"_{key}"):
        st.button("Unpin", key=f"unpin_{key}", on_click=unpin, args=(key,), icon=":material/close:")


def shared_scenario(fields: dict[str, Any]) -> ScenarioSpec | None:
    """A static batch that a shared link names, held to what the widgets allow: no name may become a path."""
    found = inputs.scenario({name: fields[name] for name in _SHARED if name in fields})
    guess = found.techniques.speculation
    models = {found.model, guess.draft_model or found.model if guess else found.model}
    hardware = {found.hardware, guess.draft_hardware or found.hardware if guess else found.hardware}
    if found.kind != "batch" or not models <= set(inputs.model_names()):
        return None
    if not hardware <= set(inputs.hardware_names()):
        return None
    if (
        max(found.isl_tokens or 0, found.osl_tokens or 0) > inputs.LARGEST_TOKENS
        or (found.batch_size or 0) > inputs.LARGEST_BATCH
    ):
        return None
    return found


def shared_plan(fields: dict[str, Any]) -> PlanSpec | None:
    """A plan that a shared link names, held to what the widgets allow: neither files nor studies."""
    if not fields.keys() <= set(_PLAN_FLAGS):
        return None
    names = {name: tuple(fields.get(name, ())) for name in ("hardware", "prefill_hardware")}
    spec = plan_spec({**fields, **names, "profiles": session_profiles()})
    if (
        spec.prices not in (None, *inputs.price_lists())
        or spec.model not in inputs.model_names()
        or not {*spec.hardware, *spec.prefill_hardware} <= set(inputs.hardware_names())
    ):
        return None
    return spec
