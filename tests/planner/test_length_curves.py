"""Capacity over lengths without the jumps of single lengths, and the spread that unmeasured speculation adds."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.planner.fleet.fleet import Sized
from simulator.planner.plan import plan_capacity
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import Question, resolve
from simulator.planner.search.usual_search import usual_search
from simulator.planner.serving.shapes import DEVIATE_80
from simulator.planner.studies.length_curves import answer_curve, fitted_curve, prompt_curve
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.techniques import SpeculationSpec
from simulator.techniques.speculation.acceptance import method_sigma, pace_sigma

SCALES = (0.8, 0.9, 1.0, 1.1, 1.2)


@given(st.floats(-2.5, -0.05), st.integers(0, 1000))
def test_jumps_of_two_percent_move_the_ends_by_less(elasticity: float, seed: int) -> None:
    noise = np.random.default_rng(seed).uniform(0.98, 1.02, len(SCALES))
    curve = fitted_curve({scale: scale**elasticity * jump for scale, jump in zip(SCALES, noise, strict=True)})
    for scale in (0.8, 1.2):
        assert abs(log(curve.share(scale) / scale**elasticity)) < 0.045
    exact = fitted_curve({scale: scale**elasticity for scale in SCALES})
    for scale in SCALES:
        assert exact.share(scale) == pytest.approx(scale**elasticity, rel=1e-9)


@given(st.lists(st.floats(0.5, 2.0), min_size=5, max_size=5), st.floats(0.8, 1.2))
def test_longer_is_never_taken_for_less_work(values: list[float], scale: float) -> None:
    share = fitted_curve(dict(zip(SCALES, values, strict=True))).share(scale)
    assert share >= 1 if scale < 1 else share <= 1
    assert fitted_curve(dict(zip(SCALES, values, strict=True))).share(1.0) == 1.0


def test_what_cannot_be_served_is_zero() -> None:
    curve = fitted_curve({0.8: 2.0, 0.9: 1.5, 1.0: 1.0})
    assert curve.share(1.1) == 0
    assert curve.share(0.8) == pytest.approx(2.0, rel=0.05)
    assert fitted_curve({1.0: 3.0}).share(1.0) == 1.0


@pytest.fixture(scope="module")
def question() -> Question:
    asked = {"rps": 60, "model": "llama-3.1-70b", "hardware": "h200", "tp": 2, "e2e_p95": "15s"}
    return resolve(plan_spec(asked))


@pytest.fixture(scope="module")
def sized(question: Question) -> Sized:
    return usual_search(question, platforms(question.spec)[:1]).sized[0]


def test_capacity_falls_with_either_length(question: Question, sized: Sized) -> None:
    for make in (prompt_curve, answer_curve):
        shares = [make(question, sized).share(scale) for scale in np.linspace(0.8, 1.2, 5)]
        assert (np.diff(shares) <= 0).all()
        assert shares[0] > 1.05
        assert shares[-1] < 0.95


@pytest.mark.parametrize(("text", "widens"), [("eagle", True), ("eagle:acceptance=0.7", False), ("ngram", True)])
def test_guesses_that_nobody_measured_widen_the_fleet(text: str, widens: bool) -> None:
    plain, guessed = (
        plan_capacity(
            plan_spec({"rps": 400, "model": "llama-3.1-8b", "hardware": "h100", "tp": 1, "round_to": "device", **given})
        ).best
        for given in ({}, {"speculation": text})
    )
    widths = [log(fleet.devices_high / fleet.devices_low) for fleet in (plain, guessed)]
    if widens:
        assert guessed.log_sigma > plain.log_sigma + 0.01
        assert widths[1] > widths[0]
    else:
        assert guessed.log_sigma < plain.log_sigma + 0.02


def test_spread_between_tasks() -> None:
    eagle = SpeculationSpec(method="eagle")
    assert pace_sigma(None) == 0
    assert pace_sigma(eagle) == method_sigma("eagle")
    assert pace_sigma(eagle.model_copy(update={"accepted_tokens": 3.0})) == 0
    # Copying from the prompt depends on the task more than a trained drafter does: 80 % of tasks lie within a factor.
    assert exp(2 * DEVIATE_80 * method_sigma("ngram")) == pytest.approx(2.0, rel=0.05)
    assert method_sigma("ngram") > method_sigma("eagle2") > method_sigma("medusa")


def test_every_method_has_a_spread() -> None:
    from simulator.specs.question.techniques import SpeculationMethod

    assert all(0 < method_sigma(name) < 1 for name in SpeculationMethod.__args__)  # type: ignore[attr-defined]
