"""A decoder of Llama-3-8B's shape with random weights: one layer and as many layers as the memory holds.

Prefill and decode, launched one by one and replayed from a CUDA graph: the difference is what the host costs, and the
whole against the sum of its kernels checks that a step is the sum of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from validation.measure.bench import MEMORY_SHARE, Bench, Group, random_tensor
from validation.measure.table import Shape
from validation.measure.timing import Call, Case

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM = 4096, 14336, 32, 8, 128
LAYERS, VOCABULARY = 32, 128_256
EPSILON = 1e-5
"""Shape of meta-llama/Llama-3.1-8B."""
DTYPE = torch.bfloat16
LAYER_PARAMETERS = HIDDEN * HEAD_DIM * (HEADS + 2 * KV_HEADS) + HEADS * HEAD_DIM * HIDDEN + 3 * HIDDEN * INTERMEDIATE
WEIGHT_SCALE = 0.02
"""Of the random weights, so that 32 layers neither overflow nor vanish."""
SUSTAINED_S = 5.5
"""Steps of the chosen batches run this long: two seconds to settle, more than three of the energy counter."""
SUSTAINED_STEPS = ((1, 2048, 0), (1, 1, 2048), (32, 1, 2048), (128, 1, 2048))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Weights as [out, in]."""

    qkv: torch.Tensor
    output: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    norm: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Layers, and the two ends where it is a whole model."""

    layers: tuple[Layer, ...]
    embedding: torch.Tensor | None


def _weights(bench: Bench, *size: int) -> torch.Tensor:
    return random_tensor(*size, bench=bench, dtype=DTYPE).mul_(WEIGHT_SCALE)


def _decoder(bench: Bench, *, layers: int, whole: bool) -> Decoder:
    return Decoder(
        layers=tuple(
            Layer(
                qkv=_weights(bench, (HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN),
                output=_weights(bench, HIDDEN, HEADS * HEAD_DIM),
                gate_up=_weights(bench, 2 * INTERMEDIATE, HIDDEN),
                down=_weights(bench, HIDDEN, INTERMEDIATE),
                norm=torch.ones(HIDDEN, device=bench.device, dtype=DTYPE),
            )
            for _ in range(layers)
        ),
        embedding=_weights(bench, VOCABULARY, HIDDEN) if whole else None,
    )


def _rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


def _angles(bench: Bench, *, first: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the positions first .. first + tokens - 1, as [tokens, head_dim]."""
    frequencies = 500_000.0 ** (-torch.arange(0, HEAD_DIM, 2, device=bench.device) / HEAD_DIM)
    positions = torch.arange(first, first + tokens, device=bench.device)
    angles = torch.outer(positions.float(), frequencies).repeat(1, 2)
    return angles.cos().to(DTYPE), angles.sin().to(DTYPE)


def _attention(
    layer: Layer, x: torch.Tensor, cache: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """x [sequences, tokens, hidden]; cache [2, sequences, kv heads, context + tokens, head_dim], its end is written."""
    sequences, tokens, _ = x.shape
    qkv = functional.linear(x, layer.qkv).view(sequences, tokens, HEADS + 2 * KV_HEADS, HEAD_DIM).transpose(1, 2)
    query, key, value = qkv.split((HEADS, KV_HEADS, KV_HEADS), dim=1)
    cache[0, :, :, -tokens:] = _rotated(key, *angles)
    cache[1, :, :, -tokens:] = value
    # A chunk of a prompt sees all that is cached before it: the mask is aligned with the last key, not the first.
    keys = cache.shape[3]
    # Brings torch's compiler with it, a second that whoever only reads the cases need not wait.
    from torch.nn.attention.bias import causal_lower_right

    mask = causal_lower_right(tokens, keys) if 1 < tokens < keys else None
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        attended = functional.scaled_dot_product_attention(
            _rotated(query, *angles), cache[0], cache[1], attn_mask=mask, is_causal=tokens == keys > 1, enable_gqa=True
        )
    return functional.linear(attended.transpose(1, 2).reshape(sequences, tokens, HEADS * HEAD_DIM), layer.output)


def _forward(
    decoder: Decoder,
    *,
    ids: torch.Tensor,
    hidden: torch.Tensor,
    caches: Sequence[torch.Tensor],
    angles: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    """One pass: logits of the last tokens for a whole model, hidden states for layers alone."""
    x = hidden if decoder.embedding is None else functional.embedding(ids, decoder.embedding)
    for layer, cache in zip(decoder.layers, caches, strict=True):
        x = x + _attention(layer, functional.rms_norm(x, (HIDDEN,), layer.norm, EPSILON), cache, angles)
        gate, up = functional.linear(functional.rms_norm(x, (HIDDEN,), layer.norm, EPSILON), layer.gate_up).chunk(
            2, dim=-1
        )
        x = x + functional.linear(functional.silu(gate) * up, layer.down)
    if decoder.embedding is None:
        return x
    return functional.linear(
        functional.rms_norm(x[:, -1], (HIDDEN,), decoder.layers[0].norm, EPSILON), decoder.embedding
    ).argmax(-1)


def _calls(bench: Bench, shape: Shape, whole: bool, copies: int) -> Sequence[Call]:
    context, tokens = shape.context_tokens, shape.query_tokens
    decoder = _decoder(bench, layers=shape.layers, whole=whole)
    caches = [
        random_tensor(2, shape.sequences, KV_HEADS, context + tokens, HEAD_DIM, bench=bench, dtype=DTYPE)
        for _ in range(shape.layers)
    ]
    ids = torch.randint(0, VOCABULARY, (shape.sequences, tokens), device=bench.device)
    hidden = random_tensor(shape.sequences, tokens, HIDDEN, bench=bench, dtype=DTYPE)
    angles = _angles(bench, first=context, tokens=tokens)
    return [partial(_forward, decoder, ids=ids, hidden=hidden, caches=caches, angles=angles)]


def _footprint_bytes(shape: Shape, *, whole: bool) -> int:
    tokens = shape.sequences * shape.query_tokens
    cached = shape.sequences * (shape.query_tokens + shape.context_tokens)
    weights = shape.layers * LAYER_PARAMETERS + (VOCABULARY * HIDDEN if whole else 0)
    kv = shape.layers * 2 * KV_HEADS * HEAD_DIM * cached
    return DTYPE.itemsize * (weights + kv + tokens * (6 * HIDDEN + 3 * INTERMEDIATE))


def _layers_that_fit(bench: Bench) -> int:
    """Layers of which weights take half of the share of memory that a case may use, at most the model's own."""
    room = MEMORY_SHARE * bench.memory_bytes / 2 / DTYPE.itemsize - VOCABULARY * HIDDEN
    return max(1, min(LAYERS, int(room / LAYER_PARAMETERS)))


# (sequences, new tokens each, tokens cached before them): prompts, chunks of prompts, then steps of decoding.
PROMPTS = (
    (1, 128, 0), (1, 512, 0), (1, 2048, 0), (1, 8192, 0), (1, 16384, 0), (4, 512, 0), (4, 2048, 0), (16, 128, 0),
)  # fmt: skip
CHUNKS = ((1, 512, 3584), (1, 2048, 6144), (1, 2048, 14336), (1, 2048, 30720))
STEPS = (
    *PROMPTS,
    *((sequences, 1, context) for context in (512, 2048, 8192, 32768) for sequences in (1, 4, 8, 16, 32, 64, 128, 256)),
    *CHUNKS,
)


def whole_groups(bench: Bench) -> list[Group]:
    """A few steps of one layer and forty of the whole model, launched one by one and as a graph; a CPU is spared."""
    if not bench.is_cuda:
        return []
    groups = []
    for family, layers, whole in (("whole_layer", 1, False), ("whole_model", _layers_that_fit(bench), True)):
        cases = []
        for sequences, tokens, context in STEPS if whole else STEPS[:: len(STEPS) // 8]:
            shape = Shape(sequences=sequences, query_tokens=tokens, context_tokens=context, layers=layers)
            lasting = whole and (sequences, tokens, context) in SUSTAINED_STEPS
            for eager in (False, True):
                cases.append(
                    Case(
                        family=family,
                        kernel="decode" if tokens == 1 else "prefill",
                        format="bf16",
                        shape=shape,
                        footprint_bytes=_footprint_bytes(shape, whole=whole),
                        build=partial(_calls, bench, shape, whole),
                        wanted_s=SUSTAINED_S if lasting and not eager else 0.0,
                        eager_only=eager,
                    )
                )
        groups.append(Group(name=family.replace("_", " "), cases=cases, weight=3.0 if whole else 1.0))
    return groups
