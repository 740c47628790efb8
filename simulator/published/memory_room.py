"""Published counts of what a memory holds in few bits: devices of a model, sequences beside it, their rate."""

from __future__ import annotations

from functools import lru_cache
from math import inf

from simulator.operators.step_shape import decode_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import memory_plan, sequences_that_fit
from simulator.phases.step import estimate_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.loading import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec

GPTQ_MODEL, GPTQ_TOKENS = "opt-175b", 128
"""What GPTQ generates, one sequence at a time [Frantar2022]."""

BITNET_MODEL, BITNET_STAGES, BITNET_TOKENS = "llama-2-70b", 2, 512
BITNET_BATCHES = {"fp16": 16, "bitnet": 176}
"""Sequences of 512 tokens at which two A100 ran out of memory in the source [Ma2024]."""


def _stages(model: str, hardware: str, scheme: str, *, engine: str, stages: int) -> Deployment:
    return deploy(
        model=load_model(model),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(pp_size=stages),
        precision=PrecisionSpec(scheme=scheme),
        engine=EngineSpec(name=engine),
    )


@lru_cache(maxsize=16)
def devices_needed(hardware: str, scheme: str) -> float:
    """Fewest devices, one pipeline stage each, that hold OPT-175B with its cache under eager PyTorch [-]."""
    for stages in range(1, load_model(GPTQ_MODEL).num_hidden_layers + 1):
        memory = memory_plan(_stages(GPTQ_MODEL, hardware, scheme, engine="torch-eager", stages=stages))
        if memory.fits and memory.kv_capacity_tokens >= GPTQ_TOKENS:
            return float(stages)
    return inf


def _bitnet(scheme: str) -> Deployment:
    return _stages(BITNET_MODEL, "a100-sxm-80gb", scheme, engine="torch", stages=BITNET_STAGES)


def bitnet_batch_ratio() -> float:
    """Sequences that fit beside 1.58-bit weights over those beside 16-bit ones [-]."""
    few, many = (
        float(sequences_that_fit(replica, memory_plan(replica), tokens=float(BITNET_TOKENS)))
        for replica in (_bitnet("fp16"), _bitnet("bitnet"))
    )
    return many / few


def bitnet_throughput_ratio() -> float:
    """Tokens a second of 1.58-bit weights over 16-bit ones, each at the source's batch [-]."""
    few, many = (_tokens_per_s(scheme, sequences) for scheme, sequences in BITNET_BATCHES.items())
    return many / few


def _tokens_per_s(scheme: str, sequences: int) -> float:
    step = estimate_step(_bitnet(scheme), decode_step(sequences=sequences, context=BITNET_TOKENS))
    return sequences / float(step.step_s[0])
