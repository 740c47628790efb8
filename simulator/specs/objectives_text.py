"""Objectives as they are written on command lines: ``ttft-p95=2s``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from simulator.errors import RoofcastError
from simulator.specs.documents import validate
from simulator.specs.plan import ObjectiveSpec

_WRITTEN = re.compile(r"(ttft|tpot|e2e|latency)[-_]p([0-9]+(?:\.[0-9]+)?)\s*=\s*(.+)")


def parse_objectives(texts: Sequence[str], *, flag: str) -> tuple[ObjectiveSpec, ...]:
    """One spec per text; the same percentile of the same metric twice is refused, because one of them would be idle.

    Raises
    ------
    RoofcastError
        Not METRIC-pNN=TIME, an unknown metric, a percentile outside (0, 100) or a time not above zero.
    """
    found: dict[tuple[str, float], ObjectiveSpec] = {}
    for text in texts:
        match = _WRITTEN.fullmatch(text.strip().lower())
        if match is None:
            raise RoofcastError(
                f"METRIC-pNN=TIME is needed with ttft, tpot or e2e, got {text!r}",
                field=flag,
                hint="such as ttft-p95=2s or tpot-p95=50ms",
            )
        fields = {"metric": match[1].replace("latency", "e2e"), "percentile": float(match[2]), "bound_s": match[3]}
        try:
            spec = validate(ObjectiveSpec, fields, where="")
        except RoofcastError as error:
            raise RoofcastError(f"{error.message}", field=f"{flag} {text}", hint=error.hint) from None
        key = (spec.metric, spec.percentile)
        if key in found:
            raise RoofcastError(f"{text!r} bounds what another objective bounds already", field=flag)
        found[key] = spec
    return tuple(found.values())
