"""The attention models as the fit sees them: bounds of parameters, what kernels differ in, how rows are priced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulator.kernels.attention.cases import AttentionMachine
from simulator.kernels.attention.decode import DECODE_AXES, SplitRule, decode_grid_of, decode_points, decode_seconds
from simulator.kernels.attention.latent import LATENT_MODEL, latent_decode_seconds, latent_grid_of
from simulator.kernels.attention.prefill import PREFILL_AXES, grid_of, prefill_points, prefill_seconds
from simulator.specs.hardware.accelerator import load_hardware
from validation.fit.physics import Bound
from validation.silicon.attention_tables import KernelRows

Array = NDArray[np.float64]

PREFILL_BOUNDS: dict[str, Bound] = {
    "launch_s": Bound(low=1e-6, high=4e-5, start=8e-6),
    "tensor_fraction": Bound(low=0.05, high=1.0, start=0.7),
    "exponential_rate": Bound(low=0.05, high=1.25, start=0.8),
    "overlap": Bound(low=1.0, high=12.0, start=3.0),
    "tile_cycles": Bound(low=10.0, high=20000.0, start=2000.0),
    "lone_factor": Bound(low=0.5, high=4.0, start=1.0),
    "wave_quantisation": Bound(low=0.01, high=1.0, start=0.7),
    "memory_fraction": Bound(low=0.2, high=1.0, start=0.8),
    "l2_speedup": Bound(low=1.0, high=6.0, start=1.5),
    "token_cycles": Bound(low=1.0, high=5000.0, start=500.0),
    "droop": Bound(low=0.001, high=0.5, start=0.1),
}
"""What the tables identify. No kernel multiplies faster than the peak of its format; exponentials may pass the special
function units by a quarter where a kernel also computes them as polynomials (flash-attention 4)."""

DECODE_BOUNDS: dict[str, Bound] = {
    "launch_s": Bound(low=1e-6, high=4e-5, start=6e-6),
    "tensor_fraction": Bound(low=0.02, high=1.0, start=0.4),
    "part_cycles": Bound(low=50.0, high=20000.0, start=3000.0),
    "memory_fraction": Bound(low=0.3, high=1.0, start=0.9),
    "l2_speedup": Bound(low=1.0, high=6.0, start=2.0),
    "merge_s": Bound(low=1e-8, high=1e-5, start=2e-6),
}

LATENT_BOUNDS: dict[str, Bound] = {
    "tensor_fraction": Bound(low=0.02, high=1.0, start=0.6),
    "memory_fraction": Bound(low=0.3, high=1.0, start=0.9),
    "part_cycles": Bound(low=100.0, high=40000.0, start=8000.0),
    "query_passes": Bound(low=0.3, high=6.0, start=1.0),
    "merge_s": Bound(low=1e-8, high=1e-5, start=2e-6),
}

MERGE = Bound(low=1e-8, high=1e-5, start=2e-6)
SPLIT_BOUNDS: dict[tuple[str, SplitRule], dict[str, Bound]] = {
    ("prefill", SplitRule.EFFICIENT): {"merge_s": MERGE},
    ("prefill", SplitRule.BALANCED): {"merge_s": MERGE},
    ("decode", SplitRule.EFFICIENT): {
        "swap_s": Bound(low=1e-8, high=5e-6, start=1e-6),
        "copy_s": Bound(low=1e-8, high=1e-5, start=4e-6),
    },
}
"""Parameters that only kernels of this rule have; 0 for the others."""

PREFILL_TRAITS: tuple[dict[str, float], ...] = tuple(
    {"tile_rows": rows, "packs_group": packs, "split_rule": float(rule), "merge_s": 0.0}
    for rows, packs, rule in (
        (64.0, 0.0, SplitRule.OWN),
        (128.0, 0.0, SplitRule.OWN),
        (256.0, 0.0, SplitRule.OWN),
        (64.0, 1.0, SplitRule.OWN),
        (128.0, 1.0, SplitRule.OWN),
        (128.0, 1.0, SplitRule.EFFICIENT),
        (128.0, 1.0, SplitRule.BALANCED),
    )
)
DECODE_TRAITS: tuple[dict[str, float], ...] = tuple(
    {"tile_rows": rows, "split_rule": float(rule), "swap_s": 0.0, "copy_s": 0.0}
    for rows, rule in (
        (16.0, SplitRule.OWN),
        (64.0, SplitRule.OWN),
        (64.0, SplitRule.EFFICIENT),
        (64.0, SplitRule.BALANCED),
    )
)
"""What kernels differ in; the fit part chooses."""


def _latent_traits(*tiles: tuple[float, float]) -> tuple[dict[str, float], ...]:
    return tuple({"tile_rows": rows, "narrow_heads": narrow} for rows, narrow in tiles)


LATENT_TRAITS: dict[str, tuple[dict[str, float], ...]] = {
    "hopper": _latent_traits((64.0, 0.0)),
    "blackwell": _latent_traits((64.0, 32.0), (128.0, 32.0)),
    "blackwell-ultra": _latent_traits((64.0, 32.0), (128.0, 32.0)),
}
"""Heads that one thread block multiplies: 64 in Hopper's kernels (FlashMLA, flash-attention 3), on Blackwell 16 up to
32 heads (32 heads stream at 0.50 of the bandwidth and 16 at 0.73 in vLLM's own MLA modules: two reads), 64 or 128
beyond. The workstation's Blackwell lacks the data centre's tensor memory and runs other kernels."""

OTHER_LATENT_TRAITS = _latent_traits((16.0, 0.0), (64.0, 0.0), (64.0, 32.0))
"""Triton's kernel takes 16 heads, those of other architectures are chosen by the fit part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What differs between the phases."""

    family: str
    name: str
    axes: tuple[str, ...]
    bounds: Mapping[str, Bound]
    traits: tuple[dict[str, float], ...]
    regime_axis: str
    regime_uppers: tuple[float, ...]


MODELS = {
    "prefill": Model(
        family="prefill_attention",
        name="tiled_prefill_attention",
        axes=PREFILL_AXES,
        bounds=PREFILL_BOUNDS,
        traits=PREFILL_TRAITS,
        regime_axis="tiles",
        regime_uppers=(32.0, 128.0, 512.0, 2048.0, 2.0**30),
    ),
    "decode": Model(
        family="decode_attention",
        name="split_decode_attention",
        axes=DECODE_AXES,
        bounds=DECODE_BOUNDS,
        traits=DECODE_TRAITS,
        regime_axis="keys",
        regime_uppers=(64.0, 256.0, 1024.0, 4096.0, 2.0**20),
    ),
}

LATENT_DECODE = replace(MODELS["decode"], name=LATENT_MODEL, bounds=LATENT_BOUNDS, traits=OTHER_LATENT_TRAITS)


def model_of(group: KernelRows) -> Model:
    """The model of a group's kernel."""
    if group.phase == "prefill" or not group.is_absorbed:
        return MODELS[group.phase]
    known = LATENT_TRAITS.get(load_hardware(group.hardware).architecture.lower(), OTHER_LATENT_TRAITS)
    return replace(LATENT_DECODE, traits=known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One group of rows ready for evaluation with given traits."""

    seconds_of: Callable[[Mapping[str, float]], Array]
    points: Array


def prepared(group: KernelRows, *, machine: AttentionMachine, traits: Mapping[str, float]) -> Prepared:
    """The physics of ``group`` as a function of the parameters, its grid computed once (as measured: hot)."""
    cases = group.cases()
    if group.phase == "prefill":
        grid = grid_of(cases, machine=machine, parameters=traits)
        return Prepared(
            seconds_of=lambda p: prefill_seconds(cases, grid=grid, machine=machine, parameters={**p, **traits}).seconds,
            points=prefill_points(cases, grid),
        )
    layout, price = (latent_grid_of, latent_decode_seconds) if group.is_absorbed else (decode_grid_of, decode_seconds)
    parts = layout(cases, machine=machine, parameters=traits)
    return Prepared(
        seconds_of=lambda p: price(cases, grid=parts, machine=machine, parameters={**p, **traits}).seconds,
        points=decode_points(cases, parts),
    )
