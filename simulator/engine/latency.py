"""What a client measures of each request, and how many requests meet objectives on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.engine.request import Floats, Outcome, RequestRecords, Requests
from simulator.specs.plan import ObjectiveSpec


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


LATENCIES = {"ttft": ttft_s, "tpot": tpot_s, "e2e": e2e_s}
"""The function that measures each metric of an objective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveCheck:
    """One objective and the percentile that was simulated [s]; infinite where too many requests got no answer."""

    objective: ObjectiveSpec
    value_s: float

    @property
    def holds(self) -> bool:
        """The percentile stays at or under its bound."""
        return self.value_s <= self.objective.bound_s

    @property
    def excess(self) -> float:
        """Simulated over allowed; at most 1 where the objective holds."""
        return self.value_s / self.objective.bound_s


def objective_name(objective: ObjectiveSpec) -> str:
    """``ttft_p95``, as in workload files and results."""
    return f"{objective.metric}_p{objective.percentile:g}"


def offered_latency_s(requests: Requests, records: RequestRecords, *, metric: str) -> Floats:
    """A metric of every request that was sent: infinite where no answer came, NaN where there is nothing to measure."""
    answered = records.outcome == int(Outcome.FINISHED)
    values = np.where(answered, LATENCIES[metric](requests, records), np.inf)
    return np.where(requests.output_tokens > 1, values, np.nan) if metric == "tpot" else values


def percentile_s(values_s: Floats, percentile: float) -> float:
    """Percentile, linear between order statistics, of the values that are not NaN; infinite ones count [s]."""
    ordered = np.sort(values_s[~np.isnan(values_s)])
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
    requests: Requests,
    records: RequestRecords,
    *,
    objectives: tuple[ObjectiveSpec, ...],
    inside: NDArray[np.bool_],
) -> tuple[ObjectiveCheck, ...]:
    """The simulated percentile of each objective over the requests that ``inside`` picks.

    Requests without an answer count as infinitely late: no objective is met by turning clients away.
    """
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

    References
    ----------
    [Zhong2024] goodput.
    """
    met: NDArray[np.bool_] = records.outcome == int(Outcome.FINISHED)
    for item in objectives:
        values = offered_latency_s(requests, records, metric=item.metric)
        met = met & ((values <= item.bound_s) | np.isnan(values))
    return met
