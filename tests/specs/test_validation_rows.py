"""The stored end-to-end rows: when and by what they were predicted, and the numbers."""

from __future__ import annotations

import math
from dataclasses import fields, replace
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
    "source,run,hardware,engine,model,model_class,mode,tp_size,pp_size,ep_size,dp_size,cp_size,prefill_replicas,"
    "decode_replicas,prefill_tp_size,prefill_pp_size,prefill_ep_size,prefill_dp_size,prefill_cp_size,weights,scheme,"
    "kv_cache,kind,batch_size,concurrency,isl_tokens,osl_tokens,rate_per_s,metric,measured,predicted,low,high,"
    "provenance\n"
)
ROW = "a,1,h100,vllm,m,dense,aggregated,1,1,1,1,1,,,,,,,,bf16,,,batch,1,,8,9,,e2e_s,2.0,2.2,1.9,2.5,calibrated\n"
POOLS = (
    "b,2,l4,sglang,Big-7B,MoE,disaggregated,8,1,8,1,1,2,3,4,1,1,1,1,,nvfp4,fp8,serve,,,,,4.5,ttft_s,1.0,0.5,,,assumed\n"
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
    stored.write_text(validation_heading(date="2026-12-24", version="1.2.3", digest="0ff") + COLUMNS + ROW + POOLS)
    table = validation_rows.load_validation_table()
    assert (table.date, table.version, table.is_current) == ("2026-12-24", "1.2.3", False)
    first, second = table.rows
    assert first.error == pytest.approx(0.1)
    assert first.is_covered is True
    assert second.is_covered is None
    assert (first.degrees, first.prefill_degrees, first.scheme, first.rate_per_s) == ((1,) * 5, None, None, None)
    assert (second.degrees, second.prefill_degrees) == ((8, 1, 8, 1, 1), (4, 1, 1, 1, 1))
    assert (second.weights, second.scheme, second.batch_size, second.rate_per_s) == (None, "nvfp4", None, 4.5)


def test_other_columns_are_refused(stored: Path) -> None:
    stored.write_text(validation_heading(date="2026-12-24", version="1", digest="0") + "source,run,load\na,1,batch 1\n")
    with pytest.raises(FileError, match="is damaged: its columns are others"):
        validation_rows.load_validation_table()


def test_a_row_predicted_now_equals_the_row_that_was_stored(stored: Path) -> None:
    stored.write_text(validation_heading(date="2026-12-24", version="1.2.3", digest="0ff") + COLUMNS + ROW)
    now = replace(
        validation_rows.load_validation_table().rows[0], measured=2 / 3, predicted=0.66664, low=0.66668, high=math.pi
    ).rounded()
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
    none = dict.fromkeys(item.name for item in fields(RunFacts))
    rows = [
        RunFacts(**none | {"run": str(place), "engine": engine, "model": model})
        for place, (engine, model) in enumerate([("vllm", "Big-7B"), ("vllm", "Big-7B-Instruct"), ("atom", "Small")])
    ]
    assert RunChoice().of(rows) == rows
    assert RunChoice(model="org/big-7b").of(rows) == rows[:1]
    assert RunChoice(model="big", engine="VLLM").of(rows) == rows[:2]
    with pytest.raises(RoofcastError, match=r"model.*measured: Small"):
        RunChoice(engine="atom", model="big").of(rows)
