"""Figures that others printed beside what the library says: ``roofcast published``."""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING

from simulator.published.catalogue import compared, explained
from simulator.published.figures import ComparedFigure
from simulator.records import dataclass
from simulator.reports.answer import Answer, picked

if TYPE_CHECKING:
    from simulator.reports.answer import Json
    from simulator.reports.charts.chart import Chart

COLUMNS = ("figure", "unit", "published", "predicted", "error", "tolerance")


@dataclass(frozen=True, slots=True)
class PublishedAnswer(Answer):
    """Published figures, each with its prediction, source and recipe."""

    figures: tuple[ComparedFigure, ...]

    def to_dict(self) -> Json:
        """The document of ``roofcast published --json``."""
        from simulator.reports.answer import SCHEMA_VERSION

        return {"schema_version": SCHEMA_VERSION, "figures": self.rows(), "topics": self._topics()}

    def rows(self) -> list[Json]:
        """One row a figure."""
        reasons = explained(self.figures)
        return [
            {
                **picked(item.figure, "name", "topic", "published"),
                **picked(item, "predicted", "unit=figure.unit", "error"),
                **picked(item.figure, "tolerance", "is_fitted", "is_known_miss"),
                "is_off": item.is_off,
                "reason": item.figure.reason or reasons.get(item.figure.name),
                **picked(item.figure, "statement", "source"),
                "recipe": picked(item.figure.asked_by, "commands", "field", "scale")
                | {"field": item.figure.asked_by.field or None},
            }
            for item in self.figures
        ]

    def _topics(self) -> list[Json]:
        names = dict.fromkeys(item.figure.topic for item in self.figures)
        errors = {name: [abs(item.error) for item in self.figures if item.figure.topic == name] for name in names}
        return [
            {"topic": name, "figures": len(found), "mean": fmean(found), "median": median(found)}
            for name, found in errors.items()
        ]

    def to_text(self) -> str:
        """What ``roofcast published`` prints: a table a topic, sources, recipes, and why the worst are off."""
        return "\n".join(self._topic_text(topic) for topic in self._topics())

    def _topic_text(self, topic: Json) -> str:
        from simulator.reports.content.quantities import percent_text
        from simulator.reports.formats.text import text_table

        rows = [row for row in self.rows() if row["topic"] == topic["topic"]]
        cells = [
            (
                row["name"],
                row["unit"],
                f"{row['published']:.4g}",
                f"{row['predicted']:.4g}",
                f"{100 * row['error']:+.1f} %",
                percent_text(row["tolerance"]) + (" OFF" if row["is_off"] else " miss" if row["is_known_miss"] else ""),
            )
            for row in rows
        ]
        head = (
            f"{topic['topic']}: {topic['figures']} figures, "
            f"mean error {percent_text(topic['mean'])}, median {percent_text(topic['median'])}"
        )
        sources = [(row["source"], row["name"]) for row in rows]
        reasons = _listed("why", [(row["reason"], row["name"]) for row in rows if row["reason"]])
        return "\n".join(
            [head, "", text_table(COLUMNS, cells), "", *_listed("source", sources), *reasons, *_recipes(rows), ""]
        )

    def chart(self) -> Chart:
        """Mean errors by topic."""
        from simulator.reports.charts.chart import bars_chart

        found = self._topics()
        names, errors = [topic["topic"] for topic in found], {"error": [100 * topic["mean"] for topic in found]}
        title = "Published figures: mean error by topic"
        return bars_chart("published", title, y="Error [%]", names=names, of=errors)


def _listed(what: str, pairs: list[tuple[str, str]]) -> list[str]:
    """Each text once, with the figures that it is of."""
    of: dict[str, list[str]] = {}
    for text, name in pairs:
        of.setdefault(text, []).append(name)
    return [f"{what}: {text} ({', '.join(names)})" for text, names in of.items()]


def _recipes(rows: list[Json]) -> list[str]:
    lines = ["", "Recipes (the field of their JSON document; of two commands the first over the second):"]
    for row in rows:
        recipe = row["recipe"]
        lines.append(f"  {row['name']}" + (f": {recipe['field']}" if recipe["field"] else ""))
        lines += [f"    {command}" for command in recipe["commands"]]
    return lines


def published(topic: str | None = None) -> PublishedAnswer:
    """Published figures of a topic, or all, predicted now: ``roofcast published``. Raises RoofcastError: none of it."""
    return PublishedAnswer(tuple(compared(topic)))
