"""Spreads of served runs: as large as unseen residuals ask for, and no larger."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.kernels.intervals import DEVIATE
from validation.fit.runs.serve_spread import Residual, covering, fit_spread, held

METRICS = ("ttft_mean_s", "ttft_p90_s", "ttft_p99_s", "tpot_mean_s", "e2e_mean_s", "e2e_p90_s", "e2e_p99_s")


def residuals(*, sigma: float, steps: float, models: int = 40, late: float = 0.0) -> list[Residual]:
    """Residuals of models whose errors are normal with ``sigma``, under steps that are said to scatter by ``steps``."""
    draws = np.random.default_rng(3)
    half = DEVIATE * steps
    return [
        Residual(
            model=f"model {index}",
            metric=metric,
            error=float(draws.normal(0, sigma)) + (late * float(draws.random()) if metric == "ttft_p99_s" else 0.0),
            below=half,
            above=half,
            calibrated=True,
        )
        for index in range(models)
        for metric in METRICS
        for _ in range(3)
    ]


def test_the_covering_value_leaves_room_for_the_unseen() -> None:
    assert covering(list(range(1, 11))) == 9
    assert covering([5.0]) == 5.0


def test_steps_that_scatter_too_much_are_taken_as_a_share() -> None:
    spread = fit_spread(residuals(sigma=0.05, steps=0.1))
    assert spread.steps == pytest.approx(0.5, abs=0.06)
    assert spread.tpot == pytest.approx(0.0, abs=0.01)


def test_steps_that_scatter_too_little_leave_the_rest_to_the_engine() -> None:
    spread = fit_spread(residuals(sigma=0.1, steps=0.06))
    assert spread.steps == 1
    assert spread.tpot == pytest.approx(0.08, abs=0.015)
    assert spread.e2e == pytest.approx(0.08, abs=0.015)


def test_only_late_first_tokens_are_a_tail() -> None:
    assert fit_spread(residuals(sigma=0.05, steps=0.05, late=0.5)).ttft_tail > 0.2
    assert fit_spread(residuals(sigma=0.05, steps=0.05, late=-0.5)).ttft_tail < 0.05


@pytest.mark.parametrize(("sigma", "steps"), [(0.05, 0.1), (0.1, 0.06)])
def test_intervals_hold_what_they_say_on_models_left_out(sigma: float, steps: float) -> None:
    inside = [one for rows in held(residuals(sigma=sigma, steps=steps)).values() for one in rows]
    assert np.mean(inside) == pytest.approx(0.8, abs=0.05)
