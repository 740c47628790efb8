"""``simulator.operators.transformer``: embeddings, last norm, head and sampling, and the way to the next stage."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.operators.transformer import embedding_rows, head_rows, stage_send
from simulator.operators.work import Collective, CollectiveShape, Family, mixed_step, prefill_step
from simulator.specs.model.architecture import HyperConnectionSpec, ModelSpec
from tests.operators.operator_models import ENCODER_ONLY
from tests.operators.shares import DECODE, HIDDEN, LAYERS, PREFILL, SMALL, VOCAB, named, names, share

TIED = SMALL.model_copy(update={"tie_word_embeddings": True})


def changed(**changes: object) -> ModelSpec:
    return SMALL.model_copy(update=changes)


def test_a_plain_model_looks_rows_up_and_multiplies_by_its_vocabulary() -> None:
    embedding = embedding_rows(share(PREFILL), tokens=PREFILL.new_tokens)
    head = head_rows(share(PREFILL), holds_embedding=True)
    assert names(embedding) == ["embedding"]
    assert names(head) == ["final_norm", "lm_head", "sampling"]
    assert embedding[0].parameters == VOCAB * HIDDEN
    product = named(head, "lm_head")
    assert product.parameters == VOCAB * HIDDEN
    # Three prompts end: three rows of logits, whatever their length.
    assert product.flops[0] == 2 * 3 * VOCAB * HIDDEN
    assert named(head, "final_norm").activation_bytes[0] == 2 * 150 * HIDDEN * 2


def test_every_generated_token_needs_logits() -> None:
    assert named(head_rows(share(DECODE), holds_embedding=True), "lm_head").flops[0] == 2 * 7 * VOCAB * HIDDEN


@pytest.mark.parametrize("tp_size", [2, 4])
def test_the_vocabulary_is_split_and_the_logits_are_gathered(tp_size: int) -> None:
    split = share(DECODE, tp_size=tp_size)
    embedding = embedding_rows(split, tokens=DECODE.new_tokens)
    head = head_rows(split, holds_embedding=True)
    assert embedding[0].parameters == VOCAB * HIDDEN / tp_size
    assert names(embedding) == ["embedding", "embedding_all_reduce"]
    assert named(head, "lm_head").parameters == VOCAB * HIDDEN / tp_size
    gathered = named(head, "logits_all_gather").shape
    assert isinstance(gathered, CollectiveShape)
    assert gathered.operation is Collective.ALL_GATHER
    assert gathered.message_bytes[0] == 7 * VOCAB * 2
    # Sampling sees the whole vocabulary on every rank.
    assert named(head, "sampling").activation_bytes[0] == 5 * 7 * VOCAB * 2


@pytest.mark.parametrize("holds", [True, False])
def test_a_tied_head_is_held_once(holds: bool) -> None:
    product = named(head_rows(share(DECODE, model=TIED), holds_embedding=holds), "lm_head")
    assert product.parameters == (0 if holds else VOCAB * HIDDEN)
    assert product.weight_bytes[0] == VOCAB * HIDDEN * 2  # read in any case


def test_the_bias_of_a_tied_head_is_its_own() -> None:
    rows = head_rows(share(DECODE, model=TIED.model_copy(update={"lm_head_bias": True})), holds_embedding=True)
    assert sum(row.count * row.parameters for row in rows) == HIDDEN + VOCAB
    assert named(rows, "lm_head_bias").active_parameters == VOCAB


@pytest.mark.parametrize("positions", [0, 512])
def test_learned_positions_and_token_types_are_held(positions: int) -> None:
    model = changed(position_embeddings=positions, token_types=2 if positions else 0)
    rows = embedding_rows(share(PREFILL, model=model), tokens=PREFILL.new_tokens)
    assert rows[0].parameters == (VOCAB + positions + (2 if positions else 0)) * HIDDEN


def test_a_narrow_table_is_projected_in_and_out() -> None:
    model = changed(embedding_size=64)
    inward = embedding_rows(share(DECODE, model=model), tokens=DECODE.new_tokens)
    outward = head_rows(share(DECODE, model=model), holds_embedding=True)
    assert named(inward, "embedding").parameters == VOCAB * 64
    assert named(inward, "embedding_in_proj").parameters == 64 * HIDDEN
    assert named(outward, "embedding_out_proj").parameters == 64 * HIDDEN
    assert named(outward, "lm_head").flops[0] == 2 * 7 * VOCAB * 64


def test_per_layer_embeddings_are_a_table_and_a_projection_for_every_layer() -> None:
    model = changed(per_layer_embedding_size=16)
    rows = embedding_rows(share(DECODE, model=model), tokens=DECODE.new_tokens)
    assert named(rows, "per_layer_embedding").parameters == VOCAB * 16 * LAYERS
    assert named(rows, "per_layer_model_proj").flops[0] == 2 * 7 * HIDDEN * 16 * LAYERS
    assert named(rows, "per_layer_norm").parameters == 16


def test_an_encoder_pools_one_row_a_text_and_has_no_head() -> None:
    rows = head_rows(share(PREFILL, model=ENCODER_ONLY), holds_embedding=True)
    assert names(rows) == ["pooler"]
    width = ENCODER_ONLY.hidden_size
    assert rows[0].flops[0] == 2 * 3 * width * width


def test_the_embedding_norm_of_an_encoder_has_a_scale_and_a_shift() -> None:
    rows = embedding_rows(share(PREFILL, model=ENCODER_ONLY), tokens=PREFILL.new_tokens)
    assert named(rows, "embedding_norm").parameters == 2 * ENCODER_ONLY.hidden_size


def test_a_head_transform_stands_before_the_vocabulary() -> None:
    model = changed(head_hidden_parameters=HIDDEN * HIDDEN + 3 * HIDDEN)
    rows = head_rows(share(DECODE, model=model), holds_embedding=True)
    assert named(rows, "head_transform").parameters == HIDDEN * HIDDEN + 3 * HIDDEN


@pytest.mark.parametrize("tp_size", [1, 2, 8])
def test_a_stage_sends_each_rank_its_share(tp_size: int) -> None:
    shape = stage_send(share(PREFILL, tp_size=tp_size)).shape
    assert isinstance(shape, CollectiveShape)
    assert (shape.operation, shape.participants) == (Collective.P2P, 2)
    assert shape.message_bytes[0] == 150 * HIDDEN * 2 / tp_size


def test_parallel_streams_all_travel() -> None:
    model = changed(hyper_connections=HyperConnectionSpec(streams=4, sinkhorn_iterations=1))
    plain, hyper = (stage_send(share(PREFILL, model=item)).shape for item in (SMALL, model))
    assert isinstance(plain, CollectiveShape)
    assert isinstance(hyper, CollectiveShape)
    assert np.all(hyper.message_bytes == 4 * plain.message_bytes)
    assert names(embedding_rows(share(PREFILL, model=model), tokens=PREFILL.new_tokens))[-1] == "hyper_expand"
    assert names(head_rows(share(PREFILL, model=model), holds_embedding=True))[:2] == [
        "hyper_head_weights",
        "hyper_head_gather",
    ]


def test_an_unfinished_chunk_multiplies_no_logits() -> None:
    step = mixed_step(prefill_sequences=1, prefill_tokens=512, prefill_logits=0)
    rows = head_rows(share(step), holds_embedding=True)
    assert named(rows, "lm_head").flops[0] == 0
    assert named(rows, "lm_head").weight_bytes[0] == 0
    assert named(rows, "sampling").activation_bytes[0] == 0


def test_families_name_the_ends() -> None:
    step = prefill_step(sequences=1.0, tokens=8.0)
    assert embedding_rows(share(step), tokens=step.new_tokens)[0].family is Family.EMBEDDING
    assert named(head_rows(share(step), holds_embedding=True), "lm_head").family is Family.LM_HEAD
