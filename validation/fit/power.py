"""Fit how much of the power range a busy device draws: ``python -m validation.fit.power --data DIR --tables DIR``.

Measured: the Splitwise A100 runs give, relative to TDP, an average that their long decode phase sets and a peak that
their prompt phase sets where it lasts longer than a sampling period. On B200, watts stand beside vLLM's attention
kernels, one head layout in five held out. Writes hardware_profiles/calibration/power.yaml.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from simulator.engine.runs.answers import answer
from simulator.engine.uniform.steps import PhaseEstimate
from simulator.specs.documents import validate
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.power import PowerFit, PowerFits
from simulator.specs.loading import load_hardware
from simulator.specs.question.scenario import ScenarioSpec
from validation.end_to_end.runs import read_rows
from validation.end_to_end.sources import splitwise
from validation.fit.power_rows import VERSION, PowerRows, decode_power, prefill_power
from validation.silicon.tables import SOURCE, tables_root
from validation.writing import write_whole

Array = NDArray[np.float64]
DATE = "2026-11-21"
POWER_NOTE = re.compile(r"peak_power=([0-9.]+) average_power=([0-9.]+)")
# Shorter prompt phases fall between two samples of the power counter.
SAMPLED_PREFILL_S = 0.25
# Longer prompts keep the average low for reasons that the notes do not give; longer outputs ended early.
MAX_ISL, OSL = 2048, 128
HIGHEST = 1.5
"""Of a share: what exceeds 1 together is cut off at TDP."""
DRAM_J_PER_BYTE = 3.92e-12 * 8
"""Of HBM2, the array and its interface alone [OConnor2017]: no fit may put a byte below it."""
ROUNDS, SMALLEST_MISS = 20, 0.02
"""Of the reweighting that turns squares into absolute deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Measured share of the range between idle and TDP, and the predicted MFU and MBU of the phase."""

    share: float
    mfu: float
    mbu: float


def _draw(phase: PhaseEstimate, *, relative_power: float, hardware: AcceleratorSpec) -> Draw:
    span = hardware.tdp_w - hardware.idle_w
    share = min(1.0, (relative_power * hardware.tdp_w - hardware.idle_w) / span)
    return Draw(share=share, mfu=phase.mean(phase.estimate.mfu), mbu=phase.mean(phase.estimate.mbu))


def draws(rows: list[dict[str, str]]) -> Iterator[Draw]:
    """One draw per phase of each run whose power was recorded (0 stands for missing)."""
    for row in rows:
        found = POWER_NOTE.search(row["notes"])
        known = found is not None and float(found.group(2)) > 0
        if row["metric"] != "ttft_ms" or not known or int(row["osl"]) != OSL or int(row["isl"]) > MAX_ISL:
            continue
        assert found is not None
        (run,) = splitwise([row])
        result = answer(validate(ScenarioSpec, run.scenario, where=run.source))
        hardware, decode = result.deployment.hardware, result.run.decode
        if decode is not None:
            yield _draw(decode, relative_power=float(found.group(2)), hardware=hardware)
        if run.measured["ttft_s"] >= SAMPLED_PREFILL_S:
            yield _draw(result.run.prefill, relative_power=float(found.group(1)), hardware=hardware)


def fit_power(known: list[Draw]) -> PowerFit:
    """Non-negative least squares of the shares; the error is that of the shares' own scale."""
    features = np.array([[1.0, draw.mfu, draw.mbu] for draw in known])
    shares = np.array([draw.share for draw in known])
    parameters = lsq_linear(features, shares, bounds=(0.0, HIGHEST)).x
    return _named(
        parameters,
        architectures=("ampere",),
        fit_mape=_share_error(features, shares, parameters),
        points=len(known),
        source="Splitwise A100 profile (splitwise-sim data/perf_model.csv, commit 8f99e7dc): average and peak power",
    )


def fit_kernels(phases: tuple[PowerRows, ...], *, hardware: AcceleratorSpec) -> PowerFit:
    """Least absolute deviations over kernels, each phase weighing the same; scored on the head layouts held out.

    The counter lags behind short kernels and hides what bytes cost: their share is kept above the DRAM's own.
    """
    least = (0.0, 0.0, DRAM_J_PER_BYTE * hardware.memory_bytes_per_s / (hardware.tdp_w - hardware.idle_w))
    seen = np.concatenate([rows.features[~rows.held_out] for rows in phases])
    shares = np.concatenate([rows.share[~rows.held_out] for rows in phases])
    each = np.concatenate([np.full((~rows.held_out).sum(), 1 / (~rows.held_out).sum()) for rows in phases])
    parameters = np.array([0.5, 0.5, 0.5])
    for _ in range(ROUNDS):
        miss = np.maximum(np.abs(seen @ parameters - shares), SMALLEST_MISS)
        weights = np.sqrt(each / miss)
        parameters = lsq_linear(seen * weights[:, None], shares * weights, bounds=(least, HIGHEST)).x
    held = [(rows.features[rows.held_out], rows.share[rows.held_out]) for rows in phases]
    return _named(
        parameters,
        architectures=("blackwell", "blackwell-ultra", "blackwell-rtx"),
        fit_mape=_share_error(seen, shares, parameters),
        score_mape=float(np.mean([_share_error(features, known, parameters) for features, known in held])),
        points=len(shares),
        source=f"B200 attention kernels of vLLM {VERSION} with measured watts ({SOURCE})",
    )


def _share_error(features: Array, shares: Array, parameters: Array) -> float:
    predicted = np.minimum(1.0, features @ parameters)
    return float(np.mean(np.abs(predicted / shares - 1)))


def _named(
    parameters: Array,
    *,
    architectures: tuple[str, ...],
    fit_mape: float,
    points: int,
    source: str,
    score_mape: float | None = None,
) -> PowerFit:
    base, compute, memory = (round(float(value), 4) for value in parameters)
    return PowerFit(
        architectures=architectures,
        base=base,
        compute=compute,
        memory=memory,
        fit_mape=round(fit_mape, 4),
        score_mape=None if score_mape is None else round(score_mape, 4),
        points=points,
        date=DATE,
        source=source,
    )


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds e2e/")
    parser.add_argument("--tables", type=Path, help="folder of the silicon tables (default: the installed package's)")
    parser.add_argument("--output", type=Path, default=Path("hardware_profiles/calibration/power.yaml"))
    arguments = parser.parse_args()
    root, b200 = tables_root(arguments.tables), load_hardware("b200-sxm")
    fits = PowerFits(
        fits=(
            fit_power(list(draws(read_rows(arguments.data / "e2e" / "splitwise_a100.csv")))),
            fit_kernels((prefill_power(root, hardware=b200), decode_power(root, hardware=b200)), hardware=b200),
        )
    )
    write_whole(arguments.output, yaml.safe_dump(fits.model_dump(mode="json"), sort_keys=False))
    for fit in fits.fits:
        print(fit)


if __name__ == "__main__":
    main()
