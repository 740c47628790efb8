"""``roofcast serve`` and ``roofcast capacity`` as a newcomer and a program see them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from simulator.cli.roofcast import app
from simulator.cli.shared import run

SCENARIO = """
model: llama-3.1-8b
hardware: h100
workload:
  arrival: poisson
  isl_tokens: 300
  osl_tokens: 40
  osl_cv: 0.5
  stages:
    - {rate_per_s: 6, duration_s: 20}
"""
TWO_STAGES = SCENARIO + "    - {rate_per_s: 12, duration_s: 20}\n"


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(app, name="roofcast", arguments=words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "chat.yaml"
    path.write_text(SCENARIO)
    return str(path)


def test_table_tells_stages_latencies_intervals_and_load(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(scenario).write_text(TWO_STAGES)
    code, out, err = call(capsys, "serve", scenario, "--slo", "ttft-p95=2s", "--slo", "tpot-p99=1us")
    assert (code, err) == (0, "")
    for text in ("llama-3.1-8b on 1 x TP1 h100", "overall", "80 % interval", "p99", "running  |", "KV used  |"):
        assert text in out
    assert "stage 0: TTFT p95" in out
    assert "holds 2.00 s" in out
    assert "misses" in out
    assert "goodput/s" in out
    assert "assumptions: --assumptions lists them" in out
    assert "Assumptions" in call(capsys, "serve", scenario, "--assumptions")[1]
    pools = "disaggregation=prefill_replicas=1,decode_replicas=2"
    assert "for prompts and 2 x TP1 h100-sxm-80gb for answers" in call(capsys, "serve", scenario, "--with", pools)[1]


def test_json_is_the_contract_with_goodput_interval_and_series(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(capsys, "serve", scenario, "--json", "--slo", "e2e-p90=5s", "--seed", "3")
    assert code == 0
    document = json.loads(out)
    assert (document["id"], document["kind"], document["schema_version"]) == ("chat", "serve", "1.0")
    stage = document["stages"][0]
    assert stage["meets_slo"] is True
    assert stage["goodput_per_s"] == pytest.approx(stage["requests_per_s"])
    for name in ("ttft_mean_s", "tpot_p95_s", "e2e_p99_s"):
        low, high = stage["interval"][name]
        assert low < stage[name] < high
    low, high = document["interval"]["e2e_s"]
    assert low < document["e2e_s"] < high
    assert document["interval_method"]["steps"] == "rerun"
    series = document["series"]
    assert len(series["start_s"]) == len(series["batch"]) == len(series["kv_utilization"]) <= 512
    mean_batch = sum(series["batch"]) * series["width_s"]
    assert mean_batch > 0


def test_flags_change_the_scenario(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    base = json.loads(call(capsys, "serve", scenario, "--json")[1])
    fast = json.loads(call(capsys, "serve", scenario, "--json", "--rate", "12")[1])
    other = json.loads(call(capsys, "serve", scenario, "--json", "--hardware", "l40s", "--tp", "2")[1])
    assert fast["requests_per_s"] > 1.5 * base["requests_per_s"]
    assert other["tpot_s"] != base["tpot_s"]
    assert base == json.loads(call(capsys, "serve", scenario, "--json")[1]), "the same seed, the same answer"


def test_routing_and_objectives_of_the_file(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path(scenario).read_text()
    Path(scenario).write_text(text + "replicas: 2\nrouting: least_outstanding\nslo: [tpot-p95=50ms]\n")
    code, out, _ = call(capsys, "serve", scenario)
    assert code == 0
    assert "TPOT p95" in out
    assert "meets SLO" in out
    assert call(capsys, "capacity", scenario, "--seeds", "2", "--requests", "300")[0] == 0
    turn, least = (
        json.loads(call(capsys, "serve", scenario, "--json", *words)[1])["overall"]
        for words in (("--routing", "round_robin"), ())
    )
    assert turn["e2e_p99_s"] != least["e2e_p99_s"]
    code, _, err = call(capsys, "serve", scenario, "--routing", "nearest")
    assert code == 2
    assert "allowed: round_robin, least_outstanding, prefix_aware" in err


def test_request_table_conserves_requests(scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "requests.csv"
    code, out, _ = call(capsys, "serve", scenario, "--json", "--requests", str(target))
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(target.read_text())))
    assert len(rows) == json.loads(out)["overall"]["requests"]
    for row in rows:
        moments = [float(row[name]) for name in ("arrival_s", "admitted_s", "first_token_s", "finish_s")]
        assert moments == sorted(moments)
        assert row["outcome"] == "finished"
        assert float(row["ttft_s"]) == pytest.approx(moments[2] - moments[0])
    assert call(capsys, "serve", scenario, "--requests", str(target))[0] == 5, "files are not overwritten"


def test_parquet_holds_the_same_table(scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    target = tmp_path / "requests.parquet"
    assert call(capsys, "serve", scenario, "--requests", str(target))[0] == 0
    table = parquet.read_table(target)
    assert table.num_rows > 50
    assert set(table.column("outcome").to_pylist()) == {"finished"}


def test_trace_is_a_chrome_trace(scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "steps.json"
    assert call(capsys, "serve", scenario, "--replicas", "2", "--trace", str(target))[0] == 0
    events = json.loads(target.read_text())["traceEvents"]
    steps = [event for event in events if event["ph"] == "X"]
    assert {event["pid"] for event in steps} == {0, 1}
    for replica in (0, 1):
        mine = [event for event in steps if event["pid"] == replica]
        ends = [event["ts"] + event["dur"] for event in mine]
        assert all(later["ts"] >= end - 1e-3 for end, later in zip(ends, mine[1:], strict=False)), "no overlap"
    assert {event["name"] for event in events if event["ph"] == "C"} == {"requests", "KV blocks"}
    begun = [event for event in events if event["ph"] == "b"]
    assert len(begun) == len([event for event in events if event["ph"] == "e"]) > 0
    assert {event["name"] for event in begun} == {"waiting", "prompt", "answer"}


def test_a_request_that_never_fits_is_counted_not_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "long.yaml"
    conversations = SCENARIO.replace("isl_tokens: 300", "question_tokens: 200\n  conversation: {turns_mean: 4}")
    path.write_text(conversations + "engine: {max_model_len: 900}\n")
    code, out, _ = call(capsys, "serve", str(path), "--json", "--slo", "ttft-p99=2s")
    overall = json.loads(out)["overall"]
    assert code == 0
    assert overall["rejected"] > 0
    assert overall["requests"] == overall["finished"] + overall["rejected"] + overall["timed_out"]
    assert overall["objectives"][0] == {"objective": "ttft_p99", "bound_s": 2.0, "value_s": None, "holds": False}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--rate", "-1"], 2, "--rate: more than 0 is needed, got -1"),
        (["--slo", "ttft=2s"], 2, "METRIC-pNN=TIME is needed"),
        (["--requests", "x.txt"], 2, "allowed: .csv, .parquet"),
        (["--requests", "x.csv", "-o", "./x.csv"], 5, "is the file of --requests too"),
        (["--trace", "nowhere/x.json"], 5, "no folder 'nowhere'"),
        (["--hardware", "h1000"], 4, "unknown accelerator"),
        (["--tp", "3"], 2, "tp_size"),
        (["--sped", "3"], 2, "did you mean"),
    ],
)
def test_refusals_are_one_line(
    scenario: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)  # where nobody left a file of these names
    found, out, err = call(capsys, "serve", scenario, *words)
    assert (found, out) == (code, "")
    assert err.count("\n") == 1
    assert said in err


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("model: [", 2, "not valid YAML"),
        ('{"model": ', 2, "not valid JSON"),
        ("kind: batch\nmodel: llama-3.1-8b\nhardware: h100", 2, "takes kind serve"),
        ("model: llama-3.1-8b\nhardware: h100", 2, "kind serve needs it"),
        ("model: llama-3.1-8b\nhardware: h100\nspeed: 3", 2, "unknown field"),
        (SCENARIO + "engine: {max_num_seqs: 256, max_num_batched_tokens: 64}", 2, "below max_num_seqs"),
        (SCENARIO.replace("llama-3.1-8b", "llama-3.1-70b"), 3, "leaves no memory for a KV cache"),
    ],
)
def test_bad_scenarios_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, code: int, said: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    for command in (["serve"], ["capacity", "--slo", "ttft-p95=2s"]):
        if command[0] == "capacity" and "kind serve needs it" in said:
            said = "needs it"
        found, out, err = call(capsys, command[0], str(path), *command[1:])
        assert (found, out) == (code, ""), err
        assert said in err


def test_two_stages_and_one_flag_leave_a_question(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(TWO_STAGES)
    assert "add --duration" in call(capsys, "serve", str(path), "--rate", "3")[2]
    document = json.loads(call(capsys, "serve", str(path), "--rate", "3", "--duration", "15", "--json")[1])
    assert len(document["stages"]) == 1


def test_capacity_prints_the_knee_and_json(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("capacity", scenario, "--slo", "tpot-p95=10ms", "--seeds", "2", "--requests", "600")
    code, out, err = call(capsys, *words)
    assert (code, err) == (0, "")
    assert "requests/s: llama-3.1-8b on 1 x TP1" in out
    assert "TPOT p95 binds" in out
    assert "holds <- capacity" in out
    document = json.loads(call(capsys, *words, "--json")[1])
    assert document["binding"] == "tpot_p95"
    low, high = document["interval"]["rate_per_s"]
    assert low < document["rate_per_s"] < high
    assert [point["rate_per_s"] for point in document["points"]] == sorted(
        point["rate_per_s"] for point in document["points"]
    )


def test_capacity_needs_objectives_that_can_be_met(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "capacity", scenario)[0] == 2
    code, _, err = call(capsys, "capacity", scenario, "--slo", "ttft-p95=1ms")
    assert code == 3
    assert "of an idle deployment" in err


@pytest.mark.parametrize(
    "change", ["weights=fp8", "sparsity=2:4", "speculation=eagle:k=4,acceptance=0.7", "weight_offload=0.1", "tp_size=2"]
)
def test_with_serves_the_same_load_on_a_changed_deployment(
    change: str, scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = json.loads(call(capsys, "serve", scenario, "--json")[1])
    changed = json.loads(call(capsys, "serve", scenario, "--with", change, "--json")[1])
    assert changed["overall"]["tpot_mean_s"] != plain["overall"]["tpot_mean_s"]
    assert changed["memory"]["weights_bytes"] != plain["memory"]["weights_bytes"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--with", "tp_size=2", "--tp", "2"], "--tp set the same field"),
        (["--with", "replicas=1"], "says already"),
        (["--with", "batch_size=3"], "no effect under kind serve"),
        (["--with", "sparsty=2:4"], "did you mean sparsity"),
    ],
)
def test_with_refuses_what_is_said_twice_or_changes_nothing(
    words: list[str], message: str, scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call(capsys, "serve", scenario, *words)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(("change", "said"), [("speculation=eagle", True), ("speculation=eagle:acceptance=0.7", False)])
def test_an_acceptance_that_nobody_measured_is_said(
    scenario: str, capsys: pytest.CaptureFixture[str], change: str, said: bool
) -> None:
    code, out, _ = call(capsys, "serve", scenario, "--with", change)
    assert code == 0
    assert ("differ between tasks by 14 %" in out) is said


def test_a_load_without_a_file_is_that_of_its_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--model", "llama-3.1-8b", "--hardware", "h100", "--rate", "6", "--duration", "20", "--json")
    code, out, err = call(capsys, "serve", *asked)
    assert code == 0
    assert "prompts of 1,155 tokens (cv 0.96), answers of 211 (cv 0.77)" in err
    path = tmp_path / "chat.yaml"
    lengths = "isl_tokens: 1155\n  osl_tokens: 211\n  isl_cv: 0.96\n  osl_cv: 0.77"
    path.write_text(SCENARIO.replace("isl_tokens: 300\n  osl_tokens: 40\n  osl_cv: 0.5", lengths))
    filed = json.loads(call(capsys, "serve", str(path), "--json")[1])
    found = json.loads(out)
    assert found["overall"] == filed["overall"]
    assert found["interval"] == filed["interval"]
    _, out, err = call(capsys, "serve", *asked, "--isl", "4096", "--osl", "300", "--with", "weights=fp8")
    assert "prompts of 4,096 tokens (cv 0.5), answers of 300 (cv 0.5)" in err
    assert json.loads(out)["overall"]["ttft_mean_s"] > found["overall"]["ttft_mean_s"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "llama-3.1-8b"], "a scenario file is needed, or --hardware and --rate"),
        (["FILE", "--isl", "100"], "--isl: changes nothing beside a scenario file"),
        (
            ["--model", "llama-3.1-8b", "--hardware", "h100", "--rate", "1", "--workload", "chatt"],
            "'chatt' is no kind of demand (did you mean chat?), got 'chatt'",
        ),
    ],
)
def test_a_load_is_a_file_or_options(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO)
    code, _, err = call(capsys, "serve", *(str(path) if word == "FILE" else word for word in words))
    assert code == 2
    assert said in err


def test_a_capacity_without_a_file_is_that_of_the_kind_s_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("--slo", "tpot-p95=20ms", "--seeds", "2", "--requests", "200", "--json")
    asked = ("--model", "llama-3.1-8b", "--hardware", "h100", "--isl", "300", "--osl", "40", "--osl-cv", "0.5")
    _, out, _ = call(capsys, "capacity", *asked, "--isl-cv", "0", *few)
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO)
    filed = json.loads(call(capsys, "capacity", str(path), *few)[1])
    assert json.loads(out)["rate_per_s"] == filed["rate_per_s"]
