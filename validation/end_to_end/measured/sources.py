"""Each source of measured runs as scenarios: who ran what, on which engine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from validation.end_to_end.measured.h100_serving import H100_TABLES
from validation.end_to_end.measured.runs import METRICS, MeasuredRun, Row, gather, read_rows
from validation.end_to_end.measured.technique_sources import gpt_fast, tinychat, torchao

FP16 = {"weights": "fp16", "activations": "fp16", "kv_cache": "fp16"}
BF16 = {"weights": "bf16", "activations": "bf16", "kv_cache": "bf16"}

SPLITWISE_MODELS = {"llama2-70b": "meta-llama/Llama-2-70b-hf", "bloom-176b": "bigscience/bloom"}
TENSORRT_MODELS = {
    "GPT-J 6B": "EleutherAI/gpt-j-6b",
    "LLaMA 7B": "huggyllama/llama-7b",
    "LLaMA 70B": "meta-llama/Llama-2-70b-hf",
    "Falcon 180B": "tiiuae/falcon-180B",
    "Mistral 7B": "mistralai/Mistral-7B-v0.3",
    "Mixtral 8x7B": "mistralai/Mixtral-8x7B-v0.1",
    "LLaMA v3 70B": "meta-llama/Meta-Llama-3-70B",
    "LLaMA v3.1 70B": "meta-llama/Llama-3.1-70B-Instruct",
}
TENSORRT_HARDWARE = {"H100 80GB HBM3": "h100", "H100": "h100", "A100": "a100", "H200": "h200", "L40S": "l40s"}
# Requests of the 0.14 overview's runs by input and output length, as its guide lists them (from memory, verify).
TENSORRT_REQUESTS = {
    ("128", "128"): 30000,
    ("128", "2048"): 3000,
    ("500", "2000"): 3000,
    ("1000", "1000"): 3000,
    ("2048", "128"): 3000,
    ("128", "4096"): 1500,
    ("2048", "2048"): 1500,
    ("5000", "500"): 1500,
    ("20000", "2000"): 1000,
}
FP8 = {"weights": "fp8", "activations": "fp8", "kv_cache": "fp8"}
ARGONNE_CHIPS = {"Nvidia A100 GPU": "a100-sxm-40gb"}
FASTERTRANSFORMER_MODELS = {"Megatron-530B": "megatron-530b", "GPT-175B": "gpt-3-175b"}


def splitwise(rows: list[dict[str, str]]) -> tuple[MeasuredRun, ...]:
    """Static batches on A100, TP 2/4/8; an eager PyTorch stack.

    The latency column is left out: outputs ended before the nominal length (8,192 tokens at 60 ms took 35 s).
    """

    def scenario_of(row: Row) -> dict[str, Any] | None:
        if row["metric"] == "latency_ms":
            return None
        return {
            "kind": "batch",
            "model": SPLITWISE_MODELS[row["model"]],
            "hardware": "a100-sxm-80gb",
            "tp_size": int(row["tp"]),
            "precision": FP16,
            "engine": {"name": "torch-eager"},
            "batch_size": int(row["batch_or_concurrency"]),
            "isl_tokens": int(row["isl"]),
            "osl_tokens": int(row["osl"]),
        }

    return gather("splitwise", rows, scenario_of=scenario_of)


def _tensorrt_precision(row: Row) -> dict[str, str]:
    weights = row["weight_dtype"].lower()
    kv = row["kv_dtype"].lower() or ("fp8" if weights == "fp8" else "fp16")
    return {"weights": weights, "activations": weights, "kv_cache": kv}


def tensorrt_llm(rows: list[dict[str, str]]) -> tuple[MeasuredRun, ...]:
    """Published performance overviews: 0.9 static batches, 0.14 everything queued at once."""

    def scenario_of(row: Row) -> dict[str, Any] | None:
        if row["model"] not in TENSORRT_MODELS or row["metric"] not in ("output_tok_s", "ttft_ms"):
            return None
        scenario: dict[str, Any] = {
            "kind": "batch" if row["batch_or_concurrency"] else "offline",
            "model": TENSORRT_MODELS[row["model"]],
            "hardware": TENSORRT_HARDWARE[row["hardware"]],
            "tp_size": int(row["tp"]),
            "precision": _tensorrt_precision(row),
            "engine": {"name": "tensorrt-llm", "version": row["engine_version"]},
            "isl_tokens": int(row["isl"]),
            "osl_tokens": int(row["osl"]),
        }
        if row["batch_or_concurrency"]:
            scenario["batch_size"] = int(row["batch_or_concurrency"])
        elif (row["isl"], row["osl"]) in TENSORRT_REQUESTS:
            scenario["num_requests"] = TENSORRT_REQUESTS[row["isl"], row["osl"]]
        return scenario

    def per_replica(row: Row) -> dict[str, str]:
        """The 0.9 tables give throughput per GPU."""
        if row["metric"] != "output_tok_s_per_gpu":
            return dict(row)
        value = float(row["value"]) * int(row["tp"])
        return {**row, "metric": "output_tok_s", "value": str(value)}

    return gather("tensorrt-llm", [per_replica(row) for row in rows], scenario_of=scenario_of)


def argonne(rows: list[dict[str, str]]) -> tuple[MeasuredRun, ...]:
    """LLM-Inference-Bench on A100: static batches with equal input and output lengths."""
    engines = {"TensorRT-LLM": "tensorrt-llm", "vLLM": "vllm", "Deepspeed-MII": "deepspeed-mii"}
    return _inference_bench("argonne", rows, engines=engines)


def argonne_llama_cpp(rows: list[dict[str, str]]) -> tuple[MeasuredRun, ...]:
    """The same benchmark's runs of llama.cpp, a source of its own.

    A token takes 21 to 23 ms beyond reading the weights there, whatever the layers, the vocabulary and the number of
    devices, where the engine's own table leaves less than one: time of how it was driven, which no row tells apart.
    """
    return _inference_bench("argonne-llama.cpp", rows, engines={"llama.cpp": "llama.cpp"})


def argonne_elsewhere(rows: list[dict[str, str]]) -> tuple[MeasuredRun, ...]:
    """The same benchmark on an accelerator without a measured kernel of its vendor, Gaudi 2 under Habana's DeepSpeed,
    for which the default engine stands, and on one that borrows those of a later generation, MI250 under vLLM."""
    cached = [row for row in rows if "Without KV Cache" not in row["notes"] and row["osl"].isdigit()]
    chips = {"Habana Gaudi2": "gaudi2", "MI250": "mi250x"}
    return _inference_bench("argonne-elsewhere", cached, engines={"Deepspeed": "vllm", "vLLM": "vllm"}, chips=chips)


def _inference_bench(
    source: str, rows: list[dict[str, str]], *, engines: Mapping[str, str], chips: Mapping[str, str] = ARGONNE_CHIPS
) -> tuple[MeasuredRun, ...]:
    # The table names no versions; its runs were published in 2024: the last releases of that year stand for them.
    versions = {"vLLM": "0.5", "TensorRT-LLM": "0.16"}

    def scenario_of(row: Row) -> dict[str, Any] | None:
        plain = not re.search(r"parallelism|speculative|kv_cache_dtype|Context", row["notes"])
        if row["engine"] not in engines or not plain or row["metric"] != "latency_ms" or row["weight_dtype"]:
            return None
        if row["model"].startswith("Deci"):
            return None
        return {
            "kind": "batch",
            "model": row["model"],
            "hardware": chips[row["hardware"]],
            "tp_size": int(float(row["tp"] or row["n_gpus"])),
            "precision": BF16 if row["engine"] == "Deepspeed" else FP16,
            "engine": {"name": engines[row["engine"]], "version": versions.get(row["engine"])},
            "batch_size": int(row["batch_or_concurrency"]),
            "isl_tokens": int(row["isl"]),
            "osl_tokens": int(row["osl"]),
        }

    return gather(source, rows, scenario_of=scenario_of)


LLAMA_CPP_TABLE = Path(__file__).resolve().parents[2] / "measured" / "llama_cpp.csv"
LLAMA_CPP_PRECISIONS: Mapping[str, Mapping[str, str]] = {"F16": FP16, "Q8_0": {"scheme": "q8-0"}}


def llama_cpp(rows: list[dict[str, str]]) -> tuple[MeasuredRun, ...]:
    """llama.cpp's own table: llama-bench at batch 1 on RTX 4090, before it replayed CUDA graphs (as b1800)."""

    def scenario_of(row: Row) -> dict[str, Any]:
        return {
            "kind": "batch",
            "model": "meta-llama/Llama-2-7b-hf",
            "hardware": "rtx-4090",
            "precision": dict(LLAMA_CPP_PRECISIONS[row["weight_dtype"]]),
            "engine": {"name": "llama.cpp", "version": "b1800"},
            "batch_size": int(row["batch_or_concurrency"]),
            "isl_tokens": int(row["isl"]),
            "osl_tokens": int(row["osl"]),
        }

    return gather("llama.cpp", rows, scenario_of=scenario_of)


def fastertransformer(rows: list[dict[str, str]]) -> tuple[MeasuredRun, ...]:
    """FasterTransformer GPT on A100 inside one server; the larger ones need a network that is not described."""

    def scenario_of(row: Row) -> dict[str, Any] | None:
        name = row["model"].split(" ")[0]
        devices = int(row["tp"]) * int(row["pp"] or 1)
        if row["engine"] != "FasterTransformer" or name not in FASTERTRANSFORMER_MODELS or devices > 8:
            return None
        return {
            "kind": "batch",
            "model": FASTERTRANSFORMER_MODELS[name],
            "hardware": "a100-sxm-80gb",
            "tp_size": int(row["tp"]),
            "pp_size": int(row["pp"] or 1),
            "precision": FP16,
            "engine": {"name": "fastertransformer"},
            "batch_size": int(row["batch_or_concurrency"]),
            "isl_tokens": int(row["isl"]),
            "osl_tokens": int(row["osl"]),
        }

    return gather("fastertransformer", rows, scenario_of=scenario_of)


def rocm(rows: list[dict[str, str]]) -> tuple[MeasuredRun, ...]:
    """AMD's own table of vLLM on eight MI300X: static batches, and all prompts at once, whose tokens/s, by the notes,
    are read as output's."""

    def scenario_of(row: Row) -> dict[str, Any]:
        batch, isl, osl = (int(row[name]) for name in ("batch_or_concurrency", "isl", "osl"))
        queued = row["metric"] == "throughput_or_output_tok_s"
        size = {"kind": "offline", "num_requests": batch} if queued else {"kind": "batch", "batch_size": batch}
        limits = {"max_num_seqs": batch, "max_num_batched_tokens": 131072} if queued else {}
        return {
            **size,
            "model": row["model"].split(" ")[0],
            "hardware": "mi300x",
            "tp_size": int(row["tp"]),
            "precision": FP8,
            "engine": {"name": "vllm", "version": row["engine_version"].split(" ")[0].rstrip(","), **limits},
            "isl_tokens": isl,
            "osl_tokens": osl,
        }

    metrics = {**METRICS, "throughput_or_output_tok_s": METRICS["output_tok_s"]}
    return gather("rocm", rows, scenario_of=scenario_of, metrics=metrics)


TABLES: dict[str, tuple[str, Callable[[list[dict[str, str]]], tuple[MeasuredRun, ...]]]] = {
    "splitwise": ("splitwise_a100.csv", splitwise),
    "tensorrt-llm": ("tensorrt_llm_perf_overview.csv", tensorrt_llm),
    "argonne": ("argonne_a100.csv", argonne),
    "argonne-llama.cpp": ("argonne_a100.csv", argonne_llama_cpp),
    "llama.cpp": (str(LLAMA_CPP_TABLE), llama_cpp),
    "fastertransformer": ("fastertransformer_gpt_a100.csv", fastertransformer),
    "gpt-fast": ("gpt_fast.csv", gpt_fast),
    "torchao": ("torchao_a100_llama.csv", torchao),
    "tinychat": ("tinychat_awq.csv", tinychat),
}

ALL_TABLES = {
    **TABLES,
    **H100_TABLES,
    "argonne-elsewhere": ("argonne_mi250_gaudi2.csv", argonne_elsewhere),
    "rocm": ("rocm_vllm_mi300x.csv", rocm),
}
"""With the sources of today, which are scored by name alone."""


def load_source(name: str, data: Path) -> tuple[MeasuredRun, ...]:
    """The runs of one source; ``data`` is the folder that holds e2e/, today/ and serving/. Tables of the project's own
    have whole paths."""
    file, build = ALL_TABLES[name]
    return build(read_rows(data / ("e2e" if name in TABLES else "today") / file))


def scenario_lines(runs: tuple[MeasuredRun, ...]) -> str:
    """The runs' scenarios as the input of ``roofcast simulate``."""
    return "".join(json.dumps(dict(run.scenario)) + "\n" for run in runs)
