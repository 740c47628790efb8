"""The arithmetic of the workbook: formulas over its named inputs, and beside each the plan's own value of it."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.planner.fleet.records import Housing
from simulator.planner.money.facilities import BTU_PER_HOUR_PER_TON, BTU_PER_HOUR_PER_W
from simulator.planner.money.tco import PASSING, annuity_factor, commitment_months, mean_power_w, shelved
from simulator.planner.money.tco_records import Renting, TotalCost
from simulator.reports.content.quantities import RENTAL_NAMES
from simulator.reports.formats.finance_inputs import UNPRICED, Form, FormulaLine, Group
from simulator.reports.studies import Studies
from simulator.units import KILO

Formula = tuple[str, str, str, Form]
"""Name, label, formula over inputs and names defined before it, number format."""

_UNITS = "IF(devices_per_server>0,servers,devices)"
_TOTALS = frozenset(
    {
        *("capex_total", "opex_total", "plan_cost_per_hour", "break_even_price", "racks"),
        *(f"rent_{kind}_annual" for kind in RENTAL_NAMES),
    }
)

_FLEET: tuple[Formula, ...] = (
    ("typical_kw", "expected power [kW]", f"{_UNITS}*typical_w_per_unit/1000", Form.NUMBER),
    (
        "mean_kw",
        "mean power over the hours of the demand [kW]",
        f"{_UNITS}*(typical_w_per_unit-dynamic_w_per_unit*(1-mean_load))/1000",
        Form.NUMBER,
    ),
    ("nameplate_kw", "nameplate power [kW]", f"{_UNITS}*maximum_w_per_unit/1000", Form.NUMBER),
)
_CAPITAL: tuple[Formula, ...] = (
    ("capex_servers", "servers", "devices*purchase_price", Form.MONEY),
    ("capex_network", "network", "capex_servers*network_fraction", Form.MONEY),
    ("capex_storage", "storage", "capex_servers*storage_fraction", Form.MONEY),
    ("capex_spare_parts", "spare parts", "spare_devices*purchase_price", Form.MONEY),
    (
        "capex_integration",
        "integration",
        "(capex_servers*(1+network_fraction+storage_fraction)+capex_spare_parts)*integration_fraction",
        Form.MONEY,
    ),
)
_SCALE: tuple[Formula, ...] = (
    (
        "annuity_factor",
        "annuity factor [years]",
        "IF(discount_rate=0,depreciation_years,(1-(1+discount_rate)^-depreciation_years)/discount_rate)",
        Form.FINE,
    ),
    ("input_millions", "million input tokens a year", "served_rate*3600*8760*isl_tokens/1000000", Form.NUMBER),
    ("output_millions", "million output tokens a year", "served_rate*3600*8760*osl_tokens/1000000", Form.NUMBER),
)
_OWNING: tuple[Formula, ...] = (
    ("residual_value", "residual", "capex_servers*residual_fraction", Form.MONEY),
    ("depreciation_per_year", "depreciation a year", "(capex_total-residual_value)/depreciation_years", Form.MONEY),
    ("owning_total", "total over the years", "capex_total+depreciation_years*opex_total-residual_value", Form.MONEY),
    (
        "owning_present_value",
        "present value",
        "capex_total+opex_total*annuity_factor-residual_value*(1+discount_rate)^-depreciation_years",
        Form.MONEY,
    ),
    ("owning_annual", "equivalent annual cost", "owning_present_value/annuity_factor", Form.MONEY),
    ("owning_per_device_hour", "an accelerator-hour", "owning_annual/(devices*8760)", Form.FINE),
    ("owning_per_million_input", "a million input tokens", "owning_annual*prompt_share/input_millions", Form.FINE),
    (
        "owning_per_million_output",
        "a million output tokens",
        "owning_annual*(1-prompt_share)/output_millions",
        Form.FINE,
    ),
)
_PLAN: tuple[Formula, ...] = (
    ("plan_cost_per_hour", "an hour", "devices*plan_rate", Form.MONEY),
    ("plan_cost_per_month", "a month", "plan_cost_per_hour*730", Form.MONEY),
    (
        "plan_per_million_input",
        "a million input tokens",
        "plan_cost_per_hour*prompt_share/(served_rate*3600*isl_tokens/1000000)",
        Form.FINE,
    ),
    (
        "plan_per_million_output",
        "a million output tokens",
        "plan_cost_per_hour*(1-prompt_share)/(served_rate*3600*osl_tokens/1000000)",
        Form.FINE,
    ),
)
_ENERGY: tuple[Formula, ...] = (
    ("it_kwh", "machines [kWh a year]", "mean_kw*8760", Form.NUMBER),
    ("facility_kwh", "at the meter [kWh a year]", "it_kwh*pue_ratio", Form.NUMBER),
    ("j_per_output_token", "per output token [J]", "facility_kwh*3600000/(output_millions*1000000)", Form.FINE),
    ("tco2e_location", "location-based [t CO2e a year]", "facility_kwh*grid_location/1000", Form.NUMBER),
    ("tco2e_market", "market-based [t CO2e a year]", "facility_kwh*grid_market/1000", Form.NUMBER),
)
_HEAT: tuple[Formula, ...] = (
    ("btu_per_hour", "heat, nameplate [BTU/h]", f"nameplate_kw*1000*{BTU_PER_HOUR_PER_W!r}", Form.COUNT),
    ("cooling_tons", "cooling [tons]", f"btu_per_hour/{BTU_PER_HOUR_PER_TON:g}", Form.NUMBER),
)
_IN_SERVERS = "IF(devices_per_server>0,{},0)"
_FITTING = "MAX(1,MIN(INT(rack_power_limit/maximum_w_per_unit),INT(rack_units_usable/rack_units_per_server)))"
_CIRCUIT = "(3^0.5*circuit_volts*circuit_amperes*circuit_load_fraction)"
_FEEDS = f"racks*ROUNDUP(servers_per_rack*maximum_w_per_unit/{_CIRCUIT},0)*feeds_per_rack"
_RACKS: tuple[Formula, ...] = (
    ("servers_per_rack", "servers of a rack", _IN_SERVERS.format(_FITTING), Form.COUNT),
    ("racks", "racks", _IN_SERVERS.format("ROUNDUP(servers/servers_per_rack,0)"), Form.COUNT),
    ("circuits", "circuits", _IN_SERVERS.format(_FEEDS), Form.COUNT),
)


def _group(title: str, formulas: Sequence[Formula], values: Sequence[float | None], *, owned: bool = False) -> Group:
    lines = tuple(
        FormulaLine(
            name=name,
            label=label,
            formula=f"IF(purchase_price>0,{formula},{UNPRICED})" if owned else formula,
            value=value,
            form=form,
            total=name in _TOTALS,
        )
        for (name, label, formula, form), value in zip(formulas, values, strict=True)
    )
    return Group(title=title, lines=lines)


def _summed(name: str, label: str, formulas: Sequence[Formula]) -> tuple[Formula, ...]:
    """Formulas of money with their sum below them."""
    return (*formulas, (name, label, "+".join(part for part, *_ in formulas), Form.MONEY))


def _people(studies: Studies) -> str:
    """People of an owned fleet; of single devices one host a replica, as `tco` counts them."""
    fleet = studies.plan.best
    machines = "servers" if fleet.servers is not None else f"{fleet.hosts}"
    return f"MAX(staff_minimum,{machines}/servers_per_fte)"


def _shares(studies: Studies) -> list[str]:
    """Accelerators of every kind: each has servers and spare parts of its own."""
    housing, total = studies.plan.best.housing, studies.plan.best.devices
    return ["devices"] if len(housing) == 1 else [f"devices*{item.devices}/{total}" for item in housing]


def _size_of(item: Housing) -> str:
    """Accelerators of a server."""
    return str(item.server.accelerators_per_server if item.server is not None and item.servers is not None else 1)


def _fleet_formulas(studies: Studies) -> tuple[Formula, ...]:
    housing = studies.plan.best.housing
    sizes = ["devices_per_server"] if len(housing) == 1 else [_size_of(item) for item in housing]
    in_servers = "+".join(f"ROUNDUP({share}/{size},0)" for share, size in zip(_shares(studies), sizes, strict=True))
    failing = [f"{share}*failures_per_year*replacement_days/365" for share in _shares(studies)]
    shelf = "+".join(f"ROUNDUP({each}+spare_stock_factor*({each})^0.5,0)" for each in failing)
    return (
        ("servers", "servers", f"IF(devices_per_server>0,{in_servers},0)", Form.COUNT),
        *_FLEET[:2],
        ("spare_devices", "accelerators on the shelf", shelf, Form.COUNT),
        *_FLEET[2:],
    )


def _fleet_group(studies: Studies) -> Group:
    fleet = studies.plan.best
    values = (
        float(fleet.servers or 0),
        fleet.typical_w / KILO,
        mean_power_w(fleet, mean_load=studies.plan.demand.mean_load) / KILO,
        float(shelved(fleet, ownership=studies.ownership)),
        fleet.maximum_w / KILO,
    )
    return _group("Fleet", _fleet_formulas(studies), values)


def _owning_groups(studies: Studies) -> tuple[Group, Group, Group, Group]:
    """What is paid at the start and every year, the scale of a year, and what owning comes to."""
    own, tokens = studies.cost.owning, studies.cost.tokens
    rate, years = studies.ownership.discount_rate.value, int(studies.ownership.depreciation_years.value)
    capital = _summed("capex_total", "capital", _CAPITAL)
    operation = _summed(
        "opex_total",
        "operation a year",
        (
            ("opex_electricity", "electricity", "mean_kw*pue_ratio*8760*power_per_kwh", Form.MONEY),
            ("opex_colocation", "colocation", "nameplate_kw*colocation_per_kw*12", Form.MONEY),
            ("opex_support", "support", "capex_servers*support_fraction", Form.MONEY),
            ("opex_licences", "licences", "devices*licence_per_device", Form.MONEY),
            ("opex_staff", "staff", f"{_people(studies)}*staff_per_fte", Form.MONEY),
        ),
    )
    paid: Sequence[float | None] = [None] * len(capital)
    yearly: Sequence[float | None] = [None] * len(operation)
    comes_to: Sequence[float | None] = [None] * len(_OWNING)
    if own is not None:
        paid = [*(line.amount for line in own.capex), own.capex_total]
        yearly = [*(line.amount for line in own.opex), own.opex_total]
        comes_to = [
            *(own.residual, own.depreciation_per_year, own.total, own.present_value, own.annual),
            *(own.per_device_hour, own.per_million_input_tokens, own.per_million_output_tokens),
        ]
    return (
        _group("Owning: paid at the start", capital, paid, owned=True),
        _group("Owning: paid every year", operation, yearly, owned=True),
        _group("Scale", _SCALE, (annuity_factor(rate, years), tokens.input_millions, tokens.output_millions)),
        _group("Owning: what it comes to", _OWNING, comes_to, owned=True),
    )


def _plan_group(studies: Studies) -> Group:
    """The plan's own bill, at its kind of price."""
    cost = studies.plan.best.cost
    tokens = (cost.per_million_input_tokens, cost.per_million_output_tokens)
    return _group("The plan, rented at its own price", _PLAN, (cost.per_hour, cost.per_month, *tokens))


def _renting_group(studies: Studies) -> Group:
    """A year of every kind of renting, its tokens and its break-even with owning."""
    found = [_rented(item) for item in studies.cost.renting]
    formulas = [formula for lines, _ in found for formula in lines]
    return _group("Renting all devices all hours", formulas, [value for _, values in found for value in values])


def _rented(item: Renting) -> tuple[tuple[Formula, ...], tuple[float | None, ...]]:
    kind, name = f"rent_{item.kind}", RENTAL_NAMES[item.kind]
    annual = f"{kind}_annual"
    yearly = f"devices*rate_{item.kind}*8760*(1+cloud_extra_fraction)"
    even = f"IF(purchase_price>0,owning_annual/{annual},{UNPRICED})"
    formulas = (
        (annual, f"{name}, a year", yearly, Form.MONEY),
        (f"{kind}_total", f"{name}, over the years", f"{annual}*depreciation_years", Form.MONEY),
        (f"{kind}_present", f"{name}, present value", f"{annual}*annuity_factor", Form.MONEY),
        (f"{kind}_input", f"{name}, a million input tokens", f"{annual}*prompt_share/input_millions", Form.FINE),
        (f"{kind}_output", f"{name}, a million output tokens", f"{annual}*(1-prompt_share)/output_millions", Form.FINE),
        (f"{kind}_even", f"{name}, break-even with owning", even, Form.SHARE),
    )
    tokens = (item.per_million_input_tokens, item.per_million_output_tokens)
    return formulas, (item.annual, item.total, item.present_value, *tokens, item.break_even)


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
    """The purchase price at which owning is worth the cheapest rent that lasts: both ends of a line in the price."""
    cost = studies.cost
    if cost.lasting is None or cost.break_even_price is None:
        return Group(title="", lines=())
    bought = "(devices*(1+network_fraction+storage_fraction)+spare_devices)*(1+integration_fraction)"
    kept = "devices*residual_fraction*(1+discount_rate)^-depreciation_years"
    run = (
        "(mean_kw*pue_ratio*8760*power_per_kwh+nameplate_kw*colocation_per_kw*12+devices*licence_per_device"
        f"+{_people(studies)}*staff_per_fte)"
    )
    per_price = f"({bought}+devices*support_fraction*annuity_factor-{kept})"
    formula = f"({_lasting(cost, asked=studies.spec.price_kind is not None)}-{run}*annuity_factor)/{per_price}"
    label = "purchase price of an accelerator below which owning pays"
    return _group("Rent or buy", [("break_even_price", label, formula, Form.MONEY)], [cost.break_even_price])


def _energy_group(studies: Studies) -> Group:
    """Energy and emissions of a year."""
    found = studies.energy
    values = (found.it_kwh, found.facility_kwh, found.j_per_output_token, found.location_t, found.market_t)
    return _group("Energy and carbon", _ENERGY, values)


def _rooms_group(studies: Studies) -> Group:
    rooms = studies.rooms
    heat = (rooms.btu_per_hour_nameplate, rooms.cooling_tons)
    if rooms.servers_per_rack is None:
        return _group("Rooms", _HEAT, heat)
    return _group("Rooms", (*_HEAT, *_RACKS), (*heat, rooms.servers_per_rack, rooms.racks, rooms.circuits))


def groups_of(studies: Studies) -> tuple[Group, ...]:
    """Every computed line, in an order in which names are defined before they are used."""
    groups = (
        _fleet_group(studies),
        *_owning_groups(studies),
        _plan_group(studies),
        _renting_group(studies),
        _break_even_group(studies),
        _energy_group(studies),
        _rooms_group(studies),
    )
    return tuple(group for group in groups if group.lines)
