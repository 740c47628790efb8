"""Files that arrive as bytes, from a browser: read by the same strict loaders, never by a path."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from simulator.errors import ProfileError, RoofcastError
from simulator.files import write_bytes
from simulator.specs.documents import validate
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.huggingface.registry import read_config
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.parsing import MalformedError, parse_json, parse_yaml, yaml_events
from simulator.specs.spellings import plain_word
from simulator.units import KILO, MEGA

LARGEST_UPLOAD_BYTES = int(MEGA)
"""Configurations are a few kilobytes; a megabyte is generous and parses at once."""
_LONGEST_SCALAR = 2000
"""Characters of a value in an uploaded YAML: the longest notes of built-in accelerators have some hundred."""
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
        config = parse_json(text)
    except MalformedError as error:
        raise _malformed(error, filename, kind="JSON") from None
    return read_config(_mapping(config, filename=filename), name=_model_name(config, filename))


def hardware_from_upload(data: bytes, *, filename: str) -> AcceleratorSpec:
    """An accelerator from the bytes of its YAML profile; errors as in `model_from_upload`."""
    text = _text(data, filename=filename)
    try:
        _check_plain(text, filename=filename)
        fields = parse_yaml(text)
    except MalformedError as error:
        raise _malformed(error, filename, kind="YAML") from None
    return validate(AcceleratorSpec, _mapping(fields, filename=filename), where=filename, profile=True)


def _malformed(error: MalformedError, filename: str, *, kind: str) -> ProfileError:
    message = f"{error.place(filename)}: not valid {kind}: {error.reason}"
    return ProfileError(message, field="upload", code="invalid_profile")


def _check_plain(text: str, *, filename: str) -> None:
    """Refuse what no profile needs and what takes memory: aliases, and scalars without end."""
    for event in yaml_events(text):
        odd, hint = "", ""
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            odd, hint = f"an anchor or alias ({anchor})", "write the value out where it is used"
        elif len(getattr(event, "value", "")) > _LONGEST_SCALAR:
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
        "config": parse_json(_text(data, filename=filename)),
    }
    (folder / "models").mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(profile, allow_unicode=True, sort_keys=False)
    write_bytes(text.encode("utf-8"), str(folder / "models" / f"{model.name}.yaml"), force=True, flag="upload")
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
    write_bytes(data, str(folder / f"{name}.yaml"), force=True, flag="upload")
    return name
