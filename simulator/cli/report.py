"""``roofcast report``: the report of a plan, from its JSON document or from its question."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from simulator.errors import InfeasibleError, ProfileError, RoofcastError
from simulator.planner.records import CapacityPlan
from simulator.specs.documents import read_json
from simulator.specs.question.plan import PlanSpec, plan_spec

_SAME = 1e-8


def _question(path: str) -> tuple[PlanSpec, Mapping[str, Any] | None]:
    """The question of a plan document (and the document), or of a workload file."""
    if not path.lower().endswith(".json"):
        return plan_spec({}, workload=path), None
    try:
        document = read_json(path)
    except ProfileError as error:
        raise RoofcastError(error.message, field="PLAN") from None
    if "error" in document:
        raise RoofcastError(f"{path} holds a refusal, not a plan: {_said(document['error'])}", field="PLAN")
    if "plan" not in document and "schema_version" not in document:
        return plan_spec({}, workload=path), None
    inputs = document.get("inputs")
    if not isinstance(inputs, Mapping):
        raise RoofcastError(
            f"{path} does not say which question it answers",
            field="PLAN",
            code="missing_field",
            hint="make it with plan-capacity ... --json of this version, or give a workload file",
        )
    return plan_spec(dict(inputs)), document


def _said(error: object) -> str:
    return str(error.get("message", "")) if isinstance(error, Mapping) else str(error)


def _at(document: Mapping[str, Any], path: str) -> object:
    node: object = document
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _stated(document: Mapping[str, Any], plan: CapacityPlan) -> tuple[tuple[str, object, object], ...]:
    """(Field, what the document says, what the plan says) of a plan document or of a report's."""
    fleet = plan.best
    if document.get("kind") == "capacity_report":
        paths: tuple[tuple[str, object], ...] = (
            ("totals.devices", fleet.devices),
            ("totals.cost_per_hour", fleet.cost.per_hour),
        )
    else:
        paths = (
            ("plan.hardware", fleet.hardware),
            ("plan.devices", fleet.devices),
            ("plan.cost.per_hour", fleet.cost.per_hour),
        )
    return tuple((path, _at(document, path), now) for path, now in paths)


def _check(plan: CapacityPlan, document: Mapping[str, Any], *, path: str) -> None:
    """Refuse to report other figures than those that the document holds."""
    for name, before, now in _stated(document, plan):
        same = before == now
        if isinstance(before, float) and isinstance(now, float):
            same = math.isclose(before, now, rel_tol=_SAME)
        if not same:
            raise RoofcastError(
                f"{path} says {before}, planning again gives {now}",
                field=name,
                code="plan_changed",
                hint="roofcast, a profile or a price list has changed since: make the plan anew",
            )


def report_schema(path: str | None) -> str:
    """The JSON Schema of ``report.json``.

    Raises
    ------
    RoofcastError
        A plan was given too: it would change nothing.
    """
    if path is not None:
        raise RoofcastError(f"--schema needs no plan, got {path!r}", field="PLAN", hint="leave out one of the two")
    return files("simulator.reports.templates").joinpath("report.schema.json").read_text("utf-8")


def run_report(
    path: str | None, *, out: str, formats: str | None, ownership: str | None, force: bool, as_json: bool
) -> str:
    """Write the report's files; returns what to print."""
    from simulator.planner.plan import answered_in_full
    from simulator.reports.content.text import plan_command
    from simulator.reports.formats.refusal import REFUSAL_NAMES, write_refusal
    from simulator.reports.formats.rendering import ALL_FORMATS, parse_formats
    from simulator.reports.formats.writing import check_targets, write_reports

    if path is None:
        raise RoofcastError(
            "a plan is needed: the output of plan-capacity --json, or a workload file (YAML)",
            field="PLAN",
            hint="plan-capacity ... --json > plan.json, then roofcast report plan.json",
        )
    chosen = parse_formats(formats) if formats is not None else ALL_FORMATS
    others = REFUSAL_NAMES if formats is None else ()
    check_targets(out, formats=chosen, force=force, flag="--out", others=others)
    spec, document = _question(path)
    try:
        plan = answered_in_full(spec)
    except InfeasibleError as error:
        if others:
            written = write_refusal(error, spec=spec, folder=out, flag="--out")
            print(f"roofcast: no plan, {len(written)} files of the refusal in {out}", file=sys.stderr)
        raise
    if document is not None:
        _check(plan, document, path=path)
    paths = write_reports(
        plan,
        folder=out,
        formats=chosen,
        command=plan_command(spec),
        force=force,
        ownership=ownership,
        flag="--out",
    )
    if as_json:
        return json.dumps({"schema_version": "1.0", "files": [str(item) for item in paths]}, indent=2) + "\n"
    return "".join(f"{item}\n" for item in (Path(each) for each in paths))
