"""``simulator.operators.mla``: expanded at prefill, absorbed at decode; the same answer by two ways of multiplying."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.operators.mla import mla_rows
from simulator.operators.work import AttentionShape, StepShape, Work, decode_step, mixed_step, prefill_step
from simulator.specs.model.architecture import IndexerSpec, MlaSpec
from simulator.specs.model.precision import Dtype, PrecisionSpec
from tests.operators.shares import DECODE, HIDDEN, PREFILL, named, names, share

HEADS, RANK, NOPE, ROPE, VALUE, QUERY_RANK = 8, 64, 32, 16, 24, 96

MLA = MlaSpec(
    num_attention_heads=HEADS,
    q_lora_rank=QUERY_RANK,
    kv_lora_rank=RANK,
    qk_nope_head_dim=NOPE,
    qk_rope_head_dim=ROPE,
    v_head_dim=VALUE,
)
INDEXED = MLA.model_copy(update={"indexer": IndexerSpec(index_n_heads=4, index_head_dim=32, index_topk=16)})


def rows_of(step: StepShape, *, spec: MlaSpec = MLA, tp_size: int = 1) -> tuple[Work, ...]:
    return mla_rows(spec, share=share(step, tp_size=tp_size), count=1)


def held(rows: tuple[Work, ...]) -> float:
    return sum(row.count * row.parameters for row in rows)


PROJECTIONS = (
    HIDDEN * (QUERY_RANK + RANK + ROPE)
    + QUERY_RANK
    + RANK
    + QUERY_RANK * HEADS * (NOPE + ROPE)
    + RANK * HEADS * (NOPE + VALUE)
    + HEADS * VALUE * HIDDEN
)


@pytest.mark.parametrize("step", [PREFILL, DECODE], ids=["prefill", "decode"])
def test_both_forms_hold_the_same_weights(step: StepShape) -> None:
    assert held(rows_of(step)) == PROJECTIONS


def test_prefill_expands_the_latents_and_attends_with_as_many_kv_heads_as_heads() -> None:
    rows = rows_of(PREFILL)
    assert "kv_b_proj" in names(rows)
    assert "q_absorb" not in names(rows)
    shape = named(rows, "prefill_attention").shape
    assert isinstance(shape, AttentionShape)
    assert (shape.num_kv_heads, shape.head_dim, shape.v_head_dim) == (HEADS, NOPE + ROPE, VALUE)
    assert not shape.shared_kv


def test_decode_absorbs_them_and_all_heads_share_one_vector() -> None:
    rows = rows_of(DECODE)
    assert "kv_b_proj" not in names(rows)
    shape = named(rows, "decode_attention").shape
    assert isinstance(shape, AttentionShape)
    assert (shape.num_kv_heads, shape.head_dim, shape.v_head_dim) == (1, RANK + ROPE, RANK)
    assert shape.shared_kv
    # 7 sequences of 100 latents, read once for keys and values together.
    assert named(rows, "decode_attention").kv_bytes[0] == 7 * 100 * (RANK + ROPE) * 2


@given(context=st.integers(1, 4000), sequences=st.integers(1, 64))
def test_absorbing_trades_flops_for_bytes(context: int, sequences: int) -> None:
    """Per token and cached key: 2 (rank + rope + rank) against 2 (nope + rope + value) FLOPs a head."""
    rows = rows_of(decode_step(sequences=float(sequences), context=float(context)))
    attention = named(rows, "decode_attention")
    assert attention.flops[0] == pytest.approx(2 * sequences * context * HEADS * (2 * RANK + ROPE))
    absorbed = named(rows, "q_absorb").flops[0] + named(rows, "v_absorb").flops[0]
    assert absorbed == pytest.approx(2 * sequences * HEADS * RANK * (NOPE + VALUE))


def test_expanding_a_chunk_expands_what_was_cached_before_it() -> None:
    first = named(rows_of(prefill_step(sequences=1.0, tokens=64.0)), "kv_b_proj")
    second = named(rows_of(prefill_step(sequences=1.0, tokens=64.0, context=64.0)), "kv_b_proj")
    assert second.flops[0] == 2 * first.flops[0]
    assert second.flops[0] == 2 * 128 * RANK * HEADS * (NOPE + VALUE)


def test_a_mixed_step_holds_its_weights_once() -> None:
    mixed = mixed_step(prefill_sequences=1, prefill_tokens=10, decode_sequences=4, decode_context=50)
    rows = rows_of(mixed)
    assert {"kv_b_proj", "q_absorb", "v_absorb", "prefill_attention", "decode_attention"} <= set(names(rows))
    assert held(rows) == PROJECTIONS
    assert named(rows, "q_absorb").parameters == 0
    assert named(rows, "q_absorb").weight_bytes[0] > 0


@pytest.mark.parametrize("step", [PREFILL, DECODE], ids=["prefill", "decode"])
@pytest.mark.parametrize("tp_size", [2, 4, 8])
def test_ranks_split_heads_and_copy_the_down_projection(step: StepShape, tp_size: int) -> None:
    copied = HIDDEN * (QUERY_RANK + RANK + ROPE) + QUERY_RANK + RANK
    assert held(rows_of(step, tp_size=tp_size)) == pytest.approx(copied + (PROJECTIONS - copied) / tp_size)
    # The latent is written on every rank.
    written = named(rows_of(step, tp_size=tp_size), "rotary_kv_write").kv_bytes[0]
    assert written == named(rows_of(step), "rotary_kv_write").kv_bytes[0]


def test_without_a_query_latent_the_query_comes_from_the_stream() -> None:
    rows = rows_of(DECODE, spec=MLA.model_copy(update={"q_lora_rank": None}))
    assert "q_b_proj" not in names(rows)
    assert named(rows, "q_kv_a_proj").parameters == HIDDEN * (HEADS * (NOPE + ROPE) + RANK + ROPE)


@pytest.mark.parametrize("step", [PREFILL, DECODE], ids=["prefill", "decode"])
def test_with_an_indexer_both_phases_are_absorbed_and_bounded(step: StepShape) -> None:
    rows = rows_of(step, spec=INDEXED)
    assert "kv_b_proj" not in names(rows)
    name = "prefill_attention" if step is PREFILL else "decode_attention"
    shape = named(rows, name).shape
    assert isinstance(shape, AttentionShape)
    assert shape.window == 16
    assert shape.shared_kv


@pytest.mark.parametrize(("gate", "columns"), [("none", 0), ("headwise", HEADS), ("elementwise", HEADS * VALUE)])
def test_an_output_gate_is_a_projection_more(gate: str, columns: int) -> None:
    rows = rows_of(DECODE, spec=MLA.model_copy(update={"output_gate": gate}))
    assert held(rows) - PROJECTIONS == HIDDEN * columns


def test_biases_stand_on_the_down_and_output_projections() -> None:
    rows = rows_of(DECODE, spec=MLA.model_copy(update={"bias": True}))
    assert held(rows) - PROJECTIONS == QUERY_RANK + RANK + ROPE + HIDDEN


def test_a_narrow_cache_halves_what_decoding_reads() -> None:
    narrow = share(DECODE, precision=PrecisionSpec(kv_cache=Dtype.FP8))
    rows = mla_rows(MLA, share=narrow, count=1)
    assert named(rows, "decode_attention").kv_bytes[0] == 7 * 100 * (RANK + ROPE)


def test_absorbed_weights_keep_the_format_of_the_checkpoint_in_memory() -> None:
    """They are multiplied in 16 bit and stored as kv_b is: half of that in 8 bit."""
    narrow = share(DECODE, precision=PrecisionSpec(weights=Dtype.FP8, activations=Dtype.FP8))
    plain, eight = (mla_rows(MLA, share=item, count=1) for item in (share(DECODE), narrow))
    for name in ("q_absorb", "v_absorb"):
        assert named(eight, name).weight_bytes[0] == named(plain, name).weight_bytes[0]
        assert named(eight, name).stored_bytes == named(plain, name).stored_bytes / 2
