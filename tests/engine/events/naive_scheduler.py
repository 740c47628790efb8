"""The same scheduler written for reading: one loop over sequences per step, lists and dictionaries, no shortcuts.

Shares no code with the event loop except the price of a step. Slow, and only right if it is simple.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from simulator.engine.settings import SchedulerSettings
from simulator.phases.compiled import StepTables
from simulator.traffic.requests import Requests
from tests.phases.stepped import step_seconds


@dataclass
class Pool:
    """Blocks: who holds them, what they contain, and the order in which free ones are reused."""

    size: int
    free: list[int] = field(init=False)
    holders: dict[int, int] = field(default_factory=dict)
    content: dict[int, object] = field(default_factory=dict)
    where: dict[object, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free = list(range(self.size))

    def take(self) -> int:
        block = self.free.pop(0)
        self.forget(block)
        self.holders[block] = 1
        return block

    def forget(self, block: int) -> None:
        key = self.content.pop(block, None)
        for name in key if key else ():
            if self.where.get(name) == block:
                del self.where[name]

    def share(self, block: int) -> None:
        if self.holders.get(block, 0) == 0:
            self.free.remove(block)
        self.holders[block] = self.holders.get(block, 0) + 1

    def drop(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.holders[block] -= 1
            if self.holders[block] == 0:
                self.free.append(block)

    def name(self, block: int, key: object) -> None:
        self.content.setdefault(block, []).append(key)
        self.where[key] = block


@dataclass
class Sequence:
    request: int
    target: int
    generated: int = 0
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    last_step: int = -1

    @property
    def decoding(self) -> bool:
        return self.computed >= self.target


class NaiveEngine:
    """One replica."""

    def __init__(self, tables: StepTables, requests: Requests, settings: SchedulerSettings) -> None:
        self.tables, self.requests, self.settings = tables, requests, settings
        self.pool = Pool(settings.kv_blocks)
        self.waiting: list[int] = []
        self.preempted: list[Sequence] = []
        self.running: list[Sequence] = []
        self.admitted_s: dict[int, float] = {}
        self.first_s: dict[int, float] = {}
        self.finish_s: dict[int, float] = {}
        self.cached: dict[int, int] = {}
        self.preemptions: dict[int, int] = {}
        self.step = 0

    def shared_ids(self, request: int) -> list[int]:
        prefix = int(self.requests.prefix_list[request])
        if prefix < 0:
            return []
        low, high = self.requests.list_start[prefix : prefix + 2]
        return [int(value) for value in self.requests.block_ids[low:high]]

    def publish(self, sequence: Sequence, first: int, last: int) -> None:
        """Blocks ``first``..``last - 1`` have become full and may be found by content."""
        ids = self.shared_ids(sequence.request)
        for place in range(first, min(last, len(ids))):
            self.pool.name(sequence.blocks[place], ids[place])

    def cached_blocks(self, sequence: Sequence) -> list[int]:
        if not self.settings.prefix_caching:
            return []
        ids = self.shared_ids(sequence.request)
        found: list[int] = []
        while len(found) < (sequence.target - 1) // self.settings.block_size_tokens:
            place = len(found)
            own = self.pool.where.get(("own", sequence.request, place))
            block = own if own is not None else self.pool.where.get(ids[place]) if place < len(ids) else None
            if block is None:
                break
            found.append(block)
        return found

    def preempt(self, sequence: Sequence) -> None:
        for place in range(sequence.computed // self.settings.block_size_tokens):
            self.pool.name(sequence.blocks[place], ("own", sequence.request, place))
        if sequence.decoding:
            # Known tokens: those computed and the one that the last step yields.
            sequence.target = sequence.computed + 1
            sequence.generated = sequence.target - int(self.requests.prompt_tokens[sequence.request])
        self.pool.drop(sequence.blocks)
        sequence.blocks, sequence.computed, sequence.last_step = [], 0, -1
        self.running.remove(sequence)
        self.preempted.append(sequence)
        self.preemptions[sequence.request] = self.preemptions.get(sequence.request, 0) + 1

    def unfinished(self) -> list[Sequence]:
        return [s for s in self.running if s.last_step < 0 or s.last_step >= self.step]

    def grow_or_preempt(self, sequence: Sequence, tokens: int) -> tuple[bool, bool]:
        """(whether it got its blocks, whether somebody had to go)."""
        someone = False
        while True:
            needed = math.ceil((sequence.computed + tokens) / self.settings.block_size_tokens) - len(sequence.blocks)
            if needed <= len(self.pool.free):
                sequence.blocks += [self.pool.take() for _ in range(needed)]
                return True, someone
            victim = self.unfinished()[-1]
            self.preempt(victim)
            someone = True
            if victim is sequence:
                return False, someone

    def form(self, now_s: float) -> tuple[float, list[int], list[Sequence]] | None:
        """Seconds of the next step, requests that get their first token from it, sequences that end with it."""
        prefills: list[tuple[int, int]] = []
        decode_contexts: list[int] = []
        completions: list[int] = []
        ends: list[Sequence] = []
        preempted = False
        budget = self.settings.max_num_batched_tokens
        # Running sequences: those that decode come first because a prompt in progress was admitted last.
        for sequence in self.unfinished():
            if sequence not in self.running or not sequence.decoding:
                continue
            kept, someone = self.grow_or_preempt(sequence, 1)
            preempted |= someone
            if kept:
                size = self.settings.block_size_tokens
                if sequence.computed % size == 0 and sequence.computed > sequence.target:
                    self.publish(sequence, sequence.computed // size - 1, sequence.computed // size)
                sequence.computed += 1
                budget -= 1
                decode_contexts.append(sequence.computed)
                if sequence.last_step == self.step:
                    ends.append(sequence)
        partial = [s for s in self.unfinished() if not s.decoding]
        assert len(partial) <= 1
        for sequence in partial:
            if budget:
                chunk = min(sequence.target - sequence.computed, budget)
                kept, someone = self.grow_or_preempt(sequence, chunk)
                preempted |= someone
                if kept:
                    budget -= chunk
                    self.compute(sequence, chunk, prefills, completions, ends)
        while not preempted and budget and len(self.running) < self.settings.max_num_seqs:
            chunk = self.admit(budget, now_s, prefills, completions, ends)
            if not chunk:
                break
            budget -= chunk
        if not prefills and not decode_contexts:
            return None
        seconds = step_seconds(
            self.tables,
            len(prefills),
            sum(q for q, _ in prefills),
            sum(q * (2 * c + q) for q, c in prefills),
            self.logits,
            len(decode_contexts),
            sum(decode_contexts),
        )
        self.step += 1
        return float(seconds), completions, ends

    def compute(
        self,
        sequence: Sequence,
        chunk: int,
        prefills: list[tuple[int, int]],
        completions: list[int],
        ends: list[Sequence],
    ) -> None:
        size = self.settings.block_size_tokens
        before = sequence.computed
        prefills.append((chunk, before))
        sequence.computed += chunk
        self.publish(sequence, before // size, sequence.computed // size)
        if sequence.decoding:
            self.logits += 1
            left = int(self.requests.output_tokens[sequence.request]) - sequence.generated
            sequence.last_step = self.step + left - 1
            completions.append(sequence.request)
            if left == 1:
                ends.append(sequence)

    def admit(
        self, budget: int, now_s: float, prefills: list[tuple[int, int]], completions: list[int], ends: list[Sequence]
    ) -> int:
        if self.preempted:
            sequence = self.preempted[-1]
        elif self.waiting:
            sequence = Sequence(self.waiting[0], int(self.requests.prompt_tokens[self.waiting[0]]))
        else:
            return 0
        size = self.settings.block_size_tokens
        found = self.cached_blocks(sequence)
        chunk = min(sequence.target - len(found) * size, budget)
        if not self.settings.chunked_prefill and chunk < sequence.target - len(found) * size:
            return 0
        needed = math.ceil((len(found) * size + chunk) / size) - len(found)
        idle = sum(self.pool.holders.get(block, 0) == 0 for block in found)
        if needed + idle > len(self.pool.free) - self.settings.watermark_blocks:
            return 0
        if self.preempted:
            self.preempted.pop()
        else:
            self.waiting.pop(0)
            self.admitted_s[sequence.request] = now_s
            self.cached[sequence.request] = len(found) * size
        for block in found:
            self.pool.share(block)
        sequence.blocks = found + [self.pool.take() for _ in range(needed)]
        sequence.computed = len(found) * size
        self.running.append(sequence)
        self.compute(sequence, chunk, prefills, completions, ends)
        return chunk

    def run(self) -> None:
        order = sorted(range(len(self.requests)), key=lambda i: float(self.requests.arrival_s[i]))
        coming = [(float(self.requests.arrival_s[i]) + self.settings.request_delay_s, i) for i in order]
        now_s, executing, ahead = 0.0, None, None
        while True:
            if executing:
                self.finish(executing, now_s)
            while coming and coming[0][0] <= now_s:
                self.waiting.append(coming.pop(0)[1])
            self.logits = 0
            executing = ahead or self.form(now_s)
            ahead = None
            if executing is None:
                if not coming:
                    return
                now_s = coming[0][0]
                continue
            if self.settings.async_scheduling:
                self.logits = 0
                ahead = self.form(now_s)
            now_s = now_s + executing[0]

    def finish(self, executed: tuple[float, list[int], list[Sequence]], now_s: float) -> None:
        for request in executed[1]:
            self.first_s.setdefault(request, now_s)
        for sequence in executed[2]:
            self.finish_s[sequence.request] = now_s
            self.pool.drop(sequence.blocks)
            self.running.remove(sequence)
