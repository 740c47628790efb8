"""Demand from the text that a vLLM server shows under /metrics: counters and histograms since its start."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from simulator.engine.recorded.demand import RecordedDemand, Spread
from simulator.errors import RoofcastError

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_PROMPT, _ANSWER = "vllm:request_prompt_tokens", "vllm:request_generation_tokens"
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
        mean=mean,
        cv=histogram_cv(buckets),
        p50=histogram_quantile(buckets, 0.5),
        p95=histogram_quantile(buckets, 0.95),
    )


def hit_share(hits: float | None, queries: float | None, *, source: str) -> float | None:
    """Share of prompt tokens found in the prefix cache, None where it was not counted.

    Raises
    ------
    RoofcastError
        More tokens were found than asked for.
    """
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
    return Spread.mean_only(tokens / requests) if tokens and requests else None


def prometheus_demand(text: str, *, source: str, over_s: float | None) -> RecordedDemand:
    """Demand of the requests that the counters hold, which span ``over_s`` seconds.

    Raises
    ------
    RoofcastError
        Not Prometheus text of vLLM, no finished request, or no duration.
    """
    scrape = _parse(text, source=source)
    requests = scrape.first("vllm:request_success_total", "vllm:request_success", f"{_PROMPT}_count")
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
            field="--over",
            code="missing",
            hint="--over 6h: time since the start",
        )
    prompts = scrape.first("vllm:prompt_tokens_total", "vllm:prompt_tokens")
    answers = scrape.first("vllm:generation_tokens_total", "vllm:generation_tokens")
    isl = _spread(scrape, _PROMPT, tokens=prompts, requests=requests)
    osl = _spread(scrape, _ANSWER, tokens=answers, requests=requests)
    if isl is None or osl is None:
        raise RoofcastError(
            f"{source} holds no counters of {'prompt' if isl is None else 'answer'} tokens",
            field="FILE",
            code="missing_field",
            hint="save the whole text of http://SERVER/metrics",
        )
    queries = scrape.first("vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries")
    hits = scrape.first("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits")
    read = "spreads of lengths are read from histogram buckets"
    if isl.cv is None or osl.cv is None:
        read = "no histograms of lengths: their spreads are not known"
    return RecordedDemand(
        source=source,
        tool="Prometheus metrics of vLLM",
        requests=round(requests),
        duration_s=over_s,
        rate_per_s=requests / over_s,
        peak_to_mean=None,
        isl=isl,
        osl=osl,
        prefix_hit=hit_share(hits, queries, source=source),
        arrival_cv=None,
        notes=(read, "counters hold no peak: give --peak-to-mean"),
    )
