"""Demand from the results of benchmark tools: vllm bench serve, GuideLLM, AIPerf and GenAI-Perf.

The rate is what clients sent where the file says when; else what the server answered. Failed requests are left out of
the lengths wherever the file tells them apart.
"""

from __future__ import annotations

import numpy as np

from simulator.specs.base import Note
from simulator.specs.measured.result_file import ResultFile
from simulator.specs.measured.serving_results import (
    VLLM_REQUEST_FIELDS,
    aiperf_answered,
    aiperf_model,
    guidellm_answered,
    guidellm_model,
)
from simulator.traffic.lengths import Array
from simulator.traffic.recorded.demand import RecordedDemand, Spread, dispersion
from simulator.traffic.recorded.traces import LONGEST_TRACE_S

_AT_ONCE = "inf"
"""The request rate of a benchmark that waits for nothing but its limit of clients."""
_ANSWERED = Note("rate_answered")


def vllm_bench_demand(file: ResultFile) -> RecordedDemand:
    """``vllm bench serve --save-result``: spreads where the result holds every request, else means."""
    answered = file.positive("completed")
    lists = (file.numbers(field) for field in VLLM_REQUEST_FIELDS)
    starts, isl, osl = (np.array(values, dtype=np.float64) if values else None for values in lists)
    if starts is not None and np.ptp(starts) > LONGEST_TRACE_S:
        raise file.refuse("start_times", "the requests are more than ten years apart")
    rate, note = _offered(file, starts)
    notes = [note]
    if isl is not None and osl is not None:
        if len(isl) != len(osl):
            raise file.refuse("output_lens", f"has {len(osl)} entries beside {len(isl)} input_lens")
        done = osl > 0
        if not done.any():
            raise file.refuse("output_lens", "no request has an answer", code="no_requests")
        if not done.all():
            notes.append(Note("failed_left_out", {"failed": int((~done).sum())}))
        isl, osl = isl[done], osl[done]
    return RecordedDemand(
        source=file.path,
        tool="vllm bench serve",
        requests=round(answered),
        duration_s=file.positive("duration"),
        rate_per_s=rate,
        isl=_lengths(file, isl, total="total_input_tokens", answered=answered),
        osl=_lengths(file, osl, total="total_output_tokens", answered=answered),
        dispersion=None if starts is None else dispersion(np.sort(starts) - starts.min()),
        notes=tuple(notes),
        model=file.word("model_id"),
    )


def _offered(file: ResultFile, starts: Array | None) -> tuple[float, Note]:
    """The rate at which requests were sent, and how it is known. Clients that send whatever a limit of their number
    allows offer what is answered; all at once is no rate."""
    answered = file.positive("request_throughput")
    sent_s = 0.0 if starts is None else float(np.ptp(starts))
    asked = file.find("request_rate")
    if starts is None or sent_s == 0 or (isinstance(asked, str) and asked.lower() == _AT_ONCE):
        return answered, _ANSWERED
    return (len(starts) - 1) / sent_s, Note("rate_of_starts", {"starts": len(starts), "answered": answered})


def _lengths(file: ResultFile, samples: Array | None, *, total: str, answered: float) -> Spread:
    if samples is not None and len(samples) > 1:
        return Spread.of(samples)
    return Spread(mean=file.positive(total) / answered)


def _spread(file: ResultFile, block: str, *, names: tuple[str, str, str, str]) -> Spread:
    """Lengths of a block; names : of its mean, deviation, median and 95th percentile."""
    center, deviation, *between = (f"{block}.{name}" for name in names)
    mean, std = file.positive(center), file.optional(deviation)
    p50, p95 = map(file.optional, between)
    if p50 is not None and p95 is not None and p50 > p95:
        raise file.refuse(between[0], f"{p50:g} is above p95, {p95:g}")
    return Spread(mean=mean, cv=None if std is None else std / mean, p50=p50, p95=p95)


def guidellm_demand(files: list[ResultFile]) -> RecordedDemand:
    """The benchmark with the highest rate of answers."""
    key, block = "metrics.requests_per_second.successful.mean", "metrics.{}.successful"
    best = max(files, key=lambda item: item.number(key))
    rate, answered = best.positive(key), guidellm_answered(best)
    names = ("mean", "std_dev", "percentiles.p50", "percentiles.p95")
    return RecordedDemand(
        source=best.path,
        tool="GuideLLM",
        requests=round(answered),
        duration_s=answered / rate,
        rate_per_s=rate,
        isl=_spread(best, block.format("prompt_token_count"), names=names),
        osl=_spread(best, block.format("output_token_count"), names=names),
        notes=(Note("fastest_benchmark", {"benchmarks": len(files)}),),
        model=guidellm_model(best),
    )


def aiperf_demand(file: ResultFile) -> RecordedDemand:
    """AIPerf, and GenAI-Perf before it, whose blocks have the same names."""
    rate, answered = file.positive("request_throughput.avg"), aiperf_answered(file)
    names = ("avg", "std", "p50", "p95")
    return RecordedDemand(
        source=file.path,
        tool="AIPerf" if file.find("request_count.avg") is not None else "GenAI-Perf",
        requests=round(answered),
        duration_s=answered / rate,
        rate_per_s=rate,
        isl=_spread(file, "input_sequence_length", names=names),
        osl=_spread(file, "output_sequence_length", names=names),
        notes=(_ANSWERED,),
        model=aiperf_model(file),
    )
