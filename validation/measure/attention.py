"""Scaled dot-product attention, each kernel pinned: causal prefill and decode on cold keys and values.

torch takes cuDNN's kernel by default on compute capability 9.0 since 2.5, and it is not as fast as FlashAttention-2
(pytorch issue 142132): both are measured under their own names.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from validation.measure.bench import Bench, Group, random_tensor
from validation.measure.design import Axis, Choice, shapes
from validation.measure.table import Shape
from validation.measure.timing import Call, Case

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "math": SDPBackend.MATH}
HEAD_DIMS = (64, 128, 192, 256)
"""192 is the width of an expanded latent head (DeepSeek), its values padded to it."""
QUERIES_PER_KV_HEAD = (1, 4, 8, 32)
"""Multi-head, two kinds of grouped, and (with one KV head) multi-query attention."""
CHUNKS = tuple((new, context) for new in (512, 2048, 8192) for context in (2048, 8192, 32768))
CHUNK_LAYOUTS = ((32, 8, 128), (64, 8, 128), (8, 1, 128))
"""(heads, kv heads, head_dim) of Llama-3.1-8B, of its 70B sister, and of that over eight devices."""
LATENT_QUERY_DIM, LATENT_VALUE_DIM = 192, 128
LATENT_PROMPTS = ((1, 512), (1, 2048), (1, 8192), (1, 16384), (4, 2048), (8, 512))
SCORE_BYTES_AT_MOST = 2 * 1024**3
"""Of the score matrix that the plain kernel writes."""


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, backend: SDPBackend, causal: bool
) -> object:
    mask = None
    if causal and query.shape[2] < key.shape[2]:
        # Brings torch's compiler with it, which whoever only reads the cases need not wait for.
        from torch.nn.attention.bias import causal_lower_right

        # A chunk of a prompt sees all that is cached before it: the mask ends at the last key.
        mask, causal = causal_lower_right(query.shape[2], key.shape[2]), False
    with sdpa_kernel(backend):
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=causal, enable_gqa=query.shape[1] != key.shape[1]
        )


def _calls(bench: Bench, shape: Shape, kernel: str, dtype: torch.dtype, copies: int) -> Sequence[Call]:
    """Prefill attends causally to its own tokens; decode to everything cached and its own token."""
    keys = shape.query_tokens + shape.context_tokens
    calls = []
    for _ in range(copies):
        query = random_tensor(
            shape.sequences, shape.num_heads, shape.query_tokens, shape.head_dim, bench=bench, dtype=dtype
        )
        key, value = (
            random_tensor(shape.sequences, shape.num_kv_heads, keys, shape.head_dim, bench=bench, dtype=dtype)
            for _ in range(2)
        )
        causal = shape.query_tokens > 1
        calls.append(partial(_attend, query, key, value, backend=BACKENDS[kernel], causal=causal))
    return calls


def _footprint_bytes(shape: Shape, *, kernel: str, itemsize: int) -> int:
    keys = shape.query_tokens + shape.context_tokens
    tokens = 2 * shape.query_tokens * shape.num_heads + 2 * keys * shape.num_kv_heads
    total = shape.sequences * tokens * shape.head_dim * itemsize
    if kernel == "math":
        total += 4 * 2 * shape.sequences * shape.num_heads * shape.query_tokens * keys
    return total


def _layout(design: Sequence[int]) -> tuple[int, int, int]:
    """(num_heads, num_kv_heads, head_dim) from the design's last three coordinates."""
    heads, sharing, head_dim = design
    return heads, max(1, heads // sharing), head_dim


def _case(bench: Bench, *, shape: Shape, kernel: str, dtype: torch.dtype, fmt: str) -> Case:
    family = "prefill_attention" if shape.query_tokens > 1 else "decode_attention"
    return Case(
        family=family,
        kernel=kernel,
        format=fmt,
        shape=shape,
        footprint_bytes=_footprint_bytes(shape, kernel=kernel, itemsize=dtype.itemsize),
        build=partial(_calls, bench, shape, kernel, dtype),
    )


def attention_case(bench: Bench, shape: Shape) -> Case:
    """One call of the flash kernel."""
    dtype, fmt = _dtype(bench)
    return _case(bench, shape=shape, kernel="flash", dtype=dtype, fmt=fmt)


def _dtype(bench: Bench) -> tuple[torch.dtype, str]:
    """16-bit on a GPU; a CPU without units for it would convert every number."""
    return (torch.bfloat16, "bf16") if bench.is_cuda else (torch.float32, "fp32")


def _kernels(bench: Bench) -> tuple[str, ...]:
    """cuDNN's runs on GPUs alone."""
    return tuple(BACKENDS) if bench.is_cuda else ("flash", "math")


def prefill_groups(bench: Bench) -> list[Group]:
    """Sequences x tokens, heads, sharing, head width."""
    dtype, fmt = _dtype(bench)
    top = 16384 if bench.is_cuda else 512
    axes = (
        Axis(low=1, high=8 if bench.is_cuda else 2),
        Axis(low=64, high=top, step=16),
        Choice(values=(8, 16, 32, 64) if bench.is_cuda else (2, 4)),
        Choice(values=QUERIES_PER_KV_HEAD),
        Choice(values=HEAD_DIMS),
    )
    groups = []
    for kernel in _kernels(bench):
        cases = []
        for sequences, tokens, *layout in shapes(bench.points, axes=axes):
            heads, kv_heads, head_dim = _layout(layout)
            if kernel == "math" and 4 * sequences * heads * tokens**2 > SCORE_BYTES_AT_MOST:
                continue
            shape = Shape(
                sequences=sequences,
                query_tokens=tokens,
                context_tokens=0,
                num_heads=heads,
                num_kv_heads=kv_heads,
                head_dim=head_dim,
            )
            cases.append(_case(bench, shape=shape, kernel=kernel, dtype=dtype, fmt=fmt))
        groups.append(Group(name=f"prefill attention {kernel}", cases=cases, weight=0.5 if kernel == "math" else 2.0))
    return groups


def decode_groups(bench: Bench) -> list[Group]:
    """One query token a sequence against a cold cache."""
    dtype, fmt = _dtype(bench)
    axes = (
        Axis(low=1, high=256 if bench.is_cuda else 8),
        Axis(low=64, high=32768 if bench.is_cuda else 1024),
        Choice(values=(8, 16, 32, 64) if bench.is_cuda else (4, 8)),
        Choice(values=QUERIES_PER_KV_HEAD),
        Choice(values=HEAD_DIMS),
    )
    found = []
    for sequences, context, *layout in shapes(bench.points, axes=axes):
        heads, kv_heads, head_dim = _layout(layout)
        shape = Shape(
            sequences=sequences,
            query_tokens=1,
            context_tokens=context,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
        )
        found.append(shape)
    return [
        Group(
            name=f"decode attention {kernel}",
            cases=[_case(bench, shape=shape, kernel=kernel, dtype=dtype, fmt=fmt) for shape in found],
            weight=2.0 if kernel == "flash" else 1.0,
        )
        for kernel in _kernels(bench)
        if kernel != "math"
    ]


def chunk_groups(bench: Bench) -> list[Group]:
    """Chunks of prompts that attend to what is cached before them; a CPU is spared."""
    if not bench.is_cuda:
        return []
    dtype, fmt = _dtype(bench)
    cases = [
        _case(
            bench,
            shape=Shape(
                sequences=1,
                query_tokens=new,
                context_tokens=context,
                num_heads=heads,
                num_kv_heads=kv_heads,
                head_dim=width,
            ),
            kernel="flash",
            dtype=dtype,
            fmt=fmt,
        )
        for new, context in CHUNKS
        for heads, kv_heads, width in CHUNK_LAYOUTS
    ]
    return [Group(name="chunk attention flash", cases=cases)]


def _latent_calls(bench: Bench, shape: Shape, kernel: str, value_dim: int, copies: int) -> Sequence[Call]:
    calls = []
    for _ in range(copies):
        query, key, value = (
            random_tensor(
                shape.sequences, shape.num_heads, shape.query_tokens, width, bench=bench, dtype=torch.bfloat16
            )
            for width in (LATENT_QUERY_DIM, LATENT_QUERY_DIM, value_dim)
        )
        calls.append(partial(_attend, query, key, value, backend=BACKENDS[kernel], causal=True))
    return calls


def latent_prefill_groups(bench: Bench) -> list[Group]:
    """Prompts of expanded latent attention (DeepSeek): keys 192 wide, values 128 or padded to 192; a CPU is spared."""
    if not bench.is_cuda:
        return []
    cases = []
    for sequences, tokens in LATENT_PROMPTS:
        for heads in (16, 128):
            # FlashAttention-2 wants values as wide as keys.
            for kernel, name, value_dim in (("cudnn", "cudnn", LATENT_VALUE_DIM), ("flash", "flash_padded", 192)):
                shape = Shape(
                    sequences=sequences,
                    query_tokens=tokens,
                    num_heads=heads,
                    num_kv_heads=heads,
                    head_dim=LATENT_QUERY_DIM,
                )
                cases.append(
                    Case(
                        family="latent_prefill",
                        kernel=name,
                        format="bf16",
                        shape=shape,
                        footprint_bytes=2 * sequences * tokens * heads * (2 * LATENT_QUERY_DIM + 2 * value_dim),
                        build=partial(_latent_calls, bench, shape, kernel, value_dim),
                    )
                )
    return [Group(name="latent prefill", cases=cases)]
