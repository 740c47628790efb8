"""Laws of the operator list: shards, stages, batches, phases; hand numbers; refusals."""

from __future__ import annotations

from typing import get_args, get_type_hints

import numpy as np
import pytest

from simulator.errors import RoofcastError
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.model_counts import model_flops, parameter_counts, total_flops
from simulator.operators.parallelism import allowed_tp_sizes, stage_layers
from simulator.operators.transformer import operator_list, stored_bytes
from simulator.operators.work import (
    Array,
    Collective,
    CollectiveShape,
    ElementwiseShape,
    Family,
    GemmShape,
    KernelShape,
    StepShape,
    Work,
    decode_step,
    mixed_step,
    prefill_step,
)
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.units import GIGA
from tests.for_every import for_every
from tests.operators import operator_models as models

MIXED = mixed_step(
    prefill_sequences=[1, 2], prefill_tokens=[512, 100], prefill_context=[0, 300], decode_sequences=[16, 3],
    decode_context=[700, 4000],
)  # fmt: skip
SHARDED = (Family.GEMM, Family.PREFILL_ATTENTION, Family.DECODE_ATTENTION, Family.MOE, Family.LM_HEAD)
# Rows that every rank repeats or whose bias it does: routers, latents' down projections, the indexer, Mamba's steps.
REPLICATED = {
    "router", "q_a_kv_a_proj", "index_q_proj", "index_k_proj", "index_scores", "mixer_x_proj", "mixer_dt_proj",
}  # fmt: skip


def rows_of(
    model: ModelSpec,
    step: StepShape = MIXED,
    *,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    dp: int = 1,
    stage: int = 0,
    scheme: str | None = None,
    fused: bool = True,
) -> tuple[Work, ...]:
    return operator_list(
        model,
        parallelism=ParallelismSpec(tp_size=tp, pp_size=pp, ep_size=ep, dp_size=dp),
        plan=precision_plan(model, PrecisionSpec(scheme=scheme)),
        step=step,
        stage=stage,
        fused=fused,
    )


def summed(rows: tuple[Work, ...], quantity: str) -> np.ndarray:
    return sum(
        row.count * getattr(row, quantity) for row in rows if row.family in SHARDED and row.name not in REPLICATED
    )


@pytest.mark.parametrize("model", models.ALL, ids=lambda model: model.name)
@pytest.mark.parametrize("tp", [2, 4])
def test_tensor_parallel_shards_add_up(model: ModelSpec, tp: int) -> None:
    """FLOPs and weight bytes of the split rows over all ranks are those of one device."""
    whole, shard = rows_of(model), rows_of(model, tp=tp)
    for quantity in ("flops", "weight_bytes", "parameters"):
        assert tp * summed(shard, quantity) == pytest.approx(summed(whole, quantity), rel=1e-12)


@pytest.mark.parametrize(
    ("model", "pp"),
    [(model, pp) for model in models.ALL[:-1] for pp in (2, 3)] + [(models.ENCODER_ONLY, 2)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_pipeline_stages_add_up(model: ModelSpec, pp: int) -> None:
    """FLOPs, bytes and parameters of all stages are those of one device, plus the sends between them."""
    step = prefill_step(sequences=2, tokens=64) if model is models.ENCODER_ONLY else MIXED
    whole = rows_of(model, step)
    stages = [row for stage in range(pp) for row in rows_of(model, step, pp=pp, stage=stage)]
    for quantity in ("flops", "bytes", "parameters", "active_parameters", "stored_bytes"):
        parts = sum(row.count * getattr(row, quantity) for row in stages)
        assert parts == pytest.approx(sum(row.count * getattr(row, quantity) for row in whole), rel=1e-12)
    sends = [row for row in stages if isinstance(row.shape, CollectiveShape)]
    assert [row.shape.operation for row in sends] == [Collective.P2P] * (pp - 1)
    assert sends[0].shape.message_bytes.tolist() == (step.new_tokens * model.hidden_size * 2).tolist()


@for_every(models.ALL)
def test_what_is_held_does_not_depend_on_the_step(model: ModelSpec) -> None:
    steps = (MIXED, prefill_step(sequences=1, tokens=128), decode_step(sequences=4, context=100))
    held = [stored_bytes(rows_of(model, step, scheme="fp8-block")) for step in steps]
    assert held == pytest.approx([held[0]] * 3)


@for_every(models.ALL[:-1])
def test_flops_are_linear_in_sequences(model: ModelSpec) -> None:
    one, ten = (total_flops(rows_of(model, decode_step(sequences=n, context=300))) for n in (1, 10))
    assert ten == pytest.approx(10 * one)
    one, ten = (total_flops(rows_of(model, prefill_step(sequences=n, tokens=300))) for n in (1, 10))
    assert ten == pytest.approx(10 * one)


@pytest.mark.parametrize("model", [models.LLAMA_31_8B, models.MIXTRAL_8X7B], ids=lambda model: model.name)
def test_decoding_a_token_is_prefilling_a_token(model: ModelSpec) -> None:
    decode = total_flops(rows_of(model, decode_step(sequences=3, context=501)))
    prefill = total_flops(rows_of(model, prefill_step(sequences=3, tokens=1, context=500)))
    assert decode == pytest.approx(prefill)


@for_every(models.ALL[:-1])
def test_array_answer_is_the_scalar_answers(model: ModelSpec) -> None:
    contexts = [10, 500, 100000]
    together = rows_of(model, decode_step(sequences=5, context=contexts))
    for index, context in enumerate(contexts):
        alone = rows_of(model, decode_step(sequences=5, context=context))
        assert [row.name for row in alone] == [row.name for row in together]
        for one, many in zip(alone, together, strict=True):
            assert one.flops[0] == np.broadcast_to(many.flops, 3)[index]
            assert one.bytes[0] == np.broadcast_to(many.bytes, 3)[index]


def test_dense_model_costs_two_flops_per_parameter_and_token() -> None:
    """2 N T, N without the input embedding, and the attention of 128 tokens (under 2 %)."""
    step = mixed_step(prefill_sequences=1, prefill_tokens=128, prefill_logits=128)
    matrices = 8030261248 - 128256 * 4096
    flops = model_flops(models.LLAMA_31_8B, step)[0]
    assert 1.0 < flops / (2 * matrices * 128) < 1.02
    attention = 32 * 2 * (128 * 129 / 2) * 32 * 2 * 128
    norms = 65 * 4096
    assert flops == 2 * (matrices - norms) * 128 + attention


@pytest.mark.parametrize(
    ("model", "total"),
    [
        (models.LLAMA_2_7B, 6738415616),
        (models.LLAMA_2_13B, 13015864320),
        (models.LLAMA_31_8B, 8030261248),
        (models.LLAMA_31_70B, 70553706496),
        (models.MIXTRAL_8X7B, 46702792704),
        (models.deepseek(), 671026419200),
    ],
)
def test_parameter_totals_are_those_of_the_checkpoints(model: ModelSpec, total: int) -> None:
    """Sizes in the safetensors index of each checkpoint on the hub (DeepSeek-V3 without its prediction layer)."""
    assert parameter_counts(model).total == total


def test_active_parameters_leave_out_idle_experts() -> None:
    """Mixtral: 12.9B active of 46.7B (Jiang et al. 2024: 13B of 47B); DeepSeek-V3: 37B of 671B (its report)."""
    mixtral = parameter_counts(models.MIXTRAL_8X7B)
    idle = 32 * 6 * 3 * 4096 * 14336
    assert mixtral.active == mixtral.total - idle
    assert parameter_counts(models.deepseek()).active / GIGA == pytest.approx(37, rel=0.02)


def test_thirteen_billion_parameters_take_26_gb() -> None:
    assert stored_bytes(rows_of(models.LLAMA_2_13B)) / GIGA == pytest.approx(26.0, rel=0.01)


def test_hand_numbers_of_one_product() -> None:
    """Linear layer h x n, batch b, 16 bit: 2hnb FLOPs over 2(hn + bn + bh) bytes."""
    rows = {row.name: row for row in rows_of(models.LLAMA_31_8B, decode_step(sequences=7, context=10))}
    down = rows["down_proj"]
    h, n, b = 14336, 4096, 7
    assert isinstance(down.shape, GemmShape)
    assert (down.shape.k, down.shape.n, down.shape.m[0]) == (h, n, b)
    assert down.flops[0] == 2 * h * n * b
    assert down.bytes[0] == 2 * (h * n + b * n + b * h)
    assert down.arithmetic_intensity[0] == pytest.approx(2 * h * n * b / (2 * (h * n + b * n + b * h)))
    assert down.count == 32


def test_batch_at_which_a_product_crosses_the_ridge() -> None:
    """A100: 312e12 / 2.039e12 = 153 FLOP/byte; h = n = 4096 reaches it at b = 153 h / (h - 2 * 153) = 165.4."""
    batch = 165.36
    h = 4096
    rows = {row.name: row for row in rows_of(models.LLAMA_2_7B, decode_step(sequences=batch, context=10))}
    assert rows["o_proj"].shape.k == rows["o_proj"].shape.n == h
    assert rows["o_proj"].arithmetic_intensity[0] == pytest.approx(153, rel=1e-3)


def test_all_reduces_carry_the_residual_stream_twice_a_layer() -> None:
    rows = rows_of(models.LLAMA_31_70B, decode_step(sequences=32, context=100), tp=4)
    reduces = [row for row in rows if isinstance(row.shape, CollectiveShape)]
    layers = [row for row in reduces if row.count == 80]
    assert [row.shape.operation for row in layers] == [Collective.ALL_REDUCE] * 2
    assert {row.shape.message_bytes[0] for row in layers} == {32 * 8192 * 2}
    gathers = [row for row in reduces if row.shape.operation is Collective.ALL_GATHER]
    assert [row.shape.message_bytes[0] for row in gathers] == [32 * 128256 * 2]
    assert not [row for row in rows_of(models.LLAMA_31_70B) if isinstance(row.shape, CollectiveShape)]


def test_ranks_add_up_the_squares_of_a_norm_over_all_heads_and_of_no_other() -> None:
    """MiniMax-M2.5 (62 layers) and OLMo 2 norm all heads together, Cohere and Qwen3 each head: two sums of 4 bytes."""
    step = decode_step(sequences=32, context=100)
    for name, sums in (("minimax-m2.5", 62), ("olmo-2-7b", 32), ("command-r-plus", 0), ("qwen3-32b", 0)):
        rows = rows_of(load_model(name), step, tp=4)
        found = [row for row in rows if row.name == "qk_norm_all_reduce"]
        assert sum(row.count for row in found) == sums
        assert {row.shape.message_bytes[0] for row in found} <= {32 * 2 * 4}
        assert not [row for row in rows_of(load_model(name), step) if row.name == "qk_norm_all_reduce"]


@for_every(models.ALL)
def test_unfused_passes_cost_more_bytes_and_launches_and_nothing_else(model: ModelSpec) -> None:
    fused, unfused = rows_of(model), rows_of(model, fused=False)
    assert [row.name for row in fused] == [row.name for row in unfused]
    for one, other in zip(fused, unfused, strict=True):
        if isinstance(one.shape, ElementwiseShape) and isinstance(other.shape, ElementwiseShape):
            assert np.all(other.bytes >= one.bytes)
            assert other.shape.launches >= one.shape.launches
        else:
            assert np.array_equal(one.bytes, other.bytes)
    assert sum(row.count * row.bytes[0] for row in unfused) > sum(row.count * row.bytes[0] for row in fused)


def test_an_elementwise_shape_moves_what_its_row_moves() -> None:
    for row in rows_of(models.HYBRID):
        if isinstance(row.shape, ElementwiseShape) and row.family is not Family.EMBEDDING:
            assert row.shape.bytes == pytest.approx(row.bytes)


def test_encoder_runs_once_and_the_decoder_from_one_token() -> None:
    """Splitting the context into source and answer moves work between the two attentions, not its amount."""
    model = models.ENCODER_DECODER
    prefill = {row.name: row for row in rows_of(model, prefill_step(sequences=2, tokens=50))}
    assert prefill["cross_kv_proj"].shape.m[0] == 100
    assert prefill["cross_q_proj"].shape.m[0] == 2
    split = rows_of(model, decode_step(sequences=2, context=60, source_tokens=50))
    joint = rows_of(model, decode_step(sequences=2, context=60))
    assert {row.name for row in split} - {row.name for row in joint} == {"cross_decode_attention"}
    assert total_flops(split) == pytest.approx(total_flops(joint))


def test_an_encoder_has_no_decode_phase() -> None:
    rows = rows_of(models.ENCODER_ONLY, prefill_step(sequences=3, tokens=20))
    attention = next(row for row in rows if row.family is Family.PREFILL_ATTENTION)
    assert attention.flops[0] == 2 * 3 * 20 * 20 * 8 * 32
    assert sum(row.kv_bytes.sum() for row in rows if row.family is Family.ELEMENTWISE) == 0
    with pytest.raises(RoofcastError, match="no decode phase"):
        rows_of(models.ENCODER_ONLY, decode_step(sequences=1, context=10))


def test_stages_take_the_remainder_first() -> None:
    assert [len(stage_layers(models.LLAMA_31_70B, pp_size=3, stage=stage)) for stage in range(3)] == [27, 27, 26]


def test_tied_head_is_held_once_or_on_both_ends_of_a_pipeline() -> None:
    model = models.dense(hidden=128, layers=4, heads=4, kv_heads=4, intermediate=256, vocab=1000, tied=True)
    one = stored_bytes(rows_of(model))
    two = sum(stored_bytes(rows_of(model, pp=2, stage=stage)) for stage in range(2))
    assert two - one == 1000 * 128 * 2


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"tp": 3}, "tp_size"),
        ({"tp": 128}, "tp_size"),
        ({"pp": 33}, "pp_size"),
        ({"ep": 2}, "ep_size"),
        ({"pp": 2, "stage": 2}, "stage"),
    ],
)
def test_refusals_name_the_field_and_what_is_allowed(options: dict[str, int], field: str) -> None:
    with pytest.raises(RoofcastError) as refusal:
        rows_of(models.LLAMA_31_8B, **options)
    assert refusal.value.field == field


def test_allowed_sizes_split_heads_and_replicate_kv_heads_evenly() -> None:
    assert allowed_tp_sizes(models.LLAMA_31_70B) == (1, 2, 4, 8, 16, 32, 64)
    kv_ten = models.dense(hidden=5120, layers=2, heads=40, kv_heads=10, intermediate=17920, vocab=100)
    assert allowed_tp_sizes(kv_ten) == (1, 2, 5, 10, 20, 40)


@pytest.mark.parametrize(("name", "all_reduces"), [("falcon-40b", 1), ("gpt-neox-20b", 2), ("llama-3.1-8b", 2)])
def test_sublayers_that_are_summed_together_share_one_all_reduce(name: str, all_reduces: int) -> None:
    model = load_model(name)
    blocks = [
        row.count
        for row in rows_of(model, tp=2)
        if row.family is Family.COLLECTIVE and row.name in ("attention_all_reduce", "mlp_all_reduce")
    ]
    assert sum(blocks) == all_reduces * len(model.layer_order)


def test_arrays_of_an_operator_are_fields_of_its_shape() -> None:
    """Who prices some of the cases cuts the fields that are arrays, and would leave arrays within a field whole."""
    for shape in get_args(KernelShape):
        for name, hint in get_type_hints(shape).items():
            assert hint in (Array, Array | None) or "ndarray" not in str(hint), (shape, name)
