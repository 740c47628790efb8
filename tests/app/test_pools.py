"""Pools, tiers, encoders and expert devices of the Serving page ask what `roofcast serve` asks, and links hold them."""

from __future__ import annotations

import json

import pytest

from app.pools import MOST_PROMPTS
from simulator.reports.content.quantities import percent_text, seconds_text
from tests.app.pages import captions, headline, metrics, opened, printed, tables

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
    return found, next(item.value for item in page.markdown if " → " in item.value)


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
    assert any(f"**{label}**" in text for text in captions(page)), captions(page)


def test_tiers_raise_the_rate_that_is_kept_up_with() -> None:
    few = opened("serving", {**TIERS, "rate": "18"})
    bare = opened("serving", {**SHORT, "prompts": "300", "rate": "18"})
    assert headline(bare).startswith("Overloaded")
    assert headline(few).startswith("Holds")
    assert int(TIERS["prompts"]) <= MOST_PROMPTS


def test_what_stands_around_a_deployment_is_asked_again_after_another_page() -> None:
    page = opened("serving", TIERS)
    kept = page.session_state["_kept"]
    assert (kept["host_gb"], kept["nvme_gb_per_s"], kept["prompts"]) == (200, 25, 300)
    assert not opened("what_if", TIERS).warning
