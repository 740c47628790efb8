"""``capacity``: the highest rate that a deployment serves within objectives."""

from __future__ import annotations

from typing import Unpack

from simulator.api.questions import Given, ScenarioFields, scenario_spec
from simulator.api.scenarios import Progress, objectives_of, only_served
from simulator.engine.runs.capacity import CapacityResult, sustained_rate
from simulator.records import dataclass
from simulator.reports.answer import Answer, Json, result_object
from simulator.reports.charts.chart import Axis, Chart, lines_chart
from simulator.reports.tables.capacity import capacity_text
from simulator.specs.question.scenario import ScenarioSpec


@dataclass(frozen=True, slots=True)
class CapacityAnswer(Answer):
    """The highest rate that holds the objectives, and every rate that was tried."""

    result: CapacityResult

    def to_dict(self) -> Json:
        """The document of ``roofcast capacity --json``."""
        return result_object(self.result)

    def to_text(self, *, assumptions: bool = False) -> str:
        """What ``roofcast capacity`` prints."""
        return capacity_text(self.result, listed=assumptions)

    def rows(self) -> list[Json]:
        """One row a rate that was tried."""
        return list(self.to_dict()["points"])

    def chart(self) -> Chart:
        """TTFT and TPOT over the rates that were tried."""
        points = self.rows()
        lines = {name: [point.get(field) for point in points] for name, field in _POINT_LINES.items()}
        return lines_chart(
            key="capacity",
            title=f"{self.result.rate_per_s:.4g} requests/s within the objectives",
            x=Axis(title="Rate", unit="requests/s"),
            y=Axis(title="p95", unit="s", log=True),
            at=[float(point["rate_per_s"]) for point in points],
            lines=lines,
        )


_POINT_LINES = {"TTFT": "ttft_p95_s", "TPOT": "tpot_p95_s", "E2E": "e2e_p95_s"}


def capacity(
    scenario: ScenarioSpec | Given | None = None,
    /,
    *,
    seeds: int = 5,
    requests: int | None = None,
    profiles: str | None = None,
    progress: Progress | None = None,
    **fields: Unpack[ScenarioFields],
) -> CapacityAnswer:
    """The highest request rate that a deployment serves within objectives, by simulation: ``roofcast capacity``.

    Stages keep their proportions; their rates are what is searched, so that ``rate_per_s`` is a start and no bound.

    seeds : independent runs at every rate; requests : of one run, None takes enough for the batch at capacity
    """
    objectives = objectives_of(fields)
    spec = scenario_spec(scenario, fields, kind="serve")
    only_served(spec, "capacity")
    found = sustained_rate(
        spec, objectives=objectives, seeds=seeds, requests=requests, progress=progress, profiles=profiles
    )
    return CapacityAnswer(found)
