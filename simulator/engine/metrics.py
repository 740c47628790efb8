"""What a run of requests amounts to: latencies, rates, utilisation, saturation, goodput."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.engine.request import Floats, Outcome, RequestRecords, Requests
from simulator.engine.simulation import SimulationRun
from simulator.engine.state import BLOCK_S, BUSY_S, PREEMPTIONS, SEQUENCE_S
from simulator.specs.workload import SloSpec

# A queue that grows by more than this share of the requests that arrive meanwhile, and by more than three standard
# deviations of a Poisson count, is growing for good.
GROWTH_SHARE = 0.05
GROWTH_DEVIATIONS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """Mean and percentiles over the finished requests [s]; NaN when there are none."""

    mean_s: float
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """One stage, or the whole run. Requests belong to the stage that sent them, engine time to the stage it falls in.

    requests = finished + timed_out + rejected
    requests_per_s, output_tokens_per_s : of finished requests, from the stage's start to the last of them
    mean_batch : sequences per step; kv_utilization : share of KV blocks in use; both weighted with step time
    busy_fraction : share of the window in which a step runs (of all replicas)
    saturated : the queue keeps growing, or clients give up
    goodput_per_s : rate of requests that meet every objective, None without objectives
    meets_slo : the objectives' percentile is met, None without objectives
    """

    start_s: float
    end_s: float
    requests: int
    finished: int
    timed_out: int
    rejected: int
    ttft: LatencySummary
    tpot: LatencySummary
    e2e: LatencySummary
    requests_per_s: float
    output_tokens_per_s: float
    mean_batch: float
    kv_utilization: float
    busy_fraction: float
    prefix_hit_fraction: float
    preemptions: int
    saturated: bool
    goodput_per_s: float | None
    meets_slo: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeResult:
    """A served workload: results by stage and overall, and the records that they sum up."""

    stages: tuple[StageResult, ...]
    overall: StageResult
    requests: Requests
    run: SimulationRun


def ttft_s(requests: Requests, records: RequestRecords) -> Floats:
    """Time to first token, queueing included; NaN where there was none [s]."""
    return records.first_token_s - requests.arrival_s


def e2e_s(requests: Requests, records: RequestRecords) -> Floats:
    """Time to the last token; NaN where there was none [s]."""
    return records.finish_s - requests.arrival_s


def tpot_s(requests: Requests, records: RequestRecords) -> Floats:
    """(E2E - TTFT) / (OSL - 1); NaN for answers of one token, which have no gap [s]."""
    gaps = np.where(requests.output_tokens > 1, requests.output_tokens - 1.0, np.nan)
    return (records.finish_s - records.first_token_s) / gaps


def summarise(values_s: Floats) -> LatencySummary:
    """Mean and percentiles (linear between order statistics) of the values that are not NaN."""
    known = values_s[~np.isnan(values_s)]
    if not len(known):
        return LatencySummary(mean_s=np.nan, p50_s=np.nan, p90_s=np.nan, p95_s=np.nan, p99_s=np.nan)
    p50, p90, p95, p99 = (float(value) for value in np.percentile(known, (50, 90, 95, 99)))
    return LatencySummary(mean_s=float(known.mean()), p50_s=p50, p90_s=p90, p95_s=p95, p99_s=p99)


def outstanding(requests: Requests, records: RequestRecords, *, at_s: float, timeout_s: float | None) -> int:
    """Requests in the system at a time: sent, not rejected, and neither finished nor given up."""
    left_s = records.finish_s.copy()
    gone = records.outcome == int(Outcome.TIMED_OUT)
    left_s[gone] = requests.arrival_s[gone] + (timeout_s if timeout_s is not None else np.inf)
    return int(np.count_nonzero((requests.arrival_s <= at_s) & (left_s > at_s)))


def is_saturated(
    requests: Requests, records: RequestRecords, *, start_s: float, end_s: float, timeout_s: float | None
) -> bool:
    """Whether the number in the system grows over the second half of a window beyond what chance explains."""
    inside = (requests.arrival_s >= start_s) & (requests.arrival_s < end_s)
    if (records.outcome[inside] == int(Outcome.TIMED_OUT)).any():
        return True
    middle_s = (start_s + end_s) / 2
    offered = int(np.count_nonzero(inside & (requests.arrival_s >= middle_s)))
    growth = outstanding(requests, records, at_s=end_s, timeout_s=timeout_s) - outstanding(
        requests, records, at_s=middle_s, timeout_s=timeout_s
    )
    return growth > max(GROWTH_SHARE * offered, GROWTH_DEVIATIONS * math.sqrt(offered))


def meets_objectives(requests: Requests, records: RequestRecords, *, slo: SloSpec) -> NDArray[np.bool_]:
    """Which requests finished within every bound. An answer of one token has no TPOT to miss."""
    met: NDArray[np.bool_] = records.outcome == int(Outcome.FINISHED)
    if slo.ttft_s is not None:
        met = met & (ttft_s(requests, records) <= slo.ttft_s)
    if slo.e2e_s is not None:
        met = met & (e2e_s(requests, records) <= slo.e2e_s)
    if slo.tpot_s is not None:
        met = met & ((tpot_s(requests, records) <= slo.tpot_s) | (requests.output_tokens == 1))
    return met


def _share_within(values_s: Floats, bound_s: float | None, percentile: float) -> bool:
    if bound_s is None:
        return True
    known = values_s[~np.isnan(values_s)]
    return bool(len(known)) and float(np.percentile(known, percentile)) <= bound_s


def _meets_percentiles(requests: Requests, records: RequestRecords, *, slo: SloSpec, inside: NDArray[np.bool_]) -> bool:
    if not (records.outcome[inside] == int(Outcome.FINISHED)).all():
        return False
    single = bool((requests.output_tokens[inside] == 1).all())
    return (
        _share_within(ttft_s(requests, records)[inside], slo.ttft_s, slo.percentile)
        and _share_within(e2e_s(requests, records)[inside], slo.e2e_s, slo.percentile)
        and (single or _share_within(tpot_s(requests, records)[inside], slo.tpot_s, slo.percentile))
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def window_result(
    requests: Requests,
    run: SimulationRun,
    *,
    inside: NDArray[np.bool_],
    usage: Floats,
    start_s: float,
    end_s: float,
    kv_blocks: int,
    replicas: int,
    timeout_s: float | None,
    slo: SloSpec | None,
) -> StageResult:
    """Sum up the requests that ``inside`` picks and the engine time in ``usage``."""
    records = run.records
    finished = inside & (records.outcome == int(Outcome.FINISHED))
    timed_out = int(np.count_nonzero(records.outcome[inside] == int(Outcome.TIMED_OUT)))
    last_s = float(records.finish_s[finished].max(initial=end_s))
    span_s = last_s - start_s
    good = None if slo is None else int(np.count_nonzero(meets_objectives(requests, records, slo=slo) & inside))
    return StageResult(
        start_s=start_s,
        end_s=end_s,
        requests=int(np.count_nonzero(inside)),
        finished=int(np.count_nonzero(finished)),
        timed_out=timed_out,
        rejected=int(np.count_nonzero(records.outcome[inside] >= int(Outcome.TOO_LONG))),
        ttft=summarise(ttft_s(requests, records)[finished]),
        tpot=summarise(tpot_s(requests, records)[finished]),
        e2e=summarise(e2e_s(requests, records)[finished]),
        requests_per_s=_ratio(int(np.count_nonzero(finished)), span_s),
        output_tokens_per_s=_ratio(float(requests.output_tokens[finished].sum()), span_s),
        mean_batch=_ratio(usage[SEQUENCE_S], usage[BUSY_S]),
        kv_utilization=_ratio(usage[BLOCK_S], usage[BUSY_S] * kv_blocks),
        busy_fraction=_ratio(usage[BUSY_S], span_s * replicas),
        prefix_hit_fraction=_ratio(
            float(records.cached_tokens[inside].sum()), float(requests.prompt_tokens[inside].sum())
        ),
        preemptions=int(usage[PREEMPTIONS]),
        saturated=is_saturated(requests, records, start_s=start_s, end_s=end_s, timeout_s=timeout_s),
        goodput_per_s=None if good is None else _ratio(good, span_s),
        meets_slo=None if slo is None else _meets_percentiles(requests, records, slo=slo, inside=inside),
    )


def serve_result(
    requests: Requests,
    run: SimulationRun,
    *,
    kv_blocks: int,
    replicas: int = 1,
    timeout_s: float | None = None,
    slo: SloSpec | None = None,
) -> ServeResult:
    """Results of every stage and of the whole run."""
    everything = np.ones(len(requests), dtype=np.bool_)
    starts_s = np.concatenate([[0.0], requests.stage_end_s[:-1]])
    windows = [
        (requests.stage == index, run.usage[index], float(starts_s[index]), float(end_s))
        for index, end_s in enumerate(requests.stage_end_s)
    ]
    windows.append((everything, run.usage.sum(axis=0), 0.0, float(requests.stage_end_s[-1])))
    *stages, overall = (
        window_result(
            requests,
            run,
            inside=inside,
            usage=usage,
            start_s=start_s,
            end_s=end_s,
            kv_blocks=kv_blocks,
            replicas=replicas,
            timeout_s=timeout_s,
            slo=slo,
        )
        for inside, usage, start_s, end_s in windows
    )
    return ServeResult(stages=tuple(stages), overall=overall, requests=requests, run=run)
