"""Fit how much of the power range a busy device draws: ``python -m validation.fit.runs.power --data DIR [--every N]``.

Measured: the Splitwise A100 runs give, relative to TDP, an average that their long decode phase sets and a peak that
their prompt phase sets where it lasts longer than a sampling period. InferenceX's closed loops give joules per token:
times the tokens per second of the same deployment they are the watts of an accelerator; ML.ENERGY's steady states on
H100 give watts. Units work the shares of the time that are predicted, times the measured over the predicted speed.
Printed are errors with each model left out, of each source fitted on the others, and with the architecture left out.
Writes hardware_profiles/calibration/power.yaml.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.engine.uniform.record import UniformRun
from simulator.engine.uniform.steps import PhaseEstimate
from simulator.errors import RoofcastError
from simulator.specs.base import validate
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.hardware.calibration import PowerFit, PowerFits, PowerRange
from simulator.specs.question.scenario import ScenarioSpec
from validation.end_to_end.measured.inferencex import load_inferencex
from validation.end_to_end.measured.runs import MeasuredRun, read_rows
from validation.end_to_end.measured.sources import load_source, splitwise
from validation.writing import write_whole

Array = NDArray[np.float64]
DATE = "2026-11-27"
ENERGY, SPEED = "energy_per_output_token_j", "total_tokens_per_s"
POWER, STEADY_SPEED = "power_w", "steady_output_tokens_per_s"
POWER_NOTE = re.compile(r"peak_power=([0-9.]+) average_power=([0-9.]+)")
# Shorter prompt phases fall between two samples of the power counter.
SAMPLED_PREFILL_S = 0.25
# Longer prompts keep the average low for reasons that the notes do not give; longer outputs ended early.
MAX_ISL, OSL = 2048, 128
HIGHEST = 2.0
"""Of a share: what exceeds 1 together is cut off at TDP, where the clock falls before the units work all the time."""
ROUNDS, SMALLEST_MISS = 20, 0.02
"""Of the reweighting that turns squares into absolute deviations."""
LOOPS: Mapping[str, tuple[str, ...]] = {
    "hopper": ("h200-sxm-141gb", "h100-sxm-80gb"),
    "blackwell": ("b200-sxm",),
    "cdna4": ("mi355x",),
}
SOURCES = {
    "inferencex": "InferenceX (database dump of 2026-07-20), joules per output token times tokens/s of the same loops",
    "mlenergy": "ML.ENERGY v3 (2026-02), watts of steady states",
}
STANDS_FOR: Mapping[str, tuple[str, ...]] = {
    "hopper": ("hopper",),
    "blackwell": ("blackwell", "blackwell-ultra", "blackwell-rtx"),
    "cdna4": ("cdna4", "cdna3", "cdna2"),
}
"""Architectures that a fit serves: those whose watts nobody published take the nearest."""
RANGES: Mapping[str, str] = {
    "ampere": "a100-sxm-80gb",
    "hopper": "h200-sxm-141gb",
    "blackwell": "b200-sxm",
    "blackwell-ultra": "b200-sxm",
    "cdna3": "mi300x",
    "cdna4": "mi355x",
}
"""Whose range shares are of, by architecture: other parts of the same chip draw the same watts for the same work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Measured share of the range between idle and TDP, and the predicted shares of the units."""

    share: float
    tensor: float
    memory: float
    model: str = ""
    source: str = ""


def _draw(phase: PhaseEstimate, *, relative_power: float, hardware: AcceleratorSpec) -> Draw:
    span = hardware.tdp_w - hardware.idle_w
    share = min(1.0, (relative_power * hardware.tdp_w - hardware.idle_w) / span)
    estimate = phase.estimate
    return Draw(share=share, tensor=phase.mean(estimate.tensor_share), memory=phase.mean(estimate.memory_share))


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


def loop_draws(data: Path, *, hardware_names: tuple[str, ...], every: int) -> Iterator[Draw]:
    """One draw per closed loop whose joules or watts were recorded; what cannot be run is left out."""
    inferencex = (item.run for item in load_inferencex(data) if item.speculation == "none")
    runs = [
        run
        for run in (*inferencex, *load_source("mlenergy", data))
        if run.scenario["hardware"] in hardware_names
        and ({ENERGY, SPEED} <= run.measured.keys() or POWER in run.measured)
    ]
    for run in runs[::every]:
        try:
            result = answer(validate(ScenarioSpec, run.scenario, where=run.source))
        except RoofcastError:
            continue
        yield _loop_draw(run, result)


def _loop_draw(run: MeasuredRun, result: ScenarioResult) -> Draw:
    assert isinstance(result.run, UniformRun), "a closed loop is no served load"
    hardware, measured = result.deployment.hardware, run.measured
    if POWER in measured:
        assert result.steady_output_tokens_per_s is not None
        speed, watts = measured[STEADY_SPEED] / result.steady_output_tokens_per_s, measured[POWER]
    else:
        speed = measured[SPEED] / result.total_tokens_per_s
        watts = measured[ENERGY] * result.output_tokens_per_s * speed
    phases = [phase for phase in (result.run.prefill, result.run.decode) if phase is not None]
    total_s = sum(phase.total_s for phase in phases)
    tensor, memory = (
        speed * sum(phase.total_s * phase.mean(getattr(phase.estimate, name)) for phase in phases) / total_s
        for name in ("tensor_share", "memory_share")
    )
    devices = result.deployment.parallelism.devices * result.scenario.replicas
    share = (watts / devices - hardware.idle_w) / (hardware.tdp_w - hardware.idle_w)
    model = str(run.scenario["model"])
    return Draw(share=min(1.0, share), tensor=tensor, memory=memory, model=model, source=run.source)


def _features(known: Sequence[Draw]) -> tuple[Array, Array]:
    features = np.array([[1.0, draw.tensor, draw.memory] for draw in known])
    return features, np.array([draw.share for draw in known])


def absolute_deviations(known: Sequence[Draw]) -> Array:
    """Shares with the least relative deviations; those that would pass TDP count as TDP."""
    features, shares = _features(known)
    parameters = np.array([0.3, 1.0, 0.5])
    for _ in range(ROUNDS):
        predicted = features @ parameters
        clipped = (shares >= 1.0) & (predicted >= 1.0)
        miss = np.maximum(np.abs(predicted / shares - 1.0), SMALLEST_MISS)
        weights = np.where(clipped, 0.0, 1.0 / np.sqrt(miss) / shares)
        parameters = lsq_linear(features * weights[:, None], shares * weights, bounds=(0.0, HIGHEST)).x
    return parameters


def watt_errors(known: Sequence[Draw], parameters: Array, *, hardware: AcceleratorSpec) -> Array:
    """Relative errors of the predicted watts."""
    features, shares = _features(known)
    span = hardware.tdp_w - hardware.idle_w
    predicted = hardware.idle_w + span * np.minimum(1.0, features @ parameters)
    errors: Array = predicted / (hardware.idle_w + span * shares) - 1.0
    return errors


def fit_loops(data: Path, *, every: int) -> list[PowerFit]:
    """One fit an architecture, each scored with every model left out in turn."""
    known = {name: list(loop_draws(data, hardware_names=chips, every=every)) for name, chips in LOOPS.items()}
    found = []
    for name, draws_here in known.items():
        hardware = load_hardware(LOOPS[name][0])
        parameters = absolute_deviations(draws_here)
        held_out = {
            field: [
                watt_errors(
                    [draw for draw in draws_here if getattr(draw, field) == value],
                    absolute_deviations([draw for draw in draws_here if getattr(draw, field) != value]),
                    hardware=hardware,
                )
                for value in sorted({getattr(draw, field) for draw in draws_here})
            ]
            for field in ("model", "source")
            if len({getattr(draw, field) for draw in draws_here}) > 1
        }
        others = [draw for other, some in known.items() if other != name for draw in some]
        held_out["architecture"] = [watt_errors(draws_here, absolute_deviations(others), hardware=hardware)]
        fit_errors = watt_errors(draws_here, parameters, hardware=hardware)
        print(f"{name}: {parameters.round(3)} of {len(draws_here)} runs: fit {np.abs(fit_errors).mean():.1%}")
        for field, errors in held_out.items():
            means = ", ".join(f"{each.mean():+.1%}" for each in errors)
            print(f"  one {field} left out: {np.abs(np.concatenate(errors)).mean():.1%} ({means})")
        score = float(np.abs(np.concatenate(held_out["model"])).mean())
        sources = ", ".join(SOURCES[source] for source in sorted({draw.source for draw in draws_here}))
        found.append(
            _named(
                parameters,
                architectures=STANDS_FOR[name],
                fit_mape=float(np.abs(fit_errors).mean()),
                score_mape=score,
                points=len(draws_here),
                source=f"{sources}: {' and '.join(LOOPS[name])}; score: watts with each model left out",
            )
        )
    return found


def fit_power(known: list[Draw]) -> PowerFit:
    """Non-negative least squares of the shares; the error is that of the shares' own scale."""
    features, shares = _features(known)
    parameters = lsq_linear(features, shares, bounds=(0.0, HIGHEST)).x
    return _named(
        parameters,
        architectures=("ampere",),
        fit_mape=_share_error(features, shares, parameters),
        points=len(known),
        source="Splitwise A100 profile (splitwise-sim data/perf_model.csv, commit 8f99e7dc): average and peak power",
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
    chips = {name: load_hardware(RANGES[name]) for name in architectures if name in RANGES}
    ranges = {
        name: PowerRange(compute_units=chip.compute_units, watts=chip.tdp_w - chip.idle_w)
        for name, chip in chips.items()
    }
    return PowerFit(
        architectures=architectures,
        ranges=ranges,
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
    parser.add_argument("--data", type=Path, required=True, help="folder that holds e2e/ and today/")
    parser.add_argument("--every", type=int, default=1, help="every n-th closed loop")
    parser.add_argument("--output", type=Path, default=Path("hardware_profiles/calibration/power.yaml"))
    arguments = parser.parse_args()
    splitwise_rows = read_rows(arguments.data / "e2e" / "splitwise_a100.csv")
    fits = PowerFits(fits=(fit_power(list(draws(splitwise_rows))), *fit_loops(arguments.data, every=arguments.every)))
    write_whole(arguments.output, yaml.safe_dump(fits.model_dump(mode="json"), sort_keys=False))
    for fit in fits.fits:
        print(fit)


if __name__ == "__main__":
    main()
