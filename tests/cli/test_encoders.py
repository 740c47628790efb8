"""Encoders on the command line: counted, priced in one pass, planned and paid by the request."""

from __future__ import annotations

import json

import pytest

from simulator.cli import plan_capacity, roofcast
from simulator.cli.entry import run

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
