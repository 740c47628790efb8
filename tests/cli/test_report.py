"""``roofcast report`` and ``roofcast demand`` as a user meets them: files, exit codes, one line on stderr."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest
import yaml

from simulator.cli import plan_capacity, roofcast
from simulator.cli.shared import run
from simulator.planner.money.tco import spare_accelerators
from simulator.planner.plan import plan_capacity as plan_fleet
from simulator.reports.words.fields import plan_command
from simulator.specs.money.ownership import load_ownership
from simulator.specs.question.plan import plan_spec

QUESTION = ["--rps", "40", "--model", "llama-3.1-8b", "--hardware", "h100", "--ttft-p95", "2s"]
RESULTS = Path(__file__).resolve().parents[1] / "data" / "serving_results"


def roof(*words: str) -> int:
    return run(roofcast.app, name="roofcast", arguments=words)


@pytest.fixture(scope="module")
def plan_document() -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert plan_capacity.main([*QUESTION, "--json"]) == 0
    return out.getvalue()


@pytest.fixture
def plan_file(plan_document: str, tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(plan_document)
    return path


def test_a_plan_document_becomes_a_report_with_its_totals(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report"
    assert roof("report", str(plan_file), "--out", str(out), "--format", "json,csv,md") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    names = [Path(line).name for line in captured.out.splitlines()]
    assert (names[0], names[-1]) == ("report.md", "report.json")
    assert {"costs-rent-planned.csv", "costs-own.csv"} <= set(names)
    plan, report = json.loads(plan_file.read_text()), json.loads((out / "report.json").read_text())
    assert report["totals"]["devices"] == plan["plan"]["devices"]
    assert report["totals"]["cost_per_hour"] == plan["plan"]["cost"]["per_hour"]
    assert report["totals"]["cost_per_month"] == plan["plan"]["cost"]["per_month"]
    keys = {block.get("key") for section in report["sections"] for block in section["blocks"]}
    assert {"tornado", "degraded_cases"} <= keys, "a report asks for the studies that the plan left out"


def test_a_report_document_is_a_question_too(plan_file: Path, tmp_path: Path) -> None:
    assert roof("report", str(plan_file), "--out", str(tmp_path / "a"), "--format", "json") == 0
    first = tmp_path / "a" / "report.json"
    assert roof("report", str(first), "--out", str(tmp_path / "b"), "--format", "json") == 0
    again = json.loads((tmp_path / "b" / "report.json").read_text())
    assert again["totals"] == json.loads(first.read_text())["totals"]


def test_a_plan_document_may_have_any_name(plan_file: Path, tmp_path: Path) -> None:
    other = plan_file.rename(tmp_path / "plan of the chat fleet.txt")
    assert roof("report", str(other), "--out", str(tmp_path / "r"), "--format", "json") == 0
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert report["totals"]["devices"] == json.loads(other.read_text())["plan"]["devices"]


@pytest.mark.usefixtures("few_accelerators")
def test_a_refusal_s_document_becomes_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_capacity.main([*QUESTION, "--max-gpus", "1", "--json"]) == 3
    path = tmp_path / "refused.json"
    path.write_text(capsys.readouterr().out)
    assert json.loads(path.read_text())["inputs"]["max_gpus"] == 1
    assert roof("report", str(path), "--out", str(tmp_path / "r")) == 3
    assert "No capacity plan: llama-3.1-8b" in (tmp_path / "r" / "refusal.md").read_text()
    assert "files of the refusal" in capsys.readouterr().err


def test_a_changed_total_is_refused(plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(plan_file.read_text())
    document["plan"]["devices"] += 8
    plan_file.write_text(json.dumps(document))
    assert roof("report", str(plan_file), "--out", str(tmp_path / "r")) == 2
    assert "plan.devices" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_files_that_exist_need_force_and_a_bad_folder_is_io(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", str(plan_file), "--out", str(tmp_path / "r"), "--format", "md"]
    assert roof(*words) == 0
    assert roof(*words) == 5
    assert "--force" in capsys.readouterr().err
    assert roof(*words, "--force") == 0
    assert roof("report", str(plan_file), "--out", str(plan_file)) == 5
    assert "is a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not valid JSON"),
        ('{"schema_version": "1.0", "error": {"message": "too small"}}', "too small"),
        ('{"schema_version": "1.0", "plan": {}}', "which question"),
        ('{"rate_per_h": 3}', "did you mean rate_per_s"),
    ],
)
def test_what_is_no_plan_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, said: str
) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    assert roof("report", str(path), "--out", str(tmp_path / "r")) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "r").exists()


def test_plan_capacity_writes_the_report_beside_its_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*QUESTION, "--json", "--report", str(tmp_path / "r")]
    assert plan_capacity.main(words) == 0
    captured = capsys.readouterr()
    plan, report = json.loads(captured.out), json.loads((tmp_path / "r" / "report.json").read_text())
    files = {path.name for path in (tmp_path / "r").iterdir()}
    assert f"{len(files)} files in" in captured.err
    assert {"summary.pdf", "report.pdf", "costs-own.csv", "costs-rent-planned.csv", "verify.sh"} <= files
    assert report["totals"]["devices"] == plan["plan"]["devices"]
    assert plan_capacity.main(words) == 5
    assert capsys.readouterr().out == ""
    assert plan_capacity.main([*words, "--force"]) == 0


def test_own_figures_of_owning_change_the_money(plan_file: Path, tmp_path: Path) -> None:
    source = Path(__file__).resolve().parents[2] / "hardware_profiles" / "ownership" / "default.yaml"
    own = yaml.safe_load(source.read_text())
    own["discount_rate"]["value"] = 0.0
    mine = tmp_path / "default.yaml"
    mine.write_text(yaml.safe_dump(own))
    annual = []
    for name, extra in (("a", ()), ("b", ("--ownership", str(mine)))):
        assert roof("report", str(plan_file), "--out", str(tmp_path / name), "--format", "json", *extra) == 0
        annual.append(json.loads((tmp_path / name / "report.json").read_text())["totals"]["owning_annual"])
    assert annual[1] < annual[0]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("currency", "EUR", "amounts of different currencies"),
        ("currency", "usd", "did you mean USD?"),
        ("residual_fraction", {"value": 2, "source": "x", "date": "2026-01-01"}, "residual_fraction.value"),
        ("colour", "blue", "unknown field"),
    ],
)
def test_a_bad_ownership_file_is_a_profile_error(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, value: object, said: str
) -> None:
    source = Path(__file__).resolve().parents[2] / "hardware_profiles" / "ownership" / "default.yaml"
    own = yaml.safe_load(source.read_text())
    own[field] = value
    mine = tmp_path / "own.yaml"
    mine.write_text(yaml.safe_dump(own))
    assert roof("report", str(plan_file), "--out", str(tmp_path / "r"), "--ownership", str(mine)) == 4
    assert said in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_the_printed_command_asks_the_same_question() -> None:
    spec = plan_spec(
        {
            "rps": 40.0,
            "model": "llama-3.1-8b",
            "hardware": ("h100", "l40s"),
            "ttft-p95": "1.5s",
            "pareto": True,
            "growth": "5%/month",
            "rental": True,
            "load_profile": [*range(1, 13), *range(12, 0, -1)],
            "weekend": 0.6,
            "resilience": True,
            "startup": "4min",
            "autoscaler_lag": "45s",
            "ramp": "10%/min",
        }
    )
    words = plan_command(spec).split()
    assert words[0] == "plan-capacity"
    assert plan_capacity.main([*words[1:], "--output", "csv"]) == 0
    assert "--pareto" in words
    said = [words[words.index(flag) + 1] for flag in ("--weekend", "--startup", "--autoscaler-lag")]
    assert said == ["0.6", "240", "45"]


# Demand


def test_demand_writes_a_workload_that_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "workload.yaml"
    assert roof("demand", str(RESULTS / "guidellm.json"), "--out", str(target)) == 0
    text = target.read_text()
    assert "# 200 requests" in text
    assert "SHA-256" in text
    spec = plan_spec({"model": "llama-3.1-8b", "hardware": ("h100",)}, workload=target)
    assert (spec.rate_per_s, spec.isl_tokens, spec.osl_tokens) == (13.3, 512.0, 128.0)
    assert plan_fleet(spec).best.devices >= 1
    assert roof("demand", str(RESULTS / "guidellm.json"), "--out", str(target)) == 5
    assert "--force" in capsys.readouterr().err


def test_demand_as_json_and_its_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert roof("demand", str(RESULTS / "aiperf.json"), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == "1.0"
    assert document["workload"]["rate_per_s"] == pytest.approx(13.3)
    assert roof("demand", str(tmp_path / "none")) == 5
    assert roof("demand", str(RESULTS / "aiperf.json"), "--over", "soon") == 2
    assert "a duration above zero" in capsys.readouterr().err


EUROS = """name: eur
currency: EUR
date: "2026-11-01"
power_per_kwh: 0.25
power_source: contract
pue: 1.3
pue_source: contract
offers:
  - {hardware: h100-sxm-80gb, kind: on_demand, provider: x, per_hour: 2.0, date: "2026-11-01", source: quote}
  - {hardware: h100-sxm-80gb, kind: purchase, provider: x, per_device: 30000, date: "2026-11-01", source: quote}
"""
OWNING = """extends: default
name: own-eur
currency: EUR
date: "2026-11-01"
licence_per_device_year: {value: 500, source: quote, date: "2026-11-01"}
colocation_per_kw_month: {value: 150, source: quote, date: "2026-11-01"}
staff_per_fte_year: {value: 120000, source: quote, date: "2026-11-01"}
"""


def test_a_price_list_in_euros_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices, owning = tmp_path / "eur.yaml", tmp_path / "own-eur.yaml"
    prices.write_text(EUROS)
    owning.write_text(OWNING)
    words = ["--rps", "20", "--model", "llama-3.1-8b", "--hardware", "h100", "--prices", str(prices)]
    # Refused as a whole without figures in euros, and told how to give them.
    assert plan_capacity.main([*words, "--report", str(tmp_path / "no")]) == 4
    assert "extends: default, currency: EUR" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
    assert plan_capacity.main([*words, "--ownership", str(owning), "--report", str(tmp_path / "r")]) == 0
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    totals, devices = report["totals"], report["totals"]["devices"]
    assert totals["cost_per_hour"] == pytest.approx(2.0 * devices)
    # By hand: servers 30,000 each, 15 % network, 3 % storage, accelerators on the shelf, 5 % integration on it all.
    shelf = spare_accelerators(devices, ownership=load_ownership())
    assert totals["capex"] == pytest.approx(30_000 * (devices * 1.18 + shelf) * 1.05)
    assert "EUR" in (tmp_path / "r" / "report.md").read_text()
    for name in ("report.md", "costs-own.csv", "report.html"):
        assert "USD" not in (tmp_path / "r" / name).read_text()


def test_figures_of_owning_without_a_report_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_capacity.main(["--rps", "20", "--ownership", "default"]) == 2
    assert "--ownership: changes nothing without --report or --json" in capsys.readouterr().err
