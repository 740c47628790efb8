"""Values that a specification allows: at its bounds, beside them, of every size between, and rare fields together.

What a gate refuses tells nothing of the arithmetic behind it; these pass the gate.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, Literal, get_args, get_origin

from simulator.specs.base import LARGEST_INTEGER, LARGEST_NUMBER
from simulator.specs.profiles import profile_root
from tests.fuzz.mutation import Tree

_TINY = (5e-324, 1e-308, 1e-200, 1e-160, 1e-100, 1e-30, 1e-12, 1e-9)
_SMALL_INTEGERS = (1, 1, 2, 2, 3, 4, 5, 7, 8, 16, 31, 32, 64, 128, 1000, 4096)
_NEAR = (0.5, 0.9, 0.999999, 1.000001, 1.1, 2.0, 3.0)
_DEEPER = 0.8
"""How often a part that is there is changed inside and not as a whole."""
_FILLED = 0.15
"""Which share of the fields that may be left open a new part has."""
_MOST_COUNTED = 10**5
"""What has no limit of its own is drawn to here: what follows from more is refused by the size of the question."""

TEXTS_OF: Mapping[str, tuple[str, ...]] = {
    "speculation": (
        *("mtp", "mtp:k=2", "eagle:k=1", "eagle2:k=4,acceptance=0.9", "eagle3:task=code", "eagle3:k=100"),
        *("ngram:k=4", "ngram:k=4,acceptance=0", "lookup:k=3,acceptance=1", "draft:k=5,acceptance=0.7", "none"),
        *("medusa:k=4,tree=4/3/2/1", "hydra:k=3", "lookahead:window=5,guesses=5", "rest:k=2", "blockwise:k=4"),
        *("draft:k=4,acceptance=0.6,draft_model=llama-3.2-1b", "draft:k=3,acceptance=0.5,draft_device=cpu"),
    ),
    "sparsity": ("2:4", "1:4", "4:8", "unstructured:0.5", "structured:0.3", "none", "2:4,compressed=true"),
    "kv_policy": ("h2o:1024", "h2o:20%", "streaming:2048", "window:512", "none", "h2o:1", "streaming:1"),
    "weight_offload": ("0.25", "none", "1", "0.000001", "0.999"),
    "kv_tiers": ("host:2e11", "nvme:4e12,bytes_per_s=2e10", "remote:1e14", "host:1", "nvme:1e30,latency_s=1e30"),
    "slo": ("ttft-p95=2s", "tpot-p99=50ms", "e2e-p50=1ms", "ttft-p99.9=1e9s", "tpot-p50=reading"),
    "objective": (
        "ttft-p95=2s",
        "tpot-p99=50ms",
        "latency-p50=1ms",
        "ttft-p99.9=10h",
        "tpot-p95=reading",
        "ttft-p0=1s",
    ),
    "measured_at": ("latency-p95=2.8s", "ttft-p50=1ms", "tpot-p99.9=1h"),
    "stock": ("h100=64", "h100=1", "l40s=8", "b200=1000000", "mi300x=3"),
    "ramp": ("10%/min", "0.0001%/h", "1000%/s", "50%/h"),
    "growth": ("5%/month", "80%/year", "-5%/month", "-99%/year", "1000%/month", "0%/month"),
    "startup": ("4min", "1ms", "30h", "0s", "90s"),
    "autoscaler_lag": ("1min", "1ms", "9h", "0s"),
    "horizon": ("1", "12", "36months", "2years", "120"),
    "start": ("2026-11-26", "1970-01-01", "9999-12-31", "2028-02-29"),
    "load_profile": (
        ",".join(["1"] * 24),
        ",".join(["0"] * 23 + ["1"]),
        ",".join(["1e-300"] * 23 + ["1"]),
        ",".join(str(hour % 24 + 1) for hour in range(168)),
        ",".join(["0.000001"] * 24),
    ),
    "provider": ("hyperscaler", "specialist", "marketplace", "AWS"),
    "prices": ("default",),
    "ownership": ("default",),
    "scheme": ("gptq-g128", "awq", "w8a8", "fp8_block", "nvfp4", "mxfp4", "smoothquant", "nf4", "gguf-q4_k_m"),
    "kernel": ("marlin", "exllama", "machete"),
    "link": ("scale_up", "nic", "host", "infiniband"),
    "interconnect": ("nvlink", "pcie", "infiniband-ndr", "nic", "scale_up"),
    "engine": ("vllm", "sglang", "tensorrt-llm", "tgi", "deepspeed-mii", "torch", "fastertransformer", "llama.cpp"),
    "version": ("0.3.0", "0.6.3", "0.10.0", "0.23.1", "1.0", "99"),
    "pattern": ("2:4", "1:4", "4:8", "unstructured", "structured"),
    "draft_model": ("llama-3.2-1b", "qwen3-0.6b", "llama-3.1-8b"),
    "workload": ("chat", "code", "rag", "long-context", "batch", "agents", "reasoning"),
    "mixed": ("attention=fp8", "mlp=int4", "experts=fp4", "lm_head=fp8"),
    "weights": ("bf16", "fp8", "int8", "int4", "nvfp4", "mxfp4", "fp16", "int1", "fp6"),
    "kv_cache": ("bf16", "fp8", "int8", "int4", "fp4"),
    "activations": ("bf16", "fp8", "int8", "nvfp4", "mxfp4"),
    "with": ("weights=fp8", "sparsity=2:4", "speculation=eagle:k=4", "tp_size=2", "batch_size=64", "kv_policy=h2o:64"),
    "adapters": ("lora:rank=16,count=8", "bitfit", "prompt_tuning:prompt_tokens=20", "qlora:rank=8"),
    "contextual_sparsity": ("attention=0.5,mlp=0.2", "attention=1e-9,mlp=1e-9", "mlp=1"),
    "early_exit": ("mean_fraction=0.6", "mean_fraction=1e-9", "mean_fraction=0.999999"),
    "structure": ("num_key_value_heads=1", "layers_fraction=0.01", "sliding_window=1", "routing_skew=3"),
}
"""Texts of fields that have a grammar of their own."""
_USUAL_HARDWARE = ("h100", "h200", "b200", "l40s", "l4", "mi300x", "a100-sxm-80gb", "gb200", "tpu-v6e", "gaudi3", "t4")
_USUAL_MODELS = (
    *("llama-3.1-8b", "qwen3-8b", "mixtral-8x7b", "qwen2.5-vl-7b", "gpt-oss-20b", "deepseek-v2-lite", "mamba2-2.7b"),
    *("llama-3.1-70b", "qwen3-30b-a3b", "gemma-3-27b", "deepseek-v3", "jamba-v0.1", "bert-base", "opt-125m"),
)


@cache
def _profiles(folder: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in profile_root(folder).glob("*.yaml") if path.stem != "aliases"))


def text_of(rng: random.Random, name: str) -> str | None:
    """A text that a field of that name takes, None where nothing is known of it."""
    if name.endswith("hardware"):
        return rng.choice(_USUAL_HARDWARE if rng.random() < 0.8 else _profiles("hardware_profiles"))
    if name == "model":
        every = _profiles("model_profiles")
        return rng.choice([model for model in _USUAL_MODELS if model in every] if rng.random() < 0.7 else every)
    return rng.choice(TEXTS_OF[name]) if name in TEXTS_OF else None


def integer(rng: random.Random, *, low: int, high: int, old: object = None) -> int:
    """One of the bounds, one beside them, a near one, or one of any size."""
    most = min(high, max(_MOST_COUNTED, low))
    draw = rng.random()
    if draw < 0.15:
        found = rng.choice((low, low + 1))
    elif draw < 0.22:
        found = rng.choice((high, high - 1))
    elif draw < 0.4 and isinstance(old, int) and not isinstance(old, bool):
        found = rng.choice((old - 1, old + 1, old * 2, old // 2, old * 10))
    elif draw < 0.75:
        found = rng.choice(_SMALL_INTEGERS)
    else:
        found = int(math.exp(rng.uniform(0, math.log(max(2, most)))))
    return max(low, min(high, found))


def number(rng: random.Random, *, low: float, high: float, old: object = None) -> float:
    """One of the bounds, the next one to them, a tiny one, a near one, or one of any size. Bounds are included."""
    draw = rng.random()
    if draw < 0.15:
        found = rng.choice((low, math.nextafter(low, math.inf)))
    elif draw < 0.3:
        found = rng.choice((high, math.nextafter(high, -math.inf)))
    elif draw < 0.42:
        found = rng.choice(_TINY)
    elif draw < 0.6 and isinstance(old, int | float) and not isinstance(old, bool):
        found = old * rng.choice(_NEAR)
    elif draw < 0.8:
        found = rng.choice((0.1, 0.5, 0.9, 1.0, 1.5, 2.0, 10.0, 100.0))
    else:
        found = math.exp(rng.uniform(math.log(1e-6), math.log(max(1e-5, min(high, 1e9)))))
    return max(low, min(high, found))


class _Schema:
    """A specification as JSON Schema, and the values that it allows."""

    def __init__(self, spec: type[Any]) -> None:
        self.root = spec.model_json_schema()
        self._parts = self.root.get("$defs", {})

    def resolved(self, rng: random.Random, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """One of the forms that a field may take; never null."""
        while True:
            if "$ref" in schema:
                schema = self._parts[schema["$ref"].rsplit("/", 1)[1]]
            elif "anyOf" in schema or "oneOf" in schema:
                forms = [form for form in schema.get("anyOf") or schema["oneOf"] if form.get("type") != "null"]
                schema = rng.choice(forms)
            elif len(schema.get("allOf", ())) == 1:
                schema = schema["allOf"][0]
            else:
                return schema

    def change(
        self, rng: random.Random, place: dict[str, Any], schema: Mapping[str, Any], *, idle: Collection[str] = ()
    ) -> None:
        """One field of ``place``, at any depth; none of ``idle`` of its own."""
        name = rng.choice(sorted(set(schema["properties"]).difference(idle)))
        form, old = self.resolved(rng, schema["properties"][name]), place.get(name)
        inner = form
        if isinstance(old, list) and old and form.get("type") == "array" and "items" in form:
            inner, old = self.resolved(rng, form["items"]), rng.choice(old)
        named = inner.get("additionalProperties")
        if isinstance(old, dict) and old and isinstance(named, dict) and rng.random() < _DEEPER:
            key = rng.choice(sorted(old))
            inner = self.resolved(rng, named)
            if isinstance(old[key], dict) and "properties" in inner:
                self.change(rng, old[key], inner)
            else:
                old[key] = self.made(rng, inner, key, old[key])
        elif isinstance(old, dict) and "properties" in inner and rng.random() < _DEEPER:
            self.change(rng, old, inner)
        else:
            place[name] = self.made(rng, form, name, place.get(name))

    def made(self, rng: random.Random, schema: Mapping[str, Any], name: str, old: object = None) -> Tree:
        """A value of a form."""
        schema = self.resolved(rng, schema)
        if "enum" in schema or "const" in schema:
            return rng.choice(schema.get("enum") or [schema["const"]])
        make = _MAKERS.get(schema.get("type", ""))
        return old if make is None else make(self, rng, schema, name, old)


def _integer(of: _Schema, rng: random.Random, schema: Mapping[str, Any], name: str, old: object) -> Tree:
    low = max(schema.get("minimum", -(10**6)), schema.get("exclusiveMinimum", -(10**7)) + 1)
    return integer(
        rng, low=low, high=min(schema.get("maximum", 10**9), schema.get("exclusiveMaximum", 10**9 + 1) - 1), old=old
    )


def _number(of: _Schema, rng: random.Random, schema: Mapping[str, Any], name: str, old: object) -> Tree:
    low, high = schema.get("minimum", 0.0), schema.get("maximum", 1e30)
    if "exclusiveMinimum" in schema:
        low = max(low, math.nextafter(schema["exclusiveMinimum"], math.inf))
    if "exclusiveMaximum" in schema:
        high = min(high, math.nextafter(schema["exclusiveMaximum"], -math.inf))
    return number(rng, low=low, high=high, old=old)


def _text(of: _Schema, rng: random.Random, schema: Mapping[str, Any], name: str, old: object) -> Tree:
    known = text_of(rng, name)
    return known if known is not None else old if isinstance(old, str) else "mine"


def _list(of: _Schema, rng: random.Random, schema: Mapping[str, Any], name: str, old: object) -> Tree:
    if "prefixItems" in schema:
        return [of.made(rng, item, name) for item in schema["prefixItems"]]
    held = [of.made(rng, schema["items"], name) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return held * rng.choice((1, 1, 1, 2)) or (list(old[:-1]) if isinstance(old, list) else held)


def _object(of: _Schema, rng: random.Random, schema: Mapping[str, Any], name: str, old: object) -> Tree:
    if "properties" not in schema:
        return old if isinstance(old, dict) else {}
    needed = set(schema.get("required", ()))
    return {
        field: of.made(rng, form, field)
        for field, form in schema["properties"].items()
        if field in needed or rng.random() < _FILLED
    }


_Maker = Callable[[_Schema, random.Random, Mapping[str, Any], str, object], Tree]
_MAKERS: Mapping[str, _Maker] = {
    "integer": _integer,
    "number": _number,
    "string": _text,
    "array": _list,
    "object": _object,
    "boolean": lambda of, rng, schema, name, old: not old if isinstance(old, bool) else rng.random() < 0.5,
}


@cache
def schema_of(spec: type[Any]) -> _Schema:
    """Of a specification."""
    return _Schema(spec)


def allowed_tree(
    rng: random.Random, tree: Tree, *, spec: type[Any], others: Sequence[Tree] = (), idle: Collection[str] = ()
) -> Tree:
    """``tree`` with one to five fields that the specification allows, some as ``others`` have them; none of ``idle``,
    which would be refused beside the rest."""
    changed = json.loads(json.dumps(tree))
    if not isinstance(changed, dict):
        return changed
    schema = schema_of(spec)
    for _ in range(rng.choice((1, 1, 2, 2, 3, 5))):
        other = rng.choice(others) if others and rng.random() < 0.3 else None
        names = sorted(set(other).difference(idle)) if isinstance(other, dict) else ()
        if names:
            name = rng.choice(names)
            changed[name] = json.loads(json.dumps(other[name]))
        else:
            schema.change(rng, changed, schema.root, idle=idle)
    return changed


def allowing(spec: type[Any]) -> Callable[[random.Random, Tree], Tree]:
    """Trees that a specification allows, made of others."""

    def make(rng: random.Random, tree: Tree) -> Tree:
        return allowed_tree(rng, tree, spec=spec)

    return make


def _typed(annotation: Any) -> tuple[str, tuple[str, ...]]:
    """What an option takes, and its choices."""
    inner = [part for part in get_args(annotation) if part is not type(None)]
    if inner and get_origin(annotation) is not Literal:
        return _typed(inner[0])
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "choice", tuple(str(member.value) for member in annotation)
    if inner:
        return "choice", tuple(str(part) for part in inner)
    return getattr(annotation, "__name__", "str"), ()


def allowed_words(rng: random.Random, options: Sequence[Any], *, but: Collection[str] = ()) -> list[str]:
    """One to four options of a command, of those that typer knows, with values that they take."""
    known = [
        option
        for option in options
        if option.opts[0].startswith("--") and option.name not in but and "FILE" not in str(option.metavar)
    ]
    words: list[str] = []
    for option in rng.sample(known, min(len(known), rng.choice((1, 1, 2, 2, 3, 4)))):
        kind, choices = _typed(option.type_descriptor.annotation)
        if option.is_flag or kind == "bool":
            words.append(option.opts[0])
            continue
        words += [option.opts[0], _word(rng, option, kind, choices)]
    return words


def _word(rng: random.Random, option: Any, kind: str, choices: tuple[str, ...]) -> str:
    if choices:
        return rng.choice(choices)
    low, high = getattr(option, "min", None), getattr(option, "max", None)
    if kind == "int":
        return str(integer(rng, low=int(low or 0), high=int(high or LARGEST_INTEGER)))
    if kind == "float":
        return str(number(rng, low=float(low or 0), high=float(high or LARGEST_NUMBER)))
    known = text_of(rng, option.name)
    return known if known is not None else rng.choice(("1", "0.5", "mine", "2s", "h100"))
