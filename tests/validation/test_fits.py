"""``python -m validation.fits``: shipped fits lie in their physical ranges."""

from __future__ import annotations

import pytest

from simulator.specs.hardware.calibration import FitError, KernelFit, load_transfer_table
from validation.fit.ranges import BOUNDS, RANGES, at_bounds, outside, range_of
from validation.fits import fit_line, left_out_lines, shipped_fits, summary_lines, violations

SIX = {"split_decode_attention": 6, "latent_decode_attention": 5, "tiled_prefill_attention": 11}
"""Free parameters of the attention models: what the tables identify."""

FITS = shipped_fits()


def fit(**parameters: float) -> KernelFit:
    error = FitError(
        score_mape=0.03, fit_mape=0.02, score_bias=0.0, log_sigma=0.04, coverage_80=0.8, score_points=9, fit_points=30
    )
    return KernelFit(
        family="decode_attention",
        format="bf16",
        model="split_decode_attention",
        parameters=parameters,
        box={},
        error=error,
    )


def test_no_fitted_number_lies_outside_its_physical_range() -> None:
    assert violations(FITS) == ()


@pytest.mark.parametrize(
    ("name", "value", "inside"),
    [("tensor_fraction", 1.01, False), ("memory_fraction", 1.0, True), ("one_shot.fraction", 1.2, False)],
)
def test_a_share_above_one_is_outside(name: str, value: float, inside: bool) -> None:
    assert outside(fit(**{name: value})) == (() if inside else (name,))


def test_times_cycles_and_shares_have_a_range_and_traits_have_none() -> None:
    assert range_of("launch_s") is not None
    assert range_of("part_cycles") is not None
    assert range_of("ring_ll.hop_s") is not None
    assert range_of("split_rule") is range_of("residual.p8.10") is range_of("droop_s") is None


def test_searches_end_inside_the_physical_ranges() -> None:
    for bounds in BOUNDS.values():
        for name, bound in bounds.items():
            allowed = RANGES.get(name)
            assert allowed is None or (allowed.low <= bound.low and bound.high <= allowed.high), name


def test_a_parameter_at_a_bound_of_its_search_is_named() -> None:
    bound = BOUNDS["split_decode_attention"]["l2_speedup"]
    assert at_bounds(fit(l2_speedup=bound.high, memory_fraction=0.8)) == ("l2_speedup",)


def test_attention_fits_what_its_tables_identify() -> None:
    assert {model: len(BOUNDS[model]) for model in SIX} == SIX


def test_a_line_says_where_a_parameter_stands() -> None:
    item = FITS[0]
    assert fit_line(item).startswith(f"{item.name}: unseen ")
    assert any(line.startswith("split_decode_attention: ") for line in summary_lines(FITS))


def test_left_out_errors_are_of_the_relative_that_the_simulator_takes() -> None:
    table = load_transfer_table()
    lines = list(left_out_lines())
    assert len(lines) == 2 * len({row.family for row in table.other_generation})
    errors = [row.mape for row in table.other_generation if row.family == "gemm"]
    stated = next(line for line in lines if line.startswith("gemm") and "an unknown architecture" in line)
    assert f"mean {sum(errors) / len(errors):.1%} of {len(errors)}" in stated
    assert f"{max(errors):.1%}" in stated
