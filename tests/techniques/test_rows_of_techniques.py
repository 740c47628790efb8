"""``simulator.techniques.applied``, ``simulator.techniques.applied``: a device's rows after each technique."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.model_counts import parameter_counts, total_flops
from simulator.operators.parallelism import kv_bytes_per_sequence
from simulator.operators.transformer import stored_bytes
from simulator.operators.work import (
    Collective,
    CollectiveShape,
    HostTransferShape,
    StepShape,
    Work,
    decode_step,
    prefill_step,
)
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.techniques import TechniquesSpec
from simulator.techniques.applied import (
    AppliedTechniques,
    check_budget,
    check_on_engine,
    device_rows,
    shares_prefixes,
    with_rule,
)
from simulator.techniques.kv_compression import SINK_TOKENS
from simulator.techniques.registry import TECHNIQUES, apply_techniques, technique_of
from simulator.techniques.sequence_parallel import SplitTokens
from simulator.techniques.sparsity import CHANNEL_STEP, SPARSE_ROLES
from simulator.techniques.speculation.drafters import XEON_8480C, PredictionHeads, draft_layer_model
from simulator.techniques.weight_offload import OFFLOADED_ROLES, OffloadedWeights
from tests.operators.operator_models import ENCODER_DECODER, LLAMA_2_7B, LLAMA_31_8B, MIXTRAL_8X7B, deepseek

H100 = load_hardware("h100")
FEW = settings(max_examples=15, deadline=None)
DECODE, PREFILL = decode_step(sequences=4.0, context=512.0), prefill_step(sequences=1.0, tokens=256.0)


def applied(model: ModelSpec = LLAMA_31_8B, **techniques: object) -> AppliedTechniques:
    spec = TechniquesSpec.model_validate(techniques)
    return apply_techniques(spec, model=model, plan=precision_plan(model, PrecisionSpec()), hardware=H100)


def rows(
    step: StepShape, model: ModelSpec = LLAMA_31_8B, *, tp_size: int = 1, **techniques: object
) -> tuple[Work, ...]:
    return device_rows(applied(model, **techniques), parallelism=ParallelismSpec(tp_size=tp_size), step=step)


def figures(works: tuple[Work, ...]) -> tuple[float, float, float, float]:
    """FLOPs, bytes read and written, weights held, launches."""
    return (
        float(total_flops(works)[0]),
        float(sum(work.count * work.bytes[0] for work in works)),
        stored_bytes(works),
        sum(work.count for work in works),
    )


def test_nothing_asked_for_changes_nothing() -> None:
    plain = applied()
    assert plain.rules == ()
    assert plain.model is LLAMA_31_8B
    assert (plain.assumptions, plain.notes, plain.prefix_tokens) == ((), (), 0)
    assert figures(rows(DECODE)) == figures(rows(DECODE, attention="flash"))


def test_every_technique_stands_once_in_the_order() -> None:
    assert len(set(TECHNIQUES)) == len(TECHNIQUES)
    for technique in map(technique_of, TECHNIQUES):
        plain = applied()
        assert technique(plain, H100) is plain or technique(plain, H100) == plain


def test_rules_are_applied_in_their_order() -> None:
    seen: list[str] = []

    def rule(name: str) -> object:
        def apply(works: tuple[Work, ...], context: object) -> tuple[Work, ...]:
            seen.append(name)
            return works

        return apply

    both = with_rule(with_rule(applied(), rule("first")), rule("second"))  # type: ignore[arg-type]
    device_rows(both, parallelism=ParallelismSpec(), step=DECODE)
    assert seen == ["first", "second"]


@pytest.mark.parametrize("tp_size", [2, 4, 8])
def test_split_tokens_halve_every_sum_and_keep_its_bytes(tp_size: int) -> None:
    plain = rows(PREFILL, tp_size=tp_size)
    split = rows(PREFILL, tp_size=tp_size, sequence_parallel=True)

    def messages(works: tuple[Work, ...], operation: Collective) -> float:
        return sum(
            work.count * float(work.shape.message_bytes[0])
            for work in works
            if isinstance(work.shape, CollectiveShape) and work.shape.operation is operation
        )

    reduced = messages(plain, Collective.ALL_REDUCE)
    assert messages(split, Collective.ALL_REDUCE) == 0
    assert messages(split, Collective.REDUCE_SCATTER) == reduced
    assert messages(split, Collective.ALL_GATHER) - messages(plain, Collective.ALL_GATHER) == reduced
    assert stored_bytes(split) == stored_bytes(plain)


def test_split_tokens_on_one_rank_are_refused_when_rows_are_made() -> None:
    with pytest.raises(RoofcastError) as refused:
        rows(PREFILL, sequence_parallel=True)
    assert refused.value.code == "no_effect"
    assert isinstance(applied(sequence_parallel=True).rules[0], SplitTokens)


@FEW
@given(fraction=st.floats(0.01, 1.0))
def test_what_leaves_the_device_crosses_the_link(fraction: float) -> None:
    plain, moved = rows(DECODE), rows(DECODE, weight_offload=fraction)
    copy = moved[-1]
    assert isinstance(copy.shape, HostTransferShape)
    layers = sum(work.count * float(work.weight_bytes[0]) for work in plain if work.role in OFFLOADED_ROLES)
    assert copy.shape.bytes[0] == pytest.approx(fraction * layers)
    held = sum(work.count * work.stored_bytes for work in plain if work.role in OFFLOADED_ROLES)
    assert stored_bytes(plain) - stored_bytes(moved) == pytest.approx(fraction * held)
    assert isinstance(applied(weight_offload=fraction).rules[0], OffloadedWeights)


@pytest.mark.parametrize(("pattern", "bits"), [("2:4", 0.5 + 2 / 16)])
def test_two_of_four_stores_half_and_two_bits_for_each_kept_weight(pattern: str, bits: float) -> None:
    """Of 16-bit weights: 8 bits of values and 2 bits of place for every two: 9/16 with rounding to what is stored."""
    plain, sparse = applied(), applied(sparsity=pattern)
    for role in ("attention", "mlp"):
        dense_bits, sparse_bits = plain.plan.format_for(role).weight_bits, sparse.plan.format_for(role).weight_bits
        assert 0.5 < sparse_bits / dense_bits <= bits
    assert sparse.plan.format_for("lm_head") == plain.plan.format_for("lm_head")
    assert "lm_head" not in SPARSE_ROLES


@pytest.mark.parametrize("target", ["heads", "channels", "layers"])
@pytest.mark.parametrize("fraction", [0.25, 0.5])
def test_structured_pruning_takes_about_its_share_of_what_it_prunes(target: str, fraction: float) -> None:
    pruned = applied(sparsity={"pattern": "structured", "fraction": fraction, "target": target}).model
    spec, plain = pruned.layers[0], LLAMA_31_8B.layers[0]
    assert pruned.num_hidden_layers == (round(32 * (1 - fraction)) if target == "layers" else 32)
    if target == "heads":
        assert spec.mixer.num_attention_heads == 32 * (1 - fraction)  # type: ignore[union-attr]
        assert spec.mixer.num_key_value_heads == 8 * (1 - fraction)  # type: ignore[union-attr]
    if target == "channels":
        width = spec.feed_forward[0].intermediate_size  # type: ignore[union-attr]
        assert width % CHANNEL_STEP == 0
        assert width == 14336 * (1 - fraction)
    assert parameter_counts(pruned).total < parameter_counts(LLAMA_31_8B).total
    assert spec.norms == plain.norms


def test_pruned_layers_are_spread_and_keep_both_ends() -> None:
    model = deepseek()
    pruned = applied(model, sparsity={"pattern": "structured", "fraction": 0.5, "target": "layers"}).model
    assert pruned.layer_order[0] == model.layer_order[0]
    assert pruned.layer_order[-1] == model.layer_order[-1]


@FEW
@given(budget=st.integers(8, 2000), context=st.integers(1, 8000))
def test_a_bounded_cache_keeps_its_budget(budget: int, context: int) -> None:
    for method in ("window", "h2o", "streaming"):
        model = applied(kv_policy={"method": method, "budget_tokens": budget}).model
        plan = precision_plan(model, PrecisionSpec())
        kept = kv_bytes_per_sequence(model, plan=plan, tp_size=1, context_tokens=float(context))[0]
        full = kv_bytes_per_sequence(LLAMA_31_8B, plan=plan, tp_size=1, context_tokens=float(min(context, budget)))[0]
        scores = 32 * 8 * 4 * min(context, budget) if method == "h2o" else 0
        assert kept == pytest.approx(full + scores)


@pytest.mark.parametrize("budget", [1, SINK_TOKENS])
def test_streaming_needs_room_beside_its_sinks(budget: int) -> None:
    with pytest.raises(RoofcastError) as refused:
        applied(kv_policy={"method": "streaming", "budget_tokens": budget})
    assert refused.value.code == "contradiction"


def test_a_budget_that_holds_everything_is_refused() -> None:
    spec = TechniquesSpec.model_validate({"kv_policy": {"method": "h2o", "budget_tokens": 4096}})
    check_budget(spec.kv_policy, longest_tokens=4097)
    check_budget(None, longest_tokens=1)
    with pytest.raises(RoofcastError) as refused:
        check_budget(spec.kv_policy, longest_tokens=4096)
    assert refused.value.code == "no_effect"


def test_latents_have_no_tokens_to_drop() -> None:
    with pytest.raises(RoofcastError, match="latent"):
        applied(deepseek(), kv_policy={"method": "window", "budget_tokens": 128})


@pytest.mark.parametrize(("method", "shared"), [("window", True), ("h2o", False), ("streaming", False)])
def test_choices_of_ones_own_share_no_prefix(method: str, shared: bool) -> None:
    spec = TechniquesSpec.model_validate({"kv_policy": {"method": method, "budget_tokens": 128}})
    assert shares_prefixes(spec) is shared
    assert shares_prefixes(TechniquesSpec())


@pytest.mark.parametrize("fused", [True, False])
def test_asking_an_engine_for_what_it_does_is_refused(fused: bool) -> None:
    spec = TechniquesSpec(fusion=fused)
    check_on_engine(spec, engine="vllm", fused=not fused, max_model_len=4096, ep_size=1)
    with pytest.raises(RoofcastError) as refused:
        check_on_engine(spec, engine="vllm", fused=fused, max_model_len=4096, ep_size=1)
    assert refused.value.field == "techniques.fusion"


@pytest.mark.parametrize("rank", [4, 16, 64])
def test_low_rank_adapters_add_their_rank_to_both_sides(rank: int) -> None:
    plain, adapted = rows(DECODE, LLAMA_2_7B), rows(DECODE, LLAMA_2_7B, adapters={"method": "lora", "rank": rank})
    h, inner = 4096, 11008
    each = rank * (4 * (h + h) + 3 * (h + inner))
    assert stored_bytes(adapted) - stored_bytes(plain) == pytest.approx(32 * each * 2)
    assert total_flops(adapted)[0] - total_flops(plain)[0] == pytest.approx(2 * 4 * 32 * each)


@pytest.mark.parametrize("count", [1, 3, 5])
@pytest.mark.parametrize("own_vocabulary", [True, False])
def test_heads_beside_the_head(count: int, own_vocabulary: bool) -> None:
    heads = PredictionHeads(count=count, own_vocabulary=own_vocabulary, every_token=False)
    plain = rows(DECODE, LLAMA_2_7B)
    more = device_rows(with_rule(applied(LLAMA_2_7B), heads), parallelism=ParallelismSpec(), step=DECODE)
    h, vocab = 4096, 32000
    blocks = count * (1 if own_vocabulary else 2) * (h * h + h)
    own = count * h * vocab if own_vocabulary else 0
    assert stored_bytes(more) - stored_bytes(plain) == 2 * (blocks + own)
    # Every head multiplies the vocabulary, its own or the model's.
    flops = 2 * 4 * (count * (1 if own_vocabulary else 2) * h * h + count * h * vocab)
    assert total_flops(more)[0] - total_flops(plain)[0] == flops


def test_a_draft_layer_is_the_targets_last() -> None:
    draft = draft_layer_model(MIXTRAL_8X7B)
    assert draft.num_hidden_layers == 1
    assert draft.layers == (MIXTRAL_8X7B.layers[MIXTRAL_8X7B.layer_order[-1]],)
    last = draft_layer_model(deepseek())
    assert last.layers == (deepseek().layers[1],)
    with pytest.raises(RoofcastError):
        draft_layer_model(ENCODER_DECODER)


def test_one_socket_reads_a_billion_16_bit_weights_in_under_seven_milliseconds() -> None:
    """8 channels of DDR5-4800 move 307 GB/s."""
    seconds = XEON_8480C.seconds(flops=np.array([2e9]), weight_bytes=np.array([2e9]))
    assert XEON_8480C.memory_bytes_per_s == pytest.approx(307.2e9)
    assert seconds[0] == pytest.approx(2e9 / 307.2e9)
    assert seconds[0] < 7e-3


@pytest.mark.parametrize("kept", [8, 16, 24])
def test_a_shallower_model_holds_its_layers_share(kept: int) -> None:
    model = applied(structure={"layers_fraction": kept / 32}).model
    assert model.num_hidden_layers == kept
    each = (parameter_counts(LLAMA_31_8B).total - parameter_counts(model).total) / (32 - kept)
    assert each == pytest.approx(218_112_000, rel=1e-6)  # one layer of Llama-3.1-8B


@pytest.mark.parametrize("kv_heads", [1, 2, 4, 16, 32])
def test_the_cache_follows_the_kv_heads(kv_heads: int) -> None:
    model = applied(structure={"num_key_value_heads": kv_heads}).model
    plan = precision_plan(model, PrecisionSpec())
    assert kv_bytes_per_sequence(model, plan=plan, tp_size=1, context_tokens=1.0)[0] == 32 * kv_heads * 2 * 128 * 2


def test_fusion_saves_bytes_and_no_flops() -> None:
    fused, apart = (rows(DECODE, fusion=fusion) for fusion in (True, False))
    assert total_flops(fused)[0] == total_flops(apart)[0]
    assert figures(fused)[1] < figures(apart)[1]
    assert stored_bytes(fused) == stored_bytes(apart)
