"""Error of one accelerator's all-reduce fits on another's link: python -m validation.fit.links.collective_transfer.

The figures behind ``LINK_LOG_SIGMA`` in simulator/kernels/transfer.py: fits of the row priced on the link of the
column, against the column's measurements.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from simulator.kernels.collectives.network import collective_timing
from simulator.operators.work import Collective, CollectiveShape
from simulator.specs.base import read_yaml, validate
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import CalibrationSpec, KernelFit
from simulator.specs.profiles import profile_root
from validation.fit.links.collectives import log_sigma_of
from validation.silicon.collective_tables import engine_tables
from validation.silicon.tables import tables_root

ACCELERATORS = ("a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm", "b300-sxm", "l40s", "rtx-pro-6000")


def _fits(hardware: str, *, library: str) -> tuple[KernelFit, ...]:
    path = profile_root("hardware_profiles") / "calibration" / f"{hardware}--{library}.collective.yaml"
    return validate(CalibrationSpec, read_yaml(path), where=str(path)).fits


def transfer_log_sigma(rows: pd.DataFrame, *, hardware: str, fits: Sequence[KernelFit]) -> float:
    """Sigma of log(measured / predicted) with ``fits`` on the link of ``hardware``."""
    spec = load_hardware(hardware)
    ratios = []
    for devices, group in rows.groupby("participants"):
        shape = CollectiveShape(
            operation=Collective.ALL_REDUCE,
            message_bytes=group["message_bytes"].to_numpy(float),
            participants=int(str(devices)),
        )
        predicted = collective_timing(shape, hardware=spec, fits=fits).seconds
        ratios.append(np.log(group["seconds"].to_numpy() / predicted))
    return log_sigma_of(np.concatenate(ratios))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the matrix."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--library", default="vllm")
    options = parser.parse_args(arguments)
    root = tables_root(options.tables)
    measured = {name: engine_tables(root, hardware=name, library=options.library)[0].rows for name in ACCELERATORS}
    for source in ACCELERATORS:
        fits = _fits(source, library=options.library)
        row = [transfer_log_sigma(measured[target], hardware=target, fits=fits) for target in ACCELERATORS]
        print(source, *(f"{sigma:.2f}" for sigma in row))


if __name__ == "__main__":
    main()
