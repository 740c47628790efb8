"""The library as a notebook meets it: keywords, mappings and specifications ask the same; answers show themselves."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import simulator
from simulator import PlanSpec, RoofcastError, ScenarioSpec, capacity, compare, plan, report, serve, simulate, step
from simulator.api.questions import PlanFields, ScenarioFields, plan_question, scenario_spec
from simulator.api.scenarios import CapacityAnswer
from simulator.cli.plan_capacity import main
from simulator.cli.roofcast import app
from simulator.cli.shared import run
from simulator.reports.tables.capacity import capacity_text

ROOT = Path(__file__).resolve().parents[2]
MEASURED = str(ROOT / "examples/data/vllm_bench.json")
BATCH: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "hardware": "h100",
    "batch_size": 16,
    "isl_tokens": 512,
    "osl_tokens": 64,
}
LOAD: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "hardware": "h100",
    "rate_per_s": 4.0,
    "duration_s": 20.0,
    "isl_tokens": 300,
    "osl_tokens": 40,
}
FLEET: dict[str, Any] = {"model": "llama-3.1-8b", "rate_per_s": 50, "hardware": "h100"}


def test_public_names_are_the_page_and_exist() -> None:
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    listed = re.findall(r"^\| `([A-Za-z_]+)", page, re.MULTILINE)
    assert sorted(listed) == sorted(simulator.__all__)
    for name in simulator.__all__:
        assert getattr(simulator, name) is not None
    with pytest.raises(AttributeError, match="no attribute"):
        _ = simulator.plans


def test_keywords_are_named_as_the_fields_of_the_specifications() -> None:
    beside = {"weights", "activations", "kv_cache", "scheme", "rate_per_s", "duration_s", "objectives"}
    assert set(ScenarioFields.__annotations__) - beside == set(ScenarioSpec.model_fields) - {"slo"}
    assert set(PlanFields.__annotations__) == set(PlanSpec.model_fields)


def test_keywords_a_mapping_and_a_specification_ask_the_same() -> None:
    spec = scenario_spec(None, BATCH)
    assert spec == scenario_spec(BATCH, {}) == scenario_spec(spec, {})
    assert spec.kind == "batch"
    assert scenario_spec(spec, {"batch_size": 8}).batch_size == 8
    asked = plan_question(FLEET, {})
    assert asked == plan_question(None, FLEET) == plan_question(asked, {})
    assert plan_question(asked, {"rate_per_s": 60}) != asked


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"batch_size": 1}, "batch"),
        ({"concurrency": 1}, "closed_loop"),
        ({}, "offline"),
        ({"rate_per_s": 1.0}, "serve"),
    ],
)
def test_what_is_given_says_the_kind(given: dict[str, Any], kind: str) -> None:
    fields = {"model": "llama-3.1-8b", "hardware": "h100", "isl_tokens": 8, "osl_tokens": 8, **given}
    assert scenario_spec(None, fields).kind == kind


def test_objectives_are_written_or_numbers_of_seconds() -> None:
    texts = {"ttft-p95": "2s"}, {"ttft-p95": 2}, ["ttft-p95=2s"], "ttft-p95=2s"
    found = {plan_question(FLEET, {"objectives": given}).objectives for given in texts}
    assert len(found) == 1
    (objective,) = found.pop()
    assert (objective.metric, objective.percentile, objective.bound_s) == ("ttft", 95.0, 2.0)


def test_simulate_is_what_the_command_prints(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = tmp_path / "lines.jsonl"
    line.write_text(json.dumps({"id": "scenario", "kind": "batch", **BATCH}), encoding="utf-8")
    assert run(app, name="roofcast", arguments=["simulate", str(line)]) == 0
    printed = json.loads(capsys.readouterr().out)
    answer = simulate(BATCH)
    assert json.loads(json.dumps(answer.to_dict())) == printed
    assert answer["ttft_s"] == printed["ttft_s"]
    # By hand: E2E is the prompt and one time per further token.
    assert printed["e2e_s"] == pytest.approx(printed["ttft_s"] + 63 * printed["tpot_s"], rel=1e-9)


def test_plan_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    answer = plan(FLEET)
    assert main(["--rps", "50", "--model", "llama-3.1-8b", "--hardware", "h100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answer.to_dict()
    assert main(["--rps", "50", "--model", "llama-3.1-8b", "--hardware", "h100"]) == 0
    assert capsys.readouterr().out == str(answer) + "\n"


def test_step_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["step", "--model", "llama-3.1-8b", "--batch", "4", "--context", "100", "--weights", "fp8", "--json"]
    assert run(app, name="roofcast", arguments=words) == 0
    answer = step(model="llama-3.1-8b", batch_size=4, context_tokens=100, precision={"weights": "fp8"})
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(answer.to_dict()))
    assert len(answer.to_frame()) == len(answer["operators"])


def test_every_answer_has_a_frame_a_figure_and_a_table() -> None:
    answers: list[simulator.Answer] = [
        simulate(BATCH),
        step(model="llama-3.1-8b"),
        serve(LOAD, objectives=["ttft-p95=2s"]),
        compare(BATCH, changes=["weights=fp8"]),
        plan(FLEET),
        simulator.crossover(model="llama-3.1-8b", speculation="eagle:k=4"),
        capacity(LOAD, objectives={"ttft-p95": "1s"}, seeds=2, requests=50),
        simulator.calibrate(results=[MEASURED], model="llama-3.1-8b", hardware="h100"),
        simulator.replay(results=[MEASURED], model="llama-3.1-8b", hardware="h100"),
        simulator.scorecard(hardware="h100", libraries=["vllm"], end_to_end=False),
    ]
    for answer in answers:
        assert len(answer.to_frame()) >= 1
        assert len(answer.plot().data) >= 1
        assert ("<table>" in answer._repr_html_()) == (type(answer).__name__ != "ScorecardAnswer")
        json.dumps(answer.to_dict(), allow_nan=False)
        assert list(answer) == list(dict(answer)) == list(answer.to_dict())
        assert "nonsense" not in answer
        assert len(str(answer).splitlines()) > 2


def test_intervals_become_columns_around_the_value() -> None:
    (row,) = simulate(BATCH).to_frame().to_dict("records")
    assert row["interval_tpot_s_low"] < row["tpot_s"] < row["interval_tpot_s_high"]


def test_capacity_holds_its_objective() -> None:
    answer = capacity(LOAD, objectives={"ttft-p95": "1s"}, seeds=2, requests=200)
    assert answer["rate_per_s"] > 4
    frame = answer.to_frame()
    assert frame[frame["rate_per_s"] <= answer["rate_per_s"]]["ttft_p95_s"].max() <= 1.0
    assert math.isfinite(answer["interval"]["rate_per_s"][0])
    assert isinstance(answer, CapacityAnswer)
    rate, points = answer["rate_per_s"], answer.rows()
    assert max(point["rate_per_s"] for point in points if point["holds"]) == rate
    text = capacity_text(answer.result, listed=False)
    assert answer.to_text() == text
    assert text.startswith(f"{rate:.4g} requests/s: llama-3.1-8b on 1 x TP1 h100-sxm-80gb")
    assert text.count("holds <- capacity") == 1
    assert [series.name for series in answer.chart().series] == ["TTFT", "TPOT", "E2E"]


def test_capacity_takes_open_arrivals() -> None:
    with pytest.raises(RoofcastError, match="'batch'; capacity takes kind serve"):
        capacity({**BATCH, "kind": "batch"}, objectives={"ttft-p95": "1s"})


def test_a_report_of_an_answer_does_not_ask_again(tmp_path: Path) -> None:
    files = report(plan(FLEET), out=str(tmp_path / "r"), formats="md").files
    assert [file.name for file in files] == ["report.md"]
    assert all(file.is_file() for file in files)


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"modle": "llama-3.1-8b"}, "modle"), ({"batch_size": 0}, "batch_size"), ({"duration_s": 3.0}, "duration_s")],
)
def test_a_refusal_names_the_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        simulate({**BATCH, **fields})
    assert field in str(refused.value)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--version"],):
        assert run(app, name="roofcast", arguments=words) == 0
        assert capsys.readouterr().out.strip() == f"roofcast {simulator.__version__}"
    assert main(["--version"]) == 0
    assert simulator.__version__ in capsys.readouterr().out
    assert f'version = "{simulator.__version__}"' in (ROOT / "pyproject.toml").read_text("utf-8")
