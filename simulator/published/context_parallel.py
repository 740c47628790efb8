"""Published prompts of a million tokens over many servers, and what the simulator says of them."""

from __future__ import annotations

from functools import lru_cache

from simulator.operators.step_shape import prefill_step
from simulator.operators.work import Family
from simulator.phases.deployment import deploy
from simulator.phases.step import StepEstimate, estimate_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.loading import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype
from simulator.units import KIB, MEGA, TERA

SERVERS, SERVER_SIZE = 16, 8
MILLION = int(MEGA)
"""Tokens of the long prompt [Yang2024b]: 77 s of 128 devices at the published 502 TFLOP/s are 4.95e18 FLOPs, those of
a million tokens; 2**20 would take 5.38e18."""
PEAK_FLOPS_PER_S = 800 * TERA
"""16-bit peak of their H100, which is limited to 500 W [Yang2024b]."""


@lru_cache(maxsize=4)
def _prompt(tokens: int) -> StepEstimate:
    """One prompt through Llama 3.1 405B on sixteen servers, all its tokens in one pass."""
    full = load_hardware("h100-sxm-80gb")
    share = PEAK_FLOPS_PER_S / full.peak_flops_per_s[Dtype.BF16]
    slowed = {dtype: peak * share for dtype, peak in full.peak_flops_per_s.items()}
    replica = deploy(
        model=load_model("llama-3.1-405b"),
        hardware=full.model_copy(update={"peak_flops_per_s": slowed}),
        parallelism=ParallelismSpec(tp_size=SERVER_SIZE, cp_size=SERVERS),
    )
    return estimate_step(replica, prefill_step(sequences=1, tokens=tokens))


def million_s() -> float:
    """Time of a prompt of a million tokens [s]."""
    return float(_prompt(MILLION).step_s[0])


def shorter_s() -> float:
    """Time of a prompt of 131,072 tokens [s]."""
    return float(_prompt(128 * int(KIB)).step_s[0])


def million_mfu() -> float:
    """Model FLOPs utilisation of the long prompt [-]."""
    return float(_prompt(MILLION).mfu[0])


def million_efficiency() -> float:
    """Rate of the whole pass over that of its attention kernel alone, as the paper defines efficiency [-]."""
    rows = [row for row in _prompt(MILLION).rows if row.work.family is Family.PREFILL_ATTENTION]
    flops = sum(float(row.work.count * row.work.flops[0]) for row in rows)
    rate = flops / sum(float(row.seconds[0]) for row in rows)
    return million_mfu() * PEAK_FLOPS_PER_S / rate
