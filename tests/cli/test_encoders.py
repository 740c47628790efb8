"""Encoders on the command line: counted, priced in one pass, planned and paid by the request."""

from __future__ import annotations

import json

import pytest

from simulator import serve, simulate
from simulator.cli import plan_capacity, roofcast
from simulator.cli.shared import run

PLAN = ("--model", "bert-base", "--rps", "100", "--hardware", "a100", "--isl", "128")


def answered(capsys, *words: str) -> str:
    assert run(roofcast.app, name="roofcast", arguments=words) == 0
    return capsys.readouterr().out


def planned(capsys, *words: str) -> tuple[int, str, str]:
    code = plan_capacity.main([*PLAN, *words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_parameters_and_fine_tuning_memory_are_counted(capsys):
    document = json.loads(answered(capsys, "model", "bert-large", "--fine-tune", "lora:8", "--json"))
    assert document["parameters"] == pytest.approx(335e6, rel=0.01)
    assert document["context_tokens"] == 512
    assert document["decode_flops_per_token"] is None
    assert document["kv_bytes_at_context"] == 0
    # Two FLOPs a multiply-add of every parameter behind the embeddings, and the scores: 4 N^2 d a layer.
    behind = 24 * 12 * 1024**2
    assert document["prefill_flops"] == pytest.approx(512 * (2 * behind + 24 * 4 * 512 * 1024), rel=0.02)
    assert document["fine_tuning"]["methods"][0]["trained_parameters"] > 0
    assert "keeps no KV cache" in answered(capsys, "model", "bert-base")


def test_a_step_is_its_one_pass(capsys):
    document = json.loads(answered(capsys, "step", "--model", "bert-base", "--batch", "8", "--json"))
    assert (document["phase"], document["context_tokens"]) == ("prefill", 512)
    named = json.loads(answered(capsys, "step", "--model", "bert-base", "--batch", "8", "--phase", "prefill",
                                "--context", "512", "--json"))  # fmt: skip
    assert named == document


def test_a_plan_prices_requests(capsys):
    code, out, _ = planned(capsys, "--osl", "1", "--json")
    assert code == 0
    cost = json.loads(out)["plan"]["cost"]
    assert cost["per_million_requests"] == pytest.approx(cost["per_hour"] / (100 * 3600) * 1e6)
    _, text, _ = planned(capsys, "--osl", "1")
    assert "per 1M requests" in text
    assert "$0.00" not in text.split("\nAssumptions")[0]


def test_answers_of_many_tokens_are_refused_with_the_way_out(capsys):
    code, out, err = planned(capsys, "--osl", "20")
    assert (code, out) == (2, "")
    assert "--osl: bert-base is an encoder" in err
    assert "--osl 1" in err


def test_without_lengths_a_plan_of_an_encoder_is_for_embeddings(capsys):
    assert plan_capacity.main(["--model", "bert-base", "--rps", "100", "--hardware", "a100", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["demand"]["isl_tokens"], document["demand"]["osl_tokens"]) == (256, 1)
    assert document["demand"]["osl_cv"] == 0
    # The whole of its positions is prompt: what it gives takes none.
    assert plan_capacity.main([*PLAN[:-1], "512"]) == 0
    capsys.readouterr()


def test_an_encoder_is_served_as_fast_as_its_clients_would_loop(capsys):
    fields = {"model": "bert-base", "hardware": "a100"}
    loop = simulate(**fields, concurrency=4, isl_tokens=128, osl_tokens=1, range_ratio=1, num_requests=400)
    stages = [{"rate_per_s": loop["requests_per_s"], "duration_s": 2}]
    served = serve(
        **fields, workload={"question_tokens": 128, "osl_tokens": 1, "stages": stages, "system_prompt_tokens": 64}
    )["overall"]
    assert served["busy_fraction"] > 0.6
    assert served["requests_per_s"] == pytest.approx(loop["requests_per_s"], rel=0.1)
    # Bidirectional: an equal beginning is no equal cache.
    assert served["prefix_hit_fraction"] == 0
    assert run(roofcast.app, name="roofcast", arguments=["serve", "-m", "bert-base", "--hardware", "a100", "--rate",
                                                         "50", "--duration", "2"]) == 0  # fmt: skip
    assert "prompts of 256 tokens" in capsys.readouterr().err


def test_an_encoder_decoder_is_served_at_the_pace_of_its_closed_loop():
    fields = {"model": "t5-3b", "hardware": "a100"}
    loop = simulate(**fields, concurrency=1, isl_tokens=128, osl_tokens=32, range_ratio=1, num_requests=4)
    lone = serve(
        **fields, workload={"question_tokens": 128, "osl_tokens": 32, "stages": [{"rate_per_s": 0.5, "duration_s": 20}]}
    )["overall"]
    assert lone["tpot_mean_s"] == pytest.approx(loop["tpot_s"], rel=0.03)
    assert lone["ttft_mean_s"] == pytest.approx(loop["ttft_s"], rel=0.4)


def test_every_way_to_compare_has_vectors_of_its_own(capsys):
    document = json.loads(answered(capsys, "retrieval", "--model", "bert-base", "--json"))
    sizes = {entry["interaction"]: entry["vector_size"] for entry in document["interactions"]}
    assert sizes == {"single_vector": 768, "colbert": 128, "coil": 32, "cross_encoder": 0}
    same = json.loads(answered(capsys, "retrieval", "--model", "bert-base", "--vector-size", "64", "--json"))
    assert {entry["vector_size"] for entry in same["interactions"]} == {64, 0}
