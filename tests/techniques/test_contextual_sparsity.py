"""Contextual sparsity: predictors, fractions, and the union that a batch reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import deploy, estimate_step, load_hardware, load_model, memory_plan
from simulator.errors import RoofcastError
from simulator.operators.work import decode_step
from simulator.phases.deployment import Deployment
from simulator.specs.base import validate
from simulator.specs.question.techniques import TechniquesSpec
from simulator.techniques.contextual_sparsity import union_fraction


def replica(model: str = "opt-30b", **contextual: float) -> Deployment:
    data = {"contextual_sparsity": contextual} if contextual else {}
    return deploy(
        model=load_model(model),
        hardware=load_hardware("a100-sxm-80gb"),
        techniques=validate(TechniquesSpec, data, where=""),
    )


@given(st.floats(0.01, 1.0), st.floats(0, 1), st.floats(1, 500), st.floats(1, 10))
def test_a_union_lies_between_one_token_and_everything_and_grows(
    fraction: float, correlation: float, tokens: float, more: float
) -> None:
    few, many = union_fraction(fraction, tokens=np.array([tokens, tokens * more]), correlation=correlation)
    assert fraction - 1e-12 <= few <= many <= 1 + 1e-12


def test_limits_of_the_union() -> None:
    tokens = np.array([1.0, 2.0, 10_000.0])
    np.testing.assert_allclose(union_fraction(0.2, tokens=tokens), [0.2, 0.36, 1.0])
    np.testing.assert_allclose(union_fraction(0.2, tokens=tokens, correlation=1.0), 0.2)


def test_one_sequence_gains_and_a_batch_loses_it_again() -> None:
    step = decode_step(sequences=[1.0, 8.0, 128.0], context=256.0)
    dense, sparse = (
        estimate_step(made, step) for made in (replica(), replica(mlp_fraction=0.1, attention_fraction=0.5))
    )
    ratio = sparse.step_s / dense.step_s
    assert ratio[0] < 0.6
    assert np.all(np.diff(ratio) > 0)
    assert ratio[-1] > 1.0, "predictors cost and save nothing"


def test_tokens_that_choose_alike_keep_the_gain() -> None:
    step = decode_step(sequences=64.0, context=256.0)
    apart, alike = (
        float(estimate_step(replica(mlp_fraction=0.1, correlation=value), step).step_s[0]) for value in (0.0, 0.9)
    )
    assert alike < apart


def test_weights_stay_whole_and_predictors_come_on_top() -> None:
    plain, sparse = memory_plan(replica()), memory_plan(replica(mlp_fraction=0.1))
    # 48 layers of hidden 7168 -> 1000 -> 28672 neurons in 16 bit.
    assert sparse.weights_bytes - plain.weights_bytes == 48 * 2 * (7168 * 1000 + 1000 * 28672)
    wide = memory_plan(replica(mlp_fraction=0.1, predictor_rank=2000))
    assert wide.weights_bytes - plain.weights_bytes == 2 * (sparse.weights_bytes - plain.weights_bytes)


def test_a_step_of_many_cases_equals_its_cases_alone() -> None:
    made = replica(mlp_fraction=0.2, attention_fraction=0.4)
    batches = [1.0, 7.0, 90.0]
    together = estimate_step(made, decode_step(sequences=batches, context=300.0)).step_s
    alone = [float(estimate_step(made, decode_step(sequences=batch, context=300.0)).step_s[0]) for batch in batches]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


@pytest.mark.parametrize(
    ("model", "techniques", "match"),
    [
        ("mixtral-8x7b", {"contextual_sparsity": {"mlp_fraction": 0.2}}, "no dense feed-forward blocks"),
        ("mamba-2.8b", {"contextual_sparsity": {"attention_fraction": 0.5}}, "no attention heads"),
        ("opt-30b", {"contextual_sparsity": {"mlp_fraction": 0.2}, "sparsity": "2:4"}, "gathered at run time"),
        ("opt-30b", {"contextual_sparsity": {}}, "change nothing"),
        ("opt-30b", {"contextual_sparsity": {"mlp_fraction": 0}}, "greater than 0"),
    ],
)
def test_what_cannot_be_is_refused(model: str, techniques: dict[str, object], match: str) -> None:
    with pytest.raises(RoofcastError, match=match):
        deploy(
            model=load_model(model),
            hardware=load_hardware("a100-sxm-80gb"),
            techniques=validate(TechniquesSpec, techniques, where=""),
        )
