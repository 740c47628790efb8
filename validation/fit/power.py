"""Fit how much of the power range a busy device draws: ``python -m validation.fit.power --data DIR``.

Measured: the Splitwise A100 runs give, relative to TDP, an average that their long decode phase sets and a peak that
their prompt phase sets where it lasts longer than a sampling period. Writes hardware_profiles/calibration/power.yaml.
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

from simulator.engine.answers import answer
from simulator.engine.static_batch import PhaseEstimate
from simulator.specs.documents import validate
from simulator.specs.hardware import AcceleratorSpec
from simulator.specs.power import PowerFit
from simulator.specs.scenario import ScenarioSpec
from validation.end_to_end.runs import read_rows
from validation.end_to_end.sources import splitwise

Array = NDArray[np.float64]
DATE = "2026-11-21"
POWER_NOTE = re.compile(r"peak_power=([0-9.]+) average_power=([0-9.]+)")
# Shorter prompt phases fall between two samples of the power counter.
SAMPLED_PREFILL_S = 0.25
# Longer prompts keep the average low for reasons that the notes do not give; longer outputs ended early.
MAX_ISL, OSL = 2048, 128


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
    base, compute, memory = lsq_linear(features, shares, bounds=(0.0, 1.5)).x
    predicted = np.minimum(1.0, features @ np.array([base, compute, memory]))
    return PowerFit(
        base=round(float(base), 4),
        compute=round(float(compute), 4),
        memory=round(float(memory), 4),
        fit_mape=round(float(np.mean(np.abs(predicted / shares - 1))), 4),
        points=len(known),
        date=DATE,
        source="Splitwise A100 profile (splitwise-sim data/perf_model.csv, commit 8f99e7dc): average and peak power",
    )


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds e2e/")
    parser.add_argument("--output", type=Path, default=Path("hardware_profiles/calibration/power.yaml"))
    arguments = parser.parse_args()
    fit = fit_power(list(draws(read_rows(arguments.data / "e2e" / "splitwise_a100.csv"))))
    arguments.output.write_text(yaml.safe_dump(fit.model_dump(), sort_keys=False), encoding="utf-8")
    print(fit)


if __name__ == "__main__":
    main()
