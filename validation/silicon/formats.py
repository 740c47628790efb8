"""Number formats of the tables' products -> formats of the operators."""

from __future__ import annotations

from simulator.operators.work import MatmulFormat
from simulator.specs.model.precision import Dtype

PRODUCT_FORMATS: dict[str, MatmulFormat] = {
    "bfloat16": MatmulFormat(name="bf16", weight_bits=16, activation_bits=16, math=Dtype.BF16),
    "fp8": MatmulFormat(name="fp8", weight_bits=8, activation_bits=8, math=Dtype.FP8, quantises_activations=True),
    "fp8_block": MatmulFormat(
        name="fp8_block",
        weight_bits=8 + 32 / 128**2,
        activation_bits=8 + 32 / 128,
        math=Dtype.FP8,
        quantises_activations=True,
    ),
    "nvfp4": MatmulFormat(
        name="nvfp4", weight_bits=4.5, activation_bits=4.5, math=Dtype.FP4, quantises_activations=True
    ),
}
"""Formats in which both plain products and experts were measured."""
GEMM_FORMATS: dict[str, MatmulFormat] = {
    **PRODUCT_FORMATS,
    "sq": MatmulFormat(name="int8", weight_bits=8, activation_bits=8, math=Dtype.INT8, quantises_activations=True),
    "int8_wo": MatmulFormat(name="w8a16", weight_bits=8, activation_bits=16, math=Dtype.BF16),
    "int4_wo": MatmulFormat(name="w4a16", weight_bits=4, activation_bits=16, math=Dtype.BF16),
}
"""gemm_dtype -> format."""
WIDENED = {"fp8": GEMM_FORMATS["int8_wo"]}
"""What a table ran on units that do not multiply its format: weights of 8 bits, widened for a 16-bit product."""
EXPERT_FORMATS: dict[str, MatmulFormat] = {
    **PRODUCT_FORMATS,
    "w4a16_mxfp4": MatmulFormat(name="mxfp4", weight_bits=4.25, activation_bits=16, math=Dtype.BF16),
    "w4a8_mxfp4_mxfp8": MatmulFormat(name="mxfp4_mxfp8", weight_bits=4.25, activation_bits=8.25, math=Dtype.FP8),
    "int4_wo": MatmulFormat(name="w4a16", weight_bits=4.125, activation_bits=16, math=Dtype.BF16),
}
"""moe_dtype -> format; 4-bit experts bring their scales. mxfp4_mxfp8 multiplies activations that the kernel narrows to
MXFP8 itself, at the rate of FP8."""
