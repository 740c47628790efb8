"""Cell formats of the workbook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.reports.content.document import Cell, CellKind, Tone
from simulator.reports.formats.finance_cells import Form

if TYPE_CHECKING:
    from xlsxwriter import Workbook
    from xlsxwriter.format import Format


_FORMS = {CellKind.COUNT: Form.COUNT, CellKind.FRACTION: Form.SHARE, CellKind.SECONDS: Form.FINE}

_WRAPPED: dict[str, object] = {"text_wrap": True, "valign": "top"}


class Styles:
    """Formats by use; a workbook keeps each once."""

    def __init__(self, book: Workbook) -> None:
        self._book = book
        self._numbers: dict[tuple[str, bool, bool], Format] = {}
        self.title = book.add_format({"bold": True, "font_size": 14})
        head: dict[str, object] = {"bold": True, "bg_color": "#E9EDF1", "bottom": 1, "text_wrap": True}
        self.head = book.add_format(head)
        self._number_head = book.add_format({**head, "align": "right"})
        self.strong = book.add_format({"bold": True})
        self.note = book.add_format({"font_color": "#5B6570", "font_size": 9})
        self.remark = book.add_format({"font_color": "#5B6570", "font_size": 9, **_WRAPPED})
        self.warning = book.add_format({"font_color": "#9A4A00", **_WRAPPED})
        self.name = book.add_format({"font_color": "#5B6570", "font_size": 9, "indent": 1})
        self.wrapped = book.add_format(_WRAPPED)
        self.indented = book.add_format({**_WRAPPED, "align": "left", "indent": 1})
        self.lead = book.add_format({"bold": True, **_WRAPPED})
        self.code = book.add_format({"font_name": "Courier New", "font_size": 8})

    def heading(self, *, numeric: bool) -> Format:
        """Of a column, over its numbers or its words."""
        return self._number_head if numeric else self.head

    def tone(self, tone: Tone) -> Format:
        """Of a sentence."""
        return {
            Tone.LEAD: self.lead,
            Tone.HEAD: self.lead,
            Tone.WARNING: self.warning,
            Tone.NOTE: self.remark,
        }.get(tone, self.wrapped)

    def _number(self, form: str, *, total: bool = False, editable: bool = False) -> Format:
        key = (form, total, editable)
        if key not in self._numbers:
            properties: dict[str, object] = {"num_format": form, "bold": total, "valign": "top"}
            if total:
                properties["top"] = 1
            if editable:
                properties |= {"font_color": "#0000FF", "bg_color": "#FFF9E5", "border": 1, "border_color": "#D7DCE1"}
            self._numbers[key] = self._book.add_format(properties)
        return self._numbers[key]

    def input(self, form: Form) -> Format:
        """An editable number, blue by convention."""
        return self._number(form.value, editable=True)

    def number(self, form: Form, *, total: bool = False) -> Format:
        """A computed number."""
        return self._number(form.value, total=total)

    def cell(self, cell: Cell) -> Format:
        """The number format of a report's cell."""
        if cell.kind is CellKind.MONEY:
            digits = 2 if cell.digits is None else cell.digits
            return self._number("#,##0" + ("." + "0" * digits if digits else ""))
        return self._number(_FORMS.get(cell.kind, Form.NUMBER).value)
