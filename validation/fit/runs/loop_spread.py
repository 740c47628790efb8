"""Fit how far closed loops of others lie beyond the kernels' errors, and score the 80 % intervals on unseen runs.

``python -m validation.fit.runs.loop_spread --data DIR [--pools] [--vendor amd] [--every N] [--without model]
[--write]``: InferenceX's runs on machines, releases and recipes of others, with prediction layers and without,
``--pools`` the disaggregated ones. One spread an engine and vendor for time per token and throughput, without
``--pools`` also one a class of models, alone and on an architecture: the smallest that holds 80 % of its rows, those
left out whose kernels are known so little that their own spread covers all; for the score it is fitted without the
accelerator, model and weight format of each row, or without all rows of its accelerator or model. What lies inside is
printed by engine, by accelerator and by model.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import log, sqrt
from pathlib import Path

import numpy as np

from simulator.engine.runs.answers import answer
from simulator.engine.runs.results import loop_intervals, mean_intervals
from simulator.engine.uniform.record import UniformRun
from simulator.errors import RoofcastError
from simulator.kernels.intervals import DEVIATE
from simulator.reports.answer import result_object
from simulator.specs.base import Source, validate
from simulator.specs.engine.fits import class_on
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.question.scenario import ScenarioSpec
from simulator.techniques.speculation.acceptance import pace_sigma
from validation.end_to_end.measured.inferencex import TodayRun, load_disaggregated, load_inferencex
from validation.end_to_end.today import thinned
from validation.fit.files import write_engine_fits
from validation.fit.runs.serve_spread import EXACT, covering

KNOWN = 0.2
"""Spread of kernels (log) beyond which a row says nothing of the loop."""
METRICS = ("tpot_p50_s", "total_tokens_per_s")
LEFT_OUT: Mapping[str, tuple[str, ...]] = {
    "accelerator, model and format": ("hardware", "model", "weights"),
    "accelerator": ("hardware",),
    "model": ("model",),
}
"""What of a row no other may share that its width is fitted to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopResidual:
    """One measured value: log(measured / predicted), and what is missing beside the kernels' spread to reach it."""

    hardware: str
    model: str
    engine: str
    vendor: str
    model_class: str
    architecture: str
    left_out: tuple[str, ...]
    metric: str
    error: float
    missing: float
    kernels: float


def vendor_of(item: TodayRun) -> str:
    """Whose accelerators a run was on."""
    return load_hardware(str(item.run.scenario["hardware"])).vendor


def residuals(
    items: Sequence[TodayRun], *, without: Sequence[str] = ("hardware", "model", "weights")
) -> list[LoopResidual]:
    """Of every run that is not refused; without : what of a run is left out for its score."""
    found = []
    for item in items:
        try:
            scenario = validate(ScenarioSpec, item.run.scenario, where="inferencex")
            result = answer(scenario)
        except RoofcastError:
            continue
        assert isinstance(result.run, UniformRun), "kind closed_loop"
        pace = pace_sigma(scenario.techniques.speculation)
        ends = loop_intervals(result.run, mean_intervals(result.run, spread=EXACT, pace=pace, copies=1))
        predicted = result_object(result)
        for metric in METRICS:
            known = ends[metric]
            if metric not in item.run.measured or known is None:
                continue
            error, kernels = log(item.run.measured[metric] / predicted[metric]), log(known[1] / known[0]) / 2
            found.append(
                LoopResidual(
                    hardware=item.hardware,
                    model=item.model.rsplit("/", maxsplit=1)[-1],
                    engine=result.deployment.engine.name,
                    vendor=result.deployment.hardware.vendor,
                    model_class=result.deployment.model.model_class,
                    architecture=result.deployment.hardware.architecture,
                    left_out=tuple(getattr(item, name) for name in without),
                    metric=metric,
                    error=error,
                    missing=sqrt(max(error**2 - kernels**2, 0.0)) / DEVIATE,
                    kernels=kernels / DEVIATE,
                )
            )
    return found


FEWEST = 20
"""Values of a class from which it has a spread of its own."""


def spreads(rows: Sequence[LoopResidual]) -> tuple[float, dict[str, float]]:
    """The spread of all rows, and of each class, alone and on an architecture, with enough of them."""
    of_class: dict[str, list[float]] = {}
    for row in rows:
        for name in _names(row):
            of_class.setdefault(name, []).append(row.missing)
    own = {name: covering(missing) for name, missing in sorted(of_class.items()) if len(missing) >= FEWEST}
    return covering([row.missing for row in rows]), own


def _names(row: LoopResidual) -> tuple[str, str]:
    return class_on(row.model_class, row.architecture), row.model_class


def _width(row: LoopResidual, *, overall: float, own: Mapping[str, float]) -> float:
    """Of a row: its class's there, its class's, or, of a class that nobody ran, the widest."""
    known = (own[name] for name in _names(row) if name in own)
    return next(known, max(overall, *own.values(), 0.0))


def _classes(rows: Sequence[LoopResidual]) -> list[str]:
    return sorted({row.model_class for row in rows})


def held(rows: Sequence[LoopResidual], *, by_class: bool) -> list[bool]:
    """Which rows are inside, the spread of each fitted without those that share what is left out."""
    inside = []
    for group in sorted({row.left_out for row in rows}):
        others = [row for row in rows if row.left_out != group]
        if others:
            overall, own = spreads(others)
            own = own if by_class else {}
            same = [row for row in rows if row.left_out == group]
            inside += [row.missing <= _width(row, overall=overall, own=own) for row in same]
    return inside


def _by_group(rows: Sequence[LoopResidual]) -> list[LoopResidual]:
    """In the order of `held`; one group alone is in no score."""
    groups = sorted({row.left_out for row in rows})
    return [row for group in groups for row in rows if row.left_out == group and len(groups) > 1]


def inside_by_name(rows: Sequence[LoopResidual], inside: Sequence[bool]) -> list[str]:
    """What of them lies inside, by accelerator and by model."""
    said = []
    for name in ("hardware", "model"):
        for value in sorted({getattr(row, name) for row in rows}):
            own = [held for row, held in zip(rows, inside, strict=True) if getattr(row, name) == value]
            said.append(f"{value:24s} {len(own):4d} values, {np.mean(own):.0%} inside")
    return said


def main() -> None:
    """Fit, score, print and optionally write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds today/")
    parser.add_argument("--pools", action="store_true", help="disaggregated runs, with speculation and without")
    parser.add_argument("--vendor", choices=["nvidia", "amd"], help="only runs on its accelerators")
    parser.add_argument("--every", type=int, default=4, help="every n-th run of each deployment")
    parser.add_argument(
        "--without", choices=list(LEFT_OUT), default=next(iter(LEFT_OUT)), help="left out for the score"
    )
    parser.add_argument("--write", action="store_true", help="update the engines' fits")
    arguments = parser.parse_args()
    items = (load_disaggregated if arguments.pools else load_inferencex)(arguments.data)
    own_vendor = [item for item in items if arguments.vendor in (None, vendor_of(item))]
    rows = residuals(thinned(own_vendor, every=arguments.every), without=LEFT_OUT[arguments.without])
    scored: list[LoopResidual] = []
    all_inside: list[bool] = []
    # Runs on another vendor have engine constants of their own.
    for engine, vendor in sorted({(row.engine, row.vendor) for row in rows}):
        members = [row for row in rows if (row.engine, row.vendor) == (engine, vendor)]
        own = [row for row in members if row.kernels < KNOWN]
        little = [row for row in members if row.kernels >= KNOWN]
        spread, classes = spreads(own)
        inside = held(own, by_class=not arguments.pools)
        share = f"{np.mean(inside):.0%}" if len(inside) else "no row"
        scored, all_inside = scored + _by_group(own), all_inside + inside
        said = f"{len(own)} values: {share} lie inside with {arguments.without} left out"
        if little:
            covered = np.mean([row.missing <= spread for row in little])
            said += f"; {covered:.0%} of {len(little)} whose kernels are known little"
        print(f"{engine:14s} {vendor:8s} spread {spread:.3f}, {said}")
        if not arguments.pools:
            one = held(own, by_class=False)
            for name in _classes(own):
                same = [place for place, row in enumerate(_by_group(own)) if row.model_class == name]
                width, shares = classes.get(name, spread), [np.mean([part[i] for i in same]) for part in (one, inside)]
                print(
                    f"  {name:20s} {len(same):4d} spread {width:.3f}, inside: one {shares[0]:.0%}, own {shares[1]:.0%}"
                )
        if arguments.write:
            name = "pools" if arguments.pools else "loops"
            # A class that nobody ran is as far off as the worst of those that were.
            widest = spread if arguments.pools else max(spread, *classes.values(), 0.0)
            found: dict[str, float | dict[str, float]] = {name: widest}
            if not arguments.pools:
                found["loops_of"] = classes
            write_engine_fits(engine, vendor=vendor, spread=found, sources={name: _source(arguments, said)})
    print("\n".join(inside_by_name(scored, all_inside)))


def _source(arguments: argparse.Namespace, said: str) -> Source:
    kind = "over two pools" if arguments.pools else "of one pool, with prediction layers and without"
    return Source(
        source=f"InferenceX closed loops {kind} (database of 2026-07-20), one run in {arguments.every}, "
        "validation/fit/runs/loop_spread.py",
        date=datetime.now(UTC).date().isoformat(),
        note=f"{said}.",
    )


if __name__ == "__main__":
    main()
