"""``roofcast retrieval`` and ``roofcast mixers``: the library's numbers, and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from simulator.cli.roofcast import app
from simulator.errors import RoofcastError


def document(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


def test_retrieval_compares_four_ways() -> None:
    found = document("retrieval", "--model", "bert-base", "--documents", "1000", "--document-tokens", "100")
    ways = {entry["interaction"]: entry for entry in found["interactions"]}
    assert ways["colbert"]["index_bytes"] == 1000 * 100 * 128 * 2
    assert ways["colbert"]["index_bytes"] == 100 * ways["single_vector"]["index_bytes"] * 128 / 768
    assert ways["coil"]["scoring_s"] < ways["colbert"]["scoring_s"]
    assert ways["cross_encoder"]["total_query_s"] > 10 * ways["colbert"]["total_query_s"]


def test_every_option_of_retrieval_matters() -> None:
    usual = document("retrieval", "--model", "bert-base")["interactions"]
    for option, value in (
        ("--model", "bert-large"),
        ("--hardware", "h100"),
        ("--documents", "7"),
        ("--candidates", "7"),
        ("--document-tokens", "7"),
        ("--query-tokens", "7"),
        ("--vector-size", "7"),
    ):
        changed = document("retrieval", *([] if option == "--model" else ["--model", "bert-base"]), option, value)
        assert changed["interactions"] != usual, option


def test_a_decoder_is_refused_by_name() -> None:
    with pytest.raises(RoofcastError, match="llama-3.1-8b is no encoder"):
        CliRunner().invoke(app, ["retrieval", "--model", "llama-3.1-8b"], catch_exceptions=False)


def test_mixers_grow_as_their_order_says() -> None:
    found = document("mixers", "--width", "64", "--tokens", "4096", "--tokens", "8192")
    by_kind: dict[str, list[dict[str, float]]] = {}
    for entry in found["layers"]:
        by_kind.setdefault(entry["kind"], []).append(entry)
    growth = {kind: long["prefill_flops"] / short["prefill_flops"] for kind, (short, long) in by_kind.items()}
    assert growth["attention"] == pytest.approx(4, rel=0.05)
    assert growth["recurrent"] == growth["linear_attention"] == 2
    assert 2 < growth["convolution_fft"] < 2.3
    assert by_kind["recurrent"][0]["state_bytes"] == by_kind["recurrent"][1]["state_bytes"]


@pytest.mark.parametrize("arguments", [["retrieval", "--model", "bert-base"], ["mixers"]], ids=" ".join)
def test_both_print_a_table(arguments: list[str]) -> None:
    shown = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert shown.exit_code == 0
    assert len(shown.stdout.splitlines()) > 5
