"""The arithmetic of owning as formulas over named inputs, with the values that Python has for the plan.

The arithmetic of renting, energy and rooms as formulas over named inputs, with the plan's own values.
"""

from __future__ import annotations

from simulator.planner.money.facilities import BTU_PER_HOUR_PER_TON, BTU_PER_HOUR_PER_W
from simulator.planner.money.tco import annuity_factor, mean_power_w, spare_accelerators
from simulator.reports.content.quantities import RENTAL_NAMES
from simulator.reports.formats.finance_inputs import UNPRICED, Form, FormulaLine, Group, line, priced
from simulator.reports.studies import Studies
from simulator.units import KILO


def plan_group(studies: Studies) -> Group:
    """The plan's own bill, at its kind of price."""
    cost = studies.plan.best.cost
    hourly = "plan_cost_per_hour*{}/(served_rate*3600*{}/1000000)"
    return Group(
        title="The plan, rented at its own price",
        lines=(
            line("plan_cost_per_hour", "an hour", "devices*plan_rate", cost.per_hour, total=True),
            line("plan_cost_per_month", "a month", "plan_cost_per_hour*730", cost.per_month),
            line(
                "plan_per_million_input",
                "a million input tokens",
                hourly.format("prompt_share", "isl_tokens"),
                cost.per_million_input_tokens,
                Form.FINE,
            ),
            line(
                "plan_per_million_output",
                "a million output tokens",
                hourly.format("(1-prompt_share)", "osl_tokens"),
                cost.per_million_output_tokens,
                Form.FINE,
            ),
        ),
    )


def renting_group(studies: Studies) -> Group:
    """A year of every kind of renting, its tokens and its break-even with owning."""
    lines: list[FormulaLine] = []
    for item in studies.cost.renting:
        kind, name = item.kind, RENTAL_NAMES[item.kind]
        annual = f"rent_{kind}_annual"
        yearly = f"devices*rate_{kind}*8760*(1+cloud_extra_fraction)"
        even = f"IF(purchase_price>0,owning_annual/{annual},{UNPRICED})"
        lines += [
            line(annual, f"{name}, a year", yearly, item.annual, total=True),
            line(f"rent_{kind}_total", f"{name}, over the years", f"{annual}*depreciation_years", item.total),
            line(f"rent_{kind}_present", f"{name}, present value", f"{annual}*annuity_factor", item.present_value),
            line(
                f"rent_{kind}_input",
                f"{name}, a million input tokens",
                f"{annual}*prompt_share/input_millions",
                item.per_million_input_tokens,
                Form.FINE,
            ),
            line(
                f"rent_{kind}_output",
                f"{name}, a million output tokens",
                f"{annual}*(1-prompt_share)/output_millions",
                item.per_million_output_tokens,
                Form.FINE,
            ),
            line(f"rent_{kind}_even", f"{name}, break-even with owning", even, item.break_even, Form.SHARE),
        ]
    return Group(title="Renting all devices all hours", lines=tuple(lines))


def _break_even_group(studies: Studies) -> Group:
    """The purchase price at which owning is worth the plan's rent: both ends of a line in the price."""
    cost = studies.cost
    if cost.rent is None or cost.break_even_price is None:
        return Group(title="", lines=())
    bought = "(devices*(1+network_fraction+storage_fraction)+spare_devices)*(1+integration_fraction)"
    kept = "devices*residual_fraction*(1+discount_rate)^-depreciation_years"
    people = _people(studies)
    run = (
        "(mean_kw*pue_ratio*8760*power_per_kwh+nameplate_kw*colocation_per_kw*12+devices*licence_per_device"
        f"+{people}*staff_per_fte)"
    )
    per_price = f"({bought}+devices*support_fraction*annuity_factor-{kept})"
    formula = f"(rent_{cost.rent.kind}_present-{run}*annuity_factor)/{per_price}"
    label = "purchase price of an accelerator below which owning pays"
    return Group(
        title="Rent or buy", lines=(line("break_even_price", label, formula, cost.break_even_price, total=True),)
    )


def _people(studies: Studies) -> str:
    """People of an owned fleet; of single devices one host a replica, as `tco` counts them."""
    fleet = studies.plan.best
    machines = "servers" if fleet.servers is not None else f"{fleet.replicas + fleet.spares}"
    return f"MAX(staff_minimum,{machines}/servers_per_fte)"


def energy_group(studies: Studies) -> Group:
    """Energy and emissions of a year."""
    energy = studies.energy
    return Group(
        title="Energy and carbon",
        lines=(
            line("it_kwh", "machines [kWh a year]", "mean_kw*8760", energy.it_kwh, Form.NUMBER),
            line("facility_kwh", "at the meter [kWh a year]", "it_kwh*pue_ratio", energy.facility_kwh, Form.NUMBER),
            line(
                "j_per_output_token",
                "per output token [J]",
                "facility_kwh*3600000/(output_millions*1000000)",
                energy.j_per_output_token,
                Form.FINE,
            ),
            line(
                "tco2e_location",
                "location-based [t CO2e a year]",
                "facility_kwh*grid_location/1000",
                energy.location_t,
                Form.NUMBER,
            ),
            line(
                "tco2e_market",
                "market-based [t CO2e a year]",
                "facility_kwh*grid_market/1000",
                energy.market_t,
                Form.NUMBER,
            ),
        ),
    )


def rooms_group(studies: Studies) -> Group:
    """Racks, heat and circuits."""
    rooms = studies.rooms
    heat = repr(BTU_PER_HOUR_PER_W)
    fitting = "MAX(1,MIN(INT(rack_power_limit/maximum_w_per_unit),INT(rack_units_usable/rack_units_per_server)))"
    in_servers = "IF(devices_per_server>0,{},0)"
    one_circuit = "(3^0.5*circuit_volts*circuit_amperes*circuit_load_fraction)"
    circuits = f"racks*ROUNDUP(servers_per_rack*maximum_w_per_unit/{one_circuit},0)*feeds_per_rack"
    racks = "ROUNDUP(servers/servers_per_rack,0)"
    lines = [
        line(
            "btu_per_hour",
            "heat, nameplate [BTU/h]",
            f"nameplate_kw*1000*{heat}",
            rooms.btu_per_hour_nameplate,
            Form.COUNT,
        ),
        line(
            "cooling_tons", "cooling [tons]", f"btu_per_hour/{BTU_PER_HOUR_PER_TON:g}", rooms.cooling_tons, Form.NUMBER
        ),
    ]
    if rooms.servers_per_rack is not None:
        lines += [
            line(
                "servers_per_rack", "servers of a rack", in_servers.format(fitting), rooms.servers_per_rack, Form.COUNT
            ),
            line("racks", "racks", in_servers.format(racks), rooms.racks, Form.COUNT, total=True),
            line("circuits", "circuits", in_servers.format(circuits), rooms.circuits, Form.COUNT),
        ]
    return Group(title="Rooms", lines=tuple(lines))


def _fleet_group(studies: Studies) -> Group:
    fleet = studies.plan.best
    per_server = "IF(devices_per_server>0,{},{})"
    failing = "devices*failures_per_year*replacement_days/365"
    return Group(
        title="Fleet",
        lines=(
            line(
                "servers",
                "servers",
                per_server.format("ROUNDUP(devices/devices_per_server,0)", "0"),
                float(fleet.servers or 0),
                Form.COUNT,
            ),
            line(
                "typical_kw",
                "expected power [kW]",
                per_server.format("servers", "devices") + "*typical_w_per_unit/1000",
                fleet.typical_w / KILO,
                Form.NUMBER,
            ),
            line(
                "mean_kw",
                "mean power over the hours of the demand [kW]",
                per_server.format("servers", "devices") + "*(typical_w_per_unit-dynamic_w_per_unit*(1-mean_load))/1000",
                mean_power_w(fleet, mean_load=studies.plan.demand.mean_load) / KILO,
                Form.NUMBER,
            ),
            line(
                "spare_devices",
                "accelerators on the shelf",
                f"ROUNDUP({failing}+spare_stock_factor*({failing})^0.5,0)",
                float(spare_accelerators(fleet.devices, ownership=studies.ownership)),
                Form.COUNT,
            ),
            line(
                "nameplate_kw",
                "nameplate power [kW]",
                per_server.format("servers", "devices") + "*maximum_w_per_unit/1000",
                fleet.maximum_w / KILO,
                Form.NUMBER,
            ),
        ),
    )


def _capital_group(studies: Studies) -> Group:
    owning = studies.cost.owning
    bought = "(capex_servers*(1+network_fraction+storage_fraction)+capex_spare_parts)"
    formulas = (
        ("capex_servers", "devices*purchase_price"),
        ("capex_network", "capex_servers*network_fraction"),
        ("capex_storage", "capex_servers*storage_fraction"),
        ("capex_spare_parts", "spare_devices*purchase_price"),
        ("capex_integration", f"{bought}*integration_fraction"),
    )
    amounts = [line.amount for line in owning.capex] if owning else [None] * len(formulas)
    lines = [
        priced(name, name.removeprefix("capex_").replace("_", " "), formula, amount)
        for (name, formula), amount in zip(formulas, amounts, strict=True)
    ]
    total = "+".join(name for name, _ in formulas)
    whole = f"IF(purchase_price>0,{total},{UNPRICED})"
    lines.append(line("capex_total", "capital", whole, owning.capex_total if owning else None, total=True))
    return Group(title="Owning: paid at the start", lines=tuple(lines))


def _operation_group(studies: Studies) -> Group:
    owning = studies.cost.owning
    formulas = (
        ("opex_electricity", "mean_kw*pue_ratio*8760*power_per_kwh"),
        ("opex_colocation", "nameplate_kw*colocation_per_kw*12"),
        ("opex_support", "capex_servers*support_fraction"),
        ("opex_licences", "devices*licence_per_device"),
        ("opex_staff", f"{_people(studies)}*staff_per_fte"),
    )
    amounts = [line.amount for line in owning.opex] if owning else [None] * len(formulas)
    lines = [
        priced(name, name.removeprefix("opex_").replace("_", " "), formula, amount)
        for (name, formula), amount in zip(formulas, amounts, strict=True)
    ]
    total = "+".join(name for name, _ in formulas)
    whole = f"IF(purchase_price>0,{total},{UNPRICED})"
    lines.append(line("opex_total", "operation a year", whole, owning.opex_total if owning else None, total=True))
    return Group(title="Owning: paid every year", lines=tuple(lines))


def _scale_group(studies: Studies) -> Group:
    tokens, years = studies.cost.tokens, studies.ownership.depreciation_years.value
    rate = studies.ownership.discount_rate.value
    annuity = "IF(discount_rate=0,depreciation_years,(1-(1+discount_rate)^-depreciation_years)/discount_rate)"
    per_year = "served_rate*3600*8760*{}/1000000"
    inputs, outputs = per_year.format("isl_tokens"), per_year.format("osl_tokens")
    rows = (
        ("annuity_factor", "annuity factor [years]", annuity, annuity_factor(rate, int(years)), Form.FINE),
        ("input_millions", "million input tokens a year", inputs, tokens.input_millions, Form.NUMBER),
        ("output_millions", "million output tokens a year", outputs, tokens.output_millions, Form.NUMBER),
    )
    lines = [line(name, label, formula, value, form) for name, label, formula, value, form in rows]
    return Group(title="Scale", lines=tuple(lines))


def _owning_formulas() -> tuple[tuple[str, str, str, Form], ...]:
    """Name, label, formula and form of each amount of owning."""
    present = "capex_total+opex_total*annuity_factor-residual_value*(1+discount_rate)^-depreciation_years"
    total = "capex_total+depreciation_years*opex_total-residual_value"
    straight = "(capex_total-residual_value)/depreciation_years"
    per_input = "owning_annual*prompt_share/input_millions"
    per_output = "owning_annual*(1-prompt_share)/output_millions"
    return (
        ("residual_value", "residual", "capex_servers*residual_fraction", Form.MONEY),
        ("depreciation_per_year", "depreciation a year", straight, Form.MONEY),
        ("owning_total", "total over the years", total, Form.MONEY),
        ("owning_present_value", "present value", present, Form.MONEY),
        ("owning_annual", "equivalent annual cost", "owning_present_value/annuity_factor", Form.MONEY),
        ("owning_per_device_hour", "an accelerator-hour", "owning_annual/(devices*8760)", Form.FINE),
        ("owning_per_million_input", "a million input tokens", per_input, Form.FINE),
        ("owning_per_million_output", "a million output tokens", per_output, Form.FINE),
    )


def _owning_group(studies: Studies) -> Group:
    """Amounts of owning; None where it is not priced."""
    own = studies.cost.owning
    formulas = _owning_formulas()
    values: tuple[float | None, ...] = (None,) * len(formulas)
    if own is not None:
        values = (
            own.residual,
            own.depreciation_per_year,
            own.total,
            own.present_value,
            own.annual,
            own.per_device_hour,
            own.per_million_input_tokens,
            own.per_million_output_tokens,
        )
    lines = [
        priced(name, label, formula, value, form)
        for (name, label, formula, form), value in zip(formulas, values, strict=True)
    ]
    return Group(title="Owning: what it comes to", lines=tuple(lines))


def groups_of(studies: Studies) -> tuple[Group, ...]:
    """Every computed line, in an order in which names are defined before they are used."""
    groups = (
        _fleet_group(studies),
        _capital_group(studies),
        _operation_group(studies),
        _scale_group(studies),
        _owning_group(studies),
        plan_group(studies),
        renting_group(studies),
        _break_even_group(studies),
        energy_group(studies),
        rooms_group(studies),
    )
    return tuple(group for group in groups if group.lines)
