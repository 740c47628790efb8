"""A document of the product as a compact table of figures: numbers, flags and short names, never sentences or dates."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Value = int | float | bool | str | None | list[Any]
Table = dict[str, dict[str, Value]]
"""Path of an object -> its figures by name."""

LONGEST_TEXT = 4
"""Words of a text that still is a name."""
LONGEST_LIST = 8
"""Values that are kept one by one; of more there is a digest."""
LARGEST_RECORDS = 240
"""Figures of a list of records up to which all of them are kept."""
KEPT_RECORDS = 3
"""Records of a larger list that are kept whole."""
MOST_NAMES = 8
"""Different names in a column whose occurrences are counted one by one."""

_FREE_TEXT = frozenset(
    (
        *("answer", "assumptions", "basis", "caption", "command", "created", "date", "explanation", "hint"),
        *("input_sha256", "limit_detail", "message", "note", "notes", "offer", "reason", "remark", "roofcast_version"),
        *("schema_version", "source", "sources", "subtitle", "text", "title", "url", "version", "warnings"),
    )
)
_NO_NAME = re.compile(
    r"^today$"  # a date, or the word for it
    r"|\d{4}-\d{2}"  # a date, or its month
    r"|\d+\.\d+\.\d+"  # a version
    r"|^[0-9a-f]{16,}$"  # a hash
    r"|\.(csv|jsonl?|ya?ml|md|html|pdf|xlsx)\b"  # a file
    r"|[a-z]{3}: |[.;]$"  # part of a sentence
)
_NATURAL_KEYS = (
    *(("key",), ("id",), ("hardware", "setup"), ("name",)),
    *(("objective",), ("metric", "percentile"), ("flag",)),
)


def is_name(text: str) -> bool:
    """Whether ``text`` is a code, name or label rather than a sentence, date, version, hash or path."""
    return len(text.split()) <= LONGEST_TEXT and _NO_NAME.search(text) is None


def table_of(document: Mapping[str, Any]) -> Table:
    """All figures of a JSON document."""
    table: Table = {}
    _add_object(table, "", document)
    return {path: figures for path, figures in table.items() if figures}


def _add_object(table: Table, path: str, node: Mapping[str, Any]) -> None:
    if path in table:
        raise ValueError(f"two objects are called {path}")
    figures = table.setdefault(path, {})
    for name, value in node.items():
        if name.lower() in _FREE_TEXT:
            continue
        below = f"{path}.{name}" if path else name
        if isinstance(value, Mapping):
            if value:
                _add_object(table, below, value)
            else:
                figures[f"{name}#length"] = 0
        elif isinstance(value, list | tuple):
            if name == "rows" and "columns" in node:
                value = _named_rows(value, columns=node["columns"])
            _add_list(table, below, figures, name, value)
        elif not isinstance(value, str) or is_name(value):
            figures[name] = value


def _add_list(table: Table, path: str, figures: dict[str, Value], name: str, items: Sequence[Any]) -> None:
    if items and all(isinstance(item, Mapping) for item in items):
        _add_records(table, path, items)
    elif items and all(isinstance(item, list | tuple) for item in items):
        _add_records(table, path, [{str(place): part for place, part in enumerate(item)} for item in items])
    elif all(isinstance(item, str) for item in items):
        figures[f"{name}#length"] = len(items)
        if 0 < len(items) <= LONGEST_LIST and all(map(is_name, items)):
            figures[name] = list(items)
    elif len(items) <= LONGEST_LIST:
        figures[name] = list(items)
    else:
        figures.update({f"{name}#{part}": value for part, value in _digest(items).items()})


def _digest(items: Sequence[Any]) -> dict[str, Value]:
    """Length, ends, sum and a sum that depends on the order of a long list of numbers."""
    numbers = [float(item) for item in items if isinstance(item, int | float)]
    turned = sum(number * (place + 1) / len(items) for place, number in enumerate(numbers))
    return {"length": len(items), "first": items[0], "last": items[-1], "sum": sum(numbers), "turned": turned}


def _add_records(table: Table, path: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Each record under its label; of a large list the first ones and a digest by column of the others."""
    records = [record for record in records if record.get("key") not in _FREE_TEXT]
    parts: list[Table] = []
    for label, record in zip(_labels(records), records, strict=True):
        part: Table = {}
        _add_object(part, label, record)
        parts.append(part)
    size = sum(len(figures) for part in parts for figures in part.values())
    is_text = any("blocks" in record or "type" in record for record in records)
    kept = len(parts) if is_text or size <= LARGEST_RECORDS else KEPT_RECORDS
    table[f"{path}#"] = {"length": len(parts)}
    for part in parts[:kept]:
        table.update({f"{path}[{label}": figures for label, figures in _bracketed(part).items()})
    rest = parts[kept:]
    if rest:
        table[f"{path}#others"] = _column_digests(rest)


def _bracketed(part: Table) -> Table:
    """``label.inner`` as ``label].inner``; the label is the first path of a record's table."""
    label = next(iter(part))
    return {f"{label}]{path.removeprefix(label)}": figures for path, figures in part.items()}


def _column_digests(parts: Sequence[Table]) -> dict[str, Value]:
    columns: dict[str, list[Value]] = {}
    for part in parts:
        label = next(iter(part))
        for path, figures in part.items():
            inner = path.removeprefix(label).lstrip(".")
            for name, value in figures.items():
                columns.setdefault(f"{inner}.{name}".lstrip("."), []).append(value)
    digests: dict[str, Value] = {}
    for name, values in columns.items():
        flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
        texts = Counter(str(item) for item in flat if isinstance(item, str | bool))
        numbers = [float(item) for item in flat if isinstance(item, int | float) and not isinstance(item, bool)]
        if numbers:
            turned = sum(number * (place + 1) / len(numbers) for place, number in enumerate(numbers))
            digests[name] = [len(numbers), sum(numbers), turned]
        if texts:
            counted = {f"{name}={text}": count for text, count in sorted(texts.items())}
            digests.update(counted if len(counted) <= MOST_NAMES else {f"{name}#different": len(counted)})
    return digests


def _labels(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the records of a list are called: by a natural key where they have one, else by their place."""
    if all("type" in record for record in records):
        return _block_labels(records)
    for names in _NATURAL_KEYS:
        labels = [_joined(record, names) for record in records]
        found = [label for label in labels if label is not None]
        if len(set(found)) == len(records):
            return found
    return [str(place) for place in range(len(records))]


def _joined(record: Mapping[str, Any], names: Sequence[str]) -> str | None:
    parts = [record.get(name) for name in names]
    if any(isinstance(part, bool) or not isinstance(part, str | int | float) for part in parts):
        return None
    text = " ".join(str(part) for part in parts)
    return text if text and is_name(text) else None


def _block_labels(blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Blocks of a report: type and key, numbered among their like where that says too little."""
    seen: Counter[str] = Counter()
    labels = []
    for block in blocks:
        label = " ".join(str(part) for part in (block["type"], block.get("key")) if part)
        seen[label] += 1
        labels.append(label if seen[label] == 1 else f"{label} {seen[label]}")
    return labels


def _named_rows(rows: Sequence[Any], *, columns: Sequence[Any]) -> list[Mapping[str, Any]]:
    """The rows of a report's table as records of cells by column, named by their first cell."""
    titles = [str(column.get("title") if isinstance(column, Mapping) else column) for column in columns]
    records: list[Mapping[str, Any]] = []
    for row in rows:
        cells = row.get("cells", ()) if isinstance(row, Mapping) else row
        values = [cell.get("value") if isinstance(cell, Mapping) else cell for cell in cells]
        record = dict(zip(titles, values, strict=False))
        if values and isinstance(values[0], str):
            record = {"name": values[0], **{title: record[title] for title in titles[1 : len(values)]}}
        records.append(record)
    return records
