"""Other spellings of the contract's words for dtypes and methods, where a word names one thing."""

from __future__ import annotations

import re
from collections.abc import Mapping

DTYPES: Mapping[str, str] = {
    "float64": "fp64",
    "double": "fp64",
    "float32": "fp32",
    "float": "fp32",
    "tensorfloat32": "tf32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float8": "fp8",
    "e4m3": "fp8",
    "fp8-e4m3": "fp8",
    "float8-e4m3fn": "fp8",
    "float4": "fp4",
    "e2m1": "fp4",
    "fp4-e2m1": "fp4",
}
"""As torch, vLLM and checkpoints write number formats."""

E5M2 = ("e5m2", "fp8-e5m2", "float8-e5m2")
"""The format of gradients: caches are kept in it, in the bytes of E4M3, but no serving engine multiplies it."""

METHODS = (
    "nvfp4", "mxfp4", "fp8-block", "mxfp8", "nf4", "awq", "gptq", "w4a16", "w8a16", "w8a8", "w4a8", "int3", "int2",
)  # fmt: skip
"""Methods that are often given as the dtype of the weights. Weights of 2 or 3 bits have no dtype but a scheme's."""

BLOCK_DTYPES: Mapping[str, str] = {"nvfp4": "fp4", "mxfp4": "fp4", "fp8-block": "fp8", "mxfp8": "fp8"}
"""Formats with a scale per block, which stand wherever a dtype does: the dtype of their numbers."""

BLOCK_SCHEMES: Mapping[str, str] = {"nvfp4": "nvfp4", "mxfp4": "mxfp4-w4a4", "fp8-block": "fp8-block", "mxfp8": "mxfp8"}
"""The scheme whose weights and activations are both in the format."""

NOT_GIVEN = ("auto", "none", "default")
"""Words by which engines say that the checkpoint decides."""

SCHEMES: Mapping[str, str] = {
    "int8": "w8a8",
    "w8a8-int8": "w8a8",
    "int8-w8a8": "w8a8",
    "int8dq": "w8a8",
    "fp8-dynamic": "fp8",
    "fp8-w8a8": "fp8",
    "w8a8-fp8": "fp8",
    "fp8-e4m3": "fp8",
    "fp8-static-pertensor": "fp8-static",
    "mxfp4-mxfp4": "mxfp4-w4a4",
    "nvfp4a16": "nvfp4-w4a16",
    "w4a16-nvfp4": "nvfp4-w4a16",
    "fp8-per-tensor": "fp8-static",
    "fp8-blockwise": "fp8-block",
    "block-fp8": "fp8-block",
    "w8a16": "rtn-8bit",
    "int8wo": "rtn-8bit",
    "int8-wo": "rtn-8bit",
    "int8-weight-only": "rtn-8bit",
    "int3": "rtn-3bit",
    "int2": "rtn-2bit",
    "w4a16": "rtn-g128",
    "int4": "rtn-g128",
    "int4wo": "rtn-g128",
    "int4-wo": "rtn-g128",
    "int4-weight-only": "rtn-g128",
    "gptq-int4": "gptq-g128",
    "gptq-4bit": "gptq-g128",
    "awq-int4": "awq",
    "awq-4bit": "awq",
    "smoothquant": "smoothquant-o3",
    "smooth-quant": "smoothquant-o3",
    "sq": "smoothquant-o3",
    "llm.int8()": "llm.int8",
    "llm-int8": "llm.int8",
    "llm-int8()": "llm.int8",
    "bnb-int8": "llm.int8",
    "bnb-8bit": "llm.int8",
    "bitsandbytes-int8": "llm.int8",
    "bitsandbytes-8bit": "llm.int8",
    "bnb-nf4": "nf4",
    "bnb-4bit": "nf4",
    "bitsandbytes": "nf4",
    "bitsandbytes-nf4": "nf4",
    "bitsandbytes-4bit": "nf4",
    "fp4": "nvfp4",
    "bitnet-b1.58": "bitnet",
    "bitnet-1.58": "bitnet",
}
"""Other names of ``precision.scheme``."""

GGUF_MIXES = ("q2-k", "q3-k-m", "q4-0", "q4-k-m", "q5-k-m", "q6-k", "q8-0")
"""llama.cpp's mixes of blocks, as schemes."""

LINKS: Mapping[str, str] = {
    "nvswitch": "nvlink",
    "nvlink-switch": "nvlink",
    "infinity-fabric": "xgmi",
    "if": "xgmi",
    "pci": "pcie",
    "pci-express": "pcie",
    "ib": "infiniband",
    "roce": "ethernet",
}
"""Other names of a link between devices."""


SHORT_FIELDS: Mapping[str, str] = {
    "rps": "rate_per_s",
    "isl": "isl_tokens",
    "osl": "osl_tokens",
    "tp": "tp_size",
    "pp": "pp_size",
    "dp": "dp_size",
    "ep": "ep_size",
    "cp": "cp_size",
    "batch": "batch_size",
    "power_cap": "power_cap_w",
}
"""Short words of the command line, and the fields of plans and scenarios that they stand for. Files take both."""

_GENERATION = re.compile(r"[- ]?(gen|v)?[- ]?\d[\d.]*g?(-?x\d+)?$|-?x\d+$")


def plain_word(text: str) -> str:
    """Lower case, spaces and underscores as hyphens: ``TensorRT LLM`` is ``tensorrt-llm``."""
    return "-".join(text.strip().lower().replace("_", " ").split())


def dtype_word(text: str) -> str | None:
    """A number format as the contract writes it; None where the word leaves the choice to the checkpoint."""
    word = plain_word(text)
    return None if word in NOT_GIVEN else DTYPES.get(word, word)


def number_word(text: str) -> str | None:
    """The dtype of the numbers of a format: ``nvfp4`` is ``fp4``."""
    word = dtype_word(text)
    return word if word is None else BLOCK_DTYPES.get(word, word)


def scheme_word(text: str) -> str:
    """A scheme as it is known here; an unknown word comes back in lower case."""
    word = plain_word(text)
    return SCHEMES.get(word, word)


def link_word(text: str) -> str:
    """A link without its generation: ``NVLink4`` and ``nvswitch`` are ``nvlink``, ``PCIe-5.0 x16`` is ``pcie``."""
    word = plain_word(text)
    family = _GENERATION.sub("", word)
    return LINKS.get(word) or LINKS.get(family, family)
