"""Commands that write files, killed, out of room, or through a link: the old file or the new one, and no other."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_calibrate import measured_csv

RESULTS = Path(__file__).resolve().parents[1] / "data" / "serving_results"
COMMAND = (sys.executable, "-m", "simulator.cli.roofcast")
OLD = b"what stood here before\n"
KILLS, FEWEST_BYTES = 3, 64
QUOTES = "accelerator,provider,price,term,currency,date,unit\nh100,Mine,2.5,on_demand,USD,2026-11-01,accelerator-hour\n"
PLAN = ("--model", "llama-3.1-8b", "--rps", "20", "--hardware", "h100")
LOADED = """\
kind: serve
model: llama-3.1-8b
hardware: h100
workload: {stages: [{rate_per_s: 2, duration_s: 10}], question_tokens: 99, osl_tokens: 9}
"""
SWEPT = """\
ask: scenario
base: {model: llama-3.1-8b, hardware: h100, isl_tokens: 99, osl_tokens: 9}
grid: {concurrency: [1, 2, 4]}
"""
FILES = {"quotes.csv": QUOTES, "loaded.yaml": LOADED, "sweep.yaml": SWEPT}
MADE_BEFORE = {"plan.json": ("plan", *PLAN, "--json", "--out"), "swept": ("sweep", "sweep.yaml", "--out")}
"""What a command reads that another one has written."""
WRITERS = {
    "plan": ("plan", *PLAN, "--out", "out/plan.txt"),
    "plan --report": ("plan", *PLAN, "--report", "out/plan.md"),
    "report": ("report", "plan.json", "--out", "out"),
    "calibrate": ("calibrate", "measured.csv", "--hardware", "h100", "--out", "out"),
    "demand": ("demand", str(RESULTS / "guidellm.json"), "--out", "out/workload.yaml"),
    "prices import": ("prices", "import", "quotes.csv", "--out", "out/prices.yaml"),
    "serve": (
        *("serve", "--model", "llama-3.1-8b", "--hardware", "h100", "--rate", "2", "--duration", "20"),
        *("--json", "-o", "out/served.json", "--requests", "out/requests.csv", "--trace", "out/trace.json"),
    ),
    "capacity": (
        "capacity",
        "loaded.yaml",
        "--slo",
        "ttft-p95=1s",
        "--requests",
        "200",
        "--json",
        "-o",
        "out/found.json",
    ),
    "compare": ("compare", "loaded.yaml", "--with", "weights=fp8", "--json", "-o", "out/compared.json"),
    "sweep --chart": ("sweep", "swept", "--chart", "out/front.html"),
    "explain --plot": ("explain", "roofline", "--plot", "out/roofline.html"),
}


@dataclass(frozen=True)
class Writer:
    """A command in a folder of its own, and what it writes where nothing interrupts it, by path."""

    words: tuple[str, ...]
    home: Path
    whole: dict[str, bytes]
    seconds: float

    def command(self) -> dict[str, Any]:
        """What starts it."""
        return {"args": [*COMMAND, *self.words, "--force"], "cwd": self.home, "stdout": subprocess.DEVNULL}

    def run(self, before: Callable[[], None] | None = None) -> tuple[int, str]:
        """Exit code and what it says on stderr."""
        done = subprocess.run(**self.command(), stderr=subprocess.PIPE, text=True, check=False, preexec_fn=before)
        return done.returncode, done.stderr

    def killed_after(self, seconds: float) -> None:
        with subprocess.Popen(**self.command(), stderr=subprocess.DEVNULL) as running:
            time.sleep(seconds)
            running.send_signal(signal.SIGKILL)

    def put_back(self) -> None:
        """Old files where the new ones go, and nothing else."""
        shutil.rmtree(self.home / "out")
        for name in self.whole:
            path = self.home / "out" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(OLD)

    def found(self) -> dict[str, bytes]:
        return {
            path.relative_to(self.home / "out").as_posix(): path.read_bytes()
            for path in (self.home / "out").rglob("*")
            if path.is_file()
        }


@pytest.fixture(scope="module", params=list(WRITERS))
def writer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Writer:
    home = tmp_path_factory.mktemp("home")
    (home / "out").mkdir()
    measured_csv(home / "measured.csv")
    for name, text in FILES.items():
        (home / name).write_text(text)
    first = Writer(words=WRITERS[request.param], home=home, whole={}, seconds=0.0)
    for name in MADE_BEFORE.keys() & {*first.words}:
        assert replace(first, words=(*MADE_BEFORE[name], name)).run()[0] == 0
    assert first.run()[0] == 0
    begin = time.monotonic()
    assert first.run()[0] == 0
    whole = first.found()
    assert whole
    return Writer(words=first.words, home=home, whole=whole, seconds=time.monotonic() - begin)


@pytest.mark.slow
def test_a_killed_command_leaves_old_files_or_new_ones(writer: Writer) -> None:
    draw = random.Random(20261123)
    for attempt in range(KILLS):
        writer.put_back()
        # Every other kill falls where files are written.
        writer.killed_after(writer.seconds * (draw.uniform(0.8, 1.0) if attempt % 2 else draw.random()))
        found = writer.found()
        for name, content in writer.whole.items():
            assert found[name] in (OLD, content), name
        assert all(".roofcast-" in name for name in found.keys() - writer.whole.keys())
    assert writer.run()[0] == 0
    assert writer.found() == writer.whole


@pytest.mark.slow
def test_without_room_the_old_files_stay_and_one_line_says_so(writer: Writer) -> None:
    """RLIMIT_FSIZE makes the write itself fail, as a full disk does."""
    writer.put_back()

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (FEWEST_BYTES, FEWEST_BYTES))

    code, errors = writer.run(before=no_room)
    assert code == 5, errors
    assert errors.splitlines()[-1].endswith("File too large")
    assert "Traceback" not in errors
    assert writer.found() == dict.fromkeys(writer.whole, OLD)


@pytest.mark.slow
def test_what_a_link_points_to_is_written(writer: Writer) -> None:
    writer.put_back()
    there = writer.home / "there"
    shutil.rmtree(there, ignore_errors=True)
    there.mkdir()
    for place, name in enumerate(writer.whole):
        (there / str(place)).write_bytes(OLD)
        (writer.home / "out" / name).unlink()
        (writer.home / "out" / name).symlink_to(there / str(place))
    assert writer.run()[0] == 0
    assert all((writer.home / "out" / name).is_symlink() for name in writer.whole)
    assert writer.found() == writer.whole
    assert len(os.listdir(there)) == len(writer.whole)
