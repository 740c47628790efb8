"""Fit what an engine adds to a step on another vendor's accelerators, to closed loops that InferenceX measured there.

``python -m validation.fit.vendor_engines --data DIR [--vendor amd] [--mode mtp] [--every N] [--write]``: Gauss-Newton
on the log of TPOT and throughput, outliers weighing less, over aggregated runs without speculation. Three numbers an
engine: device time between kernels, host time per running sequence, and the share of the tuned kernels' rate; what
drawing a token from a nucleus takes is the engine's own number elsewhere. Printed
beside the errors of all runs are those of every model (of every accelerator where an engine ran but one model, of every
weight format where it ran on one accelerator), under numbers that were fitted without it. Where speculation came to the
vendor with a later release of the engine, ``--mode mtp`` fits that release to the runs that speculate. ``--write`` puts
the numbers into the vendor's part of hardware_profiles/calibration/engines/.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulator.engine.runs.answers import run_of
from simulator.engine.runs.scenario_setup import ServeOptions, deployment_of
from simulator.engine.runs.served_run import ServedRun
from simulator.errors import RoofcastError
from simulator.kernels.engine_traits import row_kind
from simulator.kernels.timing import DEVIATE, LEVEL
from simulator.operators.step_shape import decode_step
from simulator.phases.deployment import Deployment
from simulator.phases.step import estimate_step
from simulator.specs.documents import validate
from simulator.specs.engine.engine import load_engine
from simulator.specs.loading import load_hardware
from simulator.specs.question.scenario import ScenarioSpec
from validation.end_to_end.inferencex import MODES, TodayRun, load_inferencex
from validation.fit.files import write_vendor_fits
from validation.fit.robust import robust_step

Array = NDArray[np.float64]
METRICS = ("tpot_p50_s", "total_tokens_per_s")
ROUNDS = 2
OUTLIER = 0.1
"""Errors beyond this count linearly [Huber1964]: some rows are odd in ways that no engine constant explains."""
SCALES: Mapping[str, float] = {"launch_gap_s": 2e-6, "sequence_s": 1e-5, "slowness": 0.05}
LOWEST: Mapping[str, float] = {"launch_gap_s": 0.0, "sequence_s": 0.0, "slowness": 1.0}
"""``slowness`` is the inverse of ``tuned_share``: times are linear in it. ``sequence_s`` is host time per sequence, of
every step or, in runs that speculate, of their rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A measured run with its replica, built once."""

    today: TodayRun
    scenario: ScenarioSpec
    deployment: Deployment


def later_release(engine: str, *, vendor: str) -> str | None:
    """The release that brought speculation to the vendor's accelerators, where the engine ran there before."""
    return load_engine(engine).first_releases.get(vendor, {}).get("speculation")


def cases_of(
    data: Path, *, vendor: str, every: int, mode: str, engines: Sequence[str] | None = None
) -> dict[str, list[Case]]:
    """Every n-th run on the vendor's accelerators, by engine; runs that are refused are left out, and runs that
    speculate on the release that others ran on."""
    found: dict[str, list[Case]] = {}
    runs = [
        item
        for item in load_inferencex(data)
        if item.mode == mode and (mode == "aggregated" or later_release(item.engine, vendor=vendor) is not None)
    ]
    own = [item for item in runs if load_hardware(str(item.run.scenario["hardware"])).vendor == vendor]
    for item in own[::every]:
        if engines and item.engine not in engines:
            continue
        scenario = validate(ScenarioSpec, item.run.scenario, where=item.run.source)
        try:
            deployment = deployment_of(scenario)
            run_of(scenario, deployment, options=ServeOptions())
        except RoofcastError:
            continue
        found.setdefault(item.engine, []).append(Case(today=item, scenario=scenario, deployment=deployment))
    return found


def _sequence_field(speculates: bool) -> str:
    return "speculation_sequence_s" if speculates else "step_per_sequence_s"


def overheads_of(values: Mapping[str, float], speculates: bool) -> dict[str, float]:
    """Fitted numbers under the names that an engine's overheads have."""
    return {
        "launch_gap_s": values["launch_gap_s"],
        "tuned_share": 1.0 / values["slowness"],
        _sequence_field(speculates): values["sequence_s"],
    }


SAMPLING = ("sampled_logit_s", "sampled_bytes_per_logit")


def sampling_elsewhere(engine: str) -> dict[str, float]:
    """What drawing tokens takes on the accelerators that the engine's own numbers are of: launches and short kernels,
    which no device shortens."""
    elsewhere = load_engine(engine).overheads
    return {name: float(getattr(elsewhere, name)) for name in SAMPLING}


def _with(deployment: Deployment, values: Mapping[str, float]) -> Deployment:
    """The replica with these numbers on its own host."""
    found = overheads_of(values, deployment.speculation is not None) | sampling_elsewhere(deployment.engine.name)
    overheads = deployment.engine.overheads.model_copy(update=found)
    traits = replace(deployment.kernels.traits, launch_gap_s=overheads.launch_gap_s, tuned_share=overheads.tuned_share)
    engine = replace(deployment.engine, overheads=overheads)
    return replace(deployment, engine=engine, kernels=replace(deployment.kernels, traits=traits))


def whole_runs(cases: Sequence[Case]) -> dict[str, tuple[str, ...]]:
    """Kinds of operator rows in the runs' steps, by architecture."""
    kinds: dict[str, set[str]] = {}
    for case in cases:
        rows = estimate_step(case.deployment, decode_step(sequences=1, context=1)).rows
        kinds.setdefault(case.deployment.hardware.architecture, set()).update(row_kind(row.work.shape) for row in rows)
    return {architecture: tuple(sorted(found)) for architecture, found in sorted(kinds.items())}


def own_errors(cases: Sequence[Case]) -> Array:
    """`log_errors` under the numbers that the engines have."""
    return np.concatenate([log_errors([case], _now(case.deployment)) for case in cases])


def _now(deployment: Deployment) -> dict[str, float]:
    overheads = deployment.engine.overheads
    sequence_s = getattr(overheads, _sequence_field(deployment.speculation is not None))
    return {
        "launch_gap_s": overheads.launch_gap_s,
        "sequence_s": float(sequence_s),
        "slowness": 1.0 / overheads.tuned_share,
    }


def log_errors(cases: Sequence[Case], values: Mapping[str, float]) -> Array:
    """log(predicted / measured) of every metric of every case, shape (cases, metrics)."""
    errors = []
    for case in cases:
        run = run_of(case.scenario, _with(case.deployment, values), options=ServeOptions())
        assert not isinstance(run, ServedRun), "a closed loop is no served load"
        assert run.spread is not None, "a closed loop knows its requests"
        assert run.spread.tpot is not None, "every answer has several tokens"
        ranks = case.scenario.dp_size / run.ranks
        predicted = (run.spread.tpot.p50_s, run.total_tokens_per_s * ranks)
        measured = [case.today.run.measured[name] for name in METRICS]
        errors.append([float(np.log(ours / theirs)) for ours, theirs in zip(predicted, measured, strict=True)])
    return np.array(errors)


def _moved(here: Array, slopes: Array, values: Mapping[str, float]) -> dict[str, float]:
    """The numbers that make the linearised errors smallest."""
    low = np.array([(LOWEST[name] - values[name]) / scale for name, scale in SCALES.items()])
    step = robust_step(here.ravel(), slopes.reshape(-1, len(SCALES)), low=low, outlier=OUTLIER)
    return {
        name: max(values[name] + move * scale, LOWEST[name])
        for (name, scale), move in zip(SCALES.items(), step, strict=True)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Numbers of all runs; the errors of every run under them, and under those that its group had no part in."""

    values: Mapping[str, float]
    seen: Array
    held_out: Array
    left_out: str


def fit(cases: Sequence[Case]) -> Fitted:
    """Fit on all cases, and once more without each model (accelerator, weight format where there is one of them)."""
    values: dict[str, float] = {"launch_gap_s": 3e-6, "sequence_s": 1e-5, "slowness": 1.1}
    for _ in range(ROUNDS):
        here, slopes = _linearised(cases, values)
        before, values = values, _moved(here, slopes, values)
    left_out = next(
        (name for name in ("model", "hardware") if len({getattr(case.today, name) for case in cases}) > 1), "weights"
    )
    owners = np.array([getattr(case.today, left_out) for case in cases])
    held_out = np.zeros_like(here)
    for owner in sorted(set(owners)):
        seen = owners != owner
        without = _moved(here[seen], slopes[seen], before) if seen.any() else values
        held_out[~seen] = log_errors([case for case, used in zip(cases, seen, strict=True) if not used], without)
    return Fitted(values=values, seen=log_errors(cases, values), held_out=held_out, left_out=left_out)


def _linearised(cases: Sequence[Case], values: Mapping[str, float]) -> tuple[Array, Array]:
    """Errors at ``values``, and their slopes per scaled number."""
    here = log_errors(cases, values)
    slopes = [log_errors(cases, {**values, name: values[name] + scale}) - here for name, scale in SCALES.items()]
    return here, np.stack(slopes, axis=-1)


def report(engine: str, cases: Sequence[Case], fitted: Fitted) -> None:
    """Numbers, then errors by accelerator and model: of the fit, and with the group left out."""
    values = ", ".join(f"{name} {value:.4g}" for name, value in fitted.values.items())
    print(f"{engine}: {values}; held out by {fitted.left_out}", flush=True)
    groups: dict[tuple[str, str, str], list[int]] = {}
    for place, case in enumerate(cases):
        groups.setdefault((case.today.hardware, case.today.model, case.today.weights), []).append(place)
    for (hardware, model, weights), places in sorted(groups.items()):
        parts = [f"  {hardware:8s} {model.split('/')[-1]:24s} {weights:6s} {len(places):4d}"]
        for title, errors in (("fit", fitted.seen), ("held out", fitted.held_out)):
            for column, metric in enumerate(METRICS):
                signed = np.expm1(errors[places, column])
                parts.append(f"{title} {metric.split('_')[0]} {signed.mean():+.1%}/{np.abs(signed).mean():.1%}")
        print("  ".join(parts), flush=True)
    everything = np.abs(np.expm1(fitted.held_out)).mean(axis=0)
    print(f"  held out, mean: TPOT {everything[0]:.1%}, tokens/s {everything[1]:.1%}", flush=True)


def spread_of(fitted: Fitted) -> float:
    """The log-sigma whose 80 % interval holds that share of the held-out TPOTs."""
    return float(np.quantile(np.abs(fitted.held_out[:, 0]), LEVEL) / DEVIATE)


def main() -> None:
    """Fit, print, and optionally write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds today/")
    parser.add_argument("--vendor", default="amd")
    parser.add_argument("--mode", choices=MODES[:2], default=MODES[0])
    parser.add_argument("--engine", nargs="*", help="only these")
    parser.add_argument("--every", type=int, default=1, help="every n-th run")
    parser.add_argument("--write", action="store_true", help="update the fits of each engine")
    arguments = parser.parse_args()
    vendor, mode = arguments.vendor, arguments.mode
    asked = {"every": arguments.every, "mode": mode, "engines": arguments.engine}
    for engine, cases in cases_of(arguments.data, vendor=vendor, **asked).items():
        fitted = fit(cases)
        report(engine, cases, fitted)
        if arguments.write:
            errors = np.abs(np.expm1(fitted.held_out)).mean(axis=0)
            write_vendor_fits(
                engine,
                vendor=vendor,
                before=later_release(engine, vendor=vendor) if mode == "aggregated" else None,
                overheads=overheads_of(fitted.values, mode != "aggregated") | sampling_elsewhere(engine),
                spread=spread_of(fitted),
                whole_runs=whole_runs(cases),
                note=f"Three numbers for all models. Leave one {fitted.left_out} out: TPOT {errors[0]:.1%}, tokens/s "
                f"{errors[1]:.1%}. The other overheads are those of the engine elsewhere.",
            )


if __name__ == "__main__":
    main()
