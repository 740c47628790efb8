"""``simulator.operators.moe``: routers, shared and routed experts, and how tokens travel between ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.operators.device_share import dense_block
from simulator.operators.moe import distinct_experts, expert_devices, experts_work, moe_rows, rank_load
from simulator.operators.parallelism import check_parallelism
from simulator.operators.transformer import mlp_rows
from simulator.operators.work import Collective, CollectiveShape, MoeShape, Work, decode_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model.architecture import MlpSpec, MoeSpec
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec
from tests.operators.shares import DECODE, HIDDEN, PREFILL, SMALL, named, names, share

FEW = settings(max_examples=20, deadline=None)
EXPERTS, PICKED, WIDTH = 16, 2, 64
MOE = MoeSpec(num_experts=EXPERTS, num_experts_per_tok=PICKED, moe_intermediate_size=WIDTH)
MODEL = SMALL.model_copy(update={"layers": (SMALL.layers[0].model_copy(update={"feed_forward": (MOE,)}),)})


def rows(spec: MoeSpec = MOE, **degrees: int) -> tuple[Work, ...]:
    return moe_rows(spec, share=share(DECODE, model=MODEL, **degrees), count=1)


def held(works: tuple[Work, ...]) -> float:
    return sum(work.parameters for work in works)


def test_a_layer_of_experts_by_hand() -> None:
    found = rows()
    assert names(found) == ["router", "router_top_k", "experts"]
    assert held(found) == HIDDEN * EXPERTS + EXPERTS * 3 * HIDDEN * WIDTH
    experts = named(found, "experts")
    assert experts.flops[0] == 2 * 7 * PICKED * 3 * HIDDEN * WIDTH
    assert experts.active_parameters == experts.parameters * PICKED / EXPERTS


@FEW
@given(tokens=st.integers(0, 5000), experts=st.integers(2, 512), picked=st.integers(1, 2))
def test_reached_experts_lie_between_the_picked_and_all(tokens: int, experts: int, picked: int) -> None:
    found = float(
        distinct_experts(
            tokens=tokens,  # type: ignore[arg-type]
            num_experts=experts,
            num_experts_per_tok=picked,
            local_experts=experts,
        )
    )
    assert 0 <= found <= experts
    assert found <= tokens * picked + 1e-9
    if tokens >= 1:
        assert found >= picked - 1e-9


@pytest.mark.parametrize("sequences", [1.0, 8.0, 64.0, 100_000.0])
def test_weights_of_the_reached_experts_are_read_once(sequences: float) -> None:
    works = moe_rows(MOE, share=share(decode_step(sequences=sequences, context=10.0), model=MODEL), count=1)
    experts = named(works, "experts")
    assert isinstance(experts.shape, MoeShape)
    reached = experts.shape.distinct_experts[0]
    assert experts.weight_bytes[0] == pytest.approx(reached * 3 * HIDDEN * WIDTH * 2)
    assert experts.weight_bytes[0] <= experts.stored_bytes + 1e-6


@pytest.mark.parametrize("ep_size", [2, 4, 8])
def test_ranks_hold_whole_experts_under_expert_parallelism(ep_size: int) -> None:
    experts = named(rows(tp_size=ep_size, ep_size=ep_size), "experts")
    assert isinstance(experts.shape, MoeShape)
    assert experts.shape.local_experts == EXPERTS / ep_size
    assert experts.shape.intermediate_size == WIDTH
    assert experts.parameters == EXPERTS / ep_size * 3 * HIDDEN * WIDTH


@pytest.mark.parametrize("tp_size", [2, 4, 8])
def test_ranks_hold_a_slice_of_every_expert_without_it(tp_size: int) -> None:
    experts = named(rows(tp_size=tp_size), "experts")
    assert isinstance(experts.shape, MoeShape)
    assert experts.shape.local_experts == EXPERTS
    assert experts.shape.intermediate_size == WIDTH / tp_size
    assert experts.parameters == EXPERTS * 3 * HIDDEN * WIDTH / tp_size


def test_work_is_spread_without_loss_whatever_the_layout() -> None:
    whole = named(rows(), "experts").flops[0]
    for degrees in ({"tp_size": 4}, {"tp_size": 4, "ep_size": 4}, {"tp_size": 2, "ep_size": 2}):
        devices = degrees["tp_size"]
        assert named(rows(**degrees), "experts").flops[0] * devices == pytest.approx(whole)


@pytest.mark.parametrize(("tp_size", "ep_size", "dp_size", "devices"), [(4, 1, 1, 4), (1, 8, 8, 8), (2, 8, 4, 8)])
def test_devices_that_hold_a_layer_together(tp_size: int, ep_size: int, dp_size: int, devices: int) -> None:
    found = share(DECODE, model=MODEL, tp_size=tp_size, ep_size=ep_size, dp_size=dp_size)
    assert expert_devices(found) == devices


def test_one_sum_where_attention_is_tensor_parallel() -> None:
    found = rows(tp_size=4, ep_size=4)
    collectives = [row.shape for row in found if isinstance(row.shape, CollectiveShape)]
    assert [shape.operation for shape in collectives] == [Collective.ALL_REDUCE]
    assert collectives[0].message_bytes[0] == 7 * HIDDEN * 2


def test_tokens_travel_both_ways_where_attention_is_data_parallel() -> None:
    found = rows(ep_size=8, dp_size=8)
    dispatch, combine = named(found, "experts_dispatch").shape, named(found, "experts_combine").shape
    for shape in (dispatch, combine):
        assert isinstance(shape, CollectiveShape)
        assert (shape.operation, shape.participants) == (Collective.ALL_TO_ALL, 8)
        # The busiest rank takes in more than its share.
        busiest = rank_load(MOE, tokens=np.array([56.0]), local_experts=MOE.num_experts / 8).assignments[0]
        assert shape.message_bytes[0] == pytest.approx(busiest * HIDDEN * 2)
        assert busiest > 7 * PICKED
    # Each rank's tokens meet the experts of all.
    experts = named(found, "experts")
    assert isinstance(experts.shape, MoeShape)
    assert experts.shape.tokens[0] == 8 * 7


def test_narrow_activations_travel_narrow_on_the_way_out_and_wide_on_the_way_back() -> None:
    narrow = share(
        DECODE, model=MODEL, ep_size=8, dp_size=8, precision=PrecisionSpec(weights=Dtype.FP8, activations=Dtype.FP8)
    )
    found = moe_rows(MOE, share=narrow, count=1)
    dispatch, combine = named(found, "experts_dispatch").shape, named(found, "experts_combine").shape
    assert isinstance(dispatch, CollectiveShape)
    assert isinstance(combine, CollectiveShape)
    assert combine.message_bytes[0] > 7 * PICKED * HIDDEN * 2
    assert dispatch.message_bytes[0] == pytest.approx(combine.message_bytes[0] / 2, rel=0.05)


@pytest.mark.parametrize("gate", [False, True])
def test_a_shared_expert_sees_every_token(gate: bool) -> None:
    spec = MOE.model_copy(update={"shared_expert_intermediate_size": 96, "shared_expert_gate": gate})
    found = rows(spec)
    assert held(found) - held(rows()) == 3 * HIDDEN * 96 + (HIDDEN if gate else 0)
    assert named(found, "shared_gate_up_proj").flops[0] == 2 * 7 * HIDDEN * 2 * 96


def test_latent_experts_work_in_a_narrower_space() -> None:
    found = rows(MOE.model_copy(update={"latent_size": 64}))
    assert named(found, "latent_in_proj").parameters == named(found, "latent_out_proj").parameters == HIDDEN * 64
    assert named(found, "experts").parameters == EXPERTS * 3 * 64 * WIDTH


@pytest.mark.parametrize(("gated", "matrices"), [(True, 3), (False, 2)])
def test_experts_have_two_matrices_or_three(gated: bool, matrices: int) -> None:
    experts = experts_work(MOE.model_copy(update={"gated": gated}), share=share(DECODE, model=MODEL), count=1)
    assert experts.parameters == EXPERTS * matrices * HIDDEN * WIDTH


def test_biases_of_router_experts_and_choice() -> None:
    spec = MOE.model_copy(update={"expert_bias": True, "router_bias": True, "correction_bias": True})
    assert held(rows(spec)) - held(rows()) == EXPERTS * (2 * WIDTH + HIDDEN) + EXPERTS + EXPERTS


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("tp_size", [1, 2, 4])
def test_a_dense_block_is_split_by_columns_and_then_by_rows(gated: bool, tp_size: int) -> None:
    up, activation, down = dense_block(
        "", share=share(PREFILL, tp_size=tp_size), role="mlp", intermediate=512, gated=gated, bias=False, count=1
    )
    assert up.parameters == (2 if gated else 1) * HIDDEN * 512 / tp_size
    assert down.parameters == HIDDEN * 512 / tp_size
    assert activation.activation_bytes[0] == (3 if gated else 2) * 150 * 512 / tp_size * 2


def test_one_expert_that_everyone_picks_is_a_dense_block() -> None:
    """Agreement of two ways to count one thing."""
    single = MoeSpec(num_experts=2, num_experts_per_tok=2, moe_intermediate_size=256)
    dense = mlp_rows(MlpSpec(intermediate_size=512), share=share(DECODE), count=1)
    experts = experts_work(single, share=share(DECODE, model=MODEL), count=1)
    products = [row for row in dense if row.parameters]
    assert experts.flops[0] == sum(row.flops[0] for row in products)
    assert experts.parameters == sum(row.parameters for row in products)
    assert experts.weight_bytes[0] == pytest.approx(sum(row.weight_bytes[0] for row in products))


def test_copies_fill_the_places_of_experts_that_do_not_divide() -> None:
    """Three devices share EXPERTS: each stores whole experts, and the work is still spread without loss."""
    whole, third = named(rows(), "experts"), named(rows(dp_size=3, ep_size=3), "experts")
    assert third.stored_bytes == pytest.approx(-(-EXPERTS // 3) / EXPERTS * whole.stored_bytes)
    assert third.stored_bytes * 3 > whole.stored_bytes
    check_parallelism(load_model("deepseek-v3"), ParallelismSpec(dp_size=48, ep_size=48))
    with pytest.raises(RoofcastError, match="allow 1, 2"):
        check_parallelism(load_model("deepseek-v3"), ParallelismSpec(dp_size=512, ep_size=512))
