"""Demand from what a vLLM server shows under /metrics, or from Prometheus range queries of the same counters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from simulator.errors import Option, RoofcastError, missing_field
from simulator.specs.base import Note
from simulator.specs.parsing import MalformedError, parse_json
from simulator.traffic.lengths import Array
from simulator.traffic.recorded.demand import RecordedDemand, Spread, load_by_hour
from simulator.units import SECONDS_PER_HOUR

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_PROMPT, _ANSWER = "vllm:request_prompt_tokens", "vllm:request_generation_tokens"
REQUESTS = ("vllm:request_success_total", "vllm:request_success", "vllm:request_prompt_tokens_count")
PROMPTS = ("vllm:request_prompt_tokens_sum", "vllm:prompt_tokens_total", "vllm:prompt_tokens")
ANSWERS = ("vllm:request_generation_tokens_sum", "vllm:generation_tokens_total", "vllm:generation_tokens")
HITS = ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits")
QUERIES = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries")
_READ = (_PROMPT, _ANSWER, "vllm:request_success", "vllm:prompt_tokens", "vllm:generation_tokens", "vllm:prefix_cache")
"""How the names of what is read begin."""


@dataclass(slots=True)
class _Scrape:
    """Counters summed over their labels, and histogram buckets by upper bound, summed over engines and models."""

    values: dict[str, float] = field(default_factory=dict)
    buckets: dict[str, dict[float, float]] = field(default_factory=dict)

    def first(self, *names: str) -> float | None:
        """The first of several spellings that is there."""
        return next((self.values[name] for name in names if name in self.values), None)


def _parse(text: str, *, source: str) -> _Scrape:
    scrape = _Scrape()
    for line, content in enumerate(text.splitlines(), start=1):
        stripped = content.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _SAMPLE.match(stripped)
        labels = dict(_LABEL.findall(match[2] or "")) if match else {}
        try:
            value = float(match[3]) if match else math.nan
            bound = float(labels["le"].replace("+Inf", "inf")) if "le" in labels else math.inf
        except ValueError:
            match = None
        if match is None:
            message = f"{source}, line {line}: not a Prometheus sample: {stripped[:60]!r}"
            raise RoofcastError(message, field="FILE", code="malformed_metrics")
        name = match[1]
        if not name.startswith(_READ):
            continue
        if not 0 <= value < math.inf:
            message = f"{source}, line {line}: {name} must be a number of at least 0, got {match[3]}"
            raise RoofcastError(message, field="FILE", code="malformed_metrics")
        if name.endswith("_bucket") and "le" in labels:
            found = scrape.buckets.setdefault(name.removesuffix("_bucket"), {})
            found[bound] = found.get(bound, 0.0) + value
        else:
            scrape.values[name] = scrape.values.get(name, 0.0) + value
    return scrape


def histogram_cv(buckets: dict[float, float]) -> float | None:
    """Coefficient of variation from cumulative buckets, values spread evenly in the logarithm inside each.

    Between a and b such values have the mean (b - a) / ln(b / a) and the mean square (b^2 - a^2) / (2 ln(b / a)).
    vLLM's buckets grow by factors of 2 to 2.5, which leaves an error of about 0.1. None where one bucket holds all.
    """
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    first = second = low = below = 0.0
    used = 0
    for bound in bounds:
        inside = buckets[bound] - below
        upper = bound if math.isfinite(bound) else 2 * low
        lower = low if low > 0 else upper / 2
        if inside > 0 and upper > lower:
            used += 1
            width = math.log(upper / lower)
            first += inside * (upper - lower) / width
            second += inside * (upper**2 - lower**2) / (2 * width)
        low, below = upper, buckets[bound]
    if used < 2:
        return None
    return math.sqrt(max(0.0, second * total / first**2 - 1))


def histogram_quantile(buckets: dict[float, float], share: float) -> float | None:
    """Value below which ``share`` of the samples lie, by the logarithm inside a bucket; None above the last bound."""
    bounds = sorted(buckets)
    wanted = share * buckets[bounds[-1]] if bounds else 0.0
    low = below = 0.0
    for bound in bounds:
        if buckets[bound] >= wanted > below:
            lower = low if low > 0 else bound / 2
            position = (wanted - below) / (buckets[bound] - below)
            return lower * (bound / lower) ** position if math.isfinite(bound) and lower > 0 else None
        low, below = bound, buckets[bound]
    return None


def histogram_spread(buckets: dict[float, float], *, mean: float) -> Spread:
    """Spread and percentiles of cumulative buckets around a mean that is known exactly."""
    return Spread(
        mean=mean, cv=histogram_cv(buckets), p50=histogram_quantile(buckets, 0.5), p95=histogram_quantile(buckets, 0.95)
    )


def hit_share(hits: float | None, queries: float | None, *, source: str) -> float | None:
    """Share of prompt tokens found in the cache, None where not counted. Raises RoofcastError: more than asked for."""
    if not queries or hits is None:
        return None
    if hits > queries:
        message = f"{source}: {hits:g} prefix cache hits of {queries:g} queries; hits cannot be more"
        raise RoofcastError(message, field="FILE", code="malformed_metrics")
    return hits / queries


def _spread(scrape: _Scrape, name: str, *, tokens: float | None, requests: float) -> Spread | None:
    total, count = scrape.first(f"{name}_sum"), scrape.first(f"{name}_count")
    if total and count:
        return histogram_spread(scrape.buckets.get(name, {}), mean=total / count)
    return Spread(mean=tokens / requests) if tokens and requests else None


def prometheus_demand(text: str, *, source: str, over_s: float | None) -> RecordedDemand:
    """Demand of the requests in counters over ``over_s`` seconds. Raises RoofcastError: not vLLM's, or no request."""
    scrape = _parse(text, source=source)
    requests = scrape.first(*REQUESTS)
    if requests is None:
        raise RoofcastError(
            f"{source} holds none of vLLM's request counters",
            field="FILE",
            code="unknown_format",
            hint="save the text of http://SERVER/metrics",
        )
    if requests < 1:
        raise RoofcastError(f"{source}: no request has finished yet", field="FILE", code="no_requests")
    if over_s is None:
        raise RoofcastError(
            "counters do not say how long they ran",
            field=Option("over"),
            code="missing",
            hint="`over` 6h: time since the start",
        )
    isl = _spread(scrape, _PROMPT, tokens=scrape.first(*PROMPTS), requests=requests)
    osl = _spread(scrape, _ANSWER, tokens=scrape.first(*ANSWERS), requests=requests)
    if isl is None or osl is None:
        raise missing_field(
            f"{source} holds no counters of {'prompt' if isl is None else 'answer'} tokens",
            field="FILE",
            hint="save the whole text of http://SERVER/metrics",
        )
    unread = isl.cv is None or osl.cv is None
    return RecordedDemand(
        source=source,
        tool="Prometheus metrics of vLLM",
        requests=round(requests),
        duration_s=over_s,
        rate_per_s=requests / over_s,
        isl=isl,
        osl=osl,
        prefix_hit=hit_share(scrape.first(*HITS), scrape.first(*QUERIES), source=source),
        notes=(Note("no_histograms" if unread else "read_from_buckets"), Note("counters_without_peak")),
    )


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
        return np.where(steps >= 0, steps, self.values[1:])


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


def _range_spread(found: list[_Series], histogram: str, *, mean: float) -> Spread:
    buckets: dict[float, float] = {}
    for item in _chosen(found, (histogram,)):
        if item.bound is not None:
            buckets[item.bound] = buckets.get(item.bound, 0.0) + float(item.increases.sum())
    return histogram_spread(buckets, mean=mean)


def range_demand(document: object, *, source: str) -> RecordedDemand:
    """Demand over the time of a range query; the peak is that of its step.

    Raises RoofcastError: not an answer of Prometheus, no counter of finished requests or of tokens among them, or
    nothing finished.
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
        isl=_range_spread(found, _HISTOGRAMS[0], mean=prompts / requests),
        osl=_range_spread(found, _HISTOGRAMS[1], mean=answers / requests),
        prefix_hit=hit_share(hits, queries, source=source),
        notes=(Note("peak_of_step", {"step_s": float(seconds.min())}), Note("counted_when_finished")),
        load_profile=load_by_hour(times, total, has_dates=True) if seconds.max() <= SECONDS_PER_HOUR else (),
    )


def parsed(text: str, *, source: str) -> object:
    """The JSON of a file, refused with the line where it breaks."""
    try:
        return parse_json(text)
    except MalformedError as error:
        raise _refuse(error.place(source), f"not JSON: {error.reason}") from None
