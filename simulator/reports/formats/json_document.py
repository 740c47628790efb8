"""A report as one JSON document: totals by key, the finance lines, and every section with typed cells."""

from __future__ import annotations

import json

from simulator.reports.content.document import REPORT_SCHEMA_VERSION, Report
from simulator.reports.formats.finance_inputs import inputs_of
from simulator.reports.formats.finance_model import groups_of
from simulator.reports.formats.json_blocks import plain_number, section_object
from simulator.reports.studies import Studies


def report_json(report: Report, studies: Studies) -> str:
    """The report as a JSON document; its shape is described by ``report.schema.json``."""
    finance = {
        "currency": studies.currency,
        "years": studies.cost.years,
        "inputs": {
            item.name: {"value": item.value, "source": item.source, "date": item.date, "assumed": item.assumed}
            for item in inputs_of(studies)
        },
        "results": {item.name: item.value for group in groups_of(studies) for item in group.lines},
        "cash_flow": [
            {
                "year": flow.year,
                "owning": flow.owning if studies.cost.owning is not None else None,
                "renting": {item.kind: paid for item, paid in zip(studies.cost.renting, flow.renting, strict=True)},
            }
            for flow in studies.cost.flows
        ],
    }
    document = {
        "schema_version": REPORT_SCHEMA_VERSION,
        "kind": "capacity_report",
        "title": report.title,
        "created": report.created,
        "roofcast_version": report.version,
        "command": studies.command,
        "input_sha256": studies.input_hash,
        "inputs": studies.spec.model_dump(mode="json", exclude_unset=True),
        "totals": {fact.key: plain_number(fact.cell.value) for fact in report.facts()},
        "finance": finance,
        "sections": [section_object(section) for section in report.sections],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"
