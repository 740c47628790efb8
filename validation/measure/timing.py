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
CALLS_PER_SAMPLE = 2048
SAMPLE_S = 2e-3
"""Executions between two events on a GPU: as many as fill this time (the launch of a graph and the events' half
microsecond are then below a thousandth of it), at most CALLS_PER_SAMPLE, and at least each copy once."""
SLEEP_CYCLES_PER_CALL = 100_000
"""About 50 us of a GPU's clock: more than a host needs to queue one call."""
GRAPH_SLEEP_CYCLES = 200_000
"""About 100 us, before the first event: the graph is queued when the device reaches it, so that the time from its
launch by the host to its first kernel lies outside the window."""
MILLISECONDS_PER_SECOND = 1000.0


class DeviceBrokenError(Exception):
    """The device, or torch's view of it, answers nothing any more in this process: a new one has to go on."""


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


def _summary(samples_s: Sequence[float], *, mode: str, meter: Meter) -> Measured:
    low, middle, high = np.quantile(np.asarray(samples_s), (0.25, 0.5, 0.75))
    reading = meter.stop()
    return Measured(
        seconds=float(middle),
        spread=float((high - low) / middle),
        repeats=len(samples_s),
        mode=mode,
        power_w=reading.power_w,
        clock_hz=reading.clock_hz,
        throttle=reading.throttle,
    )


def _samples(sample: Callable[[], float], *, budget_s: float, wanted_s: float) -> list[float]:
    """Repeat within the budget: at least MINIMUM_SAMPLES, and until ``wanted_s`` has passed."""
    samples: list[float] = []
    begin_s = time.perf_counter()
    while True:
        samples.append(sample())
        elapsed_s = time.perf_counter() - begin_s
        enough = len(samples) >= MINIMUM_SAMPLES and elapsed_s >= max(budget_s, wanted_s)
        if enough or (len(samples) >= MAXIMUM_SAMPLES and elapsed_s >= wanted_s):
            return samples


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
    samples = _samples(sample, budget_s=budget_s, wanted_s=case.wanted_s)
    return _summary(samples, mode="host", meter=meter)


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
        check_device()
        return None
    return graph


def check_device() -> None:
    """Free what is cached, and see whether the device still answers.

    After a failed capture torch before 2.12 believes that it still captures, and refuses to free memory from then on
    (pytorch issue 180395); an illegal address spoils every later call of the process.

    Raises
    ------
    DeviceBrokenError
        It does not.
    """
    if not torch.cuda.is_available():
        return
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError as error:
        raise DeviceBrokenError(str(error).strip().splitlines()[0] if str(error).strip() else "no answer") from error


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
        if graph is not None:
            torch.cuda._sleep(GRAPH_SLEEP_CYCLES)
        elif not case.eager_only:
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
    samples = _samples(sample, budget_s=budget_s, wanted_s=case.wanted_s)
    return _summary(samples, mode="eager" if graph is None else "graph", meter=meter)
