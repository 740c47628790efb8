"""The numbers of a deployment, a forward pass and a run: text, value, 80 % interval; a scenario as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from simulator.kernels.intervals import inverse_ends
from simulator.kernels.timing import Provenance
from simulator.phases.crossover import LARGEST_BATCH
from simulator.reports.answer import Json
from simulator.reports.content import quantities as say
from simulator.reports.formats.text import text_table

if TYPE_CHECKING:
    from simulator.planner.what_if import WhatIf


def _tokens(value: float) -> str:
    return say.rate_text(value, "tok")


def per_token_ends(document: Json, value: float | None) -> tuple[float, float] | None:
    """80 % interval of what is spent per token at a known rate of spending: that of the throughput, upside down."""
    found, now = document["interval"].get("output_tokens_per_s"), document["output_tokens_per_s"]
    return inverse_ends(value, now=now, ends=found) if found and value is not None else None


def scenario_figures(what_if: WhatIf, document: Json) -> tuple[say.Quantity, ...]:
    """Latencies, throughput, price and energy of a scenario, as ``roofcast simulate`` prints them.

    document : ``result_object`` of the same result
    """
    price, energy = what_if.cost.per_million_output_tokens, document["energy_per_output_token_j"]
    usd = partial(say.money_text, currency=what_if.cost.currency)

    def figure(key: str, label: str, text: Callable[[Any], str], *, lower_is_better: bool = True) -> say.Quantity:
        ends = document["interval"].get(key)
        return say.quantity(key, label, document[key], text, ends, lower_is_better=lower_is_better)

    return (
        figure("ttft_s", "TTFT", say.seconds_text),
        figure("tpot_s", "TPOT", say.seconds_text),
        figure("e2e_s", "End to end", say.seconds_text),
        figure("output_tokens_per_s", "Throughput", _tokens, lower_is_better=False),
        say.quantity("per_million_output_tokens", "Per 1M tokens out", price, usd, per_token_ends(document, price)),
        say.quantity(
            "energy_per_output_token_j", "Energy per token", energy, say.joules_text, per_token_ends(document, energy)
        ),
    )


def least_known(words: Iterable[str]) -> str:
    """The worst of several provenances."""
    return max(Provenance[word.upper()] for word in words).label


def scenario_headline(what_if: WhatIf, document: Json) -> str:
    """``llama-3.1-70b on 4 × h100-sxm-80gb: 18.4 ms per token``."""
    deployment = what_if.result.deployment
    where = f"{what_if.devices} × {deployment.hardware.name}"
    if document["tpot_s"] is None:
        return f"{deployment.model.name} on {where}: first token after {say.seconds_text(document['ttft_s'])}"
    per_token = f"{say.seconds_text(document['tpot_s'])} per token"
    return f"{deployment.model.name} on {where}: {per_token}, {_tokens(document['output_tokens_per_s'])}"


def power_text(document: Json) -> str:
    """Mean power of all replicas."""
    return say.watts_text(document["power_w"])


_BEYOND = f"above {say.count_text(LARGEST_BATCH)}"


def step_time_figure(document: Json, *, key: str, label: str) -> say.Quantity:
    """The time of the step that ``roofcast step`` prints."""
    return say.quantity(key, label, document["step_s"], say.seconds_text, document["interval"]["step_s"])


def utilisation_figure(document: Json, *, field: str, key: str, label: str) -> say.Quantity:
    """``mfu`` or ``mbu`` of a step: a known amount of work over its time, so that its interval is that of the time."""
    ends = inverse_ends(document[field], now=document["step_s"], ends=document["interval"]["step_s"])
    return say.quantity(key, label, document[field], say.percent_text, ends, lower_is_better=False)


def crossover_figure(document: Json) -> say.Quantity:
    """The batch at which a decode step turns compute bound; open ends lie beyond 4,096."""
    found = document["crossover"]
    low, high = found["interval"]
    ends = "" if low is None else f"{say.count_text(low)} – {say.count_text(high) if high else _BEYOND}"
    return say.Quantity(
        key="crossover",
        label="Crossover batch",
        value=found["batch"],
        text=_BEYOND if found["batch"] is None else say.count_text(found["batch"]),
        interval=ends,
    )


Phase = Literal["prefill", "decode"]
PHASES: tuple[Phase, ...] = ("prefill", "decode")
_UTILISATIONS = ("mfu", "mbu")


def phase_figures(document: Json, *, phase: Phase) -> tuple[say.Quantity, ...]:
    """Mean step, MFU and MBU of a phase, ``key`` from phase and field; empty where a run has no such phase."""
    found, label = document[phase], phase.capitalize()
    if found is None:
        return ()
    return (
        step_time_figure(found, key=f"{phase}_step_s", label=f"{label} step"),
        *(
            utilisation_figure(found, field=field, key=f"{phase}_{field}", label=f"{label} {field.upper()}")
            for field in _UTILISATIONS
        ),
    )


def memory_figures(document: Json) -> tuple[say.Quantity, ...]:
    """The tokens that the KV cache of a replica holds, and the share of them that the requests take at their ends. The
    interval of the share is that of the room: what the requests keep is known."""
    memory = document["memory"]
    room = memory["kv_capacity_tokens"]
    if not memory["kv_bytes_per_token"]:
        return (say.Quantity(key="kv_capacity_tokens", label="Tokens in KV cache", value=None, text="keeps none"),)
    low, high = memory["interval"]["kv_capacity_tokens"]
    label = "Tokens in KV cache"
    found = [say.quantity("kv_capacity_tokens", label, float(room), say.count_text, (low, high), lower_is_better=False)]
    used = memory.get("kv_utilization")
    if used is not None and high:
        least, most = inverse_ends(used, now=room, ends=(low, high))
        found.append(say.quantity("kv_utilization", "KV cache in use", used, say.percent_text, (least, min(1.0, most))))
    return tuple(found)


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
    return label, "-" if value is None else text(value), "" if ends is None else say.range_text(ends, text)


def scenario_rows(document: Json) -> list[tuple[str, str, str]]:
    """The figures of a result object, in the order of SCENARIO_COLUMNS."""
    memory = document["memory"]
    rows = [_row(document, name, label, say.seconds_text) for name, label in _LATENCIES]
    rows += [_row(document, name, label, say.number_text) for name, label in _RATES]
    for phase in ("prefill", "decode"):
        if document[phase] is not None:
            part = document[phase]
            used = f"MFU {say.percent_text(part['mfu'])}, MBU {say.percent_text(part['mbu'])}"
            rows.append((f"{phase} step", f"{say.seconds_text(part['step_s'])}, {part['bound']} bound, {used}", ""))
    room = "fits" if memory["fits"] else "does not fit"
    rows.append(("weights", f"{say.bytes_text(memory['weights_bytes'])} a device, {room}", ""))
    rows.append(("KV cache", f"{say.number_text(memory['kv_capacity_tokens'])} tokens", ""))
    rows.append(("power", say.watts_text(document["power_w"]), ""))
    rows.append(("energy", f"{say.number_text(document['energy_per_output_token_j'])} J per output token", ""))
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
