"""One scheduler of a closed loop: who waits, who has a seat, what the next step is made of, and who makes room.

Left out: blocks (the cache counts tokens), prefix hits, what a part of a thrown-out prompt leaves behind.

Reference: [Agrawal2024] chunked prompts beside decodes; [Zheng2024] prompts before decodes, room for a share of what is
still to come; [Kwon2023] the last admitted makes room and computes anew
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import ceil, inf

from simulator.engine.settings import CLIPPED_ANSWER_TOKENS, STEPS_AFTER_RETRACTION, TokenRatio
from simulator.engine.uniform.clock import NO_CHUNKS, Chunks
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
    cache_tokens : that its cache holds; who was admitted last makes room for the others and computes his tokens anew
    token_ratio : who is admitted finds room for his answer, beside that share of what the others may still generate
    """

    resident: int
    step_tokens: int
    decodes_beside: bool = True
    chunked: bool = True
    ahead: bool = False
    gather_steps: int = 0
    cache_tokens: float = inf
    token_ratio: TokenRatio | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopWork:
    """What each request takes of an engine.

    prompt_tokens : to compute, 0 where another pool has done so; context_tokens : cached with the first token
    decode_steps : after the first token; growth : tokens that its context gains in each of them
    prompts, contexts : fewest and most tokens that a prompt takes, and that are cached of what decodes
    rooms : random numbers that say which rank of an engine takes a request; none where the emptiest does
    """

    prompt_tokens: Sequence[int]
    context_tokens: Sequence[int]
    decode_steps: Sequence[int]
    growth: Sequence[float]
    prompts: tuple[int, int]
    contexts: tuple[int, int]
    rooms: Sequence[int] = ()


class Pipeline:
    """Stages that steps pass in their order, each of which works on one step at a time; the lanes of a replica share
    it. Where a step with prompts goes ahead, the shorter ones behind it wait at every stage [Agrawal2024].

    host, shares : of a step's time that the host takes, once, though every stage waits as long between two steps; and
        each stage
    """

    __slots__ = ("_free_s", "_host", "_shares")

    def __init__(self, shares: Sequence[float], *, host: float) -> None:
        self._host, self._shares = host, shares
        self._free_s = [0.0] * len(shares)

    def end_s(self, start_s: float, step_s: float) -> float:
        """When a step of ``step_s`` alone that is ready at ``start_s`` leaves the last stage."""
        free_s, host_s, end_s = self._free_s, self._host * step_s, start_s
        for stage, share in enumerate(self._shares):
            begin_s = max(end_s, free_s[stage])
            free_s[stage] = begin_s + host_s + share * step_s
            end_s = begin_s + share * step_s if stage else free_s[0]
        return end_s


class Rank:
    """One scheduler.

    waiting : who waits, and from when on; prompts : that are under way, as request, tokens done and to do
    seats : who decodes, in the order of admission, and the step that is its last, by the count of ``step``
    context, held : tokens of the cache that decoding sequences and prompts under way take; growth : in a step
    share : of the answers under way that ``token_ratio`` keeps room for
    thrown_out : of who had to go, tokens that are cached with the next token, and steps that follow it
    chunks, decodes, starting : the next step's prompts, whether it decodes, and whose first token it yields
    """

    def __init__(self, policy: LoopPolicy, work: LoopWork) -> None:
        self.policy, self.work = policy, work
        self.waiting: list[tuple[float, int]] = []
        self.prompts: deque[list[int]] = deque()
        self.finishing: dict[int, list[int]] = {}
        self.ending: list[int] = []
        self.seats: dict[int, int] = {}
        self.thrown_out: dict[int, tuple[int, int]] = {}
        self.step = 0
        self.context = self.growth = self.held = 0.0
        self.share = self._first_share()
        self.chunks: Chunks = NO_CHUNKS
        self.decodes = False
        self.starting: list[int] = []

    @property
    def running(self) -> int:
        """Sequences that decode."""
        return len(self.seats)

    @property
    def load(self) -> int:
        """Requests that it has."""
        return len(self.waiting) + len(self.prompts) + self.running

    def _first_share(self) -> float:
        return 0.0 if self.policy.token_ratio is None else self.policy.token_ratio.initial

    def admit(self, seen_s: float) -> list[int]:
        """Seat requests that have come by ``seen_s``, first come first served, whom room was made of before all others.
        Those whose prompt is computed already."""
        computed: list[int] = []
        waiting, claimed = self.waiting, self._claimed()
        while waiting and waiting[0][0] <= seen_s and self._has_room(claimed):
            request = heappop(waiting)[1]
            context, steps = self.left(request)
            claimed += self.share * self._answer(request, steps)
            prompt = context if request in self.thrown_out else self.work.prompt_tokens[request]
            if prompt:
                self.prompts.append([request, 0, prompt])
                self.held += context
            else:
                self.decode(request)
                computed.append(request)
        return computed

    def left(self, request: int) -> tuple[int, int]:
        """Tokens that are cached with the next token of a request that waits, and steps that follow it."""
        left = self.thrown_out.get(request)
        return left or (self.work.context_tokens[request], self.work.decode_steps[request])

    def has_room(self) -> bool:
        """Whether a seat is free and the cache takes who waits first."""
        return self._has_room(self._claimed())

    def _has_room(self, claimed: float) -> bool:
        policy, seated = self.policy, self.running + len(self.prompts)
        if seated >= policy.resident or policy.cache_tokens == inf or not seated:
            return seated < policy.resident
        request = self.waiting[0][1]
        context, steps = self.left(request)
        answer = 0.0 if policy.token_ratio is None else self._answer(request, steps)
        taken = self.context + self.held + self.growth * policy.decodes_beside
        return taken + context + answer + claimed <= policy.cache_tokens

    def _answer(self, request: int, steps: int) -> float:
        return min(steps * self.work.growth[request], CLIPPED_ANSWER_TOKENS)

    def _claimed(self) -> float:
        """The share of what all with a seat may still generate that is kept free for them [tokens]."""
        if not self.share:
            return 0.0
        decoding = sum(self._answer(request, last - self.step) for request, last in self.seats.items())
        starting = sum(self._answer(request, self.left(request)[1]) for request, _, _ in self.prompts)
        return self.share * (decoding + starting)

    def steps_in_cache(self) -> int:
        """Decode steps, at least one, that the cache has room for, or after which it may have room for others."""
        steps = int((self.policy.cache_tokens - self.context - self.held) / self.growth)
        return max(1, min(steps, STEPS_AFTER_RETRACTION) if self.waiting and self.share else steps)

    def makes_room(self) -> bool:
        """Throw out who was admitted last until the cache takes the next step of the others; whether anybody went."""
        policy, thrown_out = self.policy, len(self.waiting)
        if policy.cache_tokens == inf or (self.prompts and not policy.decodes_beside):
            return False
        while self.running + len(self.prompts) > 1 and self.context + self.held + self.growth > policy.cache_tokens:
            self._throw_out()
        gone = len(self.waiting) > thrown_out
        if gone and policy.token_ratio is not None:
            work = self.work
            asked = sum(work.growth[request] * work.decode_steps[request] for request in self.seats)
            made = self.context - sum(work.context_tokens[request] for request in self.seats)
            self.share = min(1.0, (made + STEPS_AFTER_RETRACTION * self.growth) / asked)
        return gone

    def _throw_out(self) -> None:
        if self.prompts:
            request = self.prompts.pop()[0]
            self.held -= self.left(request)[0]
        else:
            request, last = self.seats.popitem()
            together = self.finishing[last]
            together.remove(request)
            if not together:
                del self.finishing[last]
                self.ending.remove(last)
                heapify(self.ending)
            growth, steps = self.work.growth[request], last - self.step
            context = self._last_context(request) - growth * steps
            self._leave(growth=growth, context=context)
            self.thrown_out[request] = ceil(context + growth), steps - 1
        heappush(self.waiting, (-1.0 - len(self.waiting), request))

    def _last_context(self, request: int) -> float:
        return self.work.context_tokens[request] + self.work.growth[request] * self.work.decode_steps[request]

    def decode(self, request: int) -> None:
        """Let a request whose first token is there decode from the next step on."""
        context, steps = self.left(request)
        last = self.step + steps
        self.seats[request] = last
        together = self.finishing.get(last)
        if together is None:
            self.finishing[last] = [request]
            heappush(self.ending, last)
        else:
            together.append(request)
        self.context += context
        self.growth += self.work.growth[request]

    def compose(self, *, verify_tokens: int) -> None:
        """Fill the next step with decodes, of so many tokens each, and prompt tokens."""
        policy = self.policy
        starting: list[int] = []
        self.starting = starting
        self.chunks = NO_CHUNKS
        self.decodes = self.running > 0 and (policy.decodes_beside or not self.prompts)
        budget = policy.step_tokens
        if self.decodes:
            budget -= self.running * verify_tokens
        sequences = tokens = 0
        work2 = 0.0
        for entry in self.prompts:
            request, done, prompt = entry
            chunk = left = prompt - done
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
            self.prompts.popleft()
        if sequences:
            self.chunks = Chunks(sequences, tokens, work2, len(starting))

    def advance(self, steps: int, done: list[int]) -> None:
        """Count ``steps`` steps that decode, and let those leave that are done with the last of them."""
        self.step += steps
        self.context += self.growth * steps
        if (ratio := self.policy.token_ratio) is not None:
            self.share = max(ratio.least, self.share - (ratio.initial - ratio.least) / ratio.decay_steps * steps)
        if self.ending and self.ending[0] <= self.step:
            leaving = self.finishing.pop(heappop(self.ending))
            done += leaving
            for request in leaving:
                del self.seats[request]
                self._leave(growth=self.work.growth[request], context=self._last_context(request))

    def _leave(self, *, growth: float, context: float) -> None:
        self.growth -= growth
        self.context -= context
        if not self.running:
            # Sums of fractions do not come back to exactly nothing.
            self.context = self.growth = 0.0
            self.share = self._first_share()
