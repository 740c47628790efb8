"""What one forward pass works on, and what each of its kernels has to do: shape, FLOPs, bytes. Knows no hardware."""

from __future__ import annotations

from dataclasses import field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.records import dataclass
from simulator.specs.model.precision import Dtype

Array = NDArray[np.float64]


class Family(StrEnum):
    """Operator families of the breakdown."""

    GEMM = "gemm"
    PREFILL_ATTENTION = "prefill_attention"
    DECODE_ATTENTION = "decode_attention"
    MOE = "moe"
    RECURRENT = "recurrent"
    ELEMENTWISE = "elementwise"
    EMBEDDING = "embedding"
    LM_HEAD = "lm_head"
    COLLECTIVE = "collective"


class Collective(StrEnum):
    """Collective operations."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    P2P = "p2p"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationPasses:
    """Passes around a product: bytes moved per element of its input and of its output, and kernels launched."""

    input_bytes: float = 0.0
    output_bytes: float = 0.0
    launches: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulFormat:
    """How a matrix product stores its weights and which rate multiplies them.

    name : the kernel's name in the calibrations: bf16, fp16, fp32, tf32, fp8, fp8_block, int8, w4a16, w8a16,
        nvfp4, mxfp4, w4a8...
    weight_bits : stored bits per weight: scales, zero points and sparse metadata included, dropped weights at nothing
    activation_bits : bits per activation as the tensor cores read it
    math : the number format whose peak applies
    quantises_activations : a pass over the activations before the product
    kernel : implementation family that multiplies it; "" takes the engine's
    passes : the passes of a format whose measured fit does not contain them
    outlier_fraction : share of the input columns that a 16-bit product beside the narrow one multiplies
    sparsity : (kept, of) of an N:M pattern, or None for dense weights
    codebook_bytes : tables that each matrix holds beside its codes; lookup_bytes : read from them per weight
    """

    name: str
    weight_bits: float
    activation_bits: float
    math: Dtype
    quantises_activations: bool = False
    kernel: str = ""
    passes: ActivationPasses | None = None
    outlier_fraction: float = 0.0
    sparsity: tuple[int, int] | None = None
    codebook_bytes: float = 0.0
    lookup_bytes: float = 0.0

    @property
    def launches(self) -> float:
        """Kernels that the host issues for one product."""
        return 1.0 + (self.passes.launches if self.passes else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmShape:
    """(m, k) x (k, n): m tokens, weight [n, k]. ``batch`` independent products (absorbed MLA heads), usually 1."""

    m: Array
    n: float
    k: float
    format: MatmulFormat
    batch: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """Scores, softmax and weighted sum over cached and new tokens.

    sequences, query_tokens, context_tokens : arrays; each sequence brings ``query_tokens`` new tokens and has
        ``context_tokens`` cached before them (decode: query_tokens 1, context = kv length - 1)
    num_kv_heads : KV heads on this device; head_dim of keys, v_head_dim of values
    shared_kv : values are a slice of the keys (absorbed MLA), so that one read serves both
    window : keys a query sees at most, or None
    is_decode : which kernel family runs it
    splits_keys : decoding divides keys among compute units wherever that is faster, whatever the kernel's own rule
    expanded_widths : where an indexer chooses ``window`` keys for each query, of keys and values per head (of latent
        attention those expanded); None where it sees the nearest or all
    """

    sequences: Array
    query_tokens: Array
    context_tokens: Array
    num_heads: float
    num_kv_heads: float
    head_dim: float
    v_head_dim: float
    window: float | None = None
    causal: bool = True
    shared_kv: bool
    is_decode: bool
    compute_dtype: Dtype
    kv_dtype: Dtype
    splits_keys: bool = False
    expanded_widths: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeShape:
    """Routed experts of one layer on one device: grouped up and down products.

    tokens : tokens that enter the layer, over all ranks that share the experts (array)
    hidden_size, intermediate_size : of one expert; ``intermediate_size`` is this device's tensor-parallel share
    num_experts : experts of the layer; local_experts : those stored on this device
    gated : three matrices per expert instead of two
    distinct_experts : expected local experts that at least one token reaches (array)
    local_assignments : expected (token, expert) pairs computed on this device (array)
    exchanged : whether all-to-all brings the tokens, from ranks with attention of their own
    """

    tokens: Array
    hidden_size: float
    intermediate_size: float
    num_experts: float
    num_experts_per_tok: float
    local_experts: float
    gated: bool
    distinct_experts: Array
    local_assignments: Array
    format: MatmulFormat
    exchanged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentShape:
    """The state update of an SSM or linear-attention layer (its projections are GEMMs beside it).

    variant : mamba, mamba2, gated_delta, kda or lightning
    sequences, tokens : arrays; tokens per sequence (1 while decoding)
    num_heads, head_dim (value width), state_size (key width), num_groups, conv_kernel, chunk_size : layer shape
    """

    variant: str
    sequences: Array
    tokens: Array
    num_heads: float
    head_dim: float
    state_size: float
    num_groups: float
    conv_kernel: float
    chunk_size: float
    is_decode: bool
    state_dtype: Dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementwiseShape:
    """A pass bound by memory: norms, activations, rotary, residuals, gathers. ``bytes`` is read plus written (array).

    launches : kernels it takes when fused as engines do
    searched_rows, searched_numbers : rows that are each searched for their largest numbers, and those of one (arrays)
    """

    bytes: Array
    launches: float = 1.0
    searched_rows: Array | None = None
    searched_numbers: Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveShape:
    """Communication between ``participants`` devices.

    message_bytes : the tensor each device contributes (all-reduce, all-to-all, p2p) or ends up with (all-gather),
        as nccl-tests count it (array)
    block_token_bytes : of one token, where it sums what a block gives to the residual stream, with a norm behind it
    spacing : places from one participant to the next; the ranks of a tensor-parallel group lie between two of context
    beside : rows that the device computes meanwhile, ``kept_share`` of them slower by a message above ``apart_bytes``
    copies : places that get each token by all-to-all; a server shares it above ``apart_bytes`` (array; None: never)
    """

    operation: Collective
    message_bytes: Array
    participants: int
    block_token_bytes: float = 0.0
    spacing: int = 1
    copies: float = 1.0
    apart_bytes: Array | None = None
    beside: tuple[Work, ...] = ()
    kept_share: float = 0.0

    @property
    def span(self) -> int:
        """Places from the first participant to behind the last."""
        return self.participants * self.spacing


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedGemmShape:
    """Many small products in one launch, such as the adapters of a batch or the heads of materialised attention. Their
    FLOPs and bytes, which the row holds, price them; rows : of one, where its tile is padded with more (or None)."""

    format: MatmulFormat
    rows: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTransferShape:
    """Weights in the host's memory for one device: ``bytes`` (array) that ``rows`` of a step multiply."""

    bytes: Array
    rows: Array


KernelShape = (
    GemmShape
    | GroupedGemmShape
    | AttentionShape
    | MoeShape
    | RecurrentShape
    | ElementwiseShape
    | CollectiveShape
    | HostTransferShape
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One row of the operator list: a kernel, how often it runs in a step on one device, what it moves.

    name : what it is ("qkv_proj")
    role : for precision and memory ("attention", "mlp", "experts", ...)
    count : executions per step on this device
    flops, weight_bytes, kv_bytes, activation_bytes : per execution (arrays; weight_bytes are those read)
    parameters : weights held for one execution on this device (elements)
    stored_bytes : what those weights take in memory
    executed : expected share of the executions that run, below 1 where tokens leave early (array or number)
    active_parameters : those of ``parameters`` that one token uses
    """

    name: str
    family: Family
    role: str
    shape: KernelShape
    count: float = 1.0
    flops: Array
    weight_bytes: Array
    kv_bytes: Array
    activation_bytes: Array
    parameters: float = 0.0
    active_parameters: float = 0.0
    stored_bytes: float = 0.0
    executed: Array | float = 1.0

    @property
    def bytes(self) -> Array:
        """HBM bytes of one execution."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    @property
    def arithmetic_intensity(self) -> Array:
        """FLOPs per HBM byte."""
        return self.flops / self.bytes


def _array(value: ArrayLike) -> Array:
    return np.atleast_1d(np.asarray(value, dtype=np.float64))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """Sequences of one step, as seen by one attention-data-parallel rank; every field is an array of equal length.

    prefill_sequences : sequences that process prompt tokens
    prefill_tokens : new prompt tokens of each of them
    prefill_context : tokens of each that are already cached (earlier chunks, prefix hits)
    decode_sequences : sequences that generate
    decode_context : mean tokens that each of them attends to, the new one included
    decode_tokens : tokens each of them passes through the model (1; more when verifying a draft)
    prefill_logits : prefill sequences that finish their prompt in this step and so need logits
    decode_source_tokens : how many of ``decode_context`` are the encoder's output (encoder-decoder models). Left at 0
        all keys are priced as self attention, which costs the same where both kinds have equal heads.
    """

    prefill_sequences: Array
    prefill_tokens: Array
    prefill_context: Array
    decode_sequences: Array
    decode_context: Array
    decode_tokens: Array
    prefill_logits: Array
    decode_source_tokens: Array = field(default_factory=lambda: np.zeros(1))

    @property
    def new_tokens(self) -> Array:
        """Tokens that pass through every layer."""
        return self.prefill_sequences * self.prefill_tokens + self.decode_sequences * self.decode_tokens

    @property
    def logits_tokens(self) -> Array:
        """Rows that the LM head multiplies."""
        return self.prefill_logits + self.decode_sequences * self.decode_tokens


def mixed_step(
    *,
    prefill_sequences: ArrayLike = 0.0,
    prefill_tokens: ArrayLike = 0.0,
    prefill_context: ArrayLike = 0.0,
    decode_sequences: ArrayLike = 0.0,
    decode_context: ArrayLike = 0.0,
    decode_tokens: ArrayLike = 1.0,
    prefill_logits: ArrayLike | None = None,
    decode_source_tokens: ArrayLike = 0.0,
) -> StepShape:
    """Broadcast the arguments to one length. All prefill sequences are taken to need logits unless told otherwise."""
    logits = prefill_sequences if prefill_logits is None else prefill_logits
    fields = np.broadcast_arrays(
        *(
            _array(value)
            for value in (
                prefill_sequences,
                prefill_tokens,
                prefill_context,
                decode_sequences,
                decode_context,
                decode_tokens,
                logits,
                decode_source_tokens,
            )
        )
    )
    return StepShape(
        prefill_sequences=fields[0],
        prefill_tokens=fields[1],
        prefill_context=fields[2],
        decode_sequences=fields[3],
        decode_context=fields[4],
        decode_tokens=fields[5],
        prefill_logits=fields[6],
        decode_source_tokens=fields[7],
    )


def prefill_step(*, sequences: ArrayLike, tokens: ArrayLike, context: ArrayLike = 0.0) -> StepShape:
    """``sequences`` prompts of ``tokens`` new tokens each, after ``context`` cached ones."""
    return mixed_step(prefill_sequences=sequences, prefill_tokens=tokens, prefill_context=context)


def decode_step(
    *, sequences: ArrayLike, context: ArrayLike, tokens: ArrayLike = 1.0, source_tokens: ArrayLike = 0.0
) -> StepShape:
    """``sequences`` sequences that each add ``tokens`` tokens and attend to ``context`` tokens, the new included.
    ``source_tokens`` of the context are an encoder's output."""
    return mixed_step(
        decode_sequences=sequences, decode_context=context, decode_tokens=tokens, decode_source_tokens=source_tokens
    )


def behind_prefix(step: StepShape, *, tokens: int) -> StepShape:
    """``step`` with ``tokens`` more cached tokens before every sequence."""
    if not tokens:
        return step
    return replace(
        step,
        prefill_context=np.where(step.prefill_tokens > 0, step.prefill_context + tokens, 0.0),
        decode_context=np.where(step.decode_sequences > 0, step.decode_context + tokens, step.decode_context),
    )


def on_context_rank(step: StepShape, *, cp_size: int) -> StepShape:
    """What passes the layers of one of ``cp_size`` ranks that share the tokens of every prompt.

    Sequences that decode are divided too: their products take each rank's own, at least one. Any rank may hold the last
    tokens, so that logits are not divided. References: [Yang2024b]
    """
    if cp_size == 1:
        return step
    sequences = np.maximum(step.decode_sequences / cp_size, np.minimum(step.decode_sequences, 1.0))
    return replace(step, prefill_tokens=step.prefill_tokens / cp_size, decode_sequences=sequences)
