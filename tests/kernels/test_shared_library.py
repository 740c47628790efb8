"""Replicas on one accelerator share their kernels; what the kernels depend on tells them apart."""

from __future__ import annotations

import os
from pathlib import Path

from simulator.kernels.library import kernel_library, shared_library
from simulator.specs.loading import default_server_for, load_hardware


def test_it_is_the_kernel_library_made_once() -> None:
    hardware = load_hardware("h100")
    shared = shared_library(hardware, library="vllm")
    assert shared is shared_library(hardware, library="vllm")
    assert shared == kernel_library(hardware, library="vllm")


def test_library_network_and_accelerator_tell_them_apart() -> None:
    hardware = load_hardware("h100")
    server = default_server_for("h100")
    assert shared_library(hardware, library="sglang").library == "sglang"
    beyond = shared_library(hardware, library="vllm", server=server).beyond
    assert beyond is not None
    assert beyond.network == server.network == server.nic
    assert shared_library(hardware, library="vllm").beyond is None
    assert shared_library(load_hardware("a100"), library="vllm").hardware.name != hardware.name


def test_calibrations_that_come_retire_it(tmp_path: Path) -> None:
    (tmp_path / "calibration").mkdir()
    hardware = load_hardware("h100")
    before = shared_library(hardware, library="vllm", profiles=str(tmp_path))
    os.utime(tmp_path / "calibration", ns=(1, 1))
    assert shared_library(hardware, library="vllm", profiles=str(tmp_path)) is not before
