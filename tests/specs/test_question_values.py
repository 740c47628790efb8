"""Values that a question gives in words: durations, growth, ramps, stocks; a scenario in a file with changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.errors import FileError, RoofcastError
from simulator.specs.hardware.accelerator import list_hardware, load_hardware
from simulator.specs.hardware.calibration import load_power_fits
from simulator.specs.question import plan_values
from simulator.specs.question.scenario_file import read_scenario


@pytest.mark.parametrize(("text", "seconds"), [("2s", 2.0), ("500ms", 0.5), ("1.5 min", 90.0), (3, 3.0)])
def test_durations(text: object, seconds: float) -> None:
    assert plan_values.duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "0s", "-1s", "fast", "nan"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError):
        plan_values.duration_s(text)


def test_growth_of_a_year_compounds_over_its_months() -> None:
    assert plan_values.growth_per_month("5%/month") == pytest.approx(0.05)
    yearly = plan_values.growth_per_month("80%/year")
    assert yearly is not None
    assert (1 + yearly) ** 12 == pytest.approx(1.8)


def test_ramps_horizons_and_stocks() -> None:
    assert plan_values.ramp_per_s("60%/min") == pytest.approx(0.01)
    assert plan_values.horizon_months("24 months") == 24
    assert plan_values.stock_entry("h100=64") == ("h100", 64)
    with pytest.raises(ValueError):
        plan_values.stock_entry("h100=none")


SERVED = {
    "model": "llama-3.1-8b",
    "hardware": "h100",
    "workload": {
        "arrival": "poisson",
        "stages": [{"rate_per_s": 2.0, "duration_s": 60.0}],
        "system_prompt_tokens": 0,
        "question_tokens": 100,
        "osl_tokens": 10,
    },
}


def test_a_scenario_file_takes_its_name_and_changes(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(SERVED), encoding="utf-8")
    plain = read_scenario(str(path), command="serve")
    assert (plain.id, plain.kind, plain.tp_size) == ("chat", "serve", 1)
    changed = read_scenario(str(path), changes={"tp_size": 2, "rate_per_s": 3.0}, command="serve")
    assert changed.tp_size == 2
    assert changed.workload is not None
    assert changed.workload.stages[0].rate_per_s == 3.0


def test_what_is_no_scenario_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        read_scenario(str(tmp_path / "none.json"), command="serve")
    broken = tmp_path / "broken.json"
    broken.write_text("{,", encoding="utf-8")
    with pytest.raises(RoofcastError, match="line 1: not valid JSON"):
        read_scenario(str(broken), command="serve")


def test_every_accelerator_has_a_power_fit_inside_its_range() -> None:
    for name in list_hardware():
        fit = load_power_fits().of(load_hardware(name))
        assert 0 <= fit.base <= 1
        assert fit.base + fit.compute > 0
