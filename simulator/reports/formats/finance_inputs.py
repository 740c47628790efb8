"""The Inputs sheet: every figure that finance may want to change, by name, with its source."""

from __future__ import annotations

from enum import StrEnum

from simulator.planner.money.tco import dynamic_w
from simulator.records import dataclass
from simulator.reports.content.quantities import RENTAL_NAMES
from simulator.reports.studies import Studies
from simulator.reports.words.derivation import terms_text
from simulator.specs.base import is_recalled
from simulator.specs.money.ownership import SourcedFigure

UNPRICED = '"not priced"'


class Form(StrEnum):
    """Number formats of a workbook."""

    COUNT = "#,##0"
    MONEY = "#,##0.00"
    FINE = "#,##0.0000"
    SHARE = "0.0%"
    NUMBER = "#,##0.###"


@dataclass(frozen=True, slots=True, kw_only=True)
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


def _figure(name: str, label: str, figure: SourcedFigure, form: Form, unit: str = "") -> InputLine:
    note = f"{figure.source}; {figure.note}" if figure.note else figure.source
    return InputLine(
        name=name,
        label=label,
        value=figure.value,
        form=form,
        unit=unit,
        source=note,
        date=figure.date,
        assumed=figure.assumed,
    )


def _plan_inputs(studies: Studies) -> list[InputLine]:
    plan, fleet = studies.plan, studies.plan.best
    server, mix = fleet.server, plan.demand.mix
    units = fleet.servers if fleet.servers is not None else fleet.devices
    rows = (
        ("devices", "accelerators in all", fleet.devices, Form.COUNT, ""),
        ("devices_per_server", "accelerators of a server (0: single)", _per_server(studies), Form.COUNT, ""),
        ("typical_w_per_unit", "expected power of a server or device", fleet.typical_w / units, Form.NUMBER, "W"),
        ("maximum_w_per_unit", "nameplate power of a server or device", fleet.maximum_w / units, Form.NUMBER, "W"),
        ("dynamic_w_per_unit", "of it between idle and the planned load", dynamic_w(fleet) / units, Form.NUMBER, "W"),
        ("mean_load", "mean demand over the planned one", plan.demand.mean_load, Form.SHARE, ""),
        ("rack_units_per_server", "height of a server", server.rack_units if server else 0.0, Form.NUMBER, "U"),
        ("served_rate", "mean rate on accelerators", plan.demand.served_mean_rate_per_s, Form.NUMBER, "requests/s"),
        ("isl_tokens", "prompt tokens of a request", mix.isl.mean_tokens, Form.NUMBER, "tokens"),
        ("osl_tokens", "answer tokens of a request", mix.osl.mean_tokens, Form.NUMBER, "tokens"),
        ("prompt_share", "share of time that prompts take", studies.cost.tokens.prompt_share, Form.SHARE, ""),
    )
    return [
        InputLine(
            name=name, label=label, value=float(value), form=form, unit=unit, source="this plan", date=studies.created
        )
        for name, label, value, form, unit in rows
    ]


def _per_server(studies: Studies) -> int:
    fleet = studies.plan.best
    return fleet.server.accelerators_per_server if fleet.server is not None and fleet.servers is not None else 0


def _price_inputs(studies: Studies) -> list[InputLine]:
    prices, cost, fleet = studies.prices, studies.cost, studies.plan.best
    owning = cost.owning
    rows = [
        InputLine(
            name="purchase_price",
            label="purchase price of an accelerator with its server",
            value=owning.offer.per_device or 0.0 if owning else 0.0,
            form=Form.MONEY,
            unit=prices.currency,
            source=f"{owning.offer.provider}: {owning.offer.source}; {owning.offer.note}"
            if owning
            else "enter a quote",
            date=owning.offer.date if owning else "",
            assumed=owning is None or not owning.quoted,
        ),
        InputLine(
            name="plan_rate",
            label=f"device-hour of the plan, {terms_text(fleet.cost.terms)}",
            value=fleet.cost.per_device_hour or 0.0,
            form=Form.FINE,
            unit=prices.currency,
            source=fleet.cost.offer,
            date=prices.date,
        ),
    ]
    rows += [
        InputLine(
            name=f"rate_{item.kind}",
            label=f"device-hour, {RENTAL_NAMES[item.kind]}",
            value=item.per_device_hour,
            form=Form.FINE,
            unit=prices.currency,
            source=f"{item.provider}: {item.source}",
            date=item.date,
        )
        for item in cost.renting
    ]
    for name, label, value, source in (
        ("power_per_kwh", "electricity of a kWh", prices.power_per_kwh, prices.power_source),
        ("pue_ratio", "power usage effectiveness (PUE)", prices.pue, prices.pue_source),
    ):
        rows.append(
            InputLine(name=name, label=label, value=value, form=Form.FINE, unit="", source=source, date=prices.date)
        )
    return rows


def inputs_of(studies: Studies) -> tuple[InputLine, ...]:
    """Every figure that finance may want to change."""
    own, money = studies.ownership, studies.currency
    return (
        *_plan_inputs(studies),
        *_price_inputs(studies),
        _figure("network_fraction", "network, of servers", own.network_fraction, Form.SHARE),
        _figure("storage_fraction", "storage, of servers", own.storage_fraction, Form.SHARE),
        _figure("failures_per_year", "failures of an accelerator a year", own.failures_per_device_year, Form.FINE),
        _figure("replacement_days", "days to replace an accelerator", own.replacement_days, Form.NUMBER, "days"),
        _figure("spare_stock_factor", "safety stock, standard deviations", own.spare_stock_factor, Form.FINE),
        _figure("integration_fraction", "integration, of everything bought", own.integration_fraction, Form.SHARE),
        _figure("support_fraction", "support a year, of servers", own.support_fraction_per_year, Form.SHARE),
        _figure("licence_per_device", "licence of a device a year", own.licence_per_device_year, Form.MONEY, money),
        _figure("colocation_per_kw", "colocation of a kW a month", own.colocation_per_kw_month, Form.MONEY, money),
        _figure("staff_per_fte", "one person a year", own.staff_per_fte_year, Form.MONEY, money),
        _figure("servers_per_fte", "servers one person looks after", own.servers_per_fte, Form.NUMBER),
        _figure("staff_minimum", "people, at least", own.staff_minimum_fte, Form.NUMBER),
        _figure("depreciation_years", "years of depreciation", own.depreciation_years, Form.COUNT, "years"),
        _figure("residual_fraction", "residual, of servers", own.residual_fraction, Form.SHARE),
        _figure("discount_rate", "cost of capital", own.discount_rate, Form.SHARE),
        _figure("cloud_extra_fraction", "cloud extras on the rate", own.cloud_extra_fraction, Form.SHARE),
        _figure("grid_location", "grid", own.grid_location_kg_per_kwh, Form.FINE, "kg CO2e/kWh"),
        _figure("grid_market", "contracts", own.grid_market_kg_per_kwh, Form.FINE, "kg CO2e/kWh"),
        _figure("rack_power_limit", "power of a rack", own.rack_power_limit_w, Form.NUMBER, "W"),
        _figure("rack_units_usable", "height of a rack", own.rack_units_usable, Form.NUMBER, "U"),
        _figure("circuit_volts", "circuit, between lines", own.circuit_volts, Form.NUMBER, "V"),
        _figure("circuit_amperes", "circuit", own.circuit_amperes, Form.NUMBER, "A"),
        _figure("circuit_load_fraction", "continuous load of a circuit", own.circuit_load_fraction, Form.SHARE),
        _figure("feeds_per_rack", "feeds of a rack", own.feeds_per_rack, Form.COUNT),
    )
