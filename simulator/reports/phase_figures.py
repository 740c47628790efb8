"""The numbers of a run's two phases and of its memory that stand on a page: text and 80 % interval."""

from __future__ import annotations

from typing import Literal

from simulator.reports.contract import Json
from simulator.reports.quantities import count_text, percent_text, range_text
from simulator.reports.scenario_figures import ScenarioFigure
from simulator.reports.step_figures import step_time_figure, utilisation_figure

Phase = Literal["prefill", "decode"]
PHASES: tuple[Phase, ...] = ("prefill", "decode")
_UTILISATIONS = ("mfu", "mbu")


def phase_figures(document: Json, *, phase: Phase) -> tuple[ScenarioFigure, ...]:
    """Mean step, MFU and MBU of a phase of a result of the contract; ``key`` is the phase and the field.

    Empty where a run has no such phase: answers of one token are not decoded.
    """
    found, label = document[phase], phase.capitalize()
    if found is None:
        return ()
    return (
        step_time_figure(found, key=f"{phase}_step_s", label=f"{label} step"),
        *(
            utilisation_figure(found, field=field, key=f"{phase}_{field}", label=f"{label} {field.upper()}")
            for field in _UTILISATIONS
        ),
    )


def memory_figures(document: Json) -> tuple[ScenarioFigure, ...]:
    """The tokens that the KV cache of a replica holds, and the share of them that the requests take at their ends.

    The interval of the share is that of the room: what the requests keep is known.
    """
    memory = document["memory"]
    room = memory["kv_capacity_tokens"]
    if not memory["kv_bytes_per_token"]:
        return (ScenarioFigure(key="kv_capacity_tokens", label="Tokens in KV cache", value=None, text="keeps none"),)
    low, high = memory["interval"]["kv_capacity_tokens"]
    found = [
        ScenarioFigure(
            key="kv_capacity_tokens",
            label="Tokens in KV cache",
            value=float(room),
            text=count_text(room),
            interval=range_text((low, high), count_text),
            lower_is_better=False,
        )
    ]
    used = memory.get("kv_utilization")
    if used is not None and high:
        ends = (used * room / high, min(1.0, used * room / low) if low else 1.0)
        found.append(
            ScenarioFigure(
                key="kv_utilization",
                label="KV cache in use",
                value=used,
                text=percent_text(used),
                interval=range_text(ends, percent_text),
            )
        )
    return tuple(found)
