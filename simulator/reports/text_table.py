"""Plain text tables."""

from __future__ import annotations

from collections.abc import Sequence


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
