"""Which measured kernel prices a layer of experts, on the shipped fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.kernels.experts import expert_pass_shape, find_experts, whole_experts
from simulator.kernels.fits import FitSet, fit_set
from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.operators.work import ActivationPasses, Array, Family, GemmShape, MatmulFormat, MoeShape, Work
from simulator.specs.hardware.accelerator import list_hardware, load_hardware
from simulator.specs.model.precision import Dtype
from tests.for_every import for_every


def layer(*, gated: bool = True, ranks: int = 1, width: float = 1536.0) -> MoeShape:
    tokens = np.array([64.0])
    return MoeShape(
        tokens=tokens,
        hidden_size=4096.0,
        intermediate_size=width,
        num_experts=128.0,
        num_experts_per_tok=8.0,
        local_experts=128.0 / ranks,
        gated=gated,
        distinct_experts=tokens / ranks,
        local_assignments=8.0 * tokens / ranks,
        format=MatmulFormat(name="bf16", weight_bits=16, activation_bits=16, math=Dtype.BF16),
    )


def narrow_format(name: str) -> MatmulFormat:
    return MatmulFormat(name=name, weight_bits=8, activation_bits=8, math=Dtype.FP8, quantises_activations=True)


def seconds(library: KernelLibrary, shape: MoeShape | GemmShape) -> Array:
    some = np.ones(1)
    moved = {"flops": some, "weight_bytes": some, "kv_bytes": some, "activation_bytes": some}
    return library.price(Work(name="layer", family=Family.MOE, role="experts", shape=shape, **moved)).seconds


def fits(hardware: str, library: str) -> FitSet:
    found = fit_set(load_hardware(hardware), library=library, group="moe")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("hardware", "library", "fmt", "gated", "ranks", "expected"),
    [
        ("h100-sxm-80gb", "vllm", "bf16", True, 8, ("bf16", "")),
        ("h100-sxm-80gb", "vllm", "fp8_block", True, 1, ("fp8_block", "")),
        ("h100-sxm-80gb", "vllm", "fp8_block", True, 8, ("fp8_block", "expert_parallel")),
        ("h100-sxm-80gb", "vllm", "fp8", True, 1, ("fp8_block", "")),  # its own table ran untuned
        ("h100-sxm-80gb", "vllm", "fp8", True, 8, ("fp8_block", "expert_parallel")),
        ("h100-sxm-80gb", "trtllm", "fp8", True, 1, ("fp8", "")),
        ("h100-sxm-80gb", "trtllm", "fp8", False, 8, ("fp8", "not_gated")),
        ("h100-sxm-80gb", "trtllm", "fp16", False, 1, ("bf16", "not_gated")),
        ("h100-sxm-80gb", "sglang", "fp8", True, 1, ("fp8_block", "")),  # nobody measured it there
        ("b200-sxm", "vllm", "fp8", True, 1, ("fp8", "")),
    ],
)
def test_a_layer_takes_the_kernel_that_it_would_run(
    hardware: str, library: str, fmt: str, gated: bool, ranks: int, expected: tuple[str, str]
) -> None:
    found = find_experts(fits(hardware, library), shape=layer(gated=gated, ranks=ranks), fmt=fmt)
    assert found is not None
    assert (found[1].format, found[1].variant) == expected


@pytest.mark.parametrize("hardware", ["h100-sxm-80gb", "h200-sxm-141gb"])
def test_experts_of_other_servers_run_the_kernel_that_exchange_feeds(hardware: str) -> None:
    for across, expected in ((True, "exchanged"), (False, "")):
        found = find_experts(fits(hardware, "sglang"), shape=layer(ranks=8), fmt="fp8_block", across=across)
        assert found is not None
        assert found[1].variant == expected


@pytest.mark.parametrize("hardware", ["h100-sxm-80gb", "h200-sxm-141gb"])
def test_per_tensor_experts_take_the_faster_of_two_kernels_without_a_jump(hardware: str) -> None:
    library = kernel_library(load_hardware(hardware), library="vllm")
    sets = fits(hardware, "vllm")
    assert whole_experts(sets, shape=layer(width=256.0), fmt="fp8") is None
    wide = whole_experts(sets, shape=layer(width=512.0), fmt="fp8")
    assert wide is not None
    assert wide[1].variant == "expert_parallel"
    assert whole_experts(sets, shape=layer(), fmt="fp8_block") is None

    def of_width(width: float, name: str = "fp8") -> float:
        return float(seconds(library, replace(layer(width=width), format=narrow_format(name)))[0])

    assert of_width(512.0) <= of_width(512.0, "fp8_block")
    # Twice the width takes at most twice the time, and no width less than a narrower one.
    for width in (256.0, 512.0, 1024.0, 2048.0):
        assert 0.98 < of_width(2 * width) / of_width(width) < 2.1


def test_a_format_that_nobody_measured_has_no_kernel() -> None:
    assert find_experts(fits("h100-sxm-80gb", "vllm"), shape=layer(), fmt="w8a16") is None
    assert find_experts(None, shape=layer(), fmt="bf16") is None


def test_a_token_is_narrowed_once_however_many_experts_it_goes_to() -> None:
    passes = ActivationPasses(input_bytes=3.0, launches=1.0)
    few, many = (replace(layer(), local_assignments=np.array([64.0 * experts])) for experts in (1, 8))
    extra = expert_pass_shape(many, passes).bytes - expert_pass_shape(few, passes).bytes
    assert extra == pytest.approx(3.0 * 64 * 7 * many.intermediate_size)
    # A rank to which few come narrows those alone.
    lone = replace(layer(), local_assignments=np.array([2.0]))
    assert expert_pass_shape(lone, passes).bytes == pytest.approx(3.0 * 2 * (4096 + 1536))


@for_every(lambda: [name for name in list_hardware() if Dtype.FP8 in load_hardware(name).peak_flops_per_s])
def test_narrow_kernels_of_another_generation_lose_to_no_wide_one(name: str) -> None:
    """Tables of one generation do not say which of two formats is slower on another: of many tokens not the one of half
    the bits, multiplied as fast, but for the pass that narrows its input."""
    rows = np.array([4096.0, 16384.0, 65536.0])
    experts = replace(layer(ranks=8), tokens=rows, distinct_experts=np.full(3, 16.0), local_assignments=rows)
    product = GemmShape(m=rows, n=4096.0, k=4096.0, format=experts.format)
    for engine in ("vllm", "sglang", "trtllm"):
        library = kernel_library(load_hardware(name), library=engine)
        for sets, shape in ((library.rare_fits("moe"), experts), (library.gemm, product)):
            if sets is None or sets.relative.same_generation:
                continue
            wide, *narrow = (
                seconds(library, replace(shape, format=fmt))
                for fmt in (shape.format, narrow_format("fp8"), narrow_format("fp8_block"))
            )
            assert all(np.all(each < 1.05 * wide) for each in narrow), (engine, sets.group)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_int8_of_a_chip_without_bf16_stands_beside_fp16(engine: str) -> None:
    """Turing's units take 8-bit integers and fp16; bf16 they refuse."""
    library, rows = kernel_library(load_hardware("t4"), library=engine), np.array([1024.0, 8192.0])
    narrow, wide = (
        seconds(library, GemmShape(m=rows, n=4096.0, k=4096.0, format=each))
        for each in (
            MatmulFormat(name="int8", weight_bits=8, activation_bits=8, math=Dtype.INT8, quantises_activations=True),
            MatmulFormat(name="fp16", weight_bits=16, activation_bits=16, math=Dtype.FP16),
        )
    )
    assert np.all(narrow < 1.05 * wide)


@pytest.mark.parametrize(("ranks", "width"), [(1, 192.0), (1, 768.0), (8, 1536.0)])
def test_two_engines_that_run_one_kernel_take_about_as_long(ranks: int, width: float) -> None:
    """SGLang and vLLM multiply 16-bit experts with the same Triton kernel on Ampere, whole, in parts and spread."""
    shape = layer(ranks=ranks, width=width)
    prompt = replace(shape, tokens=64 * shape.tokens, local_assignments=64 * shape.local_assignments)
    prompt = replace(prompt, distinct_experts=np.array([shape.local_experts]))
    times = [
        seconds(kernel_library(load_hardware("a100-sxm-80gb"), library=name), prompt)[0] for name in ("sglang", "vllm")
    ]
    assert max(times) < 1.5 * min(times)
