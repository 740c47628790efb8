"""What a checkpoint says about its own quantization, in the dialects of the tools that write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from simulator.errors import did_you_mean
from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.quantized.module_roles import ROLES, Role, covered_roles, layer_modules, role_of
from simulator.specs.model.architecture import ModelSpec, QuantizationSpec, RoleFormatSpec
from simulator.specs.model.precision import Dtype

FP8_BLOCK = 128
MX_GROUP = 32  # OCP microscaling: one scale per 32 elements
NVFP4_GROUP = 16
NF4_BLOCK = 64  # bitsandbytes' default blocksize for 4-bit weights
_MOST_PATTERNS = 50_000
"""Checkpoints list every expert of every layer at most."""

_PRODUCER_FIELDS = (
    "quant_method", "producer", "modelopt_version", "quantization_status", "format", "global_compression_ratio",
    "sparsity_config", "transform_config", "version", "scale_fmt", "fmt", "desc_act", "static_groups", "sym",
    "true_sequential", "damp_percent", "checkpoint_format", "meta", "pack_dtype", "backend", "do_fuse", "zero_point",
    "model_name_or_path", "model_file_base_name", "quant_type", "dequantize", "exllama_config", "fuse_max_seq_len",
    "modules_to_fuse", "bnb_4bit_compute_dtype", "bnb_4bit_use_double_quant", "bnb_4bit_quant_storage",
    "llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight", "llm_int8_threshold", "is_marlin_format",
    "use_exllama", "dataset", "tokenizer", "block_name_to_quantize", "module_name_preceding_first_block", "batch_size",
    "pad_token_id", "cache_block_outputs", "max_input_length", "_load_in_4bit", "_load_in_8bit", "note",
)  # fmt: skip


def read_quantization(fields: Fields, *, dtype: Dtype, model: ModelSpec) -> QuantizationSpec:
    """The ``quantization_config`` of a checkpoint. ``dtype`` is that of unquantized tensors and ``model`` the layers
    that patterns name."""
    section = fields.section("quantization_config")
    section.costless(*_PRODUCER_FIELDS)
    method = _method(section)
    experts = _expert_dtype(section if section.has("expert_dtype") else fields)
    read = _READERS[method](section, dtype, model)
    if experts in (None, read.weights) or any(own.role == "experts" for own in read.roles):
        return read
    own = RoleFormatSpec(role="experts", method="mxfp4", weights=Dtype.FP4, activations=dtype, group_size=MX_GROUP)
    return read.model_copy(update={"roles": (*read.roles, own)})


def _expert_dtype(fields: Fields) -> Dtype | None:
    """DeepSeek-V4's routed experts have a dtype of their own: 4-bit with a scale per 32 weights, or 8-bit."""
    if not fields.has("expert_dtype"):
        return None
    return {"fp4": Dtype.FP4, "fp8": Dtype.FP8}[fields.text("expert_dtype", allowed=("fp4", "fp8"))]


def _method(section: Fields) -> str:
    if not section.has("quant_method") and section.has("quant_algo"):
        return "modelopt"
    given = section.raw("quant_method")
    if not isinstance(given, str) or given not in _READERS:
        hint = did_you_mean(str(given), _READERS)
        raise section.refusal("quant_method", f"is {given!r}, understood are {', '.join(sorted(_READERS))}", hint=hint)
    return given


# ModelOpt's algorithms: method, dtype of weights and of inputs (None: those of the checkpoint), group.
_ALGORITHMS: Mapping[str, tuple[str, Dtype, Dtype | None, int | None]] = {
    "FP8": ("fp8", Dtype.FP8, Dtype.FP8, None),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8", Dtype.FP8, Dtype.FP8, None),
    "FP8_PB_WO": ("fp8_block", Dtype.FP8, Dtype.FP8, FP8_BLOCK),
    "MXFP8": ("mxfp8", Dtype.FP8, Dtype.FP8, MX_GROUP),
    "NVFP4": ("nvfp4", Dtype.FP4, Dtype.FP4, NVFP4_GROUP),
    "W4A16_NVFP4": ("nvfp4", Dtype.FP4, None, NVFP4_GROUP),
    "MXFP4": ("mxfp4", Dtype.FP4, Dtype.FP4, MX_GROUP),
    "W4A16_AWQ": ("awq", Dtype.INT4, None, None),
    "INT4_AWQ": ("awq", Dtype.INT4, None, None),
}
MIXED_ALGORITHM = "MIXED_PRECISION"


def _fp8(section: Fields, dtype: Dtype, model: ModelSpec) -> QuantizationSpec:
    """FP8 of a whole checkpoint; ModelOpt may have converted listed layers further and left the others as they were."""
    read = _whole_fp8(section, model=model)
    if not section.has("quantized_layers"):
        return read
    section.expect("quant_algo", value=MIXED_ALGORITHM, why="layers are listed one by one")
    section.costless("config_groups", "group_size", "moe_quant_algo")
    return read.model_copy(update={"roles": tuple(_layer_formats(section, dtype=dtype).values())})


def _whole_fp8(section: Fields, *, model: ModelSpec) -> QuantizationSpec:
    section.text("activation_scheme", allowed=("dynamic", "static"), default="dynamic")
    block = section.integers("weight_block_size")
    if block not in (None, (FP8_BLOCK, FP8_BLOCK)):
        raise section.refusal("weight_block_size", f"is {list(block or ())}, understood is [128, 128] or none")
    # Beside quantized_layers, "ignore" lists what the second conversion left in FP8.
    ignored = ("modules_to_not_convert", "ignored_layers", *(() if section.has("quantized_layers") else ("ignore",)))
    section.costless("ignore")
    kept = _kept(section, ignored, model=model)
    return QuantizationSpec(
        method="fp8" if block is None else "fp8_block",
        weights=Dtype.FP8,
        activations=Dtype.FP8,
        group_size=None if block is None else FP8_BLOCK,
        unquantized=_with_head(kept),
    )


def _compressed_tensors(section: Fields, dtype: Dtype, model: ModelSpec) -> QuantizationSpec:
    groups = _config_groups(section)
    kept = _kept(section, ("ignore",), model=model)
    kv_cache = _scheme_dtype(section, section.raw("kv_cache_scheme"), what="kv_cache_scheme")
    read = [_from_group(section, group, dtype=dtype, kept=kept, kv_cache=kv_cache) for group in groups]
    if len(read) == 1:
        return read[0]
    formats: dict[Role, RoleFormatSpec] = {}
    # A target that names modules goes before one that names their class.
    for named in (True, False):
        for group, spec in zip(groups, read, strict=True):
            for role in _target_roles(section, group, named=named, model=model):
                if role not in kept:
                    formats.setdefault(role, _role_format(role, spec))
    if not formats:
        raise section.refusal("config_groups", "targets no layer of the model")
    return _mixed(formats, kv_cache=kv_cache)


def _role_format(role: Role, spec: QuantizationSpec) -> RoleFormatSpec:
    return RoleFormatSpec(
        role=role, method=spec.method, weights=spec.weights, activations=spec.activations, group_size=spec.group_size
    )


def _target_roles(section: Fields, group: Mapping[str, object], *, named: bool, model: ModelSpec) -> tuple[Role, ...]:
    """Roles that a group names by module, or else by the class Linear, which is all of them."""
    targets = group.get("targets")
    if not isinstance(targets, list) or not all(isinstance(item, str) for item in targets):
        raise section.refusal("config_groups", "holds a group whose targets are not a list of names")
    if named:
        return _covered(section, "config_groups", [item for item in targets if item != "Linear"], model=model)
    return ROLES if "Linear" in targets else ()


def _modelopt(section: Fields, dtype: Dtype, model: ModelSpec) -> QuantizationSpec:
    algorithm = section.text("quant_algo", allowed=(*_ALGORITHMS, MIXED_ALGORITHM))
    kept = _with_head(_kept(section, ("ignore", "exclude_modules"), model=model))
    kv_name = "kv_cache_scheme" if section.has("kv_cache_scheme") else "kv_cache_quant_algo"
    kv_cache = _scheme_dtype(section, section.raw(kv_name), what=kv_name)
    section.costless("config_groups", "has_zero_point", "pre_quant_scale", "quantized_layers")
    given = section.optional_size("group_size")
    if algorithm == MIXED_ALGORITHM:
        return _mixed(_layer_formats(section, dtype=dtype), kv_cache=kv_cache)
    method, weights, inputs, group = _ALGORITHMS[algorithm]
    return QuantizationSpec(
        method=method,
        weights=weights,
        activations=inputs or dtype,
        kv_cache=kv_cache,
        group_size=group if method == "fp8_block" else given or group,
        unquantized=kept,
    )


def _weight_only(section: Fields, dtype: Dtype, model: ModelSpec) -> QuantizationSpec:
    """GPTQ and AWQ: integer weights in groups, 16-bit activations."""
    method = "gptq" if section.raw("quant_method") == "gptq" else "awq"
    bits = section.size(section.either("bits", "w_bit", "num_bits"))
    if bits not in (4, 8):
        raise section.refusal("bits", f"is {bits}, understood are 4 and 8")
    group = section.raw("group_size")
    section.costless("q_group_size")
    kept = _kept(section, ("modules_to_not_convert",), model=model)
    head = section.flag("lm_head", default=False)
    return QuantizationSpec(
        method=method,
        weights=Dtype.INT4 if bits == 4 else Dtype.INT8,
        activations=dtype,
        group_size=None if group in (None, -1) else section.size("group_size"),
        unquantized=kept if head else _with_head(kept),
    )


def _bitsandbytes(section: Fields, dtype: Dtype, model: ModelSpec) -> QuantizationSpec:
    four = section.flag(section.either("load_in_4bit", "_load_in_4bit"), default=False)
    eight = section.flag(section.either("load_in_8bit", "_load_in_8bit"), default=False)
    if four == eight:
        raise section.refusal("load_in_4bit", f"is {four} and load_in_8bit is {eight}: exactly one must be true")
    kind = section.text("bnb_4bit_quant_type", allowed=("nf4", "fp4"), default="fp4")
    kept = _with_head(_kept(section, ("llm_int8_skip_modules",), model=model))
    if eight:
        return QuantizationSpec(method="llm.int8", weights=Dtype.INT8, activations=Dtype.INT8, unquantized=kept)
    return QuantizationSpec(
        method=f"bnb-{kind}", weights=Dtype.INT4, activations=dtype, group_size=NF4_BLOCK, unquantized=kept
    )


def _mxfp4(section: Fields, dtype: Dtype, model: ModelSpec) -> QuantizationSpec:
    kept = _with_head(_kept(section, ("modules_to_not_convert",), model=model))
    return QuantizationSpec(method="mxfp4", weights=Dtype.FP4, activations=dtype, group_size=MX_GROUP, unquantized=kept)


def _bitnet(section: Fields, dtype: Dtype, model: ModelSpec) -> QuantizationSpec:
    section.text("linear_class", allowed=("autobitlinear", "bitlinear"), default="bitlinear")
    section.text("quantization_mode", allowed=("offline", "online"), default="offline")
    return QuantizationSpec(
        method="bitnet",
        weights=Dtype.INT1,
        activations=Dtype.INT8,
        unquantized=_with_head(_kept(section, ("modules_to_not_convert",), model=model)),
    )


_READERS: Mapping[str, Callable[[Fields, Dtype, ModelSpec], QuantizationSpec]] = {
    "fp8": _fp8,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "gptq": _weight_only,
    "awq": _weight_only,
    "bitsandbytes": _bitsandbytes,
    "bitnet": _bitnet,
    "mxfp4": _mxfp4,
}


def _config_groups(section: Fields) -> tuple[Mapping[str, object], ...]:
    groups = section.raw("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise section.refusal("config_groups", "must hold a group: how the weights are stored is unknown")
    found = tuple(group for group in groups.values() if isinstance(group, Mapping))
    if len(found) != len(groups) or not all(isinstance(group.get("weights"), Mapping) for group in found):
        raise section.refusal("config_groups", "holds a group without weights")
    return found


def _from_group(
    section: Fields, group: Mapping[str, object], *, dtype: Dtype, kept: tuple[Role, ...], kv_cache: Dtype | None
) -> QuantizationSpec:
    weights = group["weights"]
    assert isinstance(weights, Mapping)
    stored = _scheme_dtype(section, weights, what="config_groups.weights")
    inputs = group.get("input_activations")
    block = weights.get("strategy") == "block"
    if block and weights.get("block_structure") != [FP8_BLOCK, FP8_BLOCK]:
        raise section.refusal("config_groups.weights.block_structure", "understood is [128, 128]")
    size = FP8_BLOCK if block else weights.get("group_size")
    methods = {
        Dtype.FP8: "fp8_block" if block else "mxfp8" if size == MX_GROUP else "fp8",
        Dtype.FP4: "nvfp4" if size == NVFP4_GROUP else "mxfp4",
    }
    assert stored is not None
    return QuantizationSpec(
        method=methods.get(stored, stored.value),
        weights=stored,
        activations=_scheme_dtype(section, inputs, what="config_groups.input_activations") or dtype,
        kv_cache=kv_cache,
        group_size=size if type(size) is int and size > 0 else None,
        unquantized=kept,
    )


def _scheme_dtype(section: Fields, scheme: object, *, what: str) -> Dtype | None:
    """Dtype of {"num_bits", "type"}, or of the word that modelopt writes."""
    if scheme is None:
        return None
    if scheme in ("FP8", "auto_fp8"):
        return Dtype.FP8
    if scheme == "NVFP4":
        return Dtype.FP4
    if isinstance(scheme, Mapping):
        known = {
            ("float", "8"): Dtype.FP8,
            ("float", "4"): Dtype.FP4,
            ("int", "8"): Dtype.INT8,
            ("int", "4"): Dtype.INT4,
        }
        found = known.get((str(scheme.get("type")), str(scheme.get("num_bits"))))
        if found is not None:
            return found
    raise section.refusal(what, f"is {scheme!r}, understood are 4 and 8 bit float or int")


def _kept(section: Fields, names: Sequence[str], *, model: ModelSpec) -> tuple[Role, ...]:
    """Roles whose modules some pattern excludes."""
    patterns: list[str] = []
    for name in names:
        value = section.raw(name)
        if value is None:
            continue
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise section.refusal(name, "must be a list of module names")
        patterns += value
    return _covered(section, names[0], patterns, model=model) if patterns else ()


def _covered(section: Fields, name: str, patterns: Sequence[str], *, model: ModelSpec) -> tuple[Role, ...]:
    if len(patterns) > _MOST_PATTERNS:
        raise section.refusal(name, f"lists {len(patterns)} modules, allowed are {_MOST_PATTERNS}")
    try:
        return covered_roles(patterns, layers=layer_modules(model))
    except ValueError as error:
        raise section.refusal(name, f"holds what is not understood: {error}") from None


def _with_head(kept: tuple[Role, ...]) -> tuple[Role, ...]:
    """These formats never convert the LM head."""
    return tuple(role for role in ROLES if role in kept or role == "lm_head")


_MAIN_ROLES: tuple[Role, ...] = ("experts", "mlp", "attention", "mixer", "shared_expert", "lm_head")
"""Most weights first: the format of the first that a checkpoint quantizes is the one it is called by."""


def _mixed(formats: Mapping[Role, RoleFormatSpec], *, kv_cache: Dtype | None) -> QuantizationSpec:
    """A checkpoint with a format per role; roles without one keep the checkpoint's dtype."""
    main = formats[next(role for role in _MAIN_ROLES if role in formats)]
    others = tuple(own for own in formats.values() if own.model_copy(update={"role": main.role}) != main)
    return QuantizationSpec(
        method=main.method,
        weights=main.weights,
        activations=main.activations,
        group_size=main.group_size,
        kv_cache=kv_cache,
        unquantized=tuple(role for role in ROLES if role not in formats),
        roles=others,
    )


def _layer_formats(section: Fields, *, dtype: Dtype) -> Mapping[Role, RoleFormatSpec]:
    """Formats of ``quantized_layers``, which lists modules one by one; one role has one format."""
    listed = section.raw("quantized_layers")
    if not isinstance(listed, Mapping) or not listed:
        raise section.refusal("quantized_layers", "is missing: which layers have which format is unknown")
    found: dict[Role, RoleFormatSpec] = {}
    for module, given in listed.items():
        algorithm = given.get("quant_algo") if isinstance(given, Mapping) else None
        role = role_of(str(module))
        if role is None:
            raise section.refusal("quantized_layers", f"names {module!r}, whose part of a layer is not known")
        if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
            known = ", ".join(_ALGORITHMS)
            raise section.refusal("quantized_layers", f"gives {module} {algorithm!r}, understood are {known}")
        method, weights, inputs, group = _ALGORITHMS[str(algorithm)]
        own = RoleFormatSpec(
            role=role,
            method=method,
            weights=weights,
            activations=inputs or dtype,
            group_size=given.get("group_size") or group,
        )
        if found.setdefault(role, own) != own:
            raise section.refusal("quantized_layers", f"gives {role} layers two formats, understood is one a role")
    return found
