"""The table of other tools in the README is what the benchmark stored, and its questions find the answers."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.peers import README, Asked, answered, pairs, spent_s, table, write_questions

TOOLS = {"aiconfigurator": "aiconfigurator", "genz": "python", "aisimulate": "python"}
ENVIRONMENT = {**os.environ, "ROOFCAST_CACHE": "off"}
STORED = Path(__file__).resolve().parents[1] / "benchmarks" / "peers.json"


def test_the_table_of_the_readme_is_what_was_measured() -> None:
    content = table(json.loads(STORED.read_text("utf-8")))
    assert f"<!-- peers: begin -->\n{content}\n<!-- peers: end -->" in README.read_text("utf-8")


@pytest.mark.slow
def test_every_question_has_an_answer_of_ours(tmp_path: Path) -> None:
    write_questions(tmp_path)
    asked = [pair.ours for pair in pairs(tmp_path, **TOOLS)]
    assert len(set(asked)) == 5
    said = [float(answered(ours, environment=ENVIRONMENT)) for ours in asked]
    assert min(said) > 0
    # The loads of a whole process and of one that goes on differ in their seeds alone.
    assert said[4] == pytest.approx(said[3], rel=0.05)
    assert 0 < spent_s(asked[4], environment=ENVIRONMENT) < 30


def test_a_tool_that_says_something_else_is_no_answer() -> None:
    with pytest.raises(SystemExit, match="no answer like"):
        answered(Asked(command=("echo", "nothing"), answer="TPOT"), environment={"PATH": "/usr/bin:/bin"})
    with pytest.raises(subprocess.CalledProcessError):
        answered(Asked(command=("false",), answer="TPOT"), environment={"PATH": "/usr/bin:/bin"})


def test_answers_of_others_are_found_in_what_they_print() -> None:
    recommend, estimate, genz, predict, second = pairs(Path("folder"), **TOOLS)
    row = "|  1   |   vllm  |    350.08    |     22.82     | 110.26 | 640 (=64x10) |    40 (40=10x4)   |    10    |"
    for pair, printed, said in (
        (recommend, row, "40"),
        (estimate, "  TPOT:             27.535 ms", "27.535"),
        (genz, "TPOT: 13.566", "13.566"),
        (predict, "\u2503 Inter Token Latency (ms)            \u2503     28.57 \u2503    12.11 \u2503", "28.57"),
        (second, "TPOT: 29.35\nprocessor s: 0.508", "29.35"),
    ):
        found = re.search(pair.theirs.answer, printed)
        assert found is not None
        assert found[1] == said
