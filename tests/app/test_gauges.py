"""Gauges: the bound always stands at the same place, and bar and colour say what the numbers say."""

from __future__ import annotations

import math
import re

import pytest
from streamlit.testing.v1 import AppTest

from app.gauges import Gauge, odds

_SCRIPT = """
import math
from app.gauges import Gauge, gauge
gauge("TTFT p95", {shown!r})
"""


def drawn(shown: Gauge) -> dict[str, float]:
    """Places of bar, interval and bound in percent of the width."""
    page = AppTest.from_string(_SCRIPT.format(shown=shown).replace("inf", "math.inf")).run()
    assert not page.exception
    body = page.get("html")[0].proto.body
    found = {
        name: re.search(rf'gauge-{name}" style="([^"]+)"', body).group(1).replace("%", "")  # type: ignore[union-attr]
        for name in ("to", "range", "bound")
    }
    places = {
        f"{name} {part.split(':')[0]}": float(part.split(":")[1]) for name in found for part in found[name].split(";")
    }
    return places | {"now": float(re.search('valuenow="([0-9.]+)"', body).group(1))}  # type: ignore[union-attr]


@pytest.mark.parametrize("bound_s", [0.01, 1.0, 600.0])
@pytest.mark.parametrize("share", [0.1, 0.9, 1.0, 1.2])
def test_a_bar_reaches_the_bound_exactly_where_the_value_does(bound_s: float, share: float) -> None:
    value = share * bound_s
    found = drawn(Gauge(bound_s=bound_s, value_s=value, ends_s=(0.9 * value, 1.1 * value), chance=0.9))
    assert found["to width"] / found["bound left"] == pytest.approx(share, abs=0.002)
    assert found["range left"] < found["to width"] < found["range left"] + found["range width"]
    assert found["now"] == pytest.approx(found["to width"], abs=0.5)


def test_what_has_no_end_stays_within_its_track() -> None:
    found = drawn(Gauge(bound_s=1.0, value_s=math.inf, ends_s=(2.0, math.inf), chance=0.0))
    assert found["to width"] == 100
    assert found["range left"] <= 100


def test_the_colour_is_that_of_the_odds() -> None:
    assert [odds(chance) for chance in (0.8, 0.79, 0.5, 0.49)] == ["green", "orange", "orange", "red"]
