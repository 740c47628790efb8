"""Every page runs with every preset, shows what the command line prints, and keeps what its user has set."""

from __future__ import annotations

import json

import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from simulator.cli import plan_capacity
from simulator.reports.content.quantities import (
    bytes_text,
    count_text,
    joules_text,
    money_text,
    parameters_text,
    percent_text,
    rate_text,
    seconds_text,
    watts_text,
)
from simulator.reports.tables.comparison import BEST
from simulator.traffic.workload_presets import PRESETS
from tests.app.pages import PAGES, ROOT, captions, equation, headline, metrics, opened, printed, tables

PRESET_NAMES = [preset.name for preset in PRESETS]


@pytest.mark.parametrize("name", PAGES)
def test_first_visit_shows_an_answer(name: str) -> None:
    page = opened(name)
    assert not page.exception
    assert not page.error
    assert headline(page)
    # Pages send figures as they are: plotly's schema is checked here.
    for chart in page.get("plotly_chart"):
        layout = go.Figure(json.loads(chart.proto.spec)).layout
        # What the front end would add itself costs another drawing of the whole chart.
        assert not chart.proto.theme
        assert layout.height
        assert layout.datarevision


def test_entry_opens_the_plan() -> None:
    page = AppTest.from_file(str(ROOT / "app" / "streamlit_app.py"), default_timeout=60).run()
    assert not page.exception
    assert "GPU" in headline(page)


@pytest.mark.parametrize("name", ["what_if", "roofline", "compare"])
@pytest.mark.parametrize("preset", PRESET_NAMES)
def test_every_preset_runs(name: str, preset: str) -> None:
    page = opened(name, {"preset": preset})
    assert not page.exception
    assert page.selectbox(key="preset").value == preset
    if page.error:
        assert "fit" in page.error[0].value
        return
    # The headline is what the command line prints for the same question.
    times = [document["tpot_s"] if name != "roofline" else document["step_s"] for document in printed(page)]
    assert seconds_text(min(times)) in headline(page)


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESET_NAMES)
def test_every_preset_plans(preset: str) -> None:
    page = opened("plan", {"preset": preset})
    assert not page.exception
    (document,) = printed(page)
    assert headline(page).startswith(f"{count_text(document['plan']['devices'])} GPUs")


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESET_NAMES)
def test_every_preset_serves(preset: str) -> None:
    page = opened("serving", {"preset": preset})
    assert not page.exception
    (document,) = printed(page)
    assert document["overall"]["saturated"] or seconds_text(document["overall"]["ttft_p95_s"]) in headline(page)


def test_the_first_page_and_the_shortest_command_plan_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    page = opened("plan", {})
    assert plan_capacity.main(["--rps", "1000", "--model", "llama-3.1-70b", "--json"]) == 0
    fleet = json.loads(capsys.readouterr().out)["plan"]
    shown = metrics(page)
    assert shown["GPUs"] == count_text(fleet["devices"])
    assert fleet["hardware"] in headline(page)
    assert shown["TTFT p95"] == seconds_text(fleet["degraded"]["ttft_p95_s"])


def test_plan_equals_the_command_line() -> None:
    page = opened("plan", {"gpus": "h100-sxm-80gb", "rps": "120", "isl": "900"})
    (document,) = printed(page)
    fleet, shown = document["plan"], metrics(page)
    assert shown["GPUs"] == count_text(fleet["devices"])
    assert shown["Rent per month"] == money_text(fleet["cost"]["per_month"], "USD")
    # As the command's table and the other pages count it: the whole bill.
    assert shown["Per 1M tokens out"] == money_text(fleet["cost"]["per_million_output_tokens_all_in"], "USD")
    assert shown["Power"] == watts_text(fleet["power_typical_w"])
    assert shown["TTFT p95"] == seconds_text(fleet["degraded"]["ttft_p95_s"])
    assert headline(page).startswith(f"{fleet['devices']} GPUs ")
    assert f" {fleet['devices']} GPUs = {fleet['replicas']} ×" in equation(page)


def test_what_if_equals_the_command_line() -> None:
    page = opened("what_if", {"model": "llama-3.1-8b", "tp": "1", "weights": "fp8", "batch": "17"})
    (document,) = printed(page)
    shown = metrics(page)
    assert shown["TTFT"] == seconds_text(document["ttft_s"])
    assert shown["TPOT"] == seconds_text(document["tpot_s"])
    assert shown["End to end"] == seconds_text(document["e2e_s"])
    assert shown["Throughput"] == rate_text(document["output_tokens_per_s"], "tok")
    assert shown["Energy per token"] == joules_text(document["energy_per_output_token_j"])
    low, high = document["interval"]["tpot_s"]
    assert any(seconds_text(high) in text for text in captions(page)), (low, high)
    for name in ("prefill", "decode"):
        assert shown[f"{name.capitalize()} step"] == seconds_text(document[name]["step_s"])
        assert shown[f"{name.capitalize()} MFU"] == percent_text(document[name]["mfu"])
        assert shown[f"{name.capitalize()} MBU"] == percent_text(document[name]["mbu"])
    assert shown["Tokens in KV cache"] == count_text(document["memory"]["kv_capacity_tokens"])
    assert shown["KV cache in use"] == percent_text(document["memory"]["kv_utilization"])


def test_roofline_equals_the_command_line() -> None:
    page = opened("roofline", {"batch": "8"})
    (document,) = printed(page)
    shown = metrics(page)
    assert shown["Decode step"] == seconds_text(document["step_s"])
    assert shown["Decode MBU"] == percent_text(document["mbu"])
    assert shown["Crossover batch"] == count_text(document["crossover"]["batch"])


def test_serving_equals_the_command_line() -> None:
    page = opened("serving", {"model": "llama-3.1-8b", "tp": "1", "rate": "5"})
    (document,) = printed(page)
    shown = metrics(page)
    for name, label in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "End to end")):
        assert shown[f"{label} p95"] == seconds_text(document["overall"][f"{name}_p95_s"])
    assert shown["KV cache in use"] == percent_text(document["overall"]["kv_utilization"])


def test_compare_equals_the_command_line() -> None:
    page = opened("compare", {"columns": "2"})
    documents = printed(page)
    table = tables(page)[0]
    row = table.set_index(table.columns[0]).loc["TPOT"]
    best = min(document["tpot_s"] for document in documents)
    for cell, document in zip(row, documents, strict=True):
        assert cell.removeprefix(f"{BEST} ").startswith(seconds_text(document["tpot_s"]))
        assert cell.startswith(BEST) == (document["tpot_s"] == best)
    rows = table.set_index(table.columns[0])
    for cell, document in zip(rows.loc["Tokens in KV cache"], documents, strict=True):
        low, high = document["memory"]["interval"]["kv_capacity_tokens"]
        room = document["memory"]["kv_capacity_tokens"]
        assert cell == f"{count_text(room)} ({count_text(low)} – {count_text(high)})"


def test_profiles_equal_the_command_line() -> None:
    page = opened("profiles", {"gpu": "h200-sxm-141gb"})
    (document,) = printed(page)
    facts = tables(page)[0].set_index("quantity")
    assert document["memory_bytes_per_s"] == pytest.approx(
        float(facts.loc["memory bandwidth", "value"].split()[0]) * 1e12
    )
    listed = next(item.value for item in page.markdown if item.value.startswith("1. ")).splitlines()
    numbers = {text for text in facts["source"] if text.isdigit()}
    assert numbers == {line.partition(".")[0] for line in listed}
    number = int(facts.loc["memory bandwidth", "source"])
    assert document["sources"]["memory_bytes_per_s"]["source"] in listed[number - 1].replace("\\", "")


def test_models_equal_the_command_line() -> None:
    page = opened("profiles", {"browse": "Models", "model": "llama-3.1-8b"})
    (document,) = printed(page)
    facts = tables(page)[0].set_index("quantity")["value"]
    assert facts["parameters"] == parameters_text(document["parameters"])
    assert facts["KV cache"].startswith(f"{bytes_text(document['kv_bytes_per_token'])} per token")


def test_validation_equals_the_command_line() -> None:
    page = opened("validation", {"details": "Kernels", "kernels_of": "a100-sxm-80gb"})
    (document,) = printed(page)
    shown = tables(page)[0]
    # The three-parameter fits that stand in where a family was not measured are left to the command line.
    fitted = [item for item in document["kernels"] if item["group"] != "roofline"]
    assert list(shown["mean error"]) == [percent_text(item["mape"]) for item in fitted]
    assert list(shown["points"]) == [count_text(item["points"]) for item in fitted]


def test_a_filter_of_validation_changes_every_figure() -> None:
    whole = opened("validation")
    query = {
        "source": "inferencex",
        "measured_on": "mi300x",
        "measured_engine": "vllm",
        "measured_model": "gpt-oss-120b",
    }
    page = opened("validation", query)
    assert not page.exception
    assert headline(page) != headline(whole)
    # One of the four may come out alike.
    assert sum(metrics(page)[label] != text for label, text in metrics(whole).items()) >= 3
    (line,) = tables(page)[0].itertuples(index=False)
    assert line[:4] == ("mi300x", "vllm", "MoE", "aggregated")
    assert int(line[4]) == int(metrics(page)["Measured values"])
    runs = opened("validation", {**query, "details": "Every run"}).dataframe[0].value
    assert len(runs) == int(line[4])
    assert set(runs["accelerator"]) == {"mi300x"}
    assert all("TP" in text for text in runs["deployment"])


def test_risks_equal_the_command_line() -> None:
    page = opened("plan", {"gpus": "h100-sxm-80gb", "rps": "50", "view": "Risk"})
    (document,) = printed(page)
    drawn = tables(page)[0]
    assert drawn["P50"][0] == f"{document['uncertainty']['devices']['p50']:,.0f}"


def test_a_slider_changes_the_number() -> None:
    page = opened("what_if", {"model": "llama-3.1-8b", "tp": "1"})
    before = metrics(page)["TPOT"]
    page.slider(key="batch").set_value(256).run()
    assert metrics(page)["TPOT"] != before


def test_a_technique_shows_what_it_changes() -> None:
    page = opened("what_if", {"model": "llama-3.1-8b", "tp": "1"})
    assert not any(item.delta for item in page.metric)
    page.selectbox(key="weights").set_value("fp8").run()
    assert metrics(page)["TPOT"]
    assert next(item.delta for item in page.metric if item.label == "TPOT").startswith("-")


def test_presets_fill_what_nobody_edited_and_leave_the_rest() -> None:
    page = opened("what_if", {"model": "llama-3.1-8b", "tp": "1"})
    page.number_input(key="isl").set_value(3333).run()
    page.selectbox(key="preset").set_value("RAG").run()
    rag = next(preset for preset in PRESETS if preset.name == "RAG")
    assert page.number_input(key="isl").value == 3333
    assert page.number_input(key="osl").value == rag.osl_tokens
    assert page.slider(key="batch").value == rag.batch_size
    page.selectbox(key="preset").set_value("Chat").run()
    assert page.number_input(key="isl").value == 3333


def test_pinned_plan_becomes_the_baseline() -> None:
    page = opened("plan", {"gpus": "h100-sxm-80gb", "rps": "50"})
    next(item for item in page.button if "Pin" in item.label).click().run()
    page.number_input(key="rps").set_value(500.0).run()
    assert next(item.delta for item in page.metric if item.label == "GPUs").startswith("+")


def test_a_refusal_is_a_sentence_not_a_traceback() -> None:
    page = opened("what_if", {"model": "llama-3.1-405b", "tp": "1"})
    assert not page.exception
    assert "memory" in page.error[0].value


def test_an_impossible_plan_says_which_bound() -> None:
    page = opened("plan", {"gpus": "l4", "ttft": "0.01"})
    assert not page.exception
    assert "no feasible plan" in page.error[0].value.lower()
    assert len(page.dataframe), "what would close the gap"
