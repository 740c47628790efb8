"""One study of a plan as text: a title, sentences and perhaps a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.reports.text_table import text_table


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySection:
    """``rows`` under ``columns`` follow the sentences in ``lines``, then lines that are laid out already; any may be
    empty.
    """

    title: str
    lines: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    laid_out: tuple[str, ...] = ()


def section_text(section: StudySection) -> list[str]:
    """Lines of plain text."""
    text = ["", section.title, *(f"- {line}" for line in section.lines)]
    if section.rows:
        text += text_table(section.columns, section.rows).splitlines()
    return [*text, *section.laid_out]


def section_markdown(section: StudySection) -> list[str]:
    """Lines of Markdown."""
    text = ["", f"## {section.title}", "", *(f"- {line}" for line in section.lines)]
    if section.rows:
        text += ["", _bar(section.columns), "|" + " --- |" * len(section.columns), *map(_bar, section.rows)]
    if section.laid_out:
        text += ["", "```", *section.laid_out, "```"]
    return text


def _bar(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
