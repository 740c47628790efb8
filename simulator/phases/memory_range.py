"""How sure the room for the KV cache is: the memory plan against what an engine logged."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.kernels.timing import Provenance
from simulator.phases.deployment import Deployment
from simulator.phases.memory import MemoryPlan, sequence_cache_bytes

LEAST_SHARE, LARGEST_SHARE = -0.0442, 0.0058
"""The smallest and the largest of nine differences between the cache that vLLM 0.15.1 logged on H100 (2026-02) and the
plan's, as a share of the memory budget. A further case lies between the extremes of nine with a probability of
(9 - 1) / (9 + 1) = 80 %, whatever their distribution. The smallest is Llama-4-Scout, whose runtime takes 3.4 GB a
device that the plan does not explain; the other eight lie within 0.6 % of the budget."""


_LOGGED_BY = ("vllm", "h100-sxm-80gb")
"""The engine and the accelerator of the logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRoom:
    """80 % interval of the tokens that the cache of a replica holds."""

    low_tokens: int
    high_tokens: int


def cache_room(plan: MemoryPlan, *, block_size_tokens: int) -> CacheRoom:
    """The interval of ``kv_capacity_tokens``: what the runtime takes beside the plan is known to a share of the budget.

    Measured on one engine and one accelerator; elsewhere the differences are taken to be alike. Zero tokens where
    nothing is kept per token.

    References
    ----------
    [Vovk2005]
    """
    block_bytes = plan.kv_bytes_per_token * block_size_tokens
    if not block_bytes:
        return CacheRoom(low_tokens=0, high_tokens=0)
    ends = (
        plan.kv_blocks + int(share * plan.budget_bytes // block_bytes) for share in (LEAST_SHARE, LARGEST_SHARE)
    )
    low, high = (max(0, blocks) * block_size_tokens for blocks in ends)
    return CacheRoom(low_tokens=low, high_tokens=high)


def memory_provenance(deployment: Deployment) -> Provenance:
    """How the memory plan is known: checked against logs, or carried over to another engine or accelerator."""
    checked = (deployment.engine.name, deployment.hardware.name) == _LOGGED_BY
    return Provenance.CALIBRATED if checked else Provenance.EXTRAPOLATED


def cache_use(deployment: Deployment, plan: MemoryPlan, *, sequences: float, tokens: float) -> float:
    """Share of the cache that ``sequences`` of ``tokens`` tokens each take, at most 1; 0 where they keep nothing."""
    taken = sequences * sequence_cache_bytes(deployment, plan, tokens=tokens)
    return min(1.0, taken / plan.kv_capacity_bytes) if plan.kv_capacity_bytes else 0.0
