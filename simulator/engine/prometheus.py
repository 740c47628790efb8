"""Demand from the text that a vLLM server shows under /metrics: counters and histograms since its start."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from simulator.engine.recorded import RecordedDemand, Spread
from simulator.errors import RoofcastError

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_PROMPT, _ANSWER = "vllm:request_prompt_tokens", "vllm:request_generation_tokens"


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
        try:
            value = float(match[3]) if match else math.nan
        except ValueError:
            match = None
        if match is None:
            message = f"{source}, line {line}: not a Prometheus sample: {stripped[:60]!r}"
            raise RoofcastError(message, field="FILE", code="malformed_metrics")
        name, labels = match[1], dict(_LABEL.findall(match[2] or ""))
        if name.endswith("_bucket") and "le" in labels:
            found = scrape.buckets.setdefault(name.removesuffix("_bucket"), {})
            bound = float(labels["le"].replace("+Inf", "inf"))
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


def _spread(scrape: _Scrape, name: str, *, tokens: float | None, requests: float) -> Spread | None:
    total, count = scrape.first(f"{name}_sum"), scrape.first(f"{name}_count")
    if total is not None and count:
        mean = total / count
        return Spread(mean=mean, cv=histogram_cv(scrape.buckets.get(name, {})))
    return Spread.mean_only(tokens / requests) if tokens is not None and requests else None


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
        raise RoofcastError(f"{source} holds no token counters", field="FILE", code="missing_field")
    queries = scrape.first("vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries")
    hits = scrape.first("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits")
    return RecordedDemand(
        source=source,
        tool="Prometheus metrics of vLLM",
        requests=round(requests),
        duration_s=over_s,
        rate_per_s=requests / over_s,
        peak_to_mean=None,
        isl=isl,
        osl=osl,
        prefix_hit=hits / queries if queries and hits is not None else None,
        arrival_cv=None,
        notes=("spreads of lengths are read from histogram buckets", "counters hold no peak: give --peak-to-mean"),
    )
