"""The fused expert products of vLLM in the configurations that it ships, tokens routed evenly and unevenly.

A row is one of a layer's two products: ``m`` routed rows times ``n`` x ``k`` weights of each of ``groups`` experts. Its
time is the mean over draws of the routing: which expert is popular changes from draw to draw, so that the weights of
the draw before are not found in the cache. Sorting tokens by expert, the activation and the sum are not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from validation.measure.bench import Bench, Group, random_tensor
from validation.measure.engines import engine_is_installed
from validation.measure.engines.routing import (
    BLOCK,
    DRAWS,
    LAYERS,
    NAIVE_BELOW,
    SKEWS,
    TOKENS,
    Experts,
    aligned,
    drawn_experts,
)
from validation.measure.table import Shape
from validation.measure.timing import Call, Case

FORMATS = {"bf16": torch.bfloat16, "fp8_block": torch.float8_e4m3fn}


def _routing(
    layer: Experts, *, tokens: int, skew: float, draw: int, block: int, device: torch.device
) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """What vLLM hands to its kernel: sorted rows (None where it does not sort), experts of blocks, padded rows."""
    chosen = drawn_experts(layer, tokens=tokens, skew=skew, draw=draw)
    if chosen.size * NAIVE_BELOW <= layer.num_experts:
        padded = torch.full((1,), chosen.size * block, dtype=torch.int32, device=device)
        return None, torch.from_numpy(chosen.ravel().astype(np.int32)).to(device), padded
    ids, of_block, padded_rows = aligned(chosen, experts=layer.num_experts, block=block)
    sorted_ids, experts, rows = (torch.from_numpy(part).to(device) for part in (ids, of_block, padded_rows))
    return sorted_ids, experts, rows


def _scales(bench: Bench, layer: Experts, *, rows: int, n: int, k: int) -> tuple[torch.Tensor | None, ...]:
    if layer.format == "bf16":
        return None, None
    of_inputs = torch.ones(rows, k // BLOCK, device=bench.device)
    return of_inputs, torch.ones(layer.num_experts, n // BLOCK, k // BLOCK, device=bench.device)


def _calls(bench: Bench, layer: Experts, tokens: int, skew: float, product: str, copies: int) -> Sequence[Call]:
    from vllm.model_executor.layers.fused_moe import fused_moe
    from vllm.triton_utils import tl

    dtype, top_k = FORMATS[layer.format], layer.num_experts_per_tok
    (up_n, hidden), (_, inner) = layer.widths("up"), layer.widths("down")
    n, k = layer.widths(product)
    block_shape = None if layer.format == "bf16" else [BLOCK, BLOCK]
    config = fused_moe.try_get_optimal_moe_config(
        (layer.num_experts, up_n, hidden), (layer.num_experts, hidden, inner), top_k,
        None if block_shape is None else "fp8_w8a8", tokens, block_shape=block_shape,
    )  # fmt: skip
    rows = tokens if product == "up" else tokens * top_k
    a = random_tensor(rows, k, bench=bench, dtype=dtype)
    weight = random_tensor(layer.num_experts, n, k, bench=bench, dtype=dtype)
    of_inputs, of_weights = _scales(bench, layer, rows=rows, n=n, k=k)
    shares = torch.full((tokens, top_k), 1 / top_k, device=bench.device)
    out = torch.empty(tokens, top_k, n, device=bench.device, dtype=torch.bfloat16)
    calls = []
    for draw in range(DRAWS if bench.is_cuda else 1):
        ids, of_block, padded = _routing(
            layer, tokens=tokens, skew=skew, draw=draw, block=config["BLOCK_SIZE_M"], device=bench.device
        )
        calls.append(
            partial(
                fused_moe.invoke_fused_moe_triton_kernel, a, weight, out, of_inputs, of_weights, shares, ids, of_block,
                padded, product == "down", top_k if product == "up" else 1, config, tl.bfloat16,
                use_fp8_w8a8=block_shape is not None, use_int8_w8a8=False, use_int8_w8a16=False, use_int4_w4a16=False,
                per_channel_quant=False, block_shape=block_shape,
            )
        )  # fmt: skip
    return calls


def _case(bench: Bench, layer: Experts, *, tokens: int, skew: float, product: str) -> Case:
    n, k = layer.widths(product)
    rows = tokens * layer.num_experts_per_tok
    return Case(
        family="experts",
        kernel=f"vllm_fused_moe_{product}_skew{skew:g}",
        format=layer.format,
        shape=Shape(m=rows, n=n, k=k, groups=layer.num_experts, sequences=tokens, model=layer.model),
        footprint_bytes=layer.num_experts * n * k * FORMATS[layer.format].itemsize + 2 * rows * (n + k),
        build=partial(_calls, bench, layer, tokens, skew, product),
    )


def expert_groups(bench: Bench) -> list[Group]:
    """Each layer's products, few tokens and many in turn; nothing where the engine is not installed or on a CPU."""
    if bench.device.type == "cpu" or not engine_is_installed():
        return []
    return [
        Group(
            name=f"engine experts {layer.model} {layer.format}",
            cases=[
                _case(bench, layer, tokens=tokens, skew=skew, product=product)
                for skew in SKEWS
                for tokens in TOKENS
                for product in ("up", "down")
            ],
        )
        for layer in LAYERS
    ]
