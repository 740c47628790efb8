"""An accelerator that is no worse in any fact is no slower: every pair of the built-in ones, measured or not.

Kernels of both are fitted on tables of their own, carried from a relative or assumed. Whichever way a number was made,
a chip with more of everything does not lose: what fails here is a fit carried wrongly, or a fact with a slip. Experts
are left out: a kernel library has tuned them for some chips by name, and for others of the same silicon not.
"""

from __future__ import annotations

from functools import cache
from itertools import permutations

import numpy as np
import pytest

from simulator.errors import RoofcastError
from simulator.operators.model_counts import parameter_counts
from simulator.operators.work import decode_step, prefill_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.step import estimate_step
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import AcceleratorSpec, list_hardware, load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.units import MICRO
from tests.for_every import for_every

MODELS = ("llama-3.1-8b", "qwen3-8b")
BATCHES = np.array([1.0, 16.0, 64.0, 256.0])
PROMPTS = np.array([512.0, 4096.0])
ROUGH = {"bf16": 0.05, "fp8": 0.25}
"""What a table's corrections may add for one chip where a better one, without such a table, has none: of FP8 products
of 512 rows H100's add 23 % to what its sibling H800 takes by the same physics."""
PRODUCTS, PASS_LAUNCH_S = 4 * 32, 2.5 * MICRO
"""Of a step of the first model, and the most that tables of NVIDIA's chips show for quantising one row."""
FACTS = ("memory_bytes_per_s", "memory_bytes", "l2_bytes", "parallel_units")


@cache
def chip(name: str) -> AcceleratorSpec:
    return load_hardware(name)


def dominates(better: AcceleratorSpec, worse: AcceleratorSpec) -> bool:
    """Of one vendor, and no lower in bandwidth, capacity, cache, units or any matrix rate that both have."""
    shared = better.peak_flops_per_s.keys() & worse.peak_flops_per_s.keys()
    return (
        better.vendor == worse.vendor
        and bool(shared)
        and all(getattr(better, fact) >= getattr(worse, fact) for fact in FACTS)
        and all(better.peak_flops_per_s[dtype] >= worse.peak_flops_per_s[dtype] for dtype in shared)
    )


def pairs() -> list[tuple[str, str]]:
    return [names for names in permutations(list_hardware(), 2) if dominates(*map(chip, names))]


@cache
def deployed(name: str, model: str, weights: str) -> Deployment | None:
    """A replica of one accelerator; None where it has no such matrix units."""
    precision = PrecisionSpec(weights=Dtype(weights), activations=Dtype(weights), kv_cache=Dtype.BF16)
    engine = EngineSpec(name="vllm", max_model_len=8192)
    try:
        return deploy(model=load_model(model), hardware=chip(name), precision=precision, engine=engine)
    except RoofcastError:
        return None


@cache
def seconds(name: str, model: str, weights: str) -> np.ndarray | None:
    """Decode steps of BATCHES, then prefill steps of PROMPTS [s]."""
    replica = deployed(name, model, weights)
    if replica is None:
        return None
    decoding = estimate_step(replica, decode_step(sequences=BATCHES, context=1000.0))
    return np.r_[decoding.step_s, estimate_step(replica, prefill_step(sequences=1.0, tokens=PROMPTS)).step_s]


def test_there_are_many_such_pairs_of_every_large_vendor() -> None:
    vendors = [chip(better).vendor for better, _ in pairs()]
    assert len(vendors) > 300
    assert {"nvidia", "amd"} <= {vendor.lower() for vendor in vendors}


@pytest.mark.parametrize("weights", list(ROUGH))
@pytest.mark.parametrize("model", MODELS)
def test_more_of_everything_is_no_slower(model: str, weights: str) -> None:
    slower = {}
    for better, worse in pairs():
        ours, theirs = seconds(better, model, weights), seconds(worse, model, weights)
        if ours is not None and theirs is not None and np.any(ours > theirs * (1 + ROUGH[weights])):
            slower[better, worse] = np.round(ours / theirs, 2).tolist()
    assert slower == {}


@for_every(lambda: list_hardware())
def test_no_step_is_faster_than_what_it_must_read_and_multiply(name: str) -> None:
    """The roofline of the datasheet: all weights once for a token, two FLOPs a parameter for a prompt."""
    model, hardware = MODELS[0], chip(name)
    took = seconds(name, model, "bf16")
    if took is None:
        return
    shape = load_model(model)
    # The table of embeddings is looked up, not read.
    multiplied = parameter_counts(shape).total - shape.vocab_size * shape.hidden_size
    assert took[0] > 2.0 * multiplied / hardware.memory_bytes_per_s
    in_layers = multiplied - shape.vocab_size * shape.hidden_size
    assert np.all(took[len(BATCHES) :] > 2.0 * in_layers * PROMPTS / hardware.peak_flops_per_s[Dtype.BF16])


@for_every(lambda: list_hardware())
def test_longer_batches_and_prompts_take_longer(name: str) -> None:
    took = seconds(name, MODELS[0], "bf16")
    if took is None:
        return
    decoding, prefill = took[: len(BATCHES)], took[len(BATCHES) :]
    assert np.all(np.diff(decoding) > -0.02 * decoding[:-1])
    assert np.all(np.diff(prefill) > 0)
    # A step of many sequences costs less than as many steps of one.
    assert np.all(decoding < decoding[0] * BATCHES * (1 + 1e-9))


@for_every(lambda: list_hardware())
def test_half_the_bits_are_no_slower_and_gain_no_more_than_half(name: str) -> None:
    """FP8 in place of BF16 weights, one sequence: what is read halves, what is launched stays."""
    wide, narrow = (seconds(name, MODELS[0], weights) for weights in ("bf16", "fp8"))
    if wide is None or narrow is None:
        return
    # Where launches decide, numbers that are quantised before a product take more: the launch of a pass for each.
    assert narrow[0] < wide[0] + PRODUCTS * PASS_LAUNCH_S
    # Kernels of the two formats reach shares of the bandwidth of their own: a quarter apart at most.
    assert narrow[0] > wide[0] / 2 / 1.25
    assert np.all(narrow[len(BATCHES) :] < wide[len(BATCHES) :] * 1.1)
    assert narrow[-1] < wide[-1]
