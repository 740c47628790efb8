"""Words of ``words.yaml`` with the library's own values: what stands for every option that is not given, and which
command is meant by a word for one of another name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from simulator.specs.base import read_yaml

FILE = Path(__file__).with_name("words.yaml")


@lru_cache(maxsize=1)
def _written() -> Mapping[str, Mapping[str, str]]:
    return read_yaml(FILE)


def _values() -> dict[str, object]:
    """Of the library; imported where a help is shown, not where a command is run."""
    from simulator.api.models import DEFAULT_LENGTHS
    from simulator.operators.vision import DEFAULT_IMAGE_PIXELS
    from simulator.planner.demand import DEFAULT_OBJECTIVES
    from simulator.planner.fleet.availability import DEFAULT_MTTR_HOURS
    from simulator.planner.fleet.records import DEFAULT_SPARES
    from simulator.planner.search.question import DEFAULT_UTILIZATION
    from simulator.planner.studies.growth import DEFAULT_LEAD_TIME_DAYS
    from simulator.planner.studies.resilience import AUTOSCALER_LAG_S
    from simulator.planner.studies.uncertainty import DEFAULT_DEMAND_SIGMA, DEFAULT_DRAWS
    from simulator.specs.engine.engine import DEFAULT_ENGINE
    from simulator.specs.question import plan_values as values
    from simulator.traffic.lengths import CHAT
    from simulator.units import bound_text, percent_text

    return {
        **{"chat": CHAT.word, "chat_isl": CHAT.isl_tokens, "chat_osl": CHAT.osl_tokens},
        **{"engine": DEFAULT_ENGINE, "hardware": values.HARDWARE, "planned_model": values.PLANNED_MODEL},
        **{"image_pixels": DEFAULT_IMAGE_PIXELS, "mixer_tokens": ", ".join(map(str, DEFAULT_LENGTHS))},
        **{"step_tokens": values.STEP_CONTEXT_TOKENS, "served_duration": f"{values.SERVED_DURATION_S:g}"},
        "objectives": ", ".join(f"{item.name} <= {bound_text(item.bound_s)}" for item in DEFAULT_OBJECTIVES),
        **{"utilization": percent_text(DEFAULT_UTILIZATION), "spares": DEFAULT_SPARES, "draws": DEFAULT_DRAWS},
        **{"mttr_hours": f"{DEFAULT_MTTR_HOURS:g}", "autoscaler_lag": bound_text(AUTOSCALER_LAG_S)},
        **{"horizon": values.DEFAULT_HORIZON_MONTHS, "lead_time": DEFAULT_LEAD_TIME_DAYS},
        "demand_sigma": f"{DEFAULT_DEMAND_SIGMA:g}",
    }


def _said(*commands: str) -> dict[str, str]:
    """Words of these commands by parameter, later ones over earlier ones."""
    values, parts = _values(), [_written().get(command, {}) for command in commands]
    return {name: text.format_map(values) for part in parts for names, text in part.items() for name in names.split()}


def plan_defaults() -> Mapping[str, str]:
    """By field or parameter, what its help says after "default"; flags that are off need no words."""
    from simulator.specs.question.plan import PlanSpec

    own = {
        name: f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
        for name, field in PlanSpec.model_fields.items()
        if isinstance(field.default, int | float | str) and not isinstance(field.default, bool)
    }
    return own | _said("plan")


def command_defaults(command: str) -> Mapping[str, str]:
    """By parameter of a command by its words (``prices list``), what its help says after "default"."""
    return _said("every_command", *(["serve"] if command == "capacity" else []), command)


def meant_by(word: str, *, table: str = "meant") -> str | None:
    """What to type in place of a word for a command, or an option, of another name; None where nobody calls one so."""
    return next((text for text, words in _written()[table].items() if word in words.split()), None)
