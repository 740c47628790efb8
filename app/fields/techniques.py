"""Widgets for techniques: each returns the part of a scenario's ``techniques`` that it stands for."""

from __future__ import annotations

from typing import Any, get_args

import streamlit as st

from app.fields import glossary, inputs, widgets
from simulator.specs.question.techniques import SpeculationMethod

NONE = "none"
_OWN = "automatic"
_ALL = 1.0
_NOTHING = 0.0
_SPARSITY = (
    NONE,
    "2:4",
    "2:4 wanda",
    "2:4 sparsegpt",
    "4:8 stored compressed",
    "unstructured, stored compressed",
    "fewer channels",
    "fewer heads",
    "fewer layers",
)
_SPECULATION = (NONE, *get_args(SpeculationMethod))
_ATTENTION = ("flash", "flash_decoding", "standard")
_KV_POLICIES = (NONE, "h2o", "streaming", "window")
_ADAPTERS = (NONE, "lora", "qlora", "adapter")


def sparsity_input(key: str) -> dict[str, Any] | None:
    """Which weights are zero, and how they are stored; None for dense weights."""
    chosen = widgets.choice("Sparsity", _SPARSITY, key=key, default=NONE, help=glossary.SPARSITY)
    match chosen.split():
        case ["none"]:
            return None
        case ["fewer", target]:
            return {"pattern": "structured", "target": target, "fraction": _zeros(f"zeros_{key}")}
        case ["unstructured,", *_]:
            return {"pattern": "unstructured", "fraction": _zeros(f"zeros_{key}"), "compressed": True}
        case [pattern, "stored", *_]:
            return {"pattern": pattern, "compressed": True}
        case [pattern, method]:
            return {"pattern": pattern, "method": method}
    return {"pattern": chosen}


def _zeros(key: str) -> float:
    return widgets.share(
        "Taken out",
        key=key,
        low=0.05,
        high=0.95,
        value=0.5,
        step=0.05,
        help="Share of the weights, channels, heads or layers that are dropped.",
    )


def speculation_input(place: str = "") -> dict[str, Any] | None:
    """How tokens are guessed; None where they are not. ``place`` ends the keys of a page with several deployments."""
    method = widgets.choice(
        "Speculative decoding", _SPECULATION, key=f"speculation{place}", default=NONE, help=glossary.SPECULATION
    )
    if method == NONE:
        return None
    left, right = st.columns(2)
    with left:
        k = widgets.optional_count(
            "Guessed tokens", key=f"k{place}", low=1, high=10, placeholder=_OWN, help=glossary.SPECULATION
        )
    with right:
        acceptance = widgets.optional_number(
            "Acceptance",
            key=f"acceptance{place}",
            low=0.1,
            high=0.99,
            step=0.05,
            placeholder=_OWN,
            help="Probability that a guess is right, given that those before it were; empty: what is published of it.",
        )
    given = {"k": k, "acceptance": acceptance}
    found: dict[str, Any] = {"method": method} | {name: value for name, value in given.items() if value is not None}
    if method == "draft":
        found["draft_model"] = widgets.choice(
            "Draft model", inputs.model_names(), key=f"draft{place}", default="llama-3.2-1b", help=glossary.SPECULATION
        )
    return found


def _kv_policy() -> dict[str, Any] | None:
    method = widgets.choice("KV eviction", _KV_POLICIES, key="kv_policy", default=NONE, help=glossary.KV_POLICY)
    if method == NONE:
        return None
    return {
        "method": method,
        "budget_tokens": inputs.tokens("Kept tokens", key="kept", value=1024, help=glossary.KV_POLICY),
    }


def _adapters() -> dict[str, Any] | None:
    method = widgets.choice("Adapters", _ADAPTERS, key="adapters", default=NONE, help=glossary.ADAPTERS)
    if method == NONE:
        return None
    left, right = st.columns(2)
    with left:
        rank = widgets.count("Rank", key="rank", low=1, high=512, value=16, help="Width of each adapter.")
    with right:
        count = widgets.count("Different ones", key="loras", low=1, high=1000, value=4, help="Adapters in one batch.")
    return {"method": method, "rank": rank, "count": count}


def _share(label: str, field: str, *, key: str, help: str, also: tuple[str, ...] = ()) -> dict[str, Any] | None:
    """A share below one as a technique's field; None for all."""
    value = widgets.share(label, key=key, low=0.1, high=_ALL, value=_ALL, step=0.05, help=help)
    return None if value == _ALL else {field: value, **dict.fromkeys(also, True)}


def structure_input(model: str, place: str = "") -> dict[str, Any] | None:
    """What if the model had been built with other KV heads; None as published."""
    published = "as published"
    chosen = widgets.choice(
        "KV heads (GQA)",
        (published, *inputs.kv_heads(model)),
        key=f"kv_heads{place}",
        default=published,
        help=glossary.KV_HEADS,
    )
    return None if chosen == published else {"num_key_value_heads": int(chosen)}


def _weight_offload() -> dict[str, Any] | None:
    share = widgets.share(
        "Weights in host memory",
        key="offload",
        low=_NOTHING,
        high=_ALL,
        value=_NOTHING,
        step=0.05,
        help=glossary.WEIGHT_OFFLOAD,
    )
    return None if share == _NOTHING else {"fraction": share}


def technique_inputs(model: str) -> dict[str, Any]:
    """The fields of ``techniques`` that differ from doing nothing."""
    attention = widgets.choice(
        "Attention kernel", _ATTENTION, key="attention", default="flash", help=glossary.ATTENTION
    )
    found = {
        "sparsity": sparsity_input("sparsity"),
        "speculation": speculation_input(),
        "attention": None if attention == "flash" else attention,
        "structure": structure_input(model),
        "kv_policy": _kv_policy(),
        "adapters": _adapters(),
        "early_exit": _share(
            "Layers that a token passes", "mean_fraction", key="exit", help=glossary.EARLY_EXIT, also=("compacts",)
        ),
        "contextual_sparsity": _share(
            "Neurons that a token needs", "mlp_fraction", key="neurons", help=glossary.CONTEXTUAL
        ),
        "fusion": False if widgets.switch("Separate small kernels", key="separate", help=glossary.FUSION) else None,
        "weight_offload": _weight_offload(),
        "sequence_parallel": widgets.switch("Sequence parallelism", key="sequence", help=glossary.SEQUENCE) or None,
        "two_batch_overlap": widgets.switch("Two-batch overlap", key="halves", help=glossary.HALVES) or None,
    }
    return {name: value for name, value in found.items() if value is not None}
