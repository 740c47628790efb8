"""The Learn page says of every published figure what `roofcast published` prints."""

from __future__ import annotations

from app.parts.display import COMMAND_LINE
from simulator.explain.catalogue import TOPICS, topic_named
from simulator.published.catalogue import PUBLISHED_COLUMNS, topic_title, topics
from simulator.reports.content.quantities import number_text, percent_text
from tests.app.pages import document_of, headline, opened, tables


def test_a_topic_equals_the_command_line() -> None:
    page = opened("learn", {"topic": "attention"})
    page.session_state[COMMAND_LINE] = True
    page.run()
    document = document_of(page.code[-1].value.removesuffix(" --json"))
    table = tables(page)[0]
    assert list(table.columns.drop("what it is")) == list(PUBLISHED_COLUMNS)
    assert list(table["what it is"]) == [row["statement"] for row in document["figures"]]
    assert list(table["figure"]) == [row["name"] for row in document["figures"]]
    assert list(table["predicted"]) == [number_text(row["predicted"]) for row in document["figures"]]
    assert percent_text(document["topics"][0]["median"]) in headline(page)


def test_every_topic_can_be_chosen_and_every_figure_explains_itself() -> None:
    page = opened("learn", {"topic": "fine-tuning"})
    assert tuple(page.selectbox(key="topic").options) == tuple(map(topic_title, topics()))
    assert page.selectbox(key="topic").value == "Fine-tuning"
    assert not page.warning, "an address may have the short name"
    for name in page.selectbox(key="figure").options:
        page.selectbox(key="figure").set_value(name).run()
        assert not page.exception
        assert any(item.value.startswith(f"**{name}**: ") for item in page.markdown)
        assert any(item.value.startswith("Source: ") for item in page.caption)


def test_a_topic_is_explained_with_the_model_and_accelerator_of_the_page() -> None:
    page = opened("learn", {"learn": "Topics", "explain": "flash-attention", "model": "llama-2-7b"})
    assert tuple(page.selectbox(key="explain").options) == tuple(topic.title for topic in TOPICS)
    assert not page.warning
    assert headline(page) == topic_named("flash-attention").title
    page.session_state[COMMAND_LINE] = True
    page.run()
    document = document_of(page.code[-1].value.removesuffix(" --json"))
    assert document["model"] == "llama-2-7b"
    shown = [list(found.columns) for found in tables(page)]
    printed_tables = [
        block["columns"]
        for section in document["sections"]
        for block in section["blocks"]
        if block["type"] == "table" and block["rows"]
    ]
    # Those with sentences are read, the others sort.
    assert sorted(shown) == sorted(printed_tables)


def test_every_command_below_a_topic_says_what_it_is() -> None:
    page = opened("learn", {"learn": "Topics"})
    labels = [item.label for item in page.expander]
    assert "On the command line" in labels
    assert not [label for label in labels if label.startswith(",")]


def test_a_topic_that_says_nothing_of_the_model_says_so() -> None:
    page = opened("learn", {"learn": "Topics", "explain": "retrieval", "model": "llama-2-7b"})
    assert not page.exception
    assert any("Model bert-base" in item.value for item in page.markdown)
