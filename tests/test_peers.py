"""The table of other tools in the README is what the benchmark stored, and its questions find the answers."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.peers import README, SCENARIO, Asked, answered, pairs, table

STORED = Path(__file__).resolve().parents[1] / "benchmarks" / "peers.json"


def test_the_table_of_the_readme_is_what_was_measured() -> None:
    content = table(json.loads(STORED.read_text("utf-8")))
    assert f"<!-- peers: begin -->\n{content}\n<!-- peers: end -->" in README.read_text("utf-8")


@pytest.mark.slow
def test_every_question_has_an_answer_of_ours(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.jsonl"
    scenario.write_text(json.dumps(SCENARIO))
    asked = {pair.ours for pair in pairs(scenario=str(scenario), aiconfigurator="aiconfigurator", genz="python")}
    assert len(asked) == 3
    for ours in asked:
        assert float(answered(ours, environment={"ROOFCAST_CACHE": "off"})) > 0


def test_a_tool_that_says_something_else_is_no_answer() -> None:
    with pytest.raises(SystemExit, match="no answer like"):
        answered(Asked(command=("echo", "nothing"), answer="TPOT"), environment={"PATH": "/usr/bin:/bin"})
    with pytest.raises(subprocess.CalledProcessError):
        answered(Asked(command=("false",), answer="TPOT"), environment={"PATH": "/usr/bin:/bin"})


def test_answers_of_others_are_found_in_what_they_print() -> None:
    recommend, estimate, genz = pairs(scenario="s", aiconfigurator="aiconfigurator", genz="python")
    row = "|  1   |   vllm  |    350.08    |     22.82     | 110.26 | 640 (=64x10) |    40 (40=10x4)   |    10    |"
    for pair, printed, said in (
        (recommend, row, "40"),
        (estimate, "  TPOT:             27.535 ms", "27.535"),
        (genz, "TPOT ms: 13.566", "13.566"),
    ):
        found = re.search(pair.theirs.answer, printed)
        assert found is not None
        assert found[1] == said
