"""Widgets for techniques: each returns the part of a scenario's ``techniques`` that it stands for."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import glossary, inputs

NONE = "none"
_SPARSITY = (NONE, "2:4", "4:8", "unstructured")
_SPECULATION = (NONE, "draft", "eagle", "medusa", "ngram", "lookahead")
_ATTENTION = ("flash", "flash_decoding", "standard")
_KV_POLICIES = (NONE, "h2o", "streaming", "window")
_ADAPTERS = (NONE, "lora")


def _sparsity() -> Any:
    pattern = inputs.choice("Sparsity", _SPARSITY, key="sparsity", default=NONE, help=glossary.SPARSITY)
    if pattern != "unstructured":
        return pattern
    fraction = st.slider(
        "Zeros", 0.1, 0.95, 0.5, 0.05, format="percent", key="zeros", bind="query-params", help=glossary.SPARSITY
    )
    return {"pattern": pattern, "fraction": fraction}


def _speculation() -> Any:
    method = inputs.choice(
        "Speculative decoding", _SPECULATION, key="speculation", default=NONE, help=glossary.SPECULATION
    )
    if method == NONE:
        return NONE
    k = st.slider("Guessed tokens", 1, 10, 4, key="k", bind="query-params", help=glossary.SPECULATION)
    acceptance = st.slider(
        "Acceptance",
        0.1,
        0.99,
        0.7,
        0.01,
        format="percent",
        key="acceptance",
        bind="query-params",
        help="Probability that a guess is right, given that those before it were.",
    )
    found: dict[str, Any] = {"method": method, "k": k, "acceptance": acceptance}
    if method == "draft":
        found["draft_model"] = inputs.choice(
            "Draft model", inputs.model_names(), key="draft", default="llama-3.2-1b", help=glossary.SPECULATION
        )
    return found


def _kv_policy() -> Any:
    method = inputs.choice("KV eviction", _KV_POLICIES, key="kv_policy", default=NONE, help=glossary.KV_POLICY)
    if method == NONE:
        return NONE
    return {
        "method": method,
        "budget_tokens": inputs.tokens("Kept tokens", key="kept", value=1024, help=glossary.KV_POLICY),
    }


def _adapters() -> Any:
    method = inputs.choice(
        "Adapters", _ADAPTERS, key="adapters", default=NONE, help="Small trained changes beside the weights."
    )
    if method == NONE:
        return NONE
    left, right = st.columns(2)
    with left:
        rank = st.number_input("Rank", 1, 512, 16, key="rank", bind="query-params")
    with right:
        count = st.number_input("Different ones", 1, 1000, 4, key="loras", bind="query-params")
    return {"method": method, "rank": int(rank), "count": int(count)}


def technique_inputs() -> dict[str, Any]:
    """The fields of ``techniques`` that differ from doing nothing."""
    attention = inputs.choice("Attention kernel", _ATTENTION, key="attention", default="flash", help=glossary.ATTENTION)
    found = {
        "sparsity": _sparsity(),
        "speculation": _speculation(),
        "attention": NONE if attention == "flash" else attention,
        "kv_policy": _kv_policy(),
        "adapters": _adapters(),
    }
    return {name: value for name, value in found.items() if value != NONE}
