"""Questions kept under a name: opened, compared, forgotten, and held for links."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from tests.app.pages import opened, tables

ASKED = {"model": "llama-2-7b", "gpu": "l40s", "weights": "fp8", "tp": "2"}


def _kept(page: AppTest, name: str) -> AppTest:
    page.session_state["keep"] = True
    page.run()
    page.text_input(key="name_of_question").set_value(name)
    page.button(key="keep_it").click().run()
    assert not page.exception
    return page


def _id(page: AppTest) -> str:
    return str(page.session_state["_named_id"])


def test_a_kept_question_is_listed_travels_with_a_link_and_is_forgotten() -> None:
    page = _kept(opened("what_if", ASKED), "two <b>small</b> ones")
    (item,) = page.session_state["_named"]
    assert item.page == "What-if"
    assert {key: str(item.asked[key]) for key in ASKED} == ASKED
    other = opened("serving", {"named": _id(page)})
    assert other.session_state["_named"] == (item,)
    assert not other.warning
    page.button(key=f"forget_{item.name}").click().run()
    assert not page.session_state["_named"]
    assert "named" not in page.query_params
    assert any("no longer on this server" in found.value for found in opened("serving", {"named": "0"}).warning)


def test_a_name_is_kept_once_and_the_later_question_stands() -> None:
    page = _kept(opened("what_if", ASKED), "mine")
    page.selectbox(key="tp").set_value(4).run()
    _kept(page, "mine")
    (item,) = page.session_state["_named"]
    assert item.asked["tp"] == 4


def test_kept_questions_are_columns_of_a_comparison() -> None:
    page = _kept(opened("what_if", ASKED), "small")
    other = opened("compare", {"named": _id(page), "gpu": "h100-sxm-80gb"})
    other.multiselect(key="_beside").set_value(["small"]).run()
    assert not other.exception
    assert list(tables(other)[0].columns)[1:] == ["h100-sxm-80gb TP1", "l40s TP2 fp8"]
    assert other.selectbox(key="model_b").value == "llama-2-7b"


def test_a_comparison_keeps_every_degree_of_the_deployment() -> None:
    asked = {"model": "deepseek-v3", "gpu": "b200-sxm", "tp": "8", "dp": "8", "ep": "8", "columns": "2"}
    page = opened("compare", asked)
    assert list(tables(page)[0].columns)[1:] == ["b200-sxm TP8 DP8 EP8", "h200-sxm-141gb TP8 DP8 EP8"]
