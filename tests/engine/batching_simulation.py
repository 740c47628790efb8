"""A second opinion for the closed form: continuous batching with chunked prefill, one step at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.engine.lanes.limits import LaneLimits
from simulator.engine.lanes.pricing import StepTimes
from simulator.operators.work import mixed_step
from simulator.traffic.lengths import RequestMix


@dataclass(frozen=True)
class SimulatedRun:
    """Per-request latencies after warm-up, and the time-averaged number of requests in the system."""

    ttft_s: np.ndarray
    tpot_s: np.ndarray
    e2e_s: np.ndarray
    mean_in_system: float
    rate_per_s: float


def _lengths(rng: np.random.Generator, *, mean: float, cv: float, count: int) -> np.ndarray:
    variance = np.log1p(cv**2)
    return np.maximum(1, np.rint(rng.lognormal(np.log(mean) - variance / 2, np.sqrt(variance), count))).astype(int)


def simulate(
    decode_s: float,
    sequence_s: float,
    token_s: float,
    *,
    mix: RequestMix,
    limits: LaneLimits,
    rate_per_s: float,
    requests: int,
    seed: int,
) -> SimulatedRun:
    """FCFS; a step decodes all running sequences and fills the token budget with waiting prompts.

    A step takes decode_s + sequence_s * sequences + token_s * prompt tokens. As in an engine that prepares steps
    ahead, a prompt joins the second step to start after it arrived.
    """
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate_per_s, requests))
    prompts = _lengths(rng, mean=mix.isl.mean_tokens, cv=mix.isl.cv, count=requests)
    answers = _lengths(rng, mean=mix.osl.mean_tokens, cv=mix.osl.cv, count=requests)
    left_prompt, left_answer = prompts.copy(), answers.copy()
    first, last = np.zeros(requests), np.zeros(requests)
    running: list[int] = []
    prefilling: list[int] = []
    now, previous_start, admitted = 0.0, 0.0, 0
    while admitted < requests or running or prefilling:
        if not running and not prefilling and arrivals[admitted] > now:
            now = previous_start = arrivals[admitted]
        while (
            admitted < requests
            and arrivals[admitted] <= previous_start
            and len(running) + len(prefilling) < limits.sequences
        ):
            prefilling.append(admitted)
            admitted += 1
        budget, done = limits.batched_tokens - len(running), []
        tokens = 0
        for index in prefilling:
            chunk = min(budget - tokens, left_prompt[index])
            if chunk <= 0:
                break
            left_prompt[index] -= chunk
            tokens += chunk
            if left_prompt[index] == 0:
                done.append(index)
        previous_start = now
        now += decode_s + sequence_s * len(running) + token_s * tokens if running or tokens else 0.0
        still = []
        for index in running:
            left_answer[index] -= 1
            if left_answer[index] == 0:
                last[index] = now
            else:
                still.append(index)
        for index in done:
            prefilling.remove(index)
            first[index] = last[index] = now
            left_answer[index] -= 1
            if left_answer[index] > 0:
                still.append(index)
        running = still
    warm = slice(requests // 5, requests - requests // 20)
    ttft, e2e = first - arrivals, last - arrivals
    decoding = answers > 1
    tpot = np.where(decoding, (e2e - ttft) / np.maximum(answers - 1, 1), np.nan)
    span = arrivals[warm][-1] - arrivals[warm][0]
    return SimulatedRun(
        ttft_s=ttft[warm],
        tpot_s=tpot[warm][decoding[warm]],
        e2e_s=e2e[warm],
        mean_in_system=float(e2e[warm].sum() / span),
        rate_per_s=float((len(ttft[warm]) - 1) / span),
    )


def affine_steps(decode_s: float, sequence_s: float, token_s: float) -> StepTimes:
    """The same step time as a StepShape function."""
    return lambda step: (
        decode_s + sequence_s * step.decode_sequences + token_s * step.prefill_sequences * step.prefill_tokens
    )


__all__ = ["SimulatedRun", "affine_steps", "mixed_step", "simulate"]
