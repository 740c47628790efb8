"""A workbook read and recomputed without a spreadsheet program: named cells, cell references, a few functions."""

from __future__ import annotations

import math
import re
import zipfile
from io import BytesIO
from xml.etree import ElementTree

NS = {"m": "http://schemas.openxmlformats.org/spreadsheetml/2006/main"}
REL = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


def _arguments(text: str, start: int) -> tuple[list[str], int]:
    """Arguments of a call whose parenthesis opens at ``start``, and where it closes."""
    depth, last, found = 0, start + 1, []
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if (depth == 1 and text[place] == ",") or depth == 0:
            found.append(text[last:place])
            last = place + 1
        if depth == 0:
            return found, place
    raise AssertionError(f"unbalanced: {text}")


def _lazy(text: str) -> str:
    """IF(a,b,c) as a conditional expression, so that only the branch taken is computed."""
    match = re.search(r"\bIF\(", text)
    if match is None:
        return text
    (test, yes, no), end = _arguments(text, match.end() - 1)
    return text[: match.start()] + f"(({_lazy(yes)}) if ({_lazy(test)}) else ({_lazy(no)}))" + _lazy(text[end + 1 :])


class Workbook:
    """Cells, formulas and names of an xlsx file; `value` computes a cell from its formula, never from its cache."""

    def __init__(self, data: bytes) -> None:
        archive = zipfile.ZipFile(BytesIO(data))
        book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
        links = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
        targets = {link.get("Id"): link.get("Target") for link in links}
        strings = ElementTree.fromstring(archive.read("xl/sharedStrings.xml"))
        texts = ["".join(node.text or "" for node in item.iter(f"{{{NS['m']}}}t")) for item in strings]
        self.names = {
            item.get("name", ""): (item.text or "").replace("$", "") for item in book.iterfind(".//m:definedName", NS)
        }
        self.formulas: dict[str, str] = {}
        self.cached: dict[str, float | str] = {}
        for sheet in book.iterfind(".//m:sheet", NS):
            root = ElementTree.fromstring(archive.read(f"xl/{targets[sheet.get(REL)]}"))
            for cell in root.iterfind(".//m:c", NS):
                self._read(f"{sheet.get('name')}!{cell.get('r')}", cell, texts)
        self._known: dict[str, float | str] = {}

    def _read(self, place: str, cell: ElementTree.Element, texts: list[str]) -> None:
        formula, value = cell.find("m:f", NS), cell.find("m:v", NS)
        if formula is not None:
            self.formulas[place] = formula.text or ""
        if value is not None and value.text is not None:
            shared = cell.get("t") == "s"
            kind = cell.get("t")
            self.cached[place] = (
                texts[int(value.text)] if shared else value.text if kind == "str" else float(value.text)
            )

    def edit(self, name: str, value: float) -> None:
        """Type a number into a named cell."""
        self.cached[self.names[name]] = value
        self._known.clear()

    def named(self, name: str) -> float | str:
        """Value of a name."""
        return self.value(self.names[name])

    def value(self, place: str) -> float | str:
        """Value of a cell such as ``Cost!B5``."""
        if place not in self._known:
            formula = self.formulas.get(place)
            self._known[place] = self.cached.get(place, 0.0) if formula is None else self._compute(formula, place)
        return self._known[place]

    def _compute(self, formula: str, place: str) -> float | str:
        sheet = place.partition("!")[0]
        text = re.sub(r"(?<![<>=])=(?!=)", "==", formula).replace("^", "**").replace("$", "")
        text = re.sub(r"\b([A-Z]{1,2}\d+):([A-Z]{1,2}\d+)\b", rf'_range("{sheet}", "\1", "\2")', text)
        text = re.sub(r'(?<!["!A-Za-z_])\b([A-Z]{1,2}\d+)\b(?!")', rf'_cell("{sheet}!\1")', text)
        functions = {
            "_cell": self.value,
            "_range": self._range,
            "AND": lambda *tests: all(tests),
            "SUM": lambda cells: sum(cells),
            "MIN": min,
            "MAX": max,
            "INT": math.floor,
            "ROUNDUP": lambda number, digits: math.ceil(number - 1e-12) if digits == 0 else math.nan,
        }
        names = {name: self.named(name) for name in re.findall(r"\b[a-z][a-z0-9_]+\b", text) if name in self.names}
        return eval(_lazy(text), {"__builtins__": {}}, functions | names)  # type: ignore[no-any-return]

    def _range(self, sheet: str, first: str, last: str) -> list[float | str]:
        column = first[0]
        return [self.value(f"{sheet}!{column}{row}") for row in range(int(first[1:]), int(last[1:]) + 1)]
