"""Every widget has its place in the address and a word of help; no page needs a submit button or shows too much."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from app.fields.controls import begun
from app.parts.display import spread_text
from simulator.operators.formats.schemes import SCHEME_NAMES
from simulator.planner.what_if import kv_head_choices
from tests.app.pages import PAGES, ROOT, captions, headline, metrics, opened, tables
from tests.for_every import for_every

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
COMMANDS = {"_NAME", "_NEW_NAME", "_BESIDE", "_KINDS", "parts_key"}
"""Keys of what a button is told and of what fills other widgets: nothing that a page asks."""
MOST_CHARTS = 3


def _calls(path: Path) -> list[ast.Call]:
    found = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    return [call for call in found if isinstance(call.func, ast.Attribute)]


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


ADDRESSES = (["'query-params'"], ["_address(key)"])
"""The second one leaves out what no number can be, and what waits for another box."""


@for_every(APP)
def test_the_address_holds_every_widget(path: Path) -> None:
    for call in _calls(path):
        assert _name(call) not in ("form", "form_submit_button"), f"{path.name}:{call.lineno} needs a submit button"
        keys = [word.value for word in call.keywords if word.arg == "key"]
        if _name(call) in WIDGETS and not any(isinstance(key, ast.Name) and key.id in COMMANDS for key in keys):
            bound = [word.value for word in call.keywords if word.arg == "bind"]
            assert [ast.unparse(value) for value in bound] in ADDRESSES, f"{path.name}:{call.lineno}"


@pytest.mark.parametrize("name", PAGES)
def test_inputs_explain_themselves_and_figures_say_how_they_are_known(name: str) -> None:
    page = opened(name)
    for widget in (*page.selectbox, *page.slider, *page.number_input, *page.multiselect):
        assert widget.help, widget.label
    assert all(item.help for item in page.metric)
    assert len(page.get("plotly_chart")) <= MOST_CHARTS
    badges = [text for text in captions(page) if "-badge[" in text]
    # One under the headline, one on every card, one under every chart; datasheets have none.
    figures = len(page.metric) + len(page.get("plotly_chart"))
    assert len(badges) == (1 + figures if figures else 0)


@pytest.mark.parametrize(("name", "labels"), [
    ("plan", ("GPUs", "Rent per month", "Per 1M tokens out", "Power", "TTFT p95", "TPOT p95")),
    ("what_if", (
        "TTFT", "TPOT", "End to end", "Throughput", "Per 1M tokens out", "Energy per token", "Prefill step",
        "Prefill MFU", "Prefill MBU", "Tokens in KV cache", "Decode step", "Decode MFU", "Decode MBU",
        "KV cache in use",
    )),
    ("roofline", ("Decode step", "Decode MBU", "Prefill of one prompt", "Prefill MFU", "Crossover batch")),
])  # fmt: skip
def test_predictions_come_with_their_interval(name: str, labels: tuple[str, ...]) -> None:
    page = opened(name, {"gpus": "h100-sxm-80gb"})
    assert set(labels) <= set(metrics(page))
    intervals = [text for text in captions(page) if "-badge[" in text and "80 %: " in text]
    assert len(intervals) >= len(labels)


@pytest.mark.parametrize("name", ["what_if", "roofline"])
def test_every_figure_of_one_deployment_has_an_interval(name: str) -> None:
    page = opened(name)
    origins = [text for text in captions(page) if "-badge[" in text]
    # The headline's own badge carries one on the roofline page; what-if says power and price there.
    assert all("80 %: " in text for text in origins[1:])


@pytest.mark.parametrize("query", [
    {"sparsity": "2:4"}, {"speculation": "eagle"}, {"kv_heads": "1"}, {"weights": "fp8"}, {"kv": "fp8"},
    {"exit": "0.5"}, {"neurons": "0.5"}, {"kv_policy": "h2o", "kept": "256"}, {"adapters": "lora"}, {"offload": "0.2"},
    {"attention": "standard"}, {"separate": "true"}, {"sequence": "true", "tp": "2"},
    {"halves": "true", "model": "deepseek-r1", "gpu": "h200", "dp": "8", "ep": "8"},
], ids=lambda query: next(iter(query)))  # fmt: skip
def test_every_technique_has_its_waterfall(query: dict[str, str]) -> None:
    page = opened("what_if", {"model": "llama-3.1-8b", "tp": "1", **query})
    assert not page.error
    assert any(item.value.startswith("**TPOT: ") for item in page.markdown)
    page.segmented_control(key="worth").set_value("Weights per device").run()
    assert any(item.value.startswith("**Weights per device: ") for item in page.markdown)
    assert any("Counted from the model's tensors" in text for text in captions(page))


def test_an_operator_is_chosen_without_a_mouse() -> None:
    page = opened("roofline", {"model": "llama-3.1-8b", "tp": "1"})
    options = page.selectbox(key="operator").options
    assert {"qkv_proj (decode)", "qkv_proj (prefill)", "residual_norm (decode)"} <= set(options)
    page.selectbox(key="operator").set_value("down_proj (prefill)").run()
    assert any("m 1,024" in item.value for item in page.markdown)
    shared = opened("roofline", {"model": "llama-3.1-8b", "tp": "1", "operator": "down_proj (prefill)"})
    assert any("m 1,024" in item.value for item in shared.markdown)


def test_columns_of_a_comparison_have_techniques_of_their_own() -> None:
    page = opened("compare", {"columns": "2", "speculation_b": "eagle", "kv_b": "fp8", "kv_heads": "1"})
    assert not page.error
    table = tables(page)[0].set_index("")
    assert "structure" in table.loc["Deployment", "h100-sxm-80gb TP1"]
    assert "fp8 KV cache, speculation" in table.loc["Deployment", "h200-sxm-141gb TP1"]


@pytest.mark.parametrize("query", [{"osl": "1"}, {"gpu": "gaudi2", "gpu_b": "gaudi2", "columns": "2", "tp_b": "8"}])
def test_what_cannot_be_drawn_is_said(query: dict[str, str]) -> None:
    page = opened("compare", query)
    assert not page.exception
    assert "**No price is known, or nothing is generated**" in [item.value for item in page.markdown]


def test_answers_of_one_token_have_no_time_per_token() -> None:
    page = opened("what_if", {"model": "llama-3.1-8b", "tp": "1", "osl": "1", "weights": "fp8"})
    assert not page.exception
    assert metrics(page)["TPOT"] == "–"
    assert "first token" in headline(page)


@pytest.mark.parametrize("key", ["speculation", "sparsity", "adapters", "kv_policy", "attention", "kv_heads"])
def test_every_choice_of_a_technique_answers_or_refuses(key: str) -> None:
    page = opened("what_if", {"model": "llama-3.1-8b", "tp": "1"})
    for option in page.selectbox(key=key).options:
        page.selectbox(key=key).set_value(option).run()
        assert not page.exception, option
        said = page.error[0].value if page.error else ""
        # The model of this page brings no prediction layers to speculate with.
        assert ("num_nextn_predict_layers 0" in said) if option == "mtp" else not said, f"{option}: {said}"


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


def test_experts_are_spread_where_there_are_any() -> None:
    page = opened("what_if", {"model": "mixtral-8x7b", "tp": "4"})
    before = metrics(page)["TPOT"]
    page.selectbox(key="ep").set_value(4).run()
    assert not page.error
    assert metrics(page)["TPOT"] != before
    assert "ep" not in [item.key for item in opened("what_if", {"model": "llama-3.1-8b", "tp": "1"}).selectbox]


def test_kv_head_choices_divide_the_heads() -> None:
    assert kv_head_choices("llama-3.1-8b") == (1, 2, 4, 16, 32)
    assert kv_head_choices("deepseek-v3") == ()


@pytest.mark.usefixtures("few_accelerators")
def test_the_price_controls_ask_what_the_flags_ask() -> None:
    page = opened("plan", {"model": "llama-3.1-8b", "rps": "20", "price_of": "lowest", "seller": "hyperscalers"})
    assert not page.exception
    assert not page.error
    from simulator.planner.plan import plan_capacity
    from simulator.specs.question.plan import plan_spec

    asked = {"model": "llama-3.1-8b", "rps": 20.0, "price_of": "low", "provider": "hyperscaler"}
    assert plan_capacity(plan_spec(asked)).best.hardware in headline(page)


@pytest.mark.usefixtures("few_accelerators")
@pytest.mark.parametrize(("name", "query", "key", "refused"), [
    ("what_if", {"gpu": "b200-sxm"}, "model", "llama-3.1-405b"),
    ("serving", {"gpu": "b200-sxm"}, "model", "llama-3.1-405b"),
    ("roofline", {"gpu": "h100-sxm-80gb"}, "weights", "fp4"),
    pytest.param(
        "plan", {"gpus": "l4", "model": "llama-3.1-8b", "rps": "1"}, "model", "deepseek-v3", marks=pytest.mark.slow
    ),
])  # fmt: skip
def test_a_refusal_leaves_the_answer_before_in_grey(name: str, query: dict[str, str], key: str, refused: str) -> None:
    page = opened(name, query)
    assert not page.error
    before = headline(page)
    page.selectbox(key=key).set_value(refused).run()
    assert not page.exception
    assert page.error
    assert headline(page) == before
    assert "What this page answered before:" in [item.value for item in page.caption]
    # Not the answer of another visitor, nor that of a link which was refused at once.
    assert not any(item.value.startswith("## ") for item in opened(name, {**query, key: refused}).markdown)


def test_a_long_range_breaks_behind_its_dash_and_a_short_one_nowhere() -> None:
    assert len(spread_text("8.62 – 9.79 ms").split(" ")) == 2
    assert len(spread_text("1,024,592 – 1,147,712").split(" ")) == 3


def test_a_sentence_begins_with_a_capital_unless_that_would_rename_a_model() -> None:
    assert begun("one of it") == "One of it"
    assert begun("llama-3.1-70b leaves no memory") == "llama-3.1-70b leaves no memory"
    assert begun("") == ""
