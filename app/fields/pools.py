"""What stands around a deployment that serves: pools of their own for prompts, answers, pictures and experts, and what
keeps keys and values below its memory. Nothing of it is asked until somebody fills it in.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.fields import glossary, inputs, widgets
from app.fields.uploaded import session_profiles
from simulator.planner.replica_setup import MOST_POOLED
from simulator.specs.engine.deployment import Medium, tier_of_gb
from simulator.specs.model.loading import load_model

_LARGEST_GB = 10_000_000.0
_LARGEST_GB_PER_S = 10_000.0
_LARGEST_PIXELS = 100_000_000
_MOST_DEVICES, _MOST_PARTS = 1024, 64
_NONE, _NO_POOL, _ONE = "none", "no pool", "1"
MOST_PROMPTS = 2000
"""Different ones of a load: of those a run still sees each more than once."""


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _unless(value: object, label: str) -> str:
    """What others wait for: the ``label`` of a box until it holds a value."""
    return label if value is None else ""


def _other_kind(label: str, *, key: str, help: str, needs: str, same: str = inputs.AS_REPLICAS) -> str | None:
    """An accelerator; None for the kind that others have."""
    names = (same, *inputs.hardware_names())
    kind = widgets.choice(label, names, key=key, default=same, help=help, needs=needs, spelled=inputs.known_hardware)
    return None if kind == same else kind


def _replicas(pool: str, *, key: str, help: str, other: str = "", needs: str = "") -> int | None:
    """Replicas of a pool; its box says that it is one where the ``other`` alone is filled in."""
    empty = _ONE if other and widgets.is_filled(other) else _NO_POOL
    label = f"{pool} replicas"
    return widgets.optional_count(label, key=key, low=1, high=MOST_POOLED, placeholder=empty, help=help, needs=needs)


def _experts_inputs(needs: str) -> dict[str, Any] | None:
    """Devices for the experts of a decode replica; None where it has none of its own."""
    left, right = st.columns(2)
    with left:
        devices = widgets.optional_count(
            "Expert devices", key="ffn", low=2, high=_MOST_DEVICES, placeholder=_NONE, help=glossary.FFN, needs=needs
        )
    needs = _unless(devices, "Expert devices")
    with right:
        parts = widgets.optional_count(
            "Micro-batches",
            key="micro",
            low=1,
            high=_MOST_PARTS,
            placeholder=inputs.OWN_LIMIT,
            help=glossary.MICRO,
            needs=needs,
        )
    kind = _other_kind("Expert accelerator", key="ffn_gpu", help=glossary.FFN, needs=needs)
    return None if devices is None else _given({"devices": devices, "micro_batches": parts, "hardware": kind})


def pools_inputs(model: str) -> dict[str, Any]:
    """A pool for prompts before the deployment's replicas, which only decode then; nothing where they do both."""
    with st.expander("Pools of their own for prompts and answers"):
        left, right = st.columns(2)
        with left:
            ahead = _replicas("Prefill", key="prefill_replicas", help=glossary.POOLS, other="decode_replicas")
        with right:
            after = _replicas("Decode", key="decode_replicas", help=glossary.POOLS, other="prefill_replicas")
        needs = _unless(ahead or after, "Prefill replicas or Decode replicas")
        kind = _other_kind(
            "Prefill accelerator", key="prefill_gpu", help=glossary.PREFILL_GPU, needs=needs, same=inputs.SAME_KIND
        )
        degrees = inputs.parallelism_inputs(model, pool="prefill", needs=needs)
        step = widgets.optional_count(
            "Tokens a prefill step",
            key="prefill_step_tokens",
            low=2,
            high=inputs.LARGEST_STEP,
            placeholder=inputs.OWN_LIMIT,
            help=glossary.MAX_BATCHED,
            needs=needs,
        )
        link = widgets.choice(
            "Link between pools",
            inputs.LINKS,
            key="link",
            default=inputs.OWN_LIMIT,
            help=glossary.POOL_LINK,
            needs=needs,
        )
        experts = _experts_inputs(needs) if inputs.routes_to_experts(model) else None
    if needs:
        return {}
    given = {
        "prefill_replicas": ahead or 1,
        "decode_replicas": after or 1,
        "prefill_hardware": kind,
        "prefill_max_num_batched_tokens": step,
        "link": None if link == inputs.OWN_LIMIT else link,
        "decode_ffn": experts,
    }
    return {"disaggregation": degrees | _given(given)}


def _size(label: str, *, key: str, help: str) -> float | None:
    return widgets.optional_number(
        f"{label} (GB)", key=key, low=1.0, high=_LARGEST_GB, step=100.0, placeholder=_NONE, help=help
    )


def tier_inputs() -> dict[str, Any]:
    """Tiers below the KV cache of a replica, as a field of its engine; nothing where there are none."""
    with st.expander("Below the KV cache: host, drives, store"):
        host = _size("Host memory", key="host_gb", help=glossary.TIERS)
        left, right = st.columns(2)
        with left:
            drives = _size("Drives", key="nvme_gb", help=glossary.TIERS)
        with right:
            rate = widgets.optional_number(
                "Read at (GB/s)",
                key="nvme_gb_per_s",
                low=0.1,
                high=_LARGEST_GB_PER_S,
                step=1.0,
                placeholder=_NONE if drives is None else "needed",
                help="Of all drives of a replica together; no profile knows it.",
                needs=_unless(drives, "Drives"),
            )
        store = _size("Remote store", key="remote_gb", help=glossary.TIERS)
    sizes: tuple[tuple[Medium, float | None, float | None], ...] = (
        ("host", host, None),
        ("nvme", drives, rate),
        ("remote", store, None),
    )
    tiers = [tier_of_gb(medium, capacity_gb=size, gb_per_s=read) for medium, size, read in sizes if size is not None]
    return {"kv_tiers": tiers} if tiers else {}


def picture_inputs(model: str) -> dict[str, Any]:
    """Pictures in the prompts and what encodes them; nothing for a model that reads none."""
    if load_model(model, profiles=session_profiles()).vision is None:
        return {}
    with st.expander("Pictures, and what encodes them"):
        left, right = st.columns(2)
        with left:
            images = widgets.optional_number(
                "Pictures a request",
                key="images",
                low=0.01,
                high=1000.0,
                step=1.0,
                placeholder=_NONE,
                help=glossary.PICTURES,
            )
        needs = _unless(images, "Pictures a request")
        with right:
            pixels = widgets.optional_count(
                "Pixels of one",
                key="pixels",
                low=1,
                high=_LARGEST_PIXELS,
                placeholder=inputs.OWN_LIMIT,
                help="Width times height.",
                needs=needs,
            )
        left, right = st.columns(2)
        with left:
            encoders = _replicas("Encoder", key="encoders", help=glossary.ENCODERS, needs=needs)
        needs = _unless(encoders, "Encoder replicas")
        with right:
            size = widgets.choice(
                "Encoder TP", inputs.SIZES["tp"], key="encoder_tp", default=1, help=glossary.TP, needs=needs
            )
        kind = _other_kind("Encoder accelerator", key="encoder_gpu", help=glossary.ENCODERS, needs=needs)
    pool = {"replicas": encoders, "tp_size": None if size == 1 else size, "hardware": kind}
    return _given(
        {
            "images_per_request": images,
            "image_pixels": pixels,
            "encoder_pool": None if encoders is None else _given(pool),
        }
    )


def repeated_prompts_input() -> int | None:
    """How many different prompts a load has; None where every one is new."""
    return widgets.optional_count(
        "Different prompts", key="prompts", low=1, high=MOST_PROMPTS, placeholder="all new", help=glossary.PROMPTS
    )
