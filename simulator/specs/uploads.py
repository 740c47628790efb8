"""Files that arrive as bytes, from a browser: read by the same strict loaders, never by a path."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from simulator.errors import ProfileError, RoofcastError
from simulator.specs.documents import parse_yaml, validate
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.huggingface.registry import read_config
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.spellings import plain_word
from simulator.units import KILO, MEGA

LARGEST_UPLOAD_BYTES = int(MEGA)
"""Configurations are a few kilobytes; a megabyte is generous and parses at once."""
_DEEPEST = 16
_LONGEST_SCALAR = 2000
"""Bounds of an uploaded YAML: built-in accelerators nest 3 deep, their longest notes have some hundred characters."""
_UNSAFE = re.compile(r"[^a-z0-9.-]+")


def upload_name(filename: str) -> str:
    """A profile name from a file's name: letters, digits, dots and hyphens of its last part, never a path."""
    last = filename.replace("\\", "/").rsplit("/", maxsplit=1)[-1]
    stem = re.sub(r"\.(json|ya?ml)$", "", last, flags=re.IGNORECASE)
    return _UNSAFE.sub("-", plain_word(stem)).strip(".-") or "uploaded"


def model_from_upload(data: bytes, *, filename: str) -> ModelSpec:
    """A model from the bytes of its ``config.json``.

    Raises
    ------
    RoofcastError, ProfileError
        Too large, not UTF-8, not JSON, or not understood in full; names the field.
    """
    text = _text(data, filename=filename)
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise ProfileError(
            f"{filename}, line {error.lineno}: not valid JSON: {error.msg}", field="upload", code="invalid_profile"
        ) from None
    except (RecursionError, ValueError) as error:
        raise ProfileError(f"{filename}: not usable JSON: {error}", field="upload", code="invalid_profile") from None
    return read_config(_mapping(config, filename=filename), name=_model_name(config, filename))


def hardware_from_upload(data: bytes, *, filename: str) -> AcceleratorSpec:
    """An accelerator from the bytes of its YAML profile; errors as in `model_from_upload`."""
    text = _text(data, filename=filename)
    try:
        _check_plain(text, filename=filename)
        fields = parse_yaml(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        reason = getattr(error, "problem", None) or "malformed"
        raise ProfileError(
            f"{filename}{line}: not valid YAML: {reason}", field="upload", code="invalid_profile"
        ) from None
    except (RecursionError, ValueError) as error:
        raise ProfileError(f"{filename}: not usable YAML: {error}", field="upload", code="invalid_profile") from None
    return validate(AcceleratorSpec, _mapping(fields, filename=filename), where=filename, profile=True)


def _check_plain(text: str, *, filename: str) -> None:
    """Refuse what no profile needs and what takes a reader minutes or more memory than there is: aliases to aliases,
    which stand for any number of values, deep nesting, and endless scalars."""
    depth = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        odd, hint = "", ""
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            odd, hint = f"an anchor or alias ({anchor})", "write the value out where it is used"
        elif depth > _DEEPEST:
            odd = f"nesting of more than {_DEEPEST} levels"
        elif isinstance(event, yaml.ScalarEvent) and len(event.value) > _LONGEST_SCALAR:
            odd = f"a value of more than {_LONGEST_SCALAR} characters"
        if odd:
            line = f", line {event.start_mark.line + 1}" if event.start_mark else ""
            message = f"{filename}{line}: {odd} is not taken in an upload"
            raise ProfileError(message, field="upload", code="invalid_profile", hint=hint)


def _text(data: bytes, *, filename: str) -> str:
    if len(data) > LARGEST_UPLOAD_BYTES:
        raise RoofcastError(
            f"{filename} has {len(data) / KILO:.0f} kB; allowed: {LARGEST_UPLOAD_BYTES / KILO:.0f} kB",
            field="upload",
            code="too_large",
            hint="upload the configuration, not the weights",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProfileError(
            f"{filename}: not UTF-8 text (byte {error.start})", field="upload", code="invalid_profile"
        ) from None


def _mapping(data: object, *, filename: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        found = "nothing" if data is None else f"a {type(data).__name__}"
        raise ProfileError(
            f"{filename} must hold a mapping of fields, found {found}", field="upload", code="invalid_profile"
        )
    return data


def _model_name(config: object, filename: str) -> str:
    named = config.get("_name_or_path") if isinstance(config, dict) else None
    stem = upload_name(filename)
    return upload_name(named) if isinstance(named, str) and named and stem == "config" else stem


def keep_model_upload(data: bytes, *, filename: str, folder: Path) -> str:
    """Check an uploaded ``config.json`` and keep it as a profile in ``folder`` (a ``--profiles`` directory); its name.

    Raises
    ------
    RoofcastError, ProfileError
        As `model_from_upload`; nothing is written then.
    """
    model = model_from_upload(data, filename=filename)
    profile = {
        "name": model.name,
        "source": f"uploaded as {upload_name(filename)}",
        "date": datetime.now(UTC).date().isoformat(),
        "config": json.loads(data.decode("utf-8-sig")),
    }
    (folder / "models").mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(profile, allow_unicode=True, sort_keys=False)
    (folder / "models" / f"{model.name}.yaml").write_text(text, encoding="utf-8")
    return model.name


def keep_hardware_upload(data: bytes, *, filename: str, folder: Path) -> str:
    """Check an uploaded accelerator YAML and keep it in ``folder`` (a ``--profiles`` directory); its name."""
    spec = hardware_from_upload(data, filename=filename)
    name = plain_word(spec.name)
    if upload_name(spec.name) != name:
        raise ProfileError(
            f"{spec.name!r} is not a profile name; allowed: letters, digits, dots and hyphens",
            field="name",
            code="invalid_profile",
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yaml").write_bytes(data)
    return name
