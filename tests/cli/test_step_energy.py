"""What ``roofcast step`` says about energy, and about operators that beat the roofline beside them."""

from __future__ import annotations

import json

import pytest

from simulator.cli.roofcast import app
from simulator.cli.shared import run

STEP = ("step", "--model", "llama-3.1-8b", "--hardware", "h100", "--context", "2048")


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run(app, name="roofcast", arguments=[*STEP, *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_parts_add_up_and_stay_between_idling_and_tdp(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--batch", "32")
    energy = found["energy_j"]
    parts = {name: value for name, value in energy.items() if name != "total"}
    assert sum(parts.values()) == pytest.approx(energy["total"])
    assert all(value > 0 for value in parts.values())
    # The profile's idle and TDP of an H100 SXM.
    assert 70.0 < energy["total"] / found["step_s"] <= 700.0
    assert energy["idle"] == pytest.approx(70.0 * found["step_s"])


def test_a_prompt_spends_on_arithmetic_what_decoding_spends_on_memory(capsys: pytest.CaptureFixture[str]) -> None:
    decode = document(capsys, "--batch", "1")["energy_j"]
    prompt = document(capsys, "--batch", "1", "--phase", "prefill")["energy_j"]
    # A row of a tile costs the tensor units the whole tile.
    assert decode["memory"] > 4 * decode["compute"]
    assert prompt["compute"] > 2 * prompt["memory"]


def test_an_operator_faster_than_its_roofline_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--batch", "32")
    faster = {row["operator"] for row in found["operators"] if row["seconds"] < (row["roofline_floor_s"] or 0.0)}
    notes = [text for text in found["notes"] if "L2 cache" in text]
    assert faster
    assert len(notes) == 1
    assert all(name in notes[0] for name in faster)


def test_nothing_is_explained_where_nothing_beats_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--batch", "1")
    assert all(row["seconds"] >= (row["roofline_floor_s"] or 0.0) for row in found["operators"])
    assert not any("L2 cache" in text for text in found["notes"])
