"""The question that goes from page to page, and the bar that says it on each: model, demand, objectives, fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from app.fields import inputs, mix, widgets
from simulator.reports.content.quantities import count_text, counted_text, rate_text, seconds_text, unbroken
from simulator.specs.base import LARGEST_INTEGER
from simulator.traffic.workload_presets import CHAT, WorkloadPreset, workload_preset
from simulator.units import MICRO

_KEPT, _PAGE, _PLACE, _DEPLOYED, _FILLED = "_kept", "_page", "_bar", "_deployed", "_bar_filled"
_LINE, _TITLE = "_bar_line", "_bar_title"
_NOTHING = "No question yet: start on Plan or What-if"
UNASKED_TITLE = "roofcast"
_DEGREES = ("tp", "pp", "dp", "ep", "cp")
_DEPLOYMENT = ("model", "gpu", "cap", *_DEGREES, "weights", "kv", "engine", "seqs", "step_tokens")
# Where a replica comes from; no longer true of one that somebody changes.
_DEGREES_AHEAD = tuple(f"prefill_{key}" for key in _DEGREES)
_PREFILL_GPU = "prefill_gpu"
GPU_KEYS = ("gpu", _PREFILL_GPU, "encoder_gpu", "ffn_gpu")
_POOLED = ("prefill_replicas", "decode_replicas", *_DEGREES_AHEAD, "prefill_step_tokens")
_ORIGIN = ("replicas", "pool", *_POOLED, _PREFILL_GPU, "link")
_TIERS = ("host_gb", "nvme_gb", "nvme_gb_per_s", "remote_gb")
# What stands around a replica.
_AROUND = (*_TIERS, "encoders", "encoder_tp", "encoder_gpu", "ffn", "micro", "ffn_gpu")
OF_DEPLOYMENT = (*_DEPLOYMENT[1:], *_ORIGIN, *_AROUND)
POOLS = ("prefill", "decode")
_OBJECTIVES = ("ttft", "tpot")
# Every key of the question, and how its text in an address is read.
READ: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(
        (*("model", "preset", "weights", "kv", "engine", "pool", "link", "prices", "hours"), *GPU_KEYS), str
    ),
    **dict.fromkeys((*_DEGREES, "seqs", "step_tokens", "batch", "isl", "osl", "replicas", *_POOLED), int),
    **dict.fromkeys(("prompts", "pixels", "encoders", "encoder_tp", "ffn", "micro"), int),
    **dict.fromkeys((*_TIERS, "images"), float),
    **dict.fromkeys(("rps", "rate", *_OBJECTIVES, "isl_cv", "osl_cv", "prefix", "cap", "max_w"), float),
}


def _allowed(key: str, text: str) -> tuple[str, ...] | None:
    """Names that a key takes, of several in one the one in ``text``; None for numbers."""
    match key:
        case "model":
            return inputs.model_names()
        case "gpu":
            return inputs.hardware_names()
        case "prefill_gpu" | "encoder_gpu" | "ffn_gpu":
            return (inputs.SAME_KIND, inputs.AS_REPLICAS, *inputs.hardware_names())
        case "preset":
            return mix.workloads(text)
        case "weights":
            return inputs.WEIGHTS
        case "kv":
            return inputs.KV_DTYPES
        case "engine":
            return inputs.ENGINES
        case "pool":
            return POOLS
        case "link":
            return inputs.LINKS
        case "prices":
            return inputs.price_lists()
        case "hours":
            return inputs.recorded_hours()
    return None


def _nobody(_: str) -> None:
    """A name that stands for nothing else."""


_OTHER_NAMES: Mapping[str, Callable[[str], str | None]] = {
    "model": inputs.known_model,
    "engine": inputs.known_engine,
    "preset": mix.known_workload,
} | dict.fromkeys(("gpu", "prefill_gpu", "encoder_gpu", "ffn_gpu"), inputs.known_hardware)


def read(key: str, text: str) -> Any:
    """The value of a key that no widget of this page has; None for one that cannot be meant."""
    names = _allowed(key, text)
    if names is not None:
        meant = text if text in names else _OTHER_NAMES.get(key, _nobody)(text)
        return meant if meant in names else None
    try:
        value = READ[key](text)
    except ValueError:
        return None
    # Nothing arrives at no rate; no latency is within an objective of nothing, nor in any proportion to it.
    least = MICRO if key in (*_OBJECTIVES, "rps", "rate") else 0
    return value if least <= value <= LARGEST_INTEGER else None


def kept() -> dict[str, Any]:
    """What is asked, by key."""
    found: dict[str, Any] = st.session_state.setdefault(_KEPT, {})
    return found


def rename(name: str, now: str | None, *, keys: tuple[str, ...]) -> None:
    """Ask with a file of one's own under the name that it has ``now``; None : it is gone. keys : that may name it."""
    for key in [key for key in keys if kept().get(key) == name]:
        kept().pop(key)
        st.session_state.pop(key, None)
        if now is not None:
            kept()[key] = now


def hand_on(given: dict[str, Any]) -> None:
    """Ask about another deployment from the next page on."""
    for key in OF_DEPLOYMENT:
        kept().pop(key, None)
    st.session_state.pop(_DEPLOYED, None)
    kept().update({key: value for key, value in given.items() if value is not None})


def carry_over(page: str) -> None:
    """Let a page ask what the one before it asked; called before the page runs."""
    if st.session_state.get(_PAGE, page) != page:
        carried = {key: value for key, value in kept().items() if key not in st.query_params}
        st.session_state.update(carried)
        # At once: each change of the address is a message of its own.
        st.query_params.update({key: str(value) for key, value in carried.items()})
        st.session_state.pop(_DEPLOYED, None)
    st.session_state[_PAGE] = page


def _value(key: str) -> Any:
    """What a widget of this page says, else the address, else the page before."""
    if key in widgets.shown():
        return st.session_state[key]
    return elsewhere(key)


def elsewhere(key: str) -> Any:
    """What the address says of a key that no widget of this page has, else the page before."""
    return read(key, st.query_params[key]) if key in st.query_params else kept().get(key)


def keep() -> None:
    """Remember what this page asks; called when its widgets are complete."""
    found, shown = kept(), widgets.shown()
    for key in READ:
        value = st.session_state[key] if key in shown else elsewhere(key)
        found.pop(key, None)
        # Pools that nobody asked for are no part of the question, nor of the next page's address.
        unasked = key in _ORIGIN and key in shown and value == shown[key].default
        if value is not None and not unasked:
            found[key] = value
    deployed = tuple(found.get(key) for key in _DEPLOYMENT)
    if st.session_state.get(_DEPLOYED, deployed) != deployed:
        for key in set(_ORIGIN).difference(shown):
            found.pop(key, None)
            st.query_params.pop(key, None)
    st.session_state[_DEPLOYED] = deployed


def preset() -> WorkloadPreset:
    """The kind of demand that is asked about."""
    return workload_preset(kept().get("preset", CHAT.name))


def prices() -> str:
    """The price list that is counted with."""
    return str(_value("prices") or inputs.LISTED)


def title() -> str:
    """What the window of the browser is called: the question as it was last."""
    return str(st.session_state.get(_TITLE, UNASKED_TITLE))


def reserve(place: Any) -> None:
    """Where the bar of this run goes."""
    st.session_state[_PLACE], st.session_state[_FILLED], st.session_state[_LINE] = place, False, ""


def _degrees_text(asked: dict[str, Any], *, start: str = "") -> list[str]:
    return [f"{key.upper()}{size}" for key in _DEGREES if (size := asked.get(f"{start}{key}", 1)) != 1]


def deployment_text() -> str:
    """``one of 57 decode replicas of mi355x TP1 fp8``, or both pools; empty where no accelerator was chosen."""
    asked = kept()
    if "gpu" not in asked:
        return ""
    formats = [asked[key] for key in ("weights", "kv") if asked.get(key, inputs.NATIVE) != inputs.NATIVE]
    limit = [f"≤ {asked['cap']:g} W"] if "cap" in asked else []
    text = " ".join((asked["gpu"], *_degrees_text(asked), *formats, *limit))
    pooled = [asked.get(key, 0) for key in _POOLED[:2]]
    if any(pooled) and _POOLED[0] in widgets.shown():
        ahead, after = (max(count, 1) for count in pooled)
        kind = [f"of {name}" for name in (asked.get(_PREFILL_GPU),) if name not in (None, inputs.SAME_KIND)]
        first = " ".join((f"{count_text(ahead)} prefill", *kind, *_degrees_text(asked, start="prefill_")))
        fleet = asked.get("replicas", after)
        second = f"{count_text(after)} of {count_text(fleet)}" if fleet > after else count_text(after)
        return f"{first} + {second} decode replicas of {text}"
    if "replicas" not in asked:
        return text
    return f"one of {count_text(asked['replicas'])} {asked.get('pool', '')} replicas of {text}".replace("  ", " ")


def demand_text() -> str:
    """``1,000 requests/s of 1,155 → 211 tokens``."""
    asked, kind = kept(), preset()
    lengths = (
        f"{count_text(asked.get('isl', kind.isl_tokens))} → {count_text(asked.get('osl', kind.osl_tokens))} tokens"
    )
    return f"{rate_text(asked['rps'], 'requests')} of {lengths}" if "rps" in asked else lengths


def around_text() -> str:
    """``2 encoders, 8 expert devices, 200 GB host memory below the cache`` where a page asks with such things."""
    state = {key: st.session_state.get(key) for key in _AROUND if key in widgets.shown()}
    tiers = zip(("host memory", "drives", "remote store"), ("host_gb", "nvme_gb", "remote_gb"), strict=True)
    below = " + ".join(f"{size:,g} GB {name}" for name, key in tiers if (size := state.get(key)))
    encoders, experts = state.get("encoders"), state.get("ffn")
    parts = (
        f"{below} below the cache" if below else "",
        counted_text(encoders, "encoder") if encoders else "",
        counted_text(experts, "expert device") if experts else "",
    )
    return ", ".join(part for part in parts if part)


def load_text() -> str:
    """What a page asks of one deployment beside the demand: ``batch 32``; empty where it asks about no such load."""
    shown, state = widgets.shown(), st.session_state
    if "axis" in shown:
        return ""
    if "rate" in shown:
        return f"{rate_text(state['rate'], 'requests')} on it"
    if "context" in shown:
        return f"a step of {count_text(state['batch'])} at {count_text(state['context'])} tokens"
    return f"batch {count_text(state['batch'])}" if "batch" in shown else ""


def bounds_s() -> dict[str, float]:
    """The objectives by metric [s]."""
    asked, kind = kept(), preset()
    return {"ttft": asked.get("ttft", kind.ttft_p95_s), "tpot": asked.get("tpot", kind.tpot_p95_s)}


def objectives_text() -> str:
    """``TTFT p95 ≤ 1.00 s, TPOT p95 ≤ 50.0 ms``."""
    return ", ".join(f"{metric.upper()} p95 ≤ {seconds_text(bound)}" for metric, bound in bounds_s().items())


def text(fleet: str = "") -> str:
    """The whole question in a line."""
    if "model" not in kept():
        return _NOTHING
    listed = prices()
    counted = "" if listed == inputs.LISTED else f"prices of {listed}"
    parts = (
        kept()["model"],
        demand_text(),
        objectives_text(),
        fleet or deployment_text(),
        around_text(),
        load_text(),
        counted,
    )
    return " · ".join(part for part in parts if part)


def line() -> str:
    """The question as this page has said it; empty where it asks none."""
    return str(st.session_state[_LINE])


def forget() -> None:
    """Ask nothing that a page does not show."""
    kept().clear()
    for key in READ:
        if key not in widgets.shown():
            st.query_params.pop(key, None)


def at_default(defaults: dict[str, Any]) -> dict[str, Any]:
    """Values of a page that nobody has touched: a preset's where the first one has them."""
    first = workload_preset(defaults["preset"]) if "preset" in defaults else CHAT
    st.session_state.pop(inputs.LAST_PRESET, None)
    fields = inputs.PRESET_FIELDS
    return {key: getattr(first, fields[key]) if key in fields else value for key, value in defaults.items()}


def show_once() -> None:
    """Fill the bar of a page that has not done so itself."""
    if not st.session_state.get(_FILLED):
        show()


def show(*, fleet: str = "") -> None:
    """Fill the bar; the last call of a run stands."""
    if not st.session_state.get(_FILLED):
        keep()
    st.session_state[_FILLED], st.session_state[_LINE] = True, text(fleet)
    model, *rest = line().split(" · ")
    with st.session_state[_PLACE].container():
        st.markdown(unbroken(f"**{model}** · {' · '.join(rest)}") if rest else model)
    asked_title = f"{model}, {demand_text()} · roofcast" if rest else UNASKED_TITLE
    if asked_title != title():
        st.session_state[_TITLE] = asked_title
        st.set_page_config(page_title=asked_title)
