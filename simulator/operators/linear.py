"""Matrix products, what every row of the operator list needs, degrees of parallelism, and communication."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from functools import lru_cache

import numpy as np

from simulator.errors import RoofcastError, no_effect
from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.operators.work import (
    Array,
    Collective,
    CollectiveShape,
    Family,
    GemmShape,
    MatmulFormat,
    StepShape,
    Work,
    on_context_rank,
)
from simulator.records import dataclass
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model import architecture as arch
from simulator.units import BITS_PER_BYTE


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShare:
    """One device's part in a step.

    step : tokens that pass through this stack; source : those of the encoder, which cross attention reads, or of all
        context-parallel ranks together
    fused : elementwise passes fused as compiled engines do
    tokens : those that pass through every layer of this stack; zeros : as many zeros as the step has cases
    """

    model: arch.ModelSpec
    plan: PrecisionPlan
    step: StepShape
    source: StepShape
    tp_size: int
    ep_size: int
    dp_size: int
    fused: bool
    cp_size: int = 1
    tokens: Array = field(init=False)
    zeros: Array = field(init=False)

    def __post_init__(self) -> None:
        zeros = np.zeros_like(self.step.prefill_tokens)
        zeros.flags.writeable = False  # many rows share it
        object.__setattr__(self, "tokens", self.step.new_tokens)
        object.__setattr__(self, "zeros", zeros)

    @classmethod
    def of(
        cls,
        model: arch.ModelSpec,
        *,
        plan: PrecisionPlan,
        parallelism: ParallelismSpec,
        step: StepShape,
        source: StepShape,
        fused: bool,
    ) -> DeviceShare:
        """The share of one device under these degrees; context-parallel ranks divide the tokens of ``step``."""
        return cls(
            model=model,
            plan=plan,
            step=on_context_rank(step, cp_size=parallelism.cp_size),
            source=source,
            tp_size=parallelism.tp_size,
            ep_size=parallelism.ep_size,
            dp_size=parallelism.dp_size,
            cp_size=parallelism.cp_size,
            fused=fused,
        )

    @property
    def attended(self) -> StepShape:
        """The step whose tokens attend to each other: of all ranks that share them."""
        return self.step if self.cp_size == 1 else self.source

    @property
    def hidden_size(self) -> int:
        """Width of the residual stream."""
        return self.model.hidden_size

    @property
    def element_bytes(self) -> float:
        """Bytes of one element of the residual stream."""
        return self.plan.activation_bytes

    def split(self, heads: int) -> float:
        """Heads (or groups) of this device: an even share, or one copy each where there are fewer than devices."""
        return max(1.0, heads / self.tp_size)

    def norm_parameters(self, width: float, *, bias: bool | None = None) -> float:
        """Parameters of one norm over ``width`` numbers, of the model's kind unless ``bias`` says otherwise."""
        if bias is None and self.model.norm == "none_affine":
            return 0.0
        has_bias = self.model.norm == "layer" if bias is None else bias
        return 2 * width if has_bias else width


def has_prefill(step: StepShape) -> bool:
    """Whether any case of the step processes prompt tokens."""
    return bool(np.any(step.prefill_sequences * step.prefill_tokens > 0))


def has_decode(step: StepShape) -> bool:
    """Whether any case of the step generates."""
    return bool(np.any(step.decode_sequences * step.decode_tokens > 0))


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


def linear(
    name: str,
    *,
    share: DeviceShare,
    role: str,
    m: Array,
    n: float,
    k: float,
    count: float,
    bias: float = 0.0,
    batch: float = 1.0,
    held: bool = True,
    product: MatmulFormat | None = None,
    family: Family = Family.GEMM,
) -> Work:
    """Row of ``count`` products (m, k) x (k, n) on this device, ``batch`` independent ones in each.

    bias : elements added to the product and held beside the weights; held : False where another row holds the weights
    Arithmetic intensity of a linear layer at 16 bit is 2 h n b FLOPs over 2 (h n + b n + b h) bytes [Williams2009].
    Left out: reads of the same tile by several blocks, which the kernel layer prices.
    """
    chosen = share.plan.format_for(role) if product is None else product
    weight = n * k * batch
    stored = weight * chosen.weight_bits / BITS_PER_BYTE + bias * share.element_bytes + batch * chosen.codebook_bytes
    moved = m * batch * (k * chosen.activation_bits / BITS_PER_BYTE + n * share.element_bytes)
    parameters = weight + bias if held else 0.0
    return Work(
        name=name,
        family=family,
        role=role,
        shape=GemmShape(m=m, n=n, k=k, format=chosen, batch=batch),
        count=count,
        flops=2.0 * m * weight,
        weight_bytes=np.where(m > 0, stored, 0.0),
        kv_bytes=share.zeros,
        activation_bytes=moved,
        parameters=parameters,
        active_parameters=parameters,
        stored_bytes=stored if held else 0.0,
    )


def collective(
    name: str,
    *,
    share: DeviceShare,
    operation: Collective,
    message_bytes: Array,
    participants: int,
    count: float,
    role: str,
    ends_block: bool = False,
    spacing: int = 1,
    beside_flops: Array | None = None,
) -> Work:
    """Row of ``count`` collectives; ``message_bytes`` as nccl-tests counts it (see ``CollectiveShape``)."""
    return Work(
        name=name,
        family=Family.COLLECTIVE,
        role=role,
        shape=CollectiveShape(
            operation=operation,
            message_bytes=message_bytes,
            participants=participants,
            ends_block=ends_block,
            spacing=spacing,
            beside_flops=beside_flops,
        ),
        count=count,
        flops=share.zeros,
        weight_bytes=share.zeros,
        kv_bytes=share.zeros,
        activation_bytes=share.zeros,
    )


def all_reduce_after(block: str, *, share: DeviceShare, count: float, tokens: Array | None = None) -> tuple[Work, ...]:
    """Sum of the tensor-parallel partial results of a block: tokens x hidden_size; nothing on one device."""
    if share.tp_size == 1:
        return ()
    rows = share.tokens if tokens is None else tokens
    return (
        collective(
            f"{block}_all_reduce",
            share=share,
            operation=Collective.ALL_REDUCE,
            message_bytes=rows * share.hidden_size * share.element_bytes,
            participants=share.tp_size,
            count=count,
            role=block,
            ends_block=True,
        ),
    )
