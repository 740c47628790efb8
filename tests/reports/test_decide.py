"""The pages that a plan is decided by: what they say follows from quotes, from measured runs and from what is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

import pytest
import yaml

from simulator.api.planning import plan_text
from simulator.planner.plan import plan_capacity
from simulator.planner.studies.stock_fleets import StockPlan
from simulator.planner.verification import confidence
from simulator.planner.verification.confidence import confidence_in, evidence_of
from simulator.reports.content.document import Bullets, Paragraph, Report, Section, Table
from simulator.reports.decide.decision import cheapest_elsewhere, decision_content, lead_text
from simulator.reports.decide.risks import confidence_text, evidence_content, unsourced_table
from simulator.reports.decide.summary import summary_report
from simulator.reports.formats.markdown import report_markdown
from simulator.reports.report import build_report
from simulator.reports.sections.cost import buying_text
from simulator.reports.sections.options import is_far
from simulator.reports.studies import Studies, gather
from simulator.reports.words.fields import note_text
from simulator.specs.measured.validation_rows import ValidationTable, load_validation_table
from simulator.specs.question.plan import plan_spec
from tests.reports.report_cases import CREATED, studied, whole_report

ENCODER = {"rps": 500.0, "model": "bert-base", "isl": 128, "osl": 1, "hardware": "l4"}


@cache
def made(**asked: object) -> Studies:
    return gather(plan_capacity(plan_spec(asked)), command="plan-capacity", created=CREATED)


@lru_cache(maxsize=1)
def encoder() -> Studies:
    return made(**ENCODER)


def tables(*sections: Section) -> Iterator[Table]:
    for section in sections:
        yield from (block for block in section.blocks if isinstance(block, Table))


def quoted(folder: Path, price: float) -> Studies:
    """The plan of the other tests with a quote of that purchase price."""
    offer = {"hardware": "h100", "kind": "purchase", "provider": "a vendor", "per_device": price, "source": "quote"}
    listed = {"extends": "default", "name": "own", "offers": [{**offer, "date": "2026-11-01"}]}
    path = folder / f"prices-of-{price:.0f}.yaml"
    path.write_text(yaml.safe_dump(listed))
    return made(rps=40.0, model="llama-3.1-8b", hardware="h100", prices=str(path))


def test_owning_has_to_beat_the_cheapest_rent_that_lasts_as_long(tmp_path: Path) -> None:
    """A quote for three years below what a plan of two years takes is what buying stands against."""
    even = made(rps=40.0, model="llama-3.1-8b", hardware="h100").cost.break_even_price
    assert even is not None
    quotes = [
        {"hardware": "h100", "kind": "purchase", "provider": "a vendor", "per_device": 0.9 * even},
        {"hardware": "h100", "kind": "reserved_3y", "provider": "a landlord", "per_hour": 2.3},
    ]
    offers = [{**offer, "source": "quote", "date": "2026-11-01"} for offer in quotes]
    path = tmp_path / "prices.yaml"
    path.write_text(yaml.safe_dump({"extends": "default", "name": "own", "offers": offers}))
    cost = made(rps=40.0, model="llama-3.1-8b", hardware="h100", prices=str(path)).cost
    assert cost.owning is not None
    assert cost.lasting is not None
    assert cost.rent is not None
    assert cost.lasting.kind == "reserved_3y"
    assert cost.lasting.present_value == min(item.present_value for item in cost.renting if item.kind != "spot")
    assert not cost.buys
    assert cost.owning_saves == pytest.approx(cost.lasting.present_value - cost.owning.present_value)
    assert "against renting 3 years at USD 2.3 an hour (a landlord), which costs least" in buying_text(cost)
    # Of a term that was asked for the comparison is with that term.
    asked = made(rps=40.0, model="llama-3.1-8b", hardware="h100", prices=str(path), price_kind="on_demand").cost
    assert asked.lasting is asked.rent


def test_a_published_price_decides_nothing_and_a_quote_below_the_break_even_buys(tmp_path: Path) -> None:
    plain = made(rps=40.0, model="llama-3.1-8b", hardware="h100")
    even = plain.cost.break_even_price
    assert plain.cost.owning is not None
    assert even is not None
    assert not plain.cost.buys
    assert lead_text(plain).startswith("Rent ")
    for price, word in ((0.9 * even, "Buy"), (1.1 * even, "Rent")):
        assert lead_text(quoted(tmp_path, price)).startswith(f"{word} ")


def test_the_alternative_is_the_cheapest_of_other_accelerators() -> None:
    studies = studied()
    rival = cheapest_elsewhere(studies)
    assert rival is not None
    assert rival.hardware != studies.plan.best.hardware
    assert studies.plan.price_ranking is not None
    assert rival.hardware == studies.plan.price_ranking.cases[0].next_hardware


def test_options_that_cost_many_times_more_are_dropped_and_counted() -> None:
    plan = studied().plan
    shown = next(table for table in tables(*whole_report().sections) if table.key == "options")
    near = [fleet for fleet in plan.fleets if not is_far(fleet, plan.best)]
    assert len(shown.rows) == len(near)
    assert ("Left out" in shown.note) is (len(near) < len(plan.fleets))


def test_the_evidence_opens_with_how_sure_the_plan_is_and_lists_every_run_behind_it() -> None:
    studies = studied()
    lead, runs, *_ = evidence_content(studies)
    sure = confidence_in(studies.plan)
    assert isinstance(lead, Paragraph)
    assert isinstance(runs, Table)
    assert lead.text == confidence_text(sure)
    assert note_text(sure.reason) in lead.text
    assert [row.cells[0].value for row in runs.rows] == [note_text(item.names) for item in evidence_of(studies.plan)]


def _with_error(table: ValidationTable, factor: float) -> ValidationTable:
    rows = tuple(replace(row, predicted=row.measured * factor) for row in table.rows)
    return replace(table, rows=rows)


def test_the_grade_is_that_of_measured_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same plan, graded by the same runs with other errors."""
    studies, letters = studied(), []
    for factor in (1.0, 1.12, 1.2, 1.5):
        confidence._levels.cache_clear()
        monkeypatch.setattr(
            confidence, "load_validation_table", lambda f=factor: _with_error(load_validation_table(), f)
        )
        letters.append(confidence_in(studies.plan).letter)
    confidence._levels.cache_clear()
    assert letters == sorted(letters)
    assert letters[-1] == "D"
    assert len(set(letters)) > 2


@pytest.mark.parametrize(("model_class", "counts"), [("dense", True), ("MoE", False)])
def test_only_runs_of_its_class_of_models_are_the_closest(
    model_class: str, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    degrees = dict.fromkeys(("tp_size", "pp_size", "ep_size", "dp_size", "cp_size"), 1)
    alike = {**degrees, "weights": "fp8", "model_class": model_class}

    def table() -> ValidationTable:
        found = load_validation_table()
        return replace(found, rows=tuple(replace(row, **alike) for row in found.rows))

    confidence._levels.cache_clear()
    monkeypatch.setattr(confidence, "load_validation_table", table)
    exact, kind, *_ = evidence_of(studied().plan)
    confidence._levels.cache_clear()
    assert kind.runs > 0
    assert exact.runs == (kind.runs if counts else 0)


def test_four_bit_weights_are_those_of_runs_by_their_scales() -> None:
    asked = {"model": "llama-3.3-70b", "hardware": "b200", "rps": 5.0, "tp_size": 4, "serving": "aggregated"}
    exact, kind, *_ = evidence_of(made(**asked, scheme="nvfp4").plan)
    assert note_text(exact.names).endswith("TP4, nvfp4")
    assert 0 < exact.runs < kind.runs


@pytest.mark.parametrize(
    ("asked", "ran", "counts"),
    [
        ("awq", "awq", True),
        ("gptq-8bit", "gptq-8bit", True),
        ("int8", "w8a8", True),
        ("gptq-8bit", "w8a8", False),
        ("awq", "rtn-g128", False),
    ],
)
def test_integer_weights_are_those_of_runs_by_their_scheme(
    asked: str, ran: str, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = made(rps=5.0, model="llama-3.1-8b", hardware="h100", serving="aggregated", tp_size=1, scheme=asked).plan
    degrees = {name: 1 for name in ("tp_size", "pp_size", "ep_size", "dp_size", "cp_size")}
    alike = {
        **degrees,
        "weights": None,
        "scheme": ran,
        "model_class": plan.best.pools[-1].replica.deployment.model.model_class,
    }
    found = load_validation_table()
    rows = tuple(replace(row, **alike) for row in found.rows)
    confidence._levels.cache_clear()
    monkeypatch.setattr(confidence, "load_validation_table", lambda: replace(found, rows=rows))
    exact, kind, *_ = evidence_of(plan)
    confidence._levels.cache_clear()
    assert kind.runs > 0
    assert exact.runs == (kind.runs if counts else 0)


@pytest.mark.parametrize(("mode", "counts"), [("disaggregated", True), ("aggregated", False), ("mtp", False)])
def test_only_runs_of_two_pools_speak_for_two_pools(mode: str, counts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_validation_table()
    rows = tuple(replace(row, mode=mode) for row in found.rows)
    confidence._levels.cache_clear()
    monkeypatch.setattr(confidence, "load_validation_table", lambda: replace(found, rows=rows))
    _, kind, *_ = evidence_of(made(rps=40.0, model="llama-3.1-8b", hardware="h100", serving="disaggregated").plan)
    confidence._levels.cache_clear()
    assert "in two pools" in note_text(kind.names)
    assert (kind.runs > 0) is counts


def test_without_a_run_on_the_accelerator_nothing_is_better_than_d() -> None:
    _, kind, _, hardware, engine = evidence_of(encoder().plan)
    assert (kind.runs, hardware.runs) == (0, 0)
    assert engine.runs > 0
    assert confidence_in(encoder().plan).letter == "D"


def test_every_assumed_figure_of_owning_is_accepted_by_who_signs() -> None:
    studies = studied()
    named = {str(row.cells[1].value) for row in unsourced_table(studies).rows}
    assert {"cost of capital, a year", "electricity a kWh", "lead time", "growth of demand"} <= named
    for table in tables(*whole_report().sections):
        if table.key == "cost_inputs":
            assert not any("from memory" in str(cell.value) for row in table.rows for cell in row.cells)


def test_kernels_of_one_pool_that_nobody_timed_are_accepted_by_who_signs_and_stand_in_the_text() -> None:
    asked = {"rps": 5.0, "model": "deepseek-r1", "hardware": "b200-sxm", "tp": 8, "engine": "sglang", "isl": 8192}
    studies = made(**asked, serving="disaggregated")
    (line,) = (row for row in unsourced_table(studies).rows if row.cells[1].value == "prefill kernels")
    said = str(line.cells[2].value)
    assert "at 0.55 of the rate" in said
    assert "cause unknown" in said
    assert said in report_markdown(build_report(studies))
    assert said in " ".join(plan_text(studies.plan, explain=True).split())
    assert not any("kernels" in str(row.cells[1].value) for row in unsourced_table(studied()).rows)


def test_an_encoder_has_a_report_too() -> None:
    text = report_markdown(build_report(encoder()))
    assert "Prefill reaches" in text
    assert "decode reaches" not in text


def test_the_summary_is_one_section_of_plain_sentences() -> None:
    report: Report = summary_report(studied())
    (section,) = report.sections
    said = " ".join(block.text for block in section.blocks if isinstance(block, Paragraph))
    assert lead_text(studied()) in said
    assert "--" not in said, "a board reads no flags"


@pytest.mark.slow
def test_what_is_decided_with_stock_is_of_what_serves() -> None:
    """Objectives and confidence were those of a new fleet; names with a set-up took three lines of the next page."""
    studies = made(rps=300.0, model="llama-3.1-8b", hardware="h200", stock=("l40s=16",), verify=False)
    plan, stock = studies.plan, studies.plan.study(StockPlan)
    assert stock is not None
    assert len(stock.shares) == 2
    blocks = decision_content(studies)
    margins = next(block for block in blocks if isinstance(block, Table) and block.key == "margins")
    slow = [
        max(values) for values in zip(*(share.seen.objectives_s for share in stock.shares if share.seen), strict=True)
    ]
    assert [row.cells[2].value for row in margins.rows] == slow
    assert slow != list(plan.best.degraded.objectives_s)
    decided = next(block for block in blocks if isinstance(block, Table) and block.key == "decisions")
    names = tuple(f"{share.devices} {share.hardware}" for share in stock.shares)
    assert str(decided.rows[-1].cells[2].value).startswith(names)
    risks = next(block for block in blocks if isinstance(block, Bullets)).items
    assert any(item.endswith(f"({name}).") for item in risks for name in names)
    assert not any("requests/s" in item for item in risks)
