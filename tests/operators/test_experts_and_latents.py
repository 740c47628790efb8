"""Mixtures of experts, latent attention and recurrent layers in the operator list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.moe import distinct_experts
from simulator.operators.recurrent import recurrent_size, update_flops_per_token
from simulator.operators.transformer import operator_list
from simulator.operators.work import (
    AttentionShape,
    CollectiveShape,
    Family,
    MoeShape,
    StepShape,
    Work,
    decode_step,
    prefill_step,
)
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model.architecture import MambaSpec, ModelSpec
from simulator.specs.model.precision import PrecisionSpec
from tests.operators import operator_models as models


def rows_of(model: ModelSpec, step: StepShape, *, tp: int = 1, ep: int = 1, dp: int = 1) -> dict[str, Work]:
    rows = operator_list(
        model,
        parallelism=ParallelismSpec(tp_size=tp, ep_size=ep, dp_size=dp),
        plan=precision_plan(model, PrecisionSpec()),
        step=step,
    )
    return {row.name: row for row in rows}


def reached(tokens: float, *, experts: int = 8, chosen: int = 2, local: int = 8) -> float:
    return float(
        distinct_experts(
            tokens=np.array([tokens]), num_experts=experts, num_experts_per_tok=chosen, local_experts=local
        )[0]
    )


def test_distinct_experts_limits() -> None:
    assert reached(0) == 0
    assert reached(1) == pytest.approx(2)
    assert reached(2) == pytest.approx(8 * (1 - 0.75**2))
    assert reached(10000) == pytest.approx(8)


@given(tokens=st.integers(1, 200), more=st.integers(1, 50), chosen=st.integers(1, 8))
def test_distinct_experts_grow_and_stay_bounded(tokens: int, more: int, chosen: int) -> None:
    here, there = (reached(count, experts=64, chosen=chosen, local=64) for count in (tokens, tokens + more))
    assert chosen * (1 - 1e-9) <= here <= there <= min(64, chosen * (tokens + more)) * (1 + 1e-9)


def test_distinct_experts_match_simulated_routing() -> None:
    """Mean over random choices of 8 out of 64 by 20 tokens, within four standard errors."""
    generator = np.random.default_rng(1)
    counts = [len({expert for _ in range(20) for expert in generator.choice(64, 8, replace=False)}) for _ in range(400)]
    error = float(np.std(counts)) / np.sqrt(len(counts))
    assert reached(20, experts=64, chosen=8, local=64) == pytest.approx(float(np.mean(counts)), abs=4 * error)


@pytest.mark.parametrize(("tp", "ep", "dp"), [(1, 1, 1), (4, 1, 1), (4, 4, 1), (4, 2, 1), (1, 8, 8), (2, 8, 4)])
def test_expert_work_and_weights_are_spread_without_loss(tp: int, ep: int, dp: int) -> None:
    """All devices together hold every expert once and do the FLOPs of all their tokens."""
    model = models.MIXTRAL_8X7B
    one = rows_of(model, decode_step(sequences=16, context=10))["experts"]
    spread = rows_of(model, decode_step(sequences=16, context=10), tp=tp, ep=ep, dp=dp)["experts"]
    replicas = tp * (dp if ep > 1 else 1)
    tokens = dp if ep > 1 else 1
    assert replicas * spread.parameters == pytest.approx(one.parameters)
    assert replicas * spread.flops[0] == pytest.approx(tokens * one.flops[0])
    shape = spread.shape
    assert isinstance(shape, MoeShape)
    assert shape.local_experts == 8 / ep
    assert shape.tokens[0] == 16 * tokens


def test_hand_numbers_of_one_expert_layer() -> None:
    """Mixtral, 3 tokens: 6 assignments of 3 x 4096 x 14336 weights; under even routing 8 (1 - 0.75^3) are read."""
    (layer,) = models.MIXTRAL_8X7B.layers
    (block,) = layer.feed_forward
    layer = layer.model_copy(update={"feed_forward": (block.model_copy(update={"routing_skew": 0.0}),)})
    even = models.MIXTRAL_8X7B.model_copy(update={"layers": (layer,)})
    row = rows_of(even, decode_step(sequences=3, context=10))["experts"]
    uneven = rows_of(models.MIXTRAL_8X7B, decode_step(sequences=3, context=10))["experts"]
    assert uneven.weight_bytes[0] < row.weight_bytes[0]
    weights = 3 * 4096 * 14336
    assert row.flops[0] == 2 * 6 * weights
    assert row.weight_bytes[0] == pytest.approx(8 * (1 - 0.75**3) * weights * 2)
    assert row.parameters == 8 * weights
    assert row.active_parameters == 2 * weights


def test_expert_parallelism_communicates_as_attention_is_parallel() -> None:
    step = decode_step(sequences=16, context=10)
    tensor = rows_of(models.MIXTRAL_8X7B, step, tp=4, ep=4)
    assert "experts_dispatch" not in tensor
    assert tensor["experts_all_reduce"].shape.message_bytes[0] == 16 * 4096 * 2
    data = rows_of(models.MIXTRAL_8X7B, step, ep=8, dp=8)
    assert "experts_all_reduce" not in data
    for name in ("experts_dispatch", "experts_combine"):
        shape = data[name].shape
        assert isinstance(shape, CollectiveShape)
        assert shape.participants == 8
        # No less than an even share, at most every token once: each of the eight experts has a rank.
        assert 16 * 2 * 4096 * 2 < shape.message_bytes[0] <= 16 * 8 * 4096 * 2


def test_latent_attention_expands_at_prefill_and_absorbs_at_decode() -> None:
    model = models.deepseek()
    prefill = rows_of(model, prefill_step(sequences=2, tokens=100, context=50))
    decode = rows_of(model, decode_step(sequences=2, context=1000))
    assert prefill["kv_b_proj"].shape.m[0] == 2 * 150
    expanded, absorbed = prefill["prefill_attention"].shape, decode["decode_attention"].shape
    assert isinstance(expanded, AttentionShape)
    assert isinstance(absorbed, AttentionShape)
    assert (expanded.num_kv_heads, expanded.head_dim, expanded.v_head_dim) == (128, 192, 128)
    assert (absorbed.num_kv_heads, absorbed.head_dim, absorbed.v_head_dim) == (1, 576, 512)
    assert decode["decode_attention"].kv_bytes[0] == 2 * 1000 * 576 * 2
    assert decode["decode_attention"].flops[0] == 2 * 2 * 1000 * 128 * (576 + 512)
    assert decode["q_absorb"].flops[0] == 2 * 2 * 128 * 128 * 512
    assert decode["q_absorb"].parameters + decode["v_absorb"].parameters == prefill["kv_b_proj"].parameters


def test_sparse_attention_is_bounded_and_its_indexer_is_not() -> None:
    """DeepSeek-V3.2: 2048 keys a query however long the context, scored in 64 heads of 128 over all of it."""
    model = models.deepseek(sparse=True)
    short, long = (rows_of(model, decode_step(sequences=1, context=length)) for length in (2048, 65536))
    assert short["decode_attention"].flops[0] == long["decode_attention"].flops[0]
    assert long["index_scores"].flops[0] == 2 * 65536 * 64 * 128
    assert long["index_scores"].flops[0] == 32 * short["index_scores"].flops[0]
    assert long["index_scores"].kv_bytes[0] == 65536 * 132


def test_recurrent_decode_does_not_grow_with_context() -> None:
    short, long = (rows_of(models.HYBRID, decode_step(sequences=4, context=length)) for length in (100, 100000))
    updates = [row.bytes[0] for row in short.values() if row.family is Family.RECURRENT]
    assert updates
    assert updates == [row.bytes[0] for row in long.values() if row.family is Family.RECURRENT]


def test_recurrent_update_hand_numbers() -> None:
    """Mamba-1: 7 FLOPs per state element and token; a chunk of one token costs Mamba-2 no more than a step."""
    spec = MambaSpec(intermediate_size=1536, state_size=16, conv_kernel=4, time_step_rank=48)
    size = recurrent_size(spec, hidden_size=768, tp_size=1)
    assert update_flops_per_token(size, is_decode=True) == 7 * 1536 * 16
    assert size.state_elements == 1536 * 16
    assert recurrent_size(spec, hidden_size=768, tp_size=4).state_elements == 1536 * 16 / 4
