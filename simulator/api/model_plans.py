"""``plan_models``: one demand planned for several models, as alternatives or as a mix behind one router."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from simulator.api.questions import Given, PlanFields, plan_question
from simulator.reports.answer import Answer

if TYPE_CHECKING:
    from simulator.planner.model_plans import ModelPlans
    from simulator.reports.charts.chart import Chart
    from simulator.reports.contract import Json
    from simulator.specs.question.plan import PlanSpec


@dataclass(frozen=True, slots=True)
class ModelPlansAnswer(Answer):
    """A fleet for every model; ``found`` is the planner's own record."""

    found: ModelPlans

    def to_dict(self) -> Json:
        """The document of ``plan-capacity --model A --model B --json``."""
        from simulator.reports.model_plans import models_document

        return models_document(self.found)

    def to_text(self) -> str:
        """What ``plan-capacity`` prints."""
        from simulator.reports.formats.text import sections_text
        from simulator.reports.model_plans import models_sections

        currency = self.found.planned[0][1].best.cost.currency
        return sections_text(models_sections(self.found), currency=currency)

    def rows(self) -> list[Json]:
        """The models, in the order in which they were given."""
        return list(self.to_dict()["models"])

    def chart(self) -> Chart:
        """Accelerators of each model."""
        from simulator.reports.answers.charts import bars_chart
        from simulator.reports.charts.chart import Axis

        return bars_chart(
            key="models",
            title="Accelerators by model",
            y=Axis(title="Accelerators"),
            names=[item.name for item, _ in self.found.planned],
            bars={"accelerators": [float(plan.best.devices) for _, plan in self.found.planned]},
        )


def plan_models(
    models: Sequence[str], question: PlanSpec | Given | str | None = None, /, **fields: Unpack[PlanFields]
) -> ModelPlansAnswer:
    """One demand planned for each model, and what each step down saves and loses: ``plan --model A --model B``.

    models : names; all written NAME=SHARE they are a mix behind one router, each with its share of the requests
    question, fields : as for `plan`, without the model

    Raises
    ------
    RoofcastError
        Shares do not sum to one, a field is unknown or out of its range.
    InfeasibleError
        No fleet serves the demand with any of the models, or with one of a mix.
    """
    from simulator.planner.model_plans import plan_models as planned

    return ModelPlansAnswer(planned(plan_question(question, fields), models))
