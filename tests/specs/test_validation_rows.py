"""The stored end-to-end rows: when and by what they were predicted, and the numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from simulator.errors import FileError, RoofcastError
from simulator.specs.measured import validation_rows
from simulator.specs.measured.validation_rows import (
    RunChoice,
    RunFacts,
    load_validation_rows,
    load_validation_table,
    validation_heading,
)
from validation.end_to_end.stored import as_csv

COLUMNS = (
    "source,run,hardware,engine,model,model_class,mode,parallel,weights,deployment,load,metric,measured,predicted,low,"
    "high,provenance\n"
)


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "end_to_end.csv"
    monkeypatch.setattr(validation_rows, "validation_file", lambda: path)
    monkeypatch.setattr(validation_rows, "load_validation_table", load_validation_table.__wrapped__)
    return path


def test_the_shipped_table_says_when_and_by_what() -> None:
    table = load_validation_table()
    assert date.fromisoformat(table.date) >= date(2026, 11, 21)
    assert table.version
    assert load_validation_rows() == table.rows
    assert all(row.measured > 0 and row.predicted > 0 for row in table.rows)


def test_a_heading_and_a_row_come_back(stored: Path) -> None:
    row = "a,1,h100,vllm,m,dense,aggregated,TP1,bf16,m TP1,batch 1,e2e_s,2.0,2.2,1.9,2.5,calibrated\n"
    bare = "b,2,l4,sglang,Big-7B,MoE,disaggregated,TP8 EP8,,Big-7B,serve,ttft_s,1.0,0.5,,,assumed\n"
    stored.write_text(validation_heading(date="2026-12-24", version="1.2.3", digest="0ff") + COLUMNS + row + bare)
    table = validation_rows.load_validation_table()
    assert (table.date, table.version, table.is_current) == ("2026-12-24", "1.2.3", False)
    first, second = table.rows
    assert first.error == pytest.approx(0.1)
    assert first.is_covered is True
    assert second.is_covered is None


def test_a_row_predicted_now_equals_the_row_that_was_stored(stored: Path) -> None:
    row = "a,1,h100,vllm,m,dense,aggregated,TP1,bf16,m TP1,batch 1,e2e_s,2.0,2.2,1.9,2.5,calibrated\n"
    stored.write_text(validation_heading(date="2026-12-24", version="1.2.3", digest="0ff") + COLUMNS + row)
    now = replace(
        validation_rows.load_validation_table().rows[0], measured=2 / 3, predicted=0.66664, low=0.66668, high=math.pi
    )
    stored.write_text(as_csv([now]), encoding="utf-8")
    assert validation_rows.load_validation_table().rows == (now,)
    assert now.is_covered, "0.66667 lies below 0.66668, but not with four digits"


@pytest.mark.parametrize("text", ["", COLUMNS, "# 2026\n" + COLUMNS])
def test_a_file_that_does_not_say_when_is_refused(stored: Path, text: str) -> None:
    stored.write_text(text)
    with pytest.raises(FileError, match="when it was predicted"):
        validation_rows.load_validation_table()


def test_a_missing_file_is_refused(stored: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        validation_rows.load_validation_table()


def test_the_digest_is_of_what_predicts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library_digest = validation_rows.library_digest.__wrapped__
    files = dict(validation_rows._predicting_files())
    assert {"operators/moe.py", "engine/runs/answers.py", "hardware_profiles/h100-sxm-80gb.yaml"} <= files.keys()
    assert "hardware_profiles/calibration/h100-sxm-80gb--vllm.gemm.npz" in files
    assert not any("validation" in name or "prices/" in name for name in files)
    before = library_digest()
    changed = tmp_path / "moe.py"
    changed.write_bytes(files["operators/moe.py"].read_bytes() + b"#")
    monkeypatch.setattr(validation_rows, "_predicting_files", lambda: (files | {"operators/moe.py": changed}).items())
    assert library_digest() != before


def test_runs_are_chosen_by_name_and_by_part_of_the_model(stored: Path) -> None:
    rows = [
        RunFacts(
            source="s", run=str(place), hardware="h100", engine=engine, model=model, model_class="dense",
            mode="aggregated", parallel="TP1", weights="bf16", deployment="d", load="l",
        )
        for place, (engine, model) in enumerate([("vllm", "Big-7B"), ("vllm", "Big-7B-Instruct"), ("atom", "Small")])
    ]  # fmt: skip
    assert RunChoice().of(rows) == rows
    assert RunChoice(model="org/big-7b").of(rows) == rows[:1]
    assert RunChoice(model="big", engine="VLLM").of(rows) == rows[:2]
    with pytest.raises(RoofcastError, match=r"model.*measured: Small"):
        RunChoice(engine="atom", model="big").of(rows)
