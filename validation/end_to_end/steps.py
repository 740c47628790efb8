"""Time per token of closed loops by its parts: measured and predicted, deployment by deployment.

The time between two tokens of a loop of B requests in flight is taken as

    TPOT = a + b B + c B context / 1000 + d (B - 1) ISL / OSL

with a fixed part, one per sequence, one per thousand tokens of context, and one of the prompts that pass between two
tokens of the others. The prediction is one decode step at B and the mean context, and what the prompts of B - 1
requests add to steps over the life of an answer: no queue, no client, so that a difference is one of kernels or of
the engine's step. B, context and prompts are those of one rank under attention data parallelism; B is what the cache
and the engine's limit hold where more are in flight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from simulator.engine.runs.scenario_setup import deployment_of
from simulator.errors import RoofcastError
from simulator.operators.work import decode_step, mixed_step
from simulator.phases.deployment import Deployment
from simulator.phases.memory import memory_plan, sequences_that_fit
from simulator.phases.step import estimate_step
from simulator.specs.base import validate
from simulator.specs.question.scenario import ScenarioSpec
from simulator.units import KILO, MICRO, MILLI
from validation.end_to_end.measured.inferencex import RANGE_RATIO, TodayRun

Array = NDArray[np.float64]
LEAST_RUNS = 6
"""Four parts are not told apart by fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Closed loops of one deployment, arrays over the runs.

    batch : sequences that run on one rank
    """

    key: tuple[str, ...]
    deployment: Deployment
    batch: Array
    isl_tokens: Array
    osl_tokens: Array
    measured_s: Array

    @property
    def context_tokens(self) -> Array:
        """Mean over the life of an answer [tokens]."""
        return self.isl_tokens + self.osl_tokens / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """a, b, c, d as above [s]."""

    fixed_s: float
    sequence_s: float
    context_s: float
    prompt_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopParts:
    """One deployment: its runs' signed errors, and the parts of what was measured and predicted."""

    key: tuple[str, ...]
    errors: Array
    measured: StepParts
    predicted: StepParts


def deployment_key(item: TodayRun) -> tuple[str, ...]:
    """What a row of the table stands for: chip, engine, model, weights, layout."""
    scenario = item.run.scenario
    tp, ep, dp = (int(scenario.get(name, 1)) for name in ("tp_size", "ep_size", "dp_size"))
    layout = f"DP{dp}" if dp > 1 else f"TP{tp}"
    return (item.hardware, item.engine, item.model.rsplit("/", 1)[-1], item.weights, f"{layout} EP{ep}")


def loops(runs: Iterable[TodayRun]) -> tuple[list[Loop], list[RoofcastError]]:
    """Runs without speculation that have a TPOT, by deployment; and why others are refused."""
    grouped: dict[tuple[str, ...], list[TodayRun]] = defaultdict(list)
    for item in runs:
        if item.speculation == "none" and "tpot_p50_s" in item.run.measured:
            grouped[deployment_key(item)].append(item)
    found, refused = [], []
    for key, members in sorted(grouped.items()):
        try:
            found.append(_loop(key, members))
        except RoofcastError as error:
            refused.append(error)
    return found, refused


def _loop(key: tuple[str, ...], members: Sequence[TodayRun]) -> Loop:
    scenarios = [validate(ScenarioSpec, item.run.scenario, where="inferencex") for item in members]
    deployment = deployment_of(scenarios[0])
    ranks = deployment.parallelism.dp_size
    isl, osl = (
        (1 + RANGE_RATIO) / 2 * np.array([float(item.run.scenario[name]) for item in members])
        for name in ("isl_tokens", "osl_tokens")
    )
    memory = memory_plan(deployment)
    held = np.array([sequences_that_fit(deployment, memory, tokens=tokens) for tokens in isl + osl / 2])
    wanted = np.array([float(item.run.scenario["concurrency"]) for item in members])
    return Loop(
        key=key,
        deployment=deployment,
        # A plan without room is wrong about the memory, not about what ran.
        batch=np.maximum(np.where(held >= 1, np.minimum(wanted, held), wanted) / ranks, 1.0),
        isl_tokens=isl,
        osl_tokens=osl,
        measured_s=np.array([item.run.measured["tpot_p50_s"] for item in members]),
    )


def predicted_seconds(loop: Loop) -> Array:
    """Time per token: one decode step, and the share of the prompts of all others [s]."""
    limit = float(loop.deployment.engine.max_num_batched_tokens)
    chunks = np.ceil(loop.isl_tokens / np.maximum(limit - loop.batch, 1.0))
    alone = decode_step(sequences=loop.batch, context=loop.context_tokens)
    beside = mixed_step(
        prefill_sequences=1.0,
        prefill_tokens=loop.isl_tokens / chunks,
        prefill_context=(loop.isl_tokens - loop.isl_tokens / chunks) / 2,
        prefill_logits=1.0 / chunks,
        decode_sequences=loop.batch,
        decode_context=loop.context_tokens,
    )
    step_s = estimate_step(loop.deployment, alone).step_s
    added_s = chunks * (estimate_step(loop.deployment, beside).step_s - step_s)
    total: Array = step_s + (loop.batch - 1) * added_s / loop.osl_tokens
    return total


def step_parts(loop: Loop, seconds: Array) -> StepParts:
    """The parts, none below zero, that make relative errors least."""
    columns = (
        np.ones_like(loop.batch),
        loop.batch,
        loop.batch * loop.context_tokens / KILO,
        (loop.batch - 1) * loop.isl_tokens / loop.osl_tokens,
    )
    found, _ = nnls(np.stack(columns, axis=1) / seconds[:, None], np.ones_like(seconds))
    fixed, sequence, context, prompt = (float(value) for value in found)
    return StepParts(fixed_s=fixed, sequence_s=sequence, context_s=context, prompt_s=prompt)


def loop_parts(found: Iterable[Loop]) -> list[LoopParts]:
    """Parts of every deployment with enough runs."""
    parts = []
    for loop in found:
        if len(loop.batch) < LEAST_RUNS:
            continue
        predicted_s = predicted_seconds(loop)
        parts.append(
            LoopParts(
                key=loop.key,
                errors=predicted_s / loop.measured_s - 1,
                measured=step_parts(loop, loop.measured_s),
                predicted=step_parts(loop, predicted_s),
            )
        )
    return parts


def _errors_text(errors: Array) -> str:
    """Median and mean absolute value in percent."""
    return f"{100 * float(np.median(errors)):+.0f} / {100 * float(np.abs(errors).mean()):.0f}"


def steps_table(parts: Iterable[LoopParts]) -> str:
    """Measured / predicted parts for people: a in ms, the others in us, errors of single runs in percent."""
    lines = [
        "| deployment | runs | error, median / mean absolute | a, ms | b, us | c, us | d, us |",
        "|---|---|---|---|---|---|---|",
    ]
    for item in parts:
        pairs = [
            (item.measured.fixed_s / MILLI, item.predicted.fixed_s / MILLI, 1),
            (item.measured.sequence_s / MICRO, item.predicted.sequence_s / MICRO, 0),
            (item.measured.context_s / MICRO, item.predicted.context_s / MICRO, 0),
            (item.measured.prompt_s / MICRO, item.predicted.prompt_s / MICRO, 0),
        ]
        error = _errors_text(item.errors)
        cells = [f"{measured:.{digits}f} / {predicted:.{digits}f}" for measured, predicted, digits in pairs]
        lines.append("| " + " | ".join((" ".join(item.key), str(len(item.errors)), error, *cells)) + " |")
    return "\n".join(lines) + "\n"


def groups_table(parts: Iterable[LoopParts]) -> str:
    """Errors by chip, engine and model over all layouts and formats."""
    grouped: Mapping[tuple[str, ...], list[Array]] = defaultdict(list)
    for item in parts:
        grouped[item.key[:3]].append(item.errors)
    lines = ["| chip, engine, model | runs | error, median / mean absolute |", "|---|---|---|"]
    for key, members in grouped.items():
        errors = np.concatenate(members)
        lines.append(f"| {' '.join(key)} | {len(errors)} | {_errors_text(errors)} |")
    return "\n".join(lines) + "\n"
