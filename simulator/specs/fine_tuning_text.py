"""A fine-tuning method as text on a command line: ``full``, ``lora:16``, ``qlora:rank=64,targets=attention``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.errors import RoofcastError
from simulator.specs.adapters import AdaptersSpec
from simulator.specs.documents import validate
from simulator.specs.techniques_text import technique_value

FLAG = "--fine-tune"
FULL = "full"
_SERVING_ONLY = ("count", "merged")


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuneText:
    """One method as written; ``adapters`` is None where every weight is trained."""

    text: str
    method: Literal["full", "lora", "qlora", "adapter", "prompt_tuning", "bitfit"]
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
        inside = f"{error.field}: " if error.field and not error.field.startswith("--") else ""
        methods = "full, lora:16, qlora:16, adapter:64, bitfit or prompt_tuning:20"
        raise RoofcastError(
            f"{stripped!r}: {inside}{error.message}", field=FLAG, code=error.code, hint=f"such as {methods}"
        ) from None
    idle = [field for field in _SERVING_ONLY if field in spec.model_fields_set]
    if idle:
        raise RoofcastError(
            f"{stripped!r}: {idle[0]} has no effect on fine-tuning",
            field=FLAG,
            code="ignored_option",
            hint="leave it out",
        )
    return FineTuneText(text=stripped, method=spec.method, adapters=spec)
