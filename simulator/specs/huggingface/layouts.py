"""Decoders that need no code: ``families/huggingface.yaml`` describes their attention, windows and blocks."""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from simulator.specs.base import Spec, validate
from simulator.specs.huggingface import layers as usual
from simulator.specs.huggingface.fields import Fields
from simulator.specs.model.architecture import AttentionSpec, FeedForward, MlpSpec, ModelSpec, Norm, OutputGate, QkNorm


class Flag(Spec):
    """A flag of the configuration, and what it is where the configuration does not say."""

    flag: str
    default: bool


Switch = bool | str | Flag
"""Always or never, or as a flag of the configuration says; a name alone is off unless it is given."""


class ExpertsLayout(Spec):
    """Experts of one family.

    experts, picked : ``num_experts`` and ``num_experts_per_tok`` where the configuration does not say
    width : the field with an expert's width
    shared : the field with the width of what sees every token, in all; shared_count : or with the number of such
        experts, as wide as the others; each with what it is where the configuration does not say; shared_gate : on it
    correction_bias, biased, routing_skew : as in MoeSpec, ``biased`` for experts and router; the skew where texts were
        counted [Jiang2024]
    layers : that hold experts: ``all``; ``after`` the first dense ones (``first`` of them unless given); ``listed`` one
        by one, or else so; ``steps`` apart, as Qwen writes it; ``between`` two indices
    dense_width : the field with the width of the other layers where it is not intermediate_size
    """

    experts: int | None = None
    picked: int | None = None
    width: str = "moe_intermediate_size"
    shared: str | None = None
    shared_default: int | None = None
    shared_count: str | None = None
    shared_count_default: int = 0
    shared_gate: bool = False
    correction_bias: Switch = False
    biased: bool = False
    routing_skew: float | None = None
    layers: Literal["all", "after", "listed", "steps", "between"] = "all"
    first: int | None = None
    dense_width: str = "intermediate_size"


class DecoderLayout(Spec):
    """One family.

    names : what the configuration calls a usual field, the first of them that is given
    heads, kv_heads, head_dim, vocab : where the configuration does not say; tied : likewise
    grouped : whether there may be fewer KV heads than heads; one_kv_head : where not, whether there is one in all
    bias, qkv_bias, o_bias, mlp_bias : biases on all projections of attention, on q, k and v, on the output, and on the
        feed-forward matrices
    qk_norm, normed_if : norms of query and key heads, and what switches them on; qk_norm_bias : these have biases
    mlp_ratio : width of the feed-forward block over hidden_size where the configuration does not say
    windows : ``each`` slides over sliding_window where it is given; ``listed`` too, unless layer_types says otherwise;
        ``periodic``: each ``period``-th sees everything, the others ``window`` keys; ``leading``: so does the first
        layer; ``patterned``: as periodic where the configuration gives no period; ``qwen``, ``exaone``: as these write
        it; none of them: all see everything
    norms, extra_parameters : of a layer; parallel : what puts its sublayers side by side, behind one norm
    learned_positions : a stored row for each position; embedding_norm : behind the embedding
    experts : in place of feed-forward blocks
    """

    names: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    vocab: int | None = None
    tied: bool = False
    grouped: bool = True
    one_kv_head: Switch = False
    bias: Switch = False
    qkv_bias: Switch = False
    o_bias: Switch = False
    mlp_bias: Switch = False
    lm_head_bias: Switch = False
    qk_norm: QkNorm = "none"
    normed_if: Switch = True
    qk_norm_bias: bool = False
    rotary: bool = True
    sinks: bool = False
    output_gate: OutputGate = "none"
    gated: bool = True
    mlp_ratio: int | None = None
    windows: Literal["each", "listed", "full", "periodic", "leading", "patterned", "qwen", "exaone"] | None = None
    period: int = 1
    window: int | None = None
    norms: int = 2
    parallel: Switch = False
    norm: Norm = "rms"
    extra_parameters: int = 0
    learned_positions: bool = False
    embedding_norm: bool = False
    experts: ExpertsLayout | None = None


def read_layout(fields: Fields, given: Mapping[str, object], *, where: str) -> ModelSpec:
    """The model of a configuration whose family has the layout that is ``given``."""
    layout = validate(DecoderLayout, given, where=where, profile=True)
    fields.rename(layout.names)
    trunk = usual.read_trunk(fields, vocab_default=layout.vocab)
    positions = trunk.max_position_embeddings if layout.learned_positions else 0
    if positions is None:
        raise fields.refusal("max_position_embeddings", "is missing: one learned row per position is stored")
    attention, windows = _attention(fields, layout), _windows(fields, layout)
    model = usual.stack(
        fields,
        attention if windows is None else [usual.with_window(attention, window) for window in windows],
        _mlp(fields, layout) if layout.experts is None else _blocks(fields, layout, layout.experts),
        trunk=trunk,
        norms=1 if _is_on(fields, layout.parallel) else layout.norms,
        norm=layout.norm,
        extra_parameters=layout.extra_parameters,
        tie_default=layout.tied,
        lm_head_bias=_is_on(fields, layout.lm_head_bias),
    )
    return model.model_copy(update={"position_embeddings": positions, "embedding_norm": layout.embedding_norm})


def _is_on(fields: Fields, switch: Switch) -> bool:
    match switch:
        case bool():
            return switch
        case str():
            return fields.flag(switch, default=False)
        case Flag():
            return fields.flag(switch.flag, default=switch.default)


def _attention(fields: Fields, layout: DecoderLayout) -> AttentionSpec:
    if layout.grouped:
        attention = usual.read_attention(
            fields, heads_default=layout.heads, kv_heads_default=layout.kv_heads, head_dim_default=layout.head_dim
        )
    else:
        attention = usual.read_heads(fields, one_kv_head=_is_on(fields, layout.one_kv_head))
    everywhere = _is_on(fields, layout.bias)
    normed = layout.qk_norm != "none" and _is_on(fields, layout.normed_if)
    return attention.model_copy(
        update={
            "qkv_bias": everywhere or _is_on(fields, layout.qkv_bias),
            "o_bias": everywhere or _is_on(fields, layout.o_bias),
            "qk_norm": layout.qk_norm if normed else "none",
            "qk_norm_bias": normed and layout.qk_norm_bias,
            "rotary": layout.rotary,
            "sinks": layout.sinks,
            "output_gate": layout.output_gate,
        }
    )


def _mlp(fields: Fields, layout: DecoderLayout, *, name: str = "intermediate_size") -> MlpSpec:
    if layout.mlp_ratio is None:
        width = fields.size(name)
    else:
        width = fields.optional_size(name) or layout.mlp_ratio * fields.size("hidden_size")
    return MlpSpec(intermediate_size=width, gated=layout.gated, bias=_is_on(fields, layout.mlp_bias))


def _blocks(fields: Fields, layout: DecoderLayout, experts: ExpertsLayout) -> Sequence[tuple[FeedForward, ...]]:
    width, shared = fields.size(experts.width), 0
    if experts.shared is not None:
        shared = fields.size(experts.shared, default=experts.shared_default)
    elif experts.shared_count is not None:
        shared = width * fields.count(experts.shared_count, default=experts.shared_count_default)
    sparse = usual.read_experts(
        fields,
        total="num_experts",
        total_default=experts.experts,
        picked_default=experts.picked,
        width=width,
        shared=shared,
        correction_bias=_is_on(fields, experts.correction_bias),
    ).model_copy(
        update={"shared_expert_gate": experts.shared_gate, "expert_bias": experts.biased, "router_bias": experts.biased}
        | ({} if experts.routing_skew is None else {"routing_skew": experts.routing_skew})
    )
    is_sparse = _sparse_layers(fields, experts)
    fields.costless(experts.dense_width)
    dense_width = experts.dense_width if fields.has(experts.dense_width) else "intermediate_size"
    dense = None if all(is_sparse) else _mlp(fields, layout, name=dense_width)
    return usual.choose(fields, is_sparse, sparse=sparse, dense=dense)


def _sparse_layers(fields: Fields, experts: ExpertsLayout) -> tuple[bool, ...]:
    depth = fields.depth("num_hidden_layers")
    match experts.layers:
        case "all":
            return (True,) * depth
        case "after":
            return usual.sparse_after(fields, first_default=experts.first)
        case "listed":
            return _listed_layers(fields, depth=depth) or usual.sparse_after(fields, first_default=experts.first)
        case "steps":
            return usual.sparse_steps(fields)
        case "between":
            first, last = fields.count("moe_layer_start_index"), fields.optional_count("moe_layer_end_index")
            return tuple(first <= index and (last is None or index <= last) for index in range(depth))


def _listed_layers(fields: Fields, *, depth: int) -> tuple[bool, ...] | None:
    """One boolean a layer, as K-EXAONE's checkpoint lists them; None where it does not."""
    flags = fields.raw("is_moe_layer")
    if flags is None:
        return None
    if not isinstance(flags, list) or len(flags) != depth or not all(isinstance(flag, bool) for flag in flags):
        raise fields.refusal("is_moe_layer", f"must be a list of {depth} booleans, one per layer")
    return tuple(flags)


def _windows(fields: Fields, layout: DecoderLayout) -> usual.Windows | None:
    match layout.windows:
        case "each":
            return (fields.optional_size("sliding_window"),) * fields.depth("num_hidden_layers")
        case "listed":
            return usual.listed_windows(fields)
        case "periodic":
            window = fields.size("sliding_window", default=layout.window)
            return usual.periodic_windows(fields, period=layout.period, window=window)
        case "leading":
            window, depth = fields.size("sliding_window", default=layout.window), fields.depth("num_hidden_layers")
            default = tuple(usual.SLIDING if index % layout.period else usual.FULL for index in range(depth))
            return usual.windows_of_types(fields, window=window, default=default)
        case "patterned":
            return usual.patterned_windows(fields, period=layout.period, window=layout.window)
        case "qwen":
            return usual.qwen_windows(fields)
        case "exaone":
            return usual.exaone_windows(fields)
        case "full":
            fields.words("layer_types", length=fields.depth("num_hidden_layers"), allowed=(usual.FULL,))
    return None
