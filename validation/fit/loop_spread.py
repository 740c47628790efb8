"""Fit how far closed loops of others lie beyond the kernels' errors, and score the 80 % intervals on unseen runs.

``python -m validation.fit.loop_spread --data DIR [--every N] [--write]``: InferenceX's runs on machines, releases and
recipes of others. One spread an engine for time per token and throughput: the smallest that holds 80 % of its rows,
those left out whose kernels are known so little that their own spread covers all; for the score it is fitted without
the accelerator and model of each row.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from pathlib import Path

import numpy as np

from simulator.engine.runs.answers import answer
from simulator.engine.runs.results import loop_intervals, mean_intervals
from simulator.engine.uniform.record import UniformRun
from simulator.errors import RoofcastError
from simulator.kernels.timing import DEVIATE
from simulator.reports.contract import result_object
from simulator.specs.documents import validate
from simulator.specs.question.scenario import ScenarioSpec
from validation.end_to_end.inferencex import TodayRun, load_inferencex
from validation.end_to_end.today import thinned
from validation.fit.files import write_engine_fits
from validation.fit.serve_spread import EXACT, covering

KNOWN = 0.2
"""Spread of kernels (log) beyond which a row says nothing of the loop."""
METRICS = ("tpot_p50_s", "total_tokens_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopResidual:
    """One measured value: log(measured / predicted), and what is missing beside the kernels' spread to reach it."""

    engine: str
    left_out: tuple[str, str]
    metric: str
    error: float
    missing: float
    kernels: float


def residuals(items: Sequence[TodayRun]) -> list[LoopResidual]:
    """Of every run that is not refused."""
    found = []
    for item in items:
        try:
            result = answer(validate(ScenarioSpec, item.run.scenario, where="inferencex"))
        except RoofcastError:
            continue
        assert isinstance(result.run, UniformRun), "kind closed_loop"
        ends = loop_intervals(result.run, mean_intervals(result.run, spread=EXACT, pace=0.0, copies=1))
        predicted = result_object(result)
        for metric in METRICS:
            known = ends[metric]
            if metric not in item.run.measured or known is None:
                continue
            error, kernels = log(item.run.measured[metric] / predicted[metric]), log(known[1] / known[0]) / 2
            found.append(
                LoopResidual(
                    engine=result.deployment.engine.name,
                    left_out=(item.hardware, item.model),
                    metric=metric,
                    error=error,
                    missing=sqrt(max(error**2 - kernels**2, 0.0)) / DEVIATE,
                    kernels=kernels / DEVIATE,
                )
            )
    return found


def held(rows: Sequence[LoopResidual]) -> list[bool]:
    """Which rows are inside, the spread of each fitted without its accelerator and model."""
    inside = []
    for group in sorted({row.left_out for row in rows}):
        others = [row.missing for row in rows if row.left_out != group]
        if others:
            spread = covering(others)
            inside += [row.missing <= spread for row in rows if row.left_out == group]
    return inside


def main() -> None:
    """Fit, score, print and optionally write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds today/")
    parser.add_argument("--every", type=int, default=4, help="every n-th run of each deployment")
    parser.add_argument("--write", action="store_true", help="update the engines' fits")
    arguments = parser.parse_args()
    items = [item for item in load_inferencex(arguments.data) if item.speculation == "none"]
    rows = residuals(thinned(items, every=arguments.every))
    for engine in sorted({row.engine for row in rows}):
        own = [row for row in rows if row.engine == engine and row.kernels < KNOWN]
        little = [row for row in rows if row.engine == engine and row.kernels >= KNOWN]
        spread, inside = covering([row.missing for row in own]), held(own)
        print(f"{engine:14s} {len(own):5d} rows: spread {spread:.3f}, {np.mean(inside):.0%} of left-out rows held")
        if little:
            covered = np.mean([row.missing <= spread for row in little])
            print(f"{'':14s} {len(little):5d} rows of kernels known little: {covered:.0%} held")
        if arguments.write:
            write_engine_fits(engine, spread={"loops": spread})


if __name__ == "__main__":
    main()
