"""What a row's price becomes in an engine's step: kernels slower than the tables', shared experts by vendor."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.kernels.engine_traits import EngineTraits
from simulator.kernels.library import kernel_library
from simulator.kernels.step_rows import in_step, launches_of
from simulator.operators.work import ElementwiseShape, Family, GemmShape, MatmulFormat, Work, decode_step, prefill_step
from simulator.phases.deployment import deploy
from simulator.phases.step import StepEstimate, estimate_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec, load_engine
from simulator.specs.engine.releases import SlowProducts
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec

ROWS = np.array([1.0, 64.0, 1024.0, 1025.0, 16384.0])


def product(name: str) -> Work:
    shape = GemmShape(
        m=ROWS,
        n=2112.0,
        k=7168.0,
        format=MatmulFormat(name=name, weight_bits=8, activation_bits=8, math=Dtype.FP8, quantises_activations=True),
    )
    zero = np.zeros(len(ROWS))
    return Work(
        name="product",
        family=Family.GEMM,
        role="attention",
        shape=shape,
        count=1.0,
        flops=2 * ROWS * 2112 * 7168,
        weight_bytes=zero + 2112 * 7168,
        kv_bytes=zero,
        activation_bytes=zero,
    )


@pytest.mark.parametrize(("name", "slow"), [("fp8_block", True), ("fp8", False)])
def test_large_products_in_the_named_format_alone_reach_no_more_than_a_rate(name: str, slow: bool) -> None:
    kernels = kernel_library(load_hardware("mi355x"), library="aiter")
    work = product(name)
    plain = kernels.price(work)
    rate = 4e14
    kernel = SlowProducts(architectures=("cdna4",), weights="fp8_block", peak_share=0.08)
    priced = in_step(plain, work, traits=EngineTraits(slow_products=((kernel, rate),)))
    reached = np.asarray(work.flops) / priced.seconds
    np.testing.assert_allclose(priced.seconds[:2], plain.seconds[:2])  # memory decides
    assert (reached <= rate * (1 + 1e-9)).all() is np.bool_(slow)
    assert (priced.seconds[-1] > 2 * plain.seconds[-1]) is np.bool_(slow)
    assert (priced.provenance >= plain.provenance).all()


@pytest.mark.parametrize("hardware", ["mi300x", "mi325x", "mi355x"])
def test_no_size_of_step_saves_products_under_sglang_on_amd(hardware: str) -> None:
    """A step in two halves takes longer than whole: what a budget of the engine's could exploit is no jump."""
    replica = deploy(
        model=load_model("deepseek-r1"),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(tp_size=8),
        precision=PrecisionSpec.model_validate({"weights": "fp8"}),
        engine=EngineSpec(name="sglang"),
    )
    tokens = np.array([256.0, 512.0, 1024.0, 1025.0, 2048.0, 4096.0, 4097.0, 8192.0, 16384.0])
    step_s = estimate_step(replica, prefill_step(sequences=np.ones(len(tokens)), tokens=tokens)).step_s
    at = dict(zip(tokens, step_s, strict=True))
    assert at[1025.0] < 1.03 * at[1024.0]
    assert at[4097.0] < 1.03 * at[4096.0]
    assert all(at[2 * size] <= 2 * at[size] for size in tokens if 2 * size in at and size < 4096)


def test_engines_run_the_same_slower_kernels_on_amd_where_they_call_the_same() -> None:
    recipe = load_engine("sglang").recipe
    (products,) = recipe.slow_products
    assert products.architectures == ("cdna3", "cdna4")
    (experts,) = (kernel for kernel in recipe.slower_experts if "cdna3" in kernel.rows_above)
    # AITER's rule on narrow parts of experts is the same under every engine that calls it, where rows told.
    (under_vllm,) = load_engine("vllm").recipe.slower_experts
    assert set(experts.rows_above) == {"cdna3"}
    assert (experts.width_multiple, experts.rate_share) == (under_vllm.width_multiple, under_vllm.rate_share)
    assert load_engine("atom").recipe.slower_experts == ()


@pytest.mark.parametrize(
    ("hardware", "slow"), [("b200-sxm", True), ("b300-sxm", True), ("gb200", False), ("gb300", False)]
)
@pytest.mark.parametrize("weights", ["fp8", "nvfp4"])
def test_prefill_pools_of_sglang_on_blackwell_servers_are_slow_at_every_length_and_one_pool_at_none(
    hardware: str, slow: bool, weights: str
) -> None:
    tokens = np.array([512.0, 4096.0, 4097.0, 16384.0])

    def moe_s(*, prefill_pool: bool) -> NDArray[np.float64]:
        replica = deploy(
            model=load_model("deepseek-r1"),
            hardware=load_hardware(hardware),
            parallelism=ParallelismSpec(tp_size=8),
            precision=PrecisionSpec.model_validate({"weights": weights}),
            engine=EngineSpec(name="sglang"),
            prefill_pool=prefill_pool,
        )
        step = prefill_step(sequences=np.ones(len(tokens)), tokens=tokens)
        return np.asarray(estimate_step(replica, step).breakdown_s["moe"])

    ratio = moe_s(prefill_pool=True) / moe_s(prefill_pool=False)
    assert (ratio > 1.3).all() if slow else ratio == pytest.approx(1.0)
    assert moe_s(prefill_pool=False)[2] < 1.01 * moe_s(prefill_pool=False)[1]


def shared_s(hardware: str, model: str, *, ep_size: int = 1, tokens: float = 64.0) -> tuple[float, StepEstimate]:
    deployment = deploy(
        model=load_model(model),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(tp_size=8, ep_size=ep_size),
        engine=EngineSpec(name="sglang"),
    )
    estimate = estimate_step(deployment, decode_step(sequences=tokens, context=1000.0))
    rows = [row for row in estimate.rows if row.work.role == "shared_expert" and isinstance(row.work.shape, GemmShape)]
    assert rows
    return sum(float(row.seconds[0]) for row in rows), estimate


def test_shared_experts_have_a_stream_of_their_own_on_nvidia_alone() -> None:
    streams = {
        name: deploy(
            model=load_model("glm-4.5"),
            hardware=load_hardware(name),
            parallelism=ParallelismSpec(tp_size=8),
            engine=EngineSpec(name="sglang"),
        ).kernels.traits
        for name in ("h200", "mi355x")
    }
    assert streams["h200"].side_stream_tokens == 1024
    assert streams["mi355x"].side_stream_tokens == 0
    assert not any(traits.fused_shared for traits in streams.values())


def test_deepseek_runs_its_shared_expert_among_the_routed_ones_on_amd_unless_they_are_spread() -> None:
    fused, _ = shared_s("mi355x", "deepseek-r1")
    apart, _ = shared_s("mi355x", "deepseek-r1", ep_size=8)
    assert fused < 0.9 * apart


def test_passes_launch_as_often_as_they_say() -> None:
    zero = np.zeros(1)
    work = Work(
        name="pass",
        family=Family.ELEMENTWISE,
        role="norm",
        shape=ElementwiseShape(bytes=zero, launches=3.0),
        count=1.0,
        flops=zero,
        weight_bytes=zero,
        kv_bytes=zero,
        activation_bytes=zero,
    )
    assert launches_of(work) == 3.0
    assert launches_of(product("fp8")) == 1.0
