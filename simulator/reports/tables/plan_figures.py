"""The numbers of a plan that stand on top of every page: text, value, and range where one is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isinf

from simulator.planner.records import CapacityPlan, Fleet
from simulator.planner.serving.limits import LatencyRange
from simulator.reports.content.quantities import count_text, money_text, range_text, seconds_text, watts_text
from simulator.reports.tables.plan import device_word, setup_text


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFigure:
    """One number: ``key`` for programs, its text for people, the range of the 80 % interval as text or nothing."""

    key: str
    label: str
    value: float | None
    text: str
    interval: str = ""


def _range(low: float, high: float, *, text: Callable[[float], str]) -> str:
    # Both ends may be the same: whole servers, for one, hide small errors.
    return text(low) if low == high else range_text((low, high), text)


def _cost(fleet: Fleet) -> tuple[PlanFigure, ...]:
    """Money; its range is that of the devices, because the price per device is given."""
    cost, share = fleet.cost, (fleet.devices_low / fleet.devices, fleet.devices_high / fleet.devices)

    def money(value: float) -> str:
        return money_text(value, cost.currency)

    def figure(key: str, label: str, value: float | None) -> PlanFigure:
        spread = "" if value is None else _range(share[0] * value, share[1] * value, text=money)
        return PlanFigure(key=key, label=label, value=value, text=money_text(value, cost.currency), interval=spread)

    return (
        figure("per_month", "Rent per month", cost.per_month),
        figure("per_million_output_tokens", "Per 1M tokens out", cost.per_million_output_tokens),
    )


def plan_figures(plan: CapacityPlan, *, ranges: LatencyRange | None = None) -> tuple[PlanFigure, ...]:
    """Devices, money, power and latencies of the chosen fleet; latencies at the peak with the spares down.

    ranges : intervals of the latencies, where they were worked out
    """
    fleet = plan.best
    devices = PlanFigure(
        key="devices",
        label=device_word(fleet),
        value=float(fleet.devices),
        text=count_text(fleet.devices),
        interval=_range(fleet.devices_low, fleet.devices_high, text=count_text),
    )
    share = (fleet.devices_low / fleet.devices, fleet.devices_high / fleet.devices)
    power = PlanFigure(
        key="power_typical_w",
        label="Power",
        value=fleet.typical_w,
        text=watts_text(fleet.typical_w),
        interval=_range(share[0] * fleet.typical_w, share[1] * fleet.typical_w, text=watts_text),
    )
    return (
        devices,
        *_cost(fleet),
        power,
        _latency("ttft_p95_s", "TTFT p95", fleet.degraded.ttft_p95_s, ranges.ttft_p95_s if ranges else None),
        _latency("tpot_p95_s", "TPOT p95", fleet.degraded.tpot_p95_s, ranges.tpot_p95_s if ranges else None),
    )


def _latency(key: str, label: str, value_s: float, ends_s: tuple[float, float] | None) -> PlanFigure:
    spread = _range(*ends_s, text=_limited) if ends_s else ""
    return PlanFigure(key=key, label=label, value=value_s, text=seconds_text(value_s), interval=spread)


def _limited(value_s: float) -> str:
    """A latency; where this fleet cannot keep up there is none."""
    return "overload" if isinf(value_s) else seconds_text(value_s)


def plan_headline(plan: CapacityPlan) -> str:
    """``296 GPUs: 295 replicas of 1 mi325x (TP1) and 1 spare``."""
    fleet = plan.best
    word = device_word(fleet)
    word = word.removesuffix("s") if fleet.devices == 1 else word
    pool, role = fleet.prefill, "" if fleet.prefill is None else " for decode"
    parts = [f"{count_text(fleet.replicas)} × {fleet.replica.devices} {fleet.hardware} ({setup_text(fleet)}){role}"]
    if pool is not None:
        prompts = f"{count_text(pool.replicas)} × {pool.replica.devices} {fleet.hardware} ({pool.label}) for prefill"
        parts.insert(0, prompts)
    if fleet.spares:
        spares = count_text(fleet.spares) if pool is None else f"{pool.spares} and {fleet.spares}"
        parts.append(f"{spares} spare")
    if fleet.idle_devices:
        parts.append(f"{count_text(fleet.idle_devices)} idle in whole servers")
    return f"{count_text(fleet.devices)} {word} = {' + '.join(parts)}"
