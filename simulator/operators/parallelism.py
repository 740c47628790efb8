"""How a model is divided over devices: degrees of parallelism that it allows, layers of a pipeline stage, and what
sequences keep on each device (keys and values per token, bounded by windows, and constant recurrent states)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from simulator.errors import RoofcastError, no_effect
from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.operators.work import Array
from simulator.records import dataclass
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model import architecture as arch


def stage_layers(model: arch.ModelSpec, *, pp_size: int, stage: int) -> range:
    """Depths of the layers of ``stage``: an even split in order, earlier stages taking the remainder."""
    depth = model.num_hidden_layers
    each, left = divmod(depth, pp_size)
    first = stage * each + min(stage, left)
    return range(first, first + each + (1 if stage < left else 0))


@lru_cache(maxsize=256)
def _divisible_counts(layers: tuple[arch.LayerSpec, ...]) -> tuple[frozenset[int], frozenset[int]]:
    """Counts that tp must divide, and KV head counts that it must divide or be a multiple of."""
    exact: set[int] = set()
    replicable: set[int] = set()
    for layer in layers:
        for mixer in (layer.mixer, layer.cross_attention):
            match mixer:
                case arch.AttentionSpec():
                    exact.add(mixer.num_attention_heads)
                    replicable.add(mixer.num_key_value_heads)
                case arch.MlaSpec():
                    exact.add(mixer.num_attention_heads)
                case arch.CompressedAttentionSpec():
                    exact |= {mixer.num_attention_heads, mixer.o_groups}
                case arch.MambaSpec():
                    exact.add(mixer.intermediate_size)
                case None:
                    pass
                case _:
                    exact |= _recurrent_heads(mixer)
        exact |= {block.intermediate_size for block in layer.feed_forward if isinstance(block, arch.MlpSpec)}
    return frozenset(exact), frozenset(replicable)


def _recurrent_heads(mixer: object) -> set[int]:
    names = ("num_heads", "linear_num_key_heads", "linear_num_value_heads")
    return {getattr(mixer, name) for name in names if hasattr(mixer, name)}


@lru_cache(maxsize=256)
def allowed_tp_sizes(model: arch.ModelSpec) -> tuple[int, ...]:
    """Tensor-parallel sizes that engines accept, ascending. Attention heads, recurrent heads and dense intermediate
    sizes split evenly; KV heads split evenly or are replicated evenly."""
    exact, replicable = _divisible_counts(_all_layers(model))
    return tuple(size for size in range(1, min(exact, default=1) + 1) if _splits(size, exact, replicable))


def _all_layers(model: arch.ModelSpec) -> tuple[arch.LayerSpec, ...]:
    return model.layers + (model.encoder.layers if model.encoder else ())


def _splits(size: int, exact: frozenset[int], replicable: frozenset[int]) -> bool:
    return all(count % size == 0 for count in exact) and all(
        count % size == 0 or size % count == 0 for count in replicable
    )


def check_parallelism(model: arch.ModelSpec, parallelism: ParallelismSpec) -> None:
    """Refuse degrees that no engine runs or that would change nothing, naming those allowed."""
    if parallelism.tp_size > 1 and not _splits(parallelism.tp_size, *_divisible_counts(_all_layers(model))):
        raise _refusal("tp_size", parallelism.tp_size, f"{model.name} splits over", allowed_tp_sizes(model))
    depth = model.num_hidden_layers if model.encoder is None else 1
    if parallelism.pp_size > depth:
        why = "its layers allow at most" if model.encoder is None else "encoder-decoder models run on one stage:"
        raise _refusal("pp_size", parallelism.pp_size, why, (depth,))
    if parallelism.ep_size > 1:
        _check_experts(model, parallelism)
    if parallelism.cp_size > 1 and not _shares_context(model):
        raise _refusal("cp_size", parallelism.cp_size, f"{model.name} keeps more than keys and values; allowed:", (1,))


def _shares_context(model: arch.ModelSpec) -> bool:
    """Whether every layer attends to all cached tokens or a window, so that ranks can share keys and values."""
    return model.encoder is None and all(
        layer.cross_attention is None
        and isinstance(layer.mixer, arch.AttentionSpec | arch.MlaSpec)
        and layer.mixer.indexer is None
        and getattr(layer.mixer, "kept", None) is None
        for layer in model.layers
    )


def _check_experts(model: arch.ModelSpec, parallelism: ParallelismSpec) -> None:
    experts = [
        block.num_experts for layer in model.layers for block in layer.feed_forward if isinstance(block, arch.MoeSpec)
    ]
    if not experts:
        raise no_effect(
            f"{model.name} has no experts to spread over {parallelism.ep_size} devices",
            field="ep_size",
            hint="leave ep_size at 1",
        )
    devices = parallelism.tp_size * parallelism.dp_size
    # Where experts do not divide, copies of some fill the last places, as engines that balance experts place them.
    allowed = tuple(size for size in range(1, min(devices, *experts) + 1) if devices % size == 0)
    if parallelism.ep_size not in allowed:
        raise _refusal("ep_size", parallelism.ep_size, f"tp_size x dp_size = {devices} and the experts allow", allowed)


def _refusal(field: str, value: int, why: str, allowed: Iterable[int]) -> RoofcastError:
    return RoofcastError(
        f"{value} is not possible; {why} {', '.join(str(size) for size in allowed)}",
        field=field,
        code="invalid_parallelism",
        hint="take one of the allowed values",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayers:
    """``layers`` equal layers of one device: bytes of one token in one layer, at most ``window`` tokens kept."""

    layers: int
    bytes_per_token: float
    window: float | None

    @property
    def bytes(self) -> float:
        """One token in all of them [bytes]."""
        return self.layers * self.bytes_per_token


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
    largest = largest_kv_stage(model, plan=plan, tp_size=tp_size, pp_size=pp_size)
    return sum(group.bytes for group in largest) / cp_size


def largest_kv_stage(
    model: arch.ModelSpec, *, plan: PrecisionPlan, tp_size: int, pp_size: int = 1
) -> tuple[KvLayers, ...]:
    """Cached layers of a device of the stage whose tokens take most."""
    stages = _stages(model, plan=plan, tp_size=tp_size, pp_size=pp_size)
    return max(stages, key=lambda groups: sum(group.bytes for group in groups))


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
