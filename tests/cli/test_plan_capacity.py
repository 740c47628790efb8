"""The command as people and programs meet it: one answer on stdout, one line on stderr, the contract's exit codes."""

from __future__ import annotations

import csv
import json
import re
from io import StringIO
from pathlib import Path

import pytest
import typer

from simulator.cli.plan_capacity import app, main
from simulator.cli.shared import checked_words, spell_objectives
from simulator.errors import RoofcastError

BASE = ["--rps", "100", "--model", "llama-3.1-8b", "--hardware", "h100"]


class Answer:
    """What one run printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *words: str) -> None:
        self.code = main([*words])
        captured = capsys.readouterr()
        self.out, self.err = captured.out, captured.err


def test_first_line_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    for extra in ([], ["--tp", "2", "--spares", "2"], ["--round-to", "device"], ["--spares", "0"]):
        answer = Answer(capsys, *BASE, *extra)
        assert answer.code == 0
        line = answer.out.splitlines()[0]
        total = int(re.match(r"(\d+) GPUs?(?: \([^)]+\))? = ", line)[1])  # type: ignore[index]
        replicas, each = map(int, re.search(r"= (\d+) replicas? x (\d+) h100-sxm-80gb", line).groups())  # type: ignore[union-attr]
        spare = re.search(r"(\d+) spare replicas? \((\d+) GPUs?\)", line)
        idle = re.search(r"(\d+) idle GPUs?", line)
        assert total == replicas * each + (int(spare[2]) if spare else 0) + (int(idle[1]) if idle else 0)
        assert re.search(r": \$[\d,.]+/h( \([^)]+\))?, [\d,.]+ kW( \([\d,.]+ nameplate\))?, limited by \w+", line)


def test_all_forms_tell_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--rps", "100", "--model", "llama-3.1-8b", "--hardware", "h100", "--hardware", "l4"]
    document = json.loads(Answer(capsys, *words, "--json").out)
    rows = list(csv.DictReader(StringIO(Answer(capsys, *words, "--output", "csv").out)))
    table = Answer(capsys, *words).out
    markdown = Answer(capsys, *words, "--output", "md").out
    fleets = [document["plan"], *document["alternatives"]]
    assert len(rows) == len(fleets) == 2
    for row, fleet in zip(rows, fleets, strict=True):
        assert int(row["devices"]) == fleet["devices"]
        assert float(row["cost_per_hour"]) == fleet["cost"]["per_hour"]
        assert float(row["ttft_p95_s"]) == fleet["degraded"]["ttft_p95_s"]
        assert float(row["power_typical_w"]) == fleet["power_typical_w"]
        shown = next(line for line in table.splitlines() if line.startswith(fleet["hardware"]))
        assert str(fleet["devices"]) in shown.split()
        assert f"| {fleet['devices']} |" in markdown
    assert document["answer"] == table.splitlines()[0]
    assert markdown.startswith(f"**{document['answer']}**")


def test_document_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer(capsys, *BASE, "--json")
    document = json.loads(answer.out)
    assert document["schema_version"]
    plan = document["plan"]
    total = (plan["replicas"] + plan["spare_replicas"]) * plan["devices_per_replica"] + plan["idle_devices"]
    assert plan["devices"] == total
    assert plan["cost"]["per_hour"] == pytest.approx(plan["devices"] * plan["cost"]["per_device_hour"])
    assert plan["servers"] * 8 == plan["devices"]
    assert {item["name"] for item in document["assumptions"]} >= {
        "model",
        "prompt length",
        "objectives",
        "spare replicas",
    }
    assert answer.err == ""


def test_same_question_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    assert Answer(capsys, *BASE, "--explain").out == Answer(capsys, *BASE, "--explain").out


def test_explain_derives_the_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    text = Answer(capsys, *BASE, "--explain").out
    rate, capacity, replicas = re.search(r"replicas: ([\d.]+) / ([\d.]+) rounded up = (\d+)", text).groups()  # type: ignore[union-attr]
    assert int(replicas) == -(-float(rate) // float(capacity))
    for word in ("demand:", "memory per device:", "KV cache:", "saturated:", "limit:", "cost:"):
        assert f"- {word}" in text


def test_any_percentile_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(Answer(capsys, *BASE, "--ttft-p97.5", "3s", "--latency-p50=60s", "--json").out)
    held = [
        (item["metric"], item["percentile"], item["bound_s"]) for item in document["plan"]["degraded"]["objectives"]
    ]
    assert held == [("ttft", 97.5, 3.0), ("e2e", 50.0, 60.0)]


def test_workload_file_and_flags(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "chat.yaml"
    path.write_text("rps: 100\nmodel: llama-3.1-8b\nhardware: h100\n", encoding="utf-8")
    assert Answer(capsys, "--workload", str(path), "--json").out == Answer(capsys, *BASE, "--json").out


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--rps", "0"], 2, "rps: input should be greater than or equal to 0.000000001, got 0"),
        (["--rps", "-5"], 2, "rps: input should be greater than or equal to 0.000000001, got -5"),
        (["--rps", "many"], 2, "--rps"),
        (["--model", "llama-3.1-8b"], 2, "--rps: a request rate is needed"),
        (["--rsp", "5"], 2, "did you mean --rps"),
        (["--rps", "5", "--ttfx-p95", "2s"], 2, "did you mean --ttft-p95"),
        (["--rps", "5", "--ttft-p95"], 2, "a time such as 2s"),
        (["--rps", "5", "--ttft-p95", "soon"], 2, "--ttft-p95: a duration above zero"),
        (["--rps", "5", "--latency-p95", "reading"], 2, "the time per token, got 'reading', in 'latency-p95=reading'"),
        (["--rps", "5", "--ttft-p100", "2s"], 2, "--ttft-p100: input should be less than 100, got 100.0"),
        (
            ["--rps", "5", "--measured-rps-per-gpu", "3", "--measured-at", "latency-p95=abc"],
            2,
            "--measured-at: a duration above zero such as 2s or 500ms is needed, got 'abc'",
        ),
        (["--rps", "5", "--objective", "ttft"], 2, "METRIC-pNN=TIME"),
        (["--rps", "5", "--isl", "-1"], 2, "isl: input should be greater than or equal to 1"),
        (["--rps", "5", "--cache-hit", "1.2"], 2, "--cache-hit: input should be less than 1"),
        (["--rps", "5", "--weights", "fp3"], 2, "fp8"),
        (["--rps", "5", "--engine", "vlm"], 4, "did you mean vllm"),
        (["--rps", "5", "--hardware", "h1000"], 4, "did you mean h100"),
        (["--rps", "5", "--model", "llama-3.1-9b"], 4, "did you mean"),
        (
            ["--rps", "5", "--model", "llama-3.1-405b", "--hardware", "l4", "--tp", "1", "--pp", "1"],
            3,
            "does not fit by",
        ),
        (["--rps", "5", "--trace", "nothing.csv"], 5, "nothing.csv: cannot be read"),
        (["--rps", "5", "--workload", "nothing.yaml"], 5, "nothing.yaml: cannot be read"),
        (["--rps", "5", "--workload", "a=b/x.yaml"], 5, "a=b/x.yaml: cannot be read"),
        (
            ["--rps", "5", "--workload", "chta"],
            5,
            "chta: cannot be read: No such file or directory (did you mean chat?)",
        ),
        (["--rps", "5", "--workload", "chta=0.7,rag=0.3"], 2, "'chta' is no kind of demand (did you mean chat?), got"),
        (["--rps", "5", "--workload", "chat=0.7,rag"], 2, "each kind once, with shares that sum to 1"),
        (["--rps", "5", "--profiles", "nowhere"], 5, "not a directory"),
        (["--rps", "5", "--output", "pdf"], 2, "--output"),
        (["--rps", "5", "extra"], 2, "extra"),
        ([*BASE, "--scheme", "foo"], 2, "--scheme: unknown scheme 'foo'"),
        ([*BASE, "--activations", "fp4"], 2, "--activations: bf16 weights with fp4 activations"),
        ([*BASE, "--pp", "33"], 2, "--pp: 33 is not possible; its layers allow at most 32"),
        ([*BASE, "--max-num-batched-tokens", "1"], 3, "a token budget of 1 per step is 1 too small"),
        (["--rps", "1e308"], 2, "rps: input should be less than or equal to 1000000000"),
        (["--rps", "5", "--isl-cv", "1e9"], 2, "--isl-cv: input should be less than or equal to 10"),
        (["--rps", "5", "--headroom", "1e308"], 2, "headroom: input should be less than or equal to 1000"),
        ([*BASE, "--max-model-len", "10000000"], 2, "--max-model-len: 10000000 is more than llama-3.1-8b"),
        ([*BASE, "--max-model-len", "10000000"], 2, "allowed: 1 to 131072"),
        (["--rps", "5", "--tp", "0"], 2, "--tp: input should be greater than 0, got 0"),
        (["--rps", "5", "--max-num-seqs", "0"], 2, "--max-num-seqs: input"),
        (["--rps", "5", "--weights", "fp3"], 2, "--weights: "),
        (["--rps", "5", "--model", ""], 4, "model: a name"),
        (["--rps", "5", "--ttft", "2s"], 2, "did you mean --ttft-p95?"),
        (["--rps", "5", "--tpot=50ms"], 2, "did you mean --tpot-p95?"),
    ],
)
@pytest.mark.usefixtures("few_accelerators")
def test_refusals_are_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    code: int,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = Answer(capsys, *words)
    assert answer.code == code
    # Where nothing serves, what was tried is a result.
    assert (answer.out == "") is (code != 3)
    (line,) = answer.err.splitlines()
    assert line.startswith("plan-capacity: ")
    assert text in line
    assert list(tmp_path.iterdir()) == []


def test_one_legal_format_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert Answer(capsys, *BASE, "--activations", "fp8", "--weights", "bf16").code == 2
    assert Answer(capsys, *BASE, "--activations", "fp8", "--weights", "bf16", "--weights", "fp8").code == 0


@pytest.mark.usefixtures("few_accelerators")
def test_a_cache_that_is_too_small_says_by_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    one = ["--model", "llama-3.1-8b", "--hardware", "l4", "--isl", "60000", "--tp", "1", "--pp", "1"]
    answer = Answer(capsys, "--rps", "10", *one)
    assert answer.code == 3
    found = re.search(
        r"KV cache of (\d+) tokens does not hold one request: "
        r"(\d+) tokens on average, (\d+) with two standard deviations \(([\d.]+) GB per device short\)",
        answer.err,
    )
    assert found is not None, answer.err
    assert int(found[1]) < int(found[3])
    assert int(found[2]) < int(found[3])
    assert float(found[4]) > 0


@pytest.mark.usefixtures("few_accelerators")
def test_budget_names_what_may_be_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--rps", "10", *BASE[2:]]
    refused = Answer(capsys, *words, "--max-gpus", "1")
    assert refused.code == 3
    assert "enough would be --round-to device --spares 0 (1 x h100-sxm-80gb TP1 fp8)" in refused.err
    assert Answer(capsys, *words, "--max-gpus", "1", "--round-to", "device", "--spares", "0").code == 0
    assert "enough would be --round-to device (2 x" in Answer(capsys, *words, "--max-gpus", "2").err
    assert Answer(capsys, *words, "--max-gpus", "2", "--round-to", "device").code == 0


def test_a_malformed_workload_is_a_usage_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "chat.yaml"
    path.write_text("rps: [100\nmodel: x", encoding="utf-8")
    answer = Answer(capsys, "--workload", str(path))
    assert answer.code == 2
    assert f"--workload: {path}, line 2: not valid YAML" in answer.err


@pytest.mark.usefixtures("few_accelerators")
def test_refusal_as_json_keeps_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer(capsys, *BASE, "--tpot-p95", "1ms", "--json")
    assert answer.code == 3
    error = json.loads(answer.out)["error"]
    assert set(error) == {"code", "field", "message", "hint"}
    assert "TPOT p95 of an idle replica" in error["message"]


def test_debug_raises(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RoofcastError):
        main(["--rps", "5", "--hardware", "h1000", "--debug"])


def test_file_is_written_whole_and_never_over_another(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    assert Answer(capsys, *BASE, "--json", "--out", str(target)).code == 0
    first = target.read_text(encoding="utf-8")
    assert json.loads(first)["plan"]["devices"] > 0
    again = Answer(capsys, *BASE, "--json", "--out", str(target))
    assert again.code == 5
    assert "--force" in again.err
    assert Answer(capsys, *BASE, "--output", "md", "--out", str(target), "--force").code == 0
    assert target.read_text(encoding="utf-8").startswith("**")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_unwritable_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer = Answer(capsys, *BASE, "--out", str(tmp_path / "missing" / "plan.md"))
    assert answer.code == 5
    assert "--out: cannot write" in answer.err


def test_help_lists_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer(capsys, "--help-all")
    assert answer.code == 0
    for option in ("--rps", "--ttft-p95", "--cache-hit", "--max-gpus", "--trace", "--explain", "--prices", "--json"):
        assert option in answer.out


def test_objectives_are_spelled_out() -> None:
    assert spell_objectives(["--rps", "5", "--tpot-p99", "50ms", "--json"]) == [
        "--rps",
        "5",
        "--objective",
        "tpot-p99=50ms",
        "--json",
    ]
    assert spell_objectives(["--tp", "8", "--pp", "2"]) == ["--tp", "8", "--pp", "2"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--json", "--output", "md"], "--json: contradicts --output md"),
        (["--explain", "--output", "csv"], "--explain: changes nothing with --output csv"),
        (["--e2e-p95", "9s", "--e2e-p95", "8s"], "--e2e-p95: is given twice, as 9s and 8s"),
    ],
)
def test_forms_that_contradict_are_refused(capsys: pytest.CaptureFixture[str], words: list[str], text: str) -> None:
    answer = Answer(capsys, *BASE, *words)
    assert (answer.code, answer.out) == (2, "")
    assert text in answer.err


def test_csv_says_which_studies_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer(capsys, *BASE, "--output", "csv", "--growth", "5%/month", "--rental")
    assert answer.code == 0
    assert "lists fleets alone, not: " in answer.err
    assert "Growth, Renting" in answer.err
    assert "Growth" not in answer.out


def test_several_values_of_an_option_may_stand_in_one_word() -> None:
    command = typer.main.get_command(app)
    spread = checked_words(
        command, ["--tp", "1,2", "--hardware=h100,b200", "--speculation", "eagle:k=4,acceptance=0.7"]
    )
    apart = [
        "--tp",
        "1",
        "--tp",
        "2",
        "--hardware=h100",
        "--hardware=b200",
        "--speculation",
        "eagle:k=4,acceptance=0.7",
    ]
    assert spread == apart
    with pytest.raises(RoofcastError, match="a whole number is needed, got 'x'"):
        checked_words(command, ["--tp", "1,x"])
    with pytest.raises(RoofcastError, match="1,024 may be one number or several"):
        checked_words(command, ["--max-num-seqs", "1,024"])
