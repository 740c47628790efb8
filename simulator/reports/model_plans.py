"""Plans of several models side by side: one line each, what each step down saves and loses, or the sum of a mix."""

from __future__ import annotations

import json
from dataclasses import replace

from simulator.planner.model_plans import ModelPlans, StepDown
from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Answer, Json
from simulator.reports.charts.chart import Chart, bars_chart
from simulator.reports.content.document import Bullets, Paragraph, Section, Table, Tone, columns, row
from simulator.reports.content.quantities import change_text, count_text, percent_text, price_text, rate_text
from simulator.reports.formats.text import sections_text
from simulator.reports.sections.answer import fleets_table, sentence
from simulator.reports.tables.plan_document import plan_document
from simulator.reports.words.fields import flagged, note_text
from simulator.reports.words.plan_inputs import warning_texts


@dataclass(frozen=True, slots=True)
class ModelPlansAnswer(Answer):
    """A fleet for every model; ``found`` is the planner's own record."""

    LISTED = "models"
    found: ModelPlans

    @property
    def currency(self) -> str:
        """Currency of the price list."""
        return self.found.planned[0][1].best.cost.currency

    def sections(self) -> tuple[Section, ...]:
        """The answer, the steps down, and each model's own sentence."""
        found = self.found
        steps = tuple(map(_step_text, found.steps))
        own = tuple(f"{item.name}: {sentence(plan)}" for item, plan in found.planned)
        refused = tuple(f"{item.name}: no plan: {flagged(item.refusal)}" for item in found.members if item.refusal)
        return (
            Section(key="models", title="", blocks=(Paragraph(text=self._headline(), tone=Tone.LEAD), _table(found))),
            *((Section(key="steps", title="Each step down", blocks=(Bullets(items=steps),)),) if steps else ()),
            Section(key="fleets", title="Fleets", blocks=(Bullets(items=(*own, *refused)),)),
        )

    def _headline(self) -> str:
        found, plans = self.found, [plan for _, plan in self.found.planned]
        if found.mixed:
            rate = rate_text(found.planned_rate_per_s, "requests")
            shares = [f"for {item.name} ({percent_text(item.share)})" for item in found.members]
            parts = [f"{count_text(plan.best.busy_devices)} {said}" for plan, said in zip(plans, shares, strict=True)]
            parts += [f"{count_text(found.idle_devices)} idle in whole servers"] if found.idle_devices else []
            hourly = price_text(found.cost_per_hour, self.currency)
            return f"{count_text(found.devices)} GPUs = {' + '.join(parts)}: {hourly}/h for {rate}"
        priced = [pair for pair in found.planned if pair[1].best.cost.per_hour is not None]
        item, plan = min(priced or found.planned, key=lambda pair: pair[1].best.cost.per_hour or pair[1].best.devices)
        rate = rate_text(plan.demand.planned_rate_per_s, "requests")
        hourly = price_text(plan.best.cost.per_hour, self.currency)
        alike = [other.name for other, its in priced if its.best.cost.per_hour == plan.best.cost.per_hour]
        claim = f"{' and '.join(alike)} cost the same, the least" if len(alike) > 1 else f"{item.name} is the cheapest"
        return f"{claim} of {len(found.members)}: {hourly}/h for {rate}"

    def warnings(self) -> tuple[str, ...]:
        """What each plan warns of, by model."""
        return tuple(
            f"{item.name}: {text}" for item, plan in self.found.planned for text in warning_texts(plan.warnings)
        )

    def to_text(self) -> str:
        """What ``plan-capacity`` prints of several models."""
        return sections_text(self.sections(), currency=self.currency)

    def to_dict(self) -> Json:
        """The document of ``plan --model A --model B --json``: each plan's own, the steps down, the sum of a mix."""
        found = self.found
        models = [
            {
                "model": item.model,
                "weights": item.weights or None,
                "share": item.share,
                "refusal": flagged(item.refusal) or None,
                "plan": None if item.plan is None else json.loads(plan_document(item.plan)),
            }
            for item in found.members
        ]
        steps = [
            {
                "from": step.before.name,
                "to": step.after.name,
                "change_fraction": step.change_fractions,
                "quality": note_text(step.quality),
            }
            for step in found.steps
        ]
        return {
            "schema_version": SCHEMA_VERSION,
            "answer": self._headline(),
            "mixed": found.mixed,
            "models": models,
            "steps": steps,
            "total": {"devices": found.devices, "cost_per_hour": found.cost_per_hour} if found.mixed else None,
        }

    def chart(self) -> Chart:
        """Accelerators of each model."""
        names = [item.name for item, _ in self.found.planned]
        devices = {"accelerators": [float(plan.best.devices) for _, plan in self.found.planned]}
        return bars_chart("models", "Accelerators by model", y="Accelerators", names=names, of=devices)


def _table(found: ModelPlans) -> Table:
    """The usual table of fleets behind the names of their models."""
    note = "latencies at the planned peak with the spares down"
    if found.mixed and found.shared_devices:
        shared = count_text(found.shared_devices)
        note = f"each fleet in servers of its own; sharing them saves {shared} idle GPUs; {note}"
    moved = [f"{item.name} alone would take {item.alone}" for item in found.members if item.alone]
    note = "; ".join((*moved, note))
    plans = [plan for _, plan in found.planned]
    fleets = fleets_table([plan.best for plan in plans], objectives=plans[0].objectives, note=note)
    rows = tuple(row(item.name, *line.cells) for (item, _), line in zip(found.planned, fleets.rows, strict=True))
    return replace(fleets, columns=(*columns("model:"), *fleets.columns), rows=rows)


def _step_text(step: StepDown) -> str:
    said = [f"{name} {change_text(now, then) or 'unchanged'}" for name, (then, now) in step.changes.items()]
    return f"{step.before.name} to {step.after.name}: {', '.join(said)}; answers: {note_text(step.quality)}"
