"""Which experts tokens are routed to, of whose layers, and how their rows are laid in blocks; without torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWS = 8
"""Routings of a row."""
BLOCK = 128
"""Side of a block of FP8 weights that shares a scale."""
NAIVE_BELOW = 4
"""vLLM does not sort where the routed rows times this are no more than the experts."""
TOKENS = (1, 4, 16, 64, 128, 256, 512, 2048)
SKEWS = (0.0, 0.8, 1.5)
"""Exponents of the popularity of experts by rank: even, as fitted to closed loops, and extreme."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Experts of a layer on one device, by Hugging Face's names; ``intermediate_size`` is the device's share."""

    model: str
    hidden_size: int
    intermediate_size: int
    num_experts: int
    num_experts_per_tok: int
    format: str

    def widths(self, product: str) -> tuple[int, int]:
        """(n, k) of ``up`` (gate and up together) or ``down``."""
        if product == "up":
            return 2 * self.intermediate_size, self.hidden_size
        return self.hidden_size, self.intermediate_size


LAYERS = (
    Experts(model="qwen3-30b-a3b", hidden_size=2048, intermediate_size=768, num_experts=128, num_experts_per_tok=8,
            format="bf16"),
    Experts(model="qwen3-30b-a3b", hidden_size=2048, intermediate_size=768, num_experts=128, num_experts_per_tok=8,
            format="fp8_block"),
    Experts(model="mixtral-8x7b", hidden_size=4096, intermediate_size=7168, num_experts=8, num_experts_per_tok=2,
            format="bf16"),
    Experts(model="deepseek-r1", hidden_size=7168, intermediate_size=256, num_experts=256, num_experts_per_tok=8,
            format="fp8_block"),
    Experts(model="qwen3-235b-a22b", hidden_size=4096, intermediate_size=384, num_experts=128, num_experts_per_tok=8,
            format="fp8_block"),
)  # fmt: skip
"""Qwen3-30B-A3B whole, Mixtral over two devices, DeepSeek-R1 over eight, Qwen3-235B-A22B over four."""


def drawn_experts(layer: Experts, *, tokens: int, skew: float, draw: int) -> NDArray[np.int64]:
    """Different experts of each token, [tokens, experts a token], the same for the same arguments.

    The expert of popularity rank r is preferred as r^-skew (a Gumbel draw without replacement); ranks are given out
    anew for each draw.
    """
    random = np.random.default_rng([layer.num_experts, tokens, round(100 * skew), draw])
    wishes = -skew * np.log(np.arange(1, layer.num_experts + 1))[random.permutation(layer.num_experts)]
    keys = wishes + random.gumbel(size=(tokens, layer.num_experts))
    return np.argsort(-keys, axis=1)[:, : layer.num_experts_per_tok].astype(np.int64)


def aligned(chosen: NDArray[np.int64], *, experts: int, block: int) -> tuple[NDArray[np.int32], ...]:
    """Routed rows sorted by expert, each expert's filled up to whole blocks, as vLLM's ``moe_align_block_size``.

    Returns
    -------
    (row ids [padded at most], expert of each block, [rows with padding]); rows that pad are the number of rows
    """
    rows = chosen.size
    most = rows + experts * (block - 1)
    if rows < experts:
        most = min(rows * block, most)
    ids = np.full(most, rows, dtype=np.int32)
    of_block = np.zeros(-(-most // block), dtype=np.int32)
    counts = np.bincount(chosen.ravel(), minlength=experts)
    blocks = -(-counts // block)
    starts = np.cumsum(blocks) - blocks
    order = np.argsort(chosen.ravel(), kind="stable")
    within = np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)
    ids[np.repeat(starts, counts) * block + within] = order
    of_block[: blocks.sum()] = np.repeat(np.arange(experts), blocks)
    return ids, of_block, np.array([blocks.sum() * block], dtype=np.int32)
