"""The contract from outside: scenarios as text in, results as text out, and the laws that every result obeys."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulator.api import scenarios
from simulator.api.scenarios import simulate_line
from simulator.specs.hardware.accelerator import list_hardware, load_hardware
from tests.for_every import for_every

BATCH = {"id": "x", "kind": "batch", "batch_size": 4, "isl_tokens": 300, "osl_tokens": 20}
FIELDS = (
    "ttft_s", "tpot_s", "e2e_s", "output_tokens_per_s", "total_tokens_per_s", "requests_per_s", "prefill", "decode",
    "memory", "power_w", "energy_per_output_token_j", "interval", "provenance", "assumptions", "notes",
)  # fmt: skip
MEMORY = (
    "weights_bytes", "kv_bytes_per_token", "kv_capacity_tokens", "kv_blocks", "activation_bytes", "reserve_bytes",
)  # fmt: skip


def answered(**scenario: Any) -> dict[str, Any]:
    result: dict[str, Any] = simulate_line(json.dumps({**BATCH, **scenario}), number=1)
    return result


def numbers(value: object) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, int | float):
        yield float(value)


def check_laws(result: dict[str, Any], *, osl_tokens: int) -> None:
    assert "error" not in result, result
    assert set(FIELDS) <= set(result)
    assert all(math.isfinite(number) for number in numbers(result))
    assert 0 < result["ttft_s"] <= result["e2e_s"]
    assert result["tpot_s"] * (osl_tokens - 1) == pytest.approx(result["e2e_s"] - result["ttft_s"])
    for phase in (result["prefill"], result["decode"]):
        assert 0 < phase["mfu"] <= 1
        assert 0 < phase["mbu"] <= 1
        assert sum(phase["breakdown_s"].values()) == pytest.approx(phase["step_s"])
    for metric, (low, high) in result["interval"].items():
        assert low <= result[metric] <= high
    assert result["memory"]["fits"]
    assert all(result["memory"][name] >= 0 for name in MEMORY)
    assert result["provenance"] in ("measured", "calibrated", "extrapolated", "assumed")
    assert result["power_w"] > 0
    assert result["energy_per_output_token_j"] > 0


@for_every(list_hardware())
def test_every_accelerator_answers_in_its_own_number_format(hardware: str) -> None:
    for model in ("llama-3.2-1b", "llama-2-7b"):  # bf16 and fp16
        result = answered(model=model, hardware=hardware, tp_size=2, engine={"name": "vllm"})
        check_laws(result, osl_tokens=20)


def test_a_checkpoint_dtype_that_the_device_lacks_is_replaced_and_said() -> None:
    v100 = answered(model="llama-3.2-1b", hardware="v100")
    assert "activations run in fp16: the device has no bf16 matrix units" in v100["assumptions"]
    tpu = answered(model="llama-2-7b", hardware="tpu-v5p")
    assert "activations run in bf16: the device has no fp16 matrix units" in tpu["assumptions"]
    a100 = answered(model="Qwen/Qwen3-32B-FP8", hardware="a100")
    assert "weights are widened as they are read: the device has no fp8 matrix units" in a100["assumptions"]


@pytest.mark.parametrize(
    ("hardware", "precision"),
    [("t4", {"weights": "bf16"}), ("a100", {"weights": "fp8"}), ("h100", {"weights": "nvfp4"})],
)
def test_a_dtype_that_was_asked_for_and_is_not_there_is_refused(hardware: str, precision: dict[str, str]) -> None:
    error = answered(model="llama-3.2-1b", hardware=hardware, precision=precision)["error"]
    assert (error["code"], error["field"]) == ("unsupported_dtype", "precision.activations")
    assert error["message"]
    assert error["hint"]


@pytest.mark.parametrize("kind", ["offline", "closed_loop"])
def test_a_step_smaller_than_the_sequences_runs_fewer_of_them(kind: str) -> None:
    load = {"num_requests": 300} if kind == "offline" else {"concurrency": 300, "range_ratio": 1}
    engine = {"name": "tensorrt-llm", "max_num_batched_tokens": 64, "max_num_seqs": 256}
    small = answered(model="llama-3.2-1b", hardware="b300", kind=kind, batch_size=None, engine=engine, **load)
    check_laws(small, osl_tokens=20)
    large = answered(model="llama-3.2-1b", hardware="b300", kind=kind, batch_size=None, **load)
    assert small["output_tokens_per_s"] < large["output_tokens_per_s"]


CLIENTS = {"kind": "closed_loop", "batch_size": None, "model": "llama-3.1-8b", "hardware": "h100"}
NO_LENGTHS = {"isl_tokens": None, "osl_tokens": None}


def test_clients_draw_lengths_unless_told_otherwise() -> None:
    fields = {**CLIENTS, "concurrency": 32, "isl_tokens": 1000, "osl_tokens": 100}
    drawn, equal = answered(**fields), answered(**fields, range_ratio=1)
    assert any(text.startswith("range_ratio = 0.8 (default: ") for text in drawn["assumptions"])
    assert any(text.startswith("num_requests = 320 (default: ") for text in drawn["assumptions"])
    assert not any("range_ratio" in text for text in equal["assumptions"])
    # Identical requests prefill together; uneven ones meet a running batch.
    assert drawn["ttft_p50_s"] < equal["ttft_p50_s"]
    assert drawn["tpot_p50_s"] > equal["tpot_p50_s"]
    for metric in ("ttft", "tpot", "e2e"):
        tail = [drawn[f"{metric}_{name}_s"] for name in ("p50", "p90", "p95", "p99")]
        assert tail == sorted(tail)
        low, high = drawn["interval"][f"{metric}_p50_s"]
        assert low <= tail[0] <= high
    # The first round prefills together and the last one drains.
    assert drawn["steady_output_tokens_per_s"] > drawn["output_tokens_per_s"]
    assert drawn["total_tokens_per_s"] == pytest.approx(11 * drawn["output_tokens_per_s"], rel=0.01)


def test_pools_answer_clients() -> None:
    fields = {**CLIENTS, "concurrency": 32, "isl_tokens": 4000, "osl_tokens": 200}
    pools = answered(**fields, disaggregation={"prefill_replicas": 1, "decode_replicas": 1})
    both = answered(**fields, replicas=2)
    # A decode step that no prompt stretches is shorter; the same accelerators draw about as much power.
    assert pools["tpot_p50_s"] < both["tpot_p50_s"]
    assert pools["power_w"] == pytest.approx(both["power_w"], rel=0.5)
    assert any("prefill busy" in note for note in pools["notes"])
    # Each pool has one of the two accelerators; prompts wait for nothing, so that theirs idles between them.
    assert 0.4 < pools["decode_energy_per_output_token_j"] / pools["energy_per_output_token_j"] < 1.0
    assert both.get("decode_energy_per_output_token_j") is None


@pytest.mark.parametrize(
    ("fields", "field", "code"),
    [
        ({"range_ratio": 1.2}, "range_ratio", None),
        ({"range_ratio": 0}, "range_ratio", None),
        ({"isl_cv": -1}, "isl_cv", None),
        ({"range_ratio": 0.5, "isl_cv": 0.3}, "range_ratio", "contradiction"),
        ({"kind": "offline", "concurrency": None, "range_ratio": 0.8}, "range_ratio", "ignored_option"),
        ({"kind": "offline", "concurrency": None, "lengths_trace": "a.csv"}, "lengths_trace", "ignored_option"),
        ({"lengths_trace": "a.csv"}, "isl_tokens", "contradiction"),
        ({"lengths_trace": "a.csv", "isl_tokens": None}, "osl_tokens", "contradiction"),
        ({"lengths_trace": "a.csv", **NO_LENGTHS, "osl_cv": 0.3}, "osl_cv", "contradiction"),
        ({"lengths_trace": "no-such-file.csv", **NO_LENGTHS}, "lengths_trace", "io"),
        ({"isl_tokens": None}, "isl_tokens", "missing_field"),
    ],
)
def test_lengths_out_of_range_are_refused_by_field(fields: dict[str, Any], field: str, code: str | None) -> None:
    asked = {**CLIENTS, "concurrency": 4, "isl_tokens": 100, "osl_tokens": 10, **fields}
    error = answered(**asked)["error"]
    assert error["field"] == field
    assert code is None or error["code"] == code


def test_requests_of_a_file_that_the_engine_does_not_take_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2023-11-16 18:17:03.9,1990,11\n" * 4, "utf-8")
    asked = {**CLIENTS, "concurrency": 4, **NO_LENGTHS, "lengths_trace": str(path)}
    error = answered(**asked, engine={"max_model_len": 2000})["error"]
    assert error["field"] == "lengths_trace"
    assert "2001 tokens, which exceed max_model_len 2000" in error["message"]
    check_laws(answered(**asked, engine={"max_model_len": 2001}), osl_tokens=11)


def test_requests_of_a_file_are_held_to_what_said_lengths_are(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    rows = [f"2023-11-16 18:17:03.9,{prompt},11\n" for prompt in (100, 60_000)]
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(rows), "utf-8")
    file = {"kind": "closed_loop", "concurrency": 2, "batch_size": None, **NO_LENGTHS, "lengths_trace": str(path)}
    # One request of 60,011 tokens fits no cache of an L4 beside these weights.
    error = answered(**file, model="llama-3.1-8b", hardware="l4")["error"]
    assert (error["code"], error["field"]) == ("does_not_fit", "lengths_trace")
    assert "60011 tokens" in error["message"]
    unchunked = answered(**file, model="llama-3.1-8b", hardware="h100", engine={"name": "tensorrt-llm"})
    assert any("refuses prompts of 60000 tokens" in note for note in unchunked["notes"])
    kept = {"kv_policy": {"method": "h2o", "budget_tokens": 60_011}}
    idle = answered(**file, model="llama-3.1-8b", hardware="h100", techniques=kept)["error"]
    assert (idle["code"], idle["field"]) == ("no_effect", "techniques.kv_policy.budget_tokens")


def test_sparse_units_have_a_peak_of_their_own() -> None:
    long = {"model": "qwen3-8b", "hardware": "rtx-pro-6000", "isl_tokens": 4096, "engine": {"name": "sglang"}}
    dense, sparse = answered(**long), answered(**long, techniques={"sparsity": "2:4"})
    check_laws(sparse, osl_tokens=20)
    assert sparse["ttft_s"] < dense["ttft_s"]


def test_default_limits_go_together() -> None:
    stages = [{"rate_per_s": 2, "duration_s": 5}]
    workload = {"stages": stages, "isl_tokens": 300, "osl_tokens": 20}
    served = {"kind": "serve", "batch_size": None, "isl_tokens": None, "osl_tokens": None, "workload": workload}
    few = answered(model="llama-3.2-1b", hardware="h100", engine={"max_num_batched_tokens": 64}, **served)
    assert "engine.max_num_seqs = 64 (a token a sequence and step)" in few["assumptions"]
    guesses = {"speculation": {"method": "lookahead", "accepted_tokens": 1.6}}
    guessing = answered(model="llama-3.2-1b", hardware="h100", techniques=guesses, **served)
    assert any("every running sequence takes" in text for text in guessing["assumptions"])
    both = {"max_num_batched_tokens": 64, "max_num_seqs": 128}
    refused = answered(model="llama-3.2-1b", hardware="h100", engine=both, **served)
    assert refused["error"]["field"] == "engine.max_num_batched_tokens"


@pytest.mark.parametrize(
    ("hardware", "interconnect"),
    [("h100", "NVLink4"), ("h200", "nvswitch"), ("mi300x", "Infinity Fabric"), ("h100", "PCIe 5.0 x16")],
)
def test_links_are_known_by_their_usual_names(hardware: str, interconnect: str) -> None:
    linked = answered(model="llama-3.2-1b", hardware=hardware, tp_size=4, interconnect=interconnect)
    native = answered(model="llama-3.2-1b", hardware=hardware, tp_size=4)
    assert (linked["e2e_s"] > native["e2e_s"]) == (interconnect.startswith("PCIe"))


def test_an_engine_without_a_profile_is_answered_and_named() -> None:
    result = answered(model="llama-3.2-1b", hardware="h100", engine={"name": "LMDeploy", "version": 0.6})
    assert "engine lmdeploy has no profile: priced as vllm" in result["assumptions"]
    named = answered(model="llama-3.2-1b", hardware="h100", engine={"name": "vllm", "version": "0.6"})
    assert result["e2e_s"] == named["e2e_s"]


def test_a_fault_of_one_line_stays_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise IndexError("beyond the table")

    monkeypatch.setattr(scenarios, "answer", fails)
    result = answered(model="llama-3.2-1b", hardware="h100")
    assert result["id"] == "x"
    assert result["error"]["code"] == "internal_error"


def test_wide_cores_count_as_many_units() -> None:
    assert load_hardware("h100").parallel_units == load_hardware("h100").compute_units
    assert load_hardware("tpu-v6e").parallel_units == 16


def test_guesses_that_nobody_measured_are_assumed_and_widen_the_time_per_token() -> None:
    replica = {"model": "llama-3.1-8b", "hardware": "h100", "engine": {"name": "vllm"}}
    guessed = answered(**replica, techniques={"speculation": {"method": "eagle"}})
    given = answered(**replica, techniques={"speculation": {"method": "eagle", "acceptance": 0.791}})
    assert guessed["provenance"] == "assumed"
    assert given["provenance"] != "assumed"

    def width(result: dict[str, Any], name: str) -> float:
        low, high = result["interval"][name]
        return math.log(high / low)

    assert guessed["tpot_s"] == pytest.approx(given["tpot_s"], rel=0.01)
    # 0.14 is the spread of EAGLE's speed-ups between tasks; 1.2816 standard deviations on either side are 80 %.
    by_hand = math.hypot(width(given, "tpot_s"), 2 * 1.2816 * 0.14)
    assert width(guessed, "tpot_s") == pytest.approx(by_hand, rel=1e-3)
    assert width(guessed, "ttft_s") == pytest.approx(width(given, "ttft_s"), rel=1e-3)
