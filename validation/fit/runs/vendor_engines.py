"""Fit what an engine adds to a step on another vendor's accelerators, to closed loops that InferenceX measured there.

``python -m validation.fit.runs.vendor_engines --data DIR [--vendor amd] [--mode mtp] [--every N] [--write]``:
Gauss-Newton on the log of TPOT and throughput, outliers weighing less, over aggregated runs without speculation. Three
numbers an engine: device time between kernels, host time per running sequence, and the share of the tuned kernels'
rate; what drawing a token from a nucleus takes is the engine's own number elsewhere. Printed beside the errors of all
runs are those of every model (of every accelerator where an engine ran but one model, of every weight format where it
ran on one accelerator), under numbers that were fitted without it. Where speculation came to the vendor with a later
release of the engine, ``--mode mtp`` fits that release to the runs that speculate and to pools, which run it too:
those whose decode workers are one tensor-parallel group, and none that the package's sample scores. Of an engine that
speculates in the release of all its runs, it fits the host time of a round per sequence alone. ``--write`` puts the
numbers into the vendor's part of hardware_profiles/calibration/engines/.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simulator.engine.runs.answers import pools_run, run_of
from simulator.engine.runs.scenario_setup import ServeOptions, deployment_of, pool_deployments
from simulator.engine.runs.served_run import ServedRun
from simulator.engine.uniform.record import UniformRun
from simulator.errors import RoofcastError
from simulator.kernels.engine_traits import row_kind
from simulator.kernels.intervals import DEVIATE, LEVEL
from simulator.operators.work import decode_step
from simulator.phases.deployment import Deployment
from simulator.phases.step import estimate_step
from simulator.specs.base import validate
from simulator.specs.engine.engine import load_engine
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.question.scenario import ScenarioSpec
from validation.end_to_end.measured.inferencex import MODES, TodayRun, load_disaggregated, load_inferencex
from validation.end_to_end.measured.layouts import served_by
from validation.end_to_end.stored import TODAY_EVERY
from validation.end_to_end.today import thinned
from validation.fit.files import vendor_source, write_engine_fits, write_vendor_fits
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


Kind = Literal["steps", "release", "rounds"]
"""What is fitted: steps without speculation; a later release, to runs that speculate and to pools; what the rounds of
a release take whose steps are known."""
FREE: Mapping[Kind, tuple[str, ...]] = {"steps": tuple(SCALES), "release": tuple(SCALES), "rounds": ("sequence_s",)}

POOLS_EVERY = 4
"""Pools take longer than one replica, and change little from one number of clients to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A measured run with its replica (with pools one of the decode pool, and ``prefill`` one of the other), built
    once; ``kind`` says which numbers are fitted to it."""

    today: TodayRun
    scenario: ScenarioSpec
    deployment: Deployment
    kind: Kind
    prefill: Deployment | None = None

    def run(self, values: Mapping[str, float]) -> UniformRun:
        """The closed loop with these numbers on its hosts."""
        decode = _with(self.deployment, values, kind=self.kind)
        if self.prefill is None:
            found = run_of(self.scenario, decode, options=ServeOptions())
            assert not isinstance(found, ServedRun), "a closed loop is no served load"
            return found
        prefill, spec = _with(self.prefill, values, kind=self.kind), self.scenario.disaggregation
        assert spec is not None, "two pools"
        return pools_run(self.scenario, prefill, decode, spec=spec, profiles=None)


def later_release(engine: str, *, vendor: str) -> str | None:
    """The release that brought speculation to the vendor's accelerators, where the engine ran there before."""
    return load_engine(engine).first_releases.get(vendor, {}).get("speculation")


def cases_of(
    data: Path, *, vendor: str, every: int, mode: str, engines: Sequence[str] | None = None
) -> dict[str, list[Case]]:
    """Every n-th run on the vendor's accelerators, by engine; runs that are refused are left out, and runs that
    speculate on the release that others ran on."""
    runs = [item for item in load_inferencex(data) if item.mode == mode]
    if mode != "aggregated":
        runs += [item for item in unscored_groups(data) if later_release(served_by(item.engine), vendor=vendor)]
    own = [item for item in runs if load_hardware(str(item.run.scenario["hardware"])).vendor == vendor]
    found: dict[str, list[Case]] = {}
    for item in own[::every]:
        engine = served_by(item.engine)
        stood_still = any(name not in item.run.measured for name in METRICS)
        if stood_still or (engines and engine not in engines):
            continue
        scenario = validate(ScenarioSpec, item.run.scenario, where=item.run.source)
        kind: Kind = (
            "steps" if mode == "aggregated" else "release" if later_release(engine, vendor=vendor) else "rounds"
        )
        try:
            case = _case(item, scenario, kind=kind)
            case.run(_now(case))
        except RoofcastError:
            continue
        found.setdefault(engine, []).append(case)
    return found


def _case(item: TodayRun, scenario: ScenarioSpec, *, kind: Kind) -> Case:
    if scenario.disaggregation is None:
        return Case(today=item, scenario=scenario, deployment=deployment_of(scenario), kind=kind)
    prefill, decode = pool_deployments(scenario, scenario.disaggregation)
    return Case(today=item, scenario=scenario, deployment=decode, prefill=prefill, kind=kind)


def unscored_groups(data: Path) -> list[TodayRun]:
    """Disaggregated runs whose decode workers are one tensor-parallel group, every ``POOLS_EVERY``-th of those that the
    package's sample does not hold."""
    pools = load_disaggregated(data)
    scored = {item.run.scenario["id"] for item in thinned(pools, every=TODAY_EVERY["disaggregated"])}
    groups = [
        item
        for item in pools
        if item.run.scenario["disaggregation"].get("decode_ep_size") == 1 and item.run.scenario["id"] not in scored
    ]
    return list(thinned(groups, every=POOLS_EVERY))


def overheads_of(values: Mapping[str, float], *, kind: Kind) -> dict[str, float]:
    """Fitted numbers under the names that an engine's overheads have; a release that overlaps a plain step's host time
    with the device spends it in the rounds that speculate alone."""
    rounds = {"speculation_sequence_s": values["sequence_s"]}
    if kind == "rounds":
        return rounds
    host = {"step_per_sequence_s": values["sequence_s"]} if kind == "steps" else {**rounds, "step_per_sequence_s": 0.0}
    return {"launch_gap_s": values["launch_gap_s"], "tuned_share": 1.0 / values["slowness"], **host}


SAMPLING = ("sampled_logit_s", "sampled_bytes_per_logit")


def sampling_elsewhere(engine: str) -> dict[str, float]:
    """What drawing tokens takes on the accelerators that the engine's own numbers are of: launches and short kernels,
    which no device shortens."""
    elsewhere = load_engine(engine).overheads
    return {name: float(getattr(elsewhere, name)) for name in SAMPLING}


def _with(deployment: Deployment, values: Mapping[str, float], *, kind: Kind) -> Deployment:
    """The replica with these numbers on its own host."""
    found = overheads_of(values, kind=kind) | sampling_elsewhere(deployment.engine.name)
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
    return np.concatenate([log_errors([case], _now(case)) for case in cases])


def _now(case: Case) -> dict[str, float]:
    overheads = case.deployment.engine.overheads
    return {
        "launch_gap_s": overheads.launch_gap_s,
        "sequence_s": overheads.step_per_sequence_s if case.kind == "steps" else overheads.speculation_sequence_s,
        "slowness": 1.0 / overheads.tuned_share,
    }


def log_errors(cases: Sequence[Case], values: Mapping[str, float]) -> Array:
    """log(predicted / measured) of every metric of every case, shape (cases, metrics)."""
    errors = []
    for case in cases:
        run = case.run(values)
        assert run.spread is not None, "a closed loop knows its requests"
        assert run.spread.tpot is not None, "every answer has several tokens"
        ranks = case.scenario.dp_size / run.ranks if case.prefill is None else 1.0
        predicted = (run.spread.tpot.p50_s, run.total_tokens_per_s * ranks)
        measured = [case.today.run.measured[name] for name in METRICS]
        errors.append([float(np.log(ours / theirs)) for ours, theirs in zip(predicted, measured, strict=True)])
    return np.array(errors)


def _moved(here: Array, slopes: Array, values: Mapping[str, float], *, free: Sequence[str]) -> dict[str, float]:
    """The numbers that make the linearised errors smallest; those that are not ``free`` stay."""
    low = np.array([(LOWEST[name] - values[name]) / SCALES[name] for name in free])
    step = robust_step(here.ravel(), slopes.reshape(-1, len(free)), low=low, outlier=OUTLIER)
    moved = {name: max(values[name] + move * SCALES[name], LOWEST[name]) for name, move in zip(free, step, strict=True)}
    return {**values, **moved}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Numbers of all runs; the errors of every run under them, and under those that its group had no part in."""

    values: Mapping[str, float]
    seen: Array
    held_out: Array
    left_out: str


def fit(cases: Sequence[Case]) -> Fitted:
    """Fit on all cases, and once more without each model (accelerator, weight format where there is one of them)."""
    free = FREE[cases[0].kind]
    start = {"launch_gap_s": 3e-6, "sequence_s": 1e-5, "slowness": 1.1}
    values = {**_now(cases[0]), **{name: start[name] for name in free}}
    for _ in range(ROUNDS):
        here, slopes = _linearised(cases, values, free=free)
        before, values = values, _moved(here, slopes, values, free=free)
    left_out = next(
        (name for name in ("model", "hardware") if len({getattr(case.today, name) for case in cases}) > 1), "weights"
    )
    owners = np.array([getattr(case.today, left_out) for case in cases])
    held_out = np.zeros_like(here)
    for owner in sorted(set(owners)):
        seen = owners != owner
        without = _moved(here[seen], slopes[seen], before, free=free) if seen.any() else values
        held_out[~seen] = log_errors([case for case, used in zip(cases, seen, strict=True) if not used], without)
    return Fitted(values=values, seen=log_errors(cases, values), held_out=held_out, left_out=left_out)


def _linearised(cases: Sequence[Case], values: Mapping[str, float], *, free: Sequence[str]) -> tuple[Array, Array]:
    """Errors at ``values``, and their slopes per scaled number."""
    here = log_errors(cases, values)
    slopes = [log_errors(cases, {**values, name: values[name] + SCALES[name]}) - here for name in free]
    return here, np.stack(slopes, axis=-1)


def report(engine: str, cases: Sequence[Case], fitted: Fitted) -> None:
    """Numbers, then errors by accelerator and model: of the fit, and with the group left out."""
    values = ", ".join(f"{name} {value:.4g}" for name, value in fitted.values.items())
    print(f"{engine}: {values}; held out by {fitted.left_out}", flush=True)
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, case in enumerate(cases):
        today = case.today
        key = (today.hardware, today.model, today.weights, today.pools, today.speculation)
        groups.setdefault(key, []).append(place)
    for (hardware, model, *words), places in sorted(groups.items()):
        parts = [f"  {hardware:8s} {model.split('/')[-1]:24s} {' '.join(words):18s} {len(places):4d}"]
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
            _write(engine, cases, fitted, vendor=vendor)


def _write(engine: str, cases: Sequence[Case], fitted: Fitted, *, vendor: str) -> None:
    """Put the numbers into the vendor's part of the engine's fits."""
    kind = cases[0].kind
    errors = np.abs(np.expm1(fitted.held_out)).mean(axis=0)
    found = overheads_of(fitted.values, kind=kind)
    score = f"Leave one {fitted.left_out} out: TPOT {errors[0]:.1%}, tokens/s {errors[1]:.1%}."
    if kind == "rounds":
        said = vendor_source(vendor, note=f"{len(cases)} runs with multi-token prediction. {score}")
        write_engine_fits(engine, vendor=vendor, overheads=found, sources={kind: said})
        return
    write_vendor_fits(
        engine,
        vendor=vendor,
        before=later_release(engine, vendor=vendor) if kind == "steps" else None,
        overheads=found | sampling_elsewhere(engine),
        spread=spread_of(fitted),
        whole_runs=whole_runs(cases),
        note=f"Three numbers for all models. {score} The other overheads are those of the engine elsewhere.",
    )


if __name__ == "__main__":
    main()
