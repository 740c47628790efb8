"""``roofcast profiles``: what is built in, and what the user's directory adds."""

from __future__ import annotations

import json

from simulator.errors import ProfileError, did_you_mean
from simulator.reports.contract import SCHEMA_VERSION
from simulator.specs.engine.engine import EngineProfile
from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec
from simulator.specs.loading import unnamed_hardware
from simulator.specs.model.loading import list_models, load_model
from simulator.specs.money.prices import PriceProfile
from simulator.specs.profiles import ProfileKind, find_profile, list_profiles, load_spec

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
        model = load_model(name, profiles=profiles).model_dump(mode="json", exclude_defaults=True)
        return json.dumps({"schema_version": SCHEMA_VERSION, **model}, indent=indent)
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
