"""A closed loop of clients, or everything queued at once, event by event.

Engines go from event to event on their own clocks; the one whose next event is earliest goes first. An answer makes its
client send the next request. In a disaggregated deployment a prompt that is done goes over its engine's link to the
emptiest engine of the decode pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf
from operator import attrgetter

import numpy as np

from simulator.engine.uniform.loop_requests import LoopDemand, LoopRecords
from simulator.engine.uniform.scheduler import Engine
from simulator.errors import RoofcastError

MAX_EVENTS = 2_000_000
"""Steps with prompts, and runs of decodes between them: some seconds of computing."""
_FEW_ENGINES = 16
"""So many are looked through faster than they are ranked."""


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
        self._ready_s = (demand.delay_s + demand.prompt_token_delay_s * demand.isl_tokens).tolist()
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
