"""Measured runs of quantised and sparse models as scenarios: torchao, TinyChat, gpt-fast."""

from __future__ import annotations

from typing import Any

from validation.end_to_end.measured.runs import MeasuredRun, Row, gather

# gpt-fast and torchao's copy of it generate 200 tokens from a prompt of 5 unless told otherwise (their generate.py).
GPT_FAST_ISL, GPT_FAST_OSL = 5, 200
# TinyChat's benchmark takes exLLaMA's setting: 4 tokens in, 200 out.
TINYCHAT_ISL, TINYCHAT_OSL = 4, 200

TORCH_MODELS = {
    "Llama-2-7B": "meta-llama/Llama-2-7b-hf",
    "Llama-2-70B": "meta-llama/Llama-2-70b-hf",
    "Llama-3-8B": "meta-llama/Meta-Llama-3-8B",
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B-Instruct",
    "Llama-3.1-70B": "meta-llama/Llama-3.1-70B-Instruct",
    "Llama-3.1-405B": "meta-llama/Meta-Llama-3.1-405B",
    "Mixtral-8x7B": "mistralai/Mixtral-8x7B-v0.1",
}
# Vision-language models generate with the language model inside them: Vicuna and VILA are Llama-2, NVILA-8B is
# Qwen2-7B, whose shapes Qwen2.5-7B has kept.
TINYCHAT_MODELS = {
    "LLaMA-3-8B": "meta-llama/Meta-Llama-3-8B",
    "LLaMA-2-7B": "meta-llama/Llama-2-7b-hf",
    "LLaMA-2-13B": "meta-llama/Llama-2-13b-hf",
    "Vicuna-7B": "meta-llama/Llama-2-7b-hf",
    "VILA-7B": "meta-llama/Llama-2-7b-hf",
    "VILA-13B": "meta-llama/Llama-2-13b-hf",
    "NVILA-8B": "Qwen/Qwen2.5-7B",
    "VILA1.5-13B": "meta-llama/Llama-2-13b-hf",
    "VILA1.5-13B-AWQ": "meta-llama/Llama-2-13b-hf",
    "Llama-3-VILA1.5-8B": "meta-llama/Meta-Llama-3-8B",
    "Llama-3-VILA1.5-8B-AWQ": "meta-llama/Meta-Llama-3-8B",
}
TINYCHAT_HARDWARE = {"A100": "a100-sxm-80gb", "RTX 4090": "rtx-4090", "4090": "rtx-4090"}


def everywhere(scheme: str, kernel: str | None = None) -> dict[str, Any]:
    """A scheme on every linear layer, the LM head too, as gpt-fast and torchao apply it."""
    precision: dict[str, Any] = {"scheme": scheme, "mixed": {"lm_head": scheme}}
    return precision if kernel is None else {**precision, "kernel": kernel}


BF16 = {"weights": "bf16", "activations": "bf16"}
GPT_FAST_PRECISIONS = {"bf16": BF16, "int8": everywhere("gptq-8bit"), "int4 g32": everywhere("tinygemm-g32")}
TORCHAO_PRECISIONS = {
    "bf16": BF16,
    "int8dq (W8A8 dynamic)": everywhere("w8a8", "torchao-int8dq"),
    "int8wo": everywhere("gptq-8bit"),
    "int4wo-64": everywhere("tinygemm-g64"),
    "int4wo-64-GPTQ": everywhere("tinygemm-g64"),
    "autoquant-int4hqq": everywhere("tinygemm-g64"),
    # Sparse-Marlin keeps one 16-bit scale per 64 places and no zero point.
    "int4wo-64 + 2:4 sparse-marlin": everywhere("rtn-g64"),
}
TINYCHAT_PRECISIONS = {
    "fp16": {"weights": "fp16", "activations": "fp16"},
    "w4a16": {"scheme": "awq", "activations": "fp16", "kernel": "tinychat"},
}


def _one_sequence(model: str, *, hardware: str, precision: dict[str, Any], isl: int, osl: int) -> dict[str, Any]:
    return {
        "kind": "batch",
        "model": model,
        "hardware": hardware,
        "precision": precision,
        "engine": {"name": "torch"},
        "batch_size": 1,
        "isl_tokens": isl,
        "osl_tokens": osl,
    }


def gpt_fast(rows: list[dict[str, str]]) -> tuple[MeasuredRun, ...]:
    """gpt-fast: one sequence, compiled decode in CUDA graphs, A100."""

    def scenario_of(row: Row) -> dict[str, Any] | None:
        known = row["model"] in TORCH_MODELS and row["weight_dtype"] in GPT_FAST_PRECISIONS
        if not known or not row["hardware"].startswith("A100") or row["metric"] != "output_tok_s":
            return None
        scenario = _one_sequence(
            TORCH_MODELS[row["model"]],
            hardware="a100-sxm-80gb",
            precision=GPT_FAST_PRECISIONS[row["weight_dtype"]],
            isl=GPT_FAST_ISL,
            osl=GPT_FAST_OSL,
        )
        return {**scenario, "tp_size": int(row["tp"])}

    return gather("gpt-fast", rows, scenario_of=scenario_of)


def torchao(rows: list[dict[str, str]]) -> tuple[MeasuredRun, ...]:
    """torchao's README: the same program, other kernels, A100."""

    def scenario_of(row: Row) -> dict[str, Any] | None:
        if row["weight_dtype"] not in TORCHAO_PRECISIONS or row["metric"] != "output_tok_s":
            return None
        scenario = _one_sequence(
            TORCH_MODELS[row["model"]],
            hardware="a100-sxm-80gb",
            precision=TORCHAO_PRECISIONS[row["weight_dtype"]],
            isl=GPT_FAST_ISL,
            osl=GPT_FAST_OSL,
        )
        return {**scenario, "techniques": {"sparsity": "2:4"}} if "2:4" in row["weight_dtype"] else scenario

    return gather("torchao", rows, scenario_of=scenario_of)


def tinychat(rows: list[dict[str, str]]) -> tuple[MeasuredRun, ...]:
    """TinyChat's README: eager PyTorch with fused kernels. Jetson Orin has no hardware profile and is left out."""

    def scenario_of(row: Row) -> dict[str, Any] | None:
        if row["hardware"] not in TINYCHAT_HARDWARE or row["model"] not in TINYCHAT_MODELS:
            return None
        scenario = _one_sequence(
            TINYCHAT_MODELS[row["model"]],
            hardware=TINYCHAT_HARDWARE[row["hardware"]],
            precision=TINYCHAT_PRECISIONS[row["weight_dtype"]],
            isl=TINYCHAT_ISL,
            osl=TINYCHAT_OSL,
        )
        return {**scenario, "engine": {"name": "torch-eager"}, "techniques": {"fusion": True}}

    return gather("tinychat", rows, scenario_of=scenario_of)
