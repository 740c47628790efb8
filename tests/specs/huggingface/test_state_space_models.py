"""``simulator.specs.huggingface.recurrent``: Mamba, Mamba-2, Jamba and Nemotron-H, counted tensor by tensor."""

from __future__ import annotations

import math

import pytest

from simulator.errors import RoofcastError
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.parallelism import kv_bytes_per_token, state_bytes_per_sequence
from simulator.specs.model.architecture import (
    AttentionSpec,
    Mamba2Spec,
    MambaSpec,
    MlpSpec,
    ModelSpec,
    MoeSpec,
    ShortConvolutionSpec,
)
from simulator.specs.model.precision import PrecisionSpec
from tests.specs.huggingface.tensors import active, linear, read, total

H, LAYERS, STATE, KERNEL, VOCAB = 128, 5, 16, 4, 500


def mamba(**changes: object) -> dict[str, object]:
    return {
        "model_type": "mamba",
        "hidden_size": H,
        "num_hidden_layers": LAYERS,
        "state_size": STATE,
        "conv_kernel": KERNEL,
        "expand": 2,
        "vocab_size": VOCAB,
        "torch_dtype": "bfloat16",
        **changes,
    }


def selective_scan(width: int, rank: int, *, hidden: int = H, state: int = STATE, inner_norms: bool = False) -> int:
    """in_proj, depthwise convolution, x_proj, dt_proj, A_log, D, out_proj."""
    return (
        linear(hidden, 2 * width)
        + width * KERNEL
        + width
        + linear(width, rank + 2 * state)
        + linear(rank, width, bias=True)
        + width * state
        + width
        + linear(width, hidden)
        + (rank + 2 * state if inner_norms else 0)
    )


@pytest.mark.parametrize("hidden", [64, 100, 128, 256])
def test_mamba(hidden: int) -> None:
    rank = math.ceil(hidden / 16)
    layer = selective_scan(2 * hidden, rank, hidden=hidden) + hidden
    assert total(mamba(hidden_size=hidden)) == VOCAB * hidden + LAYERS * layer + hidden


def test_mamba_130m_and_2_8b() -> None:
    small = mamba(hidden_size=768, num_hidden_layers=24, vocab_size=50280)
    large = mamba(hidden_size=2560, num_hidden_layers=64, vocab_size=50280)
    assert total(small) == 129_135_360
    assert total(large) == 2_768_345_600


def test_mamba_with_biases() -> None:
    added = total(mamba(use_bias=True)) - total(mamba())
    assert added == LAYERS * (4 * H + H)
    assert total(mamba()) - total(mamba(use_conv_bias=False)) == LAYERS * 2 * H


def test_a_state_is_all_that_a_mamba_keeps() -> None:
    spec = read(mamba())
    plan = precision_plan(spec, PrecisionSpec())
    assert kv_bytes_per_token(spec, plan=plan, tp_size=1) == 0
    width = 2 * H
    assert state_bytes_per_sequence(spec, plan=plan, tp_size=1) == LAYERS * (
        width * STATE * 4 + width * (KERNEL - 1) * 2
    )


HEADS, WIDTH, GROUPS = 8, 32, 2


def mamba2(**changes: object) -> dict[str, object]:
    return {
        "model_type": "mamba2",
        "hidden_size": H,
        "num_hidden_layers": LAYERS,
        "num_heads": HEADS,
        "head_dim": WIDTH,
        "state_size": STATE,
        "n_groups": GROUPS,
        "conv_kernel": KERNEL,
        "vocab_size": VOCAB,
        "torch_dtype": "bfloat16",
        **changes,
    }


def dual_scan(*, hidden: int, heads: int, width: int, state: int, groups: int) -> int:
    """in_proj of z, x, B, C, dt; convolution over x, B, C; A_log, D, dt_bias; gated norm; out_proj."""
    inner = heads * width
    channels = inner + 2 * groups * state
    return (
        linear(hidden, inner + channels + heads)
        + channels * KERNEL
        + channels
        + 3 * heads
        + inner
        + linear(inner, hidden)
    )


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("state", [16, 64, 128])
def test_mamba2(groups: int, state: int) -> None:
    layer = dual_scan(hidden=H, heads=HEADS, width=WIDTH, state=state, groups=groups) + H
    config = mamba2(n_groups=groups, state_size=state, tie_word_embeddings=False)
    assert total(config) == 2 * VOCAB * H + LAYERS * layer + H


def test_heads_must_fill_the_inner_width() -> None:
    with pytest.raises(RoofcastError) as refused:
        read(mamba2(num_heads=7))
    assert refused.value.field == "num_heads"


INNER, EXPERTS = 256, 4


def jamba(*, layers: int = 8, **changes: object) -> dict[str, object]:
    return {
        "model_type": "jamba",
        "hidden_size": H,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "intermediate_size": INNER,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "mamba_d_state": STATE,
        "mamba_d_conv": KERNEL,
        "vocab_size": VOCAB,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
        **changes,
    }


@pytest.mark.parametrize("layers", [8, 16])
def test_jamba(layers: int) -> None:
    """Attention on layer 4 of each 8, experts on odd layers."""
    attention = 2 * linear(H, H) + 2 * linear(H, 2 * H // 8)
    scan = selective_scan(2 * H, H // 16, inner_norms=True)
    dense = 3 * H * INNER
    sparse = EXPERTS * dense + H * EXPERTS
    eight = attention + 7 * scan + 4 * dense + 4 * sparse + 8 * 2 * H
    assert total(jamba(layers=layers)) == 2 * VOCAB * H + layers // 8 * eight + H


def test_jamba_v0_1_has_52_billion_parameters_and_uses_12() -> None:
    config = jamba(
        layers=32,
        hidden_size=4096,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=14336,
        num_experts=16,
        vocab_size=65536,
    )
    assert total(config) == 51_570_323_328
    assert active(config) / 1e9 == pytest.approx(12, abs=0.3)


@pytest.mark.parametrize(("period", "offset"), [(8, 4), (4, 0), (3, 2)])
def test_attention_layers_are_periodic(period: int, offset: int) -> None:
    spec = read(jamba(layers=12, attn_layer_period=period, attn_layer_offset=offset))
    kinds = [type(spec.layers[index].mixer) for index in spec.layer_order]
    assert kinds == [AttentionSpec if index % period == offset else MambaSpec for index in range(12)]


def nemotron(pattern: str, **changes: object) -> dict[str, object]:
    return {
        "model_type": "nemotron_h",
        "hidden_size": H,
        "num_hidden_layers": len(pattern),
        "hybrid_override_pattern": pattern,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": INNER,
        "mamba_num_heads": HEADS,
        "mamba_head_dim": WIDTH,
        "ssm_state_size": STATE,
        "n_groups": GROUPS,
        "conv_kernel": KERNEL,
        "vocab_size": VOCAB,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
        **changes,
    }


def blocks(spec: ModelSpec) -> list[type]:
    found = []
    for index in spec.layer_order:
        layer = spec.layers[index]
        found.append(type(layer.mixer if layer.mixer is not None else layer.feed_forward[0]))
    return found


@pytest.mark.parametrize("pattern", ["M-M*", "MM-M*-", "M-M-M-M*-M-"])
def test_nemotron_h_puts_one_block_on_each_layer(pattern: str) -> None:
    spec = read(nemotron(pattern))
    assert blocks(spec) == [{"M": Mamba2Spec, "*": AttentionSpec, "-": MlpSpec}[letter] for letter in pattern]


def test_nemotron_h() -> None:
    scan = dual_scan(hidden=H, heads=HEADS, width=WIDTH, state=STATE, groups=GROUPS)
    attention = 2 * linear(H, 8 * 16) + 2 * linear(H, 2 * 16)
    expected = 2 * VOCAB * H + 2 * scan + attention + 2 * H * INNER + 4 * H + H
    assert total(nemotron("M-M*")) == expected


def test_a_pattern_of_words_reads_like_a_pattern_of_letters() -> None:
    config = nemotron("M-M*")
    del config["hybrid_override_pattern"]
    words = read({**config, "layers_block_type": ["mamba", "mlp", "linear_attention", "full_attention"]})
    assert words.layers == read(nemotron("M-M*")).layers


def test_unknown_letters_are_refused() -> None:
    with pytest.raises(RoofcastError) as refused:
        read(nemotron("MX"))
    assert "'X'" in refused.value.message


def test_experts_of_nemotron_h_have_two_matrices_and_a_wide_shared_one() -> None:
    extra = {
        "n_routed_experts": EXPERTS,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "moe_shared_expert_intermediate_size": 96,
    }
    config = nemotron("ME", **extra)
    config.pop("intermediate_size")
    spec = read(config)
    assert blocks(spec) == [Mamba2Spec, MoeSpec]
    scan = dual_scan(hidden=H, heads=HEADS, width=WIDTH, state=STATE, groups=GROUPS)
    block = EXPERTS * 2 * H * 48 + 2 * H * 96 + H * EXPERTS + EXPERTS
    assert total(config) == 2 * VOCAB * H + scan + block + 2 * H + H


def test_only_attention_layers_cache_tokens() -> None:
    for pattern, layers in (("M-M-", 0), ("M*M-", 1), ("***-", 3)):
        spec = read(nemotron(pattern))
        plan = precision_plan(spec, PrecisionSpec())
        assert kv_bytes_per_token(spec, plan=plan, tp_size=1) == layers * 2 * 2 * 16 * 2


def test_lfm2_convolves_where_it_does_not_attend() -> None:
    config = {
        "model_type": "lfm2_moe", "hidden_size": H, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 256, "moe_intermediate_size": 64, "num_experts": 8,
        "num_experts_per_tok": 2, "num_dense_layers": 1, "layer_types": ["conv", "full_attention", "conv"],
        "conv_L_cache": 3, "vocab_size": VOCAB, "torch_dtype": "bfloat16",
    }  # fmt: skip
    model = read(config)
    kinds = [type(model.layers[index].mixer) for index in model.layer_order]
    assert kinds == [ShortConvolutionSpec, AttentionSpec, ShortConvolutionSpec]
    blocks = [model.layers[index].feed_forward[0].kind for index in model.layer_order]
    assert blocks == ["mlp", "moe", "moe"]
    with pytest.raises(RoofcastError, match="layer_types"):
        read({**config, "layer_types": None})


def test_falcon_h1_keeps_a_state_and_keys_in_every_layer() -> None:
    config = {
        "model_type": "falcon_h1", "hidden_size": H, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 256, "mamba_d_ssm": 128, "mamba_n_heads": 4,
        "mamba_d_state": 16, "vocab_size": VOCAB, "torch_dtype": "bfloat16",
    }  # fmt: skip
    model = read(config)
    kinds = [type(model.layers[index].mixer) for index in model.layer_order]
    assert kinds == [Mamba2Spec, AttentionSpec] * 3
    assert total({**config, "mamba_rms_norm": True}) == total(config) + 3 * 128
    with pytest.raises(RoofcastError, match="do not make mamba_d_ssm"):
        read({**config, "mamba_d_head": 16})
