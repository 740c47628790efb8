"""``plan``: from a model and a request rate to a fleet, its answer as an object and as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from simulator.planner.capacity_plan import CapacityPlan, has_studies
from simulator.planner.plan import checked, plan_capacity
from simulator.planner.search.search import SHOWN_FLEETS
from simulator.records import dataclass
from simulator.reports.answer import Answer, Cells, Json
from simulator.reports.content.document import Block, Bullets, Figure, Paragraph, Section, Tone
from simulator.reports.content.quantities import counted_text
from simulator.reports.formats.text import sections_text, table_cells
from simulator.reports.sections import answer
from simulator.reports.words.fields import reason_in_words
from simulator.reports.words.plan_inputs import bought_text, families_text, order_text, plan_input
from simulator.specs.question.plan import PlanSpec

if TYPE_CHECKING:
    from simulator.api.questions import Given, PlanFields
    from simulator.reports.charts.chart import Chart
    from simulator.reports.model_plans import ModelPlansAnswer


@dataclass(frozen=True, slots=True)
class PlanAnswer(Answer):
    """A fleet and its alternatives; ``plan`` is the planner's own record."""

    plan: CapacityPlan

    def to_dict(self) -> Json:
        """The document of ``plan-capacity --json``."""
        from simulator.reports.tables.plan_document import plan_document

        return dict(json.loads(plan_document(self.plan)))

    def to_text(self) -> str:
        """What ``plan-capacity`` prints."""
        return plan_text(self.plan, explain=False)

    def chart(self) -> Chart:
        """Cost and accelerators of each option."""
        from simulator.reports.sections.options import plan_options_chart

        return plan_options_chart(self.plan)

    def rows(self) -> list[Json]:
        """Every fleet, the chosen one first."""
        document = self.to_dict()
        return [document["plan"], *document["alternatives"]]

    def cells(self) -> Cells:
        """The table of fleets."""
        fleets = answer.fleets_table(self.plan.fleets, objectives=self.plan.objectives)
        return table_cells(fleets, currency=self.plan.best.cost.currency)


def specified(question: PlanSpec | Given | str | None, fields: Given) -> PlanSpec:
    """The plan that was asked for; a specification without keywords says it already."""
    if isinstance(question, PlanSpec) and not fields:
        return question
    from simulator.api.questions import plan_question

    return plan_question(question, fields)


def plan(question: PlanSpec | Given | str | None = None, /, **fields: Unpack[PlanFields]) -> PlanAnswer:
    """How many of which accelerators serve a demand within objectives, at what cost: ``plan-capacity``.

    question : a specification, a mapping or a workload file (YAML); keywords go over it

    Raises RoofcastError: a field is unknown or out of its range, or contradicts another.
    Raises InfeasibleError: no fleet serves the demand; it says what stands in the way.
    """
    return PlanAnswer(checked(planned(specified(question, fields))))


def plan_models(
    models: Sequence[str], question: PlanSpec | Given | str | None = None, /, **fields: Unpack[PlanFields]
) -> ModelPlansAnswer:
    """One demand planned for each model, and what each step down saves and loses: ``plan --model A --model B``.

    models : names; all written NAME=SHARE they are a mix behind one router, each with its share of the requests
    question, fields : as for `plan`, without the model

    Raises RoofcastError: shares do not sum to one, a field is unknown or out of its range.
    Raises InfeasibleError: no fleet serves the demand with any of the models, or with one of a mix.
    """
    from simulator.planner.model_plans import plan_models as plan_each
    from simulator.reports.model_plans import ModelPlansAnswer

    return ModelPlansAnswer(plan_each(specified(question, fields), models, plan=planned))


def planned(spec: PlanSpec) -> CapacityPlan:
    """The plan of a specification; what it refuses is said in words."""
    with reason_in_words():
        return plan_capacity(spec)


_LINE = 100
"""Characters of a terminal's line."""


def _studies(plan: CapacityPlan) -> tuple[Section, ...]:
    """Sections of the studies that were asked for, imported only then; charts belong to pages and reports."""
    if not has_studies(plan.spec) and plan.search is None:
        return ()
    from simulator.reports.report import study_sections

    return tuple(
        replace(section, blocks=tuple(block for block in section.blocks if not isinstance(block, Figure)))
        for section in study_sections(plan)
    )


def study_titles(plan: CapacityPlan) -> tuple[str, ...]:
    """Titles of the studies that stand below the table of fleets."""
    return tuple(section.title for section in _studies(plan))


def _places_shown(plan: CapacityPlan) -> list[int]:
    """Of the best few fleets, and of the best of every accelerator that was asked for by name."""
    first: dict[str, int] = {}
    for place, fleet in enumerate(plan.fleets):
        first.setdefault(fleet.hardware, place)
    named = first.values() if plan.spec.hardware else ()
    return [place for place in range(len(plan.fleets)) if place < SHOWN_FLEETS or place in named]


def _answer(plan: CapacityPlan) -> Section:
    fleets, places = plan.fleets, _places_shown(plan)
    hidden = [place for place in range(len(fleets)) if place not in places]
    more = f"; {len(hidden)} more with --output csv" if hidden else ""
    note = (
        f"{counted_text(len(fleets), 'option')} from {plan.candidates:,} candidates, {order_text(fleets)}{more}; "
        "latencies at the planned peak with the spares down"
    )
    blocks: list[Block] = [Paragraph(text=answer.sentence(plan), tone=Tone.LEAD)]
    replayed = plan.finalists if plan.finalists is not None and plan.finalists.replayed else None
    checked = answer.checked_text(plan) if replayed is None else answer.covered_text(replayed)
    if plan.spec.stock:
        # The sentence above is of what works side by side.
        simulated = answer.stock_checked_texts(plan)
        checked = "" if simulated and plan.verification is None else checked
        alone = f"A new fleet alone, as if nothing existed: {answer.new_fleet_sentence(plan)}"
        blocks += [Paragraph(text=text) for text in (*simulated, alone)]
    if checked:
        blocks.append(Paragraph(text=checked))
    if plan.rival is not None:
        blocks.append(Paragraph(text=answer.rival_text(plan.rival, plan)))
    bought = None if plan.price_ranking is None else plan.price_ranking.bought
    if bought is not None:
        blocks.append(Paragraph(text=bought_text(bought, currency=plan.best.cost.currency)))
    shown = [fleets[place] for place in places]
    blocks.append(answer.fleets_table(shown, objectives=plan.objectives, note=note, brief=True))
    if plan.families:
        blocks.append(Paragraph(text=families_text(plan)))
    return Section(key="answer", title="", blocks=tuple(blocks))


def _prices(plan: CapacityPlan) -> tuple[Section, ...]:
    """What other prices would change, where there is more than one kind of accelerator to choose from."""
    if plan.price_ranking is None or not plan.price_ranking.rivals:
        return ()
    return (Section(key="price_ranking", title="Prices and the ranking", blocks=answer.price_blocks(plan)),)


def _derived(plan: CapacityPlan) -> tuple[Section, ...]:
    from simulator.reports.words.derivation import explanation

    return (Section(key="derivation", title="How it was derived", blocks=(Bullets(items=explanation(plan)),)),)


def plan_sections(plan: CapacityPlan, *, explain: bool) -> tuple[Section, ...]:
    """The answer with its fleets, the studies, the derivation if asked for, and every assumption with its source."""
    said = tuple(f"{item.name}: {item.value} ({item.source})" for item in map(plan_input, plan.assumptions))
    assumed = Section(key="assumptions", title="Assumptions", blocks=(Bullets(items=said),))
    derived = _derived(plan) if explain else ()
    return (_answer(plan), *_prices(plan), *_studies(plan), *derived, assumed)


def plan_text(plan: CapacityPlan, *, explain: bool) -> str:
    """The plan for a terminal."""
    return sections_text(plan_sections(plan, explain=explain), currency=plan.best.cost.currency, most=_LINE)


def plan_markdown(plan: CapacityPlan, *, explain: bool) -> str:
    """The plan as Markdown."""
    from simulator.reports.formats.markdown import sections_markdown

    return sections_markdown(plan_sections(plan, explain=explain), currency=plan.best.cost.currency)
