"""Files and plain data become specs here, and every refusal is one line that says where, what and what else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from simulator.errors import FileError, ProfileError, RoofcastError
from simulator.specs.base import Spec
from simulator.specs.parsing import MalformedError, parse_json, parse_yaml
from simulator.specs.refusals import refused
from simulator.units import GIGA, MEGA

SpecT = TypeVar("SpecT", bound=Spec)

LARGEST_FILE_BYTES = int(GIGA)
"""A week of a large service's requests has some hundred megabytes; a device that never ends stops here."""


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read one YAML mapping.

    Raises
    ------
    FileError
        The file cannot be read.
    ProfileError
        It is not YAML, a key occurs twice, or its top level is not a mapping; names file, line and reason.
    """
    return yaml_mapping(_text(path), where=path)


def yaml_mapping(text: str, *, where: str | Path) -> dict[str, Any]:
    """One YAML mapping from text that is here already; ``where`` names it in refusals, which are `read_yaml`'s."""
    try:
        data = parse_yaml(text)
    except MalformedError as error:
        raise ProfileError(f"{error.place(where)}: not valid YAML: {error.reason}", code="invalid_profile") from None
    return _mapping(data, path=where, kind="YAML")


def read_json(path: str | Path) -> dict[str, Any]:
    """Read one JSON object; errors as in `read_yaml`."""
    text = _text(path)
    try:
        data = parse_json(text)
    except MalformedError as error:
        raise ProfileError(f"{error.place(path)}: not valid JSON: {error.reason}", code="invalid_profile") from None
    return _mapping(data, path=path, kind="JSON")


def _text(path: str | Path) -> str:
    try:
        return read_text(path)
    except MalformedError as error:
        raise ProfileError(f"{path}: {error}", code="invalid_profile") from None


def read_text(path: str | Path, *, field: str = "") -> str:
    """A file of at most a gigabyte as text.

    Raises
    ------
    FileError
        It cannot be read or is larger; names ``field``.
    MalformedError
        It is not UTF-8.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"{path}: cannot be read: {reason}", field=field) from None
    if len(content) > LARGEST_FILE_BYTES:
        raise FileError(f"{path}: larger than {LARGEST_FILE_BYTES / MEGA:,.0f} MB", field=field)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MalformedError(f"not UTF-8 text (byte {error.start})") from None


def _mapping(data: object, *, path: str | Path, kind: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        found = "nothing" if data is None else f"a {type(data).__name__}"
        message = f"{path}, line 1: {kind} must hold a mapping of fields, found {found}"
        raise ProfileError(message, code="invalid_profile")
    return data


def validate(spec_class: type[SpecT], data: Mapping[str, object], *, where: str, profile: bool = False) -> SpecT:
    """Turn plain data into a spec, or refuse with one line.

    ``where`` names the file or scenario in the message. ``profile=True`` makes it a ProfileError (exit code 4),
    otherwise a RoofcastError (exit code 2) with code ``invalid_input``.
    """
    try:
        return spec_class.model_validate(data)
    except ValidationError as error:
        field, message, hint = refused(spec_class, error)
        if where:
            message += f" in {where}"
    if profile:
        raise ProfileError(message, field=field, code="invalid_profile", hint=hint)
    raise RoofcastError(message, field=field, hint=hint)
