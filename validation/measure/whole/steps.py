"""Steps of whole models and of one layer: prompts, chunks of prompts and decoding.

Launched one by one and replayed from a CUDA graph: the difference is what the host costs, and the whole against the sum
of its kernels checks that a step is the sum of its rows. Some are compiled: fused passes, as engines run them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from validation.measure.bench import Bench, Group, random_tensor
from validation.measure.table import Shape
from validation.measure.timing import Call, Case
from validation.measure.whole.decoder import (
    COMPUTE,
    LLAMA_8B,
    LLAMA_70B,
    PLAIN,
    QWEN3_30B_A3B,
    Architecture,
    Attention,
    Decoder,
    Halves,
    after_attention,
    angles_of,
    before_attention,
    decoder_of,
)

SUSTAINED_S = 5.5
"""Steps of the chosen batches run this long: two seconds to settle, more than three of the energy counter."""
SUSTAINED_STEPS = ((1, 2048, 0), (1, 1, 2048), (32, 1, 2048), (128, 1, 2048))

# (sequences, new tokens each, tokens cached before them): prompts, chunks of prompts, then steps of decoding.
PROMPTS = (
    (1, 128, 0), (1, 512, 0), (1, 2048, 0), (1, 8192, 0), (1, 16384, 0), (4, 512, 0), (4, 2048, 0), (16, 128, 0),
)  # fmt: skip
CHUNKS = ((1, 512, 3584), (1, 2048, 6144), (1, 2048, 14336), (1, 2048, 30720))
DECODES = tuple(
    (sequences, 1, context) for context in (512, 2048, 8192, 32768) for sequences in (1, 4, 8, 16, 32, 64, 128, 256)
)
STEPS = (*DECODES, *CHUNKS, *PROMPTS)
FEWER_STEPS = (
    *((sequences, 1, 2048) for sequences in (1, 4, 8, 16, 32, 64, 128)), (8, 1, 512), (128, 1, 512), (8, 1, 8192),
    (32, 1, 8192), (1, 512, 0), (1, 2048, 0), (4, 2048, 0), (1, 8192, 0),
)  # fmt: skip
COMPILED_STEPS = ((1, 2048, 0), (1, 8192, 0), (1, 1, 2048), (8, 1, 2048), (32, 1, 2048), (128, 1, 2048))
LAYER_STEPS = STEPS[:: len(STEPS) // 8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which steps of which model, and how they are launched; ``layers`` is None for as many as the memory holds."""

    family: str
    architecture: Architecture
    weights: str
    steps: Sequence[tuple[int, int, int]]
    modes: Sequence[str] = ("graph", "eager")
    layers: int | None = None
    weight: float = 1.0

    @property
    def group(self) -> str:
        """Name of its group."""
        how = " compiled" if self.modes == ("compiled",) else ""
        return f"{self.family.replace('_', ' ')} {self.architecture.name} {self.weights}{how}"


PLANS = (
    Plan(family="whole_layer", architecture=LLAMA_8B, weights="bf16", steps=LAYER_STEPS, layers=1),
    Plan(family="whole_model", architecture=LLAMA_8B, weights="bf16", steps=STEPS, weight=5.0),
    Plan(family="whole_model", architecture=LLAMA_8B, weights="fp8", steps=FEWER_STEPS, modes=("graph",)),
    Plan(family="whole_model", architecture=LLAMA_70B, weights="fp8", steps=FEWER_STEPS, modes=("graph",), weight=2.0),
    Plan(family="whole_model", architecture=QWEN3_30B_A3B, weights="bf16", steps=FEWER_STEPS, weight=2.0),
    Plan(family="whole_model", architecture=LLAMA_8B, weights="bf16", steps=COMPILED_STEPS, modes=("compiled",)),
)


def cached_attention(caches: Sequence[torch.Tensor], *, sequences: int) -> Attention:
    """Attention of ``sequences`` of equal length to their caches [2, sequences, kv heads, tokens, head_dim].

    The new tokens are the last of the cache, and are written there.
    """
    # Brings torch's compiler with it, a second that whoever only reads the cases need not wait.
    from torch.nn.attention.bias import causal_lower_right

    def attend(index: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        cache = caches[index]
        new, keys = len(query) // sequences, cache.shape[3]
        query, key, value = (part.unflatten(0, (sequences, new)).transpose(1, 2) for part in (query, key, value))
        cache[0, :, :, -new:] = key
        cache[1, :, :, -new:] = value
        # A chunk of a prompt sees all that is cached before it: the mask is aligned with the last key, not the first.
        mask = causal_lower_right(new, keys) if 1 < new < keys else None
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION) if query.is_cuda else nullcontext():
            attended = functional.scaled_dot_product_attention(
                query, cache[0], cache[1], attn_mask=mask, is_causal=new == keys > 1, enable_gqa=True
            )
        return attended.transpose(1, 2).flatten(0, 1)

    return attend


@lru_cache(maxsize=1)
def _compiled() -> Halves:
    """Attention is a library's kernel in either case; what lies around it is fused."""
    return Halves(
        before=torch.compile(before_attention, dynamic=False), after=torch.compile(after_attention, dynamic=False)
    )


def _forward(
    decoder: Decoder,
    *,
    ids: torch.Tensor,
    hidden: torch.Tensor,
    attention: Attention,
    angles: tuple[torch.Tensor, torch.Tensor],
    sequences: int,
    halves: Halves,
) -> torch.Tensor:
    """One pass: the next tokens for a whole model, hidden states for layers alone."""
    x = hidden if decoder.embedding is None else decoder.embedded(ids)
    x = decoder.hidden(x, attention=attention, angles=angles, halves=halves)
    if decoder.embedding is None:
        return x
    return decoder.next_ids(x.unflatten(0, (sequences, -1))[:, -1])


def _calls(bench: Bench, plan: Plan, shape: Shape, compiled: bool, copies: int) -> Sequence[Call]:
    architecture = plan.architecture
    context, tokens = shape.context_tokens, shape.query_tokens
    rows = shape.sequences * tokens
    decoder = decoder_of(
        architecture,
        bench=bench,
        weights=plan.weights,
        layers=shape.layers,
        ends=plan.family == "whole_model",
        tokens=rows,
    )
    size = 2, shape.sequences, architecture.num_key_value_heads, context + tokens, architecture.head_dim
    caches = [random_tensor(*size, bench=bench, dtype=COMPUTE) for _ in range(shape.layers)]
    positions = torch.arange(context, context + tokens, device=bench.device).repeat(shape.sequences)
    return [
        partial(
            _forward,
            decoder,
            ids=torch.randint(0, architecture.vocab_size, (rows,), device=bench.device),
            hidden=random_tensor(rows, architecture.hidden_size, bench=bench, dtype=COMPUTE),
            attention=cached_attention(caches, sequences=shape.sequences),
            angles=angles_of(positions, head_dim=architecture.head_dim),
            sequences=shape.sequences,
            halves=_compiled() if compiled else PLAIN,
        )
    ]


def _case(bench: Bench, plan: Plan, *, step: tuple[int, int, int], mode: str) -> Case:
    sequences, tokens, context = step
    architecture = plan.architecture
    layers = plan.layers or architecture.layers_that_fit(bench, weights=plan.weights)
    shape = Shape(
        model=architecture.name, sequences=sequences, query_tokens=tokens, context_tokens=context, layers=layers
    )
    lasting = plan.family == "whole_model" and plan.architecture is LLAMA_8B and step in SUSTAINED_STEPS
    phase = "decode" if tokens == 1 else "prefill"
    compiled = mode == "compiled"
    return Case(
        family=plan.family,
        kernel=f"{phase}_compiled" if compiled else phase,
        format=plan.weights,
        shape=shape,
        footprint_bytes=architecture.footprint_bytes(
            layers=layers,
            weights=plan.weights,
            ends=plan.family == "whole_model",
            tokens=sequences * tokens,
            cached_tokens=sequences * (tokens + context),
        ),
        build=partial(_calls, bench, plan, shape, compiled),
        wanted_s=SUSTAINED_S if lasting and mode == "graph" and len(plan.steps) == len(STEPS) else 0.0,
        eager_only=mode == "eager",
    )


def whole_groups(bench: Bench) -> list[Group]:
    """Every plan's steps; a CPU is spared."""
    if not bench.is_cuda:
        return []
    return [
        Group(
            name=plan.group,
            cases=[_case(bench, plan, step=step, mode=mode) for step in plan.steps for mode in plan.modes],
            weight=plan.weight,
        )
        for plan in PLANS
    ]
