"""``roofcast profiles``: what is built in, and what the user's directory adds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from simulator.errors import ProfileError, did_you_mean
from simulator.phases.power import energy_prices
from simulator.reports.answer import SCHEMA_VERSION, Json
from simulator.reports.content.quantities import bytes_text, count_text, number_text, parameters_text, watts_text
from simulator.reports.words.fields import note_text, note_texts
from simulator.specs.base import Source
from simulator.specs.engine.engine import EngineProfile
from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec, unnamed_hardware
from simulator.specs.hardware.calibration import load_power_fits
from simulator.specs.model.loading import list_models, load_model
from simulator.specs.model.precision import BITS
from simulator.specs.money.prices import PriceProfile
from simulator.specs.profiles import ProfileKind, find_profile, list_profiles, load_spec
from simulator.units import TERA, format_si

FACT_COLUMNS = ("quantity", "value", "source", "date")
MODEL_COLUMNS = ("quantity", "value")
_WIDEST_BITS = 16
"""Of the formats in which served models multiply: power was measured with nothing wider."""


def _source(sources: Mapping[str, Source], field: str) -> tuple[str, str]:
    """The entry of the field, of its parent, or nothing."""
    found = sources.get(field) or sources.get(field.split(".")[0])
    return (found.source, found.date) if found else ("", "")


def hardware_headline(spec: AcceleratorSpec) -> str:
    """``h100-sxm-80gb: 80 GB at 3.35 TB/s, 989 TFLOP/s bf16``."""
    peak = max(spec.peak_flops_per_s, key=lambda dtype: (dtype.value == "bf16", dtype.value == "fp16"))
    preliminary = ", announced: preliminary figures" if spec.status == "announced" else ""
    return (
        f"{spec.name}: {bytes_text(spec.memory_bytes)} at {format_si(spec.memory_bytes_per_s, 'B/s')}, "
        f"{format_si(spec.peak_flops_per_s[peak], 'FLOP/s')} {peak.value}{preliminary}"
    )


def hardware_facts(spec: AcceleratorSpec) -> list[tuple[str, str, str, str]]:
    """Datasheet facts and forecasts of energy, in the order of FACT_COLUMNS; peaks are dense unless they say sparse."""
    rows = [
        *(
            (f"peak {dtype.value}, dense", format_si(value, "FLOP/s"), f"peak_flops_per_s.{dtype.value}")
            for dtype, value in spec.peak_flops_per_s.items()
        ),
        *(
            (f"peak {dtype.value}, 2:4 sparse", format_si(value, "FLOP/s"), f"sparse_peak_flops_per_s.{dtype.value}")
            for dtype, value in spec.sparse_peak_flops_per_s.items()
        ),
        ("memory", f"{bytes_text(spec.memory_bytes)} {spec.memory_kind}", "memory_bytes"),
        ("memory that software sees", bytes_text(spec.memory_visible_bytes), "memory_visible_bytes"),
        ("memory bandwidth", format_si(spec.memory_bytes_per_s, "B/s"), "memory_bytes_per_s"),
        ("L2 cache", bytes_text(spec.l2_bytes), "l2_bytes"),
        ("compute units", count_text(spec.compute_units), "compute_units"),
        ("boost clock", format_si(spec.boost_clock_hz, "Hz"), "boost_clock_hz"),
        (
            f"to its neighbours by {spec.scale_up.kind}, per direction",
            format_si(spec.scale_up.bytes_per_s_per_direction, "B/s"),
            "scale_up.bytes_per_s_per_direction",
        ),
        (
            f"to its host by {spec.host_link.kind}, per direction",
            format_si(spec.host_link.bytes_per_s_per_direction, "B/s"),
            "host_link.bytes_per_s_per_direction",
        ),
        ("thermal design power", watts_text(spec.tdp_w), "tdp_w"),
        ("idle power", watts_text(spec.idle_w), "idle_w"),
    ]
    return [*((name, value, *_source(spec.sources, field)) for name, value, field in rows), *_energy_forecasts(spec)]


def _energy_forecasts(spec: AcceleratorSpec) -> list[tuple[str, str, str, str]]:
    """Energy of single operations above idle: no datasheet says it, the power fit does."""
    fit = load_power_fits().of(spec)
    prices = energy_prices(spec, fit=fit)
    source = "power fit" if spec.architecture in fit.architectures else f"power fit of {fit.architectures[0]}"
    operations = [
        (f"one {dtype.value} FLOP", joules) for dtype, joules in prices.flop_j.items() if BITS[dtype] <= _WIDEST_BITS
    ]
    return [
        (f"energy of {name}, forecast", f"{number_text(TERA * joules)} pJ", f"{source}: {fit.source}", fit.date)
        for name, joules in (*operations, ("one byte of memory traffic", prices.byte_j))
    ]


def model_headline(document: Json) -> str:
    """``llama-3.1-70b: 70.6 B parameters``, active ones where they differ (``document`` of ``roofcast model``)."""
    total, active = document["parameters"], document["active_parameters"]
    shown = f"{document['name']}: {parameters_text(total)} parameters"
    return shown if active == total else f"{shown}, {parameters_text(active)} active per token"


def model_facts(document: Json) -> list[tuple[str, str]]:
    """What the configuration holds, in the order of MODEL_COLUMNS (``document`` of ``roofcast model``)."""
    context = f"{document['context_tokens']:,} tokens"
    decode = document["decode_flops_per_token"]
    return [
        ("type", document["model_type"]),
        ("layers", count_text(document["num_hidden_layers"])),
        ("hidden size", count_text(document["hidden_size"])),
        ("parameters", parameters_text(document["parameters"])),
        ("active per token", parameters_text(document["active_parameters"])),
        (f"prefill of {context}", format_si(document["prefill_flops"], "FLOP")),
        (f"decode after {context}", "none, an encoder" if decode is None else f"{format_si(decode, 'FLOP')} per token"),
        ("KV cache", f"{bytes_text(document['kv_bytes_per_token'])} per token ({document['kv_cache_dtype']})"),
        (f"KV cache of {context}", bytes_text(document["kv_bytes_at_context"])),
        ("recurrent state", f"{bytes_text(document['state_bytes_per_sequence'])} per sequence"),
    ]


def beside(mine: Sequence[Sequence[str]], other: Sequence[Sequence[str]]) -> list[tuple[str, str, str]]:
    """Rows of facts with another profile's value of the same quantity behind each, a dash where it has none."""
    values = {row[0]: row[1] for row in other}
    return [(row[0], row[1], values.get(row[0], "-")) for row in mine]


SECTIONS: dict[ProfileKind, type[AcceleratorSpec | ServerSpec | PriceProfile | EngineProfile]] = {
    "hardware": AcceleratorSpec,
    "servers": ServerSpec,
    "prices": PriceProfile,
    "engines": EngineProfile,
}


def names_by_section(sections: list[str], *, profiles: str | None) -> dict[str, list[str]]:
    """Profile names of each section, sorted."""
    named = {}
    for section in sections:
        if section == "models":
            named[section] = list(list_models(profiles=profiles))
        else:
            named[section] = list(next(list_profiles(kind, profiles=profiles) for kind in SECTIONS if kind == section))
    return named


def show_profile(name: str, *, as_json: bool, profiles: str | None) -> str:
    """One profile, by name or alias, as JSON or YAML-like text; models as the resolved specification."""
    indent = None if as_json else 2
    for kind, spec_class in SECTIONS.items():
        if find_profile(kind, name, profiles=profiles) is not None:
            spec = load_spec(spec_class, name, kind=kind, profiles=profiles)
            return json.dumps({"schema_version": SCHEMA_VERSION, **spec.model_dump(mode="json")}, indent=indent)
    try:
        model = load_model(name, profiles=profiles)
        said: dict[str, object] = {} if model.assumption is None else {"assumption": note_text(model.assumption)}
        said |= {"notes": note_texts(model.notes)} if model.notes else {}
        document = model.model_dump(mode="json", exclude_defaults=True) | said
        return json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=indent)
    except ProfileError as error:
        known = [
            item for listed in names_by_section([*SECTIONS, "models"], profiles=profiles).values() for item in listed
        ]
        raise ProfileError(f"no profile is called {name!r}", field="NAME", hint=did_you_mean(name, known)) from error


def names_text(names: dict[str, list[str]], *, profiles: str | None = None) -> str:
    """The names under the title of their section; accelerators that a search leaves out are marked."""
    lines = []
    for title, listed in names.items():
        marks = unnamed_hardware(profiles=profiles) if title == "hardware" else {}
        lines.append(f"{title} ({len(listed)})")
        lines += [f"  {name} ({marks[name]})" if name in marks else f"  {name}" for name in listed]
    return "\n".join(lines)
