"""Demand from the JSON of Prometheus range queries of vLLM's counters: rate over time, so that peaks show.

A file holds one answer of ``/api/v1/query_range``, or a list of them, one a metric.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from simulator.engine.lengths import Array
from simulator.engine.recorded.demand import RecordedDemand, Spread
from simulator.engine.recorded.load_by_hour import load_by_hour
from simulator.engine.recorded.prometheus import histogram_spread, hit_share
from simulator.errors import RoofcastError
from simulator.units import SECONDS_PER_HOUR

REQUESTS = ("vllm:request_success_total", "vllm:request_success", "vllm:request_prompt_tokens_count")
PROMPTS = ("vllm:request_prompt_tokens_sum", "vllm:prompt_tokens_total", "vllm:prompt_tokens")
ANSWERS = ("vllm:request_generation_tokens_sum", "vllm:generation_tokens_total", "vllm:generation_tokens")
HITS = ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits")
QUERIES = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries")
_HISTOGRAMS = ("vllm:request_prompt_tokens_bucket", "vllm:request_generation_tokens_bucket")
_HINT = 'curl "SERVER/api/v1/query_range?query=vllm:request_success_total&start=...&end=...&step=60"'


@dataclass(frozen=True, slots=True, kw_only=True)
class _Series:
    """Samples of one counter, in the order of time [s]; ``bound`` is the upper bound of a histogram's bucket."""

    name: str
    bound: float | None
    times_s: Array
    values: Array

    @property
    def increases(self) -> Array:
        """What the counter grew by between samples; after a restart it starts from zero."""
        steps = np.diff(self.values)
        grown: Array = np.where(steps >= 0, steps, self.values[1:])
        return grown


def _refuse(source: str, message: str, code: str = "malformed_metrics") -> RoofcastError:
    return RoofcastError(f"{source}: {message}", field="FILE", code=code, hint=_HINT)


def _answers(document: object, *, source: str) -> Iterator[Mapping[str, object]]:
    for item in document if isinstance(document, list) else [document]:
        data = item.get("data") if isinstance(item, Mapping) else None
        if not isinstance(item, Mapping) or item.get("status") != "success" or not isinstance(data, Mapping):
            said = item.get("error") if isinstance(item, Mapping) else None
            raise _refuse(source, f"not a successful answer of Prometheus: {said or 'no status and data'}")
        if data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
            raise _refuse(source, f"result type {data.get('resultType')!r}; a range query gives a matrix")
        for series in data["result"]:
            if not isinstance(series, Mapping):
                raise _refuse(source, "a series is no object")
            yield series


def _series(item: Mapping[str, object], *, source: str) -> _Series:
    labels, samples = item.get("metric"), item.get("values")
    if not isinstance(labels, Mapping) or not isinstance(samples, list):
        raise _refuse(source, "a series without metric and values")
    name = labels.get("__name__")
    if not isinstance(name, str):
        raise _refuse(source, "a series without __name__: query the counter itself, not rate() of it")
    try:
        pairs = np.array([(float(time), float(value)) for time, value in samples], dtype=np.float64)
        bound = float(str(labels["le"]).replace("+Inf", "inf")) if "le" in labels else None
    except (TypeError, ValueError):
        raise _refuse(source, f"{name}: samples must be [time, value] pairs") from None
    if len(pairs) < 2 or not np.isfinite(pairs).all() or (np.diff(pairs[:, 0]) <= 0).any():
        raise _refuse(source, f"{name}: two samples at rising times are needed, got {len(pairs)}")
    if (pairs[:, 1] < 0).any():
        raise _refuse(source, f"{name}: a counter is never below 0, got {pairs[:, 1].min():g}")
    return _Series(name=name, bound=bound, times_s=pairs[:, 0], values=pairs[:, 1])


def _chosen(found: list[_Series], names: tuple[str, ...]) -> list[_Series]:
    """Series of the first spelling that is there: one per engine, model and reason of finishing."""
    return next((same for name in names if (same := [item for item in found if item.name == name])), [])


def _grown(found: list[_Series], names: tuple[str, ...]) -> float | None:
    chosen = _chosen(found, names)
    return float(sum(item.increases.sum() for item in chosen)) if chosen else None


def _counted(chosen: list[_Series]) -> tuple[Array, Array]:
    """Times [s] of all series and the requests of all of them until each."""
    times = np.unique(np.concatenate([item.times_s for item in chosen]))
    total = np.zeros(len(times))
    for item in chosen:
        # A counter's growth is spread evenly between its samples.
        total += np.interp(times, item.times_s, np.append(0.0, np.cumsum(item.increases)))
    return times, total


def _spread(found: list[_Series], histogram: str, *, mean: float) -> Spread:
    buckets: dict[float, float] = {}
    for item in _chosen(found, (histogram,)):
        if item.bound is not None:
            buckets[item.bound] = buckets.get(item.bound, 0.0) + float(item.increases.sum())
    return histogram_spread(buckets, mean=mean)


def range_demand(document: object, *, source: str) -> RecordedDemand:
    """Demand over the time of a range query; the peak is that of its step.

    Raises
    ------
    RoofcastError
        Not an answer of Prometheus, no counter of finished requests or of tokens among them, or nothing finished.
    """
    found = [_series(item, source=source) for item in _answers(document, source=source)]
    counted = _chosen(found, REQUESTS)
    if not counted:
        names = ", ".join(sorted({item.name for item in found})) or "nothing"
        raise _refuse(source, f"holds {names}; {REQUESTS[0]} is needed", "unknown_format")
    times, total = _counted(counted)
    seconds, rates = np.diff(times), np.diff(total) / np.diff(times)
    requests, duration_s = float((seconds * rates).sum()), float(seconds.sum())
    if requests < 1:
        raise _refuse(source, "no request finished in this time", "no_requests")
    prompts, answers = _grown(found, PROMPTS), _grown(found, ANSWERS)
    missing = [names[0] for names, value in ((PROMPTS, prompts), (ANSWERS, answers)) if not value]
    if prompts is None or answers is None or missing:
        raise _refuse(source, f"add the answers for {' and '.join(missing)} to a list in the file", "missing_field")
    mean, hits, queries = requests / duration_s, _grown(found, HITS), _grown(found, QUERIES)
    return RecordedDemand(
        source=source,
        tool="range query of Prometheus",
        requests=round(requests),
        duration_s=duration_s,
        rate_per_s=mean,
        peak_to_mean=float(rates.max()) / mean,
        isl=_spread(found, _HISTOGRAMS[0], mean=prompts / requests),
        osl=_spread(found, _HISTOGRAMS[1], mean=answers / requests),
        prefix_hit=hit_share(hits, queries, source=source),
        arrival_cv=None,
        notes=(
            f"the peak is the busiest step of {float(seconds.min()):g} s; shorter bursts do not show",
            "requests count when they finish: a queue that grows hides demand",
        ),
        load_profile=load_by_hour(times, total, has_dates=True) if seconds.max() <= SECONDS_PER_HOUR else (),
    )


def parsed(text: str, *, source: str) -> object:
    """The JSON of a file, refused with the line where it breaks."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise _refuse(f"{source}, line {error.lineno}", f"not JSON: {error.msg}") from None
