"""Accelerators with the same dies take about the same time, whichever tables their kernels were fitted on.

GB200 and GB300 are B200 and B300 behind another host, GH200 is an H200: their bandwidths and rates differ by less than
a tenth. Where a family of kernels takes another third longer, its table timed something else than the kernel. Left out
are experts, whose tiles a release has tuned for some chips by name, and collectives, whose links differ.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from simulator.operators.work import decode_step, prefill_step
from simulator.phases.deployment import deploy
from simulator.phases.step import estimate_step
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from tests.for_every import for_every

SIBLINGS = (("b200-sxm", "gb200"), ("b300-sxm", "gb300"), ("h200-sxm-141gb", "gh200-144gb"))
ENGINES = ("vllm", "sglang", "tensorrt-llm")
MODELS = ("qwen3-next-80b-a3b", "qwen3-30b-a3b-fp8", "llama-3.1-8b")
BATCHES = np.array([1.0, 16.0, 128.0, 512.0])
PROMPTS = np.array([1024.0, 4096.0])
"""Up to where tables hold for every engine: SGLang's longer prompts are slower on servers than on racks."""
APART = 1.3
"""Widest ratio of a family's times: tables of small kernels differ by what a host adds to each."""


@cache
def families(hardware: str, model: str, engine: str) -> dict[str, np.ndarray]:
    """Seconds by family of decode steps of BATCHES, then prefill steps of PROMPTS."""
    replica = deploy(model=load_model(model), hardware=load_hardware(hardware), engine=EngineSpec(name=engine))
    steps = (decode_step(sequences=BATCHES, context=2048.0), prefill_step(sequences=1.0, tokens=PROMPTS))
    decoding, prefill = (estimate_step(replica, step).breakdown_s for step in steps)
    found = {**{f"decode {key}": took for key, took in decoding.items()}, **prefill}
    return {key: took for key, took in found.items() if not key.endswith(("moe", "collective", "host"))}


@pytest.mark.parametrize("model", MODELS)
@for_every(lambda: ENGINES)
def test_a_family_of_kernels_takes_as_long_on_the_same_dies(model: str, engine: str) -> None:
    apart = {}
    for pair in SIBLINGS:
        ours, theirs = (families(name, model, engine) for name in pair)
        for family, took in ours.items():
            ratio = theirs[family] / np.maximum(took, 1e-12)
            if np.any((took > 0) & ((ratio > APART) | (ratio < 1 / APART))):
                apart[(*pair, family)] = np.round(ratio, 2).tolist()
    assert apart == {}
