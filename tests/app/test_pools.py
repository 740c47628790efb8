"""Pools, tiers, encoders and expert devices of the Serving page ask what `roofcast serve` asks, and links hold them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.fields.pools import MOST_PROMPTS
from app.parts.display import COMMAND_LINE
from simulator.reports.content.quantities import percent_text, seconds_text
from tests.app.pages import bar, captions, headline, metrics, opened, printed, tables

SHORT = {"model": "llama-3.1-8b", "isl": "3000", "osl": "20"}
TIERS = {**SHORT, "prompts": "300", "host_gb": "200", "nvme_gb": "4000", "nvme_gb_per_s": "25"}
PICTURES = {
    **{"model": "qwen2.5-vl-7b", "isl": "6500", "osl": "50", "rate": "2", "ttft": "3"},
    **{"images": "4", "encoders": "2", "encoder_gpu": "l40s"},
}
EXPERTS = {
    **{"model": "mixtral-8x7b", "isl": "1000", "osl": "100", "rate": "20", "dp": "4"},
    **{"prefill_replicas": "4", "prefill_tp": "2", "ffn": "4", "micro": "3"},
}


def _asked(query: dict[str, str]) -> tuple[dict[str, object], str]:
    """The scenario of a page that stands beside its command, and the question on top."""
    page = opened("serving", query)
    assert not page.error
    assert not page.warning, "nothing of the link is left out"
    (document,) = printed(page)
    assert seconds_text(document["overall"]["tpot_p95_s"]) == metrics(page)["TPOT p95"]
    if "kv_tiers" in document:
        assert list(tables(page)[-1]["hits"]) == [percent_text(tier["hit_fraction"]) for tier in document["kv_tiers"]]
    (line,) = list(page.code)[1:]
    found: dict[str, object] = json.loads(line.value)
    return found, bar(page)


@pytest.mark.slow
def test_tiers_are_asked_as_the_command_takes_them() -> None:
    scenario, bar = _asked(TIERS)
    assert scenario["engine"] == {
        "kv_tiers": [
            {"medium": "host", "capacity_bytes": 200e9},
            {"medium": "nvme", "capacity_bytes": 4e12, "bytes_per_s": 25e9},
        ]
    }
    assert scenario["workload"]["prompts_per_group"] == 300  # type: ignore[index]
    assert "200 GB host memory + 4,000 GB drives below the cache" in bar


def test_pictures_and_their_encoders_are_asked_as_the_command_takes_them() -> None:
    scenario, bar = _asked(PICTURES)
    assert scenario["images_per_request"] == 4
    assert scenario["encoder_pool"] == {"replicas": 2, "hardware": "l40s"}
    assert "2 encoders" in bar


@pytest.mark.slow
def test_devices_for_experts_are_asked_as_the_command_takes_them() -> None:
    scenario, bar = _asked(EXPERTS)
    pools = scenario["disaggregation"]
    assert isinstance(pools, dict)
    assert pools["decode_ffn"] == {"devices": 4, "micro_batches": 3}
    assert (pools["prefill_replicas"], pools["decode_replicas"], scenario["dp_size"]) == (4, 1, 4)
    assert "4 expert devices" in bar


def test_a_model_is_asked_only_for_what_it_has() -> None:
    keys = set(opened("serving", SHORT).session_state["_shown"])
    assert {"host_gb", "prefill_replicas", "prompts"} <= keys
    assert keys.isdisjoint({"images", "encoders", "ffn"})


@pytest.mark.parametrize(
    ("query", "label"),
    [
        ({**SHORT, "nvme_gb": "100"}, "Read at (GB/s)"),
        ({**SHORT, "nvme_gb": "100", "nvme_gb_per_s": "500"}, "Read at (GB/s)"),
        ({**PICTURES, "encoder_gpu": "mi300x"}, "Encoder accelerator"),
        ({**EXPERTS, "ep": "4"}, "EP"),
    ],
)
def test_a_refusal_names_the_control(query: dict[str, str], label: str) -> None:
    page = opened("serving", query)
    assert page.error
    assert "{" not in page.error[0].value
    assert any(f"**{label}**" in text for text in captions(page)), captions(page)


@pytest.mark.slow
def test_tiers_raise_the_rate_that_is_kept_up_with() -> None:
    few = opened("serving", {**TIERS, "rate": "18"})
    bare = opened("serving", {**SHORT, "prompts": "300", "rate": "18"})
    assert headline(bare).startswith("Overloaded")
    assert headline(few).startswith("Holds")
    assert int(TIERS["prompts"]) <= MOST_PROMPTS


def test_what_stands_around_a_deployment_is_asked_again_after_another_page() -> None:
    few = {**TIERS, "isl": "300", "rate": "1"}
    page = opened("serving", few)
    kept = page.session_state["_kept"]
    assert (kept["host_gb"], kept["nvme_gb_per_s"], kept["prompts"]) == (200, 25, 300)
    assert not opened("what_if", few).warning


_REPLICAS = "Prefill replicas or Decode replicas"
WAITING = [
    (SHORT, {"nvme_gb_per_s": "25"}, {"nvme_gb_per_s": "Drives"}),
    (
        {"model": "qwen2.5-vl-7b", "isl": "3000", "osl": "20"},
        {"pixels": "50000", "encoders": "2", "encoder_tp": "2", "encoder_gpu": "l40s"},
        {
            **dict.fromkeys(("pixels", "encoders"), "Pictures a request"),
            **dict.fromkeys(("encoder_tp", "encoder_gpu"), "Encoder replicas"),
        },
    ),
    (
        {"model": "mixtral-8x7b", "isl": "1000", "osl": "20", "tp": "4"},
        {
            **{"prefill_gpu": "l40s", "prefill_tp": "2", "prefill_step_tokens": "512", "link": "nic"},
            **{"ffn": "4", "micro": "3", "ffn_gpu": "l40s"},
        },
        {
            **dict.fromkeys(("prefill_gpu", "prefill_tp", "prefill_step_tokens", "link", "ffn"), _REPLICAS),
            **dict.fromkeys(("micro", "ffn_gpu"), "Expert devices"),
        },
    ),
]
"""A question, what nothing is there for, and what each of it waits for."""


def _scenario(page: AppTest) -> dict[str, object]:
    if not page.code:
        page.session_state[COMMAND_LINE] = True
        page.run()
    found: dict[str, object] = json.loads(page.code[1].value)
    return found


def _widget(page: AppTest, key: str) -> Any:
    return next(item for item in (*page.selectbox, *page.number_input) if item.key == key)


@pytest.mark.parametrize(("question", "given", "needs"), WAITING)
def test_what_is_disabled_is_never_sent_and_a_link_with_it_says_so(
    question: dict[str, str], given: dict[str, str], needs: dict[str, str]
) -> None:
    page, bare = opened("serving", {**question, **given}), opened("serving", question)
    assert [item.value for item in page.warning] == [
        f"`{key}={value}` needs {needs[key]}: left out." for key, value in given.items()
    ]
    assert not bare.warning
    for key in given:
        widget = _widget(page, key)
        assert widget.disabled
        assert widget.help.startswith(f"Fill in {needs[key]} first. ")
        assert widget.value == page.session_state["_shown"][key].default
        assert key not in page.query_params
    assert not page.error
    assert _scenario(page) == _scenario(bare)


def test_what_waits_opens_with_what_it_waits_for_and_is_cleared_with_it() -> None:
    page = opened("serving", {**PICTURES, "encoder_tp": "2"})
    assert _scenario(page)["encoder_pool"] == {"replicas": 2, "tp_size": 2, "hardware": "l40s"}
    _widget(page, "encoders").set_value(None).run()
    assert _widget(page, "encoder_tp").disabled
    assert "encoder_pool" not in _scenario(page)
    _widget(page, "encoders").set_value(3).run()
    assert not _widget(page, "encoder_tp").disabled
    assert _scenario(page)["encoder_pool"] == {"replicas": 3}, "neither the address nor the box brings it back"
    _widget(page, "encoder_tp").set_value(4).run()
    assert _scenario(page)["encoder_pool"] == {"replicas": 3, "tp_size": 4}
    _widget(page, "images").set_value(None).run()
    assert not page.error
    assert _widget(page, "encoders").disabled
    assert _scenario(page).keys().isdisjoint({"images_per_request", "encoder_pool"})
    page.button(key="undo").click().run()
    assert _scenario(page)["encoder_pool"] == {"replicas": 3, "tp_size": 4}


def test_no_pool_is_made_that_no_box_says() -> None:
    page = opened("serving", {**SHORT, "decode_replicas": "2"})
    assert _scenario(page)["disaggregation"] == {"prefill_replicas": 1, "decode_replicas": 2} | {
        f"prefill_{degree}_size": 1 for degree in ("tp", "pp", "cp")
    }
    assert _widget(page, "prefill_replicas").placeholder == "1"
    _widget(page, "decode_replicas").set_value(None).run()
    assert "disaggregation" not in _scenario(page)
    assert [_widget(page, f"{pool}_replicas").placeholder for pool in ("prefill", "decode")] == ["no pool", "no pool"]
