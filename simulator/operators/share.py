"""What every row of the list needs to know: one device's share of one stack of layers in one step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from simulator.operators.formats import PrecisionPlan
from simulator.operators.step_shape import Array, StepShape
from simulator.specs.model import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShare:
    """One device's part in a step.

    step : tokens that pass through this stack; source : those of the encoder, which cross attention reads
    fused : elementwise passes fused as compiled engines do
    tokens : those that pass through every layer of this stack; zeros : as many zeros as the step has cases
    """

    model: ModelSpec
    plan: PrecisionPlan
    step: StepShape
    source: StepShape
    tp_size: int
    ep_size: int
    dp_size: int
    fused: bool
    tokens: Array = field(init=False)
    zeros: Array = field(init=False)

    def __post_init__(self) -> None:
        zeros = np.zeros_like(self.step.prefill_tokens)
        zeros.flags.writeable = False  # many rows share it
        object.__setattr__(self, "tokens", self.step.new_tokens)
        object.__setattr__(self, "zeros", zeros)

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
