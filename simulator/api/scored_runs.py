"""Packed measured runs beside what is predicted of them now, and how wrong that is: ``roofcast validate --today``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from simulator.engine.runs.answers import answer
from simulator.errors import RoofcastError
from simulator.reports.answers.today import TodayAnswer
from simulator.specs.base import validate
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.measured import validation_rows
from simulator.specs.model.loading import load_model
from simulator.specs.question.scenario import ScenarioSpec

Report = Callable[[int, int], None]
"""Called with (done, of how many)."""


def today(
    choice: validation_rows.RunChoice | None = None,
    *,
    anew: bool = False,
    every: int = 1,
    profiles: str | None = None,
    report: Report | None = None,
) -> TodayAnswer:
    """Closed loops of today's models on today's accelerators, measured and predicted: ``roofcast validate --today``.

    The stored predictions count only where this very library made them; else, with ``anew`` or with profiles of your
    own, each run is predicted now.

    Parameters
    ----------
    choice : which runs; None takes all; every : each n-th of them
    report : called with the number of runs done and of all

    Raises
    ------
    RoofcastError
        Nothing was measured with this choice.
    """
    packed, table = validation_rows.load_today_runs(), validation_rows.load_validation_table()
    runs = {str(run.scenario["id"]): run for run in packed.runs}
    facts = [run_facts(_scenario(run), source=run.source) for run in packed.runs]
    names = [item.run for item in (choice or validation_rows.RunChoice()).of(facts)][::every]
    wanted = {name: runs[name] for name in names}
    is_stored = table.is_current and not anew and profiles is None
    if is_stored:
        rows = [row for row in table.rows if row.source == packed.origin.source and row.run in wanted]
    else:
        rows = predicted_rows(list(wanted.values()), profiles=profiles, report=report)
    return TodayAnswer(
        origin=packed.origin,
        predicted_on=table.date if is_stored else None,
        chosen=tuple(rows),
        scenarios={name: run.scenario for name, run in wanted.items()},
    )


def _scenario(run: validation_rows.WholeRun) -> ScenarioSpec:
    return validate(ScenarioSpec, run.scenario, where=run.source)


def predicted_rows(
    runs: Sequence[validation_rows.WholeRun], *, profiles: str | None = None, report: Report | None = None
) -> list[validation_rows.ValidationRow]:
    """Every measured value of ``runs`` beside its prediction, made now; a refused run has no rows."""
    found: list[validation_rows.ValidationRow] = []
    for done, run in enumerate(runs, start=1):
        try:
            found += run_rows(run, profiles=profiles)
        except RoofcastError:
            continue
        finally:
            if report is not None:
                report(done, len(runs))
    return found


def run_rows(run: validation_rows.WholeRun, *, profiles: str | None = None) -> list[validation_rows.ValidationRow]:
    """The values of one run beside their predictions. Raises RoofcastError: the scenario is refused."""
    from simulator.reports.answer import result_object

    scenario = _scenario(run)
    facts, result = run_facts(scenario, source=run.source), result_object(answer(scenario, profiles=profiles))
    rows = []
    for metric, measured in run.measured.items():
        low, high = result["interval"].get(metric, (math.nan, math.nan))
        rows.append(
            validation_rows.ValidationRow(
                **asdict(facts),
                metric=metric,
                measured=measured,
                predicted=result[metric],
                low=low,
                high=high,
                provenance=result["provenance"],
            ).rounded()
        )
    return rows


def run_facts(scenario: ScenarioSpec, *, source: str, rate_per_s: float | None = None) -> validation_rows.RunFacts:
    """What ran and what was asked of it; ``rate_per_s``: of the stage of kind serve that the values are of."""
    pools, precision = scenario.disaggregation, scenario.precision
    own = scenario.parallelism.model_dump()
    prompts: dict[str, Any] = dict.fromkeys(own)
    if pools is not None:
        prompts = {**own, **pools.degrees("prefill")}
        own |= pools.degrees("decode")
    return validation_rows.RunFacts(
        source=source,
        run=str(scenario.id),
        hardware=load_hardware(scenario.hardware).name,
        engine=scenario.engine.name,
        model=scenario.model.rsplit("/", maxsplit=1)[-1],
        model_class=load_model(scenario.model).model_class,
        mode=mode_of(scenario),
        **own,
        prefill_replicas=pools.prefill_replicas if pools else None,
        decode_replicas=pools.decode_replicas if pools else None,
        **{f"prefill_{name}": size for name, size in prompts.items()},
        weights=precision.weights.value if precision.weights else None,
        scheme=precision.scheme,
        kv_cache=precision.kv_cache.value if precision.kv_cache else None,
        kind=scenario.kind,
        batch_size=scenario.batch_size,
        concurrency=scenario.concurrency,
        isl_tokens=scenario.isl_tokens,
        osl_tokens=scenario.osl_tokens,
        rate_per_s=rate_per_s,
    )


def mode_of(scenario: ScenarioSpec) -> str:
    """Disaggregated where prompts have replicas of their own, else how it speculates, else aggregated."""
    if scenario.disaggregation is not None:
        return "disaggregated"
    speculation = scenario.techniques.speculation
    return "aggregated" if speculation is None else speculation.method
