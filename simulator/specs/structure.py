"""What if a model were built differently: overrides on its profile."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from simulator.specs.base import Spec


class MlaOverride(Spec):
    """Latent attention in place of every full attention layer; widths as in the models that ship it."""

    kv_lora_rank: PositiveInt
    qk_rope_head_dim: PositiveInt = 64
    qk_nope_head_dim: PositiveInt = 128
    v_head_dim: PositiveInt = 128
    q_lora_rank: PositiveInt | None = None


class MoeOverride(Spec):
    """Experts in place of every dense feed-forward block.

    ``moe_intermediate_size``: of one expert; left out, the block's width is divided among the experts, so that all
    parameters stay (MoEfication). ``shared_expert_intermediate_size``: of an expert that every token passes.
    """

    num_experts: Annotated[int, Field(gt=1)]
    num_experts_per_tok: PositiveInt
    moe_intermediate_size: PositiveInt | None = None
    shared_expert_intermediate_size: NonNegativeInt = 0


class StructureSpec(Spec):
    """Overrides of a model's structure.

    num_key_value_heads : of every attention layer (1 is MQA, all heads MHA)
    sliding_window : keys that every full attention layer sees at most
    window_every : of so many layers in a row one keeps full attention, the others get ``sliding_window``
    layers_fraction : share of the layers that stay, the first ones and the last (depth pruning, a shallower student)
    hidden_size : with heads, dense widths and expert widths in proportion; head_dim stays
    expert_imbalance : tokens of the busiest expert-parallel rank over the mean, or "expected" for what chance alone
        makes of each step
    """

    num_key_value_heads: PositiveInt | None = None
    mla: MlaOverride | None = None
    sliding_window: PositiveInt | None = None
    window_every: Annotated[int, Field(gt=1)] | None = None
    moe: MoeOverride | None = None
    layers_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None
    hidden_size: PositiveInt | None = None
    expert_imbalance: Annotated[float, Field(gt=1.0)] | Literal["expected"] | None = None
