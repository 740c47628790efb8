"""What a replica sustains where its kernels reach more or less of the peaks, MFU and MBU apart."""

from __future__ import annotations

from dataclasses import replace

from simulator.planner.candidates import Candidate, Platform
from simulator.planner.fleet import Sized
from simulator.planner.length_curves import capacity_per_s
from simulator.planner.search import Question

_ARITHMETIC = ("peak_flops_per_s", "sparse_peak_flops_per_s", "vector_flops_per_s", "library_flops_per_s")


def _at_speed(platform: Platform, *, compute: float, memory: float) -> Platform:
    """A platform whose arithmetic and memory are that many times as fast.

    Kernels are priced as shares of these peaks, so that this is what another MFU or MBU of theirs comes to; launches,
    links and the host stay.
    """
    hardware = platform.hardware
    peaks: dict[str, object] = {
        name: {dtype: rate * compute for dtype, rate in getattr(hardware, name).items()} for name in _ARITHMETIC
    }
    peaks["memory_bytes_per_s"] = hardware.memory_bytes_per_s * memory
    return replace(platform, hardware=hardware.model_copy(update=peaks))


def _candidate_at_speed(candidate: Candidate, *, compute: float, memory: float) -> Candidate:
    first = candidate.prefill
    return replace(
        candidate,
        platform=_at_speed(candidate.platform, compute=compute, memory=memory),
        prefill=None if first is None else _candidate_at_speed(first, compute=compute, memory=memory),
    )


def capacity_at_speed_per_s(question: Question, sized: Sized, *, compute: float = 1.0, memory: float = 1.0) -> float:
    """Of the same replica with kernels that reach so many times their MFU and MBU, 0 where it cannot serve [1/s]."""
    candidate = _candidate_at_speed(sized.evaluated.candidate, compute=compute, memory=memory)
    changed = replace(sized, evaluated=replace(sized.evaluated, candidate=candidate))
    return capacity_per_s(question, changed, mix=question.demand.mix)
