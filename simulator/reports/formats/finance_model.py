"""The workbook: figures that finance may change, the formulas of ``workbook.yaml``, the plan's own values of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from simulator.planner.fleet.records import Housing
from simulator.planner.money.facilities import BTU_PER_HOUR_PER_TON, BTU_PER_HOUR_PER_W
from simulator.planner.money.tco import PASSING, annuity_factor, commitment_months, dynamic_w, mean_power_w, shelved
from simulator.planner.money.tco_records import TotalCost
from simulator.records import dataclass
from simulator.reports.content.quantities import RENTAL_NAMES
from simulator.reports.words.plan_inputs import terms_text
from simulator.specs.base import Spec, is_recalled, read_yaml, validate
from simulator.specs.money.ownership import SourcedFigure
from simulator.units import KILO

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


_HEAT = {"btu_per_hour_per_w": repr(BTU_PER_HOUR_PER_W), "btu_per_hour_per_ton": f"{BTU_PER_HOUR_PER_TON:g}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaLine:
    """A cell that follows from others. ``value`` is what Python has for the plan, None where it is not priced."""

    name: str
    label: str
    formula: str
    value: float | None
    form: Form
    total: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Lines under a heading."""

    title: str
    lines: tuple[FormulaLine, ...]


def _lines(
    key: str, of: object, *, values: Sequence[float | None] = (), words: Mapping[str, str] | None = None
) -> tuple[FormulaLine, ...]:
    """A group's lines with ``values``, or else with those that the record ``of`` holds; None where there is none."""
    group, said = written_workbook().groups[key], words or {}
    found = values or [None if of is None else attrgetter(line.value)(of) for line in group.lines.values()]
    return tuple(
        FormulaLine(
            name=name.format_map(said),
            label=line.label.format_map(said),
            formula=(f"IF(purchase_price>0,{line.formula},{UNPRICED})" if group.owned else line.formula).format_map(
                said
            ),
            value=value,
            form=Form[line.form.upper()],
            total=line.total,
        )
        for (name, line), value in zip(group.lines.items(), found, strict=True)
    )


def _group(key: str, *lines: FormulaLine) -> Group:
    return Group(title=written_workbook().groups[key].title, lines=lines)


def _people(studies: Studies) -> dict[str, str]:
    """People of an owned fleet; of single devices one host a replica, as `tco` counts them."""
    fleet = studies.plan.best
    machines = "servers" if fleet.servers is not None else f"{fleet.hosts}"
    return {"people": f"MAX(staff_minimum,{machines}/servers_per_fte)"}


def _size_of(item: Housing) -> str:
    """Accelerators of a server."""
    return str(item.server.accelerators_per_server if item.server is not None and item.servers is not None else 1)


def _fleet_words(studies: Studies) -> dict[str, str]:
    """Accelerators of every kind have servers and spare parts of their own."""
    housing, total = studies.plan.best.housing, studies.plan.best.devices
    alone = len(housing) == 1
    shares = ["devices"] if alone else [f"devices*{item.devices}/{total}" for item in housing]
    sizes = ["devices_per_server"] if alone else [_size_of(item) for item in housing]
    failing = [f"{share}*failures_per_year*replacement_days/365" for share in shares]
    return {
        "in_servers": "+".join(f"ROUNDUP({share}/{size},0)" for share, size in zip(shares, sizes, strict=True)),
        "shelf": "+".join(f"ROUNDUP({each}+spare_stock_factor*({each})^0.5,0)" for each in failing),
    }


def _fleet_group(studies: Studies) -> Group:
    fleet = studies.plan.best
    values = (
        float(fleet.servers or 0),
        fleet.typical_w / KILO,
        mean_power_w(fleet, mean_load=studies.plan.demand.mean_load) / KILO,
        float(shelved(fleet, ownership=studies.ownership)),
        fleet.maximum_w / KILO,
    )
    return _group("fleet", *_lines("fleet", fleet, values=values, words=_fleet_words(studies)))


def _owning_groups(studies: Studies) -> tuple[Group, ...]:
    """What is paid at the start and every year, the scale of a year, and what owning comes to."""
    own, tokens, words = studies.cost.owning, studies.cost.tokens, _people(studies)
    rate, years = studies.ownership.discount_rate.value, int(studies.ownership.depreciation_years.value)
    paid = () if own is None else [*(line.amount for line in own.capex), own.capex_total]
    yearly = () if own is None else [*(line.amount for line in own.opex), own.opex_total]
    scale = (annuity_factor(rate, years), tokens.input_millions, tokens.output_millions)
    return (
        _group("capital", *_lines("capital", own, values=paid)),
        _group("operation", *_lines("operation", own, values=yearly, words=words)),
        _group("scale", *_lines("scale", tokens, values=scale)),
        _group("owning", *_lines("owning", own)),
    )


def _renting_group(studies: Studies) -> Group:
    """A year of every kind of renting, its tokens and its break-even with owning."""
    kinds = [(item, {"kind": item.kind, "name": RENTAL_NAMES[item.kind]}) for item in studies.cost.renting]
    return _group("renting", *(line for item, words in kinds for line in _lines("renting", item, words=words)))


def _lasting(cost: TotalCost, *, asked: bool) -> str:
    """The present value of the rent that owning has to beat; commitments that outlast the years in the books do not
    count."""
    if asked and cost.rent is not None:
        return f"rent_{cost.rent.kind}_present"
    values = [
        f"IF(depreciation_years*12>={months},{value},{value}+1E+15)" if months else value
        for item in cost.renting
        if item.kind not in PASSING
        for value, months in [(f"rent_{item.kind}_present", commitment_months(item))]
    ]
    return f"MIN({','.join(values)})"


def _break_even_group(studies: Studies) -> Group:
    cost = studies.cost
    if cost.lasting is None or cost.break_even_price is None:
        return Group(title="", lines=())
    words = {"lasting": _lasting(cost, asked=studies.spec.price_kind is not None), **_people(studies)}
    return _group("break_even", *_lines("break_even", cost, words=words))


def groups_of(studies: Studies) -> tuple[Group, ...]:
    """Every computed line, in an order in which names are defined before they are used."""
    racks = () if studies.rooms.servers_per_rack is None else _lines("racks", studies.rooms)
    groups = (
        _fleet_group(studies),
        *_owning_groups(studies),
        _group("plan", *_lines("plan", studies.plan.best.cost)),
        _renting_group(studies),
        _break_even_group(studies),
        _group("energy", *_lines("energy", studies.energy)),
        _group("heat", *_lines("heat", studies.rooms, words=_HEAT), *racks),
    )
    return tuple(group for group in groups if group.lines)
