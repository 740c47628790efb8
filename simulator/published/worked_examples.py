"""Worked examples of the literature, and whole runs: scenarios of the contract and a value that was printed of each."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from operator import truediv
from typing import Any

from simulator.engine.runs.answers import answer
from simulator.operators.model_counts import parameter_counts
from simulator.operators.work import Work, decode_step
from simulator.phases.memory import memory_plan
from simulator.phases.step import StepEstimate, estimate_step
from simulator.published.facts import largest_value, load_facts
from simulator.published.figures import FOLDER, PublishedFigure, by_scenario, deployed, rows_of, table_figure
from simulator.reports.answer import result_object
from simulator.specs.base import validate
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype
from simulator.specs.question.scenario import ScenarioSpec
from simulator.units import GIGA, MIB, MILLI, TERA

BATCH = 16
"""Rows of the linear layer; h = n = 4096 is the output projection of Llama-2-7B."""

MBU_TPOT_S = 14 * MILLI
MBU_BYTES_PER_S = 2 * TERA

CHINCHILLA_TOKENS_PER_PARAMETER = 20.0
"""Training tokens a parameter where compute is spent best [Hoffmann2022] (70B on 1.4T tokens)."""


def training_flops(*, parameters: float, tokens: float) -> float:
    """FLOPs to train a dense model [FLOPs].

    Equation
    --------
    C = 6 N D

    Parameters
    ----------
    parameters : N, those that a token passes [-]
    tokens : D of the training data [tokens]

    Range of validity
    -----------------
    Short sequences: leaves out attention over the context, 12 layers d tokens a token. 2 N forward, 4 N backward;
    recomputed activations come on top.

    References
    ----------
    [Kaplan2020], [Hoffmann2022], [Brown2020] table D.1

    Examples
    --------
    >>> training_flops(parameters=2.0, tokens=3.0)
    36.0
    """
    return 6.0 * parameters * tokens


def figures() -> list[PublishedFigure]:
    """The rows of worked_examples.csv: exact but for rounding in the text."""
    return [table_figure(row, COMPUTED[row["name"]]) for row in rows_of("worked_examples.csv")]


def _ridge() -> float:
    hardware = load_hardware("a100-sxm-80gb")
    return hardware.peak_flops_per_s[Dtype.BF16] / hardware.memory_bytes_per_s


def _decode(sequences: int) -> StepEstimate:
    replica = deployed("llama-2-7b", "a100-sxm-80gb", engine="vllm")
    return estimate_step(replica, decode_step(sequences=[sequences], context=1))


def _output_projection() -> Work:
    return next(row.work for row in _decode(BATCH).rows if row.work.name == "o_proj")


def _kv_room() -> float:
    return memory_plan(deployed("llama-2-13b", "a100-sxm-40gb", engine="vllm")).kv_capacity_bytes


def _training(model: str, *, tokens: float) -> float:
    return training_flops(parameters=parameter_counts(load_model(model)).total, tokens=tokens)


COMPUTED: dict[str, Callable[[], float]] = {
    "a100_ridge": _ridge,
    "a100_compute_units": lambda: float(load_hardware("a100-sxm-80gb").compute_units),
    "a100_l2": lambda: load_hardware("a100-sxm-80gb").l2_bytes / MIB,
    "a100_nvlink": lambda: load_hardware("a100-sxm-80gb").scale_up.bytes_per_s_per_direction / GIGA,
    "linear_layer_flops": lambda: float(_output_projection().flops[0]),
    "linear_layer_bytes": lambda: float(_output_projection().bytes[0]),
    "mbu_7b_at_14_ms": lambda: float(_decode(1).read_bytes[0]) / MBU_TPOT_S / MBU_BYTES_PER_S,
    "kv_room_13b_on_40_gb": _kv_room,
    "gpt3_training_flops": lambda: _training("gpt-3-175b", tokens=300 * GIGA),
    "chinchilla_training_flops": lambda: _training("chinchilla-70b", tokens=1.4 * TERA),
    "fp8_e4m3_largest": lambda: largest_value(load_facts().floats["fp8 E4M3"]),
    "fp8_e5m2_largest": lambda: largest_value(load_facts().floats["fp8 E5M2"]),
}
"""Name of a row of worked_examples.csv -> what the simulator computes."""


TOPIC = "engines"
DRIFT = 0.05
"""By how much a known miss may grow before it has to be looked at."""


def run_rows(file: str = "runs.jsonl") -> list[dict[str, Any]]:
    """The rows of a table of scenarios; one with a scenario ``over`` which its own stands is of their ratio."""
    return [json.loads(line) for line in (FOLDER / file).read_text(encoding="utf-8").splitlines()]


def run_figures(file: str = "runs.jsonl") -> list[PublishedFigure]:
    """Rows that come out within their tolerance, and known misses."""
    return [_run_figure(row) for row in run_rows(file)]


def _run_figure(row: dict[str, Any]) -> PublishedFigure:
    metric: str = row["metric"]
    scenarios = [row[name] for name in ("scenario", "over") if name in row]

    def predict() -> float:
        specs = (validate(ScenarioSpec, scenario, where=row["name"]) for scenario in scenarios)
        return reduce(truediv, (float(result_object(answer(spec))[metric]) for spec in specs))

    return PublishedFigure(
        name=row["name"],
        topic=row.get("topic", TOPIC),
        published=row["published"],
        unit=row.get("unit") or ("tokens/s" if metric.endswith("_per_s") else "s"),
        tolerance=row["tolerance"] if "tolerance" in row else abs(row["reached_error"]) + DRIFT,
        source=f"{row['citation']} ({row['version'][:12]})",
        statement=row.get("statement") or f"printed as {row['printed']}",
        reason=row.get("reason", ""),
        is_fitted=row.get("is_fitted", False),
        predict=predict,
        asked_by=by_scenario(*scenarios, field=metric),
    )
