"""What a run was measured on, and with which libraries, as far as the machine tells."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import torch

from validation.measure.bench import Bench
from validation.measure.power import Nvml, meter_for
from validation.measure.table import Machine


def uuid_of(bench: Bench) -> str | None:
    """The GPU's, by which the driver's library finds it; None on a CPU."""
    if not bench.is_cuda:
        return None
    return str(getattr(torch.cuda.get_device_properties(bench.device), "uuid", "")) or None


def _processor() -> str:
    """The CPU's name as the system tells it, with the threads that torch uses."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name} ({torch.get_num_threads()} threads)"


def _commit() -> str:
    """Of the checkout that this harness runs from; empty in a plain copy of it."""
    command = ("git", "rev-parse", "--short", "HEAD")
    try:
        found = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def _cublas() -> str:
    """The version of the wheel that torch multiplies with; empty where it was built against the system's."""
    from importlib.metadata import PackageNotFoundError, version

    for name in ("nvidia-cublas", "nvidia-cublas-cu13", "nvidia-cublas-cu12"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""


def _power_limit_w(nvml: Nvml) -> float | None:
    try:
        return nvml.power_limit_w()
    except OSError:
        return None


def machine_of(bench: Bench, *, seed: int) -> Machine:
    """Device, driver, libraries, power limit, the harness's commit and today's date."""
    today = datetime.now(UTC).date().isoformat()
    if not bench.is_cuda:
        return Machine(
            device=_processor(),
            driver=platform.release(),
            torch_version=torch.__version__,
            date=today,
            commit=_commit(),
            seed=seed,
        )
    nvml = meter_for(uuid_of(bench)).nvml
    version = nvml.driver() if nvml is not None else "unknown"
    return Machine(
        device=torch.cuda.get_device_name(bench.device),
        driver=f"{version} (CUDA {torch.version.cuda or torch.version.hip})",
        torch_version=torch.__version__,
        date=today,
        cudnn=str(torch.backends.cudnn.version() or ""),
        cublas=_cublas(),
        power_limit_w=None if nvml is None else _power_limit_w(nvml),
        commit=_commit(),
        seed=seed,
    )
