"""A report as one JSON document: totals by key, finance lines, sections with typed cells, charts' series."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from simulator.reports.charts.chart import Chart
from simulator.reports.content import document as doc
from simulator.reports.formats.finance_model import groups_of, inputs_of

if TYPE_CHECKING:
    from simulator.reports.studies import Studies


def plain_number(value: float | int | str | None) -> float | int | str | None:
    """JSON has no infinity: what is overloaded is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(cell: doc.Cell) -> dict[str, Any]:
    found: dict[str, Any] = {"value": plain_number(cell.value), "kind": cell.kind.value}
    if cell.unit:
        found["unit"] = cell.unit
    if cell.origin.value:
        found["origin"] = cell.origin.value
    return found


def _chart(chart: Chart) -> dict[str, Any]:
    return {
        "type": "chart",
        "key": chart.key,
        "title": chart.title,
        "x": chart.x.label,
        "y": chart.y.label,
        "categories": list(chart.y.categories if chart.horizontal else chart.x.categories),
        "series": [
            {
                "name": series.name,
                "kind": series.kind.value,
                "x": list(series.x),
                "y": [plain_number(value) for value in series.y],
                "low": list(series.low),
                "high": list(series.high),
            }
            for series in chart.series
        ],
        "caption": chart.caption,
    }


def _table(table: doc.Table) -> dict[str, Any]:
    return {
        "type": "table",
        "key": table.key,
        "title": table.title,
        "columns": [column.title for column in table.columns],
        "rows": [[_cell(cell) for cell in row.cells] for row in table.rows],
        "note": table.note,
    }


def _block(block: doc.Block) -> dict[str, Any]:
    match block:
        case doc.Paragraph():
            return {"type": "paragraph", "tone": block.tone.value, "text": block.text}
        case doc.Bullets():
            return {"type": "bullets", "items": list(block.items)}
        case doc.Facts():
            facts = [
                {"key": fact.key, "label": fact.label, "remark": fact.remark, **_cell(fact.cell)}
                for fact in block.facts
            ]
            return {"type": "facts", "facts": facts}
        case doc.Table():
            return _table(block)
        case doc.Figure():
            return _chart(block.chart)
        case doc.Code():
            return {"type": "code", "title": block.title, "text": block.text}
        case doc.SignOff():
            return {"type": "sign_off", "roles": list(block.roles)}


def section_object(section: doc.Section) -> dict[str, Any]:
    """A section with its blocks; its number only where it has one."""
    number = {"number": section.number} if section.number else {}
    blocks = [_block(block) for block in section.blocks]
    return {**number, "key": section.key, "title": section.title, "blocks": blocks}


def report_json(report: doc.Report, studies: Studies) -> str:
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
        "schema_version": doc.REPORT_SCHEMA_VERSION,
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
