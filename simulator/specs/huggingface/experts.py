"""Experts of a configuration, and which of its layers hold them."""

from __future__ import annotations

from simulator.specs.huggingface.fields import Fields
from simulator.specs.model import architecture as arch

DENSE, SPARSE = "dense", "sparse"


def read_experts(
    fields: Fields,
    *,
    total: str,
    picked: str = "num_experts_per_tok",
    total_default: int | None = None,
    picked_default: int | None = None,
    width: int | None = None,
    shared: int = 0,
    shared_count: str | None = None,
    correction_bias: bool = False,
) -> arch.MoeSpec:
    """Experts of ``width`` (moe_intermediate_size unless given), of which a router picks no more than there are.

    shared : width of the experts that see every token, in all; shared_count : field with their number, where each is
        as wide as the others
    """
    experts = fields.size(total, default=total_default)
    chosen = fields.size(picked, default=picked_default)
    if chosen > experts:
        raise fields.refusal(picked, f"is {chosen}, more than the {experts} experts")
    width = width or fields.size("moe_intermediate_size")
    # Models without experts need no fits of routers.
    from simulator.specs.model.fitted import load_routing_fit

    return arch.MoeSpec(
        num_experts=experts,
        num_experts_per_tok=chosen,
        moe_intermediate_size=width,
        shared_expert_intermediate_size=shared if shared_count is None else width * fields.count(shared_count),
        correction_bias=correction_bias,
        fitted_skew=load_routing_fit().families.get(fields.config_class),
    )


def sparse_after(fields: Fields, *, first_default: int | None = None) -> tuple[bool, ...]:
    """Which layers hold experts: mlp_layer_types, moe_layer_freq (a list or 1) or first_k_dense_replace."""
    depth = fields.depth("num_hidden_layers")
    types = fields.words("mlp_layer_types", length=depth, allowed=(DENSE, SPARSE))
    first = fields.optional_count("first_k_dense_replace")
    listed = fields.raw("moe_layer_freq")
    if isinstance(listed, list):
        frequency = fields.integers("moe_layer_freq") or ()
        if len(frequency) != depth:
            raise fields.refusal("moe_layer_freq", f"has {len(frequency)} entries for {depth} layers")
        types = types or tuple(SPARSE if entry else DENSE for entry in frequency)
    else:
        fields.expect("moe_layer_freq", value=1, why="experts on every layer after the first dense ones")
    if types is not None:
        return tuple(kind == SPARSE for kind in types)
    if first is None and first_default is None:
        raise fields.refusal("first_k_dense_replace", "is missing: which layers hold experts is unknown")
    return tuple(index >= (first if first is not None else first_default or 0) for index in range(depth))


def sparse_steps(fields: Fields) -> tuple[bool, ...]:
    """Which layers hold experts: each ``decoder_sparse_step``-th one that mlp_only_layers does not list."""
    step = fields.size("decoder_sparse_step", default=1)
    dense_only = fields.integers("mlp_only_layers") or ()
    depth = fields.depth("num_hidden_layers")
    return tuple(index not in dense_only and (index + 1) % step == 0 for index in range(depth))


def sparse_layers(fields: Fields, kind: str, *, first: int | None) -> tuple[bool, ...]:
    """Which layers hold experts as a kind of family says it (`ExpertsLayout`), whose default ``first`` is."""
    depth = fields.depth("num_hidden_layers")
    match kind:
        case "all":
            return (True,) * depth
        case "after":
            return sparse_after(fields, first_default=first)
        case "listed":
            return _listed_layers(fields, depth=depth) or sparse_after(fields, first_default=first)
        case "steps":
            return sparse_steps(fields)
        case _:
            begin, last = fields.count("moe_layer_start_index"), fields.optional_count("moe_layer_end_index")
            return tuple(begin <= index and (last is None or index <= last) for index in range(depth))


def _listed_layers(fields: Fields, *, depth: int) -> tuple[bool, ...] | None:
    """One boolean a layer, as K-EXAONE's checkpoint lists them; None where it does not."""
    flags = fields.raw("is_moe_layer")
    if flags is None:
        return None
    if not isinstance(flags, list) or len(flags) != depth or not all(isinstance(flag, bool) for flag in flags):
        raise fields.refusal("is_moe_layer", f"must be a list of {depth} booleans, one per layer")
    return tuple(flags)
