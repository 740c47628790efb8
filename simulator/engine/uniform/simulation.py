"""Requests of equal lengths, step by step: a closed loop of clients, or everything queued at once.

Equal lengths keep the state small: sequences that got their first token in the same step stay together until they
finish, so that a step costs a few look-ups however large the batch is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulator.errors import RoofcastError
from simulator.operators.step_shape import decode_step
from simulator.phases.compiled import StepTables, device_seconds, step_seconds, steps_seconds

Array = NDArray[np.float64]
# A run that needs more steps than this is a mistake in the question, not a long experiment.
MAX_STEPS = 5_000_000
MAX_REQUESTS = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformDemand:
    """``requests`` requests of equal lengths, ``at_once`` of them sent at t = 0, each later one when one is answered.

    delay_s : from sending a request to its place in the queue
    """

    requests: int
    at_once: int
    isl_tokens: int
    osl_tokens: int
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformLimits:
    """What one replica takes: sequences at once, and new tokens per step."""

    resident: int
    step_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformRounds:
    """Speculation of equal requests.

    needed : verify steps that each request takes after its first token; verify_tokens : tokens of a sequence in one
    draft_s : what a step takes beside, by number of decoding sequences from 0 on [s]
    prompt_token_s : what the drafter takes for one token of a prompt [s]
    """

    needed: NDArray[np.int64]
    verify_tokens: int
    draft_s: Array
    prompt_token_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformRecords:
    """Times of every request [s]: sent, first token, last token."""

    sent_s: Array
    first_token_s: Array
    finish_s: Array
    steps: int


@dataclass(slots=True, kw_only=True)
class _State:
    """The replica between two steps."""

    waiting: deque[tuple[float, int]] = field(default_factory=deque)
    prefilling: deque[list[int]] = field(default_factory=deque)
    finishing: dict[int, list[int]] = field(default_factory=dict)
    decoding: int = 0
    context: float = 0
    growth: float = 0.0
    sent: int = 0


def _admit(state: _State, *, now_s: float, limits: UniformLimits) -> None:
    """Move requests that have arrived into the batch, first come first served."""
    while state.waiting and state.waiting[0][0] <= now_s:
        if state.decoding + len(state.prefilling) >= limits.resident:
            return
        state.prefilling.append([state.waiting.popleft()[1], 0])


def _take_prompts(state: _State, *, isl_tokens: int, budget: int) -> tuple[int, int, float, list[int]]:
    """Give prompts the step's remaining tokens in order.

    Returns the sequences and tokens that prefill, the sum of q (2 c + q) over them, and the requests that complete.
    """
    sequences = tokens = 0
    work2 = 0.0
    complete: list[int] = []
    for entry in state.prefilling:
        if budget <= 0:
            break
        done = entry[1]
        chunk = min(isl_tokens - done, budget)
        budget -= chunk
        sequences, tokens = sequences + 1, tokens + chunk
        work2 += chunk * (2.0 * done + chunk)
        entry[1] = done + chunk
        if entry[1] == isl_tokens:
            complete.append(entry[0])
    for _ in complete:
        state.prefilling.popleft()
    return sequences, tokens, work2, complete


def _verify_seconds(
    tables: StepTables, rounds: UniformRounds, *, prompts: tuple[int, int, float], logits: int, state: _State
) -> float:
    """Time of a step whose decoding sequences verify their guesses, drafting included [s]."""
    sequences, tokens, work2 = prompts
    attended = state.context + state.decoding * rounds.verify_tokens
    verify = rounds.verify_tokens
    device_s = device_seconds(tables, sequences, tokens, work2, logits, state.decoding, verify, attended)
    host_s = tables.step_s + tables.sequence_s * (sequences + state.decoding)
    return float(host_s + device_s + rounds.draft_s[state.decoding] + rounds.prompt_token_s * tokens)


def _start(
    state: _State, complete: list[int], *, step: int, demand: UniformDemand, rounds: UniformRounds | None
) -> None:
    """Let requests that have their first token decode, and note in which step they will be done."""
    if rounds is None:
        state.finishing[step + demand.osl_tokens - 1] = complete
    else:
        for request in complete:
            needed = int(rounds.needed[request])
            state.finishing.setdefault(step + needed, []).append(request)
            state.growth += (demand.osl_tokens - 1) / needed
    state.decoding += len(complete)
    state.context += len(complete) * demand.isl_tokens


def _leave(state: _State, leaving: list[int], *, demand: UniformDemand, rounds: UniformRounds | None) -> None:
    """Take requests that are done out of the batch."""
    state.decoding -= len(leaving)
    state.context -= len(leaving) * (demand.isl_tokens + demand.osl_tokens - 1)
    if rounds is not None:
        state.growth -= sum((demand.osl_tokens - 1) / int(rounds.needed[request]) for request in leaving)


def _undisturbed(tables: StepTables, state: _State, *, now_s: float, step: int, limits: UniformLimits) -> Array:
    """Ends of the decode steps that come before the next one that ends a request, or admits one [s]."""
    number = min(state.finishing) - step - 1
    if number < 1:
        return np.zeros(0)
    contexts = state.context / state.decoding + np.arange(1.0, number + 1)
    seconds = steps_seconds(tables, decode_step(sequences=float(state.decoding), context=contexts))
    ends_s: Array = now_s + np.cumsum(seconds)
    if state.waiting and state.decoding < limits.resident:
        # The step under way when a request arrives is the last undisturbed one.
        ends_s = ends_s[: int(np.searchsorted(ends_s, state.waiting[0][0])) + 1]
    return ends_s


def simulate_uniform(
    tables: StepTables, *, demand: UniformDemand, limits: UniformLimits, rounds: UniformRounds | None = None
) -> UniformRecords:
    """Run ``demand`` on one replica: decoding sequences first, then prompts in chunks, as serving engines do.

    rounds : verify steps in place of decode steps; ``tables`` are then those of steps with several decode tokens
    """
    if demand.requests > MAX_REQUESTS:
        raise RoofcastError(
            f"{demand.requests} requests; allowed: up to {MAX_REQUESTS}",
            field="num_requests",
            hint="equal requests repeat themselves: fewer give the same rate",
        )
    sent_s, first_s, finish_s = (np.zeros(demand.requests) for _ in range(3))
    state = _State(sent=demand.at_once)
    state.waiting.extend((demand.delay_s, request) for request in range(demand.at_once))
    now_s, step, finished = 0.0, 0, 0
    while finished < demand.requests:
        _admit(state, now_s=now_s, limits=limits)
        if not state.prefilling and not state.decoding:
            now_s = state.waiting[0][0]
            continue
        if rounds is None and not state.prefilling:
            ends_s = _undisturbed(tables, state, now_s=now_s, step=step, limits=limits)
            if len(ends_s):
                now_s, step = float(ends_s[-1]), step + len(ends_s)
                state.context += state.decoding * len(ends_s)
                continue
        decoding = state.decoding
        budget = limits.step_tokens - decoding * (rounds.verify_tokens if rounds else 1)
        sequences, tokens, work2, complete = _take_prompts(state, isl_tokens=demand.isl_tokens, budget=budget)
        if rounds is None:
            state.context += decoding
            now_s += float(step_seconds(tables, sequences, tokens, work2, len(complete), decoding, state.context))
        else:
            prompts = (sequences, tokens, work2)
            now_s += _verify_seconds(tables, rounds, prompts=prompts, logits=len(complete), state=state)
            state.context += state.growth
        step += 1
        if step > MAX_STEPS:
            raise RoofcastError(
                f"the run needs more than {MAX_STEPS} steps", field="num_requests", hint="ask for fewer"
            )
        leaving = state.finishing.pop(step, [])
        _leave(state, leaving, demand=demand, rounds=rounds)
        first_s[complete] = now_s
        if demand.osl_tokens == 1:
            leaving = leaving + complete
        elif complete:
            _start(state, complete, step=step, demand=demand, rounds=rounds)
        finish_s[leaving] = now_s
        finished += len(leaving)
        for _ in leaving:
            if state.sent < demand.requests:
                sent_s[state.sent] = now_s
                state.waiting.append((now_s + demand.delay_s, state.sent))
                state.sent += 1
    return UniformRecords(sent_s=sent_s, first_token_s=first_s, finish_s=finish_s, steps=step)
