"""Every widget has its place in the address and a word of help; no page needs a submit button or shows too much."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from simulator.operators.schemes import SCHEME_NAMES
from simulator.planner.what_if import kv_head_choices
from tests.app.pages import PAGES, ROOT, headline, metrics, opened

APP = sorted((ROOT / "app").rglob("*.py"))
WIDGETS = {
    "checkbox",
    "date_input",
    "multiselect",
    "number_input",
    "pills",
    "radio",
    "segmented_control",
    "select_slider",
    "selectbox",
    "slider",
    "text_input",
    "toggle",
}
MOST_CHARTS = 3


def _calls(path: Path) -> list[ast.Call]:
    found = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    return [call for call in found if isinstance(call.func, ast.Attribute)]


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


@pytest.mark.parametrize("path", APP, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_address_holds_every_widget(path: Path) -> None:
    for call in _calls(path):
        assert _name(call) not in ("form", "form_submit_button"), f"{path.name}:{call.lineno} needs a submit button"
        if _name(call) in WIDGETS:
            bound = [word.value for word in call.keywords if word.arg == "bind"]
            assert [ast.literal_eval(value) for value in bound] == ["query-params"], f"{path.name}:{call.lineno}"


@pytest.mark.parametrize("name", PAGES)
def test_inputs_explain_themselves_and_figures_say_how_they_are_known(name: str) -> None:
    page = opened(name)
    for widget in (*page.selectbox, *page.slider, *page.number_input, *page.multiselect):
        assert widget.help, widget.label
    assert all(item.help for item in page.metric)
    assert len(page.get("plotly_chart")) <= MOST_CHARTS
    badges = [item.value for item in page.caption if "-badge[" in item.value]
    # One under the headline, one on every card, one under every chart; datasheets have none.
    figures = len(page.metric) + len(page.get("plotly_chart"))
    assert len(badges) == (1 + figures if figures else 0)


@pytest.mark.parametrize(("name", "labels"), [
    ("plan", ("GPUs", "Rent per month", "Per 1M tokens out", "Power", "TTFT p95", "TPOT p95")),
    ("what_if", ("TTFT", "TPOT", "End to end", "Throughput", "Per 1M tokens out", "Energy per token")),
    ("roofline", ("Decode step", "Decode MBU", "Prefill of one prompt", "Prefill MFU")),
])  # fmt: skip
def test_predictions_come_with_their_interval(name: str, labels: tuple[str, ...]) -> None:
    page = opened(name, {"gpus": "h100-sxm-80gb"})
    assert set(labels) <= set(metrics(page))
    intervals = [item for item in page.caption if "-badge[" in item.value and "80 %: " in item.value]
    assert len(intervals) >= len(labels)


@pytest.mark.parametrize("key", ["speculation", "sparsity", "adapters", "kv_policy", "attention", "kv_heads"])
def test_every_choice_of_a_technique_answers_or_refuses(key: str) -> None:
    page = opened("what_if", {"model": "llama-3.1-8b", "tp": "1"})
    for option in page.selectbox(key=key).options:
        page.selectbox(key=key).set_value(option).run()
        assert not page.exception, option
        assert not page.error, f"{option}: {page.error[0].value}"


def test_weights_are_dtypes_and_named_methods() -> None:
    page = opened("what_if", {"model": "llama-3.1-8b", "tp": "1", "weights": "gptq-g128"})
    assert "gptq-g128" in SCHEME_NAMES
    assert not page.error
    native = opened("what_if", {"model": "llama-3.1-8b", "tp": "1"})
    assert metrics(page)["TPOT"] != metrics(native)["TPOT"]
    assert not opened("roofline", {"weights": "gptq-g128"}).error
    assert headline(opened("plan", {"gpus": "h100-sxm-80gb", "weights": "gptq-g128", "rps": "50"}))


def test_early_exit_and_contextual_sparsity_are_sliders() -> None:
    page = opened("what_if", {"model": "llama-3.1-8b", "tp": "1"})
    before = metrics(page)["TPOT"]
    page.slider(key="exit").set_value(0.5).run()
    assert not page.error
    assert metrics(page)["TPOT"] != before
    page.slider(key="exit").set_value(1.0).run()
    assert metrics(page)["TPOT"] == before


def test_kv_head_choices_divide_the_heads() -> None:
    assert kv_head_choices("llama-3.1-8b") == (1, 2, 4, 16, 32)
    assert kv_head_choices("deepseek-v3") == ()
