"""Kernels by recipe: what is fused costs no pass of its own, and experts run on the table that the engine names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.kernels.engine_traits import (
    NO_TRAITS,
    EngineTraits,
    filling_passes,
    norm_pass,
    quantising_pass,
    with_recipe,
    without,
)
from simulator.kernels.experts import narrowed_format
from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.kernels.timing import Provenance
from simulator.operators.work import (
    AttentionShape,
    Collective,
    CollectiveShape,
    Family,
    GemmShape,
    MatmulFormat,
    MoeShape,
    Work,
)
from simulator.specs.engine.engine import load_engine
from simulator.specs.engine.releases import (
    FusedAllReduce,
    FusedNorms,
    KernelRecipe,
    ServedModel,
    SplitProducts,
    TableKernel,
    UntunedExperts,
)
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.precision import Dtype

FP8 = MatmulFormat(name="fp8", weight_bits=8, activation_bits=8, math=Dtype.FP8, quantises_activations=True)
NVFP4 = MatmulFormat(name="nvfp4", weight_bits=4.5, activation_bits=4.5, math=Dtype.FP4, quantises_activations=True)
MXFP4 = MatmulFormat(name="mxfp4", weight_bits=4.25, activation_bits=16, math=Dtype.BF16)
BLACKWELL = ("blackwell",)
RECIPE = KernelRecipe(
    fused_quantisation=("fp8",),
    fused_all_reduce=FusedAllReduce(library="trtllm", largest_bytes={"blackwell": {8: 1e6}}),
    kernels=(
        TableKernel(architectures=BLACKWELL, family="moe", weights="mxfp4", library="trtllm", kernel="mxfp4_mxfp8"),
    ),
)


def traits_on(name: str) -> EngineTraits:
    return with_recipe(NO_TRAITS, RECIPE, hardware=load_hardware(name))


def product(m: list[float], *, format: MatmulFormat = FP8) -> Work:
    rows = np.array(m)
    shape = GemmShape(m=rows, n=8192.0, k=8192.0, format=format)
    return work(shape, Family.GEMM, flops=2 * rows * 8192 * 8192)


def work(shape: object, family: Family, *, flops: np.ndarray) -> Work:
    zeros = np.zeros_like(flops)
    return Work(
        name="row",
        family=family,
        role="mlp",
        shape=shape,  # type: ignore[arg-type]
        count=1.0,
        flops=flops,
        weight_bytes=np.ones_like(flops),
        kv_bytes=zeros,
        activation_bytes=zeros,
        parameters=0.0,
        active_parameters=0.0,
        stored_bytes=0.0,
    )


def all_reduce(message: float, *, participants: int = 8, token_bytes: float = 16384.0) -> Work:
    shape = CollectiveShape(
        operation=Collective.ALL_REDUCE,
        message_bytes=np.array([message]),
        participants=participants,
        block_token_bytes=token_bytes,
    )
    return work(shape, Family.COLLECTIVE, flops=np.zeros(1))


def experts(tokens: float) -> Work:
    load = np.array([tokens])
    shape = MoeShape(
        tokens=load,
        hidden_size=2880,
        intermediate_size=2880,
        num_experts=128,
        num_experts_per_tok=4,
        local_experts=128,
        gated=True,
        distinct_experts=np.minimum(4 * load, 128),
        local_assignments=4 * load,
        format=MXFP4,
    )
    return work(shape, Family.MOE, flops=load * 4 * 6 * 2880.0**2)


@pytest.mark.parametrize("hardware", ["b200-sxm", "h200-sxm-141gb"])
def test_a_pass_that_another_kernel_does_is_not_paid(hardware: str) -> None:
    library = kernel_library(load_hardware(hardware), library="trtllm")
    fused = replace(library, traits=traits_on(hardware))
    row = product([1.0, 64.0, 8192.0])
    apart, together = library.price(row).seconds, fused.price(row).seconds
    # TensorRT-LLM's table holds two passes before the product, 8 to 10 us of a small one.
    assert 7e-6 < (apart - together)[0] < 13e-6
    assert (together > 0).all()
    assert (together < apart).all()


def test_what_is_left_is_never_less_than_an_empty_kernel() -> None:
    library = kernel_library(load_hardware("b200-sxm"), library="trtllm")
    row = product([1.0])
    timing = library.price(row)
    assert isinstance(row.shape, GemmShape)
    left = without(timing, replace(timing, seconds=10 * timing.seconds), floor_s=2e-6)
    assert left.seconds[0] == pytest.approx(2e-6)
    assert (quantising_pass(row.shape).bytes == 3 * 8192).all()


def test_a_norm_inside_an_all_reduce_is_paid_once_up_to_the_largest_message() -> None:
    library = kernel_library(load_hardware("b200-sxm"), library="vllm")
    fused = replace(library, traits=traits_on("b200-sxm"))
    small, large = all_reduce(65536.0), all_reduce(4e6)
    assert fused.price(small).seconds[0] < library.price(small).seconds[0]
    assert fused.price(large).seconds[0] == library.price(large).seconds[0]
    inside = all_reduce(65536.0, token_bytes=0.0)
    assert fused.price(inside).seconds[0] == library.price(inside).seconds[0]
    assert isinstance(small.shape, CollectiveShape)
    assert (norm_pass(small.shape).bytes == 4 * 65536).all()


def test_up_to_its_tokens_an_all_reduce_is_in_one_shot_whatever_its_table_found_faster() -> None:
    """Every device reads the messages of seven others: twice the tokens take twice the time where bytes decide."""
    hardware = load_hardware("h200-sxm-141gb")
    traits = with_recipe(NO_TRAITS, load_engine("tensorrt-llm").recipe, hardware=hardware)
    library = replace(kernel_library(hardware, library="trtllm"), traits=traits)
    assert traits.one_shot_tokens == 128

    def seconds(tokens: int, participants: int, *, one_shot_tokens: int) -> float:
        priced = replace(library, traits=replace(traits, one_shot_tokens=one_shot_tokens))
        row = all_reduce(tokens * 16384.0, participants=participants)
        return float(priced.price(row).seconds[0])

    link = hardware.scale_up.bytes_per_s_per_direction
    assert seconds(128, 8, one_shot_tokens=128) > 7 * 128 * 16384 / link > seconds(128, 8, one_shot_tokens=0)
    assert seconds(129, 8, one_shot_tokens=128) == seconds(129, 8, one_shot_tokens=0)
    # Between two devices one shot moves as much as any other way.
    assert seconds(64, 2, one_shot_tokens=128) == pytest.approx(seconds(64, 2, one_shot_tokens=0), rel=0.02)


@pytest.mark.parametrize("name", ["h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm", "b300-sxm", "gb200", "gb300"])
@pytest.mark.parametrize("participants", [2, 4, 8])
def test_a_forced_shot_costs_small_messages_nothing(name: str, participants: int) -> None:
    """Where another law is the fastest for the smallest messages, as on GB300, nobody measured one shot."""
    hardware = load_hardware(name)
    traits = with_recipe(NO_TRAITS, load_engine("tensorrt-llm").recipe, hardware=hardware)
    library = replace(kernel_library(hardware, library="trtllm"), traits=traits)
    free = replace(library, traits=replace(traits, one_shot_tokens=0))
    row = all_reduce(8192.0, participants=participants)
    assert float(library.price(row).seconds[0]) == pytest.approx(float(free.price(row).seconds[0]), rel=0.02)


def test_a_recipe_of_another_architecture_changes_nothing_but_the_fused_passes() -> None:
    traits = traits_on("h200-sxm-141gb")
    assert traits.fused is None
    assert traits.kernel_of("mxfp4", family="moe") is None
    assert traits.quantised_before == {"fp8"}


def test_norms_narrow_on_their_architectures_and_in_the_models_that_the_engine_fuses() -> None:
    norms = FusedNorms(architectures=("cdna4",), formats=("fp8_block",), latent_attention_only=True)
    recipe = KernelRecipe(fused_norms=norms)
    newer, older = (load_hardware(name) for name in ("mi355x", "mi300x"))
    assert with_recipe(NO_TRAITS, recipe, hardware=newer).quantised_before == {"fp8_block"}
    assert with_recipe(NO_TRAITS, recipe, hardware=older).quantised_before == frozenset()
    assert recipe.serving(ServedModel("deepseek_v3", latent_attention=True, spread=False)) is recipe
    assert recipe.serving(ServedModel("llama", latent_attention=False, spread=False)).fused_norms is None


def test_products_that_split_take_no_longer_than_the_16_bit_one_and_only_where_the_release_has_them() -> None:
    """2112 x 7168 for 8 rows: 21 us in AITER's table of block-scaled kernels, none of which splits; 8.6 in 16 bit."""
    library = kernel_library(load_hardware("mi355x"), library="aiter")
    split = SplitProducts(architectures=("cdna4",), rows=128, shapes={"fp8_block": ((2112, 7168),)})
    named = replace(library, traits=replace(NO_TRAITS, split_products=split))
    block = MatmulFormat(name="fp8_block", weight_bits=8.002, activation_bits=8.25, math=Dtype.FP8)
    plain = MatmulFormat(name="bf16", weight_bits=16, activation_bits=16, math=Dtype.BF16)

    def seconds(priced: KernelLibrary, n: float, *, format: MatmulFormat = block) -> list[float]:
        shape = GemmShape(m=np.array([1.0, 64.0, 128.0, 129.0, 4096.0]), n=n, k=7168.0, format=format)
        timing = priced.product(shape)
        assert timing is not None
        return timing.seconds.tolist()

    table, divided, wide = seconds(library, 2112.0), seconds(named, 2112.0), seconds(library, 2112.0, format=plain)
    assert divided[:3] == [min(pair) for pair in zip(table[:3], wide[:3], strict=True)]
    assert divided[0] < 0.6 * table[0]
    assert divided[3:] == table[3:]
    assert seconds(named, 4224.0) == seconds(library, 4224.0)


def test_experts_run_on_the_kernel_that_the_recipe_names() -> None:
    library = kernel_library(load_hardware("b200-sxm"), library="trtllm")
    named = replace(library, traits=traits_on("b200-sxm"))
    row = experts(64.0)
    # gpt-oss-120b at 64 tokens: 890 us in the table of 16-bit activations, 210 us in that of MXFP8 ones.
    assert named.price(row).seconds[0] < 0.5 * library.price(row).seconds[0]
    narrowed = narrowed_format(MXFP4, kernel="mxfp4_mxfp8")
    assert (narrowed.math, narrowed.activation_bits) == (Dtype.FP8, 8.25)


def test_a_kernel_that_one_table_alone_has_prices_its_siblings() -> None:
    """vLLM's experts of MXFP4 by MXFP8 were timed on B200: GB300, of the same units, takes as long, and less than for
    its own table's 16-bit ones."""
    kernel = TableKernel(
        architectures=("blackwell", "blackwell-ultra"),
        family="moe",
        weights="mxfp4",
        library="vllm",
        kernel="mxfp4_mxfp8",
    )
    seconds = {}
    for name in ("b200-sxm", "gb300"):
        traits = with_recipe(NO_TRAITS, KernelRecipe(kernels=(kernel,)), hardware=load_hardware(name))
        library = kernel_library(load_hardware(name), library="vllm")
        seconds[name] = replace(library, traits=traits).price(experts(512.0)).seconds[0]
    assert seconds["gb300"] == pytest.approx(seconds["b200-sxm"], rel=0.05)
    assert seconds["gb300"] < 0.8 * library.price(experts(512.0)).seconds[0]


def test_experts_that_all_to_all_feeds_run_grouped_products_on_racks_alone() -> None:
    recipe = load_engine("sglang").recipe.serving(ServedModel("deepseek_v3", latent_attention=True, spread=True))
    block = MatmulFormat(name="fp8_block", weight_bits=8, activation_bits=8, math=Dtype.FP8, quantises_activations=True)
    # DeepSeek-V3's layer in an expert-parallel group of 48: 4,080 tokens of 85 sequences a rank.
    tokens = np.array([4080.0])
    near = MoeShape(
        tokens=tokens,
        hidden_size=7168.0,
        intermediate_size=2048.0,
        num_experts=256.0,
        num_experts_per_tok=8.0,
        local_experts=256.0 / 48,
        gated=True,
        distinct_experts=np.array([256.0 / 48]),
        local_assignments=tokens * 8.0 / 48,
        format=block,
    )
    far = replace(near, exchanged=True)
    seconds = {}
    for name in ("gb200", "gb300", "b200-sxm"):
        hardware = load_hardware(name)
        traits = with_recipe(NO_TRAITS, recipe, hardware=hardware)
        library = replace(kernel_library(hardware, library="sglang"), traits=traits)
        for shape in (near, far):
            row = work(shape, Family.MOE, flops=tokens * 8.0 / 48 * 6 * 7168 * 2048)
            seconds[name, shape.exchanged] = library.price(row).seconds[0]
    assert seconds["b200-sxm", True] == seconds["b200-sxm", False]
    assert seconds["gb200", True] < 0.5 * seconds["gb200", False]
    assert seconds["gb300", True] == pytest.approx(seconds["gb200", True], rel=0.15)
    assert seconds["gb200", False] == pytest.approx(seconds["b200-sxm", False], rel=0.15)


def test_tensor_parallel_experts_may_run_another_kernel_than_spread_ones() -> None:
    """TensorRT-LLM's block-scaled FP8 experts on Blackwell: its own kernels where tensor parallelism divides them."""
    profile = load_engine("tensorrt-llm")
    traits = with_recipe(NO_TRAITS, profile.at(profile.version).recipe, hardware=load_hardware("b200-sxm"))
    divided, spread, exchanged = (
        traits.kernel_of("fp8_block", family="moe", spread=spread, exchanged=exchanged)
        for spread, exchanged in ((False, False), (True, False), (True, True))
    )
    assert divided is not None
    assert spread is None
    assert exchanged is not None
    assert divided.fits is not exchanged.fits


def test_a_kernel_that_narrows_nothing_takes_the_format_as_it_is() -> None:
    assert narrowed_format(MXFP4, kernel="w4a16") == MXFP4


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_release_lies_between_two_measured_kernels_by_its_share(share: float) -> None:
    kernel = TableKernel(
        architectures=BLACKWELL,
        family="gemm",
        weights="nvfp4",
        library="vllm",
        kernel="nvfp4",
        slower="trtllm",
        slower_share=share,
    )
    hardware, row = load_hardware("b200-sxm"), product([1.0, 64.0, 4096.0], format=NVFP4)
    new, old = (kernel_library(hardware, library=name) for name in ("vllm", "trtllm"))
    traits = with_recipe(NO_TRAITS, KernelRecipe(kernels=(kernel,)), hardware=hardware)
    expected = (1 - share) * new.price(row).seconds + share * old.price(row).seconds
    for library in (new, old):
        assert replace(library, traits=traits).price(row).seconds == pytest.approx(expected)


def test_the_release_that_brought_a_kernel_runs_it_alone() -> None:
    profile = load_engine("vllm")
    (kernel,) = (kernel for kernel in profile.recipe.kernels if kernel.slower_until is not None)
    assert profile.at(profile.version).recipe == profile.recipe
    later = profile.at(kernel.slower_until).recipe
    assert {other.slower for other in later.kernels} == {None}
    assert [other.kernel for other in later.kernels] == [other.kernel for other in profile.recipe.kernels]


def test_a_kernel_runs_from_the_release_that_brought_it_on() -> None:
    profile = load_engine("tensorrt-llm")
    (kernel,) = (kernel for kernel in profile.recipe.kernels if kernel.since is not None)
    assert kernel.since is not None
    assert kernel not in profile.at(profile.version).recipe.kernels
    assert kernel in profile.at(kernel.since).recipe.kernels


def test_releases_keep_their_own_recipes() -> None:
    profile = load_engine("tensorrt-llm")
    assert profile.recipe.fused_quantisation
    assert profile.overheads.collective_lag_s == 0
    before = profile.at("0.16")
    assert before.recipe == KernelRecipe()
    assert before.overheads.collective_lag_s > 0


@pytest.mark.parametrize(("local", "slower"), [(8.0, [False, True, True]), (4.0, [False, False, False])])
def test_untuned_experts_wait_for_their_loads_above_as_many_tokens_as_experts(local: float, slower: list[bool]) -> None:
    hardware = load_hardware("h100-sxm-80gb")
    untuned = UntunedExperts(
        architectures=("hopper",),
        until="0.17",
        tile=(64, 64, 32),
        resident_tiles=6,
        load_s=1e-6,
        tuned={hardware.name: ((4, 4096),)},
    )
    tokens = np.array([local, local + 1, 64.0])
    shape = MoeShape(
        tokens=tokens,
        hidden_size=4096.0,
        intermediate_size=4096.0,
        num_experts=16.0,
        num_experts_per_tok=1.0,
        local_experts=local,
        gated=True,
        distinct_experts=np.full(3, local),
        local_assignments=tokens / 2,
        format=MatmulFormat(name="bf16", weight_bits=16, activation_bits=16, math=Dtype.BF16),
    )
    row, plain = work(shape, Family.MOE, flops=tokens), kernel_library(hardware, library="vllm")
    recipe = KernelRecipe(untuned_experts=untuned)
    for version, expected in (("0.15.1", slower), ("0.17.0", [False, False, False])):
        traits = with_recipe(NO_TRAITS, recipe.at(version), hardware=hardware)
        priced = replace(plain, traits=traits).price(row)
        assert list(priced.seconds > plain.price(row).seconds) == expected
        assert list(priced.provenance == Provenance.EXTRAPOLATED) == expected


@pytest.mark.parametrize(
    ("hardware", "width", "slower"),
    [
        ("mi300x", 384.0, [True, True, True]),
        ("mi355x", 384.0, [False, False, True]),
        ("mi325x", 768.0, [False, False, False]),  # a fused kernel takes it
        ("h200-sxm-141gb", 384.0, [False, False, False]),
    ],
)
def test_widths_without_a_fused_kernel_run_slower_where_its_tiles_are_large(
    hardware: str, width: float, slower: list[bool]
) -> None:
    accelerator, tokens = load_hardware(hardware), np.array([4.0, 32.0, 64.0])
    shape = MoeShape(
        tokens=tokens,
        hidden_size=3072.0,
        intermediate_size=width,
        num_experts=256.0,
        num_experts_per_tok=8.0,
        local_experts=256.0,
        gated=True,
        distinct_experts=np.array([30.0, 160.0, 220.0]),
        local_assignments=8.0 * tokens,
        format=MatmulFormat(name="fp8_block", weight_bits=8, activation_bits=8, math=Dtype.FP8),
    )
    row, plain = work(shape, Family.MOE, flops=tokens), kernel_library(accelerator, library="vllm")
    recipe = load_engine("vllm").recipe
    priced = replace(plain, traits=with_recipe(NO_TRAITS, recipe, hardware=accelerator)).price(row)
    (experts,) = recipe.slower_experts
    ratio = priced.seconds / plain.price(row).seconds
    assert ratio == pytest.approx(np.where(slower, 1 / experts.rate_share, 1.0))
    assert (priced.provenance >= np.where(slower, Provenance.EXTRAPOLATED, Provenance.MEASURED)).all()


def test_more_latent_heads_than_a_kernel_takes_read_the_cache_again() -> None:
    hardware, recipe, seconds = load_hardware("mi355x"), load_engine("atom").recipe, {}
    plain = kernel_library(hardware, library="aiter")
    narrow = replace(plain, traits=with_recipe(NO_TRAITS, recipe, hardware=hardware))
    for heads in (16.0, 32.0, 128.0):
        shape = AttentionShape(
            sequences=np.array([64.0]),
            query_tokens=np.array([1.0]),
            context_tokens=np.array([8192.0]),
            num_heads=heads,
            num_kv_heads=1.0,
            head_dim=576.0,
            v_head_dim=512.0,
            window=None,
            causal=True,
            compute_dtype=Dtype.FP8,
            kv_dtype=Dtype.FP8,
            shared_kv=True,
            is_decode=True,
        )
        row = work(shape, Family.DECODE_ATTENTION, flops=np.array([1e9]))
        alone = plain.price(row)
        seconds[heads] = float((narrow.price(row).seconds - alone.seconds)[0] / alone.memory_s[0])
    assert seconds == pytest.approx({16.0: 0.0, 32.0: 1.0, 128.0: 0.0})


@pytest.mark.parametrize("accelerator", ["b200-sxm", "mi355x", "mi300x"])
def test_experts_filled_up_to_a_multiple_cost_the_wider_ones_and_two_passes(accelerator: str) -> None:
    # MI300X has no table of the format: its price follows from 16-bit experts, as wide as the recipe fills them.
    hardware, tokens = load_hardware(accelerator), np.array([4.0, 64.0])
    narrow = MoeShape(
        tokens=tokens,
        hidden_size=2880.0,
        intermediate_size=360.0,
        num_experts=128.0,
        num_experts_per_tok=4.0,
        local_experts=128.0,
        gated=True,
        distinct_experts=np.array([16.0, 110.0]),
        local_assignments=4.0 * tokens,
        format=MXFP4,
    )
    wide = replace(narrow, hidden_size=3072.0, intermediate_size=512.0)
    kernels = (one for one in load_engine("vllm").recipe.kernels if one.weights == "mxfp4")
    (kernel,) = (one for one in kernels if one.runs_on(hardware))
    plain = kernel_library(hardware, library="vllm")
    library, own = (
        replace(plain, traits=with_recipe(NO_TRAITS, KernelRecipe(kernels=(one,)), hardware=hardware))
        for one in (kernel, kernel.model_copy(update={"width_multiple": 1}))
    )
    seconds = [library.price(work(shape, Family.MOE, flops=tokens)).seconds for shape in (narrow, wide)]
    passes = library.memory_pass(filling_passes(narrow, filled=wide)).seconds
    assert seconds[0] == pytest.approx(seconds[1] + passes)
    assert (seconds[0] > own.price(work(narrow, Family.MOE, flops=tokens)).seconds).all()
