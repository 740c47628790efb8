"""Replicas on one accelerator share their kernels; what the kernels depend on tells them apart."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.kernels.sustained import with_sustained_rates
from simulator.phases.deployment import deploy
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import default_server_for, load_hardware
from simulator.specs.model.loading import load_model


def kernels(hardware: str = "h100", *, tp: int = 1, engine: str = "vllm", profiles: str | None = None) -> KernelLibrary:
    return deploy(
        model=load_model("llama-3.1-70b"),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(tp_size=tp),
        engine=EngineSpec(name=engine),
        profiles=profiles,
    ).kernels


def test_they_are_chosen_once_for_all_degrees() -> None:
    shared = kernels()
    assert shared is kernels(tp=8)
    chosen = with_sustained_rates(kernel_library(load_hardware("h100"), library="vllm"))
    assert shared == replace(chosen, traits=shared.traits)


def test_engine_network_and_accelerator_tell_them_apart() -> None:
    assert kernels(engine="sglang").library == "sglang"
    server, beyond = default_server_for("h100"), kernels(tp=16).beyond
    assert beyond is not None
    assert beyond.network == server.network == server.nic
    assert kernels(tp=8).beyond is None
    assert kernels("a100").hardware.name != kernels().hardware.name


def test_calibrations_that_come_retire_them(tmp_path: Path) -> None:
    (tmp_path / "calibration").mkdir()
    before = kernels(profiles=str(tmp_path))
    assert before is kernels(profiles=str(tmp_path))
    os.utime(tmp_path / "calibration", ns=(1, 1))
    assert kernels(profiles=str(tmp_path)) is not before
