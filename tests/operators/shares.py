"""One device's share of a small model in a step, for tests of single rows."""

from __future__ import annotations

from simulator.operators.device_share import DeviceShare
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.work import StepShape, Work, decode_step, prefill_step
from simulator.specs.model.architecture import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
from simulator.specs.model.precision import PrecisionSpec

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCAB, LAYERS = 256, 8, 2, 32, 512, 1000, 4

ATTENTION = AttentionSpec(num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM)

SMALL = ModelSpec(
    name="small",
    model_type="llama",
    hidden_size=HIDDEN,
    vocab_size=VOCAB,
    layers=(LayerSpec(mixer=ATTENTION, feed_forward=(MlpSpec(intermediate_size=INNER),)),),
    layer_order=(0,) * LAYERS,
)

PREFILL = prefill_step(sequences=3.0, tokens=50.0)
DECODE = decode_step(sequences=7.0, context=100.0)


def with_mixer(mixer: AttentionSpec, **changes: object) -> ModelSpec:
    """The small model with another attention."""
    layer = SMALL.layers[0].model_copy(update={"mixer": mixer})
    return SMALL.model_copy(update={"layers": (layer,), **changes})


def share(
    step: StepShape,
    *,
    model: ModelSpec = SMALL,
    tp_size: int = 1,
    ep_size: int = 1,
    dp_size: int = 1,
    fused: bool = True,
    precision: PrecisionSpec | None = None,
) -> DeviceShare:
    """One device's part of ``model`` in ``step``."""
    return DeviceShare(
        model=model,
        plan=precision_plan(model, precision or PrecisionSpec()),
        step=step,
        source=step,
        tp_size=tp_size,
        ep_size=ep_size,
        dp_size=dp_size,
        fused=fused,
    )


def named(rows: tuple[Work, ...], name: str) -> Work:
    """The only row of that name."""
    (found,) = (row for row in rows if row.name == name)
    return found


def names(rows: tuple[Work, ...]) -> list[str]:
    return [row.name for row in rows]
