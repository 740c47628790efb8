"""``simulator.engine.runs.attention_ffn``: a decode pool whose experts have devices of their own, under load."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.engine.runs.attention_ffn import attention_ffn_of, attention_ffn_use
from simulator.engine.runs.scenario_setup import ServeOptions, pool_deployments
from simulator.errors import RoofcastError
from simulator.phases.attention_ffn import AttentionFfn
from simulator.phases.memory import memory_plan
from simulator.reports.words.fields import note_text, note_texts
from simulator.specs.base import Note, validate
from simulator.specs.engine.deployment import DisaggregationSpec
from simulator.specs.question.scenario import ScenarioSpec

LOADED: dict[str, Any] = {
    "id": "experts",
    "kind": "serve",
    "model": "mixtral-8x7b",
    "hardware": "h100",
    "tp_size": 1,
    "workload": {"stages": [{"rate_per_s": 20, "duration_s": 12}], "isl_tokens": 1000, "osl_tokens": 120},
}
POOLS: dict[str, Any] = {
    "prefill_replicas": 4,
    "prefill_tp_size": 2,
    "decode_replicas": 1,
    "decode_dp_size": 4,
    "link": "nic",
}


def scenario(ffn: dict[str, Any] | None, **fields: Any) -> ScenarioSpec:
    pools = {**POOLS, **fields.pop("pools", {})} | ({} if ffn is None else {"decode_ffn": ffn})
    return validate(ScenarioSpec, {**LOADED, "disaggregation": pools, **fields}, where="test")


@cache
def served(devices: int, micro_batches: int = 3) -> ScenarioResult:
    asked = scenario({"devices": devices, "micro_batches": micro_batches})
    return answer(asked, options=ServeOptions(intervals=False))


def made(ffn: dict[str, Any], **fields: Any) -> AttentionFfn:
    asked = scenario(ffn, **fields)
    spec = asked.disaggregation
    assert isinstance(spec, DisaggregationSpec)
    found = attention_ffn_of(asked, spec, pool_deployments(asked, spec)[1], profiles=None)
    assert found is not None
    return found


def test_time_per_token_under_load_is_that_of_the_closed_form() -> None:
    """At the mean batch of the simulation, within the steps that differ from the mean one."""
    found = served(8)
    use = found.attention_ffn
    assert use is not None
    assert found.decode is not None
    assert found.tpot_s == pytest.approx(found.decode.step_s, rel=0.03)
    assert found.decode.step_s >= use.step_s


def test_fewer_micro_batches_are_sooner_where_reading_weights_is_all() -> None:
    """A small batch reads the same experts for each of them."""
    times = [served(8, count).tpot_s for count in (2, 4, 8)]
    assert times == sorted(times, key=lambda value: value or 0.0)


def test_devices_cache_and_power_are_those_of_both_sides() -> None:
    found, both = served(8), made({"devices": 8})
    assert (both.devices, both.attention_devices, both.ranks) == (12, 4, 4)
    assert "on 12 devices" in " ".join(note_texts(found.notes))
    assert found.memory.kv_capacity_tokens == memory_plan(both.attention).kv_capacity_tokens
    assert found.power_w > served(4).power_w
    assert found.memory.weights_bytes < 5e9


def test_the_note_says_what_hides_and_what_the_ordinary_way_takes() -> None:
    use = attention_ffn_use(made({"devices": 4, "micro_batches": 8}), sequences=256, context=1000)
    assert use.hidden == (use.needed_micro_batches <= 8)
    assert use.ordinary_step_s is not None
    assert use.tokens_per_s_per_device == pytest.approx(4 * 256 / (use.step_s * 8))
    assert "with both on every device" in note_text(Note("attention_ffn", {"use": use}))
    # Twelve devices are no number that eight experts spread over.
    assert made({"devices": 8}).ordinary is None


def test_another_accelerator_holds_the_experts_over_the_network() -> None:
    near, far = made({"devices": 4}), made({"devices": 4, "hardware": "h20"})
    assert near.ffn.hardware.scale_up.domain_size == 8
    assert (far.ffn.hardware.name, far.ffn.hardware.scale_up.domain_size) == ("h20-96gb", 1)
    assert made({"devices": 4, "link": "nic"}).ffn.hardware.scale_up.domain_size == 1


@pytest.mark.parametrize(
    ("ffn", "fields", "field"),
    [
        ({"devices": 1}, {}, "disaggregation.decode_ffn.devices"),
        ({"devices": 8, "link": "scale_up"}, {}, "disaggregation.decode_ffn.link"),
        ({"devices": 8}, {"model": "llama-3.1-8b"}, "disaggregation.decode_ffn"),
        ({"devices": 8}, {"pools": {"decode_ep_size": 4}}, "disaggregation.decode_ep_size"),
        ({"devices": 8}, {"pools": {"devices": 16}}, "disaggregation.devices"),
        ({"devices": 8}, {"pools": {"decode_pp_size": 2}}, "disaggregation.decode_ffn"),
        ({"devices": 2, "hardware": "l4"}, {}, "disaggregation.decode_ffn.devices"),
        ({"devices": 16}, {}, "disaggregation.decode_ffn.devices"),
        ({"devices": 2, "hardware": "h2000"}, {}, "disaggregation.decode_ffn.hardware"),
        ({"devices": 2, "hardware": "mi300x"}, {}, "disaggregation.decode_ffn.hardware"),
        ({"devices": 8}, {"kind": "closed_loop", "concurrency": 2, "workload": None, "isl_tokens": 8,
          "osl_tokens": 8}, "disaggregation.decode_ffn"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(ffn: dict[str, Any], fields: dict[str, Any], field: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        answer(scenario(ffn, **fields))
    assert refused.value.field == field


def test_other_accelerators_share_no_scale_up_domain_however_few() -> None:
    with pytest.raises(RoofcastError, match="h100-sxm-80gb and h200-sxm-141gb share no nvlink domain"):
        answer(scenario({"devices": 4, "link": "scale_up", "hardware": "h200"}))
