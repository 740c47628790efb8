"""Which role a module of a checkpoint has, and which roles a pattern over module names covers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import get_args

from pydantic_core import SchemaError, SchemaValidator, core_schema

from simulator.errors import shown
from simulator.records import dataclass
from simulator.specs.model import architecture as arch

Role = arch.QuantizedRole
ROLES: tuple[Role, ...] = get_args(Role)
LONGEST_PATTERN = 500

# The first that a module's name matches; the families differ in the words between the dots.
_WORDS: tuple[tuple[str, Role], ...] = (
    (r"shared_(experts?|mlp)|shared_head_expert", "shared_expert"),
    (r"experts?|block_sparse_moe", "experts"),
    (r"lm_head|head", "lm_head"),
    (r"linear_attn|mamba|conv", "mixer"),
    (r"self_attn|attn|attention|[qkvo]_proj", "attention"),
    (r"mlp|feed_forward|ffn|(up|down|gate)_proj", "mlp"),
    (r"mixer", "mixer"),
)


def role_of(module: str) -> Role | None:
    """The role of a module by the words of its name, None where they name none."""
    parts = module.split(".")
    for words, role in _WORDS:
        if any(re.fullmatch(words, part) for part in parts):
            return role
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerModules:
    """Names under which checkpoints store one product of each role of a layer, in the dialects of the families."""

    layer: int
    names: Mapping[Role, tuple[str, ...]]


def layer_modules(model: arch.ModelSpec) -> tuple[LayerModules, ...]:
    """One entry per layer of the (decoder) stack, with the roles that it has."""
    return tuple(
        LayerModules(layer=depth, names=_names(model.layers[index], depth=depth))
        for depth, index in enumerate(model.layer_order)
    )


def _names(layer: arch.LayerSpec, *, depth: int) -> dict[Role, tuple[str, ...]]:
    stem = f"model.layers.{depth}"
    found: dict[Role, tuple[str, ...]] = {}
    if isinstance(layer.mixer, arch.AttentionSpec | arch.MlaSpec | arch.CompressedAttentionSpec):
        found["attention"] = tuple(f"{stem}.{part}.o_proj" for part in ("self_attn", "mixer"))
    elif layer.mixer is not None:
        found["mixer"] = tuple(f"{stem}.{part}.out_proj" for part in ("linear_attn", "mixer", "mamba", "conv"))
    # A dense block beside the experts (Gemma 4) has the name under which other families keep them.
    beside = len(layer.feed_forward) > 1
    for block in layer.feed_forward:
        if isinstance(block, arch.MlpSpec):
            found["mlp"] = tuple(f"{stem}.{part}.down_proj" for part in ("mlp", "feed_forward", "mixer"))
            continue
        found["experts"] = (
            (f"{stem}.experts.0.down_proj",)
            if beside
            else (
                *(f"{stem}.{part}.experts.0.down_proj" for part in ("mlp", "feed_forward", "mixer")),
                f"{stem}.block_sparse_moe.experts.0.w2",
            )
        )
        if block.shared_expert_intermediate_size:
            found["shared_expert"] = tuple(
                f"{stem}.{part}.{shared}.down_proj"
                for part in ("mlp", "feed_forward", "mixer", "block_sparse_moe")
                for shared in ("shared_experts", "shared_expert")
            )
    return found


def covered_roles(patterns: Sequence[str], *, layers: Sequence[LayerModules]) -> tuple[Role, ...]:
    """Roles that the patterns cover on over half of their layers. Raises ValueError: a pattern is not understood."""
    # Multimodal checkpoints name the text model's modules below language_model, Nemotron-H below backbone.
    short = [re.sub(r"^(model\.|language_model\.|backbone\.)+", "", pattern) for pattern in patterns]
    everywhere = [pattern for pattern in short if _layer_of(pattern) is None]
    listed: dict[str, list[str]] = {}
    for pattern in short:
        listed.setdefault(_layer_of(pattern) or "", []).append(pattern)
    held: dict[Role, int] = {}
    covered: dict[Role, int] = {}
    for layer in layers:
        tried = everywhere + listed.get(str(layer.layer), [])
        for role, names in layer.names.items():
            held[role] = held.get(role, 0) + 1
            covered[role] = covered.get(role, 0) + any(_covers(pattern, names) for pattern in tried)
    most = {role for role, count in held.items() if 2 * covered[role] > count}
    if any(_covers(pattern, ("lm_head", "language_model.lm_head")) for pattern in everywhere):
        most.add("lm_head")
    return tuple(role for role in ROLES if role in most)


def _layer_of(pattern: str) -> str | None:
    """The one layer that a plain pattern names."""
    found = re.match(r"layers\.(\d+)\.", pattern)
    return found[1] if found else None


def _covers(pattern: str, modules: tuple[str, ...]) -> bool:
    """ "re:" patterns match from the start; others name a run of path components, with shell wildcards."""
    if pattern.startswith("re:"):
        matches = pattern_matcher(pattern[3:])
        return any(map(matches, modules))
    wanted = pattern.split(".")
    for module in modules:
        parts = module.split(".")
        for start in range(len(parts) - len(wanted) + 1):
            window = parts[start : start + len(wanted)]
            if all(fnmatchcase(part, want) for part, want in zip(window, wanted, strict=True)):
                return True
    return False


@lru_cache(maxsize=64)
def pattern_matcher(text: str) -> Callable[[str], bool]:
    """Whether ``text`` matches from the start of a name, in time that grows with both lengths alone [Thompson1968].

    Checkpoints come from anywhere, and Python's own engine can be kept busy for ever by thirty characters; pydantic
    brings one that cannot. Raises ValueError: the pattern is too long, too large, or not understood; says why.
    """
    if len(text) > LONGEST_PATTERN:
        raise ValueError(f"the pattern {shown(text)} has {len(text)} characters, allowed are {LONGEST_PATTERN}")
    try:
        # Alone as well: a bracket of the pattern must not close the group around it.
        _, anchored = (
            SchemaValidator(core_schema.str_schema(pattern=tried, regex_engine="rust-regex"))
            for tried in (text, f"^(?:{text})")
        )
    except SchemaError as error:
        reason = str(error).splitlines()[-1].strip().removeprefix("error: ").removeprefix("SchemaError: ")
        raise ValueError(f"the pattern {shown(text)}: {reason}") from None
    return anchored.isinstance_python
