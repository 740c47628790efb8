"""Compiling is said before it begins, done ahead by ``roofcast warm-up``, and found again by later processes."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from simulator.cli.entry import run
from simulator.cli.roofcast import app
from simulator.engine.events import compilation
from simulator.engine.events.loop import compiled_loop
from simulator.engine.events.warm_up import SCHEDULERS

SAID = "compiling the event simulation"


def test_every_scheduler_is_warmed_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, name="roofcast", arguments=("warm-up", "--json")) == 0
    seconds = json.loads(capsys.readouterr().out)["seconds"]
    assert seconds.keys() == SCHEDULERS.keys()
    assert compiled_loop.cache_info().currsize == len(SCHEDULERS)
    assert run(app, name="roofcast", arguments=("warm-up",)) == 0
    assert capsys.readouterr().out.count("ready: ") == len(SCHEDULERS)


def test_only_the_loop_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    listener = compilation._Announcement()
    with caplog.at_level(logging.WARNING):
        listener.on_start(SimpleNamespace(data={"dispatcher": object()}))
        assert not caplog.records
        listener.on_start(SimpleNamespace(data={"dispatcher": compilation._announced[0]}))
    assert SAID in caplog.text


@pytest.mark.slow
def test_after_a_warm_up_nothing_is_compiled(tmp_path: Path) -> None:
    load = {"stages": [{"rate_per_s": 2, "duration_s": 5}], "question_tokens": 99, "osl_tokens": 9}
    line = {"kind": "serve", "model": "llama-3.1-8b", "hardware": "h100", "workload": load}
    lines = [
        json.dumps({**line, "id": 1}),
        json.dumps({**line, "id": 2, "engine": {"name": "sglang"}}),
        json.dumps({**line, "id": 3, "pp_size": 2}),
        json.dumps({**line, "id": 4, "techniques": {"speculation": {"method": "ngram", "k": 2, "acceptance": 0.5}}}),
    ]

    def roofcast(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "simulator.cli.roofcast", *words]
        environment = {**os.environ, "ROOFCAST_CACHE_DIR": str(tmp_path)}
        given = "\n".join(lines)
        return subprocess.run(command, input=given, capture_output=True, text=True, env=environment, check=True)

    assert roofcast("warm-up").stderr.count(SAID) == len(SCHEDULERS)
    found = roofcast("simulate", "-")
    assert not any("error" in json.loads(answer) for answer in found.stdout.splitlines())
    assert SAID not in found.stderr
