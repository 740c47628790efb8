"""A worker that dies, hangs or is stopped: the others' rows are kept, and what broke is left out."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from validation.measure.restarts import BROKEN, run_with_restarts

pytestmark = pytest.mark.oracle  # needs torch

WORKER = """
import os, signal, sys, time
path, behaviour, skipped = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
for name in ("a", "b", "c"):
    if name in skipped:
        continue
    print(f"in\\t{name}", flush=True)
    if name == "b":
        if behaviour == "exits":
            sys.exit(75)
        if behaviour == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        if behaviour == "hangs":
            time.sleep(60)
    with open(path, "a") as rows:
        print(name, file=rows)
    print(f"done\\t{name}", flush=True)
"""


def command_of(path: Path, behaviour: str, asked: list[tuple[str, ...]]) -> object:
    def command(skipped: Sequence[str], left_s: float) -> list[str]:
        asked.append(tuple(skipped))
        return [sys.executable, "-c", WORKER, str(path), behaviour, ",".join(skipped)]

    return command


@pytest.mark.parametrize("behaviour", ["exits", "dies", pytest.param("hangs", marks=pytest.mark.slow)])
def test_a_broken_group_costs_itself_alone(behaviour: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asked: list[tuple[str, ...]] = []
    path = tmp_path / "rows"
    code = run_with_restarts(command_of(path, behaviour, asked), budget_s=60, silent_s=2.0)  # type: ignore[arg-type]
    assert code == 0
    assert path.read_text().split() == ["a", "c"]
    assert asked == [(), ("a", "b")]
    assert "given up: b" in capfd.readouterr().err


def test_a_healthy_worker_runs_once(tmp_path: Path) -> None:
    asked: list[tuple[str, ...]] = []
    path = tmp_path / "rows"
    assert run_with_restarts(command_of(path, "works", asked), budget_s=60) == 0  # type: ignore[arg-type]
    assert path.read_text().split() == ["a", "b", "c"]
    assert asked == [()]


def test_a_worker_that_breaks_outside_any_group_is_not_started_again() -> None:
    def command(skipped: Sequence[str], left_s: float) -> list[str]:
        return [sys.executable, "-c", f"import sys; sys.exit({BROKEN})"]

    assert run_with_restarts(command, budget_s=60) == BROKEN


def test_sigterm_stops_the_worker_and_keeps_its_rows(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows"

    def stop() -> None:
        while not path.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    assert run_with_restarts(command_of(path, "hangs", []), budget_s=60) == 0  # type: ignore[arg-type]
    assert path.read_text().split() == ["a"]
    assert "stopped" in capfd.readouterr().err
