"""A measured run in words: its degrees, what was deployed, what was asked of it, and the names and units of what was
measured."""

from __future__ import annotations

from enum import StrEnum

from simulator.reports.content.quantities import joules_text, rate_text, seconds_text
from simulator.specs.engine.deployment import parallel_text
from simulator.specs.measured.validation_rows import RunFacts


def deployment_text(run: RunFacts) -> str:
    """``Llama-2-7b-hf, TP2, bf16, fp8 cache``: the model, its degrees or those of its pools, its number formats."""
    parts = (run.model, _replicas_text(run), run.scheme or run.weights, f"{run.kv_cache} cache" if run.kv_cache else "")
    return ", ".join(part for part in parts if part)


def _replicas_text(run: RunFacts) -> str:
    decode, prefill = parallel_text(run.degrees), run.prefill_degrees
    if prefill is None:
        return decode
    return f"{run.prefill_replicas} x {parallel_text(prefill)} prefill + {run.decode_replicas} x {decode} decode"


def load_text(run: RunFacts) -> str:
    """``closed loop 256: 1024 in, 1024 out``: what was asked of the deployment."""
    if run.rate_per_s is not None:
        return f"{run.kind} at {run.rate_per_s:g}/s"
    at_once = run.batch_size or run.concurrency
    many = f" {at_once}" if at_once else ""
    return f"{run.kind.replace('_', ' ')}{many}: {run.isl_tokens} in, {run.osl_tokens} out"


class MetricKind(StrEnum):
    """What can be drawn on one axis."""

    LATENCY = "Latency"
    THROUGHPUT = "Throughput"
    ENERGY = "Energy"


def metric_kind(metric: str) -> MetricKind:
    """A time, a token rate, or joules per token."""
    if metric.endswith("_j"):
        return MetricKind.ENERGY
    return MetricKind.THROUGHPUT if metric.endswith("_per_s") else MetricKind.LATENCY


def value_text(value: float, metric: str) -> str:
    """A time, a token rate or an energy in words."""
    match metric_kind(metric):
        case MetricKind.LATENCY:
            return seconds_text(value)
        case MetricKind.THROUGHPUT:
            return rate_text(value, "tok")
        case MetricKind.ENERGY:
            return joules_text(value)


_WORDS = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "e2e": "end to end",
    "output_tokens": "output tokens/s",
    "total_tokens": "tokens/s",
}
_STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def metric_word(metric: str) -> str:
    """``ttft_p95_s`` as people say it: ``TTFT p95``; a name that is not known loses its underscores and its unit."""
    stem = metric.removesuffix("_per_s").removesuffix("_s").removesuffix("_j")
    name, _, statistic = stem.rpartition("_") if stem.endswith(_STATISTICS) else (stem, "", "")
    return f"{_WORDS.get(name, name.replace('_', ' '))} {statistic}".rstrip()
