"""Seconds of a kernel: CUDA events around a replayed graph of calls, or the wall clock on a CPU.

A case brings several copies of its operands, and calls go round them, so that nothing is found in the cache that a
serving step would have to fetch. Launch gaps of the host are not part of a kernel's time: calls are captured in a
CUDA graph; where a kernel cannot be captured, the device sleeps while the host queues the calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from validation.measure.power import Meter
from validation.measure.table import Measured, Shape

Call = Callable[[], object]

WARM_UP_ROUNDS = 2
MINIMUM_SAMPLES = 5
MAXIMUM_SAMPLES = 200
CALLS_PER_SAMPLE = 16
SAMPLE_S = 2e-3
"""Executions between two events on a GPU: as many as fill this time, at most CALLS_PER_SAMPLE (event resolution is
half a microsecond, short kernels take a few) and at least each copy once."""
SLEEP_CYCLES_PER_CALL = 100_000
"""About 50 us of a GPU's clock: more than a host needs to queue one call."""
MILLISECONDS_PER_SECOND = 1000.0
POWER_WINDOW_S = 0.3
"""NVML averages power over about 0.1 s; a shorter run says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kernel and shape to measure.

    footprint_bytes : memory of one copy of its operands
    build : makes the calls, one per copy of the operands
    wanted_s : time to run at least (for power readings), 0 for kernels
    eager_only : a graph is not what is asked for; host : time of the calling thread is what is asked for
    executions_per_call : how often the kernel runs inside one call
    """

    family: str
    kernel: str
    format: str
    shape: Shape
    footprint_bytes: int
    build: Callable[[int], Sequence[Call]]
    wanted_s: float = 0.0
    eager_only: bool = False
    host: bool = False
    executions_per_call: int = 1


def _summary(samples_s: Sequence[float], *, mode: str, meter: Meter, elapsed_s: float) -> Measured:
    low, middle, high = np.quantile(np.asarray(samples_s), (0.25, 0.5, 0.75))
    power_w, clock_hz = meter.stop()
    return Measured(
        seconds=float(middle),
        spread=float((high - low) / middle),
        repeats=len(samples_s),
        mode=mode,
        power_w=power_w if elapsed_s >= POWER_WINDOW_S else None,
        clock_hz=clock_hz,
    )


def _samples(sample: Callable[[], float], *, budget_s: float, wanted_s: float) -> tuple[list[float], float]:
    """Repeat within the budget: at least MINIMUM_SAMPLES, and until ``wanted_s`` has passed."""
    samples: list[float] = []
    begin_s = time.perf_counter()
    while True:
        samples.append(sample())
        elapsed_s = time.perf_counter() - begin_s
        enough = len(samples) >= MINIMUM_SAMPLES and elapsed_s >= max(budget_s, wanted_s)
        if enough or (len(samples) >= MAXIMUM_SAMPLES and elapsed_s >= wanted_s):
            return samples, elapsed_s


def measure_host(case: Case, *, copies: int, budget_s: float, meter: Meter) -> Measured:
    """Wall clock of the calling thread for one call, copies in turn. On a CPU that is the kernel's time.

    On a GPU it is the time to issue a call: the queue is emptied before each sample, not inside it.
    """
    calls = case.build(copies)
    for call in calls:
        call()
    index = 0

    def sample() -> float:
        nonlocal index
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        call = calls[index % len(calls)]
        index += 1
        begin_s = time.perf_counter()
        call()
        return (time.perf_counter() - begin_s) / case.executions_per_call

    meter.start()
    samples, elapsed_s = _samples(sample, budget_s=budget_s, wanted_s=case.wanted_s)
    return _summary(samples, mode="host", meter=meter, elapsed_s=elapsed_s)


def _captured(calls: Sequence[Call], *, rounds: int) -> torch.cuda.CUDAGraph | None:
    """All calls ``rounds`` times in one graph, or None where a kernel refuses to be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_ROUNDS):
            for call in calls:
                call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for _ in range(rounds):
                for call in calls:
                    call()
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    return graph


def _rounds(calls: Sequence[Call], *, begin: torch.cuda.Event, end: torch.cuda.Event) -> int:
    """How often to go round the copies in one sample, from one eager round after a warm-up."""
    for _ in range(WARM_UP_ROUNDS):
        begin.record()
        for call in calls:
            call()
        end.record()
        end.synchronize()
    round_s = begin.elapsed_time(end) / MILLISECONDS_PER_SECOND
    wanted = min(SAMPLE_S / max(round_s, 1e-9), CALLS_PER_SAMPLE / len(calls))
    return max(1, int(wanted))


def measure_cuda(case: Case, *, copies: int, budget_s: float, meter: Meter) -> Measured:
    """CUDA events around a graph of calls; around queued eager calls where the case asks for it or no graph forms."""
    calls = case.build(copies)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    rounds = _rounds(calls, begin=begin, end=end)
    graph = None if case.eager_only else _captured(calls, rounds=rounds)
    executions = rounds * len(calls) * case.executions_per_call

    def sample() -> float:
        if graph is None and not case.eager_only:
            torch.cuda._sleep(SLEEP_CYCLES_PER_CALL * rounds * len(calls))
        begin.record()
        if graph is not None:
            graph.replay()
        else:
            for _ in range(rounds):
                for call in calls:
                    call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / MILLISECONDS_PER_SECOND / executions

    for _ in range(WARM_UP_ROUNDS):
        sample()
    meter.start()
    samples, elapsed_s = _samples(sample, budget_s=budget_s, wanted_s=case.wanted_s)
    return _summary(samples, mode="eager" if graph is None else "graph", meter=meter, elapsed_s=elapsed_s)
