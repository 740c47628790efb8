"""Techniques one by one on a model and its rows: what each takes away and adds, counted by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from simulator.errors import RoofcastError
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.transformer import stored_bytes
from simulator.operators.work import Collective, CollectiveShape, GemmShape, StepShape, Work, decode_step, prefill_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.architecture import AttentionSpec, MlpSpec
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.techniques import KvPolicySpec, SparsitySpec, TechniquesSpec
from simulator.techniques.applied import (
    AppliedTechniques,
    RowContext,
    check_budget,
    device_rows,
    shares_prefixes,
    with_rule,
)
from simulator.techniques.attention_kernel import attends, score_bytes
from simulator.techniques.kv_compression import bounded_cache
from simulator.techniques.registry import TECHNIQUES, apply_techniques, technique_of
from simulator.techniques.sequence_parallel import SplitTokens
from simulator.techniques.sparsity import pruned_model, sparse_weights
from simulator.techniques.speculation.drafters import (
    XEON_8480C,
    PredictionHeads,
    SequentialHeads,
    draft_layer_model,
    join_features,
)
from simulator.techniques.weight_offload import OffloadedWeights

H100 = load_hardware("h100")
MODEL = load_model("llama-3.1-8b")
PLAN = precision_plan(MODEL, PrecisionSpec())
DECODE = decode_step(sequences=4.0, context=1000.0)


def applied(spec: TechniquesSpec | None = None) -> AppliedTechniques:
    return AppliedTechniques(spec=spec or TechniquesSpec(), model=MODEL, plan=PLAN)


def doubled(rows: tuple[Work, ...], context: RowContext) -> tuple[Work, ...]:
    return rows * 2


def first(rows: tuple[Work, ...], context: RowContext) -> tuple[Work, ...]:
    return rows[:1]


def rows(techniques: AppliedTechniques, *, tp_size: int = 1, step: StepShape = DECODE) -> tuple[Work, ...]:
    return device_rows(techniques, parallelism=ParallelismSpec(tp_size=tp_size), step=step)


def named(works: Sequence[Work], name: str) -> Work:
    return next(work for work in works if work.name == name)


def test_nothing_asked_for_changes_nothing() -> None:
    plain = apply_techniques(TechniquesSpec(), model=MODEL, plan=PLAN, hardware=H100)
    assert plain == applied()
    for technique in map(technique_of, TECHNIQUES):
        assert technique(plain, H100) == plain


def test_rules_come_in_the_order_in_which_they_were_added() -> None:
    plain = rows(applied())
    assert len(rows(with_rule(applied(), doubled))) == 2 * len(plain)
    assert len(rows(with_rule(with_rule(applied(), doubled), first))) == 1
    assert len(rows(with_rule(with_rule(applied(), first), doubled))) == 2


def test_a_bounded_cache_bounds_every_layer_and_may_end_shared_prefixes() -> None:
    policy = KvPolicySpec(method="h2o", budget_tokens=256)
    spec = TechniquesSpec(kv_policy=policy)
    (layer,) = bounded_cache(applied(spec), H100).model.layers
    assert isinstance(layer.mixer, AttentionSpec)
    assert layer.mixer.kept is not None
    assert layer.mixer.kept.budget_tokens == 256
    assert not shares_prefixes(spec)
    assert shares_prefixes(TechniquesSpec(kv_policy=KvPolicySpec(method="window", budget_tokens=256)))
    check_budget(policy, longest_tokens=257)
    with pytest.raises(RoofcastError, match="256 tokens hold the longest sequence"):
        check_budget(policy, longest_tokens=256)


def test_an_all_reduce_becomes_its_halves() -> None:
    whole, halves = rows(applied(), tp_size=2), rows(with_rule(applied(), SplitTokens()), tp_size=2)
    reduced = [row for row in whole if getattr(row.shape, "operation", None) is Collective.ALL_REDUCE]
    operations = [row.shape.operation for row in halves if isinstance(row.shape, CollectiveShape)]
    assert operations.count(Collective.REDUCE_SCATTER) == len(reduced)
    assert Collective.ALL_REDUCE not in operations
    with pytest.raises(RoofcastError, match="changes nothing on one tensor-parallel rank"):
        rows(with_rule(applied(), SplitTokens()))


def test_offloaded_weights_leave_the_memory_and_cross_the_link() -> None:
    plain, half = rows(applied()), rows(with_rule(applied(), OffloadedWeights(fraction=0.5)))
    inside = 32 * (4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336) * 2
    assert stored_bytes(plain) - stored_bytes(half) == pytest.approx(0.5 * inside)
    assert float(half[-1].activation_bytes[0]) == pytest.approx(0.5 * inside)


def test_pruned_channels_stay_in_steps_of_64() -> None:
    smaller = pruned_model(MODEL, SparsitySpec(pattern="structured", fraction=0.5))
    assert smaller.layers[0].feed_forward == (MlpSpec(intermediate_size=7168),)
    assert (
        pruned_model(MODEL, SparsitySpec(pattern="structured", fraction=0.5, target="layers")).num_hidden_layers == 16
    )


def test_two_of_four_weights_take_nine_bits_each_and_the_sparse_rate() -> None:
    sparse = sparse_weights(applied(TechniquesSpec(sparsity=SparsitySpec(pattern="2:4"))), H100)
    product = sparse.plan.format_for("mlp")
    assert (product.weight_bits, product.sparsity) == (9.0, (2, 4))
    assert sparse.plan.format_for("lm_head") == PLAN.format_for("lm_head")
    with pytest.raises(RoofcastError, match="2:4"):
        sparse_weights(applied(TechniquesSpec(sparsity=SparsitySpec(pattern="2:4"))), load_hardware("v100-sxm-32gb"))


def test_a_draft_layer_is_the_last_of_the_target_behind_a_product_of_twice_its_width() -> None:
    layer = draft_layer_model(MODEL)
    assert (layer.num_hidden_layers, layer.hidden_size) == (1, 4096)
    joined = named(rows(with_rule(applied(), join_features)), "feature_proj")
    assert isinstance(joined.shape, GemmShape)
    assert (joined.shape.n, joined.shape.k) == (4096, 8192)


def test_medusa_heads_bring_vocabularies_of_their_own() -> None:
    heads = PredictionHeads(count=3, own_vocabulary=True, every_token=False)
    works = rows(with_rule(applied(), heads), step=prefill_step(sequences=2.0, tokens=10.0))
    added = stored_bytes(works) - stored_bytes(rows(applied()))
    assert added == pytest.approx(3 * (4096 * 4096 + 4096 + 4096 * 128256) * 2, rel=1e-3)
    assert float(np.asarray(named(works, "head_vocabulary").flops).ravel()[0]) == 2 * 2 * 4096 * 128256


def test_hydra_heads_see_the_guesses_before_their_own_behind_a_layer_of_their_own() -> None:
    widths = (1.0, 10.0)
    works = rows(with_rule(applied(), SequentialHeads(widths=widths)))
    first, second = (named(works, f"head_{place}_input").shape for place in (1, 2))
    assert isinstance(first, GemmShape)
    assert isinstance(second, GemmShape)
    assert (first.k, second.k) == (2 * 4096, 3 * 4096)
    np.testing.assert_allclose(second.m, 10 * np.asarray(first.m))
    layer = stored_bytes(tuple(row for row in works if row.name.startswith("head_prefix_")))
    whole = stored_bytes(tuple(row for row in rows(applied()) if row.role in ("attention", "mlp", "norm")))
    assert layer == pytest.approx(whole / MODEL.num_hidden_layers, rel=1e-3)


def test_a_cpu_drafts_at_the_slower_of_its_two_rates() -> None:
    slow = XEON_8480C.seconds(flops=np.array([0.0, 1e15]), weight_bytes=np.array([1e9, 0.0]))
    np.testing.assert_allclose(slow, [1e9 / XEON_8480C.memory_bytes_per_s, 1e15 / XEON_8480C.peak_flops_per_s])


def test_standard_attention_holds_scores_and_probabilities_of_every_head() -> None:
    """32 heads x 10 queries x 20 keys x 2 bytes, twice."""
    assert score_bytes(MODEL, tokens=10.0, keys=20.0, tp_size=1, element_bytes=2.0) == 2 * 32 * 10 * 20 * 2
    assert attends(MODEL)
    assert not attends(load_model("mamba-2.8b"))
