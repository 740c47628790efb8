"""FLOPs and memory traffic of attention while training, materialised and tiled, as FlashAttention counts them."""

from __future__ import annotations

from math import ceil

from simulator.records import dataclass

MASK_BYTES = 1.0
"""A dropout mask holds one byte per score."""

TENSORS_FORWARD = 4.0
"""Queries, keys and values read, outputs written."""

TENSORS_BACKWARD = 8.0
"""Queries, keys, values and the outputs' gradient read (once each for two products), three gradients written."""

ROW_STATISTICS, STATISTIC_BYTES = 2.0, 4.0
"""The largest score of a row and the sum of its exponentials, in 32 bits."""

PRODUCTS_FORWARD, PRODUCTS_BACKWARD = 2, 4
"""Products of N x N x d; tiled kernels compute the scores once more on the way back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCost:
    """One attention layer, forward and backward: FLOPs of its products and bytes to and from HBM."""

    flops: float
    forward_bytes: float
    backward_bytes: float

    @property
    def hbm_bytes(self) -> float:
        """Traffic of the forward and the backward pass [bytes]."""
        return self.forward_bytes + self.backward_bytes


def standard_attention_cost(
    *, heads: float, tokens: float, head_dim: float, element_bytes: float = 2.0, masks: bool = True, drops: bool = True
) -> AttentionCost:
    """Scores in memory between kernels: N x N traffic ([Dao2022], algorithm 0, with mask and dropout as in training).

    heads : sequences x heads of one layer; tokens : N; head_dim : d

    Passes over the scores, forward: product writes 1, additive mask 2, softmax 2, dropout 2 and its mask, product reads
    1. Backward: two products 1 + 1, dropout 2 and its mask, softmax 3, two products 2; an additive mask needs none.
    """
    forward = 1.0 + 2.0 * masks + 2.0 + 2.0 * drops + 1.0
    backward = 1.0 + 1.0 + 2.0 * drops + 3.0 + 2.0
    tensor_bytes = tokens * head_dim * element_bytes
    passes_bytes, mask_bytes = tokens**2 * element_bytes, tokens**2 * MASK_BYTES * drops
    products = PRODUCTS_FORWARD + PRODUCTS_BACKWARD
    return AttentionCost(
        flops=heads * products * 2.0 * tokens**2 * head_dim,
        forward_bytes=heads * (forward * passes_bytes + mask_bytes + TENSORS_FORWARD * tensor_bytes),
        backward_bytes=heads * (backward * passes_bytes + mask_bytes + TENSORS_BACKWARD * tensor_bytes),
    )


def flash_attention_cost(
    *, heads: float, tokens: float, head_dim: float, sram_bytes: float, element_bytes: float = 2.0
) -> AttentionCost:
    """Key blocks of B = floor(M / 4d) tokens stay on chip while queries pass: N^2 d^2 / M traffic [Dao2022].

    sram_bytes : on-chip memory of one compute unit (M elements)

    Each of ceil(N / B) key blocks reads queries and outputs and writes outputs (forward), and reads queries, outputs,
    their gradient and the queries' gradient and writes the last (backward); keys, values and their gradients pass once.
    What gathers in HBM (outputs, the queries' gradient) is written once more, as zeros. The largest score and the sum
    of each row are initialised, read and written by every block forward and read by every block backward.
    """
    blocks = key_blocks(tokens=tokens, head_dim=head_dim, sram_bytes=sram_bytes, element_bytes=element_bytes)
    tensor_bytes = heads * tokens * head_dim * element_bytes
    statistics_bytes = heads * tokens * ROW_STATISTICS * STATISTIC_BYTES
    products = PRODUCTS_FORWARD + PRODUCTS_BACKWARD + 1
    return AttentionCost(
        flops=heads * products * 2.0 * tokens**2 * head_dim,
        forward_bytes=(3.0 * blocks + 3.0) * tensor_bytes + (2.0 * blocks + 1.0) * statistics_bytes,
        backward_bytes=(5.0 * blocks + 5.0) * tensor_bytes + blocks * statistics_bytes,
    )


def block_keys(*, head_dim: float, sram_bytes: float, element_bytes: float = 2.0) -> int:
    """Keys of a block of tiled attention, floor(M / (4 d)) elements [-]; see ``key_blocks``."""
    return max(1, int(sram_bytes / element_bytes / (4.0 * head_dim)))


def key_blocks(*, tokens: float, head_dim: float, sram_bytes: float, element_bytes: float = 2.0) -> int:
    """Key blocks of a sequence under tiled attention [-].

    Equation
    --------
    n = ceil(N / max(1, floor(M / (4 d))))

    Parameters
    ----------
    tokens : tokens N of the sequence [-]
    head_dim : width d of a head [-]
    sram_bytes, element_bytes : on-chip memory of a compute unit and size of an element; M is their ratio [bytes]

    Range of validity
    -----------------
    Positive sizes. Leaves out that real kernels take blocks of fixed sizes.

    References
    ----------
    [Dao2022]

    Examples
    --------
    100 kB of 16-bit elements hold blocks of 195 keys of 64 elements.

    >>> key_blocks(tokens=1024, head_dim=64, sram_bytes=100000)
    6
    """
    return ceil(tokens / block_keys(head_dim=head_dim, sram_bytes=sram_bytes, element_bytes=element_bytes))
