"""From what was asked for and what the checkpoint is to the number format of each part of a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Literal, get_args

from simulator.errors import RoofcastError, contradiction, did_you_mean, plain_word
from simulator.operators.formats.schemes import (
    MXFP4,
    NVFP4,
    PLAIN_SCHEMES,
    Scheme,
    as_published,
    format_of_pair,
    holds_nvfp4,
    scheme_named,
)
from simulator.operators.work import MatmulFormat
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.model import architecture as arch
from simulator.specs.model.precision import BITS, GGUF_MIXES, Dtype, PrecisionSpec, load_format_kernels, scheme_word
from simulator.units import BITS_PER_BYTE


def model_roles(model: arch.ModelSpec) -> frozenset[str]:
    """Roles of the weight products that a model has."""
    roles = {"lm_head"} if model.has_lm_head else set()
    stacks = (model.layers, model.encoder.layers if model.encoder else ())
    for layer in (layer for stack in stacks for layer in stack):
        attends = isinstance(layer.mixer, arch.AttentionSpec | arch.MlaSpec | arch.CompressedAttentionSpec)
        if attends or layer.cross_attention is not None:
            roles.add("attention")
        elif layer.mixer is not None:
            roles.add("mixer")
        for block in layer.feed_forward:
            roles.add("mlp" if isinstance(block, arch.MlpSpec) else "experts")
            if isinstance(block, arch.MoeSpec) and block.shared_expert_intermediate_size:
                roles.add("shared_expert")
    return frozenset(roles)


# Engines quantise the linear layers inside the blocks; embedding, router, norms and LM head stay as they were.
QUANTISED_ROLES: frozenset[str] = frozenset({"attention", "mlp", "experts", "shared_expert", "mixer"})
KV_DTYPES = (Dtype.FP32, Dtype.BF16, Dtype.FP16, Dtype.FP8, Dtype.FP4, Dtype.INT8, Dtype.INT4)
# Checkpoint methods whose kernels are not those of their dtypes -> scheme.
OWN_KERNELS: Mapping[str, str] = {
    "llm.int8": "llm.int8", "bnb-nf4": "nf4", "bitnet": "bitnet", **{mix: mix for mix in GGUF_MIXES},
}  # fmt: skip
PLAIN_DTYPES = (Dtype.FP32, Dtype.TF32, Dtype.BF16, Dtype.FP16)
GGUF_EXPERTS = "mxfp4-moe"  # llama-quantize MXFP4_MOE, as ggml-org publishes gpt-oss: all but the experts in Q8_0
# Methods whose kernels take 16-bit activations and quantise them on the way.
SELF_QUANTISING = ("llm_int8", "w1.58a8")


def precision_plan(
    model: arch.ModelSpec,
    precision: PrecisionSpec,
    *,
    multiplied: Collection[Dtype] | None = None,
    checkpoint_cache: bool = True,
    fp8_of_modelopt: bool = False,
    own_kernels: str = "",
) -> PrecisionPlan:
    """Resolve what was asked for against what the checkpoint is; contradictions are refused.

    Order: ``precision.scheme``, ``precision.weights``, the checkpoint's quantization_config, its dtype. FP32
    checkpoints are run in bf16 unless fp32 is asked for, as serving engines do.

    multiplied : dtypes that the device multiplies (None: all). Where nothing was asked for and the checkpoint's dtype
        is not among them, the plan is what engines do there: the other 16-bit dtype (vLLM's --dtype auto before
        compute capability 8.0), or quantised weights widened to it as they are read (Marlin kernels)
    checkpoint_cache : whether keys and values not asked for take the format that a checkpoint names
    fp8_of_modelopt : whether FP8 weights of a model in 16 bit have one scale a tensor where its publisher stores blocks
    own_kernels : family of the engine's own kernels, which multiply what they take unless another one is asked for
    """
    notes: list[Note] = []
    plain_dtype = _plain_dtype(model, precision, notes, multiplied=multiplied)
    plain = format_of_pair(plain_dtype, None, plain=plain_dtype)
    scheme = _resolve_scheme(model, precision, plain_dtype, notes, multiplied=multiplied, one_scale=fp8_of_modelopt)
    scheme = _with_kernel(as_published(scheme, model, notes), precision.kernel)
    if own_kernels and precision.kernel is None:
        scheme = _on_own_kernels(scheme, own_kernels, model=model, notes=notes)
    notes += _of_paper(precision)
    activation_dtype = Dtype.FP32 if plain_dtype is Dtype.TF32 else plain_dtype
    cached = _checkpoint_cache(model, precision, scheme.format, multiplied) if checkpoint_cache else None
    return PrecisionPlan(
        weights=scheme.weights,
        activations=scheme.activations,
        activation_dtype=activation_dtype,
        kv_dtype=_kv_dtype(precision, cached or (activation_dtype, None), notes),
        linear=scheme.format,
        plain=plain,
        quantised_roles=_roles(model, scheme),
        assumptions=tuple(notes),
        role_formats=(*_mixed(model, precision, plain_dtype), *scheme.roles),
    )


def _of_paper(precision: PrecisionSpec) -> list[Note]:
    """That a scheme's own paper was measured on other kernels than an engine's, whose speedup is another."""
    if precision.scheme is None or precision.kernel is not None:
        return []
    family = load_format_kernels().of_paper(scheme_word(precision.scheme))
    return [] if family is None else [Note("own_kernels", {"scheme": precision.scheme, "family": family})]


def _with_kernel(scheme: Scheme, kernel: str | None) -> Scheme:
    """The scheme on the kernels of a named family, which has to multiply its format."""
    if kernel is None:
        return scheme
    table = load_format_kernels()
    takes = table.families_for(scheme.format.name)
    if table.family(kernel).name not in takes:
        raise contradiction(
            f"{kernel} kernels do not multiply {scheme.format.name}",
            field="precision.kernel",
            hint=f"kernels for {scheme.format.name}: {', '.join(takes)}" if takes else "leave it out",
        )
    roles = tuple((role, replace(product, kernel=kernel)) for role, product in scheme.roles)
    return replace(scheme, format=replace(scheme.format, kernel=kernel), roles=roles)


def _on_own_kernels(scheme: Scheme, family: str, *, model: arch.ModelSpec, notes: list[Note]) -> Scheme:
    """The scheme on an engine's own kernels where they take it; MXFP4 experts as its converter stores them."""
    if scheme.format.name == MXFP4 and model.has_experts:
        notes.append(Note("experts_in_gguf", {"method": GGUF_EXPERTS}))
        return scheme_named(GGUF_EXPERTS, plain=scheme.format.math, model=model)
    taken = scheme.format.name in load_format_kernels().family(family).formats
    return replace(scheme, format=replace(scheme.format, kernel=family)) if taken else scheme


def _mixed(model: arch.ModelSpec, precision: PrecisionSpec, plain: Dtype) -> tuple[tuple[str, MatmulFormat], ...]:
    """Formats of the roles that ``precision.mixed`` names; a role that the model lacks is refused."""
    own = []
    present = model_roles(model)
    for role, name in precision.mixed or ():
        if role not in present:
            raise RoofcastError(
                f"{model.name} has no layers of the role {role!r}; it has {', '.join(sorted(present))}",
                field="precision.mixed",
                hint=did_you_mean(role, present),
            )
        scheme = _with_kernel(scheme_named(name, plain=plain, model=model), precision.kernel)
        own.append((role, dict(scheme.roles).get(role, scheme.format)))
    return tuple(own)


def _plain_dtype(
    model: arch.ModelSpec, precision: PrecisionSpec, notes: list[Note], *, multiplied: Collection[Dtype] | None
) -> Dtype:
    """Dtype of everything that is not quantised."""
    if precision.scheme in PLAIN_SCHEMES:
        return Dtype(precision.scheme)
    if precision.weights in PLAIN_DTYPES:
        return precision.weights
    if precision.activations in PLAIN_DTYPES:
        return precision.activations
    loaded = model.dtype if model.dtype in (Dtype.BF16, Dtype.FP16) else Dtype.BF16
    if loaded is not model.dtype:
        notes.append(Note("loaded_as_bf16", {"dtype": model.dtype}))
    if multiplied is None or loaded in multiplied:
        return loaded
    instead = next((dtype for dtype in (Dtype.FP16, Dtype.BF16, Dtype.FP32) if dtype in multiplied), loaded)
    notes.append(Note("activations_instead", {"instead": instead, "dtype": loaded}))
    return instead


def _fp8_block(model: arch.ModelSpec) -> int | None:
    """Elements a side of the blocks of a model's published FP8 weights; None where a tensor has one scale."""
    from simulator.specs.model.checkpoints import FP8_BLOCK, published_in_blocks

    return FP8_BLOCK if published_in_blocks(model.checkpoint or model.name) else None


def _resolve_scheme(
    model: arch.ModelSpec,
    precision: PrecisionSpec,
    plain: Dtype,
    notes: list[Note],
    *,
    multiplied: Collection[Dtype] | None,
    one_scale: bool,
) -> Scheme:
    if precision.scheme is not None:
        scheme = scheme_named(precision.scheme, plain=plain, model=model)
        _agree("precision.weights", precision.weights, scheme.weights, precision.scheme)
        # Some methods take 16-bit activations and quantise them themselves (LLM.int8(), BitNet).
        takes_wide = scheme.format.name in SELF_QUANTISING and precision.activations in (Dtype.BF16, Dtype.FP16)
        if not takes_wide:
            _agree("precision.activations", precision.activations, scheme.activations, precision.scheme)
        if scheme_word(precision.scheme) != plain_word(precision.scheme):
            notes.append(Note("scheme_taken", {"scheme": precision.scheme, "word": scheme_word(precision.scheme)}))
        return _as_checkpoint_keeps(scheme, model.quantization, plain)
    if precision.weights is None and model.quantization is not None:
        given = _multiplied(model.quantization, precision, notes, multiplied=multiplied)
        return _checkpoint_scheme(model, given, precision, plain, notes)
    weights = precision.weights or plain
    if precision.weights is None:
        notes.append(Note("weights_of_dtype", {"weights": weights, "dtype": model.dtype}))
    if precision.weights is not None and model.quantization is not None and precision.weights not in PLAIN_DTYPES:
        return _requested_over_checkpoint(model, model.quantization, precision, plain, notes)
    block = _fp8_block(model) if weights is Dtype.FP8 and not one_scale else None
    product = format_of_pair(weights, precision.activations, plain=plain, group_size=block)
    activations = precision.activations or _activations_of(product, plain)
    notes += [Note("activations", {"dtype": activations})] if precision.activations is None else []
    if block and product.quantises_activations:
        notes.append(Note("blocks_published", {"format": product.name, "model": model.name}))
    if weights is Dtype.INT4 and product.name == "w4a16":
        notes.append(Note("int4_groups"))
    return Scheme(weights=weights, activations=activations, format=product)


def _as_checkpoint_keeps(scheme: Scheme, given: arch.QuantizationSpec | None, plain: Dtype) -> Scheme:
    """The scheme with the roles that the checkpoint keeps unquantised, where it is what the checkpoint holds anyway."""
    if given is None or scheme.unquantised is not None or scheme.roles or given.roles:
        return scheme
    held = format_of_pair(
        given.weights, given.activations, plain=plain, group_size=given.group_size, method=given.method.lower()
    )
    return replace(scheme, unquantised=given.unquantized) if held.name == scheme.format.name else scheme


def _requested_over_checkpoint(
    model: arch.ModelSpec, given: arch.QuantizationSpec, precision: PrecisionSpec, plain: Dtype, notes: list[Note]
) -> Scheme:
    """Quantised weights were asked for of a checkpoint that is quantised: keep its details where they agree."""
    if precision.weights is given.weights and precision.activations in (None, given.activations):
        return _checkpoint_scheme(model, given, precision, plain, notes)
    assert precision.weights is not None
    product = format_of_pair(precision.weights, precision.activations, plain=plain)
    notes.append(Note("checkpoint_requantised", {"given": given, "format": product.name}))
    activations = precision.activations or _activations_of(product, plain)
    return Scheme(weights=precision.weights, activations=activations, format=product)


def _multiplied(
    given: arch.QuantizationSpec, precision: PrecisionSpec, notes: list[Note], *, multiplied: Collection[Dtype] | None
) -> arch.QuantizationSpec:
    """The checkpoint's quantization, with 16-bit activations where the device does not multiply its own."""
    if multiplied is None or precision.activations is not None:
        return given
    dtypes = {given.activations, *(own.activations for own in given.roles)}
    lacking = {dtype for dtype in dtypes if BITS[dtype] < BITS[Dtype.BF16] and dtype not in multiplied}
    if not lacking:
        return given
    nvfp4 = holds_nvfp4(given)
    named = sorted(NVFP4 if dtype is Dtype.FP4 and nvfp4 else dtype for dtype in lacking)
    notes.append(Note("weights_widened", {"dtypes": named}))
    wide = {"activations": Dtype.BF16}
    return given.model_copy(
        update={
            "roles": tuple(own.model_copy(update=wide) if own.activations in lacking else own for own in given.roles),
            **(wide if given.activations in lacking else {}),
        }
    )


def _checkpoint_scheme(
    model: arch.ModelSpec, given: arch.QuantizationSpec, precision: PrecisionSpec, plain: Dtype, notes: list[Note]
) -> Scheme:
    if given.method in OWN_KERNELS and precision.activations is None:
        notes.append(Note("weights_of_method", {"method": given.method}))
        return replace(scheme_named(OWN_KERNELS[given.method], plain=plain, model=model), unquantised=given.unquantized)
    activations, product = _stored_product(given, precision, plain)
    notes.append(Note("weights_of_config", {"weights": given.weights, "dtype": activations, "format": product.name}))
    roles = tuple((own.role, _stored_product(own, precision, plain)[1]) for own in given.roles)
    notes += [Note("role_format", {"role": role, "format": own}) for role, own in roles]
    return Scheme(
        weights=given.weights, activations=activations, format=product, unquantised=given.unquantized, roles=roles
    )


def _stored_product(
    given: arch.QuantizationSpec | arch.RoleFormatSpec, precision: PrecisionSpec, plain: Dtype
) -> tuple[Dtype, MatmulFormat]:
    """Activations and product of stored weights; activations asked for go before the checkpoint's."""
    activations = precision.activations or given.activations
    if BITS[activations] >= BITS[Dtype.BF16]:
        activations = plain
    return activations, format_of_pair(
        given.weights, activations, plain=plain, group_size=given.group_size, method=given.method.lower()
    )


def _activations_of(product: MatmulFormat, plain: Dtype) -> Dtype:
    return product.math if product.quantises_activations else plain


def _agree(field: str, given: Dtype | None, meant: Dtype, scheme: str) -> None:
    if given is not None and given is not meant:
        raise contradiction(
            f"{given} contradicts scheme {scheme!r}, which uses {meant}",
            field=field,
            hint=f"leave it out or set it to {meant}",
        )


def _roles(model: arch.ModelSpec, scheme: Scheme) -> frozenset[str]:
    if scheme.unquantised is not None:
        kept = frozenset(scheme.unquantised)
        listed = QUANTISED_ROLES if "lm_head" in kept else QUANTISED_ROLES | {"lm_head"}
        return listed - kept
    return QUANTISED_ROLES


def _kv_dtype(precision: PrecisionSpec, default: tuple[Dtype, Note | None], notes: list[Note]) -> Dtype:
    """The format asked for, or else ``default``, which is a format and what says so."""
    asked = precision.kv_cache
    if asked is None:
        cached, says = default
        said = {"dtype": cached, "source": says}
        notes.append(Note("kv_cache", said) if says is None else Note("kv_cache_said", said))
    elif asked not in KV_DTYPES:
        raise RoofcastError(
            f"{asked} keys and values are not supported; allowed: {', '.join(KV_DTYPES)}",
            field="precision.kv_cache",
            hint=did_you_mean(asked, KV_DTYPES),
        )
    return asked or default[0]


def _checkpoint_cache(
    model: arch.ModelSpec, precision: PrecisionSpec, product: MatmulFormat, multiplied: Collection[Dtype] | None
) -> tuple[Dtype, Note] | None:
    """The cache's format that the checkpoint names, or those published in the weights asked for where FP8 is
    multiplied, and what says so. A scheme is a method that anybody may apply, but for NVFP4."""
    stored = model.quantization.kv_cache if model.quantization and precision.weights is None else None
    if stored is not None:
        return stored, Note("cache_of_config")
    asked = precision.scheme == NVFP4 if precision.scheme else precision.weights is not None
    both = product.name in (Dtype.FP8.value, NVFP4) and product.quantises_activations
    if not asked or not both or Dtype.FP8 not in (multiplied or (Dtype.FP8,)):
        return None
    from simulator.specs.model.checkpoints import published_fp8_cache

    says = published_fp8_cache(model.checkpoint or model.name, method=product.name)
    return None if says is None else (Dtype.FP8, says)


Role = Literal["attention", "mlp", "experts", "shared_expert", "lm_head", "router", "mixer", "embedding"]
ROLES: tuple[Role, ...] = get_args(Role)
# A 4-bit cache keeps a 16-bit scale and a 16-bit zero point per token and head of 128 numbers, as LMDeploy does.
# FP4 keeps an 8-bit scale per 16 numbers, as NVFP4 caches do.
KV_OVERHEAD_BITS: Mapping[Dtype, float] = {Dtype.INT4: 32 / 128, Dtype.FP4: 8 / 16}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionPlan:
    """Resolved formats of one deployment.

    weights, activations : dtypes of the quantised (or all) linear layers; activations is what enters a product
    activation_dtype : of the residual stream and of everything that is not a product
    kv_dtype : of cached keys and values
    linear, plain : formats of the layers in ``quantised_roles`` and of all others
    role_formats : of roles that have their own; they go before both
    assumptions : what was not given and how it was filled
    """

    weights: Dtype
    activations: Dtype
    activation_dtype: Dtype
    kv_dtype: Dtype
    linear: MatmulFormat
    plain: MatmulFormat
    quantised_roles: frozenset[str]
    assumptions: tuple[Note, ...] = ()
    role_formats: tuple[tuple[str, MatmulFormat], ...] = ()

    def format_for(self, role: str) -> MatmulFormat:
        """Format of the products of a role; an unknown role is refused."""
        if role not in ROLES:
            raise RoofcastError(f"no role {role!r}", field="role", hint=did_you_mean(role, ROLES))
        for own, product in self.role_formats:
            if own == role:
                return product
        return self.linear if role in self.quantised_roles else self.plain

    def with_formats(self, change: Callable[[MatmulFormat], MatmulFormat], *, roles: frozenset[str]) -> PrecisionPlan:
        """The plan with ``change`` applied to the format of each of ``roles``."""
        changed = {role: change(self.format_for(role)) for role in roles}
        kept = tuple((role, product) for role, product in self.role_formats if role not in changed)
        return replace(self, role_formats=(*kept, *sorted(changed.items())))

    @property
    def activation_bytes(self) -> float:
        """Bytes of one element of the residual stream."""
        return BITS[self.activation_dtype] / BITS_PER_BYTE

    @property
    def kv_bytes(self) -> float:
        """Bytes of one cached number, with its share of scales."""
        return (BITS[self.kv_dtype] + KV_OVERHEAD_BITS.get(self.kv_dtype, 0.0)) / BITS_PER_BYTE
