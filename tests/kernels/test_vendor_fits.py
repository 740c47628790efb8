"""Accelerators of another vendor: its own kernels before a foreign relative's, its links, what its engines add."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.kernels.collectives.network import collective_timing
from simulator.kernels.fits import collective_fits, fit_set
from simulator.kernels.format_choice import find
from simulator.kernels.library import kernel_library
from simulator.kernels.sustained import large_product, with_sustained_rates
from simulator.operators.work import AttentionShape, Collective, CollectiveShape, GemmShape, decode_step
from simulator.phases.deployment import deploy
from simulator.phases.step import estimate_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec, load_engine
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import CalibrationGroup
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import BITS, Dtype
from validation.silicon.formats import GEMM_FORMATS


@pytest.mark.parametrize(("name", "measured"), [("mi300x", "mi300x"), ("mi325x", "mi300x"), ("mi355x", "mi355x")])
def test_an_architecture_takes_its_own_kernels(name: str, measured: str) -> None:
    for group in ("gemm", "moe"):
        fits = fit_set(load_hardware(name), library="vllm", group=group)
        assert fits is not None
        assert (fits.library, fits.relative.name) == ("aiter", measured)
        # What is quantised before the product is priced beside it.
        assert not any(fit.includes_quantisation for fit in fits.fits)
        # A format's own kernels come before those of another that run it elsewhere.
        assert all(find(fits, family=fit.family, fmt=fit.format) == (fits, fit) for fit in fits.fits)


@pytest.mark.parametrize("name", ["mi300x", "mi325x", "mi350x", "mi355x", "h200-sxm-141gb", "b200-sxm"])
def test_twice_the_bytes_of_a_weight_take_twice_as_long_where_rows_are_few(name: str) -> None:
    """16-bit rows of MI308X had MI300X read at 38 % of its memory's rate, 3.1 times as long as 8-bit ones."""
    library = with_sustained_rates(kernel_library(load_hardware(name), library="vllm"))
    wide, narrow = (library.price(large_product(dtype, rows=(1.0, 16.0, 64.0))) for dtype in (Dtype.BF16, Dtype.FP8))
    assert (np.abs(np.log2(wide.seconds / narrow.seconds / 2)) < 0.35).all()


@pytest.mark.parametrize("group", ["gemm", "attention", "moe"])
def test_kernels_of_intels_graphics_card_are_its_own_and_gaudi_does_not_run_them(group: CalibrationGroup) -> None:
    own, gaudi = (fit_set(load_hardware(name), library="vllm", group=group) for name in ("arc-pro-b60", "gaudi3"))
    assert own is not None
    assert gaudi is not None
    assert (own.library, own.relative.name) == ("xpu", "arc-pro-b60")
    assert load_hardware(gaudi.relative.name).vendor == "nvidia"


def test_products_of_a_generation_that_nobody_measured_lie_between_what_the_others_say() -> None:
    hardware = load_hardware("vr200")
    fits = fit_set(hardware, library="sglang", group="gemm")
    assert fits is not None
    assert {fits.relative.name, *(other.relative.name for other in fits.beside)} == {
        *("b300-sxm", "h200-sxm-141gb", "a100-sxm-80gb", "l40s")
    }
    library = kernel_library(hardware, library="sglang")
    shape = GemmShape(m=np.exp2(np.arange(14.0)), n=8192, k=8192, format=GEMM_FORMATS["bfloat16"])
    each = [replace(library, plain_gemm=replace(whose, beside=())).product(shape) for whose in (fits, *fits.beside)]
    priced, said = library.product(shape), [timing.seconds for timing in each if timing is not None]
    assert priced is not None
    assert np.all((np.min(said, axis=0) < priced.seconds) & (priced.seconds < np.max(said, axis=0)))
    measured = fit_set(load_hardware("h20-96gb"), library="sglang", group="gemm")
    assert measured is not None
    assert not measured.beside, "its own generation was"


def test_weights_of_8_bits_are_read_in_half_the_time_where_units_widen_them() -> None:
    library = kernel_library(load_hardware("arc-pro-b60"), library="vllm")
    wide, narrow = (
        library.product(GemmShape(m=np.array([1.0, 8192.0]), n=28672, k=8192, format=GEMM_FORMATS[name]))
        for name in ("bfloat16", "int8_wo")
    )
    assert wide is not None
    assert narrow is not None
    assert narrow.seconds / wide.seconds == pytest.approx([0.55, 1.0], rel=0.1)


def attention_s(
    hardware: str, *, sequences: int, heads: int, kv_heads: int, query: int, width: int, cached: int = 0, causal: bool
) -> float:
    shape = AttentionShape(
        sequences=np.array([float(sequences)]),
        query_tokens=np.array([float(query)]),
        context_tokens=np.array([float(cached)]),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=width,
        v_head_dim=width,
        window=None,
        causal=causal,
        shared_kv=False,
        is_decode=query == 1,
        compute_dtype=Dtype.BF16,
        kv_dtype=Dtype.BF16,
    )
    timing = kernel_library(load_hardware(hardware), library="vllm").attention_call(shape)
    assert timing is not None
    return float(timing.seconds[0])


def test_prefill_attention_on_amd_is_what_its_kernels_take() -> None:
    """AITER on MI355X (HipKittens f09e9685) and Triton on MI300X (nod-ai 068af6f5)."""
    long = attention_s("mi355x", sequences=16, heads=64, kv_heads=8, query=8192, width=128, causal=True)
    assert long == pytest.approx(14.60e-3, rel=0.1)
    narrow = attention_s("mi355x", sequences=16, heads=16, kv_heads=16, query=4096, width=64, causal=False)
    assert narrow == pytest.approx(1.528e-3, rel=0.1)
    assert attention_s(
        "mi300x", sequences=1, heads=64, kv_heads=64, query=2048, width=128, causal=False
    ) == pytest.approx(429e-6, rel=0.1)


@pytest.mark.parametrize("hardware", ["mi300x", "mi325x", "mi350x", "mi355x"])
def test_narrow_heads_save_less_than_their_products(hardware: str) -> None:
    """Exponentials are as many for heads of any width."""
    wide, narrow = (
        attention_s(hardware, sequences=8, heads=32, kv_heads=8, query=4096, width=width, causal=True)
        for width in (128, 64)
    )
    assert 0.5 * wide < narrow < wide


@pytest.mark.parametrize("hardware", ["gaudi2", "gaudi3", "trainium2", "ascend-950pr"])
@pytest.mark.parametrize("dtype", [Dtype.BF16, Dtype.FP8])
def test_attention_of_many_sequences_follows_the_memory_and_not_how_few_units_a_foreign_chip_has(
    hardware: str, dtype: Dtype
) -> None:
    """1,024 sequences took 2.3 to 10 times as long as their cache takes to be read on 24 and 8 units."""
    spec = load_hardware(hardware)
    library = kernel_library(spec, library="vllm")
    sequences = np.array([1024.0])
    shape = AttentionShape(
        sequences=sequences,
        query_tokens=np.ones(1),
        context_tokens=np.full(1, 191.0),
        num_heads=32.0,
        num_kv_heads=32.0,
        head_dim=128.0,
        v_head_dim=128.0,
        shared_kv=False,
        is_decode=True,
        compute_dtype=Dtype.BF16,
        kv_dtype=dtype,
    )
    timing = library.attention_call(shape)
    assert timing is not None
    read_s = sequences[0] * 192 * 2 * 4096 * BITS[dtype] / 8 / spec.memory_bytes_per_s
    assert read_s < timing.seconds[0] < 3 * read_s


def test_kernels_that_a_vendors_tables_lack_are_another_vendors() -> None:
    """Decode attention of MI355X was not measured: no faster than its memory reads the cache."""
    seconds = attention_s("mi355x", sequences=64, heads=64, kv_heads=8, query=1, width=128, cached=8191, causal=True)
    floor = 64 * 8192 * 8 * 2 * 128 * 2 / load_hardware("mi355x").memory_bytes_per_s
    assert floor < seconds < 2 * floor


def test_nvidia_takes_none_of_another_vendors_kernels() -> None:
    for name in ("h100-sxm-80gb", "t4", "h20-96gb"):
        fits = fit_set(load_hardware(name), library="vllm", group="gemm")
        assert fits is not None
        assert fits.library == "vllm"


def test_on_a_mesh_fewer_devices_have_fewer_links() -> None:
    link = load_hardware("mi300x").scale_up
    rates = [link.reached_bytes_per_s(participants) for participants in (2, 4, 8)]
    assert rates == [pytest.approx(link.bytes_per_s_per_direction * peers / 7) for peers in (1, 3, 7)]
    switched = load_hardware("h100-sxm-80gb").scale_up
    assert switched.reached_bytes_per_s(2) == switched.bytes_per_s_per_direction


def test_all_reduce_on_amd_is_what_rccl_takes() -> None:
    """RCCL tests on eight MI300X: 28.2 us for 1 MiB, 804 us for 128 MiB."""
    hardware = load_hardware("mi300x")
    plain, engines = (collective_fits(hardware, library=library) for library in ("torch", "vllm"))
    for message_bytes, measured_s in ((2**20, 28.2e-6), (2**27, 804e-6)):
        shape = CollectiveShape(operation=Collective.ALL_REDUCE, message_bytes=message_bytes, participants=8)
        timing, own = (
            collective_timing(shape, hardware=hardware, fits=chosen.fits, relative=chosen.relative)
            for chosen in (plain, engines)
        )
        assert timing.seconds[0] == pytest.approx(measured_s, rel=0.1)
        # Engines reduce small messages themselves inside a step's graph, large ones as RCCL does.
        assert own.seconds[0] < timing.seconds[0] if message_bytes < 2**23 else own.seconds[0] == timing.seconds[0]


def test_an_engine_has_numbers_of_its_own_on_another_vendor() -> None:
    profile = load_engine("vllm")
    there = profile.on_vendor("amd")
    assert there.overheads == profile.vendors["amd"].overheads != profile.overheads
    assert profile.on_vendor("nvidia") is profile
    assert not profile.at("0.5").vendors


def test_gaps_between_kernels_do_not_depend_on_the_host() -> None:
    overheads = load_engine("sglang").on_vendor("amd").overheads
    slow = overheads.on_host(0.5)
    assert slow.launch_gap_s == overheads.launch_gap_s > 0
    assert slow.prompt_token_s == pytest.approx(2 * overheads.prompt_token_s)


def test_more_kernels_pay_more_gaps_and_untuned_shapes_run_slower() -> None:
    """A step under SGLang's numbers on AMD is longer than its kernels alone by one gap a kernel and the lost rate."""
    replica = deploy(
        model=load_model("llama-3.1-8b"),
        hardware=load_hardware("mi300x"),
        parallelism=ParallelismSpec(tp_size=1),
        engine=EngineSpec(name="sglang"),
    )
    traits = replica.kernels.traits
    step = estimate_step(replica, decode_step(sequences=1, context=1000))
    assert traits.launch_gap_s > 0
    assert float(step.step_s[0]) > sum(row.work.count * traits.launch_gap_s for row in step.rows)


@pytest.mark.parametrize("hardware", ["a100-sxm-80gb", "a100-pcie-80gb", "h100", "l40s"])
@pytest.mark.parametrize("library", ["vllm", "sglang", "trtllm"])
def test_measured_chips_decode_by_measured_kernels_whatever_the_library(hardware: str, library: str) -> None:
    """TensorRT-LLM's decode table of A100 is unusable: vLLM's kernel stands in there, and no plain roofline."""
    shape = AttentionShape(
        sequences=np.array([4.0, 64.0]),
        query_tokens=np.ones(2),
        context_tokens=np.array([1024.0, 2048.0]),
        num_heads=32.0,
        num_kv_heads=8.0,
        head_dim=128.0,
        v_head_dim=128.0,
        window=None,
        causal=True,
        shared_kv=False,
        is_decode=True,
        compute_dtype=Dtype.BF16,
        kv_dtype=Dtype.BF16,
    )
    kernels = kernel_library(load_hardware(hardware), library=library)
    timing, idle = (kernels.attention_call(one) for one in (shape, replace(shape, window=4096.0)))
    assert timing is not None
    assert idle is not None
    if (hardware[:4], library) == ("a100", "trtllm"):
        np.testing.assert_array_equal(idle.seconds, timing.seconds)


@pytest.mark.parametrize("name", ["mistral-7b", "gpt-oss-20b"])
def test_a_step_takes_the_same_beside_longer_ones(name: str) -> None:
    """Where vLLM's kernel stands in, a window counts for the steps alone in which it hides keys."""
    engine = EngineSpec(name="tensorrt-llm", max_num_seqs=256, max_model_len=32768)
    a100 = deploy(
        model=load_model(name), hardware=load_hardware("a100"), parallelism=ParallelismSpec(), engine=engine
    )  # fmt: skip
    contexts = np.array([100.0, 2000.0, 5000.0, 16000.0])
    alone = [estimate_step(a100, decode_step(sequences=32, context=context)).step_s[0] for context in contexts]
    together = estimate_step(a100, decode_step(sequences=32, context=contexts)).step_s
    np.testing.assert_allclose(together, alone)
