"""Formats of quantised products: stored bits with their scales and tables, and the passes that each needs.

GGUF's k-quants: published bits of each block type, and which tensors of a mix take a wider one [LlamaCpp2025].

Stored bits of sparse weights: kept values, where they stood, and the scales beside them.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import floor, log2
from pathlib import Path

from simulator.operators.work import ActivationPasses, MatmulFormat
from simulator.records import dataclass
from simulator.specs.base import Spec, read_yaml, validate
from simulator.specs.model.architecture import AttentionSpec, MlpSpec, ModelSpec, MoeSpec
from simulator.specs.model.precision import BITS, Dtype
from simulator.units import BITS_PER_BYTE

SCALE_BITS = ACTIVATION_BITS = 16
FP8_BLOCK = 128
VECTOR_BYTES = 2.0
"""An entry of a codebook is a 16-bit number."""

SHARED_MEMORY_BYTES = 100.0 * 1024
"""Tables beyond this do not stay in a compute unit's own memory (164 KiB on A100, 99 KiB a block on Ada)
[CudaGuide2025] and are gathered from the L2."""

KMEANS_TABLE_WEIGHTS = 4096
"""One table per output row, as SqueezeLLM stores them; 4,096 is the row of a 7B model [Kim2023]."""


class FixedFormat(Spec):
    """A row of ``fixed_formats.yaml``, which says what its fields are."""

    name: str
    weights: Dtype
    bits: float
    scales: tuple[tuple[int, float], ...] = ()
    math: Dtype | None = None
    activation_scales: tuple[tuple[int, float], ...] = ()
    quantises_activations: bool = False
    passes: ActivationPasses | None = None
    outlier_fraction: float = 0.0

    def product(self, plain: Dtype) -> MatmulFormat:
        """The format with its activations, of dtype ``plain`` where they stay wide."""
        activation_bits = BITS[self.math] if self.math else ACTIVATION_BITS
        return MatmulFormat(
            name=self.name,
            weight_bits=self.bits + sum(bits / numbers for numbers, bits in self.scales),
            activation_bits=activation_bits + sum(bits / numbers for numbers, bits in self.activation_scales),
            math=self.math or plain,
            quantises_activations=self.quantises_activations,
            passes=self.passes,
            outlier_fraction=self.outlier_fraction,
        )


@cache
def fixed_formats() -> Mapping[str, FixedFormat]:
    """Every scheme whose format is one thing.

    Reference: [DeepSeek2024b], [Dettmers2022], [Dettmers2023], [Ma2024], [NVIDIA2025], [OCP2023], [Xiao2022]
    """
    file = Path(__file__).with_name("fixed_formats.yaml")
    rows = read_yaml(file).items()
    return {name: validate(FixedFormat, row, where=f"{file}: {name}", profile=True) for name, row in rows}


def fixed_format(scheme: str, *, plain: Dtype = Dtype.BF16) -> MatmulFormat:
    """The format of one of them; ``plain`` : dtype of 16-bit activations."""
    return fixed_formats()[scheme].product(plain)


def weight_only(bits: int, *, group: int | None, plain: Dtype, zero_point: bool) -> MatmulFormat:
    """Integer weights in groups with a 16-bit scale each, and a zero point of as many bits [Frantar2022] [Lin2023]."""
    overhead = (SCALE_BITS + (bits if zero_point else 0)) / group if group else 0.0
    return MatmulFormat(name=f"w{bits}a16", weight_bits=bits + overhead, activation_bits=ACTIVATION_BITS, math=plain)


def tinygemm(group: int, *, plain: Dtype) -> MatmulFormat:
    """4-bit weights with a 16-bit scale and zero point per group, as PyTorch stores them [Ansel2024]."""
    bits = 4 + 2 * SCALE_BITS / group
    return MatmulFormat(name="w4a16", weight_bits=bits, activation_bits=ACTIVATION_BITS, math=plain)


def codebooks(count: int, *, bits: int, group: int, plain: Dtype) -> MatmulFormat:
    """AQLM: ``group`` weights are the sum of one vector out of each of ``count`` books of 2**bits [Egiazarian2024].
    Left out: one 16-bit scale per output row."""
    table_bytes = count * 2.0**bits * group * VECTOR_BYTES
    gathered = count * VECTOR_BYTES if table_bytes > SHARED_MEMORY_BYTES else 0.0
    return MatmulFormat(
        name="aqlm",
        weight_bits=count * bits / group,
        activation_bits=ACTIVATION_BITS,
        math=plain,
        codebook_bytes=table_bytes,
        lookup_bytes=gathered,
    )


def kmeans(bits: int, *, plain: Dtype) -> MatmulFormat:
    """Non-uniform levels: each output row has a table of 2**bits 16-bit values [Kim2023]."""
    table_bits = 2.0**bits * SCALE_BITS / KMEANS_TABLE_WEIGHTS
    return MatmulFormat(name="kmeans", weight_bits=bits + table_bits, activation_bits=ACTIVATION_BITS, math=plain)


BLOCK_BITS: dict[str, float] = {
    "q2_k": 84 * BITS_PER_BYTE / 256,
    "q3_k": 110 * BITS_PER_BYTE / 256,
    "q4_0": 18 * BITS_PER_BYTE / 32,
    "q4_k": 144 * BITS_PER_BYTE / 256,
    "q5_k": 176 * BITS_PER_BYTE / 256,
    "q6_k": 210 * BITS_PER_BYTE / 256,
    "q8_0": 34 * BITS_PER_BYTE / 32,
}
"""Bits per weight: bytes of a block over its weights, scales included (ggml-common.h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """A file type: the base block, and the tensors that llama.cpp keeps in others.

    value, down, attention_out : (block, share of the layers) of these projections; output : block of the LM head
    """

    base: str
    value: tuple[tuple[str, float], ...] = ()
    down: tuple[tuple[str, float], ...] = ()
    attention_out: tuple[tuple[str, float], ...] = ()
    output: str = "q6_k"


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
        "experts": down,
        "shared_expert": down,
        "mixer": BLOCK_BITS[mix.base],
        "lm_head": BLOCK_BITS[mix.output],
        "embedding": BLOCK_BITS[mix.base],
    }
    return tuple((role, block_format(width, plain=plain)) for role, width in bits.items())


def block_format(bits: float, *, plain: Dtype) -> MatmulFormat:
    """Product over k-quant blocks of ``bits`` a weight."""
    return MatmulFormat(name="gguf", weight_bits=bits, activation_bits=ACTIVATION_BITS, math=plain)


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


BITMAP_BITS = 1.0
"""One bit a weight says whether it is kept."""

# Formats whose 2:4 products have kernels: cuSPARSELt and CUTLASS multiply wide and 8-bit numbers, Sparse-Marlin 4-bit
# weights.
SPARSE_KERNELS = {
    "bf16": "cusparselt",
    "fp16": "cusparselt",
    "int8": "cusparselt",
    "fp8": "cusparselt",
    "w4a16": "sparse-marlin",
}


def pattern_bits(weight_bits: float, *, kept: int, of: int) -> float:
    """Bits per weight of an N:M pattern: each kept value with its place among M, scales as before [bit].

    Equation
    --------
    bits = N / M x (v + log2 M) + s

    Parameters
    ----------
    weight_bits : whole bits v of a value and bits s of scales and zero points per weight [bit]
    kept, of : N values kept of M [-]

    Range of validity
    -----------------
    1 <= N <= M. Scales and zero points belong to groups of places, kept or not. Leaves out padding.

    References
    ----------
    [Mishra2021]

    Examples
    --------
    2:4 of 16 bits has metadata of 12.5 % of the values, of 8 bits 25 %.

    >>> pattern_bits(16.0, kept=2, of=4), pattern_bits(8.0, kept=2, of=4)
    (9.0, 5.0)
    """
    value = float(floor(weight_bits))
    return kept / of * (value + log2(of)) + (weight_bits - value)


def bitmap_bits(weight_bits: float, *, kept_fraction: float) -> float:
    """Bits per weight of unstructured zeros with a bitmap, as in Flash-LLM and SparTA [bit].

    Equation
    --------
    bits = f v + 1 + s

    Parameters
    ----------
    weight_bits : whole bits v of a value and bits s of scales per weight [bit]
    kept_fraction : share f of the weights that are not zero [-]

    Range of validity
    -----------------
    0 < f <= 1; pays below f = 1 - 1 / v. Leaves out padding of the rows.

    References
    ----------
    [Xia2023]

    Examples
    --------
    >>> bitmap_bits(16.0, kept_fraction=0.25)
    5.0
    """
    value = float(floor(weight_bits))
    return kept_fraction * value + BITMAP_BITS + (weight_bits - value)


def sparse_product(product: MatmulFormat, *, kept: int, of: int) -> MatmulFormat:
    """2:4 weights on the matrix units' sparse rate."""
    return replace(
        product,
        name=f"{product.name}_{kept}:{of}",
        weight_bits=pattern_bits(product.weight_bits, kept=kept, of=of),
        kernel=SPARSE_KERNELS[product.name],
        sparsity=(kept, of),
    )


def compressed_product(product: MatmulFormat, *, weight_bits: float) -> MatmulFormat:
    """Weights stored without zeros and expanded for a dense product."""
    return replace(product, name=f"{product.name}_compressed", weight_bits=weight_bits, kernel="load-as-sparse")
