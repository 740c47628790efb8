"""The result of a run of equal requests: latencies, throughput, the steps behind them; and how many run at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil

import numpy as np

from simulator.engine.pools import PoolUse
from simulator.engine.uniform.loop_requests import LoopDemand, LoopRecords
from simulator.engine.uniform.steps import PhaseEstimate, decode_phase, prefill_phase
from simulator.errors import InfeasibleError
from simulator.operators.work import Array
from simulator.phases.deployment import Deployment, without_speculation
from simulator.phases.memory import MemoryPlan, sequences_that_fit, utilization_that_holds
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.units import GIGA


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Percentiles of one latency over the requests of a run, linear between order statistics [s]."""

    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float

    @classmethod
    def of(cls, values_s: Array) -> Percentiles:
        """Percentiles of at least one value."""
        # Not np.percentile, which loads the masked arrays of NumPy: a fortieth of a short command.
        ranks = np.array((50, 90, 95, 99)) / 100 * (len(values_s) - 1)
        p50, p90, p95, p99 = np.interp(ranks, np.arange(len(values_s)), np.sort(values_s)).tolist()
        return cls(p50_s=p50, p90_s=p90, p95_s=p95, p99_s=p99)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySpread:
    """Percentiles over the requests of a run; ``tpot`` is None where nothing is decoded."""

    ttft: Percentiles
    tpot: Percentiles | None
    e2e: Percentiles


def spread_of(demand: LoopDemand, records: LoopRecords) -> LatencySpread:
    """Percentiles over all requests."""
    tpot_s = request_tpot_s(demand, records)
    return LatencySpread(
        ttft=Percentiles.of(records.first_token_s - records.sent_s),
        tpot=Percentiles.of(tpot_s) if len(tpot_s) else None,
        e2e=Percentiles.of(records.finish_s - records.sent_s),
    )


def request_tpot_s(demand: LoopDemand, records: LoopRecords) -> Array:
    """Time per token after the first of every request that has more than one [s]."""
    several = demand.osl_tokens > 1
    return (records.finish_s - records.first_token_s)[several] / (demand.osl_tokens[several] - 1)


def waits_of(
    prefill: PhaseEstimate,
    decode: PhaseEstimate | None,
    *,
    first_s: float,
    whole_s: float,
    queue_s: float = 0.0,
    transfer_s: float = 0.0,
) -> Mapping[str, float]:
    """Mean seconds of a request by what it waits for, in their order; they add up to ``whole_s``."""
    prefill_s, decode_s = first_s - queue_s - transfer_s, whole_s - first_s
    prompt_share = prefill.network_fraction
    answer_share = 0.0 if decode is None else decode.network_fraction
    parts = {
        "Queue": queue_s,
        "Prefill": prefill_s * (1 - prompt_share),
        "Network in prefill": prefill_s * prompt_share,
        "KV transfer": transfer_s,
        "Decode": decode_s * (1 - answer_share),
        "Network in decode": decode_s * answer_share,
    }
    return {name: seconds for name, seconds in parts.items() if seconds > 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """Moments of a run [s], each the start of a stretch, and the highest share of the cache in use in it."""

    moments_s: tuple[float, ...]
    used: tuple[float, ...]


MOMENTS = 12
"""Points in time at which the use of a cache is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformRun:
    """Latencies of equal requests (means) and the throughput of a replica.

    TTFT includes queueing; TPOT = (E2E - TTFT) / (OSL - 1) of each request; throughput is over the run, from the first
    request to the last answer.
    isl_tokens, osl_tokens : means
    ranks : attention-data-parallel ranks that the throughput includes; 1 of a run that was computed for one of several
    spread, steady_requests_per_s : of closed loops alone: percentiles, and the rate between first and last round
    pools : where prefill and decode have replicas of their own; throughput is then that of both pools together
    busy_fraction : share of the time in which a device works, less than 1 where pipeline stages wait for each other
    """

    ttft_s: float
    tpot_s: float
    e2e_s: float
    requests_per_s: float
    isl_tokens: float
    osl_tokens: float
    sequences: int
    prefill: PhaseEstimate
    decode: PhaseEstimate | None
    memory: MemoryPlan
    notes: tuple[Note, ...]
    ranks: int = 1
    spread: LatencySpread | None = None
    steady_requests_per_s: float | None = None
    pools: PoolUse | None = None
    busy_fraction: float = 1.0

    @property
    def waits_s(self) -> Mapping[str, float]:
        """Mean seconds of a request by what it waits for."""
        transfer_s = 0.0 if self.pools is None else self.pools.transfer_s
        return waits_of(self.prefill, self.decode, first_s=self.ttft_s, whole_s=self.e2e_s, transfer_s=transfer_s)

    def cache_use(self, kv_utilization: float) -> CacheUse:
        """Use of a static batch's cache up to ``kv_utilization``: prompts first, then a token per sequence and step."""
        moments_s = np.linspace(self.ttft_s, self.e2e_s, MOMENTS)
        tokens = self.isl_tokens + np.linspace(0.0, self.osl_tokens, MOMENTS)
        used = kv_utilization * tokens / (self.isl_tokens + self.osl_tokens)
        return CacheUse(moments_s=(0.0, *moments_s.tolist()), used=(0.0, *used.tolist()))

    @property
    def output_tokens_per_s(self) -> float:
        """Generated tokens per second, first tokens included."""
        return self.requests_per_s * self.osl_tokens

    @property
    def total_tokens_per_s(self) -> float:
        """Prompt and generated tokens per second."""
        return self.requests_per_s * (self.isl_tokens + self.osl_tokens)


def require_fit(deployment: Deployment, memory: MemoryPlan, *, tokens: int, field: str = "isl_tokens") -> None:
    """Refuse a deployment that does not fit its devices, or whose cache does not hold one request of so many tokens,
    which ``field`` says."""
    if not memory.fits:
        raise InfeasibleError(
            f"weights, activations and reserve exceed the memory of a device by {memory.shortfall_bytes / GIGA:.1f} GB",
            field="hardware",
            code="does_not_fit",
            hint=_more_memory(deployment, memory, tokens=tokens)
            + "more tensor parallelism, fewer bits per weight or a device with more memory",
        )
    if sequences_that_fit(deployment, memory, tokens=tokens) < 1:
        raise InfeasibleError(
            f"one request of {tokens} tokens does not fit the cache, which holds {memory.kv_capacity_tokens}",
            field=field,
            code="does_not_fit",
            hint=_more_memory(deployment, memory, tokens=tokens)
            + "more tensor parallelism, a smaller kv_cache dtype or shorter sequences",
        )


def _more_memory(deployment: Deployment, memory: MemoryPlan, *, tokens: int) -> str:
    """What the engine may take more of the memory, where that alone would do."""
    enough = utilization_that_holds(deployment, memory, tokens=tokens)
    if enough is None:
        return "use "
    now = deployment.engine.gpu_memory_utilization
    return f"set engine.gpu_memory_utilization to {enough:g} ({now:.2g} here), or use "


def resident_sequences(deployment: Deployment, memory: MemoryPlan, *, wanted: int, tokens: float) -> int:
    """Sequences of a step: limited by the engine, the cache at ``tokens`` each, and a step's token budget. In a
    pipeline as many steps are under way as there are stages, and share the first two."""
    lanes = deployment.parallelism.pp_size
    by_cache = sequences_that_fit(deployment, memory, tokens=tokens)
    by_step = deployment.engine.max_num_batched_tokens - 1
    return int(max(1.0, min(ceil(wanted / lanes), min(memory.running_sequences, by_cache) // lanes, by_step)))


def held_tokens(deployment: Deployment, *, isl_tokens: int, osl_tokens: int) -> float:
    """Cache that a running sequence takes: sequences at all stages of their lives hold ISL + OSL / 2 tokens on average;
    an engine that reserves the full length holds room for ISL + OSL."""
    return isl_tokens + (osl_tokens if deployment.engine.reserves_full_length else osl_tokens / 2)


def run_phases(
    deployment: Deployment,
    *,
    sequences: int,
    isl_tokens: int,
    osl_tokens: int,
    limit_tokens: int | None,
    together: bool = False,
) -> tuple[PhaseEstimate, PhaseEstimate | None]:
    """Prompt passes and decode steps of ``sequences`` requests that run at once."""
    prefill = prefill_phase(deployment, sequences=sequences, isl_tokens=isl_tokens, limit_tokens=limit_tokens)
    decode = decode_phase(
        deployment, sequences=sequences, isl_tokens=isl_tokens, osl_tokens=osl_tokens, together=together
    )
    return prefill, decode


def fastest_run(
    deployment: Deployment, run: Callable[[Deployment], UniformRun], *, sequences: int, context: float
) -> UniformRun:
    """The run, or with adaptive speculation the better of none and the run length that decodes fastest."""
    speculation = deployment.speculation
    if speculation is None or not speculation.spec.adaptive:
        return run(deployment)
    from simulator.engine.uniform.speculation_gain import run_lengths, token_s

    plain = run(without_speculation(deployment))
    if plain.decode is None:
        return plain
    chosen = min(run_lengths(deployment), key=lambda one: float(token_s(one, sequences=sequences, context=context)[0]))
    best = run(chosen)
    assert chosen.speculation is not None, "run lengths of a deployment that speculates"
    if best.requests_per_s > plain.requests_per_s:
        return replace(best, notes=(*best.notes, Note("adaptive_k", {"k": chosen.speculation.plan.k})))
    return replace(plain, notes=(*plain.notes, Note("adaptive_off", {"sequences": sequences})))
