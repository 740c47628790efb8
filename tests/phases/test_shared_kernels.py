"""Replicas on one accelerator share their kernels; what the kernels depend on tells them apart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.kernels.sustained import with_sustained_rates
from simulator.kernels.timing import Timing
from simulator.operators.work import Work, decode_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.step import estimate_step, stage_rows
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import default_server_for, load_hardware
from simulator.specs.model.loading import load_model


def deployment(
    hardware: str = "h100", *, tp: int = 1, pp: int = 1, engine: str = "vllm", profiles: str | None = None
) -> Deployment:
    return deploy(
        model=load_model("llama-3.1-70b"),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(tp_size=tp, pp_size=pp),
        engine=EngineSpec(name=engine),
        profiles=profiles,
    )


def kernels(hardware: str = "h100", *, tp: int = 1, engine: str = "vllm", profiles: str | None = None) -> KernelLibrary:
    return deployment(hardware, tp=tp, engine=engine, profiles=profiles).kernels


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


def test_stages_of_a_pipeline_share_the_rows_of_as_many_equal_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    deep, step = deployment(pp=4), decode_step(sequences=[1, 64], context=1000)
    rows = stage_rows(deep, step, stages=range(4))
    alone = [work for stage in range(4) for _, work in stage_rows(deep, step, stages=(stage,))]
    assert [(work.name, work.count) for _, work in rows] == [(work.name, work.count) for work in alone]
    priced: list[int] = []
    price = KernelLibrary.price_all

    def counted(self: KernelLibrary, works: Sequence[Work]) -> tuple[Timing, ...]:
        priced.append(len(works))
        return price(self, works)

    monkeypatch.setattr(KernelLibrary, "price_all", counted)
    together = estimate_step(deep, step)
    assert priced[0] == len({id(work) for _, work in rows}) < len(rows) / 2
    assert together.step_s - together.host_s == pytest.approx(sum(together.stage_s))
    assert together.stage_s[1] == pytest.approx(together.stage_s[2])
