"""Model profiles through the operator list: conservation and limits on every fifth checkpoint."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.model_counts import parameter_counts, total_flops
from simulator.operators.parallelism import allowed_tp_sizes, kv_bytes_per_sequence, kv_bytes_per_token, kv_layout
from simulator.operators.transformer import is_encoder_only, operator_list, stored_bytes
from simulator.operators.work import CollectiveShape, GemmShape, MoeShape, StepShape, Work, decode_step, prefill_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.loading import list_models, load_model
from simulator.specs.model.precision import PrecisionSpec
from tests.for_every import for_every

NAMES = list_models()[::5]


@cache
def model_of(name: str) -> ModelSpec:
    return load_model(name)


def decoders() -> list[str]:
    """Profiles that generate and have no encoder before that."""
    return [name for name in NAMES if model_of(name).encoder is None and not is_encoder_only(model_of(name))]


def rows(name: str, step: StepShape, *, tp_size: int = 1, pp_size: int = 1, stage: int = 0) -> tuple[Work, ...]:
    model = model_of(name)
    return operator_list(
        model,
        parallelism=ParallelismSpec(tp_size=tp_size, pp_size=pp_size),
        plan=precision_plan(model, PrecisionSpec()),
        step=step,
        stage=stage,
    )


class TestEveryProfile:
    @for_every(NAMES)
    def test_a_token_multiplies_its_active_products_once(self, name: str) -> None:
        """2 FLOPs a weight that it passes, at most: tables are looked up, and what is not a product is not counted."""
        works = rows(name, prefill_step(sequences=1.0, tokens=1.0))
        products = sum(
            float(work.count * work.flops[0]) for work in works if isinstance(work.shape, GemmShape | MoeShape)
        )
        counts = parameter_counts(model_of(name))
        tied = model_of(name).vocab_size * model_of(name).hidden_size
        assert 0 < products <= 2 * (counts.active + tied) * 1.3
        assert counts.active <= counts.total

    @for_every(NAMES)
    def test_flops_are_those_of_tokens_in_any_grouping(self, name: str) -> None:
        together = total_flops(rows(name, prefill_step(sequences=6.0, tokens=32.0)))[0]
        apart = total_flops(rows(name, prefill_step(sequences=2.0, tokens=32.0)))[0]
        assert together == pytest.approx(3 * apart)

    @for_every(NAMES)
    def test_every_figure_is_finite_and_not_negative(self, name: str) -> None:
        for work in rows(name, prefill_step(sequences=[0.0, 1.0, 4.0], tokens=[0.0, 7.0, 64.0])):
            for figure in (work.flops, work.weight_bytes, work.kv_bytes, work.activation_bytes):
                assert np.all(np.isfinite(figure)), work.name
                assert np.all(figure >= 0), work.name

    @for_every(NAMES)
    def test_weights_are_stored_whatever_the_step(self, name: str) -> None:
        short = stored_bytes(rows(name, prefill_step(sequences=1.0, tokens=1.0)))
        long = stored_bytes(rows(name, prefill_step(sequences=8.0, tokens=512.0)))
        assert short == pytest.approx(long)

    @for_every(NAMES)
    def test_ranks_together_hold_at_least_the_model(self, name: str) -> None:
        whole = stored_bytes(rows(name, prefill_step(sequences=1.0, tokens=1.0)))
        for size in allowed_tp_sizes(model_of(name))[1:4]:
            works = rows(name, prefill_step(sequences=1.0, tokens=1.0), tp_size=size)
            each = stored_bytes(works)
            assert whole / size <= each * (1 + 1e-9)
            assert each < whole
            assert any(isinstance(work.shape, CollectiveShape) for work in works)


class TestEveryDecoder:
    @for_every(decoders)
    def test_a_cache_grows_with_its_context_and_is_shared_by_ranks(self, name: str) -> None:
        model = model_of(name)
        plan = precision_plan(model, PrecisionSpec())
        context = np.array([1.0, 100.0, 1000.0, 10_000.0])
        kept = kv_bytes_per_sequence(model, plan=plan, tp_size=1, context_tokens=context)
        assert np.all(np.diff(kept) >= 0)
        for size in allowed_tp_sizes(model)[1:3]:
            shared = kv_bytes_per_sequence(model, plan=plan, tp_size=size, context_tokens=context)
            assert np.all(shared <= kept * (1 + 1e-9))
            assert np.all(shared >= kept / size * (1 - 1e-9))

    @for_every(decoders)
    def test_a_token_adds_what_its_layers_keep(self, name: str) -> None:
        model = model_of(name)
        plan = precision_plan(model, PrecisionSpec())
        layers = kv_layout(model, plan=plan, tp_size=1)
        per_token = sum(group.layers * group.bytes_per_token for group in layers)
        assert kv_bytes_per_token(model, plan=plan, tp_size=1) == pytest.approx(per_token)
        if all(group.window is None for group in layers):
            one, two = kv_bytes_per_sequence(model, plan=plan, tp_size=1, context_tokens=[500.0, 501.0])
            assert two - one == pytest.approx(per_token)

    @for_every(decoders)
    def test_longer_contexts_cost_attention_and_no_more_weights(self, name: str) -> None:
        short, long = (rows(name, decode_step(sequences=4.0, context=size)) for size in (64.0, 4096.0))
        assert total_flops(long)[0] >= total_flops(short)[0]
        weights = [sum(float(work.count * work.weight_bytes[0]) for work in works) for works in (short, long)]
        assert weights[0] == pytest.approx(weights[1])

    @for_every(decoders)
    def test_a_larger_batch_reads_its_weights_once(self, name: str) -> None:
        one, many = (rows(name, decode_step(sequences=size, context=64.0)) for size in (1.0, 64.0))
        weights = [
            sum(float(work.count * work.weight_bytes[0]) for work in works if isinstance(work.shape, GemmShape))
            for works in (one, many)
        ]
        assert weights[0] == pytest.approx(weights[1])

    @for_every(decoders)
    def test_two_stages_hold_the_model_between_them(self, name: str) -> None:
        if model_of(name).num_hidden_layers < 2:
            return
        step = decode_step(sequences=4.0, context=64.0)
        whole = sum(work.count * work.parameters for work in rows(name, step))
        stages = [rows(name, step, pp_size=2, stage=stage) for stage in (0, 1)]
        parts = sum(work.count * work.parameters for works in stages for work in works)
        model = model_of(name)
        table = model.vocab_size * (model.embedding_size or model.hidden_size) if model.tie_word_embeddings else 0
        assert whole * (1 - 1e-9) <= parts <= whole + table + 1
