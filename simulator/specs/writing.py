"""Specs as YAML text, the way profiles are read."""

from __future__ import annotations

import yaml

from simulator.specs.base import Spec


def yaml_text(spec: Spec, *, heading: str) -> str:
    """``spec`` as YAML under a comment line; fields at their defaults are left out."""
    document = spec.model_dump(mode="json", exclude_defaults=True)
    return f"# {heading}\n" + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
