"""SGLang's Triton attention of new tokens to a cached prefix and to themselves: latent absorbed, expanded, grouped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from validation.measure.bench import Bench, Group, random_tensor
from validation.measure.engines import engine_is_installed
from validation.measure.table import Shape
from validation.measure.timing import Call, Case

LAYOUTS = ((16, 1, 576, 512), (128, 1, 576, 512), (16, 16, 192, 128), (32, 8, 128, 128))
"""(heads, kv heads, width of keys, of values): DeepSeek-V3 absorbed over eight devices and whole, expanded over eight,
and Llama-3.1-8B."""
CHUNKS = tuple((new, context) for context in (0, 2048, 8192, 32768) for new in (512, 2048))
FLOPS_AT_MOST = 4e12
"""A case beyond takes seconds."""


def _calls(bench: Bench, shape: Shape, value_dim: int, copies: int) -> Sequence[Call]:
    from sglang.srt.layers.attention.triton_ops.extend_attention import extend_attention_fwd

    new, context, device = shape.query_tokens, shape.context_tokens, bench.device
    ends = [torch.tensor([0, count], dtype=torch.int32, device=device) for count in (new, context)]
    calls = []
    for _ in range(copies):
        query = random_tensor(new, shape.num_heads, shape.head_dim, bench=bench, dtype=torch.bfloat16)
        fresh, kept = (
            random_tensor(max(1, count), shape.num_kv_heads, shape.head_dim, bench=bench, dtype=torch.bfloat16)
            for count in (new, context)
        )
        # Latent values are a part of the keys; the kernel reads others as it reads those.
        values, kept_values = (keys[..., :value_dim] for keys in (fresh, kept))
        if shape.num_kv_heads > 1:
            values, kept_values = values.contiguous(), kept_values.contiguous()
        out = torch.empty(new, shape.num_heads, value_dim, device=device, dtype=torch.bfloat16)
        places = torch.randperm(max(1, context), device=device)
        calls.append(
            partial(
                extend_attention_fwd, query, fresh, values, out, kept, kept_values, *ends, places, None, True, None, new
            )
        )
    return calls


def extend_groups(bench: Bench) -> list[Group]:
    """Chunks of one prompt, by layout; nothing where SGLang is not installed or on a CPU."""
    if bench.device.type == "cpu" or not engine_is_installed("sglang"):
        return []
    groups = []
    for heads, kv_heads, width, value_dim in LAYOUTS:
        cases = []
        for new, context in CHUNKS:
            if 2 * new * (context + new / 2) * heads * (width + value_dim) > FLOPS_AT_MOST:
                continue
            shape = Shape(
                sequences=1,
                query_tokens=new,
                context_tokens=context,
                num_heads=heads,
                num_kv_heads=kv_heads,
                head_dim=width,
            )
            cases.append(
                Case(
                    family="extend_attention",
                    kernel="sglang_triton_extend",
                    format="bf16",
                    shape=shape,
                    footprint_bytes=2 * (new * heads * (width + value_dim) + 2 * (new + context) * kv_heads * width),
                    build=partial(_calls, bench, shape, value_dim),
                )
            )
        groups.append(Group(name=f"engine extend {heads}/{kv_heads}x{width}", cases=cases))
    return groups
