"""Retrieval over an encoder: what is stored, what a query reads."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.late_interaction import RetrievalCost, retrieval_cost
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model


def replica(model: str = "bert-base") -> Deployment:
    return deploy(model=load_model(model), hardware=load_hardware("a100"), engine=EngineSpec(name="torch"))


def cost(interaction: str, **changes: Any) -> RetrievalCost:
    sizes = {"documents": 8.8e6, "candidates": 1000, "document_tokens": 68, **changes}
    return retrieval_cost(replica(), interaction=interaction, **sizes)  # type: ignore[arg-type]


def test_an_index_holds_one_vector_a_token_or_a_document() -> None:
    assert cost("colbert").index_bytes == 8.8e6 * 68 * 128 * 2
    assert cost("single_vector").index_bytes == 8.8e6 * 768 * 2
    assert cost("colbert", vector_bits=2).index_bytes == cost("colbert").index_bytes / 8


def test_scoring_compares_tokens_with_tokens() -> None:
    assert cost("colbert").scoring_flops == 1000 * 32 * 68 * 2 * 128
    assert cost("coil").scoring_flops == 1000 * 3 * 2 * 32
    order = [cost(kind, vector_size=128).scoring_s for kind in ("single_vector", "coil", "colbert")]
    assert order == sorted(order)
    assert cost("colbert", candidates=2000).scoring_s == 2 * cost("colbert").scoring_s


def test_late_interaction_saves_the_passes_over_candidates() -> None:
    late, cross = cost("colbert"), cost("cross_encoder")
    assert cross.total_query_s > 20 * late.total_query_s
    assert cross.index_bytes == cross.document_s == 0
    assert late.document_s > 0


def test_longer_documents_cost_more_to_index() -> None:
    assert cost("colbert", document_tokens=256).document_s > 2 * cost("colbert", document_tokens=64).document_s


def test_decoders_and_unknown_interactions_are_refused() -> None:
    with pytest.raises(RoofcastError, match="no encoder"):
        retrieval_cost(replica("gpt2"), interaction="colbert", documents=1, candidates=1, document_tokens=1)
    with pytest.raises(RoofcastError, match="allowed: single_vector"):
        cost("bm25")
