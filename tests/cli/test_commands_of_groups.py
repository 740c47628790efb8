"""Commands as functions of their options: what they read, write and refuse.

``simulator.cli.scenario_commands``, ``.step_commands``, ``.record_commands``, ``.validate_command``,
``.line_commands``, ``.step_commands`` and ``.plan_capacity``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.api.questions import ServedFields
from simulator.cli import line_commands, record_commands, scenario_commands, step_commands
from simulator.cli import validate_command as validating
from simulator.cli.plan_capacity import PlanOutput, plan_options
from simulator.cli.roofcast import app
from simulator.cli.shared import run, values_of
from simulator.cli.step_commands import precision_of, precision_options, technique_options, techniques_of
from simulator.cli.validate_command import SERVED
from simulator.planner.money.market import RENTALS
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.profiles import list_profiles
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import written_fields
from simulator.specs.question.techniques import TechniquesSpec

SCENARIO = """
model: llama-3.1-8b
hardware: h100
workload: {isl_tokens: 100, osl_tokens: 8, stages: [{rate_per_s: 4, duration_s: 4}]}
"""
LINE = {"id": 1, "kind": "batch", "model": "llama-3.1-8b", "hardware": "h100", "batch_size": 2, "isl_tokens": 64,
        "osl_tokens": 8}  # fmt: skip


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "load.yaml"
    path.write_text(SCENARIO)
    return str(path)


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(app, name="roofcast", arguments=words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that a refused command says; nothing is printed as a result."""
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    return line


class TestOptionsOfTechniques:
    def test_every_field_of_a_specification_has_an_option(self) -> None:
        assert {item.name for item in precision_options()} == set(PrecisionSpec.model_fields)
        assert {item.name for item in technique_options()} == set(TechniquesSpec.model_fields)

    def test_nothing_given_asks_for_nothing(self) -> None:
        nothing: dict[str, Any] = dict.fromkeys((*PrecisionSpec.model_fields, *TechniquesSpec.model_fields))
        assert techniques_of({**nothing, "sequence_parallel": False, "two_batch_overlap": False}) == TechniquesSpec()
        assert PrecisionSpec.model_validate(precision_of(nothing)) == PrecisionSpec()

    def test_texts_become_the_specification(self) -> None:
        nothing: dict[str, Any] = dict.fromkeys((*PrecisionSpec.model_fields, *TechniquesSpec.model_fields))
        found = techniques_of({**nothing, "speculation": "eagle:k=4", "sparsity": "2:4"})
        assert found.speculation is not None
        assert (found.speculation.method, found.speculation.k) == ("eagle", 4)
        assert found.sparsity is not None
        assert precision_of({**nothing, "weights": "fp8"})["weights"] == "fp8"


class TestOptionsOfWhatServed:
    def test_what_was_not_given_is_left_to_the_file(self) -> None:
        assert values_of({}, SERVED) == {}
        assert values_of({"model": None, "tp_size": 2, "hardware": "h100"}, SERVED) == {"tp_size": 2}

    def test_every_option_is_a_field_of_the_library(self) -> None:
        assert {item.name for item in SERVED} <= set(ServedFields.__annotations__)


class TestScenarioCommands:
    def test_a_document_is_one_line_of_finite_numbers(self) -> None:
        assert scenario_commands.one_line({"a": 1}) == '{"a": 1}\n'
        with pytest.raises(ValueError, match="not JSON compliant"):
            scenario_commands.one_line({"a": float("nan")})

    @pytest.mark.parametrize("command", ["serve", "capacity"])
    @pytest.mark.parametrize("option", ["--isl", "--osl-cv", "--workload", "--answers-per-request"])
    def test_a_load_in_options_is_refused_beside_a_file(
        self, command: str, option: str, scenario: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        value = "chat" if option == "--workload" else "2"
        assert f"{option}: changes nothing beside a scenario file" in refused(capsys, command, scenario, option, value)

    def test_what_is_missing_is_named_at_once(self, capsys: pytest.CaptureFixture[str]) -> None:
        line = refused(capsys, "serve", "--model", "llama-3.1-8b")
        assert "a scenario file is needed, or --hardware and --rate" in line
        line = refused(capsys, "capacity", "--model", "llama-3.1-8b", "--slo", "ttft-p95=1s")
        assert "a scenario file is needed, or --hardware" in line
        assert "--rate" not in line
        assert "--model" in refused(capsys, "compare", "--with", "weights=fp8")

    def test_a_batch_in_options_is_refused_beside_a_file(
        self, scenario: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for option in ("--tp", "--batch", "--isl"):
            line = refused(capsys, "compare", scenario, "--with", "weights=fp8", option, "2")
            assert f"{option}: changes nothing beside a scenario file" in line

    def test_options_change_the_scenario(self, scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
        _, out, _ = call(capsys, "serve", scenario, "--replicas", "3", "--rate", "8", "--duration", "2")
        assert "on 3 x TP1 h100-sxm-80gb" in out
        # Four seconds in the file; the series ends with the last answer.
        assert float(out.partition("Load over time, 0 to ")[2].split()[0]) < 3

    def test_a_file_that_is_there_is_kept(
        self, scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        table = tmp_path / "requests.csv"
        table.write_text("mine")
        code, out, err = call(capsys, "serve", scenario, "--requests", str(table))
        assert (code, out) == (5, "")
        assert "--requests: " in err
        assert " exists" in err
        assert table.read_text() == "mine"
        assert call(capsys, "serve", scenario, "--requests", str(table), "--force")[0] == 0
        assert table.read_text().startswith("request,stage,arrival_s")

    def test_terms_are_some_of_those_that_are_rented(self) -> None:
        assert set(scenario_commands.TERMS) < set(RENTALS)


class TestStepCommands:
    def test_a_table_and_its_document_are_of_the_same_step(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ("step", "-m", "llama-3.1-8b", "--batch", "4")
        document = json.loads(call(capsys, *words, "--json")[1])
        assert f"batch {document['batch']}, {document['context_tokens']} tokens" in call(capsys, *words)[1]
        assert step_commands.step.__doc__ is not None

    def test_counts_of_a_model_follow_the_context(self, capsys: pytest.CaptureFixture[str]) -> None:
        short, long = (
            json.loads(call(capsys, "model", "llama-3.1-8b", "--context", tokens, "--json")[1])
            for tokens in ("1000", "2000")
        )
        assert long["kv_bytes_at_context"] == 2 * short["kv_bytes_at_context"]
        assert 2 < long["prefill_flops"] / short["prefill_flops"] < 2.2

    def test_an_option_without_an_effect_is_refused(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "--optimizer: has no effect" in refused(capsys, "model", "llama-3.1-8b", "--optimizer", "half")


class TestRecordCommands:
    def test_sections_are_those_that_are_listed(self, capsys: pytest.CaptureFixture[str]) -> None:
        document = json.loads(call(capsys, "profiles", "list", "--json")[1])
        assert list(document["profiles"]) == [item.value for item in record_commands.ProfileSection]
        assert document["profiles"]["engines"] == list(list_profiles("engines"))
        (only,) = json.loads(call(capsys, "profiles", "list", "engines", "--json")[1])["profiles"]
        assert only == "engines"

    def test_a_report_is_of_a_plan_or_of_its_schema(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "a plan is needed" in refused(capsys, "report")
        assert "--schema needs no plan" in refused(capsys, "report", "plan.json", "--schema")
        assert json.loads(call(capsys, "report", "--schema")[1])["type"] == "object"


class TestValidateCommand:
    @pytest.mark.parametrize(
        ("words", "field"),
        [
            (("--mode", "mtp"), "--mode"),
            (("--anew",), "--anew"),
            (("--every", "2"), "--every"),
            (("--tp", "2"), "--tp"),
            (("--today", "--library", "vllm"), "--library"),
            (("--today", "--part", "kernels"), "--part"),
            (("--from", "x.json", "--today"), "--today"),
            (("--from", "x.json", "--mode", "mtp"), "--mode"),
        ],
        ids=str,
    )
    def test_an_option_without_an_effect_is_refused(
        self, words: tuple[str, ...], field: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        line = refused(capsys, "validate", *words)
        assert f"{field}: has no effect" in line

    def test_own_runs_need_what_they_ran_on(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "--hardware: is missing" in refused(capsys, "validate", "--from", "x.json")

    def test_parts_are_alternatives(self, capsys: pytest.CaptureFixture[str]) -> None:
        document = json.loads(call(capsys, "validate", "--hardware", "h100", "--part", "end-to-end", "--json")[1])
        assert "kernels" not in document
        assert all(item["hardware"] == "h100-sxm-80gb" for item in document["end_to_end"]["scores"])
        assert set(validating.CHOICES) == {"hardware", "engine", "model", "mode"}


class TestLineCommands:
    def test_a_line_an_answer_in_order_and_refusals_are_counted(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        source = tmp_path / "lines.jsonl"
        source.write_text(json.dumps(LINE) + "\n\n" + json.dumps({**LINE, "id": "b", "model": "nobody"}) + "\n{\n")
        code, out, err = call(capsys, "simulate", str(source))
        answers = [json.loads(line) for line in out.splitlines()]
        assert code == 0
        assert [item.get("id") for item in answers] == [1, "b", None]
        assert ["error" in item for item in answers] == [False, True, True]
        assert "2 scenarios refused" in err

    def test_no_scenarios_and_both_are_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert "SCENARIOS: is missing" in refused(capsys, "simulate")
        assert "needs no scenarios" in refused(capsys, "simulate", "x.jsonl", "--schema")
        code, _, err = call(capsys, "simulate", str(tmp_path / "none.jsonl"))
        assert code == 5
        assert "cannot be read" in err
        assert line_commands.simulate.__doc__ is not None

    def test_a_complete_file_is_not_answered_again(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        source, output = tmp_path / "lines.jsonl", tmp_path / "answers.jsonl"
        source.write_text(json.dumps(LINE) + "\n")
        assert call(capsys, "simulate", str(source), "--output", str(output))[0] == 0
        first = output.read_bytes()
        code, _, err = call(capsys, "simulate", str(source), "--output", str(output), "--resume")
        assert code == 0
        assert "is complete" in err
        assert output.read_bytes() == first


class TestSweepCommand:
    def test_a_sweep_needs_a_folder_and_a_folder_of_answers_no_other(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "--out: is missing" in refused(capsys, "sweep", "sweep.yaml")
        assert "--out: is of a sweep to answer" in refused(capsys, "sweep", str(tmp_path), "--out", "x")
        assert "--out: is of a sweep to answer" in refused(capsys, "sweep", str(tmp_path), "--resume")
        assert line_commands.sweep.__doc__ is not None


class TestPlanOptions:
    def test_every_field_of_a_plan_has_one_option(self) -> None:
        names = [item.name for item in plan_options()]
        assert len(names) == len(set(names))
        assert {name.removesuffix("s") if name == "objectives" else name for name in written_fields(PlanSpec)} == set(
            names
        )

    def test_forms_of_the_answer(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert [item.value for item in PlanOutput] == ["table", "json", "csv", "md"]
        _, shown, _ = call(capsys, "plan", "--help")
        assert "--ttft-p95" in shown
        assert "--mtbf-hours" not in shown
        assert "--mtbf-hours" in call(capsys, "plan", "--help-all")[1]
