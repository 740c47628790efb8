"""A chart as a file says what was asked, what it shows and where that comes from, whatever these contain."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from simulator.reports.charts.chart import Axis, Chart, Series, SeriesKind
from simulator.reports.formats.pdf import picture

CHART = Chart(
    key="load",
    title="Waiting <grows> past 19 requests/s",
    x=Axis(title="Rate"),
    y=Axis(title="TTFT", unit="s"),
    series=(Series(name="p95", kind=SeriesKind.LINE, x=(1.0, 2.0, 3.0), y=(0.1, 0.2, 0.9)),),
    caption="Event simulation & nothing else.",
)


def _texts(question: str) -> tuple[str, float]:
    root = ElementTree.fromstring(picture(CHART, question=question, form="svg"))
    words = " ".join(item.text or "" for item in root.iter("{http://www.w3.org/2000/svg}text"))
    return words, float(root.attrib["height"])


def test_a_picture_says_question_message_and_source() -> None:
    said, _ = _texts("llama-3.1-8b, 8 requests/s")
    for part in (
        "llama-3.1-8b, 8 requests/s",
        "Waiting <grows> past 19 requests/s",
        "Event simulation & nothing else.",
    ):
        assert part in said


def test_a_long_question_makes_room_for_itself() -> None:
    long, tall = _texts("very long " * 60)
    assert long.count("very") == 60
    assert tall > _texts("short")[1]


def test_the_picture_of_pixels_is_the_same_drawing() -> None:
    pytest.importorskip("typst")
    small, tall = (picture(CHART, question=text, form="png") for text in ("short", "very long " * 60))
    heights = [int.from_bytes(data[20:24], "big") for data in (small, tall)]
    assert all(data.startswith(b"\x89PNG") for data in (small, tall))
    assert heights[0] < heights[1]
