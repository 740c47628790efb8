"""A closed loop of clients, or everything queued at once, event by event.

Decodes go on in runs that end with the next answer or the next prompt, so that the work is one event per request and
prompt chunk however long answers are. The engine whose next event is earliest goes first. An answer makes its client
send the next request. A prompt that is done in a pool of its own goes over its engine's link to the emptiest engine of
the decode pool.

Reference: [VllmTeam2025] one step ahead
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf
from operator import attrgetter

import numpy as np

from simulator.engine.uniform.clock import StepClock
from simulator.engine.uniform.loop_requests import LoopDemand, LoopRecords
from simulator.engine.uniform.scheduler import LoopPolicy, LoopWork, Pipeline, Rank
from simulator.errors import RoofcastError
from simulator.specs.engine.fits import host_tokens

MAX_EVENTS = 2_000_000
"""Steps with prompts, and runs of decodes between them: some seconds of computing."""
_FEW_ENGINES = 16
"""So many are looked through faster than they are ranked."""


class Engine:
    """Ranks that step together (one, or those of attention data parallelism, of which the slowest sets the pace).

    event_s : when what is under way ends, or when an idle engine wakes (infinite where nobody comes)
    seated : requests whose prompt another pool has computed, that have a seat since ``begin``
    pipeline : that its steps pass, beside those of other engines
    """

    def __init__(
        self, clock: StepClock, *, policy: LoopPolicy, work: LoopWork, ranks: int = 1, pipeline: Pipeline | None = None
    ) -> None:
        self.clock, self.policy = clock, policy
        self._pipeline = pipeline
        self.event_s = inf
        self.seated: list[int] = []
        self.busy_s = 0.0
        self.steps = 0
        self._ranks, self._rooms = [Rank(policy, work) for _ in range(ranks)], work.rooms
        self._idle = True
        self._run = self._held = 0
        self._start_s = self._last_start_s = 0.0

    def deliver(self, request: int, *, ready_s: float) -> None:
        """Give it a request that reaches the queue of its emptiest rank, or of that of its room, at ``ready_s``."""
        ranks, rooms = self._ranks, self._rooms
        if len(ranks) == 1:
            rank = ranks[0]
        else:
            rank = ranks[rooms[request] % len(ranks)] if rooms else min(ranks, key=lambda one: one.load)
        heappush(rank.waiting, (ready_s, request))
        if self._idle:
            self.event_s = min(self.event_s, ready_s)
        elif self._run > 1 and ready_s < self.event_s and rank.has_room():
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
        prompts = busy = False
        for rank in self._ranks:
            if not rank.makes_room():
                self.seated += rank.admit(seen_s)
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
                if rank.waiting and rank.has_room():
                    self._run = min(self._run, self._steps_until(rank.waiting[0][0]))
                if self.policy.cache_tokens < inf and rank.running:
                    self._run = min(self._run, rank.steps_in_cache())
            if self._pipeline is not None:
                self._run = 1
            self.event_s = self._end_s(now_s, self._run_s(self._run))
            return
        self._held = 0
        for rank in self._ranks:
            rank.compose(verify_tokens=self.clock.verify_tokens)
        self.event_s = self._end_s(now_s, self._step_s())

    def _end_s(self, now_s: float, seconds: float) -> float:
        return now_s + seconds if self._pipeline is None else self._pipeline.end_s(now_s, seconds)

    def _holds(self) -> bool:
        """Whether prompts wait for those of other ranks: none has begun, some rank has none yet and some decodes."""
        if self._held >= self.policy.gather_steps or len(self._ranks) == 1:
            return False
        heads = [rank.prompts[0][1] if rank.prompts else None for rank in self._ranks]
        fresh = 0 in heads and None in heads and not any(heads)
        return fresh and any(rank.running for rank in self._ranks)

    def _rank_step_s(self, rank: Rank) -> float:
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
        """The slowest rank's own time, and what all share at their mean load."""
        shared = self.clock.shared_s
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
        for rank in self._ranks:
            if self._run or rank.decodes:
                rank.advance(steps, done)
            if not self._run:
                started += [request for request in rank.starting if request not in rank.thrown_out]
                for request in rank.starting:
                    context, further = rank.left(request)
                    rank.held -= context
                    if further:
                        rank.decode(request)
                    else:
                        done.append(request)
        span_s = self.event_s - self._start_s
        self.busy_s += span_s
        self.steps += steps
        self._last_start_s = self.event_s - span_s / steps
        self._run = 0
        return started, done


class _Ranking:
    """Engines by a number of theirs: the least first, of equals the one that stands first. Many are kept in a heap, so
    that thousands take hardly longer than a few; what it holds of an engine that has changed since is passed over.

    only : the engine, if there is but one; changed : engines whose number may be another one
    """

    def __init__(self, engines: Sequence[Engine], *, by: Callable[[Engine], float]) -> None:
        self._engines, self._by = engines, by
        self.only = engines[0] if len(engines) == 1 else None
        self._place = {engine: place for place, engine in enumerate(engines)}
        self._heap: list[tuple[float, int]] = []
        self.changed = set(engines)

    def first(self) -> Engine:
        """The engine whose number is least."""
        if self.only is not None:
            return self.only
        if len(self._engines) <= _FEW_ENGINES:
            return min(self._engines, key=self._by)
        if len(self._heap) > 4 * len(self._engines):
            self._heap, self.changed = [], set(self._engines)
        for engine in self.changed:
            heappush(self._heap, (self._by(engine), self._place[engine]))
        self.changed.clear()
        while True:
            number, place = self._heap[0]
            if self._by(self._engines[place]) == number:
                return self._engines[place]
            heappop(self._heap)


class _Loop:
    """Clients and engines; ``sent_s``, ``first_s`` and ``finish_s`` by request [s]."""

    def __init__(
        self,
        demand: LoopDemand,
        *,
        engines: Sequence[Engine],
        decode: Sequence[Engine],
        transfer_s: Sequence[float],
        hand_over_s: float,
    ) -> None:
        self.hand_over_s = hand_over_s
        self.demand, self.transfer_s = demand, transfer_s
        self.by_event = _Ranking([*engines, *decode], by=attrgetter("event_s"))
        self._by_load, self._decode_by_load = (_Ranking(pool, by=attrgetter("load")) for pool in (engines, decode))
        self.sent_s, self.first_s, self.finish_s = ([0.0] * demand.requests for _ in range(3))
        self.requests = demand.requests
        self.sent = self.finished = 0
        self._ready_s = (demand.delay_s + demand.prompt_token_delay_s * host_tokens(demand.isl_tokens)).tolist()
        self._unanswered = [demand.answers] * -(-demand.requests // demand.answers)
        self._link_free_s = dict.fromkeys(engines, 0.0)

    def send(self, now_s: float, *, requests: int) -> None:
        """The next ``requests`` requests of clients, as far as there are any."""
        first, self.sent = self.sent, min(self.sent + requests, self.requests)
        sent_s, ready_s, pool = self.sent_s, self._ready_s, self._by_load
        for request in range(first, self.sent):
            sent_s[request] = now_s
            self._deliver(request, pool, ready_s=now_s + ready_s[request])

    def _deliver(self, request: int, pool: _Ranking, *, ready_s: float) -> None:
        engine = pool.only or pool.first()
        engine.deliver(request, ready_s=ready_s)
        pool.changed.add(engine)
        self.by_event.changed.add(engine)

    def _finish(self, done: Sequence[int], now_s: float) -> None:
        """Answers that end now; who has all that he asked for sends the next prompt."""
        self.finished += len(done)
        answers, unanswered, prompts = self.demand.answers, self._unanswered, 0
        for request in done:
            self.finish_s[request] = now_s
            unanswered[request // answers] -= 1
            if not unanswered[request // answers]:
                prompts += 1
        self.send(now_s, requests=prompts * answers)

    def _hand_over(self, request: int, sender: Engine, now_s: float) -> None:
        """Send a prompt's cache to the decode pool; its client sees the first token when it has a seat there."""
        sets_out_s = max(now_s, self._link_free_s[sender])
        # Every rank of attention sends over the links of its own devices.
        self._link_free_s[sender] = sets_out_s + self.transfer_s[request] / sender.ranks
        arrives_s = sets_out_s + self.transfer_s[request] + self.hand_over_s
        self._deliver(request, self._decode_by_load, ready_s=arrives_s)

    def advance(self) -> None:
        """Cross the next event."""
        engine = self.by_event.first()
        now_s = engine.event_s
        if now_s == inf:
            raise RoofcastError("requests are left that can never run", field="engine", code="stalled")
        computes = engine in self._link_free_s
        pool = self._by_load if computes else self._decode_by_load
        started, done = engine.complete()
        pool.changed.add(engine)
        for request in started:
            self.first_s[request] = now_s
        if computes and self.transfer_s:
            for request in done:
                if self.transfer_s[request] < inf:
                    self._hand_over(request, engine, now_s)
            done = [request for request in done if self.transfer_s[request] == inf]
        if done:
            self._finish(done, now_s)
        engine.begin(now_s)
        pool.changed.add(engine)
        self.by_event.changed.add(engine)
        for request in engine.seated:
            self.first_s[request] = now_s


def _too_long(said: str) -> RoofcastError:
    return RoofcastError(
        f"{said} take more steps with prompts than are simulated; allowed: up to {MAX_EVENTS:,}",
        field="num_requests",
        hint="fewer requests give the same rate, a larger engine.max_num_batched_tokens fewer steps",
    )


def simulate_loop(
    demand: LoopDemand,
    *,
    engines: Sequence[Engine],
    decode: Sequence[Engine] = (),
    transfer_s: Sequence[float] = (),
    hand_over_s: float = 0.0,
) -> LoopRecords:
    """Run ``demand`` on fresh engines until the last answer; each request goes to the one with fewest.

    decode : engines that go on where ``engines`` compute prompts alone; transfer_s : of each request's cache between
        the two, infinite for a request that ends with its first token [s]
    hand_over_s : of every request beside its transfer, while others use the link [s]
    """
    step_tokens = engines[0].policy.step_tokens
    if int(demand.isl_tokens.sum()) > MAX_EVENTS * step_tokens:
        raise _too_long(f"{demand.isl_tokens.sum():,} prompt tokens in steps of {step_tokens:,}")
    loop = _Loop(demand, engines=engines, decode=decode, transfer_s=transfer_s, hand_over_s=hand_over_s)
    for place in range(demand.at_once):
        loop.send(demand.ramp_s * place / demand.at_once, requests=1)
    for _ in range(MAX_EVENTS):
        loop.advance()
        if loop.finished == loop.requests:
            break
    else:
        raise _too_long(f"{demand.requests:,} requests")
    return LoopRecords(
        sent_s=np.array(loop.sent_s),
        first_token_s=np.array(loop.first_s),
        finish_s=np.array(loop.finish_s),
        steps=sum(engine.steps for engine in (*engines, *decode)),
    )
