"""Random deployments, mixes and loads, each served by the steady state and by the event simulation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.engine.lanes.load_curve import lane_curve, lanes, saturation
from simulator.engine.lanes.steady_state import steady_state
from simulator.engine.runs.rate_simulation import RatePoint, simulate_rate
from simulator.engine.runs.serving import ServedDeployment
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import memory_plan
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.plan_values import LatencyMetric
from simulator.traffic.lengths import LengthDistribution, RequestMix
from simulator.traffic.workload_requests import requests_of_mix

MODELS = (("llama-3.1-8b", (1, 2)), ("llama-3.1-70b", (4, 8)), ("qwen3-32b", (2, 4)), ("mixtral-8x7b", (2, 4)))
HARDWARE = ("h100", "a100", "h200", "l40s", "b200")
LOADS = (0.1, 0.3, 0.5, 0.6, 0.7)
BUDGETS = {"tensorrt-llm": (32_768, 65_536)}
"""Tokens of a step, else 2,048 or 8,192: TensorRT-LLM answers no longer prompt, which the closed form ignores."""
LONGEST_PROMPT_OVER_ANSWER = 10
MEANS = ("ttft_mean", "tpot_mean", "e2e_mean", "batch")
PERCENTILES = ("ttft_p95", "tpot_p95", "e2e_p95")


@dataclass(frozen=True)
class Agreement:
    """Steady state over event simulation, less one, in the order of MEANS and PERCENTILES."""

    label: str
    errors: np.ndarray


def _drawn(
    rng: np.random.Generator, *, arrival_cv: float, engine_name: str
) -> tuple[Deployment, RequestMix, float, str]:
    """A question from the grid: prompts up to ten times as long as answers, below saturation."""
    model, degrees = MODELS[rng.integers(len(MODELS))]
    hardware, tp_size = HARDWARE[rng.integers(len(HARDWARE))], int(rng.choice(degrees))
    osl = float(np.exp(rng.uniform(np.log(32), np.log(600))))
    isl = float(np.exp(rng.uniform(np.log(64), np.log(min(LONGEST_PROMPT_OVER_ANSWER * osl, 4000)))))
    isl_cv, osl_cv, load = (float(rng.choice(values)) for values in ((0, 0.5, 1.0), (0, 0.5, 1.0), LOADS))
    engine = EngineSpec(
        name=engine_name,
        max_num_batched_tokens=int(rng.choice(BUDGETS.get(engine_name, (2048, 8192)))),
        max_num_seqs=int(rng.choice((64, 128, 256))),
    )
    deployment = deploy(
        model=load_model(model),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(tp_size=tp_size),
        engine=engine,
    )
    mix = RequestMix(
        isl=LengthDistribution(mean_tokens=isl, cv=isl_cv),
        osl=LengthDistribution(mean_tokens=osl, cv=osl_cv),
        arrival_cv=arrival_cv,
    )
    label = f"{model} {hardware} tp{tp_size} isl {isl:.0f}/{isl_cv} osl {osl:.0f}/{osl_cv} load {load}"
    return deployment, mix, load, label


def _simulated(deployment: Deployment, mix: RequestMix, *, rate_per_s: float, sequences: float) -> RatePoint:
    count = int(min(max(60 * sequences, 4000), 12_000))
    samples = [requests_of_mix(mix, rate_per_s=1.0, count=count, seed=seed) for seed in range(2)]
    return simulate_rate(ServedDeployment(deployment=deployment), samples=samples, rate_per_s=rate_per_s, objectives=())


def compare(rng: np.random.Generator, *, arrival_cv: float, engine_name: str) -> Agreement | None:
    """One case, or None where the drawn model does not fit the drawn device."""
    deployment, mix, load, label = _drawn(rng, arrival_cv=arrival_cv, engine_name=engine_name)
    if not memory_plan(deployment).fits:
        return None
    return agreement(deployment, mix, load=load, label=label)


def agreement(deployment: Deployment, mix: RequestMix, *, load: float, label: str) -> Agreement | None:
    """At a share of saturation; None for a lane of fewer than four slots."""
    curve = lane_curve(deployment, mix=mix)
    limit = saturation(curve)
    if curve.slots < 4:
        return None
    rate = load * limit.rate_per_s
    state = steady_state(curve, rates_per_s=rate)
    point = _simulated(deployment, mix, rate_per_s=rate * lanes(deployment), sequences=load * limit.sequences)
    latencies = (point.ttft, point.tpot, point.e2e)
    decoding = rate * (point.e2e.mean_s - point.ttft.mean_s)
    steady = [state.ttft_mean_s, state.tpot_mean_s, state.e2e_mean_s, state.mean_sequences]
    steady += [state.percentile_s(metric, 95) for metric in LatencyMetric]
    seen = [*(item.mean_s for item in latencies), decoding, *(item.p95_s for item in latencies)]
    errors = np.array([float(value[0]) / true - 1 for value, true in zip(steady, seen, strict=True)])
    return Agreement(label=label, errors=errors)


def compare_many(*, seed: int, cases: int, arrival_cv: float = 1.0, engine_name: str = "vllm") -> list[Agreement]:
    """That many cases that fit; Poisson arrivals, or gamma gaps of another variability."""
    rng = np.random.default_rng(seed)
    found: list[Agreement] = []
    while len(found) < cases:
        case = compare(rng, arrival_cv=arrival_cv, engine_name=engine_name)
        if case is not None:
            found.append(case)
    return found
