"""A fleet by a rate that somebody measured: its size is arithmetic, whatever is predicted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulator import capacity, plan
from simulator.cli.plan_capacity import main
from simulator.errors import RoofcastError
from simulator.planner.studies.measured_rate import MeasuredRate

FIELDS: dict[str, Any] = {"model": "llama-3.1-8b", "hardware": "h100", "rate_per_s": 400.0, "spares": 2, "tp_size": 1}


def measured(**given: Any) -> MeasuredRate:
    found = plan({**FIELDS, **given}).plan.study(MeasuredRate)
    assert found is not None
    return found


def test_one_request_a_second_takes_as_many_gpus_as_requests() -> None:
    found = measured(measured_rps_per_gpu=1.0, max_gpus=300)
    assert (found.needed_devices, found.spare_devices, found.devices) == (400, 2, 408)
    assert found.idle_devices == 6
    assert found.gpus_over == 108


@pytest.mark.parametrize("serving", ["aggregated", "disaggregated"])
def test_the_measured_rate_is_of_all_gpus_that_are_needed(serving: str) -> None:
    found = measured(measured_rps_per_gpu=2.0, serving=serving)
    assert found.needed_devices == pytest.approx(200, rel=0.03)


def test_measuring_what_is_predicted_gives_the_predicted_fleet() -> None:
    predicted = measured(measured_rps_per_gpu=1.0).predicted_per_gpu_per_s
    asked = {**FIELDS, "serving": "aggregated", "measured_rps_per_gpu": predicted}
    answer = plan(asked).plan
    study = answer.study(MeasuredRate)
    assert study is not None
    assert study.label in {fleet.label for fleet in answer.fleets}
    fleet = next(fleet for fleet in answer.fleets if fleet.label == study.label)
    assert study.devices == fleet.devices
    assert study.cost_per_hour == fleet.cost.per_hour


def test_percentiles_are_held_against_the_objectives() -> None:
    found = measured(measured_rps_per_gpu=9.0, measured_at="ttft-p95=3s", objectives={"ttft-p95": "2s", "tpot-p95": 1})
    assert [item.holds for item in found.objectives] == [False, None]


def test_the_command_says_it_first(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--rps", "400", "--model", "llama-3.1-8b", "--hardware", "h100", "--measured-rps-per-gpu", "1"]
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["answer"].startswith("408 GPUs h100-sxm-80gb (")
    assert "measured by you" in document["answer"]
    assert document["measured_rate"]["devices"] == 408


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"measured_rps_per_gpu": 1.0, "hardware": ("h100", "a100")}, "one accelerator"),
        ({"measured_rps_per_gpu": 1.0, "stock": "h100=8"}, "one accelerator"),
        ({"measured_at": "ttft-p95=1s"}, "changes nothing"),
        ({"measured_rps_per_gpu": 1.0, "measured_at": "ttft=1s"}, "METRIC-pNN=TIME"),
    ],
)
def test_a_rate_of_something_else_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(RoofcastError, match=said):
        plan({**FIELDS, **given})


def test_experts_on_devices_of_their_own_are_sized_by_the_rate_that_a_simulation_finds() -> None:
    model, hardware = "mixtral-8x7b", "h100"
    with pytest.raises(RoofcastError, match=r"decode_ffn: unknown field .*capacity.*measured_rps_per_gpu"):
        plan(model=model, hardware=[hardware], rate_per_s=500, decode_ffn={"devices": 4})  # type: ignore[call-arg]
    pools = {"prefill_replicas": 2, "prefill_tp_size": 2, "decode_replicas": 1, "decode_dp_size": 4}
    pools["decode_ffn"] = {"devices": 4}
    load = {"stages": [{"rate_per_s": 4, "duration_s": 30}], "question_tokens": 500, "osl_tokens": 100}
    bounds = {"ttft-p95": "2s", "tpot-p95": "50ms"}
    one = capacity(
        model=model, hardware=hardware, disaggregation=pools, workload=load, objectives=bounds, seeds=1, requests=100
    ).to_dict()["rate_per_s"]
    fleet = plan(
        model=model, hardware=[hardware], rate_per_s=500, objectives=bounds, measured_rps_per_gpu=one / 12, verify=False
    ).to_dict()["measured_rate"]
    assert one > 4
    assert 500 / one * 12 <= fleet["needed_devices"] < 1.25 * 500 / one * 12
