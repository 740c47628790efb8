"""Files that arrive as bytes, from a browser: read by the same strict loaders, never by a path."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from simulator.errors import ProfileError, RoofcastError, plain_word
from simulator.files import write_bytes
from simulator.specs.base import validate
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.huggingface.registry import read_config
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.money.prices import PriceProfile, load_prices
from simulator.specs.money.quotes import price_list_text, quotes_of
from simulator.specs.parsing import MalformedError, parse_json, parse_yaml, yaml_events
from simulator.specs.question.plan import plan_spec
from simulator.units import KILO, MEGA

LARGEST_UPLOAD_BYTES = int(MEGA)
"""Configurations are a few kilobytes; a megabyte is generous and parses at once."""
LARGEST_RECORD_BYTES = 64 * LARGEST_UPLOAD_BYTES
"""Recorded traffic of a week has some ten megabytes; what it takes to read is bounded as on the command line."""
LARGEST_KEPT_BYTES = 4 * LARGEST_RECORD_BYTES
"""Of all uploads that a server keeps for links to them."""
_LONGEST_SCALAR = 2000
"""Characters of a value in an uploaded YAML: the longest notes of built-in accelerators have some hundred."""
WORKLOAD_FIELDS = frozenset(
    {"model", "rate_per_s", "peak_to_mean", "isl_tokens", "osl_tokens", "isl_cv", "osl_cv", "prefix_hit", "rental"}
    | {"load_profile"}
)
"""What ``roofcast demand`` writes; other fields of a workload file name files or ask for studies."""
_BUILT_IN_PRICES = "default"
_UNNAMED = "config"
"""What every model's configuration is called, ``config.json``."""
_NAME_FIELD = re.compile(r"^name:.*$", re.MULTILINE)
_UNSAFE = re.compile(r"[^a-z0-9.-]+")
_LONGEST_NAME = 100
"""Of a file, with room for what is written beside it."""


def upload_name(filename: str) -> str:
    """A profile name from a file's name: letters, digits, dots and hyphens of its last part, never a path."""
    last = filename.replace("\\", "/").rsplit("/", maxsplit=1)[-1]
    stem = re.sub(r"\.(jsonl?|ya?ml|csv|txt|prom)$", "", last, flags=re.IGNORECASE)
    return _UNSAFE.sub("-", plain_word(stem)).strip(".-")[:_LONGEST_NAME] or "uploaded"


def model_from_upload(data: bytes, *, filename: str) -> ModelSpec:
    """A model from the bytes of its ``config.json``.

    Raises RoofcastError, ProfileError: too large, not UTF-8, not JSON, or not understood in full; names the field.
    """
    text = _text(data, filename=filename)
    try:
        config = parse_json(text)
    except MalformedError as error:
        raise _malformed(error, filename, kind="JSON") from None
    return read_config(_mapping(config, filename=filename), name=_model_name(config, filename))


def hardware_from_upload(data: bytes, *, filename: str) -> AcceleratorSpec:
    """An accelerator from the bytes of its YAML profile; errors as in `model_from_upload`."""
    return validate(AcceleratorSpec, _yaml_fields(data, filename=filename), where=filename, profile=True)


def _yaml_fields(data: bytes, *, filename: str) -> dict[str, Any]:
    text = _text(data, filename=filename)
    try:
        _check_plain(text, filename=filename)
        fields = parse_yaml(text)
    except MalformedError as error:
        raise _malformed(error, filename, kind="YAML") from None
    return _mapping(fields, filename=filename)


def _invalid(message: str, *, field: str = "upload", hint: str = "") -> ProfileError:
    return ProfileError(message, field=field, code="invalid_profile", hint=hint)


def _malformed(error: MalformedError, filename: str, *, kind: str) -> ProfileError:
    return _invalid(f"{error.place(filename)}: not valid {kind}: {error.reason}")


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
            raise _invalid(f"{filename}{line}: {odd} is not taken in an upload", hint=hint)


def check_record_size(data: bytes, *, filename: str) -> None:
    """Refuse recorded traffic and measurements that are larger than any needs to be."""
    hint = "upload the workload file that the command demand makes of it"
    _check_size(data, filename=filename, most=LARGEST_RECORD_BYTES, hint=hint)


def _check_size(data: bytes, *, filename: str, most: int, hint: str) -> None:
    if len(data) > most:
        message = f"{filename} has {len(data) / KILO:,.0f} kB; allowed: {most / KILO:,.0f} kB"
        raise RoofcastError(message, field="upload", code="too_large", hint=hint)


def _text(data: bytes, *, filename: str) -> str:
    hint = "upload the configuration, not the weights"
    _check_size(data, filename=filename, most=LARGEST_UPLOAD_BYTES, hint=hint)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _invalid(f"{filename}: not UTF-8 text (byte {error.start})") from None


def _mapping(data: object, *, filename: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        found = "nothing" if data is None else f"a {type(data).__name__}"
        raise _invalid(f"{filename} must hold a mapping of fields, found {found}")
    return data


def _model_name(config: object, filename: str) -> str:
    named = config.get("_name_or_path") if isinstance(config, dict) else None
    stem = upload_name(filename)
    return upload_name(named) if isinstance(named, str) and named and stem == _UNNAMED else stem


def keep_model_upload(data: bytes, *, filename: str, folder: Path) -> str:
    """Check an uploaded ``config.json`` and keep it as a profile in ``folder`` (a ``--profiles`` directory); its name.

    A second file whose name says nothing of its model stands beside the first as ``config-2``.

    Raises RoofcastError, ProfileError: as `model_from_upload`; nothing is written then.
    """
    model = model_from_upload(data, filename=filename)
    config = parse_json(_text(data, filename=filename))
    says_nothing = upload_name(filename) == _UNNAMED
    name = _free_name(model.name, config, folder=folder / "models") if says_nothing else model.name
    profile = {
        "name": name,
        "source": f"uploaded as {upload_name(filename)}",
        "date": datetime.now(UTC).date().isoformat(),
        "config": config,
    }
    text = yaml.safe_dump(profile, allow_unicode=True, sort_keys=False)
    _keep(text.encode("utf-8"), folder / "models" / f"{name}.yaml")
    return name


def _free_name(name: str, config: Any, *, folder: Path) -> str:
    """``name``, or with a number behind it where that is another configuration's."""
    tried = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(found for found in tried if _config_of(folder / f"{found}.yaml") in (None, config))


def _config_of(path: Path) -> Any:
    """The configuration of a profile that was kept; None where there is none."""
    return parse_yaml(path.read_text("utf-8")).get("config") if path.is_file() else None


def keep_hardware_upload(data: bytes, *, filename: str, folder: Path) -> str:
    """Check an uploaded accelerator YAML and keep it in ``folder`` (a ``--profiles`` directory); its name."""
    spec = hardware_from_upload(data, filename=filename)
    _keep(data, folder / f"{_profile_name(spec.name)}.yaml")
    return plain_word(spec.name)


def keep_prices_upload(data: bytes, *, filename: str, folder: Path) -> str:
    """Keep uploaded prices in ``folder``: a CSV of quotes as a list that extends the built-in one, or a list's YAML."""
    if filename.lower().endswith(".csv"):
        text, name = _text(data, filename=filename), upload_name(filename)
        currency = load_prices(_BUILT_IN_PRICES).currency
        quotes = quotes_of(text, source=filename, currency=currency, profiles=str(folder))
        heading = f"quotes of {name}"
        listed = price_list_text(quotes, name=name, extends=_BUILT_IN_PRICES, heading=heading, profiles=str(folder))
        data = listed.encode("utf-8")
    else:
        fields = _yaml_fields(data, filename=filename)
        found = validate(PriceProfile, fields, where=filename, profile=True, profiles=folder)
        name = plain_word(_profile_name(found.name))
    _keep(data, folder / "prices" / f"{name}.yaml")
    return name


def keep_workload_upload(data: bytes, *, filename: str, folder: Path) -> str:
    """Keep an uploaded workload file, as ``roofcast demand`` writes it, in ``folder``; its name."""
    fields = _yaml_fields(data, filename=filename)
    for name in fields.keys() - WORKLOAD_FIELDS:
        allowed = ", ".join(sorted(WORKLOAD_FIELDS))
        raise RoofcastError(f"{filename}: is not taken from an upload; allowed: {allowed}", field=str(name))
    plan_spec(fields)
    found = upload_name(filename)
    _keep(data, folder / "workloads" / f"{found}.yaml")
    return found


def renamed_profile(text: str, name: str) -> str:
    """The YAML of a profile under another name, which its file has as well."""
    # Quoted: 70, null and 2026-11-26 are names too.
    return _NAME_FIELD.sub(f'name: "{name}"', text, count=1)


def _profile_name(name: str) -> str:
    if upload_name(name) != plain_word(name):
        raise _invalid(f"{name!r} is not a profile name; allowed: letters, digits, dots and hyphens", field="name")
    return name


def _keep(data: bytes, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(data, str(path), force=True, flag="upload")
