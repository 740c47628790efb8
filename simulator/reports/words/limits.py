"""What holds a replica back, in words."""

from __future__ import annotations

from simulator.planner.fleet.records import Limit, Resource
from simulator.units import bound_text, percent_text

_SLOTS = {
    Resource.KV_MEMORY: "the KV cache is full",
    Resource.BATCH_LIMIT: "max_num_seqs is reached",
    Resource.TOKEN_BUDGET: "max_num_batched_tokens is reached",
}
_STEP_BOUND = {Resource.MEMORY: "memory", Resource.HOST: "host"}


def _own_resource(limit: Limit) -> str:
    return str(limit.resource) if limit.objective is None else f"{limit.objective.name} ({limit.resource})"


def resource_text(limit: Limit) -> str:
    """``KV memory``, ``TPOT p95 (memory bandwidth)``; of both pools where they differ."""
    return "; ".join(f"{role}: {_own_resource(own)}" for role, own in limit.of_pools) or _own_resource(limit)


def _own_detail(limit: Limit) -> str:
    if limit.objective is not None:
        moments = " (requests at random moments)" if limit.random_moments else ""
        return (
            f"{limit.objective.name} reaches {bound_text(limit.objective.bound_s)} at "
            f"{percent_text(limit.utilization)} of the rate that saturates a replica{moments}"
        )
    if limit.resource in _SLOTS:
        return f"{_SLOTS[limit.resource]} with {limit.sequences} sequences at once"
    if limit.sequences is None:
        bound = _STEP_BOUND.get(limit.resource, str(limit.resource))
        return f"prompts keep a replica busy for {percent_text(limit.utilization)} of the time, mostly with {bound}"
    return f"steps of {limit.sequences:.0f} sequences wait mostly for {limit.resource}"


def detail_text(limit: Limit) -> str:
    """How the limit was met, as a clause."""
    return "; ".join(f"{role}: {_own_detail(own)}" for role, own in limit.of_pools) or _own_detail(limit)
