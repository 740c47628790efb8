"""A refusal on a page names the page's own control, what that takes, and has a button for what would work."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.planner.plan import check_contradictions
from simulator.specs.question.plan import plan_spec
from tests.app.pages import captions, opened, tables

SMALL = {"gpus": "h100-sxm-80gb", "rps": "50"}


@pytest.mark.parametrize(
    ("asked", "label", "takes", "key"),
    [
        ({"isl": "1048576"}, "Prompt tokens", "1 to 1,048,576", "isl"),
        ({"max_w": "50"}, "Power of each accelerator (W)", "1 to 10,000", "max_w"),
        pytest.param(
            {"max_gpus": "8", "spares": "20"}, "Most accelerators", "1 to 1,000,000", "max_gpus", marks=pytest.mark.slow
        ),
    ],
)
def test_a_refused_plan_names_its_control_and_a_click_makes_it_possible(
    asked: dict[str, str], label: str, takes: str, key: str
) -> None:
    page = opened("plan", {**SMALL, **asked})
    assert page.error
    said = " ".join(captions(page))
    assert f"**{label}** takes {takes}" in said
    assert not any("--" in text for text in (*(item.value for item in page.error), said))
    before = [item.value for item in page.error]
    page.button(key=f"fit_{key}").click().run()
    assert not page.exception
    assert before != [item.value for item in page.error], "what stood in the way is gone"
    assert f"**{label}** takes" not in " ".join(captions(page)) or key == "max_gpus"


def test_what_a_hint_names_is_offered_as_a_value_and_not_read_out_of_it() -> None:
    asked = {"model": "llama-3.1-8b", "rps": 1.0, "tp_size": (4,), "spares": 1, "max_gpus": 4}
    with pytest.raises(RoofcastError) as refused:
        check_contradictions(plan_spec(asked))
    assert refused.value.offers == {"max_gpus": 8}
    assert "`max_gpus` 8" in refused.value.hint


def test_missed_objectives_are_said_in_the_words_of_the_page() -> None:
    page = opened("plan", {**SMALL, "ttft": "0.02"})
    (said,) = [text for text in captions(page) if text.startswith("Enough would be")]
    assert "TTFT p95 " in said
    assert "--ttft" not in said


@pytest.mark.parametrize("name", ["what_if", "serving", "roofline", "sweep"])
def test_every_page_of_a_deployment_names_what_is_refused(name: str) -> None:
    page = opened(name, {"model": "llama-3.1-8b", "cap": "50"})
    assert page.error
    assert "**Power of each accelerator (W)** takes 1 to 10,000" in " ".join(captions(page))
    page.button(key="fit_cap").click().run()
    assert not page.error


@pytest.mark.slow
def test_what_a_page_does_not_ask_for_stays_a_flag_of_the_command_line() -> None:
    page = opened("plan", {"model": "llama-3.1-70b", "rps": "100", "max_cost": "3"})
    cells = " ".join(str(cell) for table in tables(page) for row in table.values for cell in row)
    assert "Weights nvfp4" in cells
    assert "--scheme" not in cells


@pytest.mark.parametrize(
    ("name", "query", "said"),
    [
        ("what_if", {"sequence": "true"}, "**Sequence parallelism** takes true or false · Leave it out, or set TP"),
        ("what_if", {"sparsity": "2:4", "gpu": "v100-sxm-32gb"}, "**Sparsity**: 2:4"),
        ("what_if", {"speculation": "mtp"}, "**Speculative decoding**: mtp"),
        ("what_if", {"model": "mixtral-8x7b", "ep": "8"}, "TP x DP = 1"),
        ("serving", {"step_tokens": "2", "seqs": "4096"}, "raise it or lower Largest batch"),
    ],
)
def test_a_refusal_names_fields_as_the_page_does(name: str, query: dict[str, str], said: str) -> None:
    page = opened(name, query)
    assert page.error
    assert said in " ".join((*captions(page), *(item.value for item in page.error)))


def test_a_rate_of_a_deployment_opens_on_every_page_that_asks_about_one() -> None:
    page = opened("serving", {"model": "llama-3.1-8b", "rates": "true"})
    page.session_state["rates"] = True
    page.session_state["rates_rows"] = {"selection": {"rows": [2], "columns": []}}
    page.run()
    assert not page.exception
    links = {item.proto.label: item.proto.query_string for item in page.get("page_link")}
    assert set(links) >= {"What-if", "Serving", "Roofline", "Compare"}
    assert "rate=" in links["Serving"]
    assert "batch=" in links["What-if"]
