"""The numbers of one forward pass that stand on top of a page: text and 80 % interval."""

from __future__ import annotations

from simulator.phases.crossover import LARGEST_BATCH
from simulator.reports.contract import Json
from simulator.reports.quantities import count_text, percent_text, range_text, seconds_text
from simulator.reports.scenario_figures import ScenarioFigure

_BEYOND = f"above {count_text(LARGEST_BATCH)}"


def step_time_figure(document: Json, *, key: str, label: str) -> ScenarioFigure:
    """The time of the step that ``roofcast step`` prints."""
    return ScenarioFigure(
        key=key,
        label=label,
        value=document["step_s"],
        text=seconds_text(document["step_s"]),
        interval=range_text(document["interval"]["step_s"], seconds_text),
    )


def utilisation_figure(document: Json, *, field: str, key: str, label: str) -> ScenarioFigure:
    """``mfu`` or ``mbu`` of a step: a known amount of work over its time, so that its interval is that of the time."""
    value = document[field]
    low_s, high_s = document["interval"]["step_s"]
    ends = (value * document["step_s"] / high_s, value * document["step_s"] / low_s)
    return ScenarioFigure(
        key=key,
        label=label,
        value=value,
        text=percent_text(value),
        interval=range_text(ends, percent_text),
        lower_is_better=False,
    )


def crossover_figure(document: Json) -> ScenarioFigure:
    """The batch at which a decode step turns compute bound; open ends lie beyond 4,096."""
    found = document["crossover"]
    low, high = found["interval"]
    ends = "" if low is None else f"{count_text(low)} – {count_text(high) if high else _BEYOND}"
    return ScenarioFigure(
        key="crossover",
        label="Crossover batch",
        value=found["batch"],
        text=_BEYOND if found["batch"] is None else count_text(found["batch"]),
        interval=ends,
    )
