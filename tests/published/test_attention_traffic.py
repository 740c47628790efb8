"""Traffic of attention while training: the laws that FlashAttention states."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.published.attention_traffic import flash_attention_cost, key_blocks, standard_attention_cost


@given(tokens=st.integers(64, 8192), head_dim=st.sampled_from([32, 64, 128]), sram=st.integers(20_000, 400_000))
def test_tiling_reads_less_with_more_on_chip_memory(tokens: int, head_dim: int, sram: int) -> None:
    small = flash_attention_cost(heads=1, tokens=tokens, head_dim=head_dim, sram_bytes=sram)
    large = flash_attention_cost(heads=1, tokens=tokens, head_dim=head_dim, sram_bytes=2 * sram)
    assert large.hbm_bytes <= small.hbm_bytes
    assert small.flops == pytest.approx(
        7 / 6 * standard_attention_cost(heads=1, tokens=tokens, head_dim=head_dim).flops
    )
    assert key_blocks(tokens=tokens, head_dim=head_dim, sram_bytes=sram) >= 1


def test_traffic_of_many_blocks_follows_the_published_order() -> None:
    """N^2 d^2 / M: doubling N or d quadruples it, but for the row statistics, which no d widens."""
    cost = flash_attention_cost(heads=1, tokens=2**16, head_dim=64, sram_bytes=2**17)
    longer = flash_attention_cost(heads=1, tokens=2**17, head_dim=64, sram_bytes=2**17)
    wider = flash_attention_cost(heads=1, tokens=2**16, head_dim=128, sram_bytes=2**17)
    assert longer.hbm_bytes / cost.hbm_bytes == pytest.approx(4, rel=0.01)
    assert wider.hbm_bytes / cost.hbm_bytes == pytest.approx(4, rel=0.02)


def test_a_mask_and_dropout_cost_their_passes() -> None:
    bare = standard_attention_cost(heads=1, tokens=1024, head_dim=64, masks=False, drops=False).hbm_bytes
    full = standard_attention_cost(heads=1, tokens=1024, head_dim=64).hbm_bytes
    assert full - bare == 1024**2 * (2 * 2 + 4 * 2 + 2)
