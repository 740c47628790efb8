"""A pinned baseline lives in the address, survives a reload, and cannot name what the widgets would not."""

from __future__ import annotations

import json

import pytest
from streamlit.testing.v1 import AppTest

from tests.app.pages import metrics, opened

SMALL = {"model": "llama-3.1-8b", "tp": "1"}
SCENARIO = {
    "id": "app",
    "kind": "batch",
    "model": "llama-3.1-8b",
    "hardware": "h100-sxm-80gb",
    "tp_size": 1,
    "batch_size": 8,
    "isl_tokens": 100,
    "osl_tokens": 50,
    "engine": {"name": "vllm"},
}


def _query(page: AppTest, key: str) -> str:
    value = page.query_params[key]
    return value[0] if isinstance(value, list) else value


def _press(page: AppTest, label: str) -> None:
    next(item for item in page.button if item.label == label).click().run()


def _compared(page: AppTest) -> bool:
    return any(item.delta for item in page.metric)


def test_a_shared_address_compares_with_the_same_thing() -> None:
    page = opened("what_if", SMALL)
    _press(page, "Pin as baseline")
    page.slider(key="batch").set_value(256).run()
    changes = {item.label: item.delta for item in page.metric}
    assert changes["TPOT"].startswith("+")
    shared = opened("what_if", {**SMALL, "batch": "256", "baseline": _query(page, "baseline")})
    assert {item.label: item.delta for item in shared.metric} == changes
    _press(page, "Unpin")
    assert not _compared(page)
    assert "baseline" not in page.query_params


def test_a_shared_plan_compares_with_the_same_plan() -> None:
    page = opened("plan", {"gpus": "h100-sxm-80gb", "rps": "50"})
    _press(page, "Pin as baseline")
    text = _query(page, "plan_baseline")
    shared = opened("plan", {"gpus": "h100-sxm-80gb", "rps": "500", "plan_baseline": text})
    assert next(item.delta for item in shared.metric if item.label == "GPUs").startswith("+")


@pytest.mark.parametrize("text", ["{", "[1]", "x" * 5000, '{"kind": "serve"}', "null", '{"a": ' * 1500, "1e999"])
def test_a_damaged_baseline_is_ignored(text: str) -> None:
    page = opened("what_if", {**SMALL, "baseline": text})
    assert not page.exception
    assert metrics(page)
    assert not _compared(page)


@pytest.mark.parametrize("change", [
    {"model": "/etc/passwd"},
    {"hardware": "../../etc/hostname"},
    {"batch_size": 10**6},
    {"isl_tokens": 10**9},
    {"techniques": {"speculation": {"method": "draft", "k": 2, "acceptance": 0.5, "draft_model": "./config.json"}}},
])  # fmt: skip
def test_a_baseline_stays_within_the_widgets(change: dict[str, object]) -> None:
    page = opened("what_if", {**SMALL, "baseline": json.dumps({**SCENARIO, **change})})
    assert not page.exception
    assert not _compared(page)
    assert _compared(opened("what_if", {**SMALL, "baseline": json.dumps(SCENARIO)}))


@pytest.mark.parametrize("flag", ["trace", "profiles", "uncertainty", ""])
def test_a_plan_baseline_names_no_file_and_no_study(flag: str) -> None:
    fields = {"model": "llama-3.1-8b", "rps": 10.0, flag: "/etc/passwd"} if flag else []
    page = opened("plan", {"gpus": "h100-sxm-80gb", "plan_baseline": json.dumps(fields)})
    assert not page.exception
    assert not _compared(page)
