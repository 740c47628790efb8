"""The closed form of the planner, a lane's rate at so many decoding sequences, against closed loops event by event."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.engine.lanes.load_curve import lane_curve
from simulator.engine.uniform.loop_requests import LoopLengths
from simulator.engine.uniform.loops import closed_loop
from simulator.phases.deployment import Deployment, deploy
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.traffic.lengths import LengthDistribution, RequestMix

# Where prompts have steps of their own, how many share one is known as a mean alone.
MIXED, PROMPTS_ALONE = 0.045, 0.05


def replica(model: str, hardware: str, tp_size: int, engine: str) -> Deployment:
    return deploy(
        model=load_model(model),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(tp_size=tp_size),
        engine=EngineSpec(name=engine, max_model_len=16384),
    )


@pytest.mark.parametrize(
    ("model", "hardware", "tp_size", "engine", "isl", "osl", "within"),
    [
        ("llama-3.1-8b", "h100", 1, "vllm", 1000, 200, MIXED),
        ("llama-3.1-70b", "h200", 4, "vllm", 8000, 1000, MIXED),
        ("mixtral-8x7b", "h200", 2, "vllm", 1000, 200, MIXED),
        ("llama-3.1-70b", "h100", 4, "trtllm", 1000, 1000, MIXED),
        ("llama-3.1-8b", "h100", 1, "sglang", 1000, 200, PROMPTS_ALONE),
    ],
)
def test_the_closed_form_is_the_steady_rate_of_a_loop(
    model: str, hardware: str, tp_size: int, engine: str, isl: int, osl: int, within: float
) -> None:
    deployment, ratio = replica(model, hardware, tp_size, engine), 0.8
    share = (1 + ratio) / 2
    mix = RequestMix(isl=LengthDistribution(mean_tokens=share * isl), osl=LengthDistribution(mean_tokens=share * osl))
    curve = lane_curve(deployment, mix=mix)
    for clients in (4, 16, 64, 128):
        run = closed_loop(
            deployment,
            concurrency=clients,
            lengths=LoopLengths(isl_tokens=isl, osl_tokens=osl, range_ratio=ratio),
            num_requests=12 * clients,
        )
        assert run.spread is not None
        assert run.steady_requests_per_s is not None
        decoding = clients - run.steady_requests_per_s * run.spread.ttft.p50_s
        rate = float(np.interp(decoding, np.arange(1, curve.slots + 1), curve.rates_per_s))
        assert rate == pytest.approx(run.steady_requests_per_s, rel=within)
