"""Files that are there in full or not at all, and specs in the part of YAML that is JSON too."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from simulator.specs.base import Spec

_LINE = 120


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that appears, or changes, only when all of it is there."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content.encode("utf-8") if isinstance(content, str) else content)
        Path(temporary).chmod(path.stat().st_mode if path.exists() else 0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def json_yaml_text(spec: Spec, *, heading: str) -> str:
    """``spec`` under a comment line in the part of YAML that is JSON too, which is read thirty times as fast: for large
    files that no person edits. Branches that fit on a line stand on one."""
    document = spec.model_dump(mode="json", exclude_defaults=True)
    return f"# {heading}\n{_branch(document, indent=0)}\n"


def _branch(value: object, *, indent: int) -> str:
    line = _one_line(value)
    if not isinstance(value, dict | list) or not value or (indent and indent + len(line) <= _LINE):
        return line
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_branch(item, indent=indent + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inner + part for part in parts) + "}"
    return "[\n" + ",\n".join(inner + _branch(item, indent=indent + 1) for item in value) + "]"


def _one_line(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)}: {_one_line(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(_one_line(item) for item in value) + "]"
        case float():
            mantissa, exponent, power = json.dumps(value, allow_nan=False).partition("e")
            # YAML 1.1 takes a number with an exponent but without a point or a sign for text.
            whole = f"{mantissa}.0" if "." not in mantissa else mantissa
            return f"{whole}e{int(power):+03d}" if exponent else whole
        case _:
            return json.dumps(value, ensure_ascii=False)
