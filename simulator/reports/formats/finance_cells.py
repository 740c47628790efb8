"""What the arithmetic of a workbook is written in: named inputs, formulas over them, groups of lines."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

UNPRICED = '"not priced"'


class Form(StrEnum):
    """Number formats of a workbook."""

    COUNT = "#,##0"
    MONEY = "#,##0.00"
    FINE = "#,##0.0000"
    SHARE = "0.0%"
    NUMBER = "#,##0.###"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLine:
    """A cell that people may edit, under a name that formulas use."""

    name: str
    label: str
    value: float
    form: Form
    unit: str
    source: str
    date: str
    assumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaLine:
    """A cell that follows from others. ``value`` is what Python has for the plan, None where it is not priced."""

    name: str
    label: str
    formula: str
    value: float | None
    form: Form
    unit: str = ""
    total: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Lines under a heading."""

    title: str
    lines: tuple[FormulaLine, ...]


def line(
    name: str, label: str, formula: str, value: float | None, form: Form = Form.MONEY, *, total: bool = False
) -> FormulaLine:
    """A formula and the plan's own value of it."""
    return FormulaLine(name=name, label=label, formula=formula, value=value, form=form, total=total)


def priced(name: str, label: str, formula: str, value: float | None, form: Form = Form.MONEY) -> FormulaLine:
    """A line of owning, which needs a purchase price."""
    return line(name, label, f"IF(purchase_price>0,{formula},{UNPRICED})", value, form)
