"""plan-capacity's studies from the command line: what is printed, what JSON holds, how refusals end."""

from __future__ import annotations

import json

import pytest

from simulator.cli.plan_capacity import main

QUESTION = ("--rps", "100", "--model", "llama-3.1-70b", "--hardware", "h100", "--tp", "4")
STUDIES = (
    "--pareto", "--pools", "--resilience", "--availability", "99.9", "--growth", "5%/month", "--horizon", "6 months",
    "--start", "2026-12-01", "--rental", "--uncertainty", "--draws", "500", "--stock", "a100=16",
)  # fmt: skip


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*QUESTION, *arguments]) == 0
    return capsys.readouterr().out


def test_studies_stand_under_their_titles(capsys: pytest.CaptureFixture[str]) -> None:
    text = answered(capsys, *STUDIES)
    titles = (
        "Pareto set",
        "With what exists",
        "Two fleets by prompt length",
        "Resilience",
        "Growth",
        "Renting",
        "Uncertainty",
    )
    places = [text.index(f"\n{title}\n") for title in titles]
    assert places == sorted(places)
    assert text.splitlines()[0].count("spare") >= 1


def test_nothing_is_added_that_was_not_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    text = answered(capsys)
    assert "Resilience" not in text
    assert "Uncertainty" not in text
    document = json.loads(answered(capsys, "--json"))
    studies = (
        "search",
        "pareto",
        "gap",
        "stock",
        "pools",
        "resilience",
        "growth",
        "rental",
        "uncertainty",
        "verification",
    )
    assert {document[name] for name in studies} == {None}
    assert document["schema_version"] == "1.1"


def test_json_holds_every_study_and_the_question(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(answered(capsys, "--json", *STUDIES))
    assert document["inputs"]["rate_per_s"] == 100
    assert document["inputs"]["stock"] == ["a100=16"]
    for name in ("growth", "resilience", "uncertainty"):
        assert document[name] is None, "of a new fleet alone"
    for share in document["stock"]["shares"]:
        assert share["growth"]["months"][0]["devices"][1] >= share["devices"]
        assert share["resilience"]["availability"]["present_spares"] == share["spares"]
        assert share["uncertainty"]["draws"] == 500
    assert document["pareto"]["points"][0]["cost_per_hour"] == document["plan"]["cost"]["per_hour"]
    assert sum(share["rate_per_s"] for share in document["stock"]["shares"]) == pytest.approx(100)


def test_markdown_has_a_heading_per_study(capsys: pytest.CaptureFixture[str]) -> None:
    text = answered(capsys, "--output", "md", "--resilience", "--uncertainty", "--draws", "200")
    assert "\n## Resilience\n" in text
    assert "\n## Uncertainty\n" in text


@pytest.mark.usefixtures("few_accelerators")
def test_a_gap_is_a_result_and_the_refusal_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, "--max-gpus", "8"]) == 3
    out, err = capsys.readouterr()
    assert out.startswith("What closes the gap\n")
    assert err.count("\n") == 1
    assert "--max-gpus" in err


@pytest.mark.usefixtures("few_accelerators")
def test_a_gap_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, "--max-gpus", "8", "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["code"] == "over_budget"
    assert document["gap"]["budget_devices"] == 8
    assert document["gap"]["steps"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        pytest.param(("--budget", "1"), 3, "--max-cost-per-hour", marks=pytest.mark.slow),
        pytest.param(("--max-power-kw", "1"), 3, "nearest", marks=pytest.mark.slow),
        (("--horizon", "12", "--price-kind", "spot"), 2, "changes nothing without --growth"),
        (("--growth", "quickly"), 2, "5%/month"),
        (("--any-precision", "--scheme", "awq"), 2, "contradicts"),
        (("--stock", "h100"), 2, "HARDWARE=COUNT"),
        (("--stock", "h10=4"), 4, "h10"),
        (("--search", "everything"), 2, "usual"),
        (("--availability", "120"), 2, "less than 100"),
        (("--resiliense",), 2, "--resilience"),
    ],
)
@pytest.mark.usefixtures("few_accelerators")
def test_refusals(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, words: str) -> None:
    assert main([*QUESTION, *arguments]) == code
    out, err = capsys.readouterr()
    assert (out == "") is (code != 3)
    assert words in err
    assert err.count("\n") == 1


def test_techniques_are_compared_and_named_in_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--rps", "20", "--model", "llama-3.1-8b", "--hardware", "h100", "--tp", "1", "--json"]
    flags += ["--weights", "bf16"]
    assert main([*flags, "--speculation", "eagle"]) == 0
    printed = capsys.readouterr()
    plan = json.loads(printed.out)["plan"]
    assert plan["techniques"]["speculation"]["method"] == "eagle"
    assert plan["quality"] == "as published"
    assert "is assumed" in printed.err
    assert main([*flags, "--speculation", "eagl"]) == 2
    assert "--speculation" in capsys.readouterr().err
