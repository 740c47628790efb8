"""Fit how far whole requests scatter beyond the steps, and score the 80 % intervals on models that no fit saw.

``python -m validation.fit.runs.serve_spread --data DIR [--write]``: every run of vLLM is served with host overheads
fitted without its model, so that its residuals are those of an unseen model. The share of the steps' spread is the
smallest that holds 80 % of the TPOT, each further spread the smallest that holds 80 % of its metric; for the score,
both are fitted without that model too.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulator.engine.runs.intervals import METRICS, RATES, StageInterval, engine_sigma, is_calibrated, stage_values
from simulator.engine.runs.served_run import served_run
from simulator.kernels.intervals import DEVIATE, LEVEL
from simulator.specs.engine.fits import EngineSpread
from validation.end_to_end.measured.serving import METRICS as SCORED
from validation.end_to_end.measured.serving import with_overheads, with_spread
from validation.fit.files import write_engine_fits
from validation.fit.runs.engine import (
    Case,
    FittedOverheads,
    fit_and_score,
    fit_overheads,
    measured_cases,
    overheads_from,
)

Array = NDArray[np.float64]
EXACT = EngineSpread(ttft=0.0, tpot=0.0, e2e=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """log(measured / predicted) of one metric of one stage, and how far steps and chance alone reach below and above.

    A share of the steps' spread scales both ends, because over thousands of requests chance is small beside the steps;
    where those are not ``calibrated`` it stays whole.
    """

    model: str
    metric: str
    error: float
    below: float
    above: float
    calibrated: bool

    @property
    def needed_share(self) -> float:
        """Which share of the half-width would just reach the measured value."""
        return abs(self.error) / (self.above if self.error > 0 else self.below)

    def _share(self, share: float) -> float:
        return share if self.calibrated and self.metric not in RATES else 1.0

    def missing(self, *, share: float) -> float:
        """What must join that share of the half-width in quadrature for the interval to hold the measured value."""
        half = self._share(share) * (self.above if self.error > 0 else self.below)
        return float(np.sqrt(max(self.error**2 - half**2, 0.0)))

    def is_held(self, spread: EngineSpread) -> bool:
        """Whether the interval under an engine with that spread holds it."""
        low, high = DEVIATE * engine_sigma(spread)[:, METRICS.index(self.metric)]
        share = self._share(spread.steps)
        return -float(np.hypot(share * self.below, low)) <= self.error <= float(np.hypot(share * self.above, high))


def _measured(stage: dict[str, float], *, osl_tokens: int | None) -> dict[str, float]:
    """A stage's metrics; answers counted in tokens of the engine, where clients counted those of the decoded text."""
    values = {name: stage[name] for name in METRICS if name in stage}
    if "output_tokens_per_s" in values and osl_tokens is not None:
        values["output_tokens_per_s"] = stage["requests_per_s"] * osl_tokens
    return values


def case_residuals(case: Case, values: Array) -> list[Residual]:
    """All metrics of a run whose engine has the host overheads ``values``."""
    workload = case.run.scenario.workload
    assert workload is not None, "a served run"
    overheads = overheads_from(case.deployment.engine.overheads, values)
    deployment = with_overheads(case.deployment, overheads)
    run = served_run(with_spread(deployment, EXACT), workload=workload, replicas=1)
    assert run.interval is not None, "asked for by default"
    found, known = [], is_calibrated(prefill=run.prefill, decode=run.decode)
    for stage, interval, measured in zip(run.result.stages, run.interval.stages, case.run.stages, strict=True):
        predicted = stage_values(stage)
        for name, value in _measured(dict(measured), osl_tokens=workload.osl_tokens).items():
            found.append(_residual(case.run.scenario.model, name, value, predicted, interval, calibrated=known))
    return found


def _residual(
    model: str, name: str, value: float, predicted: Array, interval: StageInterval, *, calibrated: bool
) -> Residual:
    place = METRICS.index(name)
    middle = predicted[place]
    return Residual(
        model=model,
        metric=name,
        error=float(np.log(value / middle)),
        below=float(np.log(middle / interval.low[place])),
        above=float(np.log(interval.high[place] / middle)),
        calibrated=calibrated,
    )


def covering(missing: Sequence[float]) -> float:
    """The value that covers LEVEL of unseen ones of the same kind: the ceil((n + 1) LEVEL)-th smallest [Vovk2005]."""
    ranked = np.sort(np.asarray(missing))
    return float(ranked[min(ceil((len(ranked) + 1) * LEVEL), len(ranked)) - 1])


def fit_spread(residuals: Sequence[Residual]) -> EngineSpread:
    """The steps' share; spreads beyond it by metric; then how much later still the slowest first tokens come."""

    def of(name: str, *statistics: str) -> list[Residual]:
        return [item for item in residuals if item.metric in {f"{name}_{statistic}" for statistic in statistics}]

    share = min(covering([item.needed_share for item in of("tpot", "mean_s") if item.calibrated]), 1.0)
    tpot = covering([item.missing(share=share) for item in of("tpot", "mean_s")])
    ttft = covering([item.missing(share=share) for item in of("ttft", "mean_s", "p90_s")])
    e2e = covering([item.missing(share=share) for item in of("e2e", "mean_s", "p90_s", "p99_s")])
    # Slow first tokens are late, not early: one that comes too early is not for the tail to explain.
    slowest = of("ttft", "p99_s")
    late = [float(np.sqrt(max(r.missing(share=share) ** 2 - ttft**2, 0.0))) if r.error > 0 else 0.0 for r in slowest]
    return EngineSpread(
        steps=share, ttft=ttft / DEVIATE, tpot=tpot / DEVIATE, e2e=e2e / DEVIATE, ttft_tail=covering(late) / DEVIATE
    )


def held(residuals: Sequence[Residual]) -> dict[str, list[bool]]:
    """Of each metric's rows which are inside their intervals, the spread of each model's rows fitted on the others."""
    found: dict[str, list[bool]] = {}
    for model in sorted({item.model for item in residuals}):
        spread = fit_spread([item for item in residuals if item.model != model])
        for item in residuals:
            if item.model == model:
                found.setdefault(item.metric, []).append(item.is_held(spread))
    return {name: found[name] for name in METRICS if name in found}


def held_out_residuals(cases: Sequence[Case], overheads: FittedOverheads) -> list[Residual]:
    """Residuals of every run under overheads that were fitted without its model."""
    return [item for case in cases for item in case_residuals(case, overheads.without[case.run.scenario.model])]


def serving_table(data: Path) -> str:
    """Errors of the fit, and of unseen models with how often their intervals hold, as a table for people (percent)."""
    cases = measured_cases(data)
    overheads, seen, unseen = fit_and_score(cases)
    inside = held(held_out_residuals(cases, overheads))
    every = [one for rows in inside.values() for one in rows]
    stages = sum(len(case.run.stages) for case in cases)
    lines = [
        f"| vLLM 0.15.1 on H100, {stages} stages | fitted | leave one model out | in 80 % interval |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{name}` | {100 * seen[name]:.1f} % | {100 * unseen[name]:.1f} % | {100 * np.mean(inside[name]):.0f} % |"
        for name in SCORED
    ]
    lines.append(f"| all {len(every)} values of all metrics | | | {100 * np.mean(every):.0f} % |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fit, score, print and optionally write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds serving/")
    parser.add_argument("--write", action="store_true", help="update the fits of vLLM")
    arguments = parser.parse_args()
    cases = measured_cases(arguments.data)
    residuals = held_out_residuals(cases, fit_overheads(cases))
    spread = fit_spread(residuals)
    print(f"fitted: {spread}")
    inside = held(residuals)
    for name, rows in inside.items():
        error = np.median([abs(item.error) for item in residuals if item.metric == name])
        print(f"{name:20s} {len(rows):4d} rows, median error {error:.3f}: {np.mean(rows):.0%} held")
    every = [one for rows in inside.values() for one in rows]
    print(f"{'all':20s} {len(every):4d} rows: {np.mean(every):.0%} held")
    if arguments.write:
        write_engine_fits("vllm", spread=spread.model_dump())


if __name__ == "__main__":
    main()
