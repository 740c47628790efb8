"""GGUF's k-quants: published bits of each block type, and which tensors of a mix take a wider one [LlamaCpp2025]."""

from __future__ import annotations

from simulator.operators.work import MatmulFormat
from simulator.records import dataclass
from simulator.specs.model.architecture import AttentionSpec, MlpSpec, ModelSpec, MoeSpec
from simulator.specs.model.precision import BITS, Dtype
from simulator.units import BITS_PER_BYTE

BLOCK_BITS: dict[str, float] = {
    "q2_k": 84 * BITS_PER_BYTE / 256,
    "q3_k": 110 * BITS_PER_BYTE / 256,
    "q4_0": 18 * BITS_PER_BYTE / 32,
    "q4_k": 144 * BITS_PER_BYTE / 256,
    "q5_k": 176 * BITS_PER_BYTE / 256,
    "q6_k": 210 * BITS_PER_BYTE / 256,
    "q8_0": 34 * BITS_PER_BYTE / 32,
    "mxfp4": 17 * BITS_PER_BYTE / 32,
}
"""Bits per weight: bytes of a block over its weights, scales included (ggml-common.h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """A file type: the base block, and the tensors that llama.cpp keeps in others.

    value, down, attention_out : (block, share of the layers) of these projections; output : block of the LM head;
    experts : block of routed experts, where it is another than the base
    """

    base: str
    value: tuple[tuple[str, float], ...] = ()
    down: tuple[tuple[str, float], ...] = ()
    attention_out: tuple[tuple[str, float], ...] = ()
    output: str = "q6_k"
    experts: str = ""


# llama.cpp, llama_tensor_get_type: half of the layers count as important (the first and last eighth, every third
# between) for the _M mixes of 4 and 5 bits.
MIXES: dict[str, Mix] = {
    "q2_k": Mix(base="q2_k", value=(("q4_k", 1.0),), down=(("q3_k", 1.0),), attention_out=(("q3_k", 1.0),)),
    "q3_k_m": Mix(
        base="q3_k",
        value=(("q5_k", 1 / 16), ("q4_k", 15 / 16)),
        down=(("q5_k", 1 / 16), ("q4_k", 15 / 16)),
        attention_out=(("q4_k", 1.0),),
    ),
    "q4_0": Mix(base="q4_0"),
    "q4_k_m": Mix(base="q4_k", value=(("q6_k", 0.5),), down=(("q6_k", 0.5),)),
    "q5_k_m": Mix(base="q5_k", value=(("q6_k", 0.5),), down=(("q6_k", 0.5),)),
    "q6_k": Mix(base="q6_k"),
    "q8_0": Mix(base="q8_0", output="q8_0"),
    "mxfp4_moe": Mix(base="q8_0", output="q8_0", experts="mxfp4"),
}


def role_formats(name: str, *, model: ModelSpec, plain: Dtype) -> tuple[tuple[str, MatmulFormat], ...]:
    """Format of each role of ``model`` under a mix: mean bits of its tensors, weighted by their sizes."""
    mix = MIXES[name]
    value, out = _attention_shares(model)
    attention = _blend(mix, ((value, mix.value), (out, mix.attention_out)))
    down = _blend(mix, ((_down_share(model), mix.down),))
    bits = {
        "attention": attention,
        "mlp": down,
        "experts": BLOCK_BITS[mix.experts] if mix.experts else down,
        "shared_expert": down,
        "mixer": BLOCK_BITS[mix.base],
        "lm_head": BLOCK_BITS[mix.output],
        "embedding": BLOCK_BITS[mix.base],
    }
    return tuple((role, block_format(width, plain=plain)) for role, width in bits.items())


def block_format(bits: float, *, plain: Dtype) -> MatmulFormat:
    """Product over k-quant blocks of ``bits`` a weight."""
    return MatmulFormat(name="gguf", weight_bits=bits, activation_bits=BITS[Dtype.BF16], math=plain)


def _blend(mix: Mix, parts: tuple[tuple[float, tuple[tuple[str, float], ...]], ...]) -> float:
    base = BLOCK_BITS[mix.base]
    return base + sum(share * part * (BLOCK_BITS[block] - base) for share, blocks in parts for block, part in blocks)


def _attention_shares(model: ModelSpec) -> tuple[float, float]:
    value, out, total = 0.0, 0.0, 0.0
    for layer, count in zip(model.layers, model.layer_counts, strict=True):
        if isinstance(layer.mixer, AttentionSpec):
            mixer = layer.mixer
            values = count * mixer.num_key_value_heads * mixer.value_dim
            outputs = count * mixer.num_attention_heads * mixer.value_dim
            keys = count * (mixer.num_attention_heads + mixer.num_key_value_heads) * mixer.head_dim
            value, out, total = value + values, out + outputs, total + values + outputs + keys
    return (value / total, out / total) if total else (0.0, 0.0)


def _down_share(model: ModelSpec) -> float:
    for layer in model.layers:
        for block in layer.feed_forward:
            if isinstance(block, MlpSpec | MoeSpec):
                return 1 / 3 if block.gated else 1 / 2
    return 0.0
