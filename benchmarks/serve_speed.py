"""How fast the event simulation is: requests per second of a chat trace on one core, and the memory it takes.

Run with ``python -m benchmarks.serve_speed [--requests 1000000] [--trace AzureLLMInferenceTrace_conv.csv]``. Without a
trace, lengths are log-normal with the means of Azure's 2023 conversation trace (1155 prompt and 211 output tokens).
Compiling is timed apart: it happens once per machine and version, and never for few requests.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace

import numpy as np

from simulator.engine.events.simulation import simulate_requests
from simulator.engine.events.warm_up import warm_up
from simulator.engine.runs.serving import scheduler_settings
from simulator.engine.settings import SchedulerPolicy, SchedulerSettings
from simulator.phases.compiled import StepTables
from simulator.phases.deployment import deploy
from simulator.phases.tabulate import compile_steps
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.workload import StageSpec, WorkloadSpec
from simulator.traffic.requests import Requests, make_requests
from simulator.traffic.workload_requests import build_requests
from simulator.units import KIB, MIB

# ru_maxrss counts KiB on Linux and bytes on macOS.
RSS_BYTES = 1.0 if sys.platform == "darwin" else KIB
CHAT_ISL, CHAT_OSL = 1155, 211
RATE_PER_S = 7.0
KV_BLOCKS = 30_000
INTERPRETED_REQUESTS = 2_000
"""So few that Python runs the loop itself in a process that has compiled nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One timed run: requests and engine steps per second of processor time, and the process's peak memory."""

    requests_per_s: float
    steps_per_s: float
    requests: int
    steps: int
    preemptions: int
    peak_bytes: float


def peak_bytes() -> float:
    """Largest resident memory of this process so far [bytes]."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_BYTES


def chat_requests(count: int, *, trace: str | None) -> Requests:
    """``count`` requests at a steady rate: a recorded trace repeated, or lengths drawn like its."""
    stage = StageSpec(rate_per_s=RATE_PER_S, duration_s=count / RATE_PER_S)
    if trace is not None:
        return build_requests(WorkloadSpec(arrival="trace", trace=trace, stages=(stage,)), block_size_tokens=16)
    drawn = WorkloadSpec(
        arrival="poisson", stages=(stage,), isl_tokens=CHAT_ISL, osl_tokens=CHAT_OSL, isl_cv=1.0, osl_cv=0.8
    )
    requests = build_requests(drawn, block_size_tokens=16)
    return make_requests(
        arrival_s=requests.arrival_s,
        prompt_tokens=np.minimum(requests.prompt_tokens, 12_000),
        output_tokens=np.minimum(requests.output_tokens, 2_000),
    )


def timed(tables: StepTables, requests: Requests, settings: SchedulerSettings) -> Speed:
    """Simulate once and measure processor time."""
    start = time.process_time()
    run = simulate_requests(tables, requests=requests, settings=settings)
    seconds = time.process_time() - start
    return Speed(
        requests_per_s=len(requests) / seconds,
        steps_per_s=run.steps / seconds,
        requests=len(requests),
        steps=run.steps,
        preemptions=int(run.records.preemptions.sum()),
        peak_bytes=peak_bytes(),
    )


def compile_seconds() -> tuple[float, float]:
    """Time until the loop is machine code in a fresh process: with an empty cache, and with a filled one [s]."""
    code = "from simulator.engine.events.warm_up import warm_up; print(warm_up())"
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "ROOFCAST_CACHE_DIR": folder}
        first, second = (
            float(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout)
            for _ in range(2)
        )
    return first, second


def main() -> None:
    """Print one line per measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--trace", default=None, help="a CSV in Azure's or JSON lines in Mooncake's format")
    chosen = parser.parse_args()
    cold_s, warm_s = compile_seconds()
    print(f"machine code: {cold_s:.2f} s with an empty cache, {warm_s:.2f} s with a filled one")
    deployment = deploy(
        model=load_model("llama-3.1-70b"),
        hardware=load_hardware("h100-sxm-80gb"),
        parallelism=ParallelismSpec(tp_size=4),
        engine=EngineSpec(max_num_seqs=256, max_num_batched_tokens=8192, max_model_len=16_384),
    )
    start = time.process_time()
    tables = compile_steps(deployment)
    print(f"step tables: {time.process_time() - start:.3f} s")
    settings = scheduler_settings(deployment, kv_blocks=KV_BLOCKS)
    reserving = replace(settings, policy=SchedulerPolicy.GUARANTEED_NO_EVICT)
    few = timed(tables, chat_requests(INTERPRETED_REQUESTS, trace=chosen.trace), settings)
    print(f"  in Python: {few.requests:>9,} requests: {few.requests_per_s:>9,.0f} requests/s")
    warm_up()
    for name, limits, count in (
        ("vllm", settings, chosen.requests // 10),
        ("vllm", settings, chosen.requests),
        ("any policy", reserving, chosen.requests // 2),
    ):
        speed = timed(tables, chat_requests(count, trace=chosen.trace), limits)
        print(
            f"{name:>10}: {speed.requests:>9,} requests, {speed.steps:>11,} steps, {speed.preemptions:,} preemptions:"
            f" {speed.requests_per_s:>9,.0f} requests/s, {speed.steps_per_s:>11,.0f} steps/s,"
            f" peak memory {speed.peak_bytes / MIB:,.0f} MiB"
        )


if __name__ == "__main__":
    main()
