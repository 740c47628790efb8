"""``roofcast validate --today``: packed runs, chosen, predicted by this library, scored as by hand."""

from __future__ import annotations

import json
from statistics import fmean

import pytest

from simulator import simulate
from simulator.api import scored_runs
from simulator.cli import roofcast
from simulator.cli.shared import run
from simulator.specs.measured.validation_rows import RunChoice, load_today_runs, load_validation_table

FEW = ("--hardware", "h200", "--engine", "vllm", "--model", "llama-3.3-70b", "--every", "7")


def answered(capsys, *words: str) -> str:
    assert run(roofcast.app, name="roofcast", arguments=("validate", "--today", *words)) == 0
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def few() -> scored_runs.TodayAnswer:
    choice = RunChoice(hardware="h200-sxm-141gb", engine="vllm", model="llama-3.3-70b")
    return scored_runs.today(choice, anew=True, every=7)


def test_each_value_is_what_its_scenario_is_answered_with(few):
    document = few.to_dict()
    assert document["predicted_on"] is None
    (scenario, *_) = document["scenarios"]
    result = simulate(scenario).to_dict()
    values = [value for value in document["values"] if value["run"] == scenario["id"]]
    assert {value["metric"] for value in values} >= {"tpot_p50_s", "total_tokens_per_s"}
    for value in values:
        # Four digits, as rows are stored.
        assert value["predicted"] == pytest.approx(result[value["metric"]], rel=5.1e-4)
        assert [value["low"], value["high"]] == pytest.approx(list(result["interval"][value["metric"]]), rel=5.1e-4)
        assert value["error"] == pytest.approx(value["predicted"] / value["measured"] - 1)


def test_scores_are_those_of_the_values(few):
    document = few.to_dict()
    whole, group = document["scores"]
    assert (whole["engine"], group["engine"]) == ("all", "vllm")
    assert (group["model_class"], group["mode"], group["runs"]) == ("dense", "aggregated", len(document["scenarios"]))
    errors = [value["error"] for value in document["values"] if value["metric"] == "tpot_p50_s"]
    assert group["metrics"]["tpot_p50_s"]["mean"] == pytest.approx(fmean(abs(error) for error in errors))
    assert group["metrics"]["tpot_p50_s"]["bias"] == pytest.approx(fmean(errors))
    inside = [value["low"] <= value["measured"] <= value["high"] for value in document["values"]]
    assert group["together"]["coverage"] == pytest.approx(fmean(inside))


def test_the_command_prints_the_same_numbers(capsys, few):
    document = json.loads(answered(capsys, *FEW, "--anew", "--json"))
    assert document == json.loads(json.dumps(few.to_dict()))
    text = answered(capsys, *FEW, "--anew")
    assert "predicted now" in text
    assert any(line.split()[:3] == ["h200-sxm-141gb", "vllm", "dense"] for line in text.splitlines())


@pytest.mark.parametrize("current", [True, False])
def test_stored_predictions_count_only_where_this_library_made_them(monkeypatch, current):
    table = load_validation_table()
    monkeypatch.setattr(type(table), "is_current", property(lambda self: current))
    choice = RunChoice(hardware="mi300x", model="llama-3.3-70b")
    answer = scored_runs.today(choice, every=20)
    assert answer.predicted_on == (table.date if current else None)
    assert len({row.run for row in answer.chosen}) == len(answer.scenarios) == 1


def test_profiles_of_ones_own_are_predicted_with(monkeypatch, tmp_path):
    table = load_validation_table()
    monkeypatch.setattr(type(table), "is_current", True)
    answer = scored_runs.today(RunChoice(hardware="mi300x", model="llama"), every=20, profiles=str(tmp_path))
    assert answer.predicted_on is None


def test_packed_runs_name_their_source_and_are_a_sample_of_every_deployment():
    packed = load_today_runs()
    assert packed.origin.revision
    assert packed.origin.date == "2026-07-20"
    assert len({run.scenario["id"] for run in packed.runs}) == len(packed.runs) > 600
    stored = {row.run for row in load_validation_table().rows if row.source == packed.origin.source}
    assert len(packed.runs) - len(stored) < 0.01 * len(packed.runs), "runs that are refused"
    assert {row.mode for row in load_validation_table().rows if row.run in stored} == {
        "aggregated",
        "mtp",
        "disaggregated",
    }
    assert {run.scenario["hardware"] for run in packed.runs} >= {"b200-sxm", "h200-sxm-141gb", "mi300x", "mi355x"}
