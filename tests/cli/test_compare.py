"""``roofcast compare`` as a newcomer and a program see it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from simulator import compare
from simulator.cli.roofcast import app
from simulator.cli.shared import run
from simulator.traffic.workload_presets import CHAT

BASE = "model: llama-3.1-8b\nhardware: h100\nkind: closed_loop\nconcurrency: 16\nisl_tokens: 512\nosl_tokens: 64\n"
SERVE = """
model: llama-3.1-8b
hardware: h100
kind: serve
workload:
  {arrival: poisson, isl_tokens: 300, osl_tokens: 40, stages: [{rate_per_s: 6, duration_s: 10}]}
"""


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(app, name="roofcast", arguments=("compare", *words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def base(tmp_path: Path) -> str:
    path = tmp_path / "base.yaml"
    path.write_text(BASE)
    return str(path)


def test_the_waterfall_starts_at_the_base_and_ends_at_the_result(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, base, "--with", "weights=fp8", "--with", "kv_cache=fp8", "--with", "tp=2")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("base "))
    assert [line.split()[0] for line in lines[start : start + 6]] == ["base", "+", "+", "+", "result", "result"]
    assert lines[0].startswith("llama-3.1-8b on 1 × h100-sxm-80gb, TP1, vllm; closed loop of 16")
    assert "All 3 changes: TPOT -" in lines[1]
    for text in ("Alone: each change on the base", "80 % interval", "Quality of answers", "Price: ", "per 1M out"):
        assert text in out
    changed = lines[start + 1].split()
    assert "=" in changed, "the bill per hour of a number format stays"


def test_pools_are_a_change_as_any_other_and_stand_in_the_headline(
    base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pools = "prefill_replicas=2,prefill_tp_size=2,decode_replicas=1"
    code, out, _ = call(capsys, base, "--with", f"disaggregation={pools}", "--json")
    assert code == 0
    steps = json.loads(out)["steps"]
    assert [len(steps), steps[0]["change"]] == [1, f"disaggregation={pools}"]
    apart = tmp_path / "apart.yaml"
    apart.write_text(f"{BASE}\ndisaggregation: {pools}\n")
    _, out, _ = call(capsys, str(apart), "--with", "weights=fp8")
    assert out.startswith("llama-3.1-8b on 5 × h100-sxm-80gb, 2 x TP2 for prompts and 1 x TP1 for answers, vllm;")


def test_one_change_needs_no_table_of_changes_alone(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, base, "--with", "weights=fp8")
    assert "Alone:" not in out
    assert "The change: TPOT -" in out


def test_json_holds_every_deployment(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, base, "--with", "weights=fp8", "--with", "tp=2", "--json")
    document = json.loads(out)
    assert (code, err, document["schema_version"], document["id"]) == (0, "", "1.0", "base")
    assert [step["change"] for step in document["steps"]] == ["weights=fp8", "tp=2"]
    for item in (document["base"], *(step[key] for step in document["steps"] for key in ("together", "alone"))):
        low, high = item["interval"]["tpot_s"]
        assert low < item["tpot_s"] < high
        assert item["cost"]["per_hour"] == pytest.approx(document["base"]["cost"]["per_hour"] * item["devices"])
    assert document["base"]["quality"] == "as published"


def test_served_loads_carry_intervals_at_both_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chat.yaml"
    path.write_text(SERVE)
    code, out, _ = call(capsys, str(path), "--with", "weights=fp8", "--with", "tp=2", "--json")
    document = json.loads(out)
    assert code == 0
    first, last = document["steps"]
    assert document["base"]["interval"] is not None
    assert last["together"]["interval"]["ttft_s"][0] < last["together"]["ttft_s"]
    assert first["together"]["interval"] is None
    assert "serve, poisson arrivals at 6/s" in call(capsys, str(path), "--with", "weights=fp8")[1]


def test_json_scenarios_stdin_and_files(
    base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = call(capsys, base, "--with", "weights=fp8", "--json")[1]
    monkeypatch.setattr("sys.stdin", io.StringIO(BASE + "id: base\n"))
    assert call(capsys, "-", "--with", "weights=fp8", "--json")[1] == expected
    target = tmp_path / "out.json"
    words = (base, "--with", "weights=fp8", "--json", "--output", str(target))
    assert call(capsys, *words) == (0, "", "")
    assert target.read_text("utf-8") == expected
    assert call(capsys, *words)[0] == 5
    assert call(capsys, *words, "--force")[0] == 0


def test_another_price_moves_cost_alone(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    usual, spot = (
        json.loads(call(capsys, base, "--with", "weights=fp8", "--json", *words)[1])["base"]
        for words in ((), ("--price-kind", "spot"))
    )
    assert spot["tpot_s"] == usual["tpot_s"]
    assert spot["cost"] != usual["cost"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "Missing option '--with'"),
        (("--with", "wights=fp8"), 2, "did you mean weights"),
        (("--with", "weights=fp8", "--with", "scheme=gptq-g128"), 2, "contradicts scheme"),
        (("--with", "weights=bf16"), 2, "changes no number"),
        (("--with", "batch=4"), 2, "no effect under kind closed_loop"),
        (("--with", "hardware=h1000"), 4, "unknown accelerator"),
        (("--with", "weights=fp8", "--price-kind", "gift"), 2, "on_demand"),
    ],
)
def test_refusals_are_one_line(
    base: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, said: str
) -> None:
    found, out, err = call(capsys, base, *words)
    assert (found, out) == (code, "")
    assert len(err.strip().splitlines()) == 1
    assert said in err


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (BASE.replace("closed_loop", "batsh"), 2, "batch, serve, closed_loop, offline"),
        (BASE.replace("8b", "70b"), 3, "exceed the memory"),
        ("model: [", 2, "not valid YAML"),
    ],
)
def test_a_base_that_cannot_be_answered_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, code: int, said: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    found, out, err = call(capsys, str(path), "--with", "weights=fp8")
    assert (found, out) == (code, "")
    assert said in err
    assert call(capsys, str(tmp_path / "missing.yaml"), "--with", "weights=fp8")[0] == 5


def test_a_base_without_a_kind_asks_what_its_fields_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for name, text in (("said", BASE), ("told", BASE.replace("kind: closed_loop\n", ""))):
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        answers.append(call(capsys, str(path), "--with", "weights=fp8")[:2])
    assert answers[0] == answers[1]
    assert answers[0][0] == 0


def test_a_change_of_the_load_says_what_varies_it(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    for change in ("isl_tokens=9", "osl=9", "rate=3", "question_tokens=7"):
        assert "roofcast sweep varies it" in call(capsys, base, "--with", change)[2], change


def test_a_student_stands_beside_its_teacher(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "teacher.yaml"
    path.write_text(BASE.replace("llama-3.1-8b", "llama-2-70b") + "tp_size: 4\n")
    code, out, _ = call(capsys, str(path), "--with", "model=llama-2-7b")
    assert code == 0
    assert "another model: wikitext perplexity 3.12 -> 5.12 [Sun2023" in out
    code, out, _ = call(capsys, str(path), "--with", "model=llama-3.1-8b")
    assert "another model: unknown, no source in the table prints both" in out


def test_without_a_file_options_name_the_batch_of_a_chat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "same.yaml"
    written.write_text(
        f"kind: batch\nmodel: llama-3.1-8b\nhardware: h100\ntp_size: 2\nbatch_size: {CHAT.batch_size}\n"
        f"isl_tokens: {CHAT.isl_tokens}\nosl_tokens: 64\n"
    )
    change = ("--with", "weights=fp8", "--json")
    code, out, err = call(capsys, "-m", "llama-3.1-8b", "--hardware", "h100", "--tp", "2", "--osl", "64", *change)
    assert (code, err) == (0, "")
    _, other, _ = call(capsys, str(written), *change)
    assert json.loads(out) | {"id": ""} == json.loads(other) | {"id": ""}


def test_neither_a_file_nor_a_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "--hardware", "h100", "--with", "weights=fp8")
    assert (code, out) == (2, "")
    assert "a scenario file is needed, or --model" in err


def test_options_of_a_batch_say_nothing_beside_a_file(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, base, "--batch", "8", "--with", "weights=fp8")
    assert (code, out) == (2, "")
    assert err.startswith("roofcast: --batch: changes nothing beside a scenario file")


@pytest.mark.parametrize(
    ("change", "printed"),
    [
        ("scheme=smoothquant-o3", "1.33x to 1.51x"),
        ("scheme=gptq-3bit", "3.24x to 4.53x"),
        ("speculation=eagle", "2.16x to 2.29x"),
        ("sparsity=2:4", "1.54x to 1.79x"),
        ("scheme=fp8", ""),
    ],
)
def test_what_papers_printed_stands_beside_the_prediction(change: str, printed: str) -> None:
    hardware = "h100" if "fp8" in change else "a100"
    answer = compare(model="opt-13b", hardware=hardware, batch_size=4, isl_tokens=64, osl_tokens=8, changes=[change])
    lines = answer.to_dict()["printed_speedups"]
    assert len(lines) == bool(printed)
    assert all(printed in line and line in answer.to_text() for line in lines)
