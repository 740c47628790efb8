"""Degrees of parallelism: which a model allows, and which layers a pipeline stage has."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from simulator.errors import RoofcastError, no_effect
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
