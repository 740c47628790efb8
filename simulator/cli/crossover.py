"""``roofcast crossover``: which number format decodes fastest at which batch, and up to which speculation pays."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.engine.uniform.speculation_gain import SpeedupByBatch, speedup_by_batch
from simulator.errors import RoofcastError
from simulator.phases.crossover import decode_seconds, format_crossovers
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import memory_plan, sequences_that_fit
from simulator.reports.content.quantities import number_text
from simulator.reports.content.text import text_table
from simulator.reports.contract import SCHEMA_VERSION
from simulator.specs.documents import validate
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.loading import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.techniques import TechniquesSpec
from simulator.specs.question.techniques_text import TechniquesText, techniques_spec
from simulator.units import MILLI

DEFAULT_FORMATS = "bf16,fp8,w8a8,gptq-g128"
BATCHES = (1, 4, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossoverQuestion:
    """What the command line asks for.

    formats : None takes those of the defaults that the hardware multiplies
    speculation : to compare with plain decoding in each format, as on every command line; None leaves it out
    """

    model: str
    hardware: str
    tp_size: int
    context: int
    engine: str
    formats: str | None
    speculation: str | None = None


def _replica(
    question: CrossoverQuestion, scheme: str, *, profiles: str | None, techniques: TechniquesSpec | None = None
) -> Deployment:
    return deploy(
        model=load_model(question.model, profiles=profiles),
        hardware=load_hardware(question.hardware, profiles=profiles),
        parallelism=ParallelismSpec(tp_size=question.tp_size),
        precision=PrecisionSpec(scheme=scheme),
        techniques=techniques or TechniquesSpec(),
        engine=validate(EngineSpec, {"name": question.engine}, where=""),
        profiles=profiles,
    )


def replicas(question: CrossoverQuestion, *, profiles: str | None) -> tuple[list[tuple[str, Deployment]], list[str]]:
    """The formats to compare, each with its replica, and notes on defaults that the hardware rules out."""
    names = [name.strip() for name in (question.formats or DEFAULT_FORMATS).split(",") if name.strip()]
    if len(set(names)) != len(names) or len(names) < 2:
        raise RoofcastError(
            f"{question.formats!r} does not name two or more different formats", field="--formats", hint=DEFAULT_FORMATS
        )
    found, notes = [], []
    for name in names:
        try:
            found.append((name, _replica(question, name, profiles=profiles)))
        except RoofcastError as error:
            if question.formats is not None or error.code != "unsupported_dtype":
                raise
            notes.append(f"{name} left out: {error.message}")
    return found, notes


def _gains(question: CrossoverQuestion, names: list[str], *, profiles: str | None) -> dict[str, SpeedupByBatch]:
    """What speculation brings in each format; empty where nothing guesses."""
    if question.speculation is None:
        return {}
    techniques = techniques_spec(TechniquesText(speculation=question.speculation))
    return {
        name: speedup_by_batch(
            _replica(question, name, profiles=profiles, techniques=techniques),
            batches=BATCHES,
            context_tokens=float(question.context),
        )
        for name in names
    }


def _gain_object(gain: SpeedupByBatch) -> dict[str, Any]:
    return {
        "tokens_per_step": gain.tokens_per_step,
        "speedup": [float(value) for value in gain.speedup],
        "best_k": [int(value) for value in gain.best_k],
        "best_speedup": [float(value) for value in gain.best_speedup],
        "break_even_batch": gain.break_even_batch,
    }


def crossover_object(question: CrossoverQuestion, *, profiles: str | None) -> dict[str, Any]:
    """The JSON document of ``roofcast crossover``."""
    named, notes = replicas(question, profiles=profiles)
    batches = np.array(BATCHES, dtype=float)
    seconds = {name: decode_seconds(one, batches, context_tokens=float(question.context)) for name, one in named}
    fits = {
        name: sequences_that_fit(one, memory_plan(one), tokens=float(question.context))
        if memory_plan(one).fits
        else 0.0
        for name, one in named
    }
    gains = _gains(question, [name for name, _ in named], profiles=profiles)
    return {
        "schema_version": SCHEMA_VERSION,
        "model": named[0][1].model.name,
        "hardware": named[0][1].hardware.name,
        "tp_size": question.tp_size,
        "context_tokens": question.context,
        "batches": list(BATCHES),
        "formats": [
            {
                "format": name,
                "step_s": [float(value) for value in seconds[name]],
                "sequences_that_fit": None if fits[name] == float("inf") else int(fits[name]),
                **({"speculation": _gain_object(gains[name])} if gains else {}),
            }
            for name, _ in named
        ],
        "fastest": [min(seconds, key=lambda name: seconds[name][place]) for place in range(len(BATCHES))],
        "crossovers": [
            {"earlier": pair.earlier, "later": pair.later, "batch": pair.batch}
            for pair in format_crossovers(named, context_tokens=float(question.context))
        ],
        "notes": notes,
    }


def print_crossover(question: CrossoverQuestion, *, as_json: bool, profiles: str | None) -> None:
    """Print the comparison as JSON, or as a table and sentences."""
    document = crossover_object(question, profiles=profiles)
    if as_json:
        sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
        return
    columns = ("batch", *(entry["format"] for entry in document["formats"]))
    rows = [
        (str(batch), *(_cell(entry, document, place) for entry in document["formats"]))
        for place, batch in enumerate(document["batches"])
    ]
    lines = [
        f"decode step of {document['model']} on {document['hardware']} (tp {question.tp_size}, "
        f"{question.context} tokens each), ms; * fastest, - does not fit",
        "",
        *text_table(columns, rows).splitlines(),
        "",
        *map(_sentence, document["crossovers"]),
        *(_speculation_lines(question.speculation, document) if question.speculation else ()),
        *(f"note: {text}" for text in document["notes"]),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def _cell(entry: dict[str, Any], document: dict[str, Any], place: int) -> str:
    room = entry["sequences_that_fit"]
    fastest = "*" if document["fastest"][place] == entry["format"] else " "
    short = "-" if room is not None and room < document["batches"][place] else " "
    return f"{number_text(entry['step_s'][place] / MILLI)}{fastest}{short}"


def _sentence(pair: dict[str, Any]) -> str:
    if pair["batch"] is None:
        return f"{pair['earlier']} beats {pair['later']} at one sequence and at 4,096"
    last = pair["batch"] - 1
    return f"{pair['earlier']} beats {pair['later']} up to {last} sequences, {pair['later']} from {last + 1} on"


def _speculation_lines(speculation: str, document: dict[str, Any]) -> list[str]:
    """Speedups over plain decoding, then up to which batch they are above one."""
    gains = {entry["format"]: entry["speculation"] for entry in document["formats"]}
    rows = [
        (str(batch), *(_gain_cell(gain, place) for gain in gains.values()))
        for place, batch in enumerate(document["batches"])
    ]
    tokens = next(iter(gains.values()))["tokens_per_step"]
    return [
        "",
        f"speedup of decoding by {speculation}, {number_text(tokens)} tokens a step of each sequence; in brackets the "
        "best number of guesses and what it brings",
        "",
        *text_table(("batch", *gains), rows).splitlines(),
        "",
        *(_pays(name, gain["break_even_batch"]) for name, gain in gains.items()),
    ]


def _gain_cell(gain: dict[str, Any], place: int) -> str:
    return f"{gain['speedup'][place]:.2f} ({gain['best_k'][place]}: {gain['best_speedup'][place]:.2f})"


def _pays(name: str, break_even_batch: int | None) -> str:
    if break_even_batch is None:
        return f"speculation pays with {name} at every batch shown"
    if break_even_batch == 1:
        return f"speculation does not pay with {name} even for one sequence"
    return f"speculation pays with {name} up to {break_even_batch - 1} sequences"
