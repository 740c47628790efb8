"""The options of techniques and number formats, for ``@grouped``: one for each field of their specifications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from inspect import Parameter
from typing import Any

from simulator.cli.shared import field_option
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.plan_values import written_fields
from simulator.specs.question.techniques import TechniquesSpec


def precision_options() -> list[Parameter]:
    """Number formats."""
    metavars = {"mixed": "ROLE=SCHEME"}
    return [field_option(field, metavar=metavars.get(name)) for name, field in written_fields(PrecisionSpec).items()]


def technique_options() -> list[Parameter]:
    """What-if techniques."""
    fields = dict(written_fields(TechniquesSpec))
    # Without the option nothing is split: there is no third way.
    fields["sequence_parallel"] = replace(fields["sequence_parallel"], three_ways=False)
    return list(map(field_option, fields.values()))


def precision_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario's ``precision`` object from the options of ``precision_options``."""
    from simulator.specs.question.techniques_text import mixed_schemes

    given = {name: options[name] for name in PrecisionSpec.model_fields}
    return {**given, "mixed": mixed_schemes(given["mixed"] or [])}


def techniques_of(options: Mapping[str, Any]) -> TechniquesSpec:
    """The techniques that the options of ``technique_options`` ask for."""
    from simulator.specs.question.techniques_text import techniques_spec

    given = {name: options[name] for name in TechniquesSpec.model_fields}
    return techniques_spec({**given, "sequence_parallel": options["sequence_parallel"] or None})
