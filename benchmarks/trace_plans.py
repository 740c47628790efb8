"""Plans for recorded traces, replayed: does the planned fleet hold its objectives, and would a smaller one?

Run with ``python -m benchmarks.trace_plans FOLDER [--trace conv] [--model llama-3.1-8b] [--skip-minutes 15]
[--minutes 15] [--percentile 99] [--blind] [--quick] [--verify] [--seeds 40]``, FOLDER with the traces of Azure 2023 and
Mooncake.
Every plan is for single accelerators without spares. What the margins of the planner were set on: ``--minutes 15``, the
first minutes. ``--blind``: the deployments that were written down before any of their plans had been seen.
A fleet holds where each objective does, over all requests of the trace, in nine of ten replays (other moments, other
draws of the minute's requests). Printed: replicas planned, seeds that hold, the smallest fleet that holds (searched
four down, three up).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np

from benchmarks.trace_deployments import BLIND, DEPLOYED, LONGER_PROMPTS, Deployed
from simulator.engine.runs.metrics import offered_latency_s, percentile_s
from simulator.engine.runs.serving import ServedDeployment, step_tables
from simulator.errors import RoofcastError
from simulator.phases.compiled import StepTables
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.plan import plan_capacity
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.traffic.recorded.traces import RequestTrace, read_trace, resampled_requests
from simulator.units import MILLI, SECONDS_PER_MINUTE

SEEDS, ENOUGH = 10, 0.9
DOWN, UP = 4, 3
FIRST_SEED = 1000
TRACES = {
    "conv": "AzureLLMInferenceTrace2023_conv.csv",
    "code": "AzureLLMInferenceTrace2023_code.csv",
    "mooncake": "mooncake_conversation_trace.jsonl",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """A plan's replica under its trace; every number of replicas meets the same replays, as many as ``seeds``."""

    plan: CapacityPlan
    tables: tuple[StepTables, ...]
    trace: RequestTrace
    times: float
    seeds: int

    def holds(self, replicas: int, *, seed: int) -> bool:
        """Every objective over the whole trace."""
        requests = resampled_requests(self.trace, times=self.times, seed=FIRST_SEED + seed)
        deployment = self.plan.best.replica.deployment
        served = ServedDeployment(deployment=deployment, replicas=replicas, tables=self.tables)
        records = served.run(requests).run.records

        def excess(item: ObjectiveSpec) -> float:
            values_s = offered_latency_s(requests, records, metric=item.metric.value)
            return percentile_s(values_s, item.percentile) / item.bound_s

        return all(excess(item) <= 1 for item in self.plan.objectives)

    def seeds_that_hold(self, replicas: int) -> int:
        """Counting ends where nine in ten have become impossible."""
        held = 0
        for seed in range(self.seeds):
            held += self.holds(replicas, seed=seed)
            if held + self.seeds - seed - 1 < ENOUGH * self.seeds:
                break
        return held

    def enough(self, replicas: int) -> bool:
        """Whether nine in ten hold."""
        return self.seeds_that_hold(replicas) >= ENOUGH * self.seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One plan: replicas planned, seeds in which they hold, the smallest fleet that does (0 where none was found)."""

    planned: int
    held: int
    smallest: int
    load: float
    seeds: int

    @property
    def passes(self) -> bool:
        """Holds in nine of ten, and at most one replica is too many."""
        return self.held >= ENOUGH * self.seeds and self.planned - self.smallest <= 1


def _smallest(replays: Replays, *, planned: int, held: int) -> int:
    if held >= ENOUGH * replays.seeds:
        smallest = planned
        while smallest > max(1, planned - DOWN) and replays.enough(smallest - 1):
            smallest -= 1
        return smallest
    return next((count for count in range(planned + 1, planned + UP + 1) if replays.enough(count)), 0)


def measure(deployed: Deployed, *, path: Path, rate: float, slo: dict[str, str], verify: bool, seeds: int) -> Line:
    """Plan, replay, and look for the smallest fleet."""
    plan = plan_capacity(
        plan_spec(
            {
                "model": deployed.model,
                "hardware": deployed.hardware,
                "tp": deployed.tp,
                "trace": str(path),
                "rps": rate,
                "round_to": "device",
                "spares": 0,
                "verify": verify,
                **slo,
            }
        )
    )
    if plan.finalists is not None and not plan.finalists.chosen.found.holds:
        raise RoofcastError("planned, and said to miss its objectives in the simulation", field="--trace")
    trace = read_trace(path)
    replays = Replays(
        plan=plan,
        tables=step_tables(plan.best.replica.deployment),
        trace=trace,
        times=rate / trace.mean_rate_per_s,
        seeds=seeds,
    )
    planned = plan.best.replicas
    held = replays.seeds_that_hold(planned)
    return Line(
        planned=planned,
        held=held,
        smallest=_smallest(replays, planned=planned, held=held),
        load=plan.best.at_peak.load,
        seeds=seeds,
    )


def objectives(deployed: Deployed, *, trace: str, quick: bool, percentile: int) -> Iterator[dict[str, str]]:
    """TTFT, TPOT and E2E, each tight and loose, and the tight first two together."""
    name_of = {metric: f"{metric}_p{percentile}" for metric in ("ttft", "tpot", "e2e")}
    times = LONGER_PROMPTS if trace == "mooncake" else 1
    ttft = [f"{times * bound:g}s" for bound in deployed.ttft]
    tpot = [f"{bound:g}s" for bound in deployed.tpot]
    e2e = [f"{(times + 1) / 2 * bound:g}s" for bound in deployed.e2e]
    yield {name_of["ttft"]: ttft[0], name_of["tpot"]: tpot[0]}
    for metric, (tight, loose) in {"ttft": ttft, "tpot": tpot, "e2e": e2e}.items():
        yield {name_of[metric]: tight}
        if not quick:
            yield {name_of[metric]: loose}


def shortened(path: Path, *, skip: float, minutes: float | None, folder: Path) -> Path:
    """Some minutes of a trace as a file of its own, in Mooncake's format; hashes stay."""
    if minutes is None and not skip:
        return path
    trace = read_trace(path)
    ends_s = np.array([skip, inf if minutes is None else skip + minutes]) * SECONDS_PER_MINUTE
    first, last = np.searchsorted(trace.arrival_s, ends_s)
    rows = []
    for place in range(first, last):
        row: dict[str, object] = {
            "timestamp": round(float(trace.arrival_s[place] - trace.arrival_s[first]) / MILLI),
            "input_length": int(trace.isl_tokens[place]),
            "output_length": int(trace.osl_tokens[place]),
        }
        if trace.hashes is not None:
            row["hash_ids"] = list(trace.hashes[place])
        rows.append(json.dumps(row))
    short = folder / f"{path.stem}.jsonl"
    short.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return short


def cases(chosen: argparse.Namespace, *, folder: Path) -> Iterator[tuple[Deployed, str, float, Path, dict[str, str]]]:
    """Every deployment, trace and set of objectives that was asked for."""
    for deployed in BLIND if chosen.blind else DEPLOYED:
        if chosen.model and deployed.model not in chosen.model:
            continue
        for (name, file), rate in zip(TRACES.items(), deployed.rates, strict=True):
            if chosen.trace and name not in chosen.trace:
                continue
            path = shortened(chosen.folder / file, skip=chosen.skip_minutes, minutes=chosen.minutes, folder=folder)
            for slo in objectives(deployed, trace=name, quick=chosen.quick, percentile=chosen.percentile):
                yield deployed, name, rate, path, slo


def main() -> None:
    """Print one line per plan, then how many pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trace", choices=TRACES, action="append")
    parser.add_argument("--model", action="append")
    parser.add_argument("--minutes", type=float, default=None, help="only so many minutes of each trace")
    parser.add_argument("--skip-minutes", type=float, default=0.0, help="leave out the first minutes of each trace")
    parser.add_argument("--percentile", type=int, default=95, choices=(90, 95, 99))
    parser.add_argument("--blind", action="store_true", help="the deployments on which nothing was set")
    parser.add_argument("--quick", action="store_true", help="tight bounds only")
    parser.add_argument("--verify", action="store_true", help="plans that were checked by simulation")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="replays; with few of them the smallest fleet is luck")
    chosen = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for deployed, name, rate, path, slo in cases(chosen, folder=Path(folder)):
            bounds = " ".join(map("=".join, slo.items()))
            head = f"{deployed.model:13} {deployed.hardware:4} {name:8} {rate:3.0f}/s {bounds:30}"
            start = time.perf_counter()
            try:
                line = measure(deployed, path=path, rate=rate, slo=slo, verify=chosen.verify, seeds=chosen.seeds)
            except RoofcastError as error:
                print(f"{head} refused: {error.message[:80]}", flush=True)
                continue
            lines.append(line)
            print(
                f"{head} load {line.load:4.0%} planned {line.planned:3} held {line.held:2}/{line.seeds} smallest "
                f"{line.smallest or f'> {line.planned + UP}'!s:>4} {'pass' if line.passes else 'MISS'} "
                f"({time.perf_counter() - start:.0f} s)",
                flush=True,
            )
    excess = np.array([line.planned - line.smallest for line in lines if line.smallest])
    print(f"{sum(line.passes for line in lines)} of {len(lines)} pass; planned over smallest {excess.mean():+.2f}")


if __name__ == "__main__":
    main()
