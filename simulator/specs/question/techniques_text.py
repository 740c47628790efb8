"""Techniques and fine-tuning methods (``full``, ``lora:16``, ``qlora:rank=64``) as options of a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.errors import Option, RoofcastError, ignored_option
from simulator.records import dataclass
from simulator.specs.base import validate
from simulator.specs.question.technique_words import PLACE, SPELLINGS, technique_value
from simulator.specs.question.techniques import AdaptersSpec, FineTuneMethod, TechniquesSpec


def techniques_spec(given: Mapping[str, str | bool | None]) -> TechniquesSpec:
    """The techniques whose texts stand under their fields (None: left out), or a refusal that names the option."""
    try:
        return validate(TechniquesSpec, {name: value for name, value in given.items() if value is not None}, where="")
    except RoofcastError as error:
        option, _, inside = error.field.removeprefix(f"{PLACE}.").partition(".")
        message = f"{inside}: {error.message}" if inside else error.message
        hint = error.hint or f"such as {SPELLINGS[option].example if option in SPELLINGS else 'key=value'}"
        raise RoofcastError(message, field=Option(option), code=error.code, hint=hint) from None


def mixed_schemes(pairs: Sequence[str], *, flag: str = Option("mixed")) -> tuple[tuple[str, str], ...] | None:
    """``attention=fp8`` and the like as ``precision.mixed``; None for none."""
    found: dict[str, str] = {}
    for pair in pairs:
        role, equals, scheme = (part.strip() for part in pair.partition("="))
        if not equals or not role or not scheme or role in found:
            raise RoofcastError(
                f"{pair!r} is not ROLE=SCHEME with each role once", field=flag, hint="such as attention=fp8"
            )
        found[role] = scheme
    return tuple(sorted(found.items())) or None


FLAG = Option("fine_tune")
FULL = "full"
_SERVING_ONLY = ("count", "merged")


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuneText:
    """One method as written; ``adapters`` is None where every weight is trained."""

    text: str
    method: FineTuneMethod
    adapters: AdaptersSpec | None


def parse_fine_tune(text: str) -> FineTuneText:
    """The method and its sizes, or a refusal that names the option."""
    stripped = text.strip()
    if stripped == FULL:
        return FineTuneText(text=stripped, method="full", adapters=None)
    if stripped.startswith(f"{FULL}:"):
        raise RoofcastError(f"{stripped!r}: full takes no sizes", field=FLAG, hint="full")
    try:
        data = technique_value("adapters", stripped)
        spec = validate(AdaptersSpec, data if isinstance(data, dict) else {}, where="")
    except RoofcastError as error:
        inside = f"{error.field}: " if error.field and not error.field.startswith(PLACE) else ""
        methods = "full, lora:16, qlora:16, adapter:64, bitfit or prompt_tuning:20"
        raise RoofcastError(
            f"{stripped!r}: {inside}{error.message}", field=FLAG, code=error.code, hint=f"such as {methods}"
        ) from None
    idle = [field for field in _SERVING_ONLY if field in spec.model_fields_set]
    if idle:
        raise ignored_option(f"{stripped!r}: {idle[0]} has no effect on fine-tuning", field=FLAG)
    return FineTuneText(text=stripped, method=spec.method, adapters=spec)
