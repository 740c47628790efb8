"""Plain text tables.

One study of a plan as text: a title, sentences and perhaps a table.

The command line that asks a question again (see ``specs.plan_flags``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.specs.question.plan import plan_command as plan_command


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two spaces apart; columns of numbers to the right."""
    lines = [tuple(columns), *(tuple(row) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    right = [all(_is_number(row[index]) for row in rows) for index in range(len(columns))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _is_number(cell: str) -> bool:
    """A number with its sign or currency, or what stands for none or no change."""
    return cell in ("-", "–", "=", "unknown") or cell.lstrip("+-$€£")[:1].isdigit()


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
