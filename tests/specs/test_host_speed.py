"""Hosts of other years: an engine's own times go with the speed of a thread, nothing else does."""

import pytest

from simulator.phases.deployment import Deployment, deploy
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec, load_engine
from simulator.specs.engine.fits import DEVICE_TIMES, EngineOverheads
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model


def replica(hardware: str, engine: str) -> Deployment:
    return deploy(
        model=load_model("llama-2-70b"),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(tp_size=8),
        engine=EngineSpec(name=engine),
    )


def test_times_are_inverse_to_the_speed_and_bytes_stay() -> None:
    before = load_engine("vllm").overheads
    after = before.on_host(0.5)
    for name in EngineOverheads.model_fields:
        ratio = 2.0 if name.endswith("_s") and name not in DEVICE_TIMES else 0.5 if name == "host_speed" else 1.0
        assert getattr(after, name) == pytest.approx(ratio * getattr(before, name))
    assert after.on_host(1.0) == before


def test_the_host_on_which_an_engine_was_measured_changes_nothing() -> None:
    profile = load_engine("torch-eager")
    assert replica("a100", "torch-eager").engine.overheads == profile.overheads
    assert replica("h100", "vllm").engine.overheads == load_engine("vllm").overheads


def test_eager_kernels_are_issued_faster_by_the_hosts_of_h100_servers() -> None:
    """40 ms against 28 ms a token, Llama 2 70B on DGX-A100 and DGX-H100 [Patel2024a]."""
    old, new = replica("a100", "torch-eager"), replica("h100", "torch-eager")
    assert new.engine.overheads.eager_launch_s == pytest.approx(old.engine.overheads.eager_launch_s * 28 / 40)
    assert new.kernels.traits.collective_lag_s == pytest.approx(old.kernels.traits.collective_lag_s * 28 / 40)
