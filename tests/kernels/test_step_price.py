"""What a row's price becomes in an engine's step: kernels slower than the tables', shared experts by vendor."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.kernels.engine_traits import EngineTraits
from simulator.kernels.library import kernel_library
from simulator.kernels.step_rows import in_step, launches_of
from simulator.operators.work import ElementwiseShape, Family, GemmShape, MatmulFormat, Work, decode_step, prefill_step
from simulator.phases.deployment import deploy
from simulator.phases.step import StepEstimate, estimate_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec, load_engine
from simulator.specs.engine.releases import SlowerKernel
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
def test_products_of_many_rows_slow_down_in_the_named_format_alone(name: str, slow: bool) -> None:
    kernels = kernel_library(load_hardware("mi355x"), library="aiter")
    work = product(name)
    plain = kernels.price(work)
    named = SlowerKernel(family="gemm", weights="fp8_block", rows_above={"cdna4": 1024}, rate_share=0.25)
    priced = in_step(plain, work, traits=EngineTraits(slower=((named, 1024),)))
    expected = np.where(slow & (ROWS > 1024), 4.0, 1.0)
    np.testing.assert_allclose(priced.seconds / plain.seconds, expected)
    assert (priced.provenance >= plain.provenance).all()


def test_sglang_runs_slower_products_on_amd_than_other_engines() -> None:
    named = load_engine("sglang").recipe.slower_kernels
    products, experts = (kernel for kernel in named if any(name.startswith("cdna") for name in kernel.rows_above))
    assert set(products.rows_above) == {"cdna3", "cdna4"}
    # AITER's rule on narrow parts of experts is the same under every engine that calls it, where rows told.
    (under_vllm,) = load_engine("vllm").recipe.slower_kernels
    assert set(experts.rows_above) == {"cdna3"}
    assert (experts.width_multiple, experts.rate_share) == (under_vllm.width_multiple, under_vllm.rate_share)
    assert load_engine("atom").recipe.slower_kernels == ()


@pytest.mark.parametrize(
    ("hardware", "slow"), [("b200-sxm", True), ("b300-sxm", True), ("gb200", False), ("gb300", False)]
)
@pytest.mark.parametrize("weights", ["fp8", "nvfp4"])
def test_experts_of_long_prompts_under_sglang_are_slow_on_blackwell_servers_and_not_on_racks(
    hardware: str, slow: bool, weights: str
) -> None:
    def moe_s(engine: str, tokens: float) -> float:
        replica = deploy(
            model=load_model("deepseek-r1"),
            hardware=load_hardware(hardware),
            parallelism=ParallelismSpec(tp_size=8),
            precision=PrecisionSpec.model_validate({"weights": weights}),
            engine=EngineSpec(name=engine),
        )
        step = prefill_step(sequences=1.0, tokens=np.array([tokens]))
        return float(estimate_step(replica, step).breakdown_s["moe"][0])

    # Twice the tokens take about twice the time on the same kernels, and more where only the longer prompt's are slow.
    assert (moe_s("sglang", 8192.0) > 2.2 * moe_s("sglang", 4096.0)) is slow
    assert moe_s("vllm", 8192.0) < 2.2 * moe_s("vllm", 4096.0)


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
