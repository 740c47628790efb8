"""The command line as a program and a newcomer see it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.cli.plan_defaults import FILE, meant_by
from simulator.cli.roofcast import COMMANDS, app
from simulator.cli.shared import run
from simulator.engine.runs.answers import answer
from simulator.reports.answer import result_object
from simulator.reports.content.quantities import seconds_text
from simulator.specs.base import read_yaml, validate
from simulator.specs.question.scenario import ScenarioSpec

SCENARIO: dict[str, Any] = {
    "id": "x",
    "kind": "closed_loop",
    "model": "llama-3.1-8b",
    "hardware": "h100",
    "concurrency": 16,
    "isl_tokens": 256,
    "osl_tokens": 64,
}


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(app, name="roofcast", arguments=words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def write_lines(path: Path, *lines: object) -> str:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return str(path)


def test_simulate_answers_in_order_and_goes_on_after_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_lines(
        tmp_path / "in.jsonl",
        SCENARIO,
        {**SCENARIO, "id": "y", "hardware": "h1000"},
        "not json",
        "[" * 5000,
        '{"id": 1, "id": 2}',
        "",
        {**SCENARIO, "id": "z", "kind": "serve", "concurrency": None, "workload": {"stages": [], "isl_tokens": 8}},
        {**SCENARIO, "id": "w"},
    )
    target = tmp_path / "out.jsonl"
    code, out, err = call(capsys, "simulate", source, "--output", str(target))
    assert code == 0
    assert out == ""
    assert "5 scenarios refused" in err
    results = [json.loads(line) for line in target.read_text().splitlines()]
    assert [item["id"] for item in results] == ["x", "y", None, None, None, "z", "w"]
    assert results[1]["error"]["field"] == "hardware"
    assert set(results[1]["error"]) == {"code", "field", "message", "hint"}
    assert "line 3 is not JSON" in results[2]["error"]["message"]
    assert {**results[0], "id": "w"} == results[6]


def test_command_and_library_return_the_same_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_lines(tmp_path / "in.jsonl", SCENARIO)
    _, out, _ = call(capsys, "simulate", source)
    direct = result_object(answer(validate(ScenarioSpec, SCENARIO, where="test")))
    assert json.loads(out) == json.loads(json.dumps(direct))


def test_result_has_every_field_of_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "simulate", write_lines(tmp_path / "in.jsonl", SCENARIO))
    result = json.loads(out)
    assert {
        "id",
        "ttft_s",
        "tpot_s",
        "e2e_s",
        "output_tokens_per_s",
        "total_tokens_per_s",
        "requests_per_s",
        "prefill",
        "decode",
        "memory",
        "power_w",
        "energy_per_output_token_j",
        "interval",
        "provenance",
        "assumptions",
        "notes",
    } <= set(result)
    assert {"step_s", "mfu", "mbu", "bound", "breakdown_s"} <= set(result["prefill"])
    assert {
        "weights_bytes",
        "kv_bytes_per_token",
        "kv_capacity_tokens",
        "kv_blocks",
        "activation_bytes",
        "reserve_bytes",
        "fits",
    } <= set(result["memory"])
    for low, high in result["interval"].values():
        assert 0 < low < high
    assert result["provenance"] in ("measured", "calibrated", "extrapolated", "assumed")


def test_an_existing_output_is_kept_unless_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_lines(tmp_path / "in.jsonl", SCENARIO)
    target = tmp_path / "out.jsonl"
    target.write_text("precious")
    code, _, err = call(capsys, "simulate", source, "--output", str(target))
    assert code == 5
    assert "exists" in err
    assert target.read_text() == "precious"
    code, _, _ = call(capsys, "simulate", source, "--output", str(target), "--force")
    assert code == 0
    assert json.loads(target.read_text())["id"] == "x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_step_rows_add_up_and_match_the_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("step", "--model", "llama-3.1-8b", "--hardware", "h100", "--batch", "8", "--context", "1000")
    _, out, _ = call(capsys, *words, "--json")
    document = json.loads(out)
    assert sum(row["seconds"] for row in document["operators"]) <= document["step_s"]
    assert sum(document["breakdown_s"].values()) == pytest.approx(document["step_s"])
    _, text, _ = call(capsys, *words)
    assert seconds_text(document["step_s"]) in text.splitlines()[0]


def test_model_prints_the_published_size(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "model", "meta-llama/Llama-2-7b-hf", "--json")
    document = json.loads(out)
    assert document["parameters"] == 6_738_415_616
    assert document["kv_bytes_per_token"] == 512 * 1024
    assert document["notes"] == []
    _, out, _ = call(capsys, "model", "llama-2-7b", "--context", "262144")
    assert "note: counted for 262,144 tokens, the model takes 4,096" in out.splitlines()


def test_profiles_list_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "profiles", "list", "hardware")
    assert "  h100-sxm-80gb" in out.splitlines()
    for name, key in (("h100", "peak_flops_per_s"), ("default", "offers"), ("vllm", "overheads"), ("gpt2", "layers")):
        code, out, _ = call(capsys, "profiles", "show", name, "--json")
        assert code == 0
        assert key in json.loads(out)


BAD = [
    (("step", "--model", "lama-3.1-8b"), 4, "did you mean"),
    (("step", "--model", "llama-3.1-8b", "--hardware", "h10"), 4, "did you mean"),
    (("step", "--model", "llama-3.1-8b", "--batch", "0"), 2, "--batch: at least 1 is needed, got '0'"),
    (
        ("model", "gpt2", "--optimizer", "adam"),
        2,
        "--optimizer: 'adam' is not allowed; allowed: mixed, no_master, half",
    ),
    (("crossover", "--model", "bert-base"), 2, "model: bert-base is an encoder"),
    (("serve", "-m", "gpt2", "--hardware", "l4", "--rate", "1", "--duration", "0"), 2, "--duration"),
    (("step", "--model", "llama-3.1-8b", "--bach", "2"), 2, "did you mean --batch"),
    (("report", "--rps", "20"), 2, "unknown option --rps of report (plan and serve take it)"),
    (("step", "--model", "llama-3.1-8b", "--weights", "fp7"), 2, "weights"),
    (("step", "--model", "llama-3.1-8b", "--phase", "warmup"), 2, "prefill, decode"),
    (("step",), 2, "--model"),
    (("simulate", "no-such-file.jsonl"), 5, "no-such-file.jsonl"),
    (("profiles", "show", "h1000x"), 4, "did you mean"),
    (("profiles", "list", "hardwares"), 2, "hardware"),
    (("model", "./missing/config.json"), 5, "config.json"),
    (("explode",), 2, "explode"),
]


@pytest.mark.parametrize(("words", "code", "text"), BAD, ids=[" ".join(row[0]) for row in BAD])
def test_bad_input_is_one_line_with_the_contracts_exit_code(
    words: tuple[str, ...], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, err = call(capsys, *words)
    assert (found, out) == (code, "")
    assert text in err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("step", "--model", "llama-3.1-8b", "--model", "llama-3.1-70b"), "--model"),
        (("step", "--model=llama-3.1-8b", "-m", "llama-3.1-70b"), "-m"),
        (("step", "-m", "llama-3.1-8b", "--batch", "1", "--batch=2"), "--batch"),
        (("prices", "list", "--provider", "a", "--provider", "b"), "--provider"),
    ],
)
def test_an_option_of_one_value_is_refused_twice(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], flag: str
) -> None:
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"roofcast: {flag}: is given more than once")


def test_options_of_many_values_and_values_that_look_like_options_are_no_repeats(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(capsys, "mixers", "--tokens", "16", "--tokens", "32")[0] == 0
    code, _, err = call(capsys, "step", "--model", "--model")
    assert code != 0
    assert "more than once" not in err


def test_the_plan_answers_to_its_own_name_too(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--rps", "1", "--model", "llama-3.1-8b", "--hardware", "h100", "--output", "json", "--no-verify")
    answers = [call(capsys, word, *asked) for word in ("plan", "plan-capacity")]
    assert answers[0][:2] == answers[1][:2]
    assert answers[0][0] == 0


@pytest.mark.parametrize("words", [(), ("profiles",), ("prices",)])
def test_a_group_without_a_command_shows_its_help(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, *words)
    assert (code, err) == (0, "")
    assert "Usage" in out


def test_a_word_for_a_command_of_another_name_says_which_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [word for words in read_yaml(FILE)["meant"].values() for word in words.split()]
    assert len(asked) == len(set(asked))
    for word in asked:
        assert word not in COMMANDS
        assert (meant_by(word) or "").split()[1] in (*COMMANDS, "--version"), word
    assert (
        call(capsys, "TCO")[2]
        == "roofcast: there is no command tco; you may want roofcast report; try roofcast --help\n"
    )
    assert "roofcast explain queueing" in call(capsys, "queueing")[2]
    assert call(capsys, "zzz")[0] == 2


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("plan", "--disaggregation", "x"), "roofcast plan --serving disaggregated"),
        (("serve", "--disaggregated"), "disaggregation in a scenario"),
        (("plan", "--decode-ffn", "2"), "decode_ffn in a scenario of roofcast capacity, whose rate a GPU"),
    ],
)
def test_an_option_of_another_name_says_which_to_type(
    words: tuple[str, ...], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "")
    assert f"unknown option {words[1]} (you may want " in err
    assert meant in err


@pytest.mark.parametrize("words", [("report",), ("verify",), ("serve",), ("plan", "--rps", "1", "--workload")])
def test_an_empty_file_is_said_to_be_empty(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "empty.json"
    path.touch()
    code, _, err = call(capsys, *words, str(path))
    assert code in (2, 4)
    assert f"{path} is empty" in err
