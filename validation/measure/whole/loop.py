"""A serving loop: slots of a cache, prompts, and steps.

A waiting prompt is run at once where a slot is free, otherwise all running requests take a step, which is replayed from
a CUDA graph of the next larger batch.
"""

from __future__ import annotations

import bisect
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch.nn import functional

from validation.measure.bench import Bench
from validation.measure.whole.decoder import COMPUTE, Architecture, Decoder, angles_of
from validation.measure.whole.steps import cached_attention

BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64)
"""Sizes of the captured steps; a step of fewer requests is filled up with a slot that nobody uses."""


@dataclass(slots=True, kw_only=True)
class Request:
    """Lengths in tokens, times in seconds after the start: ``token_s`` of each token given out."""

    isl_tokens: int
    osl_tokens: int
    arrival_s: float
    slot: int = -1
    token_s: list[float] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """Whether it has all its tokens."""
        return len(self.token_s) >= self.osl_tokens


class SlotCache:
    """Keys and values of each slot's request, [2, slots, tokens, kv heads, head_dim] a layer.

    The last slot belongs to nobody: it fills steps up to a captured batch.
    """

    def __init__(self, architecture: Architecture, *, slots: int, tokens: int, layers: int, bench: Bench) -> None:
        size = 2, slots + 1, tokens, architecture.num_key_value_heads, architecture.head_dim
        self.layers = [torch.zeros(size, device=bench.device, dtype=COMPUTE) for _ in range(layers)]
        self.tokens = tokens

    def fill(self, slot: int, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Write a prompt's keys and values [1, kv heads, tokens, head_dim]."""
        length = keys.shape[2]
        self.layers[layer][0, slot, :length] = keys[0].transpose(0, 1)
        self.layers[layer][1, slot, :length] = values[0].transpose(0, 1)

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, slots: torch.Tensor,
        positions: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """One new token of each sequence [sequences, heads, head_dim] to all that its slot holds, itself among it."""
        cache = self.layers[layer]
        cache[0][slots, positions] = key
        cache[1][slots, positions] = value
        if query.is_cuda:
            return self._flash(cache, query, slots=slots, positions=positions)
        mask = (torch.arange(self.tokens)[None] <= positions[:, None])[:, None, None]
        keys, values = (part[slots].transpose(1, 2) for part in cache)
        attended = functional.scaled_dot_product_attention(
            query[:, :, None], keys, values, attn_mask=mask, enable_gqa=True
        )
        return attended[:, :, 0]

    def _flash(
        self, cache: torch.Tensor, query: torch.Tensor, *, slots: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """The kernel finds each sequence's keys by its first row, and how many there are by its length."""
        count = len(query)
        first_query = torch.arange(count + 1, device=query.device, dtype=torch.int32)
        first_key = functional.pad(slots * self.tokens, (0, 1)).to(torch.int32)
        keys, values = (part.flatten(0, 1) for part in cache)
        lengths = (positions + 1).to(torch.int32)
        return torch.ops.aten._flash_attention_forward(
            query, keys, values, first_query, first_key, 1, self.tokens, 0.0, False, False, seqused_k=lengths
        )[0]


@dataclass(slots=True, kw_only=True)
class Step:
    """A step of a fixed batch; ids, slots and positions are where it reads and writes them."""

    ids: torch.Tensor
    slots: torch.Tensor
    positions: torch.Tensor
    run: Callable[[], object]


class Loop:
    """Slots, prompts and steps of one decoder."""

    def __init__(self, decoder: Decoder, *, bench: Bench, slots: int, tokens: int) -> None:
        self.decoder, self.bench = decoder, bench
        layers = len(decoder.layers)
        self.cache = SlotCache(decoder.architecture, slots=slots, tokens=tokens, layers=layers, bench=bench)
        self.free = list(range(slots))
        self.spare_slot = slots
        self.sizes = [size for size in BATCHES if size < slots] + [slots]
        self.steps = {size: self._step(size) for size in reversed(self.sizes)}
        self.last_ids = torch.zeros(slots + 1, device=bench.device, dtype=torch.long)

    def _step(self, size: int) -> Step:
        device = self.bench.device
        step = Step(
            ids=torch.zeros(size, device=device, dtype=torch.long),
            slots=torch.full((size,), self.spare_slot, device=device),
            positions=torch.zeros(size, device=device, dtype=torch.long),
            run=lambda: None,
        )

        def once() -> None:
            width = self.decoder.architecture.head_dim

            def attention(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
                return self.cache.attend(layer, query, key, value, slots=step.slots, positions=step.positions)

            x = self.decoder.hidden(
                self.decoder.embedded(step.ids), attention=attention, angles=angles_of(step.positions, head_dim=width)
            )
            step.ids.copy_(self.decoder.next_ids(x))

        step.run = once
        if self.bench.is_cuda:
            for _ in range(2):
                once()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                once()
            step.run = graph.replay
        return step

    def prefill(self, request: Request) -> None:
        """Run a prompt into a free slot; its first token is known when this returns."""
        request.slot = self.free.pop()
        architecture, length = self.decoder.architecture, request.isl_tokens
        size = 2, 1, architecture.num_key_value_heads, length, architecture.head_dim
        # One layer's cache serves all: each is copied to the slot as soon as it is written.
        once = torch.empty(size, device=self.bench.device, dtype=COMPUTE)
        causal = cached_attention([once] * len(self.decoder.layers), sequences=1)

        def attention(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            attended = causal(layer, query, key, value)
            self.cache.fill(request.slot, layer, once[0], once[1])
            return attended

        positions = torch.arange(length, device=self.bench.device)
        ids = torch.randint(0, architecture.vocab_size, (length,), device=self.bench.device)
        x = self.decoder.hidden(
            self.decoder.embedded(ids), attention=attention, angles=angles_of(positions, head_dim=architecture.head_dim)
        )
        self.last_ids[request.slot] = self.decoder.next_ids(x[-1:])[0]
        self.last_ids[request.slot].item()

    def decode(self, running: Sequence[Request]) -> None:
        """One token for each; all are known when this returns."""
        step = self.steps[self.sizes[bisect.bisect_left(self.sizes, len(running))]]
        count, size = len(running), len(step.ids)
        slots = [request.slot for request in running] + [self.spare_slot] * (size - count)
        held = [request.isl_tokens + len(request.token_s) - 1 for request in running] + [0] * (size - count)
        step.slots.copy_(torch.tensor(slots), non_blocking=True)
        step.positions.copy_(torch.tensor(held), non_blocking=True)
        torch.index_select(self.last_ids, 0, step.slots, out=step.ids)
        step.run()
        self.last_ids[step.slots] = step.ids
        step.ids.tolist()


def serve(loop: Loop, requests: Sequence[Request], *, in_flight: int | None = None) -> None:
    """Serve all requests; their token times are filled in. A waiting prompt goes before a step of decoding.

    in_flight : clients that each wait for an answer before they send the next request, whose ``arrival_s`` is then
        written here; None where requests come at the times that they have
    """
    coming, waiting, running = deque(requests), deque[Request](), list[Request]()
    start_s = time.perf_counter()
    while coming or waiting or running:
        now_s = time.perf_counter() - start_s
        while coming and _has_arrived(coming[0], now_s, unanswered=len(waiting) + len(running), in_flight=in_flight):
            waiting.append(coming.popleft())
        if waiting and loop.free:
            request = waiting.popleft()
            loop.prefill(request)
            request.token_s.append(time.perf_counter() - start_s)
            running.append(request)
        elif running:
            loop.decode(running)
            now_s = time.perf_counter() - start_s
            for request in running:
                request.token_s.append(now_s)
        elif coming:
            time.sleep(max(0.0, min(1e-3, coming[0].arrival_s - now_s)))
        for request in [request for request in running if request.is_done]:
            running.remove(request)
            loop.free.append(request.slot)


def _has_arrived(request: Request, now_s: float, *, unanswered: int, in_flight: int | None) -> bool:
    """Whether a request is there; a client that has its answer sends the next one at once."""
    if in_flight is None:
        return request.arrival_s <= now_s
    if unanswered >= in_flight:
        return False
    request.arrival_s = now_s
    return True
