"""Every topic, by group, and the page of one: formula, worked example, published figures, what it leaves out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from pkgutil import resolve_name

from simulator.errors import FileError, Option, RoofcastError, did_you_mean, ignored_option, no_effect
from simulator.explain.topic import Equation, Example, Topic
from simulator.phases.memory import memory_plan
from simulator.published import catalogue as published
from simulator.published.figures import ComparedFigure
from simulator.records import dataclass
from simulator.reports.charts.chart import Chart
from simulator.reports.content.document import Block, Bullets, Figure, Paragraph, Section, Tone, Value, table
from simulator.reports.content.quantities import bytes_text
from simulator.specs.base import read_yaml, validate

FILE = Path(__file__).with_name("topics.yaml")
TOPICS: tuple[Topic, ...] = tuple(
    validate(Topic, {"key": key, "group": group, **given}, where=f"{FILE}: {key}")
    for group, topics in read_yaml(FILE).items()
    for key, given in topics.items()
)
NEAREST = 4
"""Topics named where one does not apply."""

RECIPES, SHORT_RECIPE = 4, 160
"""Recipes shown on a page, of at most so many letters; `roofcast published` prints all."""

_CITED = re.compile(r"^\[([A-Z][A-Za-z]+\d{4}[a-z]?)\] (.*)$", re.MULTILINE)


def topic_named(name: str) -> Topic:
    """The topic of that key or title, in any case, or the only one whose title or question speaks of it.

    Raises RoofcastError: there is none, or several; the nearest are named.
    """
    wanted = _plain(name)
    found = next((topic for topic in TOPICS if wanted in (_plain(topic.key), _plain(topic.title))), None)
    if found is not None:
        return found
    said = {topic.key: _plain(f"{topic.key} {topic.title} {topic.question}") for topic in TOPICS}
    within = [key for key, text in said.items() if wanted and wanted in text]
    if len(within) == 1:
        return topic_named(within[0])
    near = f"about it: {', '.join(within[:5])}" if within else did_you_mean(name, said)
    raise RoofcastError(
        f"no topic {name!r}; `roofcast explain` lists them", field="TOPIC", code="unknown_topic", hint=near
    )


def worked_blocks(topic: Topic, example: Example) -> tuple[Block, ...]:
    """The topic, worked with an example."""
    made: tuple[Block, ...] = resolve_name(f"simulator.explain.{topic.worked}")(example)
    return made


def _plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A topic explained with an example."""

    topic: Topic
    example: Example
    sections: tuple[Section, ...]
    figures: tuple[ComparedFigure, ...]

    @property
    def chart(self) -> Chart:
        """Chart of the worked example, or of the published figures."""
        blocks = [block for section in self.sections for block in section.blocks]
        charts = [block.chart for block in blocks if isinstance(block, Figure)]
        return charts[0] if charts else published.published_chart(self.figures)


def page(topic: Topic, example: Example) -> Page:
    """The page of a topic. Raises RoofcastError: the topic says nothing of the example."""
    reason = topic.why_not(example)
    if reason:
        message = f"{topic.key} has nothing to say: {reason}"
        raise no_effect(message, field=Option("model"), hint=_otherwise(topic, example))
    if example.tpot_s is not None and not topic.takes_tpot:
        takes = ", ".join(item.key for item in TOPICS if item.takes_tpot)
        raise ignored_option(f"has no effect on {topic.key}", field=Option("tpot"), hint=f"for {takes}")
    figures = _compared(topic)
    equations, worked = topic.stated, f"{example.model.name} on {example.hardware.name}"
    example_blocks = (*_limits(example), *worked_blocks(topic, example))
    compared = Section(key="published", title="Published beside predicted", blocks=_published(figures))
    found = (
        Section(key="topic", title=topic.title, blocks=(Paragraph(text=topic.question, tone=Tone.LEAD),)),
        Section(key="formula", title="Formula", blocks=_formula(topic, equations)),
        Section(key="worked", title=f"Worked: {worked}", blocks=example_blocks),
        *([compared] if figures else []),
        Section(key="around", title="What it leaves out", blocks=_around(topic, equations)),
    )
    return Page(topic=topic, example=example, sections=found, figures=figures)


def _otherwise(topic: Topic, example: Example) -> str:
    """A model that the topic suits, and topics that say something of the example, those of the same group first."""
    near = sorted(TOPICS, key=lambda other: other.group != topic.group)
    fitting = (other.key for other in near if other is not topic and not other.why_not(example))
    suits = "" if topic.why_not(example.of(topic.suits)) else f"--model {topic.suits}; "
    return f"{suits}of {example.model.name} on {example.hardware.name}: {', '.join(islice(fitting, NEAREST))}"


def _limits(example: Example) -> tuple[Block, ...]:
    """Said of a context beyond the model's last position, and of a model that one device does not hold, whose example
    answers for a device that would."""
    name, texts, plan = example.model.name, [], memory_plan(example.deployed())
    if example.asked_tokens > example.context_tokens:
        texts.append(f"{name} ends at {example.context_tokens:,} tokens: so many, and not {example.asked_tokens:,}.")
    if not plan.fits:
        texts.append(
            f"{name} is {bytes_text(plan.shortfall_bytes)} too large for one {example.hardware.name}: times are of "
            "such a device with more memory, unless a row names a degree. `roofcast step --tp` divides it."
        )
    return tuple(Paragraph(text=text) for text in texts)


def _formula(topic: Topic, equations: Sequence[Equation]) -> tuple[Block, ...]:
    """Each equation with its symbols; lines of the topic's own first."""
    blocks: list[Block] = [Bullets(items=topic.formula)] if topic.formula else []
    for place, equation in enumerate(equations):
        blocks += [Paragraph(text=equation.result, tone=Tone.HEAD), Bullets(items=equation.formula)]
        rows: list[tuple[Value, ...]] = list(equation.symbols)
        blocks.append(table(f"symbols_{place}", "", "symbol: | meaning: | unit:", rows))
    return tuple(blocks)


def _compared(topic: Topic) -> tuple[ComparedFigure, ...]:
    return tuple(
        ComparedFigure(figure=figure, predicted=figure.predict())
        for figure in published.published_figures()
        if figure.name.startswith(topic.published or ("\0",))
    )


def _published(figures: Sequence[ComparedFigure]) -> tuple[Block, ...]:
    words = ("figure", "unit", "verdict")
    heads = " | ".join(f"{name}:" if name in words else name for name in published.PUBLISHED_COLUMNS)
    sources = dict.fromkeys(item.figure.source for item in figures)
    asked = dict.fromkeys(str(item.figure.asked_by) for item in figures if item.figure.asked_by.field)
    short = [text for text in asked if len(text) <= SHORT_RECIPE][:RECIPES] or list(asked)[:1]
    whole = dict.fromkeys(
        f"roofcast published --topic {item.figure.topic}" for item in figures if str(item.figure.asked_by) not in short
    )
    reasons = dict.fromkeys(reason for reason in published.explained(figures).values() if reason)
    return (
        table("published", "", heads, published.published_rows(figures)),
        *([Bullets(items=tuple(f"why off: {reason}" for reason in reasons))] if reasons else []),
        Bullets(items=tuple(f"source: {source}" for source in sources)),
        Bullets(items=(*(f"recipe: {text}" for text in short), *(f"recipe of each: {text}" for text in whole))),
    )


def _around(topic: Topic, equations: Sequence[Equation]) -> tuple[Block, ...]:
    """Ranges of validity, what is left out, sources and where to ask further."""
    keys = dict.fromkeys((*(key for equation in equations for key in equation.references), *topic.references))
    said = dict.fromkeys(filter(None, (topic.leaves_out, *(equation.validity for equation in equations))))
    asked = tuple(f"ask further: {command}" for command in topic.commands)
    return (
        Bullets(items=tuple(said) or ("Nothing beyond the assumptions above.",)),
        Bullets(items=(*(f"source: {citation(key)}" for key in keys), *asked)),
    )


def citation(key: str) -> str:
    """The entry of REFERENCES.md with its key."""
    return f"[{key}] {_references()[key]}"


@lru_cache(maxsize=1)
def _references() -> dict[str, str]:
    package = Path(__file__).resolve().parents[1]
    for place in (package / "_data", package.parent):
        file = place / "REFERENCES.md"
        if file.is_file():
            return dict(_CITED.findall(file.read_text("utf-8")))
    raise FileError(f"REFERENCES.md is missing next to {package}", hint="reinstall roofcast")


def topics_section() -> tuple[Section, ...]:
    """All topics by group, one line each."""
    groups: dict[str, list[tuple[Value, ...]]] = {}
    for topic in TOPICS:
        groups.setdefault(topic.group, []).append((topic.key, topic.question))
    return tuple(
        Section(key=group, title=group, blocks=(table(group, "", "topic: | answers:", rows),))
        for group, rows in groups.items()
    )
