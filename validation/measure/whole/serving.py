"""``python -m validation.measure.whole.serving --rate 8 --out served.json``: continuous batching on this machine.

A loop as engines have one, on a decoder with random weights: requests arrive at random, a waiting prompt is run at once
where a slot is free, otherwise all running requests take a step, which is replayed from a CUDA graph of the next larger
batch. Each request's times are kept in the file that ``vllm bench serve --save-result --save-detailed`` writes, so that
what reads those reads this.
"""

from __future__ import annotations

import argparse
import bisect
import json
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from validation.measure.anchors import preheat
from validation.measure.bench import Bench, bench_of
from validation.measure.table import check_target
from validation.measure.whole.decoder import COMPUTE, LLAMA_8B, Architecture, Decoder, angles_of, decoder_of
from validation.measure.whole.steps import cached_attention

USAGE, IO = 2, 5
BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64)
"""Sizes of the captured steps; a step of fewer requests is filled up with a slot that nobody uses."""
LOWEST_LENGTH_SHARE = 0.8
"""Lengths are uniform between this share of the nominal ones and the nominal ones, as InferenceX draws them."""


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


def drawn_requests(count: int, *, isl_tokens: int, osl_tokens: int, rate_per_s: float, seed: int) -> list[Request]:
    """Requests of a Poisson stream."""
    draw = random.Random(seed)
    at_s, found = 0.0, []
    for _ in range(count):
        at_s += draw.expovariate(rate_per_s)
        isl, osl = (round(draw.uniform(LOWEST_LENGTH_SHARE, 1.0) * length) for length in (isl_tokens, osl_tokens))
        found.append(Request(isl_tokens=max(1, isl), osl_tokens=max(1, osl), arrival_s=at_s))
    return found


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


def serve(loop: Loop, requests: Sequence[Request]) -> None:
    """Serve all requests; their token times are filled in. A waiting prompt goes before a step of decoding."""
    coming, waiting, running = deque(requests), deque[Request](), list[Request]()
    start_s = time.perf_counter()
    while coming or waiting or running:
        now_s = time.perf_counter() - start_s
        while coming and coming[0].arrival_s <= now_s:
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


def _statistics(name: str, values_s: Sequence[float]) -> dict[str, float]:
    milliseconds = 1e3 * np.asarray(values_s)
    return {
        f"mean_{name}_ms": float(milliseconds.mean()),
        f"median_{name}_ms": float(np.median(milliseconds)),
        f"std_{name}_ms": float(milliseconds.std()),
        f"p99_{name}_ms": float(np.quantile(milliseconds, 0.99)),
    }


def result_of(requests: Sequence[Request], *, model: str, rate_per_s: float) -> dict[str, object]:
    """What ``vllm bench serve --save-result --save-detailed`` would have written of these requests."""
    duration_s = max(request.token_s[-1] for request in requests)
    ttfts = [request.token_s[0] - request.arrival_s for request in requests]
    itls = [np.diff(request.token_s).tolist() for request in requests]
    tpots = [
        (request.token_s[-1] - request.token_s[0]) / (request.osl_tokens - 1)
        for request in requests
        if request.osl_tokens > 1
    ]
    read, written = (sum(getattr(request, name) for request in requests) for name in ("isl_tokens", "osl_tokens"))
    return {
        "date": datetime.now(UTC).strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": "loop",
        "backend": "torch",
        "model_id": model,
        "num_prompts": len(requests),
        "request_rate": rate_per_s,
        "burstiness": 1.0,
        "max_concurrency": None,
        "duration": duration_s,
        "completed": len(requests),
        "failed": 0,
        "total_input_tokens": read,
        "total_output_tokens": written,
        "request_throughput": len(requests) / duration_s,
        "output_throughput": written / duration_s,
        "total_token_throughput": (read + written) / duration_s,
        **_statistics("ttft", ttfts),
        **_statistics("tpot", tpots),
        **_statistics("itl", [gap for gaps in itls for gap in gaps]),
        "start_times": [request.arrival_s for request in requests],
        "input_lens": [request.isl_tokens for request in requests],
        "output_lens": [request.osl_tokens for request in requests],
        "ttfts": ttfts,
        "itls": itls,
        "errors": [""] * len(requests),
    }


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m validation.measure.whole.serving", description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (default: cuda)")
    parser.add_argument("--rate", type=float, action="append", required=True, help="requests/s; may be given again")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json", help="{rate} in it is the rate")
    parser.add_argument("--requests", type=int, default=150, help="of each rate (default: 150)")
    parser.add_argument("--isl-tokens", type=int, default=1024)
    parser.add_argument("--osl-tokens", type=int, default=128)
    parser.add_argument("--slots", type=int, default=64, help="requests that run at once (default: 64)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--force", action="store_true", help="overwrite files")
    return parser.parse_args(words)


def _targets(arguments: argparse.Namespace) -> dict[float, Path]:
    """A file for each rate; refuses, before any time is spent, what would overwrite a result.

    Raises
    ------
    ValueError
        Two rates have one file.
    OSError
        A file exists, or its folder does not.
    """
    found = {rate: Path(str(arguments.out).replace("{rate}", f"{rate:g}")) for rate in arguments.rate}
    if len(set(found.values())) < len(arguments.rate):
        raise ValueError(f"--out {arguments.out}: one file for {len(arguments.rate)} rates; put {{rate}} into its name")
    for path in found.values():
        check_target(path, force=arguments.force)
    return found


def main(words: Sequence[str] | None = None, *, architecture: Architecture = LLAMA_8B) -> int:
    """Serve each rate and write its file; returns the exit code."""
    arguments = _arguments(words)
    try:
        targets = _targets(arguments)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return USAGE if isinstance(error, ValueError) else IO
    bench = bench_of(arguments.device)
    torch.manual_seed(arguments.seed)
    with torch.inference_mode():
        decoder = decoder_of(
            architecture,
            bench=bench,
            weights="bf16",
            layers=architecture.num_hidden_layers,
            ends=True,
            tokens=arguments.isl_tokens,
        )
        longest = arguments.isl_tokens + arguments.osl_tokens
        loop = Loop(decoder, bench=bench, slots=arguments.slots, tokens=longest)
        # What is loaded and chosen at the first call is no part of a server's day.
        warm_up = drawn_requests(len(BATCHES), isl_tokens=arguments.isl_tokens, osl_tokens=2, rate_per_s=1e6, seed=1)
        serve(loop, warm_up)
        preheat(bench)
        for rate_per_s, path in targets.items():
            requests = drawn_requests(
                arguments.requests,
                isl_tokens=arguments.isl_tokens,
                osl_tokens=arguments.osl_tokens,
                rate_per_s=rate_per_s,
                seed=arguments.seed,
            )
            serve(loop, requests)
            result = result_of(requests, model=architecture.name, rate_per_s=rate_per_s)
            path.write_text(json.dumps(result), encoding="utf-8")
            print(
                f"{path}: TTFT {result['mean_ttft_ms']:.1f} ms, TPOT {result['mean_tpot_ms']:.2f} ms", file=sys.stderr
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
