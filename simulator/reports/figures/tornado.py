"""What moves the answer most: one bar per input."""

from __future__ import annotations

from simulator.planner.risk_records import TornadoBar, Uncertainty
from simulator.reports.figures.chart import Axis, Chart, Series, SeriesKind


def tornado_chart(uncertainty: Uncertainty, *, base_devices: int) -> Chart:
    """Devices of the fleet when each input alone moves to its ends; inputs that move only money are left out."""
    bars = [bar for bar in uncertainty.tornado if bar.devices_low != bar.devices_high]
    widest = f"{bars[0].name} moves the fleet most" if bars else "No input moves the number of devices"
    return _chart("tornado", widest, bars, base=float(base_devices), axis=Axis(title="Accelerators"), money=False)


def cost_tornado_chart(uncertainty: Uncertainty, *, base_per_hour: float, currency: str) -> Chart:
    """Cost per hour when each input alone moves to its ends."""
    bars = [bar for bar in uncertainty.tornado if bar.cost_per_hour_low is not None and bar.swing > 0]
    title = f"{bars[0].name} moves the cost most" if bars else "No input moves the cost"
    axis = Axis(title="Cost", unit=f"{currency}/h")
    return _chart("cost_tornado", title, bars, base=base_per_hour, axis=axis, money=True)


def _chart(key: str, title: str, bars: list[TornadoBar], *, base: float, axis: Axis, money: bool) -> Chart:
    low = tuple((bar.cost_per_hour_low or 0.0) if money else float(bar.devices_low) for bar in bars)
    high = tuple((bar.cost_per_hour_high or 0.0) if money else float(bar.devices_high) for bar in bars)
    return Chart(
        key=key,
        title=f"{title[:1].upper()}{title[1:]}",
        x=axis,
        y=Axis(title="", categories=tuple(bar.name for bar in bars)),
        series=(
            Series(
                name="",
                kind=SeriesKind.TORNADO,
                x=tuple(float(place) for place in range(len(bars))),
                y=(base,) * len(bars),
                low=low,
                high=high,
                labels=tuple(f"{bar.low} to {bar.high}" for bar in bars),
            ),
        ),
        caption="Each input alone moves from its low to its high end; the line is the plan.",
    )
