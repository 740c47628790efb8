"""`roofcast explain`: list, page, document and picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator.cli.roofcast import app
from simulator.explain.catalogue import TOPICS


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["explain", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_list_names_every_topic() -> None:
    text = run()
    assert all(topic.key in text and topic.question in text for topic in TOPICS)
    assert sum(len(section["blocks"][0]["rows"]) for section in json.loads(run("--json"))["topics"]) == len(TOPICS)


def test_a_topic_is_found_by_any_spelling_and_printed_as_text_or_document() -> None:
    text, document = run("Flash_Attention", "--hardware", "a100"), json.loads(run("flash-attention", "--json"))
    assert "flash_hbm_standard" in text
    assert document["topic"] == "flash-attention"
    errors = {item["name"]: item["error"] for item in document["published"]}
    assert errors.keys() >= {"flash_hbm_standard", "flash_hbm_tiled"}
    assert all(abs(error) < 0.02 for name, error in errors.items() if "hbm" in name)
    assert all(abs(error) < 0.3 for error in errors.values())


@pytest.mark.parametrize(("kind", "begins"), [("html", b"<!doctype html>"), ("svg", b"<svg"), ("png", b"\x89PNG")])
def test_its_chart_is_written_as_a_file(kind: str, begins: bytes, tmp_path: Path) -> None:
    if kind == "png":
        pytest.importorskip("typst")
    target = tmp_path / f"chart.{kind}"
    run("roofline", "--plot", str(target))
    assert target.read_bytes().startswith(begins)
    again = CliRunner().invoke(app, ["explain", "roofline", "--plot", str(target)])
    assert again.exit_code != 0


def test_another_kind_of_picture_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["explain", "roofline", "--plot", str(tmp_path / "chart.gif")])
    assert "allowed: html, svg, png" in str(result.exception)
