"""One engine of a closed loop between two events: which steps it takes, and when they end.

Requests keep their lengths and their place, nothing is looked up per token: decodes go on in runs that end with the
next answer or the next prompt, so that the work is one event per request and prompt chunk however long answers are.

Left out: preemption (seats are those that the cache holds at mean lengths) and prefix hits.

Reference: [Agrawal2024] chunked prompts beside decodes; [Zheng2024] prompts before decodes; [VllmTeam2025] one step
ahead
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf

import numpy as np
from numpy.typing import NDArray

from simulator.engine.uniform.clock import NO_CHUNKS, Chunks, StepClock
from simulator.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPolicy:
    """What one rank takes in and what a step is made of.

    resident : sequences at once; step_tokens : new tokens of a step
    decodes_beside : decodes go first in every step and prompts take the rest of its tokens; else prompts have steps of
        their own while there are any (SGLang)
    chunked : prompts are split over steps; whole ones wait until they fit beside what runs
    ahead : the next step is put together when the current one starts, not when it ends
    gather_steps : steps that prompts wait until every rank has one to start
    """

    resident: int
    step_tokens: int
    decodes_beside: bool = True
    chunked: bool = True
    ahead: bool = False
    gather_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopWork:
    """What each request takes of an engine.

    prompt_tokens : to compute, 0 where another pool has done so; context_tokens : cached with the first token
    decode_steps : after the first token; growth : tokens that its context gains in each of them
    prompts, contexts : fewest and most tokens that a prompt takes, and that are cached of what decodes
    """

    prompt_tokens: Sequence[int]
    context_tokens: Sequence[int]
    decode_steps: Sequence[int]
    growth: Sequence[float]
    prompts: tuple[int, int]
    contexts: tuple[int, int]


class _Rank:
    """One scheduler: who waits, whose prompt is under way, who decodes. ``step`` counts its steps that decode."""

    __slots__ = (
        "chunks",
        "context",
        "decodes",
        "ending",
        "finishing",
        "growth",
        "prompts",
        "running",
        "starting",
        "step",
        "waiting",
    )

    def __init__(self) -> None:
        self.waiting: list[tuple[float, int]] = []
        self.prompts: deque[list[int]] = deque()
        self.finishing: dict[int, list[int]] = {}
        self.ending: list[int] = []
        self.running = 0
        self.step = 0
        self.context = 0.0
        self.growth = 0.0
        self.chunks: Chunks = NO_CHUNKS
        self.decodes = False
        self.starting: list[int] = []

    @property
    def load(self) -> int:
        """Requests that it has."""
        return len(self.waiting) + len(self.prompts) + self.running


class Engine:
    """Ranks that step together (one, or those of attention data parallelism, of which the slowest sets the pace).

    event_s : when what is under way ends, or when an idle engine wakes (infinite where nobody comes)
    seated : requests whose prompt another pool has computed, that have a seat since ``begin``
    expert_s : seconds by new tokens of what the ranks share, () where there is one rank: every rank waits for the
        tokens of all, so that their mean counts there and the slowest rank's own everywhere else
    """

    def __init__(
        self,
        clock: StepClock,
        *,
        policy: LoopPolicy,
        work: LoopWork,
        ranks: int = 1,
        expert_s: NDArray[np.float64] | None = None,
    ) -> None:
        self.clock, self.policy, self.work = clock, policy, work
        self.event_s = inf
        self.seated: list[int] = []
        self.busy_s = 0.0
        self.steps = 0
        self._ranks = [_Rank() for _ in range(ranks)]
        self._expert_s = expert_s
        self._idle = True
        self._run = self._held = 0
        self._start_s = self._last_start_s = 0.0

    def deliver(self, request: int, *, ready_s: float) -> None:
        """Give it a request that reaches the queue of its emptiest rank at ``ready_s``."""
        ranks = self._ranks
        rank = ranks[0] if len(ranks) == 1 else min(ranks, key=lambda one: one.load)
        heappush(rank.waiting, (ready_s, request))
        if self._idle:
            self.event_s = min(self.event_s, ready_s)
        elif self._run > 1 and ready_s < self.event_s and rank.running < self.policy.resident:
            self._run = min(self._run, self._steps_until(ready_s))
            self.event_s = self._start_s + self._run_s(self._run)

    @property
    def ranks(self) -> int:
        """How many step together."""
        return len(self._ranks)

    @property
    def load(self) -> int:
        """Requests that its ranks have."""
        return sum(rank.load for rank in self._ranks)

    def begin(self, now_s: float) -> None:
        """Put the next step or run of decodes together; idle where there is nothing to do."""
        if self._idle:
            # There is no step under way to be one ahead of.
            self._idle, self._last_start_s = False, now_s
        seen_s = self._last_start_s if self.policy.ahead else now_s
        self.seated = []
        self._admit(seen_s)
        prompts = busy = False
        for rank in self._ranks:
            if rank.prompts:
                prompts = True
            elif rank.running:
                busy = True
        if not (busy or prompts):
            self._idle = True
            self.event_s = max(now_s, min((rank.waiting[0][0] for rank in self._ranks if rank.waiting), default=inf))
            return
        self._start_s, self._run = now_s, 0
        holds = self.policy.gather_steps > 0 and self._holds()
        if holds or not prompts:
            self._run = min(rank.ending[0] - rank.step for rank in self._ranks if rank.ending)
            if holds:
                self._run = min(self._run, self.policy.gather_steps - self._held)
            for rank in self._ranks:
                if rank.waiting and rank.running < self.policy.resident:
                    self._run = min(self._run, self._steps_until(rank.waiting[0][0]))
            self.event_s = now_s + self._run_s(self._run)
            return
        self._held = 0
        for rank in self._ranks:
            self._compose(rank)
        self.event_s = now_s + self._step_s()

    def _holds(self) -> bool:
        """Whether prompts wait for those of other ranks: none has begun, some rank has none yet and some decodes."""
        if self._held >= self.policy.gather_steps or len(self._ranks) == 1:
            return False
        heads = [rank.prompts[0][1] if rank.prompts else None for rank in self._ranks]
        fresh = 0 in heads and None in heads and not any(heads)
        return fresh and any(rank.running for rank in self._ranks)

    def _admit(self, seen_s: float) -> None:
        """Seat requests that have come by ``seen_s``, first come first served."""
        resident, prompt_tokens = self.policy.resident, self.work.prompt_tokens
        for rank in self._ranks:
            waiting, prompts = rank.waiting, rank.prompts
            while waiting and waiting[0][0] <= seen_s:
                if rank.running + len(prompts) >= resident:
                    break
                request = heappop(waiting)[1]
                if prompt_tokens[request]:
                    prompts.append([request, 0])
                else:
                    self._decode(rank, request)
                    self.seated.append(request)

    def _decode(self, rank: _Rank, request: int) -> None:
        """Let a request whose first token is there decode from the next step on."""
        work = self.work
        last = rank.step + work.decode_steps[request]
        together = rank.finishing.get(last)
        if together is None:
            rank.finishing[last] = [request]
            heappush(rank.ending, last)
        else:
            together.append(request)
        rank.running += 1
        rank.context += work.context_tokens[request]
        rank.growth += work.growth[request]

    def _compose(self, rank: _Rank) -> None:
        """Fill the rank's next step with decodes and prompt tokens."""
        policy, prompt_tokens = self.policy, self.work.prompt_tokens
        starting: list[int] = []
        rank.starting = starting
        rank.chunks = NO_CHUNKS
        rank.decodes = rank.running > 0 and (policy.decodes_beside or not rank.prompts)
        budget = policy.step_tokens
        if rank.decodes:
            budget -= rank.running * self.clock.verify_tokens
        sequences = tokens = 0
        work2 = 0.0
        for entry in rank.prompts:
            request, done = entry
            chunk = left = prompt_tokens[request] - done
            if budget <= 0 or (left > budget and sequences and not policy.chunked):
                break
            if left > budget:
                chunk = budget
            budget -= chunk
            sequences, tokens = sequences + 1, tokens + chunk
            work2 += chunk * (2.0 * done + chunk)
            if chunk == left:
                starting.append(request)
            else:
                entry[1] = done + chunk
        for _ in starting:
            rank.prompts.popleft()
        if sequences:
            rank.chunks = Chunks(sequences, tokens, work2, len(starting))

    def _rank_step_s(self, rank: _Rank) -> float:
        sequences = rank.running if rank.decodes else 0
        context = rank.context / sequences if sequences else 0.0
        if rank.chunks.tokens:
            return self.clock.mixed_step_s(rank.chunks, sequences=sequences, context=context)
        if not sequences:
            return 0.0
        growth = rank.growth / sequences
        return self.clock.decode_run_s(sequences, context=context, growth=growth, steps=1)

    def _step_s(self) -> float:
        """Time of the composed step: of one rank, or of the slowest with the shared part at the mean load."""
        if len(self._ranks) == 1:
            return self._rank_step_s(self._ranks[0])
        verify = self.clock.verify_tokens
        tokens = [rank.chunks.tokens + (rank.running * verify if rank.decodes else 0) for rank in self._ranks]
        return self._slowest_s([self._rank_step_s(rank) for rank in self._ranks], tokens=tokens, steps=1)

    def _slowest_s(self, seconds: list[float], *, tokens: list[int], steps: int) -> float:
        shared = self._expert_s
        if shared is None:
            return max(seconds)
        own = max(one - steps * float(shared[count]) for one, count in zip(seconds, tokens, strict=True))
        return own + steps * float(shared[-(-sum(tokens) // len(tokens))])

    def _run_s(self, steps: int) -> float:
        """Time of the next ``steps`` steps of decodes alone."""
        seconds = [
            self.clock.decode_run_s(
                rank.running, context=rank.context / rank.running, growth=rank.growth / rank.running, steps=steps
            )
            for rank in self._ranks
            if rank.running
        ]
        if len(self._ranks) == 1:
            return seconds[0]
        tokens = [rank.running * self.clock.verify_tokens for rank in self._ranks if rank.running]
        missing = len(self._ranks) - len(tokens)
        return self._slowest_s(seconds + [0.0] * missing, tokens=tokens + [0] * missing, steps=steps)

    def _steps_until(self, arrival_s: float) -> int:
        """Decode steps of the current run before a request that comes at ``arrival_s`` can join."""
        longest = max((rank for rank in self._ranks if rank.running), key=lambda one: one.running)
        steps = self.clock.steps_within(
            longest.running,
            context=longest.context / longest.running,
            growth=longest.growth / longest.running,
            span_s=max(arrival_s - self._start_s, 0.0),
        )
        return max(1, steps + 1 if self.policy.ahead else steps)

    def complete(self) -> tuple[list[int], list[int]]:
        """End what was under way at ``event_s``: requests with their first token, and those with their last."""
        started: list[int] = []
        done: list[int] = []
        if self._idle:
            return started, done
        steps = max(1, self._run)
        if self._run and any(rank.prompts for rank in self._ranks):
            self._held += steps
        decode_steps = self.work.decode_steps
        for rank in self._ranks:
            if self._run or rank.decodes:
                self._advance(rank, steps, done)
            if not self._run:
                started += rank.starting
                for request in rank.starting:
                    if decode_steps[request]:
                        self._decode(rank, request)
                    else:
                        done.append(request)
        span_s = self.event_s - self._start_s
        self.busy_s += span_s
        self.steps += steps
        self._last_start_s = self.event_s - span_s / steps
        self._run = 0
        return started, done

    def _advance(self, rank: _Rank, steps: int, done: list[int]) -> None:
        """Count ``steps`` steps that decode, and let those leave that are done with the last of them."""
        rank.step += steps
        rank.context += rank.growth * steps
        if rank.ending and rank.ending[0] <= rank.step:
            work, leaving = self.work, rank.finishing.pop(heappop(rank.ending))
            done += leaving
            rank.running -= len(leaving)
            for request in leaving:
                growth = work.growth[request]
                rank.growth -= growth
                rank.context -= work.context_tokens[request] + growth * work.decode_steps[request]
            if not rank.running:
                # Sums of fractions do not come back to exactly nothing.
                rank.context = rank.growth = 0.0
