"""One device's share of a model and of a step, and the rows that it makes: products, memory passes, collectives.

Each memory pass (norm, residual, rotary, activation, gather, sampling) is priced by how often it reads or writes one
element of its tensor. The fused figures are one read of every input and one write of every output in one kernel, which
compiled engines reach; the unfused ones follow the eager operator sequence of the transformers reference modules, one
kernel and one round trip an operator.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.operators.work import (
    Array,
    Collective,
    CollectiveShape,
    ElementwiseShape,
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
class PassCost:
    """Reads plus writes of 16-bit elements per element, and kernels, fused and not."""

    fused_passes: float
    fused_launches: float
    unfused_passes: float
    unfused_launches: float


# Residual add and RMS norm. Unfused: add 3, to fp32 1 + 2, square 4, mean 2, scale 4, to bf16 3, weight 2.
RESIDUAL_NORM = PassCost(fused_passes=4, fused_launches=1, unfused_passes=21, unfused_launches=9)
# A norm alone (query and key heads, latents, before the head): the same without the add.
NORM = PassCost(fused_passes=2, fused_launches=1, unfused_passes=18, unfused_launches=8)
# A norm over vectors that ranks hold in parts: their sums of squares, and after those were added up the norm.
SPLIT_NORM = PassCost(fused_passes=3, fused_launches=2, unfused_passes=18, unfused_launches=8)
# q cos + rotate_half(q) sin. Unfused: negate (1), concatenate (2), two products (2 + 2), sum (3).
ROTARY = PassCost(fused_passes=2, fused_launches=1, unfused_passes=10, unfused_launches=10)
# act(gate) * up, per element of the intermediate. Unfused: activation (2), product (3).
GATED_ACTIVATION = PassCost(fused_passes=3, fused_launches=1, unfused_passes=5, unfused_launches=2)
ACTIVATION = PassCost(fused_passes=2, fused_launches=1, unfused_passes=2, unfused_launches=1)
# Tokens gathered from a table: read a row, write it.
GATHER = PassCost(fused_passes=2, fused_launches=1, unfused_passes=2, unfused_launches=1)
# Greedy sampling: logits to fp32 (read 2, write 4 bytes), then argmax (4 bytes): 5 passes of two bytes.
SAMPLE = PassCost(fused_passes=5, fused_launches=2, unfused_passes=5, unfused_launches=2)
# Depthwise convolution over the sequence: read, write. Unfused adds the activation.
CONVOLUTION = PassCost(fused_passes=2, fused_launches=1, unfused_passes=4, unfused_launches=2)
# Router scores: softmax and top-k in one kernel, then the sort of tokens by expert.
TOP_K = PassCost(fused_passes=2, fused_launches=2, unfused_passes=6, unfused_launches=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShare:
    """One device's part in a step; its methods make rows of the operator list.

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

    def linear(
        self,
        name: str,
        *,
        role: str,
        n: float,
        k: float,
        count: float = 1.0,
        m: Array | None = None,
        bias: float = 0.0,
        batch: float = 1.0,
        held: bool = True,
        product: MatmulFormat | None = None,
        family: Family = Family.GEMM,
    ) -> Work:
        """Row of ``count`` products (m, k) x (k, n) on this device, ``batch`` independent ones in each.

        m : rows of the product, all tokens of the stack unless given
        bias : elements added to the product and held beside the weights; held : False where another row holds these
        Arithmetic intensity of a linear layer at 16 bit is 2 h n b FLOPs over 2 (h n + b n + b h) bytes [Williams2009].
        Left out: reads of the same tile by several blocks, which the kernel layer prices.
        """
        m = self.tokens if m is None else m
        chosen = self.plan.format_for(role) if product is None else product
        weight = n * k * batch
        stored = weight * chosen.weight_bits / BITS_PER_BYTE + bias * self.element_bytes + batch * chosen.codebook_bytes
        moved = m * batch * (k * chosen.activation_bits / BITS_PER_BYTE + n * self.element_bytes)
        parameters = weight + bias if held else 0.0
        return Work(
            name=name,
            family=family,
            role=role,
            shape=GemmShape(m=m, n=n, k=k, format=chosen, batch=batch),
            count=count,
            flops=2.0 * m * weight,
            weight_bytes=np.where(m > 0, stored, 0.0),
            kv_bytes=self.zeros,
            activation_bytes=moved,
            parameters=parameters,
            active_parameters=parameters,
            stored_bytes=stored if held else 0.0,
        )

    def collective(
        self,
        name: str,
        *,
        operation: Collective,
        message_bytes: Array,
        participants: int,
        count: float,
        role: str,
        block_token_bytes: float = 0.0,
        spacing: int = 1,
        copies: float = 1.0,
        apart_bytes: Array | None = None,
        beside: tuple[Work, ...] = (),
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
                block_token_bytes=block_token_bytes,
                spacing=spacing,
                copies=copies,
                apart_bytes=apart_bytes,
                beside=beside,
            ),
            count=count,
            flops=self.zeros,
            weight_bytes=self.zeros,
            kv_bytes=self.zeros,
            activation_bytes=self.zeros,
        )

    def all_reduce_after(self, block: str, *, count: float, tokens: Array | None = None) -> tuple[Work, ...]:
        """Sum of the tensor-parallel partial results of a block: tokens x hidden_size; nothing on one device."""
        if self.tp_size == 1:
            return ()
        rows = self.tokens if tokens is None else tokens
        token_bytes = self.hidden_size * self.element_bytes
        return (
            self.collective(
                f"{block}_all_reduce",
                operation=Collective.ALL_REDUCE,
                message_bytes=rows * token_bytes,
                participants=self.tp_size,
                count=count,
                role=block,
                block_token_bytes=token_bytes,
            ),
        )

    def elementwise(
        self,
        name: str,
        *,
        cost: PassCost,
        width: float,
        count: float = 1.0,
        role: str,
        rows: Array | None = None,
        parameters: float = 0.0,
        kv_bytes: Array | None = None,
        extra_launches: float = 0.0,
        family: Family = Family.ELEMENTWISE,
    ) -> Work:
        """Row of passes over ``rows`` x ``width`` elements; FLOPs are not counted (below 0.1 % of a layer's).

        rows : vectors that pass, one for every token of the stack unless given
        parameters : small weights held here (at the residual stream's dtype, embeddings in their format); their read is
            part of weight_bytes
        kv_bytes : cache written beside
        """
        rows = self.tokens if rows is None else rows
        passes, launches = (
            (cost.fused_passes, cost.fused_launches) if self.fused else (cost.unfused_passes, cost.unfused_launches)
        )
        activation_bytes = rows * width * passes * self.element_bytes
        stored = parameters * self.element_bytes
        if family is Family.EMBEDDING:
            stored = parameters * (self.plan.format_for("embedding").weight_bits / BITS_PER_BYTE)
        read = 0.0 if family is Family.EMBEDDING else stored
        written = self.zeros if kv_bytes is None else kv_bytes
        weight_bytes = self.zeros + read
        return Work(
            name=name,
            family=family,
            role=role,
            shape=ElementwiseShape(bytes=activation_bytes + weight_bytes + written, launches=launches + extra_launches),
            count=count,
            flops=self.zeros,
            weight_bytes=weight_bytes,
            kv_bytes=written,
            activation_bytes=activation_bytes,
            parameters=parameters,
            active_parameters=parameters,
            stored_bytes=stored,
        )

    def held_only(self, name: str, *, role: str, parameters: float, active: bool = False) -> Work:
        """Weights that take memory and no time of their own; with ``active``, small ones used in another row."""
        return Work(
            name=name,
            family=Family.ELEMENTWISE,
            role=role,
            shape=ElementwiseShape(bytes=self.zeros, launches=0.0),
            flops=self.zeros,
            weight_bytes=self.zeros,
            kv_bytes=self.zeros,
            activation_bytes=self.zeros,
            parameters=parameters,
            active_parameters=parameters if active else 0.0,
            stored_bytes=parameters * self.element_bytes,
        )


def has_prefill(step: StepShape) -> bool:
    """Whether any case of the step processes prompt tokens."""
    return bool(np.any(step.prefill_sequences * step.prefill_tokens > 0))


def has_decode(step: StepShape) -> bool:
    """Whether any case of the step generates."""
    return bool(np.any(step.decode_sequences * step.decode_tokens > 0))


def dense_block(
    prefix: str, *, share: DeviceShare, role: str, intermediate: float, gated: bool, bias: bool, count: float
) -> tuple[Work, Work, Work]:
    """Up (and gate) product, activation, down product."""
    width = intermediate / share.tp_size
    up_width = width * (2 if gated else 1)
    up = share.linear(
        f"{prefix}gate_up_proj" if gated else f"{prefix}up_proj",
        role=role,
        n=up_width,
        k=share.hidden_size,
        bias=up_width if bias else 0.0,
        count=count,
    )
    activation = share.elementwise(
        f"{prefix}activation", cost=GATED_ACTIVATION if gated else ACTIVATION, width=width, count=count, role=role
    )
    down = share.linear(
        f"{prefix}down_proj",
        role=role,
        n=share.hidden_size,
        k=width,
        bias=share.hidden_size if bias else 0.0,
        count=count,
    )
    return (up, activation, down)
