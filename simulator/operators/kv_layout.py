"""What sequences keep on a device: keys and values per token, bounded by windows, and constant recurrent states."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.operators.parallelism import stage_layers
from simulator.operators.work import Array
from simulator.records import dataclass
from simulator.specs.model import architecture as arch


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayers:
    """``layers`` equal layers of one device: bytes of one token in one layer, at most ``window`` tokens kept."""

    layers: int
    bytes_per_token: float
    window: float | None


def kv_layout(
    model: arch.ModelSpec, *, plan: PrecisionPlan, tp_size: int, pp_size: int = 1, stage: int = 0
) -> tuple[KvLayers, ...]:
    """Cached layers of one device of ``stage``; KV heads are split over tp or replicated, latents replicated."""
    order = [model.layer_order[depth] for depth in stage_layers(model, pp_size=pp_size, stage=stage)]
    groups = []
    for index, layer in enumerate(model.layers):
        count = order.count(index)
        per_token, window = _layer_bytes(layer, plan=plan, tp_size=tp_size)
        if count and per_token:
            groups.append(KvLayers(layers=count, bytes_per_token=per_token, window=window))
    return tuple(groups)


def kv_bytes_per_token(
    model: arch.ModelSpec, *, plan: PrecisionPlan, tp_size: int, pp_size: int = 1, cp_size: int = 1
) -> float:
    """Bytes that one token adds to the cache of a device of the largest stage while no window is full [bytes].

    Equation
    --------
    dense: 2 x layers x KV heads x head_dim x e / (tp cp)
    latent (MLA): layers x (kv_lora_rank + qk_rope_head_dim) x e / cp on every tensor-parallel rank

    Parameters
    ----------
    model : layers, KV heads and their widths [-]
    plan : bytes e of a cached number [bytes]
    tp_size, pp_size, cp_size : ranks that share the KV heads, stages that share the layers, ranks that share the
        tokens [-]

    Range of validity
    -----------------
    KV heads are replicated where there are fewer of them than ranks. Cross attention keeps as much per source token as
    self attention per token, so that a source and an answer together are one context. Leaves out recurrent states and
    what the last block of a sequence wastes.

    References
    ----------
    [Kwon2023], [DeepSeek2024a]

    Examples
    --------
    Llama 3.1 8B in bf16: 2 x 32 layers x 8 heads x 128 x 2 bytes.

    >>> from simulator.operators.formats.tensor_formats import precision_plan
    >>> from simulator.specs.model.loading import load_model
    >>> from simulator.specs.model.precision import PrecisionSpec
    >>> model = load_model("llama-3.1-8b")
    >>> kv_bytes_per_token(model, plan=precision_plan(model, PrecisionSpec()), tp_size=1)
    131072.0
    """
    stages = _stages(model, plan=plan, tp_size=tp_size, pp_size=pp_size)
    return max(sum(group.layers * group.bytes_per_token for group in groups) for groups in stages) / cp_size


def kv_bytes_per_sequence(
    model: arch.ModelSpec,
    *,
    plan: PrecisionPlan,
    tp_size: int,
    context_tokens: ArrayLike,
    pp_size: int = 1,
    cp_size: int = 1,
) -> Array:
    """Bytes of one sequence of ``context_tokens`` tokens (array) on a device of the largest stage. Layers with a window
    keep at most that many tokens; recurrent states come on top, however short the sequence."""
    context = np.atleast_1d(np.asarray(context_tokens, dtype=np.float64))
    totals = []
    for stage, groups in enumerate(_stages(model, plan=plan, tp_size=tp_size, pp_size=pp_size)):
        total = np.full_like(context, _stage_state(model, plan=plan, tp_size=tp_size, pp_size=pp_size, stage=stage))
        for group in groups:
            kept = context if group.window is None else np.minimum(context, group.window)
            total = total + group.layers * group.bytes_per_token * kept / cp_size
        totals.append(total)
    largest: Array = np.max(np.stack(totals), axis=0)
    return largest


def state_bytes_per_sequence(model: arch.ModelSpec, *, plan: PrecisionPlan, tp_size: int, pp_size: int = 1) -> float:
    """Bytes of a sequence's recurrent states, windows and open pools on a device of the largest stage."""
    return max(
        _stage_state(model, plan=plan, tp_size=tp_size, pp_size=pp_size, stage=stage) for stage in range(pp_size)
    )


def _stages(model: arch.ModelSpec, *, plan: PrecisionPlan, tp_size: int, pp_size: int) -> list[tuple[KvLayers, ...]]:
    return [kv_layout(model, plan=plan, tp_size=tp_size, pp_size=pp_size, stage=stage) for stage in range(pp_size)]


def _layer_bytes(layer: arch.LayerSpec, *, plan: PrecisionPlan, tp_size: int) -> tuple[float, float | None]:
    """Bytes per token of one layer, and its window."""
    match layer.mixer:
        case arch.MlaSpec() as mla:
            return (mla.kv_lora_rank + mla.qk_rope_head_dim) * plan.kv_bytes + _index_bytes(mla.indexer), None
        case arch.CompressedAttentionSpec() as compressed:
            from simulator.operators.compressed import compressed_token_bytes

            return compressed_token_bytes(compressed, plan=plan), None
        case arch.AttentionSpec() as attention if attention.causal and not attention.shares_kv_with_previous:
            heads = max(1.0, attention.num_key_value_heads / tp_size)
            per_token = heads * (attention.head_dim + attention.value_dim) * plan.kv_bytes
            bounds = [attention.sliding_window, attention.kept and attention.kept.budget_tokens]
            window = min((float(bound) for bound in bounds if bound), default=None)
            per_token += _index_bytes(attention.indexer) + _score_bytes(attention, kv_heads=heads)
            share = attention.kept.budget_fraction if attention.kept else None
            return per_token * (1.0 if share is None else share), window
        case _:
            return 0.0, None


def _index_bytes(indexer: arch.IndexerSpec | None) -> float:
    if indexer is None:
        return 0.0
    from simulator.operators.kept_tokens import index_key_bytes

    return index_key_bytes(indexer)


def _score_bytes(attention: arch.AttentionSpec, *, kv_heads: float) -> float:
    if attention.kept is None:
        return 0.0
    from simulator.operators.kept_tokens import score_bytes

    return score_bytes(attention, kv_heads=kv_heads)


def _stage_state(model: arch.ModelSpec, *, plan: PrecisionPlan, tp_size: int, pp_size: int, stage: int) -> float:
    order = [model.layer_order[depth] for depth in stage_layers(model, pp_size=pp_size, stage=stage)]
    return sum(
        _layer_state(layer.mixer, model=model, plan=plan, tp_size=tp_size) * order.count(index)
        for index, layer in enumerate(model.layers)
    )


def _layer_state(mixer: arch.Mixer | None, *, model: arch.ModelSpec, plan: PrecisionPlan, tp_size: int) -> float:
    """What a layer keeps of a sequence whatever its length [bytes]; only the kinds that a model has are loaded."""
    match mixer:
        case None | arch.AttentionSpec() | arch.MlaSpec():
            return 0.0
        case arch.CompressedAttentionSpec():
            from simulator.operators.compressed import compressed_state_bytes

            return compressed_state_bytes(mixer, plan=plan)
        case _:
            from simulator.operators.recurrent import recurrent_size, state_bytes

            size = recurrent_size(mixer, hidden_size=model.hidden_size, tp_size=tp_size)
            return state_bytes(size, element_bytes=plan.activation_bytes)
