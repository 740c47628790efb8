"""The workbook computes what the plan says, and follows when finance edits an input."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from simulator.planner.money.tco import total_cost
from simulator.planner.plan import plan_capacity
from simulator.reports.content.document import Bullets, Table
from simulator.reports.formats.files import ReportFormat, render
from simulator.reports.formats.finance_model import FormulaLine, groups_of, inputs_of
from simulator.reports.formats.xlsx import CASH, sheet_name
from simulator.reports.report import build_report
from simulator.reports.studies import gather
from simulator.specs.question.plan import plan_spec
from tests.for_every import for_every
from tests.reports.report_cases import CREATED, QUESTION, rendered, studied, whole_report
from tests.reports.spreadsheet import Workbook

CENT = 0.005


def lines() -> list[FormulaLine]:
    return [line for group in groups_of(studied()) for line in group.lines]


def workbook() -> Workbook:
    return Workbook(rendered(ReportFormat.XLSX))


@cache
def unedited() -> Workbook:
    return workbook()


@for_every(lines)
def test_every_formula_gives_the_plans_own_value_to_the_cent(line: FormulaLine) -> None:
    assert unedited().named(line.name) == pytest.approx(line.value, abs=CENT, rel=1e-9)


def test_formulas_hold_for_two_kinds_of_accelerator() -> None:
    fields = {"model": "llama-3.1-70b", "rps": 200, "hardware": ("h200", "h100"), "prefill_hardware": "h100"}
    spec = plan_spec({**fields, "isl": 3000, "osl": 1000, "tpot_p95": "25ms", "serving": "disaggregated"})
    studies = gather(plan_capacity(spec), command="", created=CREATED)
    assert studies.plan.best.is_unlike
    book = Workbook(render(build_report(studies), studies, ReportFormat.XLSX)[0].data)
    for line in (line for group in groups_of(studies) for line in group.lines):
        assert book.named(line.name) == pytest.approx(line.value, abs=CENT, rel=1e-9), line.name
    assert studies.cost.owning is not None
    book.edit("devices", 2 * studies.plan.best.devices)
    assert float(book.named("servers")) == 2 * (studies.plan.best.servers or 0)


def test_cached_values_are_those_of_the_formulas() -> None:
    book = workbook()
    for place in book.formulas:
        assert book.value(place) == pytest.approx(book.cached[place], abs=CENT, rel=1e-9), place


def test_every_input_has_a_name_a_value_and_a_source() -> None:
    book = workbook()
    for item in inputs_of(studied()):
        assert book.named(item.name) == pytest.approx(item.value)
        assert item.source
        assert item.date


def test_no_total_is_typed_in() -> None:
    book = workbook()
    for line in lines():
        assert book.names[line.name] in book.formulas, line.name


def test_doubling_the_purchase_price_doubles_capital_and_leaves_electricity() -> None:
    book, base = workbook(), workbook()
    book.edit("purchase_price", 2 * float(base.named("purchase_price")))
    assert book.named("capex_total") == pytest.approx(2 * float(base.named("capex_total")))
    assert book.named("opex_electricity") == base.named("opex_electricity")
    assert float(book.named("owning_annual")) > float(base.named("owning_annual"))


def test_editing_devices_moves_servers_power_rent_and_racks_together() -> None:
    book = workbook()
    book.edit("devices", 33)
    assert book.named("servers") == 5
    rate = float(book.named("rate_on_demand"))
    assert book.named("rent_on_demand_annual") == pytest.approx(33 * rate * 8760)
    assert book.named("typical_kw") == pytest.approx(5 * float(book.named("typical_w_per_unit")) / 1000)
    assert book.named("racks") == -(-5 // float(book.named("servers_per_rack")))


def test_edited_inputs_give_what_python_gives_for_the_same_inputs() -> None:
    studies = studied()
    own = studies.ownership
    changed = own.model_copy(
        update={
            "discount_rate": own.discount_rate.model_copy(update={"value": 0.0}),
            "depreciation_years": own.depreciation_years.model_copy(update={"value": 5.0}),
            "cloud_extra_fraction": own.cloud_extra_fraction.model_copy(update={"value": 0.25}),
        }
    )
    cost = total_cost(studies.plan, prices=studies.prices, ownership=changed)
    book = workbook()
    for name, value in (("discount_rate", 0.0), ("depreciation_years", 5.0), ("cloud_extra_fraction", 0.25)):
        book.edit(name, value)
    assert cost.owning is not None
    assert book.named("owning_annual") == pytest.approx(cost.owning.annual, abs=CENT)
    assert book.named("owning_present_value") == pytest.approx(cost.owning.present_value, abs=CENT)
    for item in cost.renting:
        assert book.named(f"rent_{item.kind}_present") == pytest.approx(item.present_value, abs=CENT)
    assert book.value(f"{CASH}!D10") == pytest.approx(cost.flows[-1].cumulative, abs=CENT)


def test_cash_flow_ends_at_the_total_and_is_zero_afterwards() -> None:
    book, cost = workbook(), studied().cost
    assert cost.owning is not None
    assert book.value(f"{CASH}!D{5 + cost.years}") == pytest.approx(cost.owning.total, abs=CENT)
    assert book.value(f"{CASH}!B{6 + cost.years}") == 0


_QUOTE = """
extends: default
name: own
offers:
  - {hardware: h100, kind: purchase, provider: a vendor, per_device: 31234.56, date: "2026-11-01", source: quote}
  - {hardware: h100, kind: on_demand, provider: a cloud, per_hour: 2.345, date: "2026-11-01", source: quote}
"""
_FIGURES = """
extends: default
name: own
discount_rate: {value: 0.12, source: treasury, date: "2026-11-01"}
depreciation_years: {value: 5, source: treasury, date: "2026-11-01"}
staff_minimum_fte: {value: 2.5, source: operations, date: "2026-11-01"}
failures_per_device_year: {value: 0.31, source: operations, date: "2026-11-01"}
grid_market_kg_per_kwh: {value: 0.1, source: contract, date: "2026-11-01"}
"""


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Finance of another plan's JSON: ten times the rate, a peak over its mean, a quote, other figures of owning."""
    folder = tmp_path_factory.mktemp("changed")
    (folder / "prices.yaml").write_text(_QUOTE)
    (folder / "owning.yaml").write_text(_FIGURES)
    asked = {"rps": 400.0, "peak_to_mean": 2.5, "hardware": ("h100",), "prices": str(folder / "prices.yaml")}
    plan = plan_capacity(plan_spec(QUESTION | asked))
    studies = gather(plan, command="", created=CREATED, ownership=str(folder / "owning.yaml"))
    (file,) = render(build_report(studies), studies, ReportFormat.JSON)
    finance: dict[str, Any] = json.loads(file.data)["finance"]
    return finance


def edits_of(finance: dict[str, Any]) -> dict[str, float]:
    """Every input of a plan that the workbook has too."""
    return {name: item["value"] for name, item in finance["inputs"].items() if name in unedited().names}


def test_the_workbook_on_the_inputs_of_another_plan_gives_that_plans_json(changed: dict[str, Any]) -> None:
    book = workbook()
    for name, value in edits_of(changed).items():
        book.edit(name, value)
    compared = changed["results"].keys() & book.names.keys()
    assert len(compared) > 40
    assert {"break_even_price", "owning_present_value", "rent_planned_annual", "facility_kwh", "racks"} <= compared
    for name in compared:
        assert book.named(name) == pytest.approx(changed["results"][name], abs=CENT, rel=1e-9), name


def _with_edits(data: bytes, edits: Mapping[str, float]) -> bytes:
    """The workbook with other numbers typed in and every cached result wiped."""
    names = Workbook(data).names
    places = {names[name].partition("!")[2]: value for name, value in edits.items()}
    source, target = zipfile.ZipFile(BytesIO(data)), BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for item in source.infolist():
            content = source.read(item).decode("utf-8") if item.filename.endswith(".xml") else None
            if content is not None and item.filename.startswith("xl/worksheets/sheet"):
                content = re.sub(r"(</f>)<v>[^<]*</v>", r"\1<v>0</v>", content)
                for place, value in places.items() if item.filename.endswith("sheet2.xml") else ():
                    content = re.sub(rf'(<c r="{place}"[^>]*>)<v>[^<]*</v>', rf"\g<1><v>{value!r}</v>", content)
            archive.writestr(item, source.read(item) if content is None else content)
    return target.getvalue()


def libreoffice(data: bytes, folder: Path) -> dict[str, str]:
    """Values of the Cost sheet by name, recomputed by LibreOffice."""
    profile = folder / "profile" / "user"
    profile.mkdir(parents=True)
    (profile / "registrymodifications.xcu").write_text(
        '<?xml version="1.0" encoding="UTF-8"?><oor:items xmlns:oor="http://openoffice.org/2001/registry">'
        '<item oor:path="/org.openoffice.Office.Calc/Formula/Load"><prop oor:name="OOXMLRecalcMode" oor:op="fuse">'
        "<value>0</value></prop></item></oor:items>"
    )
    (folder / "book.xlsx").write_bytes(data)
    form = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,false,false,false,false,-1"
    command = ["soffice", f"-env:UserInstallation=file://{profile.parent}", "--headless", "--convert-to", form]
    subprocess.run([*command, "--outdir", folder, folder / "book.xlsx"], check=True, capture_output=True, timeout=120)
    with (folder / "book-Cost.csv").open(encoding="utf-8") as stream:
        return {row[2]: row[1] for row in csv.reader(stream) if len(row) > 2 and row[2]}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
def test_libreoffice_recomputes_the_workbook_to_the_json_of_the_changed_plan(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    found = libreoffice(_with_edits(rendered(ReportFormat.XLSX), edits_of(changed)), tmp_path)
    compared = changed["results"].keys() & found.keys()
    assert len(compared) > 40
    for name in compared:
        shown = found[name]
        value = float(shown.rstrip("%")) / (100 if shown.endswith("%") else 1)
        assert value == pytest.approx(changed["results"][name], abs=CENT, rel=1e-12), name


def test_every_sheet_follows_the_inputs_or_says_that_it_stays() -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.load_workbook(BytesIO(rendered(ReportFormat.XLSX)))
    for sheet in book.worksheets:
        said = str(sheet["A2"].value)
        formulas = [cell for row in sheet.iter_rows() for cell in row if str(cell.value).startswith("=")]
        if said.startswith("Static: "):
            assert CREATED in said
            assert not formulas, sheet.title
        elif sheet.title != "Inputs":
            assert formulas, sheet.title


def test_every_section_has_a_sheet_and_its_sentences_are_there() -> None:
    with zipfile.ZipFile(BytesIO(rendered(ReportFormat.XLSX))) as archive:
        book = archive.read("xl/workbook.xml").decode()
        words = archive.read("xl/sharedStrings.xml").decode()
    for section in whole_report().sections[1:]:
        assert f'name="{sheet_name(section)}"' in book
    for block in whole_report().sections[0].blocks:
        if isinstance(block, Bullets):
            assert all(escape(item) in words for item in block.items)
    assert "Signature" in words
    assert escape(studied().command) in words


def test_numbers_stand_under_their_headings() -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.load_workbook(BytesIO(rendered(ReportFormat.XLSX)))
    for name in ("Summary", "Inputs"):
        sides = {cell.value: cell.alignment.horizontal for cell in book[name][4]}
        assert sides["Value"] == "right"
        assert sides["Unit"] is None


def test_numbers_of_a_section_show_their_unit() -> None:
    """``31.6`` of a rack was no power, ``54.2`` of a load no share, where the PDF says kW and %."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.load_workbook(BytesIO(rendered(ReportFormat.XLSX)))
    shown = set()
    for section in (item for item in whole_report().sections if item.number > 1):
        sheet = book[sheet_name(section)]
        formats = {cell.number_format for row in sheet.iter_rows() for cell in row if cell.value is not None}
        for table in (block for block in section.blocks if isinstance(block, Table) and block.key != "cash_flow"):
            units = {cell.unit for row in table.rows for cell in row.cells if cell.unit and cell.value is not None}
            assert all(any(form.endswith(f'"{unit}"') for form in formats) for unit in units), (section.key, units)
            shown |= units
    assert {"kW", "U", "requests/s"} <= shown
