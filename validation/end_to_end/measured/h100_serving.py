"""Serving runs on H100 that no fit has seen: GPUStack's engine comparisons and ML.ENERGY's steady states.

GPUStack sends all requests at once; those of ShareGPT vary, and how much is assumed. ML.ENERGY keeps a number of
sequences running and measures a window of the steady state; its prompts are not stated and assumed to be short.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from simulator.units import MILLI
from validation.end_to_end.measured.runs import MeasuredRun, Row, gather

SHAREGPT_CV = 1.1
"""Spread of prompt and answer lengths of ShareGPT as benchmark tools sample it (from memory, verify)."""
CHAT_PROMPT_TOKENS = 200
"""Mean prompt of a chat without a stated one (assumed; a tenth of a step's context at most)."""

_ENGINES = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "tensorrt-llm"}
_KNOWN = re.compile(
    r"(#.*|vllm|serve|trtllm-serve|python3|-m|sglang\.launch_server|--model(-path)?|[\w.]+/[\w.-]+|-tp|--tp-size|--ep-size|\d+|"
    r"--enable-expert-parallel|--enable_chunked_prefill|--max_seq_len=\d+|--max-num-batched-tokens|--host|0\.0\.0\.0|"
    r"--port|--gpu-memory-utilization|0\.\d+|\\)"
)
"""Words of a launch command whose effect a scenario can say or that have none."""
_GPUSTACK = {
    "ttft_ms": ("ttft_s", MILLI),
    "tpot_ms": ("tpot_s", MILLI),
    "throughput_tok_s": ("total_tokens_per_s", 1.0),
}
_MLENERGY = {
    "output_tok_s": ("steady_output_tokens_per_s", 1.0),
    "itl_ms": ("tpot_p50_s", MILLI),
    "power_w_all_gpus": ("power_w", 1.0),
}


def _note(row: Row, name: str) -> str | None:
    found = re.search(rf"\b{name}[=:]\s*([^;]*)", row["notes"])
    return found[1].strip() if found else None


def _option(command: str, *names: str) -> str | None:
    for name in names:
        found = re.search(rf"{name}[ =](\S+)", command)
        if found:
            return found[1]
    return None


def _gpustack_scenario(row: Row) -> dict[str, Any] | None:
    command, requests = _note(row, "cmd"), _note(row, "requests")
    if row["request_rate"] != "inf" or not command or not requests or row["statistic"] not in ("mean", ""):
        return None
    if not all(_KNOWN.fullmatch(word) for word in command.split()):
        return None
    tp = int(_option(command, "-tp", "--tp-size") or 1)
    ep = int(_option(command, "--ep-size") or (tp if "--enable-expert-parallel" in command else 1))
    engine: dict[str, Any] = {"name": _ENGINES[row["engine"]]}
    batched, share = _option(command, "--max-num-batched-tokens"), _option(command, "--gpu-memory-utilization")
    engine |= {"version": row["engine_version"].lstrip("v")} if row["engine_version"] else {}
    engine |= {"max_num_batched_tokens": int(batched)} if batched else {}
    engine |= {"gpu_memory_utilization": float(share)} if share else {}
    engine |= {"chunked_prefill": True} if "--enable_chunked_prefill" in command else {}
    varied = "random" not in (_note(row, "sub") or "") and "random" not in (_note(row, "label") or "")
    lengths = {"isl_cv": SHAREGPT_CV, "osl_cv": SHAREGPT_CV} if varied else {"range_ratio": 1}
    return {
        "kind": "closed_loop",
        "model": row["model"],
        "hardware": "h100-sxm-80gb",
        "tp_size": tp,
        "ep_size": ep,
        "engine": engine,
        "concurrency": int(requests),
        "num_requests": int(requests),
        "isl_tokens": round(float(row["isl"])),
        "osl_tokens": round(float(row["osl"])),
        **lengths,
    }


def gpustack(rows: list[dict[str, str]]) -> tuple[MeasuredRun, ...]:
    """Engines and their options at all requests at once; commands with options that no scenario says are left out."""
    return gather("gpustack", rows, scenario_of=_gpustack_scenario, metrics=_GPUSTACK)


def _mlenergy_scenario(row: Row) -> dict[str, Any] | None:
    found = re.search(r"steady-state average batch=([\d.]+)", row["notes"])
    if (
        found is None
        or _note(row, "task") != "lm-arena-chat"
        or (row["metric"] == "itl_ms" and row["statistic"] != "p50")
    ):
        return None
    devices = int(row["n_gpus"])
    batch = max(1, round(float(found[1])))
    return {
        "kind": "closed_loop",
        "model": row["model"],
        "hardware": "h100-sxm-80gb",
        "tp_size": devices,
        "ep_size": int(row["ep"] or 1),
        "precision": {"weights": row["weight_dtype"]},
        "engine": {"name": "vllm", "max_num_seqs": max(batch, int(row["batch_or_concurrency"]))},
        "concurrency": batch,
        "isl_tokens": CHAT_PROMPT_TOKENS,
        "osl_tokens": round(float(row["osl"])),
        "osl_cv": 1.0,
    }


def mlenergy(rows: list[dict[str, str]]) -> tuple[MeasuredRun, ...]:
    """Steady states of chats at fixed batch limits."""
    return gather("mlenergy", rows, scenario_of=_mlenergy_scenario, metrics=_MLENERGY)


H100_TABLES: Mapping[str, tuple[str, Callable[[list[dict[str, str]]], tuple[MeasuredRun, ...]]]] = {
    "gpustack": ("gpustack_h100.csv", gpustack),
    "mlenergy": ("mlenergy_h100.csv", mlenergy),
}
