"""Topics of the field, explained with the user's model and accelerator: ``roofcast explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.errors import MissingPackageError, Option, RoofcastError, missing_field
from simulator.explain.catalogue import Page, page, topic_named, topics_section
from simulator.explain.topic import Example
from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Answer, Json, picked
from simulator.reports.formats.json_document import section_object
from simulator.reports.formats.text import sections_text
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.plan_values import EXPLAINED_BATCH, HARDWARE, STEP_CONTEXT_TOKENS, given_duration_s

if TYPE_CHECKING:
    from simulator.reports.charts.chart import Chart

CURRENCY = "USD"
PLOT = Option("plot")


class TopicAnswer(Answer):
    """A topic, or all of them."""

    __slots__ = ()

    def picture(self, kind: str) -> bytes:
        """The chart as a file: "html", a page of its own, "svg" or "png".

        Raises RoofcastError: of another kind, or a package that draws it is missing.
        """
        chart = self.chart()
        try:
            match kind:
                case "html":
                    from simulator.reports.charts.plotly_figure import figures_page

                    return figures_page([chart], title=chart.title).encode("utf-8")
                case "svg":
                    from simulator.reports.charts.static_svg import static_svg

                    return static_svg(chart).encode("utf-8")
                case "png":
                    from simulator.reports.charts.static_svg import static_svg
                    from simulator.reports.formats.pdf import png_of

                    return png_of(static_svg(chart))
        except ModuleNotFoundError as error:
            extra = "app" if kind == "html" else "report"
            hint = f"install the extra: pip install '.[{extra}]'"
            raise MissingPackageError(f"needs {error.name}", field=PLOT, hint=hint) from None
        raise RoofcastError(f"{kind!r} is no kind of picture; allowed: html, svg, png", field=PLOT)


@dataclass(frozen=True, slots=True)
class TopicsAnswer(TopicAnswer):
    """The topics by group."""

    def to_dict(self) -> Json:
        """The document of ``roofcast explain --json``."""
        return {"schema_version": SCHEMA_VERSION, "topics": [section_object(section) for section in topics_section()]}

    def to_text(self) -> str:
        """What ``roofcast explain`` prints."""
        return sections_text(topics_section(), currency=CURRENCY)

    def chart(self) -> Chart:
        """There is none. Raises RoofcastError: always: a topic has a chart, the list of them none."""
        raise missing_field("needs a topic", field=PLOT, hint="roofcast explain roofline")


@dataclass(frozen=True, slots=True)
class ExplainAnswer(TopicAnswer):
    """One topic with its example."""

    page: Page

    def to_dict(self) -> Json:
        """The document of ``roofcast explain TOPIC --json``."""
        found, example = self.page, self.page.example
        return {
            "schema_version": SCHEMA_VERSION,
            **picked(found.topic, "topic=key", "group", "title"),
            **picked(example, "model=model.name", "hardware=hardware.name", "batch=batch_size", "context_tokens"),
            "published": [
                {
                    **picked(item, "name=figure.name", "published=figure.published", "predicted"),
                    **picked(item, "unit=figure.unit", "error", "source=figure.source"),
                }
                for item in found.figures
            ],
            "sections": [section_object(section) for section in found.sections],
        }

    def to_text(self) -> str:
        """What ``roofcast explain TOPIC`` prints."""
        return sections_text(self.page.sections, currency=CURRENCY)

    def chart(self) -> Chart:
        """Chart of the worked example."""
        return self.page.chart


def _measured(tpot: str | float | None) -> float | None:
    try:
        return given_duration_s(tpot)
    except ValueError as error:
        raise RoofcastError(str(error), field=Option("tpot")) from None


def explain(
    topic: str | None = None,
    *,
    model: str | None = None,
    hardware: str = HARDWARE,
    batch_size: int = EXPLAINED_BATCH,
    context_tokens: int = STEP_CONTEXT_TOKENS,
    tpot: str | float | None = None,
    profiles: str | None = None,
) -> TopicsAnswer | ExplainAnswer:
    """A topic of the field with its formula, worked with this model and accelerator; the list of topics without one.

    model : by default one that the topic says something of
    tpot : time per output token that was measured: ``14ms``, or seconds

    Raises RoofcastError: there is no such topic, or it says nothing of this model.
    """
    if topic is None:
        return TopicsAnswer()
    chosen = topic_named(topic)
    loaded = load_model(model or chosen.suits, profiles=profiles)
    example = Example(
        model=loaded,
        hardware=load_hardware(hardware, profiles=profiles),
        batch_size=batch_size,
        context_tokens=min(context_tokens, loaded.max_position_embeddings or context_tokens),
        asked_tokens=context_tokens,
        tpot_s=_measured(tpot),
        profiles=profiles,
    )
    return ExplainAnswer(page(chosen, example))
