"""The planner's rule of thumb, derived: weight-only for few sequences, W8A8 for many."""

from __future__ import annotations

import numpy as np
import pytest

from simulator import deploy, load_hardware, load_model
from simulator.phases.crossover import decode_seconds, format_crossover, format_crossovers
from simulator.phases.deployment import Deployment
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.model.precision import PrecisionSpec

CONTEXT = 1024.0


def replica(scheme: str, *, hardware: str = "a100-sxm-80gb", kernel: str | None = None) -> Deployment:
    return deploy(
        model=load_model("llama-3.1-8b"),
        hardware=load_hardware(hardware),
        precision=PrecisionSpec(scheme=scheme, kernel=kernel),
        engine=EngineSpec(name="vllm"),
    )


@pytest.mark.parametrize("hardware", ["a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb"])
def test_four_bits_win_for_one_sequence_and_eight_by_eight_for_many(hardware: str) -> None:
    seconds = {
        name: decode_seconds(replica(name, hardware=hardware), np.array([1.0, 1024.0]), context_tokens=CONTEXT)
        for name in ("bf16", "w8a8", "gptq-g128")
    }
    assert seconds["gptq-g128"][0] < seconds["w8a8"][0] < seconds["bf16"][0]
    assert seconds["w8a8"][1] < min(seconds["bf16"][1], seconds["gptq-g128"][1])


def test_the_crossover_is_where_the_curves_cross() -> None:
    four, eight, wide = replica("gptq-g128"), replica("w8a8"), replica("bf16")
    to_eight = format_crossover(four, eight, context_tokens=CONTEXT)
    to_wide = format_crossover(four, wide, context_tokens=CONTEXT)
    assert to_eight is not None
    assert to_wide is not None
    assert 16 < to_eight < to_wide < 1024
    around = np.array([to_eight / 4, to_eight * 4.0])
    difference = decode_seconds(eight, around, context_tokens=CONTEXT) - decode_seconds(
        four, around, context_tokens=CONTEXT
    )
    assert difference[0] > 0 > difference[1]


def test_what_always_or_never_wins_says_so() -> None:
    assert format_crossover(replica("bf16"), replica("w8a8"), context_tokens=CONTEXT) == 1
    assert format_crossover(replica("w8a8"), replica("bf16"), context_tokens=CONTEXT) is None


def test_a_slower_dequantisation_is_overtaken_earlier() -> None:
    """GPTQ's first kernel widens the weights in memory above one token, Marlin never does."""
    eight = replica("w8a8")
    marlin = format_crossover(replica("gptq-g128"), eight, context_tokens=CONTEXT)
    first = format_crossover(replica("gptq-g128", kernel="gptq"), eight, context_tokens=CONTEXT)
    assert first is not None
    assert marlin is not None
    assert first < marlin


def test_pairs_are_named_by_who_is_ahead_for_one_sequence() -> None:
    found = format_crossovers([("bf16", replica("bf16")), ("gptq", replica("gptq-g128"))], context_tokens=CONTEXT)
    assert [(pair.earlier, pair.later) for pair in found] == [("gptq", "bf16")]
