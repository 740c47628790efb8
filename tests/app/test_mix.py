"""A mix of kinds of demand is asked from any page, travels with links, and is what the command plans."""

from __future__ import annotations

import pytest

from simulator.traffic.workload_presets import workload_preset
from tests.app.pages import document_of, headline, opened, printed

MIX = "chat=0.7,rag=0.3"
SMALL = {"model": "llama-3.1-8b", "gpus": "h100-sxm-80gb", "rps": "300"}


def test_a_mix_is_put_together_from_boxes_and_is_what_the_command_plans() -> None:
    page = opened("plan", SMALL)
    page.session_state["mix"] = True
    page.run()
    assert page.button(key="ask_mix").disabled
    page.multiselect(key="mixed_kinds").set_value(["Chat", "RAG"]).run()
    for kind, parts in (("Chat", 7), ("RAG", 3)):
        page.number_input(key=f"parts_{kind}").set_value(parts)
    page.run()
    page.button(key="ask_mix").click().run()
    assert not page.exception
    assert page.selectbox(key="preset").value == MIX
    mean = 0.7 * workload_preset("chat").isl_tokens + 0.3 * workload_preset("rag").isl_tokens
    assert page.number_input(key="isl").value == round(mean)
    (document,) = printed(page)
    command = f"plan-capacity --rps 300 --model llama-3.1-8b --hardware h100-sxm-80gb --workload {MIX}"
    assert document == document_of(command)
    assert headline(opened("plan", {**SMALL, "preset": MIX})) == headline(page)


@pytest.mark.parametrize("spelt", ["rag", "RAG", "rag=1"])
def test_a_kind_is_known_by_its_word(spelt: str) -> None:
    page = opened("what_if", {"preset": spelt})
    assert page.selectbox(key="preset").value == "RAG"


@pytest.mark.parametrize(
    "text", ["chat=0.7,rag=0.7", "chat=0.5,warp=0.5", "chat=0.5,chat=0.5", "chat=,rag=", "chat=nan,rag=1"]
)
def test_what_is_no_mix_is_said(text: str) -> None:
    page = opened("what_if", {"preset": text})
    assert not page.exception
    assert page.selectbox(key="preset").value == "Chat"
    assert any(f"`preset={text}`" in item.value for item in page.warning)


def test_a_page_hands_a_mix_on() -> None:
    page = opened("profiles", {"preset": MIX})
    assert not page.warning
    assert page.session_state["_kept"]["preset"] == MIX
