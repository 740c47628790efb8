"""Sentences of notes: what a reader should know of an answer, by the keys of what the library found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import isfinite
from pathlib import Path
from string import Formatter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from simulator.errors import shown
from simulator.specs.base import Note, read_yaml
from simulator.units import GIGA, KILO, MILLI, counted_text, percent_text, plain_text

if TYPE_CHECKING:
    from simulator.engine.encoders import EncoderUse
    from simulator.engine.runs.attention_ffn import AttentionFfnUse


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
        "plain": lambda value, _: plain_text(value),
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


_MADE: Mapping[str, Callable[..., str]] = MappingProxyType({"encoders": _encoders, "attention_ffn": _attention_ffn})


@cache
def _templates() -> Mapping[str, str]:
    return read_yaml(Path(__file__).with_name("notes.yaml"))


def sentence(item: Note) -> str:
    """The sentence of a note whose values decide how it is made, or that of ``notes.yaml`` with them filled in."""
    made = _MADE.get(item.key)
    return made(**item.values) if made else _Template().vformat(_templates()[item.key], (), item.values)
