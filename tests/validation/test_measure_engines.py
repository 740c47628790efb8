"""An engine's own kernels: how tokens are routed to experts and laid in blocks, and what the engine is handed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from validation.measure import engines
from validation.measure.bench import Bench
from validation.measure.engines import compiling, decode, experts, extend, products
from validation.measure.engines.routing import LAYERS, Experts, aligned, drawn_experts
from validation.measure.table import Shape

pytestmark = pytest.mark.oracle  # needs torch

GPU = Bench(device=torch.device("cuda"), cache_bytes=50 * 2**20, memory_bytes=80 * 10**9)
CPU = replace(GPU, device=torch.device("cpu"))
TINY = Experts(
    model="tiny", hidden_size=256, intermediate_size=128, num_experts=16, num_experts_per_tok=2, format="fp8_block"
)


def put_engine(monkeypatch: pytest.MonkeyPatch, name: str, **parts: object) -> None:
    """A module of the engine, and the packages above it, that hold only what is given."""
    above = ""
    for word in name.split("."):
        above = f"{above}.{word}".lstrip(".")
        if above not in sys.modules:
            monkeypatch.setitem(sys.modules, above, ModuleType(above))
    module = ModuleType(name)
    module.__dict__.update(parts)
    monkeypatch.setitem(sys.modules, name, module)
    parent, _, last = name.rpartition(".")
    monkeypatch.setattr(sys.modules[parent], last, module, raising=False)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (engines, experts, decode, extend, products, compiling):
        monkeypatch.setattr(module, "engine_is_installed", lambda *names: True)


@pytest.mark.parametrize("skew", [0.0, 0.8, 1.5])
def test_a_token_gets_different_experts_and_a_draw_is_the_same_again(skew: float) -> None:
    for layer in LAYERS:
        chosen = drawn_experts(layer, tokens=64, skew=skew, draw=3)
        assert chosen.shape == (64, layer.num_experts_per_tok)
        assert all(len(set(row)) == layer.num_experts_per_tok for row in chosen)
        assert (chosen == drawn_experts(layer, tokens=64, skew=skew, draw=3)).all()
        assert (chosen != drawn_experts(layer, tokens=64, skew=skew, draw=4)).any()


def test_skew_makes_fewer_experts_work_and_even_routing_hits_as_many_as_chance() -> None:
    layer = LAYERS[0]
    hit = []
    for skew in (0.0, 0.8, 1.5):
        draws = [drawn_experts(layer, tokens=16, skew=skew, draw=draw) for draw in range(40)]
        hit.append(np.mean([len(np.unique(chosen)) for chosen in draws]))
    share = layer.num_experts_per_tok / layer.num_experts
    assert hit[0] == pytest.approx(layer.num_experts * (1 - (1 - share) ** 16), rel=0.03)
    assert hit[0] > hit[1] > hit[2]


@pytest.mark.parametrize(("tokens", "block"), [(1, 16), (6, 16), (300, 64)])
def test_blocks_hold_each_routed_row_once_and_one_expert_each(tokens: int, block: int) -> None:
    chosen = drawn_experts(TINY, tokens=tokens, skew=0.8, draw=0)
    ids, of_block, (padded,) = aligned(chosen, experts=TINY.num_experts, block=block)
    assert padded % block == 0
    assert padded <= len(ids)
    assert len(of_block) == -(-len(ids) // block)
    kept = ids[:padded]
    assert sorted(kept[kept < chosen.size]) == list(range(chosen.size))
    assert (ids[padded:] == chosen.size).all()
    for index, row in enumerate(kept):
        if row < chosen.size:
            assert chosen.ravel()[row] == of_block[index // block]
    # No more padding than the last block of each expert that has rows.
    assert padded - chosen.size < block * len(np.unique(chosen))


@pytest.mark.parametrize("bench", [CPU, GPU], ids=["cpu", "cuda"])
def test_without_the_engine_nothing_is_measured(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (experts, decode, extend, products):
        monkeypatch.setattr(module, "engine_is_installed", lambda *names: False)
    assert compiling.engine_groups(bench) == []


@pytest.mark.usefixtures("installed")
def test_designs_fit_and_a_cpu_is_spared() -> None:
    groups = compiling.engine_groups(GPU)
    assert len({group.name for group in groups}) == len(groups)
    cases = [case for group in groups for case in group.cases]
    assert {case.family for case in cases} == {
        "experts", "latent_decode", "paged_decode", "extend_attention", "gemm",
    }  # fmt: skip
    assert all(GPU.fits(case) for case in cases)
    assert compiling.engine_groups(CPU) == []


@pytest.mark.usefixtures("installed")
def test_a_latent_cache_ends_where_32_bits_do() -> None:
    """The kernel counts numbers of its cache and of its parts in signed integers of 32 bits, from page 0 on."""
    cases = [case for group in decode.engine_decode_groups(GPU) for case in group.cases]
    latent = [case.shape for case in cases if case.family == "latent_decode"]
    assert {shape.context_tokens for shape in latent} == {512, 2048, 8192, 32768, 65536}
    for shape in latent:
        pages = shape.sequences * -(-shape.context_tokens // decode.PAGE_TOKENS)
        assert pages * decode.PAGE_TOKENS * shape.head_dim <= 2**31
        assert shape.sequences * shape.num_heads * decode.LATENT_SPLITS * (decode.LATENT_DIM + 1) <= 2**31


def test_expert_products_get_what_the_engine_would_hand_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that are handed over, multiplied as the kernel does, are each token's rows by its experts."""
    config = {"BLOCK_SIZE_M": 16}
    name = "vllm.model_executor.layers.fused_moe"
    put_engine(monkeypatch, "vllm.triton_utils", tl=SimpleNamespace(bfloat16="bf16"))
    put_engine(
        monkeypatch,
        f"{name}.fused_moe",
        try_get_optimal_moe_config=lambda *words, **named: config,
        invoke_fused_moe_triton_kernel=lambda *words, **named: None,
    )
    for tokens, product in ((1, "up"), (6, "up"), (6, "down")):
        (call,) = experts._calls(CPU, TINY, tokens, 0.8, product, 1)
        a, weight, out, of_inputs, of_weights, shares, ids, of_block, padded, weighted, top_k = call.args[:11]
        n, k = TINY.widths(product)
        assert weight.shape == (TINY.num_experts, n, k)
        assert out.shape == (tokens, TINY.num_experts_per_tok, n)
        assert a.shape == (tokens if product == "up" else tokens * TINY.num_experts_per_tok, k)
        assert of_inputs.shape == (len(a), k // 128)
        assert of_weights.shape == (TINY.num_experts, n // 128, k // 128)
        assert (weighted, top_k) == ((False, 2) if product == "up" else (True, 1))
        assert (ids is None) == (tokens * TINY.num_experts_per_tok * 4 <= TINY.num_experts)
        if ids is None:
            assert int(padded) == 16 * len(of_block)
        assert shares.sum(dim=1).allclose(torch.ones(tokens))


def test_attention_calls_read_every_page_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[object, ...]] = []
    keep: Callable[..., None] = lambda *words, **named: seen.append(words)  # noqa: E731
    put_engine(monkeypatch, "vllm.v1.attention.ops.triton_decode_attention", decode_attention_fwd=keep)
    put_engine(monkeypatch, "vllm.v1.attention.ops.triton_unified_attention", unified_attention=keep)
    latent = Shape(sequences=3, query_tokens=1, context_tokens=40, num_heads=16, num_kv_heads=1, head_dim=576)
    paged = replace(latent, num_heads=8, num_kv_heads=2, head_dim=64)
    for call in (*decode._latent_calls(CPU, latent, 1), *decode._paged_calls(CPU, paged, "fp8", 1)):
        call()
    (query, cache, values, *_), (_, keys, *others) = seen
    assert isinstance(query, torch.Tensor)
    assert isinstance(cache, torch.Tensor)
    assert isinstance(values, torch.Tensor)
    assert values.shape[-1] == 512
    assert values.data_ptr() == cache.data_ptr()
    assert isinstance(keys, torch.Tensor)
    assert keys.dtype == torch.float8_e4m3fn
    for table in (seen[0][5], others[9]):
        assert isinstance(table, torch.Tensor)
        assert sorted(table.flatten().tolist()) == list(range(9))


def test_new_tokens_attend_to_a_prefix_that_lies_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "sglang.srt.layers.attention.triton_ops.extend_attention"
    put_engine(monkeypatch, name, extend_attention_fwd=lambda *words: words)
    for kv_heads, width, value_dim in ((1, 576, 512), (4, 192, 128)):
        shape = Shape(sequences=1, query_tokens=5, context_tokens=9, num_heads=4, num_kv_heads=kv_heads, head_dim=width)
        (call,) = extend._calls(CPU, shape, value_dim, 1)
        query, fresh, values, out, kept, kept_values, queries, keys, places, *_ = call()  # type: ignore[misc]
        assert (query.shape, fresh.shape, kept.shape) == ((5, 4, width), (5, kv_heads, width), (9, kv_heads, width))
        assert (values.shape, out.shape) == ((5, kv_heads, value_dim), (5, 4, value_dim))
        assert kept_values.shape == (9, kv_heads, value_dim)
        assert (queries.tolist(), keys.tolist()) == ([0, 5], [0, 9])
        assert sorted(places.tolist()) == list(range(9))


def test_contexts_are_divided_where_heads_alone_do_not_fill_the_chip() -> None:
    assert [decode.segments_below(kv_heads) for kv_heads in (1, 2, 4, 8, 64, 128)] == [128, 64, 32, 16, 2, 1]


def test_products_have_a_scale_for_each_block(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "vllm.model_executor.layers.quantization.utils.fp8_utils"
    put_engine(monkeypatch, name, w8a8_triton_block_scaled_mm=lambda *words: words)
    (call,) = products._calls(CPU, 5, 384, 256, 1)
    a, weight, of_inputs, of_weights, sides, _ = call()  # type: ignore[misc]
    assert (a.shape, weight.shape) == ((5, 256), (384, 256))
    assert (of_inputs.shape, of_weights.shape) == ((5, 2), (3, 2))
    assert sides == [128, 128]


def test_nothing_is_compiled_where_no_engine_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiling, "engine_is_installed", lambda: False)
    assert compiling.main(["--processes", "1"]) == 2
    assert "no vllm" in capsys.readouterr().err
