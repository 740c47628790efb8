"""The arithmetic of the workbook: the formulas of ``workbook.yaml``, and beside each the plan's own value of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from simulator.planner.fleet.records import Housing
from simulator.planner.money.facilities import BTU_PER_HOUR_PER_TON, BTU_PER_HOUR_PER_W
from simulator.planner.money.tco import PASSING, annuity_factor, commitment_months, mean_power_w, shelved
from simulator.planner.money.tco_records import TotalCost
from simulator.records import dataclass
from simulator.reports.content.quantities import RENTAL_NAMES
from simulator.reports.formats.finance_inputs import UNPRICED, Form, written_workbook
from simulator.units import KILO

if TYPE_CHECKING:
    from simulator.reports.studies import Studies

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
