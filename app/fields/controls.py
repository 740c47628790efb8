"""Fields of a question as a page asks for them: which control fills one, what it takes, and a value for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import streamlit as st

from app.fields import widgets
from simulator.errors import RoofcastError
from simulator.reports.words.fields import flag_of, flagged
from simulator.specs.question.plan_values import duration_s

_DEGREES = ("tp", "pp", "ep", "dp", "cp")
_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "rate_per_s": ("rps", "rate"),
        "isl_tokens": ("isl", "context"),
        "workload.isl_tokens": ("isl",),
        "osl_tokens": ("osl",),
        "isl_cv": ("isl_cv",),
        "osl_cv": ("osl_cv",),
        "prefix_hit": ("prefix",),
        "ttft_p95": ("ttft",),
        "tpot_p95": ("tpot",),
        "workload": ("preset",),
        "model": ("model",),
        "axes": ("axis_2",),
        "hardware": ("gpus", "gpu"),
        "scheme": ("formats", "weights"),
        "weights": ("formats", "weights"),
        "kv_cache": ("kv",),
        **{f"{degree}_size": (degree,) for degree in _DEGREES},
        **{f"disaggregation.prefill_{degree}_size": (f"prefill_{degree}",) for degree in _DEGREES},
        **{f"disaggregation.decode_{degree}_size": (degree,) for degree in _DEGREES},
        "precision.activations": ("weights", "formats"),
        "engine.max_num_seqs": ("seqs",),
        "engine.max_num_batched_tokens": ("step_tokens",),
        **{f"techniques.{name}": (name,) for name in ("sparsity", "speculation", "attention", "kv_policy", "adapters")},
        "techniques.speculation.method": ("speculation",),
        "techniques.speculation.k": ("k",),
        "techniques.speculation.acceptance": ("acceptance",),
        "techniques.speculation.draft_model": ("draft",),
        "techniques.kv_policy.budget_tokens": ("kept",),
        "techniques.weight_offload": ("offload",),
        "techniques.sequence_parallel": ("sequence",),
        "techniques.two_batch_overlap": ("halves",),
        "techniques.structure": ("kv_heads",),
        "decode_ffn": ("ffn",),
        "disaggregation.link": ("link",),
        "disaggregation.prefill_hardware": ("prefill_gpu",),
        "disaggregation.decode_ffn": ("ffn",),
        "disaggregation.decode_ffn.hardware": ("ffn_gpu",),
        "images_per_request": ("images",),
        "image_pixels": ("pixels",),
        "encoder_pool": ("encoders",),
        "encoder_pool.hardware": ("encoder_gpu",),
        "encoder_pool.tp_size": ("encoder_tp",),
        **dict.fromkeys(("engine.kv_tiers", "engine.kv_tiers.0", "engine.kv_tiers.1"), ("nvme_gb_per_s",)),
        "batch_size": ("batch",),
        "engine": ("engine",),
        "max_num_seqs": ("seqs",),
        "max_num_batched_tokens": ("step_tokens",),
        "utilization": ("load",),
        "spares": ("spares",),
        "round_to": ("round",),
        "confidence": ("sure",),
        "verify": ("verify",),
        "prices": ("prices",),
        "price_kind": ("price",),
        "price_of": ("price_of",),
        "provider": ("seller",),
        "load_profile": ("hours",),
        "max_gpus": ("max_gpus",),
        "max_cost_per_hour": ("max_cost",),
        "max_power_kw": ("max_kw",),
        "power_cap_w": ("max_w", "cap"),
        "stock": ("owned",),
        "growth": ("growth",),
        "horizon": ("horizon",),
        "lead_time": ("lead",),
        "availability": ("target",),
        "over": ("over",),
    }
)
"""Keys of the widgets that fill a field, the first of which a page has."""
_FIELDS = {flag_of(field): field for field in _KEYS}
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
_WORD = re.compile(r"(?<![\w.`/=-])[a-z]+(?:_[a-z]+)+(?![\w.(])")
_ASIDE = re.compile(r"\((?=--[a-z])")
_COMMANDS = ("plan-capacity ", "roofcast ")
_TIMES = ("ttft", "tpot")


def control(field: str) -> tuple[str, widgets.Shown] | None:
    """The key of the widget of this page that fills a field, and the widget; None where it has none."""
    shown = widgets.shown()
    return next(((key, shown[key]) for key in _KEYS.get(field, ()) if key in shown), None)


def _label(field: str) -> str:
    """What the page calls a field, without its unit, which stands behind the value; empty where it has no widget."""
    known = control(field)
    return "" if known is None else known[1].label.partition(" (")[0]


def named(sentence: str) -> str:
    """A sentence of the library with fields as this page calls them and bounds as it writes them; what it does not ask
    for stays a flag.

    Commands stay as they are.
    """

    def name(found: re.Match[str]) -> str:
        return _label(_FIELDS.get(found[0], "")) or found[0]

    text = flagged(sentence).replace("<= ", "≤ ").replace(" -> ", " → ")
    # What is left is nothing that can be set here.
    return text if is_command(text) else _ASIDE.sub("(command line: ", _FLAG.sub(name, text))


def worded(sentence: str) -> str:
    """:func:`named`, where fields are called by their names in files too."""

    def name(found: re.Match[str]) -> str:
        return _label(found[0]) or found[0]

    text = named(sentence)
    return text if is_command(text) else _WORD.sub(name, text)


def begun(sentence: str) -> str:
    """With a capital, unless it begins with the name of a model or an accelerator."""
    first = sentence.partition(" ")[0]
    return sentence if any(letter.isdigit() for letter in first) else f"{sentence[:1].upper()}{sentence[1:]}"


def is_command(sentence: str) -> bool:
    """Whether a sentence holds what somebody types."""
    return any(word in sentence for word in _COMMANDS)


def setting(field: str, value: object) -> tuple[str, Any] | None:
    """The key of a field's widget and ``value`` as it takes it; None where the page cannot say it."""
    known = control(field)
    if known is None or value is None:
        return None
    key, shown = known
    try:
        given = duration_s(value) if key in _TIMES else shown.read(str(value))
    except (ValueError, RoofcastError):
        return None
    return (key, given) if shown.takes(given) else None


Offers = dict[str, tuple[str, Any]]
"""Values that a click applies: the words of the button and the value, by the key of the widget."""


def offer(field: str, value: object) -> Offers:
    """A value for a field, where this page can ask with it."""
    known, given = control(field), setting(field, value)
    if known is None or given is None:
        return {}
    words = ", ".join(given[1]) if isinstance(given[1], list) else value
    return {given[0]: (f"{known[1].label}: {words}", given[1])}


def taken_back(field: str) -> Offers:
    """What a field's widget says until somebody changes it, where somebody has."""
    known = control(field)
    if known is None or st.session_state.get(known[0]) in (None, known[1].default):
        return {}
    key, shown = known
    return {key: (f"{shown.label}: {'no limit' if shown.default is None else shown.default}", shown.default)}
