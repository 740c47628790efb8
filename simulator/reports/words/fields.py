"""Fields of a question and notes of answers in words; only this and ``cli`` know flags."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from math import isfinite
from pathlib import Path
from string import Formatter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from simulator.errors import InfeasibleError, Option, RoofcastError, one_line, shown
from simulator.specs.base import Assumption, Note, ValueOrigin, read_yaml
from simulator.specs.engine.releases import LimitRule, LimitSource
from simulator.specs.question.plan_values import SHORT_FIELDS
from simulator.traffic.lengths import LengthDistribution
from simulator.units import GIGA, KILO, MILLI, bound_text, counted_text, percent_text, plain_text

if TYPE_CHECKING:
    from simulator.engine.encoders import EncoderUse
    from simulator.engine.runs.attention_ffn import AttentionFfnUse
    from simulator.planner.records import FieldValue, Rejection
    from simulator.specs.question.plan import PlanSpec
    from simulator.specs.question.plan_values import ObjectiveSpec

_JOINED = ("load_profile",)
"""Lists that are one flag with commas; all others repeat theirs."""


_SHORT_OF = {field: word for word, field in SHORT_FIELDS.items()}


def flag_of(field: str) -> str:
    """The option that fills a field: ``--tp`` of ``tp_size``, ``--max-gpus`` of ``max_gpus``."""
    return "--" + _SHORT_OF.get(field, field).replace("_", "-")


def _words(name: str, value: object) -> list[str]:
    flag = flag_of(name)
    if isinstance(value, bool):
        return [flag] if value else []
    if isinstance(value, tuple):
        return [word for item in value for word in _words(name, item)]
    if isinstance(value, float) and name == "growth":
        return [flag, f"{100 * value:.12g}%/month"]
    if isinstance(value, float):
        return [flag, f"{value:.12g}"]
    return [flag, str(getattr(value, "value", value))]


def plan_command(spec: PlanSpec) -> str:
    """``plan-capacity --rps 1000 --ttft-p95 2s``, quoted for a shell."""
    words = ["plan-capacity"]
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        if name not in spec.model_fields_set or value is None:
            continue
        if value is False and type(spec).model_fields[name].default is None:
            words.append(flag_of(f"no_{name}"))
        elif name == "objectives":
            for item in value:
                words += [f"--{item.metric}-p{item.percentile:g}", f"{item.bound_s:.12g}s"]
        elif name in _JOINED:
            words += [flag_of(name), ",".join(f"{item:.12g}" for item in value)] if value else []
        else:
            words += _words(name, value)
    return shlex.join(words)


_NAMED = re.compile(r"`([a-z0-9_]+)`")
"""A field that an error names, in the middle of its sentence."""


def flag_texts(items: Iterable[FieldValue]) -> str:
    """``--tp 4 --dp 2``; ``--tp`` alone where the value is open, ``no --tp`` where it is left out."""
    return flagged(" ".join(map(str, items)))


def error_field(error: RoofcastError) -> str:
    """What was wrong, as the command line calls it."""
    return flag_of(error.field) if isinstance(error.field, Option) else error.field


def error_line(error: RoofcastError) -> str:
    """``str(error)`` with fields as flags."""
    return flagged(str(error))


def error_content(error: RoofcastError) -> dict[str, str]:
    """A refusal as it stands in a JSON document."""
    return {
        "code": error.code,
        "field": error_field(error),
        "message": flagged(error.message),
        "hint": flagged(error.hint),
    }


def flagged(sentence: str) -> str:
    """An error's sentence with its fields as flags."""
    return _NAMED.sub(lambda found: flag_of(found[1]), sentence)


_SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "workload.spacing": "default: rate x duration requests at random moments",
        "range_ratio": "default: lengths are uniform between that share of the nominal ones and those",
        "num_requests": "default: ten for each client",
        "encoder_pool.hardware": "as prompts",
        "disaggregation.hand_over_s": "fitted to measured runs of two pools",
        "hand_over_s": "fitted to measured runs of two pools",
        "techniques.structure.routing_skew": "fitted: how unevenly experts are chosen, 0 is evenly",
        "engine.expert_placement": "as recipes with so many expert-parallel ranks balance experts; experts routed "
        "unevenly still crowd by chance",
    }
)
"""Where a value is from whose key alone says it."""


def _engine_name(item: Assumption) -> str:
    if item.origin is ValueOrigin.RULE:
        return f"engine {item.detail} has no profile: priced as {item.value}"
    return _plainly(item)


def _engine_version(item: Assumption) -> str:
    if item.origin is ValueOrigin.DEFAULT:
        return f"{item.key} = {item.value} (default; from {item.detail} on, steps were measured apart here)"
    what = "this model" if item.detail == "model" else f"{item.detail} on these accelerators"
    return f"{item.key} = {item.value} (the first release that runs {what})"


def cut_text(lengths: LengthDistribution) -> str:
    """``cv 0.08: log-normal of cv 0.96, cut at 130,861 tokens ...``."""
    end = f"{lengths.longest_tokens:,.0f} tokens, the context less the mean of the other length"
    return f"cv {lengths.cv:.2f}: log-normal of cv {lengths.uncut_cv:.2f}, cut at {end}, and renormalised"


def _never_timed(item: Assumption) -> str:
    return note_text(Note(item.key, {"kernel": item.value}))


_ANSWERS = "{key} = {value}: every rate and latency is of single answers, {value} to a request"
_SENTENCES: Mapping[str, Callable[[Assumption], str] | str] = MappingProxyType(
    {
        "engine.cpu_kv_offload_bytes": "{key} = twice the device's KV cache (default of SGLang's --hicache-ratio)",
        "engine.name": _engine_name,
        "engine.version": _engine_version,
        **dict.fromkeys(("engine.slower_experts", "engine.slow_products", "engine.undivided_latent"), _never_timed),
        "workload.ignore_eos": "{key} = {value}: answers are as long as osl_tokens and osl_cv say",
        **dict.fromkeys(("answers_per_request", "workload.answers_per_request"), _ANSWERS),
    }
)


def _range_text(least: float | None, below: float | None, *, unit: str) -> str:
    """``20 to 35 GiB``, ``70 GiB and more``, ``below 20 GiB``; empty without bounds."""
    if least is None:
        return "" if below is None else f"below {plain_text(below)}{unit}"
    return (
        f"{plain_text(least)}{unit} and more" if below is None else f"{plain_text(least)} to {plain_text(below)}{unit}"
    )


def rule_text(rule: LimitRule) -> str:
    """The conditions of a rule: ``70 GiB and more, not a100``; empty where it holds everywhere."""
    parts = (
        _range_text(rule.memory_gib_at_least, rule.memory_gib_below, unit=" GiB"),
        " or ".join(rule.accelerators),
        "" if rule.name_without is None else f"not {rule.name_without}",
        " or ".join(rule.architectures),
        _range_text(rule.tp_size_at_least, rule.tp_size_below, unit=" devices of tensor parallelism"),
        "" if rule.memory_share is None else "by its formula",
    )
    return ", ".join(part for part in parts if part)


def limit_source_text(source: LimitSource) -> str:
    """``default of vllm 0.15.1: 70 GiB and more, not a100``."""
    said = f"default of {source.engine} {source.release}"
    if source.asked is not None:
        said += f", the release nearest to {source.asked} with known rules"
    conditions = "" if source.rule is None else rule_text(source.rule)
    return f"{said}: {conditions}" if conditions else said


def source_text(item: Assumption) -> str:
    """Where a field of a scenario has its value from."""
    if isinstance(item.detail, LimitSource):
        return limit_source_text(item.detail)
    if item.detail is None and item.key in _SOURCES:
        return _SOURCES[item.key]
    if item.origin is ValueOrigin.DEFAULT:
        return "default" if item.detail is None else f"default of {item.detail}"
    if isinstance(item.detail, int):
        each = f"every running sequence takes {item.detail} tokens of a step"
        return each if item.detail > 1 else "a token a sequence and step"
    return str(item.origin) if item.detail is None else _detail_text(item.detail)


_DETAILS: Mapping[str, str] = MappingProxyType(
    {
        "one_pass": "all prompts of the batch in one pass (max_num_batched_tokens not given)",
        "weights_of_dtype": "weights {weights} (checkpoint dtype {dtype})",
        "activations": "activations {dtype}",
        "weights_of_config": "weights {weights}, activations {dtype} ({format}) from quantization_config",
        "kv_cache": "kv cache {dtype}",
        "power_of_servers": "whole servers",
        "power_of_devices": "accelerators at TDP, without hosts",
    }
)
"""Notes of nearly every answer or plan; for all others ``notes.yaml`` is read."""


def _encoders(use: EncoderUse) -> str:
    waits = f"{use.wait_mean_s:.3g} s of waiting"
    if isfinite(use.poisson_wait_mean_s):
        waits += f" ({use.poisson_wait_mean_s:.3g} s by M/D/c)"
    return (
        f"pictures are encoded by {counted_text(use.replicas, 'replica')} on {use.devices} {use.hardware}:"
        f" {use.request_s:.3g} s a request after {waits}, then {use.transfer_s:.3g} s over {use.link}; busy"
        f" {percent_text(use.busy_fraction)}, saturated at {use.saturation_per_s:.3g} requests/s,"
        f" {use.needed_replicas} needed to keep up"
    )


def _attention_ffn(use: AttentionFfnUse) -> str:
    alone = use.micro_batches == 1
    hides = ("hides" if alone else "hide") if use.hidden else f"{'does' if alone else 'do'} not hide"
    plain = "" if use.ordinary_step_s is None else f", {use.ordinary_step_s:.3g} s with both on every device"
    return (
        f"a decode replica has {counted_text(use.attention_devices, 'device')} for attention and {use.ffn_devices}"
        f" {use.ffn_hardware} for experts: a micro-batch and layer takes {use.attention_s:.3g} s"
        f" and {use.ffn_s:.3g} s there and"
        f" {use.transfers_s:.3g} s under way, which {counted_text(use.micro_batches, 'micro-batch')} {hides}"
        f" ({use.needed_micro_batches} needed); a step takes {use.step_s:.3g} s{plain}"
    )


def _idle_above(objective: ObjectiveSpec, idle_s: float, times: float, margin: float) -> str:
    slower = f" where steps take {margin:.3g} times as long as predicted" if margin > 1 else ""
    above = f"above {bound_text(objective.bound_s)}" + (f" by a factor of {times:.3g}" if f"{times:.3g}" != "1" else "")
    return f"{objective.name} of an idle replica is {bound_text(idle_s, digits=4)}{slower}, {above}"


_FORMATS: Mapping[str, Callable[[Any, str], str]] = MappingProxyType(
    {
        "percent": lambda share, digits: percent_text(share, digits=int(digits) if digits else None),
        "giga": lambda value, form: format(value / GIGA, form or "g"),
        "kilo": lambda value, form: format(value / KILO, form),
        "milli": lambda value, form: format(value / MILLI, form),
        "times": lambda count, _: "once" if count == 1 else f"{count:,} times",
        "names": lambda names, joint: (f" {joint} " if joint else ", ").join(names) or "none",
        "each": lambda names, word: ", ".join(f"{name} {word}" for name in names),
        "counted": counted_text,
        "said": lambda note, _: sentence(note),
        "all_said": lambda notes, _: "; ".join(map(sentence, notes)),
        "words": lambda name, _: name.replace("_", " "),
        "figures": lambda pairs, before: (
            before + ", ".join(f"{name} {value:g}" for name, value in pairs) if pairs else ""
        ),
        "plain": lambda value, digits: plain_text(value, digits=int(digits or 4)),
        "amount": lambda value, _: f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.3g}",
        "one_or": lambda count, _: "one" if count == 1 else str(count),
        "shown": lambda value, _: shown(value),
        "after": lambda value, before: f"{before}{value}" if value else "",
        "or": lambda value, otherwise: str(value or otherwise),
        "either": lambda chosen, texts: texts.split("|")[not chosen],
    }
)
"""How a value of a template is written, by the first word of its format, and the rest of that: ``{share:percent 3}``,
``{kept:names or}``, ``{devices:counted device}``, ``{method:or any method}``, ``{apart:either alone|together}``."""


class _Template(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        word, _, rest = format_spec.partition(" ")
        return _FORMATS[word](value, rest) if word in _FORMATS else super().format_field(value, format_spec)


_MADE: Mapping[str, Callable[..., str]] = MappingProxyType(
    {"encoders": _encoders, "attention_ffn": _attention_ffn, "idle_above": _idle_above}
)


def filled_template(text: str, values: Mapping[str, object]) -> str:
    """A template with its values, or what attributes of theirs it names: ``{item.launch.title}``."""
    return _Template().vformat(text, (), values)


@cache
def _templates() -> Mapping[str, str]:
    return read_yaml(Path(__file__).with_name("notes.yaml"))


def sentence(item: Note) -> str:
    """The sentence of a note whose values decide how it is made, or that of ``notes.yaml`` with them filled in."""
    made = _MADE.get(item.key)
    return made(**item.values) if made else filled_template(_templates()[item.key], item.values)


def note_text(item: Note | str) -> str:
    """One sentence, without its capital and its stop; what a profile says itself stays."""
    if isinstance(item, str):
        return item
    if item.key in _DETAILS:
        return _DETAILS[item.key].format_map(item.values)
    return sentence(item)


def rejection_text(item: Rejection) -> str:
    """Why a candidate cannot serve, with fields as flags."""
    return flagged(sentence(item.reason))


@contextmanager
def reason_in_words() -> Iterator[None]:
    """A refusal to plan says, too, why the candidate that comes nearest cannot serve."""
    try:
        yield
    except InfeasibleError as error:
        reason = getattr(error, "reason", None)
        if reason is not None:
            error.message = one_line(f"{error.message}: {sentence(reason)}")
        raise


def note_texts(items: Iterable[Note | str]) -> list[str]:
    """All of them."""
    return list(map(note_text, items))


def _detail_text(detail: object) -> str:
    return note_text(detail) if isinstance(detail, Note) else str(detail)


def value_text(item: Assumption) -> str:
    """The value of a scenario's field: rates of acceptance by position, else as it is."""
    rates = item.value
    if item.key != "speculation.acceptance" or not isinstance(rates, tuple):
        return str(rates)
    alike = len(set(rates)) == 1
    return f"{rates[0]:.3f} a position" if alike else " ".join(f"{rate:.2f}" for rate in rates) + " by position"


def _plainly(item: Assumption) -> str:
    if isinstance(item.value, LengthDistribution) and item.value.uncut_cv is not None:
        return f"{item.key}: {cut_text(item.value)}"
    return _detail_text(item.detail) if item.value is None else f"{item.key} = {value_text(item)} ({source_text(item)})"


def assumption_text(item: Assumption) -> str:
    """``engine.max_num_seqs = 256 (default of vllm)``."""
    way = _SENTENCES.get(item.key, _plainly)
    said = way.format(key=item.key, value=item.value) if isinstance(way, str) else way(item)
    return f"{item.pool}: {said}" if item.pool else said


def assumption_texts(items: Iterable[Assumption]) -> list[str]:
    """All of them, as the JSON contract lists them."""
    return [assumption_text(item) for item in items]
