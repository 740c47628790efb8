"""One answered scenario as a table for people: figures with their 80 % intervals, then notes and assumptions."""

from __future__ import annotations

from collections.abc import Callable

from simulator.reports.answer import Json
from simulator.reports.content.quantities import (
    bytes_text,
    number_text,
    percent_text,
    range_text,
    seconds_text,
    watts_text,
)
from simulator.reports.formats.text import text_table

SCENARIO_COLUMNS = ("figure", "value", "80 % interval")
_LATENCIES = (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("e2e_s", "E2E"))
_RATES = (
    ("output_tokens_per_s", "output tokens/s"),
    ("total_tokens_per_s", "total tokens/s"),
    ("requests_per_s", "requests/s"),
)


def _row(document: Json, name: str, label: str, text: Callable[[float], str]) -> tuple[str, str, str]:
    ends = document["interval"].get(name)
    value = document[name]
    return label, "-" if value is None else text(value), "" if ends is None else range_text(ends, text)


def scenario_rows(document: Json) -> list[tuple[str, str, str]]:
    """The figures of a result object, in the order of SCENARIO_COLUMNS."""
    memory = document["memory"]
    rows = [_row(document, name, label, seconds_text) for name, label in _LATENCIES]
    rows += [_row(document, name, label, number_text) for name, label in _RATES]
    for phase in ("prefill", "decode"):
        if document[phase] is not None:
            part = document[phase]
            used = f"MFU {percent_text(part['mfu'])}, MBU {percent_text(part['mbu'])}"
            rows.append((f"{phase} step", f"{seconds_text(part['step_s'])}, {part['bound']} bound, {used}", ""))
    room = "fits" if memory["fits"] else "does not fit"
    rows.append(("weights", f"{bytes_text(memory['weights_bytes'])} a device, {room}", ""))
    rows.append(("KV cache", f"{number_text(memory['kv_capacity_tokens'])} tokens", ""))
    rows.append(("power", watts_text(document["power_w"]), ""))
    rows.append(("energy", f"{number_text(document['energy_per_output_token_j'])} J per output token", ""))
    return rows


def scenario_text(document: Json, *, setup: str) -> str:
    """The figures under what was asked; ``setup`` names the deployment."""
    lines = [
        f"{document['kind']}: {setup} ({document['provenance']})",
        "",
        text_table(SCENARIO_COLUMNS, scenario_rows(document)),
        *(f"note: {text}" for text in document["notes"]),
        *(f"assumed: {text}" for text in document["assumptions"]),
    ]
    return "\n".join(lines) + "\n"
