"""The arithmetic of renting, energy and rooms as formulas over named inputs, with the plan's own values."""

from __future__ import annotations

from simulator.planner.facilities import BTU_PER_HOUR_PER_TON, BTU_PER_HOUR_PER_W
from simulator.reports.figures.money import RENTAL_NAMES
from simulator.reports.finance_cells import UNPRICED, Form, FormulaLine, Group, line
from simulator.reports.studies import Studies


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


def energy_group(studies: Studies) -> Group:
    """Energy and emissions of a year."""
    energy = studies.energy
    return Group(
        title="Energy and carbon",
        lines=(
            line("it_kwh", "machines [kWh a year]", "typical_kw*8760", energy.it_kwh, Form.NUMBER),
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
