"""Stored bits of sparse weights: kept values, where they stood, and the scales beside them."""

from __future__ import annotations

from dataclasses import replace
from math import floor, log2

from simulator.operators.work import MatmulFormat

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
