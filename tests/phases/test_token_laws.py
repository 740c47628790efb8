"""More tokens are no faster, and one token more costs little: whole steps of many models on many accelerators.

Kernels' corrections follow tables, in which a larger size can be faster: a library changes its tile. What falls here
was looked at: FP8 products of Hopper behind a full tile, few rows of Blackwell's and A100's, experts of SGLang on
Blackwell, TensorRT-LLM's one-shot all-reduce. Bars only shrink.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from simulator.engine.runs.scenario_setup import deployment_of
from simulator.errors import RoofcastError
from simulator.operators.work import decode_step, prefill_step
from simulator.phases.step import estimate_step
from simulator.specs.base import validate
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.question.scenario import ScenarioSpec

MODELS = (
    ("llama-3.1-8b", "bf16", 1),
    ("llama-3.1-8b", "fp8", 1),
    ("llama-3.3-70b", "fp8", 4),
    ("llama-3.3-70b", "nvfp4", 4),
    ("llama-3.3-70b", "w4a16", 2),
    ("deepseek-r1", "fp8", 8),
    ("deepseek-v3.2", "fp8", 8),
    ("glm-5", "fp8", 8),
    ("minimax-m2.5", "fp8", 4),
    ("gpt-oss-120b", "mxfp4", 4),
    ("qwen3-30b-a3b", "bf16", 1),
    ("mixtral-8x7b", "bf16", 2),
    ("qwen3.5-397b-a17b", "fp8", 8),
    ("gemma-3-27b", "bf16", 1),
)
HARDWARE = ("h100", "h200", "b200", "b300", "gb200", "mi300x", "mi355x", "a100", "l40s")
ENGINES = {"nvidia": ("vllm", "sglang", "tensorrt-llm"), "amd": ("vllm", "sglang", "atom")}
FALL, JUMP = 0.97, 1.05
MOST_FALLS, DEEPEST_FALL = 55, 0.73
JUMPING = {"deepseek-v3.2", "glm-5", "gemma-3-27b", "gpt-oss-120b"}
"""Sparse attention changes its kernel behind as many cached tokens as are chosen, windows close: measured on both
sides."""


def sizes(first: int, last: int) -> np.ndarray:
    """Spread evenly over octaves, and the powers of two with the number behind each."""
    spread = np.unique(np.round(np.geomspace(first, last, 60)))
    powers = 2.0 ** np.arange(4, np.log2(last))
    return np.unique(np.r_[spread, powers[powers >= first], powers[powers >= first] + 1])


TOKENS, SEQUENCES, CONTEXTS = sizes(1, 32768), sizes(1, 1024), sizes(64, 131072)


def curves() -> Iterator[tuple[tuple[str, ...], dict[str, np.ndarray]]]:
    for name in HARDWARE:
        for model, weights, tp_size in MODELS:
            for engine in ENGINES[load_hardware(name).vendor]:
                asked = {"id": "law", "kind": "batch", "batch_size": 1, "isl_tokens": 64, "osl_tokens": 64}
                asked |= {"model": model, "hardware": name, "tp_size": tp_size}
                asked |= {"engine": {"name": engine}, "precision": {"weights": weights}}
                try:
                    replica = deployment_of(validate(ScenarioSpec, asked, where="law"))
                except RoofcastError:
                    continue
                steps = {
                    "prompt": prefill_step(sequences=1.0, tokens=TOKENS[1:]),
                    "batch": decode_step(sequences=SEQUENCES, context=2048.0),
                    "context": decode_step(sequences=64.0, context=CONTEXTS),
                }
                yield (
                    (name, model, weights, engine),
                    {key: estimate_step(replica, step).step_s for key, step in steps.items()},
                )


@pytest.mark.slow
def test_more_tokens_are_no_faster_and_one_more_costs_little() -> None:
    falls, jumps, count = dict[tuple[str, ...], float](), Counter[str](), 0
    for replica, found in curves():
        for kind, seconds in found.items():
            count += 1
            lowest = float(np.min(seconds / np.maximum.accumulate(seconds)))
            if lowest < FALL:
                falls[(*replica, kind)] = round(lowest, 3)
        beside = np.flatnonzero(np.diff(CONTEXTS) == 1)
        ratio = found["context"][beside + 1] / found["context"][beside]
        jumps[replica[1]] += int(np.any(ratio > JUMP))
    assert count > 800
    assert len(falls) <= MOST_FALLS, falls
    assert min(falls.values()) > DEEPEST_FALL, falls
    assert not any(kind == "context" for *_, kind in falls), falls
    assert set(+jumps) <= JUMPING, jumps
