"""What is said of a plan, in order: the sections of its report, and each study on its own. Every format reads these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from simulator.planner.capacity_plan import KINDS, CapacityPlan
from simulator.planner.gap.records import Gap
from simulator.records import dataclass
from simulator.reports.charts.chart import Chart
from simulator.reports.content.document import Block, Figure, Paragraph, Report, Section
from simulator.reports.content.quantities import demand_text
from simulator.reports.decide.decision import decision_content
from simulator.reports.decide.risks import acceptance_content, evidence_content, risk_content
from simulator.reports.sections import performance
from simulator.reports.sections.appendix import appendix_content
from simulator.reports.sections.beside_replicas import encoder_blocks, kv_tiers_blocks
from simulator.reports.sections.cost import cost_content, rental_blocks
from simulator.reports.sections.gap import gap_blocks, gap_sections
from simulator.reports.sections.growth import growth_blocks, growth_content
from simulator.reports.sections.inputs import software_content, workload_content
from simulator.reports.sections.options import length_split_blocks, options_content, pareto_blocks, search_blocks
from simulator.reports.sections.resilience import resilience_blocks
from simulator.reports.sections.sites import energy_content, facilities_content
from simulator.reports.sections.sizing import measured_blocks, sizing_content
from simulator.reports.sections.stock import stock_blocks, stock_money_blocks
from simulator.reports.sections.uncertainty import sensitivity_content, uncertainty_blocks
from simulator.reports.studies import Studies, of_each


def choice_blocks(plan: CapacityPlan) -> tuple[Block, ...]:
    """What only some plans are asked beside their fleet, and no section of a report has a place for."""
    asked = {kind.key for kind in KINDS if not kind.in_reports}
    return tuple(block for entry in STUDIES if entry.key in asked for block in entry.blocks(plan))


def _options(studies: Studies) -> tuple[Block, ...]:
    return (*options_content(studies), *choice_blocks(studies.plan), *stock_money_blocks(studies))


SECTIONS: tuple[tuple[str, str, Callable[[Studies], tuple[Block, ...]]], ...] = (
    ("decision", "Decision", decision_content),
    ("evidence", "Evidence", evidence_content),
    ("acceptance", "Assumptions to accept, and sign-off", acceptance_content),
    ("workload", "Workload and objectives", workload_content),
    ("software", "Model and software", software_content),
    ("options", "Options considered", _options),
    ("sizing", "Sizing", sizing_content),
    ("performance", "Performance at the planned load", performance.performance_content),
    ("sensitivity", "Sensitivity", sensitivity_content),
    ("cost", "Total cost of ownership", cost_content),
    ("facilities", "Facilities", facilities_content),
    ("energy", "Energy and carbon", energy_content),
    ("growth", "Growth and procurement", growth_content),
    ("risk", "Risk and uncertainty", risk_content),
    ("provenance", "Provenance", appendix_content),
)
"""The parts of a report: three pages to decide and sign by, then what they rest on; numbers follow from the order."""


def build_report(studies: Studies) -> Report:
    """The content of the report; every format is made from it."""
    plan = studies.plan
    served_by = "" if plan.spec.stock else f" on {plan.best.hardware}"
    return Report(
        title=f"Capacity plan: {plan.best.replica.deployment.model.name}",
        subtitle=f"{demand_text(plan.demand)}{served_by}",
        created=studies.created,
        currency=studies.currency,
        version=studies.version,
        sections=numbered(tuple(Section(key=key, title=title, blocks=made(studies)) for key, title, made in SECTIONS)),
    )


def numbered(sections: tuple[Section, ...]) -> tuple[Section, ...]:
    """Sections with the number of their place, from 1."""
    return tuple(replace(section, number=place) for place, section in enumerate(sections, start=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEntry:
    """A study beside a plan: the field of the plan that holds it, its title, and what it says (nothing if not made)."""

    key: str
    title: str
    blocks: Callable[[CapacityPlan], tuple[Block, ...]]

    def sections(self, plan: CapacityPlan) -> tuple[Section, ...]:
        """The study's sections; none where it was not asked for."""
        gap = plan.study(Gap)
        if self.key == "gap" and gap is not None:
            return gap_sections(gap, currency=plan.best.cost.currency)
        of_serving = any(kind.key == self.key and kind.of_serving for kind in KINDS)
        blocks = of_each(plan, self.blocks) if of_serving else self.blocks(plan)
        return (Section(key=self.key, title=self.title, blocks=blocks),) if blocks else ()


def _finalists(plan: CapacityPlan) -> tuple[Block, ...]:
    replayed = performance.replay_text(plan)
    return (*([Paragraph(text=replayed)] if replayed else []), *performance.finalist_blocks(plan))


STUDIES = (
    StudyEntry(key="search", title="Search", blocks=search_blocks),
    StudyEntry(key="pareto", title="Pareto set", blocks=pareto_blocks),
    StudyEntry(key="gap", title="What closes the gap", blocks=gap_blocks),
    StudyEntry(key="stock", title="With what exists", blocks=stock_blocks),
    StudyEntry(key="measured_rate", title="By the measured rate", blocks=measured_blocks),
    StudyEntry(key="kv_tiers", title="Tiers below the cache", blocks=kv_tiers_blocks),
    StudyEntry(key="encoder_pool", title="Pictures on accelerators of their own", blocks=encoder_blocks),
    StudyEntry(key="length_split", title="Two fleets by prompt length", blocks=length_split_blocks),
    StudyEntry(key="resilience", title="Resilience", blocks=resilience_blocks),
    StudyEntry(key="growth", title="Growth", blocks=growth_blocks),
    StudyEntry(key="rental", title="Renting", blocks=rental_blocks),
    StudyEntry(key="uncertainty", title="Uncertainty", blocks=uncertainty_blocks),
    StudyEntry(key="verification", title="Checked by event simulation", blocks=performance.verification_blocks),
    StudyEntry(key="finalists", title="Finalists", blocks=_finalists),
)
"""Every study, in the order in which a reader decides."""


def study_sections(plan: CapacityPlan, *keys: str) -> tuple[Section, ...]:
    """What the studies of the plan say, of all or of those named by ``keys``."""
    return tuple(section for entry in STUDIES if not keys or entry.key in keys for section in entry.sections(plan))


def charts_of(*sections: Section) -> tuple[Chart, ...]:
    """The charts of sections, in order."""
    return tuple(block.chart for section in sections for block in section.blocks if isinstance(block, Figure))
