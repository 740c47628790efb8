"""Plans of every kind, replayed: do they keep their promise, and would a smaller fleet have kept it?

Run with ``python -m benchmarks.plan_promises [--seeds 10] [--every N] [--confidence 50] [--public]``. Plans are those
that the command answers after ``roofcast warm-up``; ``--verify`` simulates every finalist, ``--no-verify`` none: those
are fleets of the closed form. They are for the times as predicted (``confidence`` 50) unless told otherwise, so that no
margin for slower steps hides a miss. A plan keeps its promise where nine of ten replays hold with all replicas up and
with the spares down; "above" is how many replicas it has beyond the smallest fleet that does. ``--public``: the ten
public workloads of ``benchmarks.search_breadth`` over all accelerators instead.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.search_breadth import WORKLOADS
from simulator.errors import RoofcastError
from simulator.planner.plan import checked, plan_capacity
from simulator.planner.verification.promise import Promise, SignedFleet, replayed_promise
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.plan_values import PROMISE_SEEDS

KEPT_SHARE, MOST_ABOVE = 0.95, 1

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One plan of the benchmark."""

    name: str
    fields: dict[str, Any]


def cases(confidence: float) -> Iterator[Case]:
    """Every model on each of its accelerators under each demand."""
    for model, accelerators in MODELS.items():
        for hardware in accelerators:
            for demand, fields in DEMANDS.items():
                given = {"model": model, "hardware": [hardware], "confidence": confidence, **fields}
                yield Case(name=f"{model} on {hardware}, {demand}", fields=given)


def public_cases(confidence: float) -> Iterator[Case]:
    """The ten public workloads, any accelerator."""
    for name, fields in WORKLOADS.items():
        yield Case(name=name, fields={"confidence": confidence, **fields})


def promise_of(case: Case, *, seeds: int, verify: bool | None) -> Promise:
    """Plan and replay. Raises RoofcastError where nothing serves the case."""
    plan = checked(plan_capacity(plan_spec({**case.fields, "verify": verify})))
    best = plan.best
    fleet = SignedFleet(hardware=best.hardware, label=best.label, replicas=best.replicas, spares=best.spares)
    return replayed_promise(plan, fleet, seeds=seeds)


def main() -> None:
    """Print a line a plan and the two shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=PROMISE_SEEDS)
    parser.add_argument("--every", type=int, default=1, help="each n-th plan")
    parser.add_argument("--confidence", type=float, default=50.0)
    parser.add_argument("--public", action="store_true")
    parser.add_argument("--verify", action=argparse.BooleanOptionalAction)
    given = parser.parse_args()
    kept = above = replayed = 0
    for case in list((public_cases if given.public else cases)(given.confidence))[:: given.every]:
        start = time.process_time()
        try:
            promise = promise_of(case, seeds=given.seeds, verify=given.verify)
        except RoofcastError as error:
            print(f"{case.name:48} refused: {str(error)[:90]}")
            continue
        if promise.reason:
            print(f"{case.name:48} not simulated: {promise.reason[:90]}")
            continue
        replayed += 1
        kept += promise.kept
        planned, least = promise.fleet.replicas, promise.least_replicas
        extra = None if least is None else planned - least
        above += extra is not None and extra <= MOST_ABOVE
        held = " ".join(f"{item.found.held_fraction:.1f}" for item in promise.cases)
        said = "kept  " if promise.kept else "MISSED"
        print(
            f"{case.name:48} {promise.fleet.label:24} {planned:4} replicas {said} held {held}, least {least}, "
            f"{time.process_time() - start:.1f} s"
        )
    print(f"kept {kept} of {replayed} (bar {KEPT_SHARE:.0%}); at most {MOST_ABOVE} replica above the smallest: {above}")


if __name__ == "__main__":
    main()
