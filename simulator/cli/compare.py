"""``roofcast compare``: what each technique contributes to one deployment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from simulator.cli.output import write_text
from simulator.cli.progress import progress_bar
from simulator.planner.comparison import compare
from simulator.reports.tables.comparison import comparison_object, comparison_text
from simulator.specs.money.prices import OfferKind
from simulator.specs.question.scenario import Kind
from simulator.specs.question.scenario_changes import parse_change
from simulator.specs.question.scenario_file import read_scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareQuestion:
    """What the command line asks for."""

    source: str
    changes: Sequence[str]
    price_kind: OfferKind
    output: str
    as_json: bool
    force: bool
    profiles: str | None


def run_compare(question: CompareQuestion) -> None:
    """Answer the base and every step, then print or write the waterfall."""
    changes = [parse_change(text) for text in question.changes]
    scenario = read_scenario(question.source, command="roofcast compare", kinds=get_args(Kind))
    with progress_bar("comparing") as report:
        found = compare(scenario, changes, price_kind=question.price_kind, profiles=question.profiles, progress=report)
    text = json.dumps(comparison_object(found), allow_nan=False) + "\n" if question.as_json else comparison_text(found)
    write_text(text, question.output, force=question.force)
