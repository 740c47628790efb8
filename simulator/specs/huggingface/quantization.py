"""What a checkpoint says about its own quantization, in the dialects of the tools that write it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal, get_args

from simulator.errors import did_you_mean
from simulator.specs.huggingface.fields import Fields
from simulator.specs.model.architecture import QuantizationSpec
from simulator.specs.model.precision import Dtype

Role = Literal["attention", "mlp", "experts", "shared_expert", "lm_head", "mixer"]
ROLES: tuple[Role, ...] = get_args(Role)

FP8_BLOCK = 128
MXFP4_GROUP = 32  # OCP microscaling: one scale per 32 elements
NVFP4_GROUP = 16
NF4_BLOCK = 64  # bitsandbytes' default blocksize for 4-bit weights

_PRODUCER_FIELDS = (
    "quant_method", "producer", "modelopt_version", "quantization_status", "format", "global_compression_ratio",
    "sparsity_config", "transform_config", "version", "scale_fmt", "fmt", "desc_act", "static_groups", "sym",
    "true_sequential", "damp_percent", "checkpoint_format", "meta", "pack_dtype", "backend", "do_fuse", "zero_point",
    "model_name_or_path", "model_file_base_name", "quant_type", "dequantize", "exllama_config", "fuse_max_seq_len",
    "modules_to_fuse", "bnb_4bit_compute_dtype", "bnb_4bit_use_double_quant", "bnb_4bit_quant_storage",
    "llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight", "llm_int8_threshold", "is_marlin_format",
    "use_exllama", "dataset", "tokenizer", "block_name_to_quantize", "module_name_preceding_first_block", "batch_size",
    "pad_token_id", "cache_block_outputs", "max_input_length", "_load_in_4bit", "_load_in_8bit", "kv_cache_quant_algo",
)  # fmt: skip


def read_quantization(fields: Fields, *, dtype: Dtype, depth: int) -> QuantizationSpec | None:
    """The ``quantization_config`` of a checkpoint, or None where it has none.

    ``dtype`` is that of unquantized tensors and ``depth`` the number of layers, for patterns that name them.
    """
    if not fields.has("quantization_config"):
        fields.costless("quantization_config")
        fields.expect("expert_dtype", value=None, why="a quantization_config has to say what the other weights are")
        return None
    section = fields.section("quantization_config")
    section.costless(*_PRODUCER_FIELDS)
    method = _method(section)
    experts = _expert_dtype(section if section.has("expert_dtype") else fields)
    read = _READERS[method](section, dtype, depth)
    return read if experts in (None, read.weights) else read.model_copy(update={"experts": experts})


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


def _fp8(section: Fields, dtype: Dtype, depth: int) -> QuantizationSpec:
    section.text("activation_scheme", allowed=("dynamic", "static"), default="dynamic")
    block = section.integers("weight_block_size")
    if block not in (None, (FP8_BLOCK, FP8_BLOCK)):
        raise section.refusal("weight_block_size", f"is {list(block or ())}, understood is [128, 128] or none")
    kept = _kept(section, ("modules_to_not_convert", "ignored_layers", "ignore"), depth=depth)
    return QuantizationSpec(
        method="fp8" if block is None else "fp8_block",
        weights=Dtype.FP8,
        activations=Dtype.FP8,
        group_size=None if block is None else FP8_BLOCK,
        unquantized=_with_head(kept),
    )


def _compressed_tensors(section: Fields, dtype: Dtype, depth: int) -> QuantizationSpec:
    weights, inputs = _config_group(section)
    kept = _kept(section, ("ignore",), depth=depth)
    kv_cache = _scheme_dtype(section, section.raw("kv_cache_scheme"), what="kv_cache_scheme")
    return _from_group(section, weights, inputs, dtype=dtype, kept=kept, kv_cache=kv_cache)


def _modelopt(section: Fields, dtype: Dtype, depth: int) -> QuantizationSpec:
    algorithm = section.text(
        "quant_algo", allowed=("FP8", "NVFP4", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "W4A16_AWQ", "INT4_AWQ")
    )
    kept = _with_head(_kept(section, ("ignore", "exclude_modules"), depth=depth))
    kv_cache = _scheme_dtype(section, section.raw("kv_cache_scheme"), what="kv_cache_scheme")
    group = section.optional_size("group_size")
    section.costless("config_groups", "has_zero_point", "pre_quant_scale")
    if algorithm == "NVFP4":
        method, weights, inputs, group = "nvfp4", Dtype.FP4, Dtype.FP4, group or NVFP4_GROUP
    elif algorithm.endswith("AWQ"):
        method, weights, inputs = "awq", Dtype.INT4, dtype
    elif algorithm == "FP8_PB_WO":
        method, weights, inputs, group = "fp8_block", Dtype.FP8, Dtype.FP8, FP8_BLOCK
    else:
        method, weights, inputs = "fp8", Dtype.FP8, Dtype.FP8
    return QuantizationSpec(
        method=method, weights=weights, activations=inputs, kv_cache=kv_cache, group_size=group, unquantized=kept
    )


def _weight_only(section: Fields, dtype: Dtype, depth: int) -> QuantizationSpec:
    """GPTQ and AWQ: integer weights in groups, 16-bit activations."""
    method = "gptq" if section.raw("quant_method") == "gptq" else "awq"
    bits = section.size(section.either("bits", "w_bit", "num_bits"))
    if bits not in (4, 8):
        raise section.refusal("bits", f"is {bits}, understood are 4 and 8")
    group = section.raw("group_size")
    section.costless("q_group_size")
    kept = _kept(section, ("modules_to_not_convert",), depth=depth)
    head = section.flag("lm_head", default=False)
    return QuantizationSpec(
        method=method,
        weights=Dtype.INT4 if bits == 4 else Dtype.INT8,
        activations=dtype,
        group_size=None if group in (None, -1) else section.size("group_size"),
        unquantized=kept if head else _with_head(kept),
    )


def _bitsandbytes(section: Fields, dtype: Dtype, depth: int) -> QuantizationSpec:
    four = section.flag(section.either("load_in_4bit", "_load_in_4bit"), default=False)
    eight = section.flag(section.either("load_in_8bit", "_load_in_8bit"), default=False)
    if four == eight:
        raise section.refusal("load_in_4bit", f"is {four} and load_in_8bit is {eight}: exactly one must be true")
    kind = section.text("bnb_4bit_quant_type", allowed=("nf4", "fp4"), default="fp4")
    kept = _with_head(_kept(section, ("llm_int8_skip_modules",), depth=depth))
    if eight:
        return QuantizationSpec(method="llm.int8", weights=Dtype.INT8, activations=Dtype.INT8, unquantized=kept)
    return QuantizationSpec(
        method=f"bnb-{kind}", weights=Dtype.INT4, activations=dtype, group_size=NF4_BLOCK, unquantized=kept
    )


def _mxfp4(section: Fields, dtype: Dtype, depth: int) -> QuantizationSpec:
    kept = _with_head(_kept(section, ("modules_to_not_convert",), depth=depth))
    return QuantizationSpec(
        method="mxfp4", weights=Dtype.FP4, activations=dtype, group_size=MXFP4_GROUP, unquantized=kept
    )


_READERS: Mapping[str, Callable[[Fields, Dtype, int], QuantizationSpec]] = {
    "fp8": _fp8,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "gptq": _weight_only,
    "awq": _weight_only,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": _mxfp4,
}


def _config_group(section: Fields) -> tuple[Mapping[str, object], object]:
    """Weights and input activations of the only group."""
    groups = section.raw("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise section.refusal("config_groups", "must hold exactly one group; mixed precision is not understood")
    group = next(iter(groups.values()))
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(group, Mapping) or not isinstance(weights, Mapping):
        raise section.refusal("config_groups", "holds a group without weights")
    return weights, group.get("input_activations")


def _from_group(
    section: Fields,
    weights: Mapping[str, object],
    inputs: object,
    *,
    dtype: Dtype,
    kept: tuple[Role, ...],
    kv_cache: Dtype | None,
) -> QuantizationSpec:
    stored = _scheme_dtype(section, weights, what="config_groups.weights")
    if stored is None:
        raise section.refusal("config_groups", "holds a group without weights")
    block = weights.get("strategy") == "block"
    if block and weights.get("block_structure") != [FP8_BLOCK, FP8_BLOCK]:
        raise section.refusal("config_groups.weights.block_structure", "understood is [128, 128]")
    group = FP8_BLOCK if block else weights.get("group_size")
    method = {Dtype.FP8: "fp8_block" if block else "fp8", Dtype.INT4: "int4", Dtype.INT8: "int8"}.get(stored)
    if stored is Dtype.FP4:
        method = "nvfp4" if group == NVFP4_GROUP else "mxfp4"
    return QuantizationSpec(
        method=method or stored.value,
        weights=stored,
        activations=_scheme_dtype(section, inputs, what="config_groups.input_activations") or dtype,
        kv_cache=kv_cache,
        group_size=group if isinstance(group, int) and group > 0 else None,
        unquantized=kept,
    )


def _scheme_dtype(section: Fields, scheme: object, *, what: str) -> Dtype | None:
    """Dtype of {"num_bits", "type"}, or of the word that modelopt writes."""
    if scheme is None:
        return None
    if scheme in ("FP8", "auto_fp8"):
        return Dtype.FP8
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


def _kept(section: Fields, names: Sequence[str], *, depth: int) -> tuple[Role, ...]:
    """Roles whose modules some pattern excludes, tried on a layer in the middle of the stack."""
    patterns: list[str] = []
    for name in names:
        value = section.raw(name)
        if value is None:
            continue
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise section.refusal(name, "must be a list of module names")
        # Multimodal checkpoints name the text model's modules below language_model.
        patterns += [item.removeprefix("model.").removeprefix("language_model.") for item in value]
    modules = _modules(depth // 2)
    return tuple(role for role in ROLES if any(_covers(pattern, modules[role]) for pattern in patterns))


def _with_head(kept: tuple[Role, ...]) -> tuple[Role, ...]:
    """These formats never convert the LM head."""
    return tuple(role for role in ROLES if role in kept or role == "lm_head")


def _modules(layer: int) -> dict[Role, tuple[str, ...]]:
    stem = f"model.layers.{layer}"
    return {
        "attention": (f"{stem}.self_attn.o_proj",),
        "mlp": (f"{stem}.mlp.down_proj", f"{stem}.feed_forward.down_proj"),
        "experts": (
            f"{stem}.mlp.experts.0.down_proj",
            f"{stem}.block_sparse_moe.experts.0.w2",
            f"{stem}.feed_forward.experts.0.down_proj",
        ),
        "shared_expert": (
            f"{stem}.mlp.shared_experts.down_proj",
            f"{stem}.mlp.shared_expert.down_proj",
            f"{stem}.feed_forward.shared_expert.down_proj",
        ),
        "lm_head": ("lm_head", "language_model.lm_head"),
        "mixer": (f"{stem}.linear_attn.out_proj", f"{stem}.mixer.out_proj"),
    }


def _covers(pattern: str, modules: tuple[str, ...]) -> bool:
    """ "re:" patterns match from the start; others name a run of path components, with shell wildcards."""
    if pattern.startswith("re:"):
        return any(re.match(pattern[3:], module) for module in modules)
    wanted = pattern.split(".")
    for module in modules:
        parts = module.split(".")
        for start in range(len(parts) - len(wanted) + 1):
            window = parts[start : start + len(wanted)]
            if all(fnmatchcase(part, want) for part, want in zip(window, wanted, strict=True)):
                return True
    return False
