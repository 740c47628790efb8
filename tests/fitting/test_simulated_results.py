"""Results that the simulation itself would have given: nothing to change, and known overheads come back."""

from __future__ import annotations

from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

import pytest

from simulator import calibrate
from simulator.api.measurements import replay
from simulator.engine.runs.scenario_setup import deployment_of
from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment
from simulator.specs.base import validate
from simulator.specs.question.scenario import ScenarioSpec
from tests.bench_results import simulated_result, slower, write_result

DENSE = {"model": "llama-3.1-8b"}
SPREAD = {"isl_tokens": 900, "osl_tokens": 150, "isl_cv": 0.9, "osl_cv": 0.7}
FEW_SLOTS = {"max_num_seqs": 64, "max_num_batched_tokens": 1024}


@dataclass(frozen=True)
class Case:
    """A replica, what it is called in the options of the commands, and its load."""

    replica: dict[str, Any]
    rate_per_s: float
    workload: dict[str, Any]

    def scenario(self) -> ScenarioSpec:
        stages = [{"rate_per_s": self.rate_per_s, "duration_s": 120.0}]
        workload = {"stages": stages, "timeout_s": None, **self.workload}
        limits = {name: value for name, value in self.replica.items() if name in FEW_SLOTS}
        sizes = {name: value for name, value in self.replica.items() if name not in FEW_SLOTS}
        fields = {"id": 1, "kind": "serve", "hardware": "h100", **sizes, "engine": limits, "workload": workload}
        return validate(ScenarioSpec, fields, where="")

    def replica_itself(self) -> Deployment:
        return deployment_of(self.scenario())

    def result(self, path: Path, deployment: Deployment, **changes: Any) -> str:
        workload = self.scenario().workload
        assert workload is not None
        return write_result(path / "replica.json", simulated_result(deployment, workload) | changes)


CASES = {
    "unequal lengths": Case(DENSE, 8.0, SPREAD),
    "bursts": Case(DENSE, 6.0, {**SPREAD, "arrival": "gamma", "burstiness": 2.0}),
    "a shared prefix": Case(
        DENSE | {"system_prompt_tokens": 512}, 8.0, {"isl_tokens": 900, "osl_tokens": 64, "system_prompt_tokens": 512}
    ),
    "pipeline": Case({"model": "llama-3.1-70b", "tp_size": 4, "pp_size": 2}, 3.0, SPREAD),
    "attention ranks and experts": Case(
        {"model": "mixtral-8x7b", "tp_size": 1, "dp_size": 4, "ep_size": 4} | FEW_SLOTS, 6.0, SPREAD
    ),
}


def scenario_case(case: Case) -> Case:
    """The same without the word that only the options of the commands have."""
    replica = {name: value for name, value in case.replica.items() if name != "system_prompt_tokens"}
    return Case(replica, case.rate_per_s, case.workload)


@pytest.mark.parametrize("name", CASES)
def test_a_result_made_of_the_predictions_themselves_changes_nothing(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    made = scenario_case(case).result(tmp_path, scenario_case(case).replica_itself())
    answer = calibrate(results=[made], hardware="h100", out=str(tmp_path / "mine"), **case.replica)
    assert answer["changed"] is False
    assert answer.files == ()
    assert "no change needed" in answer.to_text()
    (run,) = answer["runs"]
    assert run["ttft_before"] == pytest.approx(0.0, abs=1e-3)
    assert run["tpot_before"] == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("name", ["unequal lengths", "attention ranks and experts"])
def test_a_result_without_its_requests_agrees_within_chance(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    lists = dict.fromkeys(("start_times", "ttfts"))
    made = case.result(tmp_path, case.replica_itself(), **lists)
    answer = calibrate(results=[made], hardware="h100", **case.replica)
    assert answer["changed"] is False
    assert abs(answer["runs"][0]["ttft_before"]) < 0.2


@pytest.mark.parametrize("name", ["unequal lengths", "attention ranks and experts"])
def test_known_overheads_come_back_from_open_arrivals(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    made = case.result(tmp_path, slower(case.replica_itself(), step_s=4e-3, request_s=0.06))
    answer = calibrate(results=[made], hardware="h100", **case.replica)
    assert answer["changed"] is True
    assert answer["step_s"] == pytest.approx(4e-3, rel=0.05)
    assert answer["request_s"] == pytest.approx(0.06, rel=0.05)


@pytest.mark.parametrize("name", CASES)
def test_predictions_of_such_a_result_are_its_values(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    made = scenario_case(case).result(tmp_path, scenario_case(case).replica_itself())
    for row in replay([made], hardware="h100", **case.replica).rows():
        assert row["error"] == pytest.approx(0.0, abs=2e-3), row["metric"]


def test_other_parallelism_than_was_run_does_not_agree(tmp_path: Path) -> None:
    case = CASES["attention ranks and experts"]
    made = case.result(tmp_path, case.replica_itself())
    other = case.replica | {"dp_size": 2, "ep_size": 2}
    assert abs(replay([made], hardware="h100", **other).rows()[1]["error"]) > 0.05


def test_the_last_answers_of_a_short_run_are_no_overload(tmp_path: Path) -> None:
    """Long answers: a third of the run is the wait for the last of them."""
    case = Case(DENSE, 2.0, {"isl_tokens": 500, "osl_tokens": 6000, "osl_cv": 0.3})
    made = case.result(tmp_path, case.replica_itself())
    assert calibrate(results=[made], hardware="h100", **DENSE)["changed"] is False
    flooded = Case(DENSE, 80.0, SPREAD)
    with pytest.raises(RoofcastError, match="overload") as refused:
        calibrate(results=[flooded.result(tmp_path, flooded.replica_itself())], hardware="h100", **DENSE)
    assert refused.value.field == "request_rate"


def test_the_model_is_the_one_that_the_file_names(tmp_path: Path) -> None:
    case = CASES["unequal lengths"]
    made = case.result(tmp_path, case.replica_itself())
    assert calibrate(results=[made], hardware="h100")["changed"] is False
    unnamed = case.result(tmp_path, case.replica_itself(), model_id=None)
    with pytest.raises(RoofcastError) as refused:
        calibrate(results=[unnamed], hardware="h100")
    assert (refused.value.field, refused.value.code) == ("model", "missing_field")


def test_what_validate_predicts_of_a_loop_calibrate_does_not_contradict(tmp_path: Path) -> None:
    """A file of means alone: loops of equal requests move in waves, and their prompts wait three times as long."""
    means = {"mean_ttft_ms": 500.0, "mean_tpot_ms": 20.0, "duration": 60.0, "completed": 320, "max_concurrency": 64}
    tokens = {"total_input_tokens": 320 * 2048, "total_output_tokens": 320 * 128, "request_rate": "inf"}
    path = tmp_path / "loop.json"
    path.write_text(dumps(means | tokens))
    served = {"model": "llama-3.1-8b", "hardware": "h100"}
    predicted = {row["metric"]: row["predicted"] for row in replay([str(path)], **served)["runs"][0]["values"]}
    seen = {"mean_ttft_ms": 1e3 * predicted["ttft_s"], "mean_tpot_ms": 1e3 * predicted["tpot_s"]}
    path.write_text(dumps(means | tokens | seen))
    (run,) = calibrate(results=[str(path)], **served)["runs"]
    assert (run["ttft_before"], run["tpot_before"]) == pytest.approx((0.0, 0.0), abs=1e-3)


def test_guesses_and_pools_that_served_a_loop_are_those_of_its_prediction(tmp_path: Path) -> None:
    lengths = {"random_input_len": 1024, "random_output_len": 256, "random_range_ratio": 0.8}
    tokens = {"total_input_tokens": 160 * 922, "total_output_tokens": 160 * 230, "request_rate": "inf"}
    means = {"mean_ttft_ms": 500.0, "mean_tpot_ms": 20.0, "duration": 60.0, "completed": 160, "max_concurrency": 16}
    path = tmp_path / "loop.json"
    path.write_text(dumps(means | tokens | lengths))
    served = {"model": "deepseek-r1", "hardware": "h200", "engine": "sglang"}
    pools = "prefill_replicas=2,prefill_tp_size=8,decode_replicas=1,decode_dp_size=8,decode_ep_size=8"

    def tpot_s(**how: Any) -> float:
        return float(replay([str(path)], **served, **how)["runs"][0]["values"][1]["predicted"])

    alone, apart = tpot_s(tp_size=8), tpot_s(disaggregation=pools)
    assert tpot_s(tp_size=8, speculation="mtp") < 0.8 * alone
    assert tpot_s(disaggregation=pools, speculation="mtp") < 0.8 * apart < 0.8 * tpot_s(dp_size=8, ep_size=8)
    for text, field in (
        ("8", "disaggregation.prefill_replicas"),
        ("prefill_replicas=1", "disaggregation.decode_replicas"),
    ):
        with pytest.raises(RoofcastError) as refused:
            tpot_s(disaggregation=text)
        assert refused.value.field == field
    with pytest.raises(RoofcastError, match="fitted to one replica"):
        calibrate(results=[str(path)], **served, disaggregation=pools)
