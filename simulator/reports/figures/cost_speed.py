"""What speed costs: deployments by the time they take per token and the price of a million."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.planner.what_if import WhatIf
from simulator.reports.contract import Json
from simulator.reports.figures.chart import Annotation, Axis, Chart, Series, SeriesKind
from simulator.reports.quantities import money_text, range_text, seconds_text
from simulator.reports.scenario_figures import per_token_ends
from simulator.units import MILLI


def cost_speed_chart(compared: Sequence[tuple[str, WhatIf, Json]]) -> Chart:
    """One point per (name, what-if, contract object): TPOT against price per million output tokens.

    Down and to the left is better; deployments without a known price are left out.
    """
    points = [
        (name, what_if, document, place)
        for place, (name, what_if, document) in enumerate(compared)
        if what_if.cost.per_million_output_tokens is not None and document["tpot_s"] is not None
    ]
    currency = points[0][1].cost.currency if points else ""
    series = tuple(_point(*point) for point in points)
    notes = tuple(Annotation(text=item.name.split(":")[0], x=item.x[0], y=item.y[0]) for item in series)
    return Chart(
        key="cost_speed",
        title="Down and to the left is better" if points else "No price is known, or nothing is generated",
        x=Axis(title="TPOT", unit="ms"),
        y=Axis(title="Price per 1M output tokens", unit=currency),
        series=series,
        annotations=notes,
        caption="Rental list prices, always busy, all of the bill on the output tokens. Whiskers: 80 % intervals.",
    )


def _point(name: str, what_if: WhatIf, document: Json, place: int) -> Series:
    cost = what_if.cost
    price, tpot_s = cost.per_million_output_tokens or 0.0, document["tpot_s"]
    fast_s, slow_s = document["interval"]["tpot_s"]
    cheap, dear = per_token_ends(document, price) or (price, price)
    return Series(
        name=f"{name}: {what_if.scenario.hardware}",
        kind=SeriesKind.SCATTER,
        x=(tpot_s / MILLI,),
        y=(price,),
        x_low=(fast_s / MILLI,),
        x_high=(slow_s / MILLI,),
        low=(cheap,),
        high=(dear,),
        labels=(
            f"{name}: {seconds_text(tpot_s)} per token ({range_text((fast_s, slow_s), seconds_text)}), "
            f"{money_text(price, cost.currency)} per 1M output tokens",
        ),
        color=place,
    )
