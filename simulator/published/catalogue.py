"""Every published figure by topic, what the library says to each, and why the worst are off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from simulator.errors import Option, RoofcastError, did_you_mean
from simulator.published import runs, speculation, structure, techniques, worked_examples
from simulator.published.figures import ComparedFigure, PublishedFigure, rows_of

TABLE = "reasons.csv"
WORST = 3
NEEDS_REASON = 0.1
"""Errors above it have to be explained where they are among the worst of their topic."""


@lru_cache(maxsize=1)
def reasons() -> Mapping[str, str]:
    """Reason by the beginning of a figure's name."""
    return {row["begins_with"]: row["reason"] for row in rows_of(TABLE)}


def reason_of(name: str) -> str | None:
    """The reason with the longest matching beginning, or None."""
    found = [start for start in reasons() if name.startswith(start)]
    return reasons()[max(found, key=len)] if found else None


def worst_names(errors: Sequence[tuple[str, float]]) -> tuple[str, ...]:
    """Names of the WORST largest errors of one topic that need a reason, largest first."""
    ordered = sorted(errors, key=lambda item: -abs(item[1]))[:WORST]
    return tuple(name for name, error in ordered if abs(error) > NEEDS_REASON)


PARTS = (worked_examples, structure, techniques, speculation, runs)


def published_figures() -> list[PublishedFigure]:
    """All figures, those of a topic together, in the order in which topics first occur."""
    found = [figure for part in PARTS for figure in part.figures()]
    topics = list(dict.fromkeys(figure.topic for figure in found))
    return sorted(found, key=lambda figure: topics.index(figure.topic))


def topics() -> tuple[str, ...]:
    """Names of the topics."""
    return tuple(dict.fromkeys(figure.topic for figure in published_figures()))


def compared(topic: str | None = None) -> Iterator[ComparedFigure]:
    """Figures of one topic, or all, beside predictions made now. Raises RoofcastError: no figure has that topic."""
    figures = [figure for figure in published_figures() if topic in (None, figure.topic)]
    if not figures and topic is not None:
        known = topics()
        raise RoofcastError(
            f"no figure is of {topic!r}; allowed: {', '.join(known)}",
            field=Option("topic"),
            hint=did_you_mean(topic, known, otherwise="all of them without it"),
        )
    for figure in figures:
        yield ComparedFigure(figure=figure, predicted=figure.predict())


def predicted(name: str) -> float:
    """What the library says to one figure, in its unit. Raises RoofcastError: no figure has that name."""
    figures = {figure.name: figure for figure in published_figures()}
    if name not in figures:
        raise RoofcastError(f"no figure is called {name!r}", field="name", hint=did_you_mean(name, figures))
    return figures[name].predict()


def explained(figures: Sequence[ComparedFigure]) -> dict[str, str | None]:
    """The worst figures of each topic, and those that a reason names in full; known misses carry their own."""
    found: dict[str, str | None] = {
        item.figure.name: reasons()[item.figure.name] for item in figures if item.figure.name in reasons()
    }
    for topic in dict.fromkeys(item.figure.topic for item in figures):
        errors = [
            (item.figure.name, item.error)
            for item in figures
            if item.figure.topic == topic and not item.figure.is_known_miss
        ]
        found |= {name: reason_of(name) for name in worst_names(errors)}
    return found
