"""What the runner of benchmarks makes of measured seconds; no time is measured here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.series import SERIES, last_entry, said, slope, slower

ROOT = Path(__file__).resolve().parents[1]


def test_a_slope_is_the_power_of_the_size() -> None:
    assert slope({size: 3.0 * size**0.7 for size in (10, 100, 1000)}) == pytest.approx(0.7)
    assert slope({10: 2.0, 1000: 2.0}) == 0
    assert slope({10: 2.0}) == 0


def test_the_last_entry_of_a_series_is_compared_with(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    assert last_entry(history, name="plan", imports_s=0.2) == {}
    measured = (("plan", 4.0), ("plan", 2.0), ("wide", 9.0))
    entries = [{"series": name, "cpu_s": {"10": seconds}, "imports_s": 0.2} for name, seconds in measured]
    history.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    before = last_entry(history, name="plan", imports_s=0.2)
    assert before == {10: 2.0}
    assert last_entry(history, name="plan", imports_s=0.3) == {10: pytest.approx(3.0)}, "a slower machine"
    history.write_text(history.read_text() + json.dumps({"series": "plan", "cpu_s": {"10": 7.0}}) + "\n")
    assert last_entry(history, name="plan", imports_s=0.2) == before, "one without its imports compares with nothing"
    entry = {"series": "plan", "cpu_s": {10: 1.0, 100: 4.0}, "peak_bytes": {10: 1e8, 100: 1e8}}
    lines = said(entry, before=before, series=SERIES["plan"])
    assert [line.endswith("0.50 x the last") for line in lines] == [True, False, False]
    assert lines[-1].endswith("MISSED")


def test_every_series_asks_for_its_sizes() -> None:
    for series in SERIES.values():
        commands = [series.command(size) for size in series.sizes]
        assert len(set(commands)) == len(series.sizes) > 1


def test_what_is_slower_than_before_is_named() -> None:
    assert slower({10: 1.1, 100: 1.2, 1000: 9.0}, before={10: 1.0, 100: 1.0}) == {100: 1.2}


def test_memory_has_a_bar_of_its_own() -> None:
    entry = {"series": "serve", "cpu_s": {1000: 1.0, 10_000: 1.0}, "peak_bytes": {1000: 2e8, 10_000: 2e9}}
    assert said(entry, before={}, series=SERIES["serve"])[-1].endswith("memory 2,000 MB, bar 1,000 MB: MISSED")


def test_ci_has_something_to_compare_with() -> None:
    """The series that ``.ci/run`` measures has an entry with all its sizes in the history that it reads."""
    (command,) = re.findall(r"^python -m benchmarks (\w+) .*--history", (ROOT / ".ci" / "run").read_text("utf-8"), re.M)
    assert set(last_entry(ROOT / "benchmarks" / "history.jsonl", name=command, imports_s=0.2)) == set(
        SERIES[command].sizes
    )
