"""Decode attention of vLLM's Triton kernels over a paged cache: latent (MLA, absorbed) and grouped heads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from validation.measure.bench import Bench, Group, random_tensor
from validation.measure.engines import engine_is_installed
from validation.measure.table import Shape
from validation.measure.timing import Call, Case

PAGE_TOKENS = 16
LATENT_DIM, ROPE_DIM = 512, 64
LATENT_SPLITS = 4
"""Parts of a context that vLLM's latent kernel works on at once, whatever the batch."""
SEGMENTS = 16
SMALLEST_GRID = 128
"""Below this many programs vLLM's other kernel divides a context into SEGMENTS."""
CACHE_BYTES_AT_MOST = 8 * 1024**3
LATENT_NUMBERS_AT_MOST = 2**31
"""Of a cache: vLLM's latent kernel finds a token's place in 32 bits (a page's number times its tokens times the width),
and reads outside the memory beyond: 128 x 32768 tokens ended the first visit's groups. The other kernel has 64 bits."""
STEPS = tuple(
    (sequences, context) for context in (512, 2048, 8192, 32768, 65536) for sequences in (1, 8, 32, 128)
)  # fmt: skip
LATENT_HEADS = (16, 128)
"""DeepSeek-V3's 128 heads on eight devices, and on one rank of attention data parallelism."""
LAYOUTS = ((32, 8, 128), (8, 1, 128), (64, 8, 64))
"""(heads, kv heads, head_dim) of Llama-3.1-8B, of Llama-3.1-70B over eight devices, of gpt-oss."""
KV_FORMATS = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}


def _pages(bench: Bench, *, sequences: int, context: int) -> tuple[int, torch.Tensor, torch.Tensor]:
    """Pages in all, and those of each sequence in no order [sequences, pages], with the lengths [sequences]."""
    each = -(-context // PAGE_TOKENS)
    total = sequences * each
    table = torch.randperm(total, device=bench.device).to(torch.int32).view(sequences, each)
    return total, table, torch.full((sequences,), context, device=bench.device, dtype=torch.int32)


def _latent_calls(bench: Bench, shape: Shape, copies: int) -> Sequence[Call]:
    from vllm.v1.attention.ops.triton_decode_attention import decode_attention_fwd

    count, heads = shape.sequences, shape.num_heads
    calls = []
    for _ in range(copies):
        total, table, lengths = _pages(bench, sequences=count, context=shape.context_tokens)
        cache = random_tensor(total, PAGE_TOKENS, 1, LATENT_DIM + ROPE_DIM, bench=bench, dtype=torch.bfloat16)
        query = random_tensor(count, heads, LATENT_DIM + ROPE_DIM, bench=bench, dtype=torch.bfloat16)
        out = torch.empty(count, heads, LATENT_DIM, device=bench.device, dtype=torch.bfloat16)
        sums = torch.empty(count, heads, device=bench.device, dtype=torch.bfloat16)
        parts = torch.empty(count, heads, LATENT_SPLITS, LATENT_DIM + 1, device=bench.device)
        calls.append(
            partial(
                decode_attention_fwd, query, cache, cache[..., :LATENT_DIM], out, sums, table, lengths, parts,
                LATENT_SPLITS, 0.07, PAGE_TOKENS,
            )
        )  # fmt: skip
    return calls


def segments_below(kv_heads: int) -> int:
    """Sequences up to which vLLM divides contexts: a size of captured graphs (1, 2, 4, then every 8)."""
    wanted = SMALLEST_GRID // kv_heads
    return min((1, 2, 4, *range(8, 257, 8)), key=lambda size: abs(size - wanted))


def _paged_calls(bench: Bench, shape: Shape, kv_format: str, copies: int) -> Sequence[Call]:
    from vllm.v1.attention.ops.triton_unified_attention import unified_attention

    count, heads, width = shape.sequences, shape.num_heads, shape.head_dim
    device, most = bench.device, segments_below(shape.num_kv_heads)
    first_query = torch.arange(count + 1, device=device, dtype=torch.int32)
    one = torch.ones(1, device=device)
    scales = (one, one) if kv_format == "fp8" else (None, None)
    calls = []
    for _ in range(copies):
        total, table, lengths = _pages(bench, sequences=count, context=shape.context_tokens)
        keys, values = (
            random_tensor(
                total, PAGE_TOKENS, shape.num_kv_heads, width, bench=bench, dtype=KV_FORMATS[kv_format]
            )
            for _ in range(2)
        )  # fmt: skip
        query = random_tensor(count, heads, width, bench=bench, dtype=torch.bfloat16)
        parts = torch.empty(most, heads, SEGMENTS, width, device=device)
        sums, maxima = (torch.empty(most, heads, SEGMENTS, device=device) for _ in range(2))
        calls.append(
            partial(
                unified_attention, query, keys, values, torch.empty_like(query), first_query, 1, lengths,
                shape.context_tokens, width**-0.5, True, (-1, -1), table, 0, None, *scales, seq_threshold_3D=most,
                num_par_softmax_segments=SEGMENTS, softmax_segm_output=parts, softmax_segm_max=maxima,
                softmax_segm_expsum=sums,
            )
        )  # fmt: skip
    return calls


def _shape(sequences: int, context: int, layout: tuple[int, int, int]) -> Shape:
    """The step's own token is in the cache already."""
    heads, kv_heads, width = layout
    return Shape(
        sequences=sequences,
        query_tokens=1,
        context_tokens=context,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=width,
    )


def _latent_group(bench: Bench, heads: int) -> Group:
    cases = []
    for sequences, context in STEPS:
        shape = _shape(sequences, context, (heads, 1, LATENT_DIM + ROPE_DIM))
        cases.append(
            Case(
                family="latent_decode",
                kernel="vllm_triton_mla",
                format="bf16",
                shape=shape,
                footprint_bytes=2 * sequences * (context + 2 * heads) * (LATENT_DIM + ROPE_DIM),
                build=partial(_latent_calls, bench, shape),
            )
        )
    kept = [
        case
        for case in cases
        if case.shape.sequences * case.shape.context_tokens * case.shape.head_dim <= LATENT_NUMBERS_AT_MOST
    ]
    return Group(name=f"engine latent decode {heads} heads", cases=kept)


def _paged_group(bench: Bench, layout: tuple[int, int, int], kv_format: str) -> Group:
    heads, kv_heads, width = layout
    cases = []
    for sequences, context in STEPS:
        shape = _shape(sequences, context, layout)
        kept_bytes = 2 * sequences * context * kv_heads * width * KV_FORMATS[kv_format].itemsize
        cases.append(
            Case(
                family="paged_decode",
                kernel="vllm_triton_unified",
                format=f"bf16_kv_{kv_format}",
                shape=shape,
                footprint_bytes=kept_bytes + 4 * sequences * heads * width,
                build=partial(_paged_calls, bench, shape, kv_format),
            )
        )
    kept = [case for case in cases if case.footprint_bytes <= CACHE_BYTES_AT_MOST]
    return Group(name=f"engine paged decode {heads}/{kv_heads}x{width} {kv_format}", cases=kept)


def engine_decode_groups(bench: Bench) -> list[Group]:
    """Latent decode by heads, paged decode by layout and cache format; nothing without the engine or on a CPU."""
    if bench.device.type == "cpu" or not engine_is_installed():
        return []
    return [
        *(_latent_group(bench, heads) for heads in LATENT_HEADS),
        *(_paged_group(bench, layout, kv_format) for kv_format in KV_FORMATS for layout in LAYOUTS),
    ]
