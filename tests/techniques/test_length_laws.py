"""``simulator.techniques.complexity``, ``.adapters``: how layers grow with the length, and adapters with the batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.operators.work import decode_step, prefill_step
from simulator.techniques.adapters import distinct_adapters, step_sequences
from simulator.techniques.complexity import LAYER_KINDS, length_cost

TOKENS = st.integers(2, 1 << 20).map(float)


@pytest.mark.parametrize("kind", LAYER_KINDS)
@given(tokens=TOKENS)
def test_a_longer_sequence_costs_no_less(kind: str, tokens: float) -> None:
    cost = length_cost(kind, tokens=np.array([tokens, 2 * tokens]), width=1024.0)  # type: ignore[arg-type]
    for values in (cost.prefill_flops, cost.decode_flops, cost.sequential_steps, cost.state_bytes):
        assert values[1] >= values[0] > 0


@pytest.mark.parametrize(
    ("kind", "power"), [("attention", 2.0), ("recurrent", 1.0), ("linear_attention", 1.0), ("convolution_fft", 1.0)]
)
def test_work_of_very_long_sequences_grows_by_its_order(kind: str, power: float) -> None:
    tokens = np.array([1e9, 1e10])
    flops = length_cost(kind, tokens=tokens, width=128.0).prefill_flops  # type: ignore[arg-type]
    assert np.log10(flops[1] / flops[0]) == pytest.approx(power, abs=0.06)


@pytest.mark.parametrize("kind", ["recurrent", "linear_attention"])
@given(tokens=TOKENS)
def test_a_state_of_constant_size_costs_every_token_the_same(kind: str, tokens: float) -> None:
    cost = length_cost(kind, tokens=np.array([1.0, tokens]), width=512.0)  # type: ignore[arg-type]
    assert cost.state_bytes[0] == cost.state_bytes[1]
    assert cost.decode_flops[0] == cost.decode_flops[1]
    assert cost.prefill_flops[1] == pytest.approx(tokens * cost.prefill_flops[0])


@given(tokens=TOKENS)
def test_only_a_recurrence_makes_every_token_wait(tokens: float) -> None:
    waits = {
        kind: float(length_cost(kind, tokens=np.array([tokens]), width=64.0).sequential_steps[0])
        for kind in LAYER_KINDS
    }
    assert waits["recurrent"] == tokens
    assert waits["attention"] == waits["linear_attention"] == 1.0
    assert 1.0 <= waits["convolution_fft"] <= 1 + np.log2(tokens) + 1e-9


@given(tokens=TOKENS)
def test_prompts_of_attention_are_the_sum_of_their_tokens(tokens: float) -> None:
    """N tokens one after the other, each as a new token after those before it, do the work of the prompt."""
    last = min(tokens, 2000.0)
    each = length_cost("attention", tokens=np.arange(last), width=256.0).decode_flops.sum()
    whole = length_cost("attention", tokens=np.array([last]), width=256.0).prefill_flops[0]
    assert each == pytest.approx(whole)


def test_a_kind_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(RoofcastError, match="linear_attention"):
        length_cost("lookup", tokens=np.array([1.0]), width=1.0)  # type: ignore[arg-type]


@given(sequences=st.integers(1, 500), count=st.integers(1, 200))
def test_a_batch_uses_between_one_adapter_and_all_it_can(sequences: int, count: int) -> None:
    found = float(distinct_adapters(np.array(float(sequences)), count=count))
    assert 1 - 1e-9 <= found <= min(sequences, count) + 1e-9
    assert found <= float(distinct_adapters(np.array(sequences + 1.0), count=count)) + 1e-9
    assert found <= float(distinct_adapters(np.array(float(sequences)), count=count + 1)) + 1e-9


@given(sequences=st.integers(1, 64), tokens=st.integers(1, 512))
def test_sequences_of_a_step_are_those_with_tokens_in_it(sequences: int, tokens: int) -> None:
    prompts = prefill_step(sequences=float(sequences), tokens=float(tokens))
    answers = decode_step(sequences=float(sequences), context=float(tokens))
    assert step_sequences(prompts).tolist() == [sequences]
    assert step_sequences(answers).tolist() == [sequences]
