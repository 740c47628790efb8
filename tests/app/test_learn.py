"""The Learn page says of every published figure what `roofcast published` prints."""

from __future__ import annotations

from app.display import COMMAND_LINE
from simulator.published.catalogue import topics
from simulator.published.shown import PUBLISHED_COLUMNS
from simulator.reports.content.quantities import number_text, percent_text
from tests.app.pages import document_of, headline, opened


def test_a_topic_equals_the_command_line() -> None:
    page = opened("learn", {"topic": "attention"})
    page.session_state[COMMAND_LINE] = True
    page.run()
    document = document_of(page.code[-1].value.removesuffix(" --json"))
    table = page.dataframe[0].value
    assert list(table.columns) == list(PUBLISHED_COLUMNS)
    assert list(table["figure"]) == [row["name"] for row in document["figures"]]
    assert list(table["predicted"]) == [number_text(row["predicted"]) for row in document["figures"]]
    assert percent_text(document["topics"][0]["median"]) in headline(page)


def test_every_topic_can_be_chosen_and_every_figure_explains_itself() -> None:
    page = opened("learn", {"topic": "fine-tuning"})
    assert tuple(page.selectbox(key="topic").options) == topics()
    for name in page.selectbox(key="figure").options:
        page.selectbox(key="figure").set_value(name).run()
        assert not page.exception
        assert any(item.value.startswith(f"**{name}**: ") for item in page.markdown)
        assert any(item.value.startswith("Source: ") for item in page.caption)
