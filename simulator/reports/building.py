"""A report from a plan: the thirteen sections, in the order that people who sign expect."""

from __future__ import annotations

from simulator.reports.content import Report
from simulator.reports.quantities import rate_text
from simulator.reports.sections.appendix import appendix_section
from simulator.reports.sections.choice import options_section, sizing_section
from simulator.reports.sections.cost import cost_section
from simulator.reports.sections.decision import decision_section
from simulator.reports.sections.inputs import software_section, workload_section
from simulator.reports.sections.performance import performance_section
from simulator.reports.sections.risks import risk_section
from simulator.reports.sections.sensitivity import sensitivity_section
from simulator.reports.sections.sites import energy_section, facilities_section, growth_section
from simulator.reports.studies import Studies

SECTIONS = (
    decision_section,
    workload_section,
    software_section,
    options_section,
    sizing_section,
    performance_section,
    sensitivity_section,
    cost_section,
    facilities_section,
    energy_section,
    growth_section,
    risk_section,
    appendix_section,
)


def build_report(studies: Studies) -> Report:
    """The content of the report; every format is made from it."""
    plan = studies.plan
    return Report(
        title=f"Capacity plan: {plan.best.replica.deployment.model.name}",
        subtitle=f"{rate_text(plan.demand.mean_rate_per_s, 'requests')} on {plan.best.hardware}",
        created=studies.created,
        currency=studies.currency,
        version=studies.version,
        sections=tuple(section(studies) for section in SECTIONS),
    )
