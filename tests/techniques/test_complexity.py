"""How work grows with length, by kind of layer."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.errors import RoofcastError
from simulator.techniques.complexity import LAYER_KINDS, LengthCost, length_cost

LENGTHS = np.array([2.0**14, 2.0**15, 2.0**20])


def cost(kind: str) -> LengthCost:
    return length_cost(kind, tokens=LENGTHS, width=1024)  # type: ignore[arg-type]


def growth(values: np.ndarray) -> float:
    """Of doubling the length."""
    return float(values[1] / values[0])


def test_prefill_is_quadratic_linear_or_nearly_so() -> None:
    # (2 N + 8 d) N d with N of 16 and 32 times the width.
    assert growth(cost("attention").prefill_flops) == pytest.approx(2 * (64 + 8) / (32 + 8), rel=1e-3)
    assert growth(cost("recurrent").prefill_flops) == 2
    assert growth(cost("linear_attention").prefill_flops) == 2
    assert 2.0 < growth(cost("convolution_fft").prefill_flops) < 2.2


def test_a_token_costs_its_context_or_a_constant() -> None:
    for kind in ("attention", "convolution_fft"):
        assert 1.5 < growth(cost(kind).decode_flops) < 2
        assert growth(cost(kind).state_bytes) == 2
    for kind in ("recurrent", "linear_attention"):
        assert growth(cost(kind).decode_flops) == growth(cost(kind).state_bytes) == 1


def test_only_a_recurrence_has_to_wait_for_every_token() -> None:
    steps = {kind: cost(kind).sequential_steps[0] for kind in LAYER_KINDS}
    assert steps["recurrent"] == LENGTHS[0]
    assert max(value for kind, value in steps.items() if kind != "recurrent") < 20


def test_the_crossing_is_where_the_table_puts_it() -> None:
    """Recurrence does more work than attention until the sequence is as long as the layer is wide [Vaswani2017]."""
    at = np.array([512.0, 1024.0, 3 * 1024.0, 5 * 1024.0])
    attention, recurrence = (length_cost(kind, tokens=at, width=1024) for kind in ("attention", "recurrent"))
    assert list(attention.prefill_flops < recurrence.prefill_flops) == [True, True, True, False]
    # 8 N d^2 of projections and 2 N^2 d of scores beside the 16 N d^2 of gates.
    assert recurrence.prefill_flops[1] / attention.prefill_flops[1] == pytest.approx(1.6, rel=1e-3)
    million = {kind: cost(kind).prefill_flops[-1] for kind in LAYER_KINDS}
    assert million["attention"] > 100 * million["recurrent"]
    assert million["convolution_fft"] < million["recurrent"]


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(RoofcastError, match="allowed: attention"):
        cost("hopfield")
