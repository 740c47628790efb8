"""``roofcast prices`` as a buyer and a program see it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulator import plan
from simulator.cli.roofcast import app
from simulator.cli.shared import run
from simulator.planner.money.market import RENTALS, PriceRule


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(app, name="roofcast", arguments=("prices", *words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def compared(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    code, out, err = call(capsys, "compare", *words, "--json")
    assert (code, err) == (0, "")
    found: list[dict[str, Any]] = json.loads(out)["prices"]
    return found


def test_ends_hold_the_median_and_what_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(capsys)
    assert len({item["hardware"] for item in found}) > 20
    for item in found:
        assert item["low"] <= item["median"] <= item["high"], item
        assert item["low"] <= item["per_hour"] <= item["high"], item


@pytest.mark.parametrize("hardware", ["h100-sxm-80gb", "mi355x"])
def test_the_first_row_of_an_accelerator_is_what_a_plan_pays(hardware: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = compared(capsys, "--hardware", hardware)[0]
    assert first["rule"] == str(PriceRule())
    chosen = plan(model="llama-3.1-8b", rate_per_s=5, hardware=[hardware]).to_dict()["plan"]
    assert chosen["cost"]["per_hour"] == pytest.approx(chosen["devices"] * first["per_hour"])


def test_a_term_that_is_named_stands_alone(capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(capsys, "--hardware", "h100", "--price-kind", "reserved_1y")
    assert [item["terms"] for item in found] == [["reserved_1y"]]
    code, out, _ = call(capsys, "compare", "--hardware", "h100")
    assert code == 0
    terms = [line.split()[1] for line in out.splitlines() if line.startswith("h100")]
    assert terms[:2] == ["as", "on_demand"]
    assert set(terms) <= {"as", *RENTALS}


def test_an_accelerator_that_nobody_knows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "compare", "--hardware", "h1000")
    assert (code, out) == (4, "")
    assert "unknown accelerator 'h1000'" in err
    assert "h100" in err
