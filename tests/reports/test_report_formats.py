"""Six formats, one content: the same totals, thirteen sections in order, nothing from elsewhere."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
from collections import defaultdict
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from simulator.errors import FileError, RoofcastError
from simulator.planner.money.tco_records import cash_flows
from simulator.planner.plan import plan_capacity
from simulator.planner.studies.growth import Growth
from simulator.planner.studies.rental import RentalMix
from simulator.planner.studies.resilience import Resilience
from simulator.planner.studies.stock_fleets import StockPlan
from simulator.planner.studies.uncertainty import Uncertainty
from simulator.reports.content.document import (
    Cell,
    CellKind,
    Fact,
    Facts,
    Paragraph,
    Table,
    Tone,
    cell_text,
    count,
    fraction,
    money,
    number,
    seconds,
)
from simulator.reports.formats.csv_focus import COLUMNS, SCENARIOS, cost_files, file_name, scenario_name
from simulator.reports.formats.files import (
    ALL_FORMATS,
    MODELS_NAME,
    ReportFormat,
    check_targets,
    drop_models,
    file_names,
    parse_formats,
    render,
    write_files,
    write_reports,
)
from simulator.reports.formats.finance_model import inputs_of
from simulator.reports.formats.pdf import literal, typst_source
from simulator.reports.handoff.launch import handoff_names
from simulator.reports.report import build_report
from simulator.reports.studies import gather
from simulator.specs.question.plan import plan_spec
from tests.for_every import for_every
from tests.reports.report_cases import CREATED, rendered, studied, whole_report
from tests.reports.spreadsheet import Workbook

TITLES = (
    "Decision",
    "Evidence",
    "Assumptions to accept, and sign-off",
    "Workload and objectives",
    "Model and software",
    "Options considered",
    "Sizing",
    "Performance at the planned load",
    "Sensitivity",
    "Total cost of ownership",
    "Facilities",
    "Energy and carbon",
    "Growth and procurement",
    "Risk and uncertainty",
    "Provenance",
)
CHARTS = {
    *("roofline", "load_latency", "memory_stack", "pareto", "cost_tornado", "tco_waterfall", "capacity_demand"),
    *("break_even", "cash_flow"),
}
CENT = 0.005


def text_of(form: ReportFormat) -> str:
    return rendered(form).decode("utf-8")


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text_of(ReportFormat.JSON))
    return found


class _FactReader(HTMLParser):
    """Headline numbers of the HTML report: (label key, exact value, shown text)."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str]] = []
        self._key = ""
        self._value: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "div" and "data-key" in values:
            self._key = values["data-key"] or ""
        self._value = values.get("data-value") if tag == "dd" else None

    def handle_data(self, data: str) -> None:
        if self._value is not None and data.strip():
            self.found.append((self._key, self._value, data.strip()))


def html_facts() -> list[tuple[str, str, str]]:
    reader = _FactReader()
    reader.feed(text_of(ReportFormat.HTML))
    return reader.found


def test_the_pages_to_decide_by_come_first_and_all_parts_in_their_order() -> None:
    assert tuple(section.title for section in whole_report().sections) == TITLES
    assert [section.number for section in whole_report().sections] == list(range(1, 1 + len(TITLES)))


def test_headline_keys_are_unique_and_total_rows_exist() -> None:
    keys = [fact.key for fact in whole_report().facts()]
    assert len(keys) == len(set(keys))
    assert {"devices", "servers", "racks", "cost_per_hour", "cost_per_month", "capex", "order_by"} <= set(keys)


@for_every(lambda: whole_report().facts())
def test_each_headline_number_is_the_same_in_html_markdown_and_json(fact: Fact) -> None:
    shown = cell_text(fact.cell, currency=studied().currency)
    _, value, html_text = next(item for item in html_facts() if item[0] == fact.key)
    assert html_text == shown
    assert value == str(fact.cell.value)
    assert f"- {fact.label}: **{shown}**" in text_of(ReportFormat.MD)
    assert document()["totals"][fact.key] == fact.cell.value


def test_the_workbook_shows_every_headline_number() -> None:
    book = Workbook(rendered(ReportFormat.XLSX))
    for row, fact in enumerate(whole_report().facts(), start=5):
        assert book.value(f"Summary!A{row}") == fact.label
        if isinstance(fact.cell.value, int | float):
            assert book.value(f"Summary!B{row}") == pytest.approx(fact.cell.value, abs=CENT, rel=1e-9), fact.key


def test_csv_months_add_up_to_the_years_of_every_scenario() -> None:
    billed: dict[str, float] = defaultdict(float)
    effective: dict[str, float] = defaultdict(float)
    for name, text in cost_files(studied()).items():
        for row in csv.DictReader(StringIO(text)):
            assert name == f"costs-{row['SubAccountId']}.csv", "a file never holds two alternatives"
            billed[row["SubAccountId"]] += float(row["BilledCost"])
            effective[row["SubAccountId"]] += float(row["EffectiveCost"])
    cost = studied().cost
    assert cost.owning is not None
    for item in cost.renting:
        assert billed[scenario_name(item.kind)] == pytest.approx(item.annual, abs=CENT)
    assert billed["own"] == pytest.approx(cost.owning.capex_total + cost.owning.opex_total, abs=CENT)
    assert effective["own"] == pytest.approx(cost.owning.depreciation_per_year + cost.owning.opex_total, abs=CENT)


@pytest.mark.parametrize(("stock", "obtains"), [("h100=4", True), ("h100=64", False)])
def test_csv_with_stock_holds_what_is_signed(stock: str, obtains: bool) -> None:
    asked = {"rps": 200, "model": "llama-3.1-8b", "hardware": "l40s", "stock": stock, "serving": "aggregated"}
    plan = plan_capacity(plan_spec(asked))
    studies = gather(plan, command="", created=CREATED)
    found, files = plan.study(StockPlan), cost_files(studies)
    assert found is not None
    # What is launched is what serves, each fleet of several by itself.
    launched = [file for file in studies.handoff.files if "launch-vllm" in file.name]
    assert [file.name for file in launched] == (
        ["fleet-1-launch-vllm.sh", "fleet-2-launch-vllm.sh"] if obtains else ["launch-vllm.sh"]
    )
    for file, share in zip(launched, found.shares, strict=True):
        assert f"On each of {share.replicas + share.spares} replicas" in file.text
    assert bool(found.bought) is obtains
    assert ("costs-rent-planned.csv" in files) is obtains
    months = list(csv.DictReader(StringIO(files["costs-rent-planned.csv" if obtains else "costs-own.csv"])))
    rows = [row for row in months if row["ChargePeriodStart"] == months[0]["ChargePeriodStart"]]
    electricity = rows.pop()
    assert electricity["ChargeDescription"] == f"electricity of {found.devices - found.bought} existing accelerators"
    assert electricity["ResourceId"] == f"{found.shares[0].hardware}-fleet"
    assert [row["ChargeDescription"] for row in rows] == [f"{found.bought} accelerators, all hours"] * obtains
    if obtains:
        assert found.cost_per_hour is not None
        assert float(rows[0]["BilledCost"]) == pytest.approx(found.cost_per_hour * 730, rel=0.02)


def test_csv_has_the_columns_of_focus_and_months_without_gaps() -> None:
    files = cost_files(studied())
    rows = list(csv.DictReader(StringIO(files["costs-rent-on-demand.csv"])))
    assert tuple(rows[0]) == COLUMNS
    assert {"BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "ChargePeriodStart", "Tags"} <= set(COLUMNS)
    assert len(rows) == 12
    assert all(before["ChargePeriodEnd"] == after["ChargePeriodStart"] for before, after in itertools.pairwise(rows))
    assert rows[0]["ChargePeriodStart"] == "2026-12-01T00:00:00Z"
    own = list(csv.DictReader(StringIO(files["costs-own.csv"])))
    assert own[0]["ChargePeriodStart"][:10] >= studied().arrival.isoformat(), "nothing is billed before it is in use"
    assert all(row["BillingCurrency"] == "USD" for row in rows)


def test_html_loads_nothing_and_escapes_what_it_shows() -> None:
    html = text_of(ReportFormat.HTML)
    assert not re.search(r"<(script|link|iframe|img)\b|@import|url\(", html)
    assert html.count("<svg") == len([1 for key in re.findall(r'class="chart" data-key="([^"]+)"', html)])
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_every_chart_of_the_list_is_there() -> None:
    assert set(re.findall(r'class="chart" data-key="([^"]+)"', text_of(ReportFormat.HTML))) >= CHARTS


def test_equal_reports_are_equal_bytes() -> None:
    from simulator.reports.formats.pdf import report_pdf

    assert report_pdf(whole_report()) == rendered(ReportFormat.PDF)
    assert rendered(ReportFormat.PDF).startswith(b"%PDF")


def test_text_cannot_become_markup_of_the_typesetter() -> None:
    assert literal('a"b\\c\n#d') == '"a\\"b\\\\c\\n#d"'
    assert "#sign-off" in typst_source(whole_report())


def test_pdf_says_the_totals() -> None:
    source = typst_source(whole_report())
    for fact in whole_report().facts():
        assert literal(cell_text(fact.cell, currency="USD")) in source, fact.key


def test_json_follows_its_schema() -> None:
    folder = Path(__file__).resolve().parents[2] / "simulator" / "reports" / "templates"
    jsonschema.validate(document(), json.loads((folder / "report.schema.json").read_text("utf-8")))


def test_json_names_its_question_and_its_results() -> None:
    found = document()
    assert found["schema_version"] == "1.1"
    assert found["inputs"]["rate_per_s"] == 40.0
    assert len(found["input_sha256"]) == 64
    assert found["finance"]["results"]["owning_annual"] == pytest.approx(found["totals"]["owning_annual"])


def test_rows_are_as_long_as_their_columns() -> None:
    for section in whole_report().sections:
        for block in section.blocks:
            if isinstance(block, Table):
                assert all(len(row.cells) == len(block.columns) for row in block.rows), block.key
            if isinstance(block, Facts):
                assert block.facts


def test_a_report_carries_every_study_whether_or_not_it_was_asked_for() -> None:
    asked, held = studied().spec, studied().plan
    assert not any((asked.resilience, asked.rental, asked.uncertainty, asked.growth))
    assert None not in (held.study(Resilience), held.study(RentalMix), held.study(Uncertainty), held.study(Growth))
    tables = {block.key for section in whole_report().sections for block in section.blocks if isinstance(block, Table)}
    studies = {"resilience", "degraded_cases", "tornado", "scenarios", "owning_sensitivity", "quantiles"}
    assert "nothing to mix by the hour" in text_of(ReportFormat.MD), "the load of this plan is flat"
    assert tables >= studies | {"regret", "demand_bands", "capacity_steps", "calibration_sources"}
    assert not any(
        block.tone is Tone.MISSING
        for section in whole_report().sections
        for block in section.blocks
        if isinstance(block, Paragraph)
    )


def test_growth_that_nobody_gave_is_an_assumption_and_says_so() -> None:
    text = text_of(ReportFormat.MD)
    assert "No growth was given" in text
    assert "an illustration: give --growth" in text
    assert "--verify" in text


def test_assumed_figures_are_marked() -> None:
    assert '<span class="mark assumed">assumed</span>' in text_of(ReportFormat.HTML)
    said = [line for line in text_of(ReportFormat.MD).splitlines() if "assumed; " in line]
    assert said
    assert not any(line.endswith("(assumed) |") for line in said)


def test_appendix_reproduces_and_is_signed() -> None:
    text = text_of(ReportFormat.MD)
    assert studied().input_hash in text
    assert CREATED in text
    for role in ("Prepared", "Reviewed", "Approved"):
        assert f"| {role} |" in text


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (money(1234.5), "USD 1,234.50"),
        (money(0.1234, digits=4), "USD 0.1234"),
        (count(1234, "U"), "1,234 U"),
        (fraction(0.125), "12 %"),
        (seconds(0.0123), "12.3 ms"),
        (seconds(float("inf")), "overloaded"),
        (number(3.14159, "kW"), "3.14 kW"),
        (number(None), "–"),
        (Cell(value=0, kind=CellKind.NUMBER), "0"),
    ],
)
def test_cells_read_as_people_expect(cell: Cell, shown: str) -> None:
    assert cell_text(cell, currency="USD") == shown


# Files


def test_all_files_are_written_and_nothing_else(tmp_path: Path) -> None:
    paths = write_reports(studied().plan, folder=str(tmp_path / "new" / "r"), command="c", force=False, created=CREATED)
    written = {path.name for path in paths}
    assert written <= set(file_names(ALL_FORMATS))
    assert set(file_names(ALL_FORMATS)) - written <= {*map(file_name, SCENARIOS), *handoff_names()}
    assert {name for name in written if name.endswith(".csv")} == set(cost_files(studied()))
    assert {path.name for path in (tmp_path / "new" / "r").iterdir()} == written
    assert date.fromisoformat(CREATED)


def test_an_existing_file_needs_force_and_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("mine")
    with pytest.raises(FileError, match="exists.*--force") as error:
        write_reports(
            studied().plan, folder=str(tmp_path), formats=(ReportFormat.MD,), command="c", force=False, created=CREATED
        )
    assert error.value.exit_code == 5
    assert (tmp_path / "report.md").read_text() == "mine"
    write_reports(studied().plan, folder=str(tmp_path), formats=(ReportFormat.MD,), command="c", force=True)
    assert (tmp_path / "report.md").read_text().startswith("# Capacity plan")


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(FileError, match="is a file"):
        check_targets(str(tmp_path / "f"), force=True, flag="--out")


def test_nothing_is_left_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from simulator.reports.formats.files import Rendered

    real, written = os.fsync, []

    def full_disk(handle: int) -> None:
        written.append(handle)
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full_disk)
    files = (Rendered(name="a", data=b"1"), Rendered(name="b", data=b"2"))
    with pytest.raises(FileError, match="No space left"):
        write_files(files, folder=str(tmp_path), flag="--out", instead_of=())
    assert len(written) == 2
    assert list(tmp_path.iterdir()) == []


def test_unknown_and_missing_formats_are_named() -> None:
    with pytest.raises(RoofcastError, match="'docx'; allowed: html, pdf"):
        parse_formats("html,docx")
    with pytest.raises(RoofcastError, match="at least one"):
        parse_formats(" , ")
    assert parse_formats("json, HTML") == (ReportFormat.HTML, ReportFormat.JSON)


def test_forecasts_carry_the_badge_of_how_they_are_known() -> None:
    known = studied().plan.best.provenance
    shown = re.search(r'data-key="devices">.*?</div>', text_of(ReportFormat.HTML), re.DOTALL)
    assert shown
    assert f'class="mark {known}"' in shown[0]
    assert f" [{known}]" in next(line for line in text_of(ReportFormat.MD).splitlines() if " in all: **" in line)
    assert f'mark("{known}")' in typst_source(whole_report()) or f', "{known}")' in typst_source(whole_report())


def test_rooms_say_what_a_server_weighs_and_how_it_is_cooled() -> None:
    server = studied().plan.best.server
    assert server is not None
    rooms = next(section for section in whole_report().sections if section.key == "facilities")
    table = next(block for block in rooms.blocks if isinstance(block, Table))
    values = {row.cells[0].value: row.cells[1].value for row in table.rows}
    assert values["weight of a server"] == server.weight_kg
    assert values["cooling type"] == server.cooling
    assert values["weight of a unit of height"] == pytest.approx((server.weight_kg or 0.0) / server.rack_units)


def test_every_hardware_figure_has_a_value_a_date_and_a_source() -> None:
    tables = {block.key: block for block in whole_report().sections[-1].blocks if isinstance(block, Table)}
    for key in ("hardware_sources", "server_sources", "calibration_sources"):
        assert tables[key].rows
        for row in tables[key].rows:
            assert all(cell.value not in (None, "") for cell in row.cells), row


def test_the_inputs_of_the_workbook_say_what_is_assumed_and_what_is_from_memory() -> None:
    found = {line.name: line for line in inputs_of(studied())}
    assert found["network_fraction"].status == "assumed"
    assert found["power_per_kwh"].status == "from memory"
    assert found["pue_ratio"].status == ""
    assert all(line.status for line in found.values() if "from memory" in line.source)


@pytest.mark.parametrize("owned", [False, True])
def test_a_report_is_written_without_a_price_of_renting(owned: bool) -> None:
    """Nobody may list the accelerator, or somebody sells it and nobody lets it."""
    cost = replace(studied().cost, renting=(), rent=None, lasting=None, break_even_price=None)
    flows = cash_flows(cost.owning if owned else None, (), years=cost.years)
    studies = replace(studied(), cost=replace(cost, owning=cost.owning if owned else None, flows=flows))
    report = build_report(studies)
    for block in (block for section in report.sections for block in section.blocks if isinstance(block, Table)):
        assert all(len(row.cells) == len(block.columns) for row in block.rows), block.key
    for form in ALL_FORMATS:
        assert all(file.data for file in render(report, studies, form))
    said = render(report, studies, ReportFormat.MD)[0].data.decode()
    assert ("its cost is left out" in said) is not owned


def test_a_newer_answer_leaves_no_report_of_a_model_that_it_does_not_ask_about(tmp_path: Path) -> None:
    for name in ("old", "kept", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.md").write_text(name, "utf-8")
    drop_models(str(tmp_path))
    assert (tmp_path / "old" / "report.md").exists(), "no answer of several models lies there"
    (tmp_path / MODELS_NAME).write_text("", "utf-8")
    (tmp_path / "mine" / "notes.txt").write_text("", "utf-8")
    drop_models(str(tmp_path), kept=("kept",))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "mine", MODELS_NAME]
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    drop_models(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
