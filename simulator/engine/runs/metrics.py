"""What a run of requests amounts to: latencies, rates, utilisation, saturation, goodput, by stage and by request."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.engine.events.arrays import SimulationRun
from simulator.engine.events.state import BLOCK_S, BUSY_S, PREEMPTIONS, SEQUENCE_S, WORK_S
from simulator.kernels.intervals import Range
from simulator.records import FLAT, dataclass
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.traffic.requests import Floats, Outcome, RequestRecords, Requests


def ttft_s(requests: Requests, records: RequestRecords) -> Floats:
    """Time to first token, queueing included; NaN where there was none [s]."""
    return records.first_token_s - requests.arrival_s


def e2e_s(requests: Requests, records: RequestRecords) -> Floats:
    """Time to the last token; NaN where there was none [s]."""
    return records.finish_s - requests.arrival_s


def tpot_s(requests: Requests, records: RequestRecords) -> Floats:
    """(E2E - TTFT) / (OSL - 1); NaN for answers of one token, which have no gap [s]."""
    values: Floats = records.finish_s - records.first_token_s
    values[requests.output_tokens <= 1] = np.nan
    values /= np.maximum(requests.output_tokens - 1, 1)
    return values


LATENCIES = {"ttft": ttft_s, "tpot": tpot_s, "e2e": e2e_s}
"""The function that measures each metric of an objective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveCheck:
    """One objective and the percentile that was simulated [s]; infinite where too many requests got no answer."""

    objective: ObjectiveSpec
    value_s: float
    bound_s: float = field(init=False)
    holds: bool = field(init=False)

    def __post_init__(self) -> None:
        """The bound of the objective, and whether the percentile stays at or under it."""
        object.__setattr__(self, "bound_s", self.objective.bound_s)
        object.__setattr__(self, "holds", self.value_s <= self.objective.bound_s)

    @property
    def excess(self) -> float:
        """Simulated over allowed; at most 1 where the objective holds."""
        return self.value_s / self.objective.bound_s


def offered_latency_s(requests: Requests, records: RequestRecords, *, metric: str) -> Floats:
    """A metric of every request that was sent: infinite where no answer came, NaN where there is nothing to measure."""
    values = LATENCIES[metric](requests, records)
    values[records.outcome != int(Outcome.FINISHED)] = np.inf
    if metric == "tpot":
        values[requests.output_tokens <= 1] = np.nan
    return values


def percentile_s(values_s: Floats, percentile: float) -> float:
    """Percentile, linear between order statistics, of the values that are not NaN; infinite ones count [s]."""
    ordered = values_s[~np.isnan(values_s)]
    ordered.sort()
    if not len(ordered):
        return 0.0
    position = percentile / 100 * (len(ordered) - 1)
    low = int(position)
    if position == low:
        return float(ordered[low])
    if np.isinf(ordered[low + 1]):
        return float("inf")
    return float(ordered[low] + (position - low) * (ordered[low + 1] - ordered[low]))


def check_objectives(
    requests: Requests, records: RequestRecords, *, objectives: tuple[ObjectiveSpec, ...], inside: NDArray[np.bool_]
) -> tuple[ObjectiveCheck, ...]:
    """The simulated percentile of each objective over ``inside``; requests without an answer are infinitely late."""
    return tuple(
        ObjectiveCheck(
            objective=item,
            value_s=percentile_s(offered_latency_s(requests, records, metric=item.metric)[inside], item.percentile),
        )
        for item in objectives
    )


def meets_objectives(
    requests: Requests, records: RequestRecords, *, objectives: tuple[ObjectiveSpec, ...]
) -> NDArray[np.bool_]:
    """Which requests finished within every bound. An answer of one token has no TPOT to miss.

    Reference: [Zhong2024] goodput.
    """
    met: NDArray[np.bool_] = records.outcome == int(Outcome.FINISHED)
    for item in objectives:
        values = offered_latency_s(requests, records, metric=item.metric)
        met = met & ((values <= item.bound_s) | np.isnan(values))
    return met


# A queue that grows by more than this share of the requests that arrive meanwhile, and by more than three standard
# deviations of a Poisson count, is growing for good.
GROWTH_SHARE = 0.05
GROWTH_DEVIATIONS = 3.0
GIVEN_UP_SHARE = 0.05
"""Of the requests, whose clients may give up though nothing queues: some answers last longer than they wait."""


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
    busy_fraction : share of the window in which a step runs (of all replicas); overall, that up to the last answer
    saturated : the queue keeps growing, or clients give up
    offered_per_s : requests that clients sent, per second of the window
    objectives : each objective with the percentile that was simulated; meets_slo : all of them hold
    goodput_per_s : rate of requests that meet every objective; both None without objectives
    interval : 80 % intervals of latencies and rates, None where they were not asked for
    """

    start_s: float
    end_s: float
    requests: int
    finished: int
    timed_out: int
    rejected: int
    ttft: LatencySummary = field(metadata=FLAT)
    tpot: LatencySummary = field(metadata=FLAT)
    e2e: LatencySummary = field(metadata=FLAT)
    requests_per_s: float
    output_tokens_per_s: float
    mean_batch: float
    kv_utilization: float
    busy_fraction: float
    prefix_hit_fraction: float
    preemptions: int
    saturated: bool
    offered_per_s: float
    objectives: tuple[ObjectiveCheck, ...] = ()
    meets_slo: bool | None = None
    goodput_per_s: float | None = None
    interval: Mapping[str, Range | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeResult:
    """A served workload: results by stage and overall, and the records that they sum up."""

    stages: tuple[StageResult, ...]
    overall: StageResult
    requests: Requests
    run: SimulationRun

    def device_busy_fraction(self, *, stages: int) -> float:
        """Share of the time in which a device works: in a pipeline less than some step runs, for each works alone."""
        busy = self.overall.busy_fraction
        usage = self.run.usage.sum(axis=0)
        return busy if stages == 1 or not busy else min(busy * float(usage[WORK_S] / usage[BUSY_S]) / stages, 1.0)


def summarise(values_s: Floats) -> LatencySummary:
    """Mean and percentiles (linear between order statistics) of the values that are not NaN, which are reordered."""
    unknown = np.isnan(values_s)
    known = values_s[~unknown] if unknown.any() else values_s
    if not len(known):
        return LatencySummary(mean_s=np.nan, p50_s=np.nan, p90_s=np.nan, p95_s=np.nan, p99_s=np.nan)
    mean_s = float(known.mean())
    p50, p90, p95, p99 = (float(value) for value in np.percentile(known, (50, 90, 95, 99), overwrite_input=True))
    return LatencySummary(mean_s=mean_s, p50_s=p50, p90_s=p90, p95_s=p95, p99_s=p99)


def outstanding(requests: Requests, records: RequestRecords, *, at_s: float, timeout_s: float | None) -> int:
    """Requests in the system at a time: sent, not rejected, and neither finished nor given up."""
    left_s = records.finish_s.copy()
    gone = records.outcome == int(Outcome.TIMED_OUT)
    left_s[gone] = requests.arrival_s[gone] + (timeout_s if timeout_s is not None else np.inf)
    return int(np.count_nonzero((requests.arrival_s <= at_s) & (left_s > at_s)))


def queue_growth(
    requests: Requests, records: RequestRecords, *, start_s: float, end_s: float, timeout_s: float | None
) -> tuple[float, int]:
    """How much the number in the system grows over the second half of a window, and how many arrive meanwhile;
    infinite where more clients give up than the few whose answers last longer than they wait, however idle it is."""
    inside = (requests.arrival_s >= start_s) & (requests.arrival_s < end_s)
    middle_s = (start_s + end_s) / 2
    offered = int(np.count_nonzero(inside & (requests.arrival_s >= middle_s)))
    given_up = np.count_nonzero(records.outcome[inside] == int(Outcome.TIMED_OUT))
    if given_up > GIVEN_UP_SHARE * np.count_nonzero(inside):
        return math.inf, offered
    last, first = (outstanding(requests, records, at_s=at_s, timeout_s=timeout_s) for at_s in (end_s, middle_s))
    return last - first, offered


def is_saturated(growth: float, offered: int, *, share: float = GROWTH_SHARE) -> bool:
    """Whether a number in the system grows (``queue_growth``) beyond what chance explains.

    share : of the arrivals meanwhile, a growth that is none yet; less where arrivals are known not to change
    """
    return growth > max(share * offered, GROWTH_DEVIATIONS * math.sqrt(offered))


def _summary(
    latency: Callable[[Requests, RequestRecords], Floats],
    requests: Requests,
    records: RequestRecords,
    inside: NDArray[np.bool_],
) -> LatencySummary:
    """Of the requests that ``inside`` picks, without a second copy where those are all."""
    values_s = latency(requests, records)
    if not inside.all():
        values_s = values_s[inside]
    return summarise(values_s)


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else 0.0


def window_result(
    requests: Requests,
    run: SimulationRun,
    *,
    inside: NDArray[np.bool_],
    usage: Floats,
    start_s: float,
    end_s: float,
    drained: bool,
    kv_blocks: int,
    replicas: int,
    timeout_s: float | None,
    objectives: tuple[ObjectiveSpec, ...],
) -> StageResult:
    """Sum up the requests that ``inside`` picks and the time in ``usage``, to the last answer where ``drained``."""
    records = run.records
    finished = inside & (records.outcome == int(Outcome.FINISHED))
    timed_out = int(np.count_nonzero(records.outcome[inside] == int(Outcome.TIMED_OUT)))
    sent = int(np.count_nonzero(inside))
    last_s = float(records.finish_s[finished].max(initial=end_s))
    span_s = last_s - start_s
    busy_window_s = span_s if drained else end_s - start_s
    checks = check_objectives(requests, records, objectives=objectives, inside=inside)
    good = int(np.count_nonzero(meets_objectives(requests, records, objectives=objectives) & inside))
    return StageResult(
        start_s=start_s,
        end_s=end_s,
        requests=sent,
        finished=int(np.count_nonzero(finished)),
        timed_out=timed_out,
        rejected=int(np.count_nonzero(records.outcome[inside] >= int(Outcome.TOO_LONG))),
        ttft=_summary(ttft_s, requests, records, finished),
        tpot=_summary(tpot_s, requests, records, finished),
        e2e=_summary(e2e_s, requests, records, finished),
        requests_per_s=_ratio(int(np.count_nonzero(finished)), span_s),
        output_tokens_per_s=_ratio(float(requests.output_tokens[finished].sum()), span_s),
        mean_batch=_ratio(usage[SEQUENCE_S], usage[BUSY_S]),
        kv_utilization=_ratio(usage[BLOCK_S], usage[BUSY_S] * kv_blocks),
        busy_fraction=min(_ratio(usage[BUSY_S], busy_window_s * replicas), 1.0),
        prefix_hit_fraction=_ratio(
            float(records.cached_tokens[inside].sum()), float(requests.prompt_tokens[inside].sum())
        ),
        preemptions=int(usage[PREEMPTIONS]),
        saturated=is_saturated(*queue_growth(requests, records, start_s=start_s, end_s=end_s, timeout_s=timeout_s)),
        offered_per_s=_ratio(sent, end_s - start_s),
        objectives=checks,
        meets_slo=all(check.holds for check in checks) if checks else None,
        goodput_per_s=_ratio(good, span_s) if objectives else None,
    )


def serve_result(
    requests: Requests,
    run: SimulationRun,
    *,
    kv_blocks: int,
    replicas: int = 1,
    timeout_s: float | None = None,
    objectives: tuple[ObjectiveSpec, ...] = (),
) -> ServeResult:
    """Results of every stage and of the whole run."""
    everything = np.ones(len(requests), dtype=np.bool_)
    starts_s = np.concatenate([[0.0], requests.stage_end_s[:-1]])
    windows = [
        (requests.stage == index, run.usage[index], float(starts_s[index]), float(end_s), False)
        for index, end_s in enumerate(requests.stage_end_s)
    ]
    windows.append((everything, run.usage.sum(axis=0), 0.0, float(requests.stage_end_s[-1]), True))
    *stages, overall = (
        window_result(
            requests,
            run,
            inside=inside,
            usage=usage,
            start_s=start_s,
            end_s=end_s,
            drained=drained,
            kv_blocks=kv_blocks,
            replicas=replicas,
            timeout_s=timeout_s,
            objectives=objectives,
        )
        for inside, usage, start_s, end_s, drained in windows
    )
    return ServeResult(stages=tuple(stages), overall=overall, requests=requests, run=run)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestColumn:
    """One column, one entry per request in arrival order; times are seconds since the start, NaN if never reached."""

    name: str
    values: NDArray[Any]


def request_columns(result: ServeResult, *, rows_at_once: int) -> Iterator[tuple[RequestColumn, ...]]:
    """Every request with its moments, lengths, latencies, cache hits, preemptions, replica (-1: none) and outcome."""
    for first in range(0, len(result.requests), rows_at_once):
        rows = slice(first, min(first + rows_at_once, len(result.requests)))
        yield _columns(result.requests.part(rows), result.run.records.part(rows), first=first)


def _columns(requests: Requests, records: RequestRecords, *, first: int) -> tuple[RequestColumn, ...]:
    names = np.array([outcome.name.lower() for outcome in Outcome])
    columns = {
        "request": np.arange(first, first + len(requests)),
        "stage": requests.stage,
        "arrival_s": requests.arrival_s,
        "admitted_s": records.admitted_s,
        "first_token_s": records.first_token_s,
        "finish_s": records.finish_s,
        "prompt_tokens": requests.prompt_tokens,
        "output_tokens": requests.output_tokens,
        "cached_tokens": records.cached_tokens,
        "preemptions": records.preemptions,
        "replica": records.replica,
        "outcome": names[records.outcome],
        "ttft_s": ttft_s(requests, records),
        "tpot_s": tpot_s(requests, records),
        "e2e_s": e2e_s(requests, records),
    }
    return tuple(RequestColumn(name=name, values=values) for name, values in columns.items())
