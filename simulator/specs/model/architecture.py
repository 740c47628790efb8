"""What a model is: layers of mixers and blocks, with Hugging Face's field names; no hardware, no precision in use."""

from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from simulator.specs.base import Note, Spec
from simulator.specs.model.precision import Dtype

Norm = Literal["rms", "layer", "layer_no_bias", "none_affine"]
QkNorm = Literal["none", "head", "each_head", "full"]
OutputGate = Literal["none", "elementwise", "headwise"]


class IndexerSpec(Spec):
    """DeepSeek sparse attention: a light scorer over all keys picks ``index_topk`` of them per query.
    ``reuses_previous``: the layer takes the choice of the layer before and has no scorer of its own.
    ``index_block_size``: neighbouring keys that are chosen together, by the largest of their scores (MiniMax-M3).
    ``splits_heads``: its heads belong to KV heads, with which they are split over tensor-parallel ranks (MiniMax-M3).
    """

    index_n_heads: PositiveInt
    index_head_dim: PositiveInt
    index_topk: PositiveInt
    reuses_previous: bool = False
    index_block_size: PositiveInt = 1
    splits_heads: bool = False


class KeptTokensSpec(Spec):
    """A cache cut to ``budget_tokens`` a sequence while decoding, or to ``budget_fraction`` of it.

    ``h2o``: heavy hitters and recent ones, chosen by accumulated scores after a prompt seen in full [Zhang2023].
    ``streaming``: the first tokens and the recent ones, and no query sees more [Xiao2023b].
    """

    method: Literal["h2o", "streaming"]
    budget_tokens: PositiveInt | None = None
    budget_fraction: float | None = None


class AttentionSpec(Spec):
    """MHA, GQA or MQA, with or without a window.

    ``qk_norm`` is "head" for a norm over each head_dim, "each_head" for the same with weights of its own for every
    head, "full" for one over all heads together, which tensor-parallel ranks have to add up.
    ``sliding_window`` bounds the keys a query sees (also used for chunked local attention).
    ``shares_kv_with_previous``: the layer stores and computes no keys and values of its own.
    ``value_is_key``: values reuse the keys' projection. ``is_cross``: both come from the encoder's output.
    ``kept``: a what-if on the cache, never part of a checkpoint.
    """

    kind: Literal["attention"] = "attention"
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt
    v_head_dim: PositiveInt | None = None
    sliding_window: PositiveInt | None = None
    causal: bool = True
    is_cross: bool = False
    qkv_bias: bool = False
    k_bias: bool = True
    o_bias: bool = False
    qk_norm: QkNorm = "none"
    qk_norm_bias: bool = False
    rotary: bool = True
    output_gate: OutputGate = "none"
    sinks: bool = False
    shares_kv_with_previous: bool = False
    value_is_key: bool = False
    position_bias_parameters: NonNegativeInt = 0
    indexer: IndexerSpec | None = None
    kept: KeptTokensSpec | None = None

    @property
    def value_dim(self) -> int:
        """Width of one value head."""
        return self.v_head_dim or self.head_dim


class MlaSpec(Spec):
    """Multi-head latent attention: keys and values live in ``kv_lora_rank + qk_rope_head_dim`` numbers a token."""

    kind: Literal["mla"] = "mla"
    num_attention_heads: PositiveInt
    q_lora_rank: PositiveInt | None = None
    kv_lora_rank: PositiveInt
    qk_nope_head_dim: PositiveInt
    qk_rope_head_dim: NonNegativeInt
    v_head_dim: PositiveInt
    bias: bool = False
    output_gate: OutputGate = "none"
    indexer: IndexerSpec | None = None


class CompressedAttentionSpec(Spec):
    """Attention over the last ``sliding_window`` tokens and one pooled entry per ``compress_ratio`` tokens before.

    Keys and values are one vector of head_dim numbers that all heads share. ``compress_ratio`` None keeps the window
    alone. With an ``indexer`` a query picks its entries, otherwise it sees all of them; ``overlaps`` pools twice as
    many tokens as an entry stands for. The output passes ``o_groups`` independent projections to o_lora_rank each.
    """

    kind: Literal["compressed"] = "compressed"
    num_attention_heads: PositiveInt
    head_dim: PositiveInt
    qk_rope_head_dim: NonNegativeInt
    q_lora_rank: PositiveInt
    o_groups: PositiveInt
    o_lora_rank: PositiveInt
    sliding_window: PositiveInt
    compress_ratio: PositiveInt | None = None
    overlaps: bool = False
    indexer: IndexerSpec | None = None


class MambaSpec(Spec):
    """Mamba-1 selective scan."""

    kind: Literal["mamba"] = "mamba"
    intermediate_size: PositiveInt
    state_size: PositiveInt
    conv_kernel: PositiveInt
    time_step_rank: PositiveInt
    use_bias: bool = False
    use_conv_bias: bool = True
    inner_norms: bool = False


class Mamba2Spec(Spec):
    """Mamba-2 state-space duality block."""

    kind: Literal["mamba2"] = "mamba2"
    num_heads: PositiveInt
    head_dim: PositiveInt
    state_size: PositiveInt
    n_groups: PositiveInt
    conv_kernel: PositiveInt
    chunk_size: PositiveInt
    use_bias: bool = False
    use_conv_bias: bool = True
    gated_norm: bool = True


class GatedDeltaSpec(Spec):
    """Gated delta rule (Qwen3-Next, Qwen3.5), or with ``decay: "channel"`` Kimi delta attention."""

    kind: Literal["gated_delta"] = "gated_delta"
    linear_num_key_heads: PositiveInt
    linear_num_value_heads: PositiveInt
    linear_key_head_dim: PositiveInt
    linear_value_head_dim: PositiveInt
    linear_conv_kernel_dim: PositiveInt
    decay: Literal["head", "channel"] = "head"
    decay_lora_rank: NonNegativeInt = 0
    gate_lora_rank: NonNegativeInt = 0


class LightningSpec(Spec):
    """Lightning attention: linear attention whose heads forget at a fixed rate, a norm and a gate behind it."""

    kind: Literal["lightning"] = "lightning"
    num_heads: PositiveInt
    head_dim: PositiveInt
    chunk_size: PositiveInt


class ShortConvolutionSpec(Spec):
    """A gated convolution over the last ``conv_kernel`` tokens of every channel, between two projections (LFM2)."""

    kind: Literal["short_convolution"] = "short_convolution"
    conv_kernel: PositiveInt
    use_bias: bool = False


class MlpSpec(Spec):
    """Dense feed-forward block: gate, up and down projections when ``gated``, otherwise two."""

    kind: Literal["mlp"] = "mlp"
    intermediate_size: PositiveInt
    gated: bool = True
    bias: bool = False


class MoeSpec(Spec):
    """Mixture of experts: a router picks ``num_experts_per_tok`` of ``num_experts``; shared experts see every token.

    ``latent_size``: of the narrower space that experts work in. ``correction_bias``: one number per expert.
    ``routing_skew``: coefficient of variation of how often experts are chosen, 0 for uniform; None for ``fitted_skew``.
    ``placed_evenly``: ranks get shares that are equal on average, as by placement that balances; None: as engines do.
    """

    kind: Literal["moe"] = "moe"
    num_experts: PositiveInt
    num_experts_per_tok: PositiveInt
    moe_intermediate_size: PositiveInt
    gated: bool = True
    expert_bias: bool = False
    router_bias: bool = False
    correction_bias: bool = False
    shared_expert_intermediate_size: NonNegativeInt = 0
    shared_expert_gate: bool = False
    latent_size: PositiveInt | None = None
    router_parameters_extra: NonNegativeInt = 0
    routing_skew: NonNegativeFloat | None = None
    fitted_skew: NonNegativeFloat | None = None
    placed_evenly: bool | None = None

    @model_validator(mode="after")
    def _no_more_than_there_are(self) -> Self:
        if self.num_experts_per_tok > self.num_experts:
            raise ValueError(f"num_experts_per_tok is {self.num_experts_per_tok:,} of {self.num_experts:,} experts")
        return self


RecurrentSpec = MambaSpec | Mamba2Spec | GatedDeltaSpec | LightningSpec | ShortConvolutionSpec
RECURRENT_KINDS = ("mamba", "mamba2", "gated_delta", "lightning", "short_convolution")
Mixer = Annotated[AttentionSpec | MlaSpec | CompressedAttentionSpec | RecurrentSpec, Field(discriminator="kind")]
FeedForward = Annotated[MlpSpec | MoeSpec, Field(discriminator="kind")]


class LayerSpec(Spec):
    """One block: an optional mixer, optional cross attention, feed-forward blocks, and the norms around them.

    ``feed_forward`` : some models run a dense and a sparse block side by side. ``norms`` : those over hidden_size.
    ``summed_once``: attention and feed-forward read the same input, and ranks add up the sum of both in one all-reduce.
    ``extra_parameters`` are the layer's remaining scalars and small vectors, which cost storage and nothing else.
    """

    mixer: Mixer | None = None
    cross_attention: AttentionSpec | None = None
    feed_forward: tuple[FeedForward, ...] = ()
    norms: NonNegativeInt = 2
    summed_once: bool = False
    extra_parameters: NonNegativeInt = 0


QuantizedRole = Literal["attention", "mlp", "experts", "shared_expert", "lm_head", "mixer"]


class RoleFormatSpec(Spec):
    """How the layers of one role are quantized where a checkpoint mixes formats."""

    role: QuantizedRole
    method: str
    weights: Dtype
    activations: Dtype
    group_size: PositiveInt | None = None


class QuantizationSpec(Spec):
    """What a checkpoint's quantization_config says. ``unquantized`` lists roles kept in the checkpoint's dtype.
    ``roles`` are those in another format than ``weights`` and ``activations``, one entry each."""

    method: str
    weights: Dtype
    activations: Dtype
    kv_cache: Dtype | None = None
    group_size: PositiveInt | None = None
    unquantized: tuple[QuantizedRole, ...] = ("lm_head",)
    roles: tuple[RoleFormatSpec, ...] = ()


class HyperConnectionSpec(Spec):
    """The residual as ``streams`` parallel copies, mixed before and after every sublayer by weights of the token.
    ``sinkhorn_iterations`` make the mixing matrix doubly stochastic; streams that do not ``mix`` have none."""

    streams: PositiveInt
    sinkhorn_iterations: NonNegativeInt
    mix: bool = True


class EncoderSpec(Spec):
    """The encoder of an encoder-decoder model."""

    layers: tuple[LayerSpec, ...]
    layer_order: tuple[NonNegativeInt, ...]
    final_norm: bool = True


class ProjectionSpec(Spec):
    """A product behind the layers of a picture encoder, for each token that the language model sees, or each patch."""

    inputs: PositiveInt
    outputs: PositiveInt
    bias: bool = True
    per_patch: bool = False


class PicturesSpec(Spec):
    """Pictures in the prompts of a question, never part of a checkpoint.
    per_prompt_token : pictures, or tiles, over tokens of a prompt; patches : of one; tokens : that the model sees of it
    """

    per_prompt_token: PositiveFloat
    patches: PositiveFloat
    tokens: PositiveFloat


class VisionSpec(Spec):
    """The encoder of pictures: patches through its own layers, then a projection to the language model's width.

    ``sliding_window`` of a layer counts the patches of the squares that attend among themselves. ``merge`` x ``merge``
    patches become one token. ``resolution`` says what becomes of a picture: it keeps its size, up to an edge of
    ``image_size`` where that is given ("any"), is resized to that edge ("fixed"), or is cut into tiles of that edge and
    joined by a small copy ("tiles"). ``tokens_per_image`` is the number that a fixed picture or tile is pooled to.
    ``extra_parameters`` are positions, norms and other small weights.
    """

    hidden_size: PositiveInt
    patch_size: PositiveInt
    patch_inputs: PositiveInt
    patch_bias: bool = True
    norm: Literal["rms", "layer"] = "layer"
    layers: tuple[LayerSpec, ...]
    layer_order: tuple[NonNegativeInt, ...]
    merge: PositiveInt = 1
    projections: tuple[ProjectionSpec, ...] = ()
    resolution: Literal["any", "fixed", "tiles"] = "any"
    image_size: PositiveInt | None = None
    tokens_per_image: PositiveInt | None = None
    extra_parameters: NonNegativeInt = 0
    pictures: PicturesSpec | None = None


_CLASS_WORDS = {"mla": "MLA", "compressed": "compressed attention", **dict.fromkeys(RECURRENT_KINDS, "recurrent")}


class ModelSpec(Spec):
    """A language model: ``layers`` holds the distinct blocks, ``layer_order`` which of them stands at each depth.

    ``position_embeddings`` and ``token_types`` count learned embedding rows. ``head_hidden_parameters`` are the
    weights of a transform before the LM head, ``extra_parameters`` those of parts that no token passes (audio
    towers, transforms of embeddings), stored and never multiplied. ``num_nextn_predict_layers`` count in no figure
    unless they draft (speculation ``mtp``). ``top_p`` is the nucleus that generation_config.json recommends to draw
    tokens from, 1 where none is known. ``assumption`` says what was taken from the name of a checkpoint alone.
    ``name`` is what was asked for, ``profile`` the built-in configuration that it shares, ``checkpoint`` what an
    engine loads; of a configuration of one's own these two are empty.
    """

    name: str
    profile: str = ""
    checkpoint: str = ""
    model_type: str
    hidden_size: PositiveInt
    vocab_size: PositiveInt
    embedding_size: PositiveInt | None = None
    layers: tuple[LayerSpec, ...]
    layer_order: tuple[NonNegativeInt, ...]
    encoder: EncoderSpec | None = None
    vision: VisionSpec | None = None
    hyper_connections: HyperConnectionSpec | None = None
    tie_word_embeddings: bool = False
    norm: Norm = "rms"
    final_norm: bool = True
    embedding_norm: bool = False
    position_embeddings: NonNegativeInt = 0
    token_types: NonNegativeInt = 0
    has_lm_head: bool = True
    lm_head_bias: bool = False
    pooler: bool = False
    head_hidden_parameters: NonNegativeInt = 0
    per_layer_embedding_size: NonNegativeInt = 0
    extra_parameters: NonNegativeInt = 0
    num_nextn_predict_layers: NonNegativeInt = 0
    max_position_embeddings: PositiveInt | None = None
    top_p: float = Field(default=1.0, gt=0, le=1)
    dtype: Dtype = Dtype.BF16
    quantization: QuantizationSpec | None = None
    notes: tuple[str | Note, ...] = ()
    assumption: Note | None = None

    @model_validator(mode="after")
    def _order_names_layers(self) -> Self:
        if any(index >= len(self.layers) for index in self.layer_order):
            raise ValueError("layer_order names a layer that layers does not hold")
        return self

    @cached_property
    def model_class(self) -> str:
        """What its layers are made of: dense or MoE, then latent or compressed attention, recurrence."""
        kinds = {part.kind for layer in self.layers for part in (layer.mixer, *layer.feed_forward) if part is not None}
        words = ["MoE" if "moe" in kinds else "dense", *(word for kind, word in _CLASS_WORDS.items() if kind in kinds)]
        return ", ".join(dict.fromkeys(words))

    @cached_property
    def has_experts(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return any(isinstance(block, MoeSpec) for layer in self.layers for block in layer.feed_forward)

    @property
    def num_hidden_layers(self) -> int:
        """Depth of the decoder (or of the only stack)."""
        return len(self.layer_order)

    @cached_property
    def layer_counts(self) -> tuple[int, ...]:
        """How often each distinct layer occurs."""
        return tuple(self.layer_order.count(index) for index in range(len(self.layers)))
