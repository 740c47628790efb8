"""Plans of every kind, replayed: do they keep their promise, and would a smaller fleet have kept it?

Run with ``python -m benchmarks.plan_promises [--seeds 10] [--every N] [--confidence 50] [--kind KIND] [--traces
FOLDER]``. Plans are those that the command answers after ``roofcast warm-up``; ``--verify`` simulates every finalist,
``--no-verify`` none: those are fleets of the closed form. They are for the times as predicted (``confidence`` 50)
unless told otherwise, so that no margin for slower steps hides a miss. A plan keeps its promise where nine of ten
replays hold with all replicas up and with the spares down, with other seeds than plans are checked with; "above" is how
many replicas it has beyond the smallest fleet that does.

Kinds: ``steady``, every model on its accelerators under each demand, and two pools where asked for; ``lengths``, fleets
of their own for short and for long prompts, each replayed with the requests of the whole demand that are as long;
``trace``, the first quarter of an hour of the traces of FOLDER (Azure 2023, Mooncake); ``public``, the ten public
workloads of ``benchmarks.search_breadth`` over all accelerators.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from pathlib import Path
from typing import Any

from benchmarks.search_breadth import WORKLOADS
from benchmarks.trace_deployments import DEPLOYED
from benchmarks.trace_plans import TRACES, objectives, shortened
from simulator.engine.runs.serving import ServedDeployment
from simulator.errors import RoofcastError
from simulator.planner.plan import checked, plan_capacity
from simulator.planner.records import Demand
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import Question
from simulator.planner.search.search import try_platforms
from simulator.planner.studies.length_split import LengthSplit, SplitFleet, part_of
from simulator.planner.verification.fleet_check import smallest_that_holds
from simulator.planner.verification.promise import (
    OTHER_SEEDS,
    Promise,
    PromiseCase,
    ReplayedCase,
    SignedFleet,
    replayed_promise,
)
from simulator.planner.verification.records import Verification
from simulator.planner.verification.simulation import ENOUGH, SteadyCheck
from simulator.planner.verification.traces import once_each, steady_states
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.plan_values import PROMISE_SEEDS
from simulator.traffic.requests import Requests, make_requests
from simulator.traffic.workload_requests import requests_of_mix

KEPT_SHARE, MOST_ABOVE = 0.95, 1
KINDS = ("steady", "lengths", "trace", "public")
TRACE_MINUTES = 15.0

MODELS = {
    "llama-3.1-8b": ("l40s", "h100"),
    "llama-3.1-70b": ("h100", "mi300x", "b200"),
    "qwen3-30b-a3b": ("a100", "h100"),
    "gpt-oss-120b": ("h100", "b200"),
    "deepseek-v3": ("h200", "b200"),
}
DEMANDS: dict[str, dict[str, Any]] = {
    "chat": {"rate_per_s": 10.0},
    "chat, many": {"rate_per_s": 150.0},
    "code, cached": {"rate_per_s": 8.0, "workload": "code", "prefix_hit": 0.5},
    "long context": {"rate_per_s": 1.0, "isl_tokens": 24_000, "osl_tokens": 400, "ttft_p95": "10s"},
    "reasoning": {"rate_per_s": 2.0, "workload": "reasoning"},
    "bursty": {"rate_per_s": 20.0, "arrival_cv": 2.0},
}
POOLS: dict[str, dict[str, Any]] = {
    "two pools": {"rate_per_s": 60.0, "serving": ["disaggregated"]},
    "two pools, long context": {
        "rate_per_s": 4.0,
        "serving": ["disaggregated"],
        "isl_tokens": 24_000,
        "ttft_p95": "10s",
    },
}
SPLIT: dict[str, dict[str, Any]] = {
    "by length": {
        "rate_per_s": 60.0,
        "isl_tokens": 2_000,
        "isl_cv": 1.5,
        "osl_tokens": 200,
        "serving": ["aggregated"],
        "pools": True,
    },
    "by length, long": {
        "rate_per_s": 6.0,
        "isl_tokens": 12_000,
        "isl_cv": 1.2,
        "osl_tokens": 300,
        "ttft_p95": "8s",
        "serving": ["aggregated"],
        "pools": True,
    },
}
REQUESTS = 4_000
"""Of a replay of one of two fleets by length, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One plan of the benchmark."""

    name: str
    fields: dict[str, Any]
    split: bool = False


def _on_accelerators(demands: dict[str, dict[str, Any]], *, split: bool = False) -> Iterator[Case]:
    for model, accelerators in MODELS.items():
        for hardware in accelerators:
            for demand, fields in demands.items():
                given = {"model": model, "hardware": [hardware], **fields}
                yield Case(name=f"{model} on {hardware}, {demand}", fields=given, split=split)


def _traced(folder: Path, *, short: Path) -> Iterator[Case]:
    """Tight bounds of the first token and of the others together, as the traces' own benchmark has them."""
    for deployed in DEPLOYED:
        for (name, file), rate in zip(TRACES.items(), deployed.rates, strict=True):
            path = shortened(folder / file, skip=0.0, minutes=TRACE_MINUTES, folder=short)
            bounds = next(objectives(deployed, trace=name, quick=True, percentile=95))
            where = {"model": deployed.model, "hardware": [deployed.hardware], "tp": deployed.tp}
            yield Case(
                name=f"{deployed.model} on {deployed.hardware}, trace {name}",
                fields={**where, "trace": str(path), "rps": rate, **bounds},
            )


def cases(kinds: Sequence[str], *, traces: Path | None, short: Path) -> Iterator[Case]:
    """Of the kinds asked for; traces where there is a folder of them."""
    if "steady" in kinds:
        yield from _on_accelerators(DEMANDS)
        yield from _on_accelerators(POOLS)
    if "lengths" in kinds:
        yield from _on_accelerators(SPLIT, split=True)
    if "trace" in kinds and traces is not None:
        yield from _traced(traces, short=short)
    if "public" in kinds:
        for name, fields in WORKLOADS.items():
            yield Case(name=name, fields=fields)


def _of_lengths(demand: Demand, part: SplitFleet, *, seed: int, block_size_tokens: int) -> Requests:
    """The requests of the whole demand whose prompts are as long as one of two fleets takes them."""
    count = ceil(REQUESTS * demand.planned_rate_per_s / part.rate_per_s)
    whole = requests_of_mix(
        demand.mix, rate_per_s=demand.planned_rate_per_s, count=count, seed=seed, block_size_tokens=block_size_tokens
    )
    longest = inf if part.to_tokens is None else part.to_tokens
    taken = (whole.prompt_tokens >= part.from_tokens) & (whole.prompt_tokens < longest)
    return make_requests(
        arrival_s=whole.arrival_s[taken],
        prompt_tokens=whole.prompt_tokens[taken],
        output_tokens=whole.output_tokens[taken],
    )


def _split_promise(question: Question, part: SplitFleet, *, seeds: int) -> Promise:
    """One of two fleets by length, as its study sized it, under its share of the whole demand."""
    longest = inf if part.to_tokens is None else part.to_tokens
    own = replace(question, demand=part_of(question.demand, low=part.from_tokens, high=longest))
    tried = try_platforms(own, platforms(own.spec)).trial.sized
    sized = next(item for item in tried if item.evaluated.candidate.label == part.label)
    served = ServedDeployment(deployment=sized.evaluated.replica.deployment)
    block = served.deployment.engine.block_size_tokens
    samples = tuple(
        _of_lengths(question.demand, part, seed=seed, block_size_tokens=block)
        for seed in range(OTHER_SEEDS, OTHER_SEEDS + seeds)
    )
    check, state = (
        SteadyCheck(served=served, samples=samples, objectives=question.objectives),
        steady_states(own, sized),
    )

    @once_each
    def at(replicas: int) -> Verification:
        found = check.at(state(replicas))
        return replace(found, holds=found.held_fraction >= ENOUGH)

    fleet = SignedFleet(hardware=part.hardware, label=part.label, replicas=part.replicas, spares=part.spares)
    ups = {PromiseCase.ALL_UP: fleet.replicas + fleet.spares, PromiseCase.SPARES_DOWN: fleet.replicas}
    cases_of = tuple(ReplayedCase(case=case, replicas=up, found=at(up)) for case, up in ups.items())
    least = smallest_that_holds(at, planned=fleet.replicas, fewer=True)
    return Promise(fleet=fleet, cases=cases_of, least_replicas=least)


def promises_of(case: Case, *, confidence: float, seeds: int, verify: bool | None) -> Iterator[Promise]:
    """Plan and replay. Raises RoofcastError where nothing serves the case."""
    plan = checked(plan_capacity(plan_spec({"confidence": confidence, "verify": verify, **case.fields})))
    question, best = plan.basis.question, plan.best
    if plan.finalists is not None and not plan.finalists.chosen.found.holds:
        # Nothing is promised: the plan itself says that it misses.
        raise RoofcastError("planned, and said to miss its objectives in the simulation", field="verify")
    if case.split:
        split = plan.study(LengthSplit)
        for part in split.fleets if split is not None else ():
            yield _split_promise(question, part, seeds=seeds)
        return
    fleet = SignedFleet(hardware=best.hardware, label=best.label, replicas=best.replicas, spares=best.spares)
    yield replayed_promise(plan, fleet, seeds=seeds)


@dataclass(slots=True)
class Count:
    """Of replayed plans, how many keep their promise and how many are at most one replica above the smallest."""

    replayed: int = 0
    kept: int = 0
    near: int = 0

    def add(self, case: Case, promise: Promise, *, seconds: float) -> None:
        """Count and print one."""
        if promise.reason:
            print(f"{case.name:48} not simulated: {promise.reason[:90]}", flush=True)
            return
        planned, least = promise.fleet.replicas, promise.least_replicas
        self.replayed += 1
        self.kept += promise.kept
        self.near += least is not None and planned - least <= MOST_ABOVE
        held = " ".join(f"{item.found.held_fraction:.1f}" for item in promise.cases)
        said = "kept  " if promise.kept else "MISSED"
        where = f"{promise.fleet.label:24} {planned:4} replicas"
        print(f"{case.name:48} {where} {said} held {held}, least {least}, {seconds:.1f} s", flush=True)


def main() -> None:
    """Print a line a plan and the two shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=PROMISE_SEEDS)
    parser.add_argument("--every", type=int, default=1, help="each n-th plan")
    parser.add_argument("--confidence", type=float, default=50.0)
    parser.add_argument("--kind", choices=KINDS, action="append", help="repeatable; all but public by default")
    parser.add_argument("--traces", type=Path, metavar="FOLDER")
    parser.add_argument("--verify", action=argparse.BooleanOptionalAction)
    given = parser.parse_args()
    count = Count()
    with tempfile.TemporaryDirectory() as short:
        found = list(cases(given.kind or KINDS[:-1], traces=given.traces, short=Path(short)))
        for case in found[:: given.every]:
            start = time.process_time()
            try:
                promises = list(promises_of(case, confidence=given.confidence, seeds=given.seeds, verify=given.verify))
            except RoofcastError as error:
                print(f"{case.name:48} refused: {str(error)[:90]}", flush=True)
                continue
            for promise in promises:
                count.add(case, promise, seconds=time.process_time() - start)
    share = f"kept {count.kept} of {count.replayed} (bar {KEPT_SHARE:.0%})"
    print(f"{share}; at most {MOST_ABOVE} replica above the smallest: {count.near}")


if __name__ == "__main__":
    main()
