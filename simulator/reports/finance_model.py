"""The arithmetic of owning as formulas over named inputs, with the values that Python has for the plan."""

from __future__ import annotations

from simulator.reports.finance_cells import UNPRICED, Form, Group, line, priced
from simulator.reports.finance_running import energy_group, plan_group, renting_group, rooms_group
from simulator.reports.studies import Studies
from simulator.units import KILO


def _fleet_group(studies: Studies) -> Group:
    fleet = studies.plan.best
    per_server = "IF(devices_per_server>0,{},{})"
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
    bought = "capex_servers*(1+network_fraction+storage_fraction+spare_parts_fraction)"
    formulas = (
        ("capex_servers", "devices*purchase_price"),
        ("capex_network", "capex_servers*network_fraction"),
        ("capex_storage", "capex_servers*storage_fraction"),
        ("capex_spare_parts", "capex_servers*spare_parts_fraction"),
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
        ("opex_electricity", "typical_kw*pue_ratio*8760*power_per_kwh"),
        ("opex_colocation", "nameplate_kw*colocation_per_kw*12"),
        ("opex_support", "capex_servers*support_fraction"),
        ("opex_licences", "devices*licence_per_device"),
        ("opex_staff", "servers/servers_per_fte*staff_per_fte"),
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


def _owning_group(studies: Studies) -> Group:
    own, tokens, years = studies.cost.owning, studies.cost.tokens, studies.ownership.depreciation_years.value
    rate = studies.ownership.discount_rate.value
    factor = (1 - (1 + rate) ** -years) / rate if rate else years
    present = "capex_total+opex_total*annuity_factor-residual_value*(1+discount_rate)^-depreciation_years"
    annuity = "IF(discount_rate=0,depreciation_years,(1-(1+discount_rate)^-depreciation_years)/discount_rate)"
    output = "owning_annual*(1-prompt_share)/output_millions"
    return Group(
        title="Owning: what it comes to",
        lines=(
            line("annuity_factor", "annuity factor [years]", annuity, factor, Form.FINE),
            line(
                "input_millions",
                "million input tokens a year",
                "served_rate*3600*8760*isl_tokens/1000000",
                tokens.input_millions,
                Form.NUMBER,
            ),
            line(
                "output_millions",
                "million output tokens a year",
                "served_rate*3600*8760*osl_tokens/1000000",
                tokens.output_millions,
                Form.NUMBER,
            ),
            priced("residual_value", "residual", "capex_servers*residual_fraction", own.residual if own else None),
            priced(
                "depreciation_per_year",
                "depreciation a year",
                "(capex_total-residual_value)/depreciation_years",
                own.depreciation_per_year if own else None,
            ),
            priced(
                "owning_total",
                "total over the years",
                "capex_total+depreciation_years*opex_total-residual_value",
                own.total if own else None,
            ),
            priced("owning_present_value", "present value", present, own.present_value if own else None),
            priced(
                "owning_annual",
                "equivalent annual cost",
                "owning_present_value/annuity_factor",
                own.annual if own else None,
            ),
            priced(
                "owning_per_device_hour",
                "an accelerator-hour",
                "owning_annual/(devices*8760)",
                own.per_device_hour if own else None,
                Form.FINE,
            ),
            priced(
                "owning_per_million_input",
                "a million input tokens",
                "owning_annual*prompt_share/input_millions",
                own.per_million_input_tokens if own else None,
                Form.FINE,
            ),
            priced(
                "owning_per_million_output",
                "a million output tokens",
                output,
                own.per_million_output_tokens if own else None,
                Form.FINE,
            ),
        ),
    )


def groups_of(studies: Studies) -> tuple[Group, ...]:
    """Every computed line, in an order in which names are defined before they are used."""
    return (
        _fleet_group(studies),
        _capital_group(studies),
        _operation_group(studies),
        _owning_group(studies),
        plan_group(studies),
        renting_group(studies),
        energy_group(studies),
        rooms_group(studies),
    )
