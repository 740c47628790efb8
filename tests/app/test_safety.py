"""The dashboard computes nothing itself, opens nothing that a browser names, and keeps to this machine."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from simulator.cli import app as command
from simulator.errors import FileError, RoofcastError
from simulator.specs.model import loading as models
from simulator.specs.uploads import LARGEST_RECORD_BYTES
from simulator.units import MEGA
from tests.app.pages import ROOT, headline, opened
from tests.for_every import for_every

APP = sorted((ROOT / "app").rglob("*.py"))
PLUMBING = ("front.py", "kept.py")
"""Of processes and files: pauses, counts and paths, and no figure that anybody reads."""
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


@for_every([path for path in APP if path.name not in PLUMBING])
def test_no_arithmetic(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.BinOp | ast.AugAssign):
            assert not isinstance(node.op, ARITHMETIC), f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("name", ["/etc/passwd", "../../etc/hostname", "config.json", "~/secret.yaml", "./"])
def test_names_in_the_address_never_reach_the_file_system(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise AssertionError(f"{path} was opened")

    monkeypatch.setattr(models, "_from_path", refuse)
    page = opened("what_if", {"model": name, "gpu": name, "preset": name, "batch": "1e99", "isl": name})
    assert not page.exception
    assert page.selectbox(key="model").value == "llama-3.1-8b"
    assert page.selectbox(key="gpu").value == "h100-sxm-80gb"


def test_requests_are_bounded() -> None:
    page = opened("what_if", {"batch": "999999", "isl": "999999999"})
    assert page.slider(key="batch").value <= 512
    assert page.number_input(key="isl").value <= 1_048_576


def test_command_listens_on_this_machine_without_telemetry() -> None:
    words = command.app_command(host=command.LOCAL_HOST, port=8600, open_browser=False)
    options = dict(zip(words[5::2], words[6::2], strict=True))
    assert Path(words[4]).name == "server.py"
    assert options["--server.address"] == "127.0.0.1"
    assert options["--browser.gatherUsageStats"] == "false"
    assert options["--server.showEmailPrompt"] == "false"
    assert options["--server.maxUploadSize"] == f"{LARGEST_RECORD_BYTES / MEGA:.0f}"


def test_command_refuses_a_port_that_is_none() -> None:
    with pytest.raises(RoofcastError, match="not a port"):
        command.app_command(host="127.0.0.1", port=0, open_browser=False)


def test_command_names_the_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    with pytest.raises(RoofcastError, match="streamlit") as refusal:
        command.app_command(host="127.0.0.1", port=8600, open_browser=False)
    assert ".[app]" in refusal.value.hint


def test_profiles_reach_the_dashboard_by_their_variable(tmp_path: Path) -> None:
    assert command.app_environment({"A": "b"}, profiles=None) == {"A": "b"}
    found = command.app_environment({}, profiles=str(tmp_path))
    assert found == {"ROOFCAST_PROFILES": str(tmp_path)}
    with pytest.raises(FileError):
        command.app_environment({}, profiles=str(tmp_path / "missing"))


@pytest.mark.usefixtures("few_accelerators")
@pytest.mark.parametrize(("name", "query"), [
    ("plan", {"rps": "1e9", "isl": "10000000", "osl": "10000000", "gpus": "h100-sxm-80gb"}),
    ("plan", {"rps": "nan", "ttft": "inf", "tpot": "-1", "spares": "999999", "load": "9", "gpus": "../../etc/passwd"}),
    ("plan", {"growth": "99", "horizon": "999999", "lead": "-5", "target": "'; drop", "gpus": "h100-sxm-80gb"}),
    ("plan", {"rps": "100000", "ttft": "0.01", "tpot": "0.001", "gpus": "l4", "view": "Risk"}),
    ("serving", {"rate": "1e9", "isl": "10000000", "osl": "10000000", "isl_cv": "1e9", "prefix": "7"}),
    ("serving", {"model": "llama-3.1-8b", "tp": "1", "isl": "131072", "osl": "131072"}),
    ("validation", {"source": "/etc/passwd", "measured_on": "x", "kind": "<script>", "details": "Kernels",
                    "kernels_of": "../x"}),
    ("profiles", {"gpu": "/etc/passwd", "model": "./config.json", "browse": "Models"}),
])  # fmt: skip
def test_absurd_addresses_are_answered_or_refused_in_a_sentence(name: str, query: dict[str, str]) -> None:
    page = opened(name, query)
    assert not page.exception
    assert page.error or headline(page)
    for message in page.error:
        assert "Traceback" not in message.value
        assert "/etc" not in message.value


def test_numbers_of_an_address_stay_within_their_bounds() -> None:
    page = opened("plan", {"rps": "1e9", "isl": "10000000", "growth": "99", "gpus": "h100-sxm-80gb"})
    assert page.number_input(key="rps").value <= 100_000
    assert page.number_input(key="isl").value <= 1_048_576
    assert page.slider(key="growth").value <= 0.3
