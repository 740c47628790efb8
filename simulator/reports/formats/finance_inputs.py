"""The Inputs sheet: every figure that finance may want to change, by name, with its source."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from simulator.planner.money.tco import dynamic_w
from simulator.records import dataclass
from simulator.reports.content.quantities import RENTAL_NAMES
from simulator.reports.words.derivation import terms_text
from simulator.specs.base import Spec, is_recalled, read_yaml, validate
from simulator.specs.money.ownership import SourcedFigure

if TYPE_CHECKING:
    from simulator.reports.studies import Studies

FILE = Path(__file__).with_name("workbook.yaml")
UNPRICED = '"not priced"'


class Form(StrEnum):
    """Number formats of a workbook."""

    COUNT = "#,##0"
    MONEY = "#,##0.00"
    FINE = "#,##0.0000"
    SHARE = "0.0%"
    NUMBER = "#,##0.###"


@dataclass(frozen=True, slots=True)
class InputLine:
    """A cell that people may edit, under a name that formulas use."""

    name: str
    label: str
    value: float
    form: Form
    unit: str
    source: str
    date: str
    assumed: bool = False

    @property
    def status(self) -> str:
        """What a reader has to check: nothing of a figure that a source states."""
        return "assumed" if self.assumed else "from memory" if is_recalled(self.source) else ""


FormName = Literal["count", "money", "fine", "share", "number"]


class WrittenFigure(Spec):
    """A figure of owning that is an input: of the profile's ``field``, of its own name where that is not given."""

    label: str
    form: FormName
    unit: str = ""
    field: str = ""


class WrittenLine(Spec):
    """A formula; ``value``: where a record has the plan's own."""

    label: str
    formula: str
    form: FormName
    value: str = ""
    total: bool = False


class WrittenGroup(Spec):
    """Lines by name; ``owned`` ones are priced only with a purchase price."""

    title: str
    owned: bool = False
    lines: dict[str, WrittenLine]


class WrittenWorkbook(Spec):
    """All of ``workbook.yaml``."""

    ownership: dict[str, WrittenFigure]
    groups: dict[str, WrittenGroup]


@lru_cache(maxsize=1)
def written_workbook() -> WrittenWorkbook:
    """Inputs and formulas as they are written."""
    return validate(WrittenWorkbook, read_yaml(FILE), where=str(FILE))


def _figure(name: str, written: WrittenFigure, studies: Studies) -> InputLine:
    figure: SourcedFigure = getattr(studies.ownership, written.field or name)
    unit = studies.currency if written.form == "money" else written.unit
    source, form = f"{figure.source}; {figure.note}" if figure.note else figure.source, Form[written.form.upper()]
    return InputLine(name, written.label, figure.value, form, unit, source, figure.date, figure.assumed)


def _plan_inputs(studies: Studies) -> list[InputLine]:
    plan, fleet = studies.plan, studies.plan.best
    server, mix = fleet.server, plan.demand.mix
    served = plan.demand.requests_per_s * plan.demand.computed_fraction
    units = fleet.servers if fleet.servers is not None else fleet.devices
    rows = (
        ("devices", "accelerators in all", fleet.devices, Form.COUNT, ""),
        ("devices_per_server", "accelerators of a server (0: single)", _per_server(studies), Form.COUNT, ""),
        ("typical_w_per_unit", "expected power of a server or device", fleet.typical_w / units, Form.NUMBER, "W"),
        ("maximum_w_per_unit", "nameplate power of a server or device", fleet.maximum_w / units, Form.NUMBER, "W"),
        ("dynamic_w_per_unit", "of it between idle and the planned load", dynamic_w(fleet) / units, Form.NUMBER, "W"),
        ("mean_load", "mean demand over the planned one", plan.demand.mean_load, Form.SHARE, ""),
        ("rack_units_per_server", "height of a server", server.rack_units if server else 0.0, Form.NUMBER, "U"),
        ("served_rate", "mean rate on accelerators", served, Form.NUMBER, "requests/s"),
        ("answers_per_request", "answers to a request", plan.demand.answers_per_request, Form.COUNT, ""),
        ("isl_tokens", "prompt tokens of a request", mix.isl.mean_tokens, Form.NUMBER, "tokens"),
        ("osl_tokens", "tokens of an answer", mix.osl.mean_tokens, Form.NUMBER, "tokens"),
        ("prompt_share", "share of time that prompts take", studies.cost.tokens.prompt_share, Form.SHARE, ""),
    )
    return [
        InputLine(name, label, float(value), form, unit, "this plan", studies.created)
        for name, label, value, form, unit in rows
    ]


def _per_server(studies: Studies) -> int:
    fleet = studies.plan.best
    return fleet.server.accelerators_per_server if fleet.server is not None and fleet.servers is not None else 0


def _price_inputs(studies: Studies) -> list[InputLine]:
    prices, cost, fleet = studies.prices, studies.cost, studies.plan.best
    owning, money = cost.owning, prices.currency
    price, source, day, assumed = 0.0, "enter a quote", "", True
    if owning is not None:
        offer, day, assumed = owning.offer, owning.offer.date, not owning.quoted
        price, source = offer.per_device or 0.0, f"{offer.provider}: {offer.source}; {offer.note}"
    bought, rented = (
        "purchase price of an accelerator with its server",
        f"device-hour of the plan, {terms_text(fleet.cost.terms)}",
    )
    rate = fleet.cost.per_device_hour or 0.0
    site = (
        ("power_per_kwh", "electricity of a kWh", prices.power_per_kwh, prices.power_source),
        ("pue_ratio", "power usage effectiveness (PUE)", prices.pue, prices.pue_source),
    )
    return [
        InputLine("purchase_price", bought, price, Form.MONEY, money, source, day, assumed),
        InputLine("plan_rate", rented, rate, Form.FINE, money, fleet.cost.offer, prices.date),
        *(
            InputLine(
                f"rate_{item.kind}",
                f"device-hour, {RENTAL_NAMES[item.kind]}",
                item.per_device_hour,
                Form.FINE,
                money,
                f"{item.provider}: {item.source}",
                item.date,
            )
            for item in cost.renting
        ),
        *(InputLine(name, label, value, Form.FINE, "", source, prices.date) for name, label, value, source in site),
    ]


def inputs_of(studies: Studies) -> tuple[InputLine, ...]:
    """Every figure that finance may want to change."""
    owning = (_figure(name, written, studies) for name, written in written_workbook().ownership.items())
    return (*_plan_inputs(studies), *_price_inputs(studies), *owning)
