"""A served workload and a load sweep for people: stages, latencies with intervals, load over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from simulator.engine.pools import Pool
from simulator.engine.runs.answers import ScenarioResult
from simulator.engine.runs.intervals import IntervalMethod, IntervalSource
from simulator.engine.runs.kv_tiers import TierUse
from simulator.engine.runs.load_sweep import LoadSweep
from simulator.engine.runs.metrics import LatencySummary, ObjectiveCheck, ServeResult, StageResult
from simulator.engine.runs.served_run import ServedRun
from simulator.kernels.intervals import chance_within
from simulator.phases.deployment import Deployment
from simulator.records import dataclass
from simulator.reports.answer import Json
from simulator.reports.content import quantities as say
from simulator.reports.content.document import Cell, fraction, number, ordered, seconds
from simulator.reports.formats.text import sparkline, stretch_means, text_table
from simulator.reports.words.fields import assumption_texts, note_texts
from simulator.units import KILO

SWEEP_COLUMNS = ("rate", "TTFT p50", "TTFT p95", "TTFT p99", "TPOT p95", "E2E p95", "mean batch", "KV in use", "state")


def sweep_rows(sweep: LoadSweep) -> list[tuple[Cell | str, ...]]:
    """One line per rate, in the order of SWEEP_COLUMNS."""
    return [
        (
            ordered(say.rate_text(point.rate_per_s, "requests"), point.rate_per_s),
            seconds(point.stage.ttft.p50_s),
            seconds(point.stage.ttft.p95_s),
            seconds(point.stage.ttft.p99_s),
            seconds(point.stage.tpot.p95_s),
            seconds(point.stage.e2e.p95_s),
            number(point.stage.mean_batch, digits=1),
            fraction(point.stage.kv_utilization),
            "saturated" if point.stage.saturated else "keeps up",
        )
        for point in sweep.points
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveChance:
    """A bound on a latency [s], the ``field`` that holds what is predicted of it with its 80 % interval, and the
    probability that it holds."""

    metric: str
    field: str
    bound_s: float
    value_s: float
    ends_s: tuple[float, float]
    chance: float

    @property
    def text(self) -> str:
        """``TTFT p95 374 ms of 1.00 s (99 % likely held)``."""
        return (
            f"{self.metric.upper()} p95 {say.seconds_text(self.value_s)} of {say.seconds_text(self.bound_s)} "
            f"({say.chance_text(self.chance)} likely held)"
        )


def objective_chances(document: Json, bounds_s: Mapping[str, float]) -> tuple[ObjectiveChance, ...]:
    """Each bound by its metric beside a result: the p95 of a whole served run, of which an overloaded one meets none,
    or the mean of a batch."""
    shown, ending = (document["overall"], "_p95_s") if "overall" in document else (document, "_s")
    found = []
    for metric, bound_s in bounds_s.items():
        name = f"{metric}{ending}"
        value_s = shown[name]
        if value_s is None and "overall" not in document:
            continue  # a batch of one output token has no TPOT
        known = value_s is not None and not shown.get("saturated", False)
        low, high = document["interval"].get(name) or (value_s, value_s)
        found.append(
            ObjectiveChance(
                metric=metric,
                field=name,
                bound_s=bound_s,
                value_s=value_s or math.inf,
                ends_s=(low or math.inf, high or math.inf),
                chance=chance_within(bound_s, value=value_s, ends=(low, high)) if known else 0.0,
            )
        )
    return tuple(found)


def least_chance(chances: Sequence[ObjectiveChance]) -> float:
    """Chance that the objective which is least sure holds; 1 where there is none."""
    return min((item.chance for item in chances), default=1.0)


def serving_headline(rate_per_s: float, document: Json, chances: Sequence[ObjectiveChance]) -> str:
    """Whether a deployment holds its objectives at a rate, and by how much, or which of them it misses."""
    at = f"at {say.rate_text(rate_per_s, 'requests')}"
    if document["overall"]["saturated"]:
        return f"Overloaded {at}: the queue keeps growing"
    missed = [item for item in chances if item.value_s > item.bound_s]
    if missed:
        return f"Misses {' and '.join(item.text for item in missed)} {at}"
    kept = ", ".join(f"{item.metric.upper()} p95 {say.seconds_text(item.value_s)}" for item in chances)
    return f"Holds its objectives {at}: {kept}"


def _occupied(key: str, label: str, document: Json, text: Callable[[float], str]) -> say.Quantity:
    """How full a deployment is. Where every end is the same, nothing is left to be full: no interval says so."""
    value, load = document["overall"][key], document.get("load")
    ends = load["interval"][key] if load else (value, value)
    return say.quantity(key, label, value, text, ends if len(set(map(text, ends))) > 1 else None)


def serving_quantities(document: Json) -> tuple[say.Quantity, ...]:
    """Latencies, saturation where it is known for replicas that do both phases, batch and cache of a served load."""
    found = []
    for metric, label in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "End to end")):
        key = f"{metric}_p95_s"
        ends = document["interval"].get(key)
        found.append(say.quantity(key, f"{label} p95", document["overall"][key], say.seconds_text, ends))
    load = document.get("load")
    if load and "saturation_per_s" in load:
        rate = partial(say.rate_text, noun="req")
        ends = load["interval"]["saturation_per_s"]
        found.append(say.quantity("saturation_per_s", "Saturation", load["saturation_per_s"], rate, ends))
    return (
        *found,
        _occupied("mean_batch", "Mean batch", document, "{:.1f}".format),
        _occupied("kv_utilization", "KV cache in use", document, say.percent_text),
    )


STAGE_COLUMNS = (
    *("stage", "offered/s", "served/s", "out tok/s", "batch", "KV used", "busy"),
    *("prefix hits", "preempted", "rejected", "timed out", "verdict"),
)
LATENCY_COLUMNS = ("stage", "metric", "mean", "80 % interval", "p50", "p90", "p95", "p99", "80 % interval of p95")
OVERALL = "overall"


def _verdict(stage: StageResult) -> str:
    if stage.saturated:
        return "SATURATED: queue grows"
    if stage.meets_slo is None:
        return "stable"
    return "meets SLO" if stage.meets_slo else "misses SLO"


def _stage_cells(name: str, stage: StageResult) -> tuple[str, ...]:
    goodput = (f"{stage.goodput_per_s:.3g}",) if stage.goodput_per_s is not None else ()
    return (
        name,
        f"{stage.offered_per_s:.3g}",
        f"{stage.requests_per_s:.3g}",
        f"{stage.output_tokens_per_s:,.0f}",
        f"{stage.mean_batch:.1f}",
        say.percent_text(stage.kv_utilization),
        say.percent_text(stage.busy_fraction),
        say.percent_text(stage.prefix_hit_fraction),
        str(stage.preemptions),
        str(stage.rejected),
        str(stage.timed_out),
        *goodput,
        _verdict(stage),
    )


def _range(stage: StageResult, metric: str) -> str:
    if stage.interval is None:
        return ""
    found = stage.interval[metric]
    return "-" if found is None else f"{say.seconds_text(found[0])} to {say.seconds_text(found[1])}"


def _latency_cells(name: str, metric: str, summary: LatencySummary, stage: StageResult) -> tuple[str, ...]:
    tail = [say.seconds_text(value) for value in (summary.p50_s, summary.p90_s, summary.p95_s, summary.p99_s)]
    mean = say.seconds_text(summary.mean_s)
    return (name, metric.upper(), mean, _range(stage, f"{metric}_mean_s"), *tail, _range(stage, f"{metric}_p95_s"))


_Windows = dict[str, StageResult]
"""Stages by name; the whole run behind them where there are several."""


def _windows(result: ServeResult) -> _Windows:
    parts = {str(index): stage for index, stage in enumerate(result.stages)}
    return {**parts, OVERALL: result.overall} if len(parts) > 1 else parts


def _stage_table(windows: _Windows) -> str:
    goodput = next(iter(windows.values())).goodput_per_s is not None
    columns = (*STAGE_COLUMNS[:-1], *(("goodput/s",) if goodput else ()), STAGE_COLUMNS[-1])
    return text_table(columns, [_stage_cells(name, stage) for name, stage in windows.items()])


def _latency_table(windows: _Windows) -> str:
    rows = [
        _latency_cells(name, metric, summary, stage)
        for name, stage in windows.items()
        for metric, summary in (("ttft", stage.ttft), ("tpot", stage.tpot), ("e2e", stage.e2e))
    ]
    shown = [index for index in range(len(LATENCY_COLUMNS)) if any(row[index] for row in rows)]
    return text_table([LATENCY_COLUMNS[i] for i in shown], [tuple(row[i] for i in shown) for row in rows])


TIER_COLUMNS = ("cache", "tokens a replica", "hits", "LRU would hold", "load of 1k tokens", "worth loading from")


def tier_rows(tiers: Sequence[TierUse]) -> list[tuple[str, ...]]:
    """What share of prompt tokens came from where, and from which length on loading is sooner than computing."""
    return [
        (
            tier.medium,
            f"{tier.capacity_tokens:,}",
            say.percent_text(tier.hit_fraction),
            say.percent_text(tier.reuse_fraction),
            say.seconds_text(KILO * tier.load_s_per_token) if tier.load_s_per_token else "",
            "never" if tier.break_even_tokens is None else f"{tier.break_even_tokens:,} tokens",
        )
        for tier in tiers
    ]


def _objective_line(name: str, check: ObjectiveCheck) -> str:
    objective = check.objective
    window = name if name == OVERALL else f"stage {name}"
    verdict = "holds" if check.holds else "misses"
    return (
        f"{window}: {objective.metric.upper()} p{objective.percentile:g} {say.seconds_text(check.value_s)} {verdict} "
        f"{say.seconds_text(objective.bound_s)}"
    )


def _series_lines(result: ServeResult) -> list[str]:
    series = result.run.series
    if not len(series.start_s):
        return []
    lines = [f"Load over time, 0 to {say.seconds_text(series.end_s)}"]
    for name, values, form in (
        ("running", series.batch, "{:.1f}".format),
        ("waiting", series.waiting, "{:.1f}".format),
        ("KV used", series.kv_utilization, say.percent_text),
    ):
        thin = stretch_means(values)
        largest = float(thin.max())
        lines.append(f"  {name}  |{sparkline(thin, largest=largest).ljust(len(thin))}|  at most {form(largest)}")
    return lines


def _replicas_text(deployment: Deployment, *, replicas: int) -> str:
    """``2 x TP1 PP2 h100-sxm-80gb``."""
    degrees = deployment.parallelism
    parts = (f"TP{degrees.tp_size}", *degrees.named("pp", "dp", "ep", "cp"), deployment.hardware.name)
    return f"{replicas} x {' '.join(parts)}"


def _setup_text(deployment: Deployment, replicas: str) -> str:
    engine, weights = deployment.engine, deployment.plan.weights.value
    return f"{deployment.model.name} on {replicas}, {weights} weights, {engine.name} {engine.version}"


def setup_text(deployment: Deployment, *, replicas: int) -> str:
    """``llama-3.1-8b on 2 x TP1 PP2 h100-sxm-80gb, bf16 weights, vllm 0.15.1``."""
    return _setup_text(deployment, _replicas_text(deployment, replicas=replicas))


def pools_setup_text(prefill: Pool, decode: Pool) -> str:
    """``llama-3.1-8b on 1 x TP1 h100-sxm-80gb for prompts and 2 x TP1 ... for answers, bf16 weights, vllm 0.15.1``."""
    prompts, answers = (_replicas_text(pool.deployment, replicas=pool.replicas) for pool in (prefill, decode))
    return _setup_text(decode.deployment, f"{prompts} for prompts and {answers} for answers")


def _title(answered: ScenarioResult, run: ServedRun) -> str:
    cache = (
        f"KV cache {run.memory.kv_capacity_tokens:,} tokens a replica"
        if run.memory.kv_bytes_per_token
        else "no KV cache"
    )
    if run.pools is None:
        setup = setup_text(answered.deployment, replicas=answered.scenario.replicas)
    else:
        setup = pools_setup_text(run.pools.prefill, run.pools.decode)
    return f"{setup}; {cache}, weights {say.bytes_text(run.memory.weights_bytes)} a device"


def _interval_line(source: IntervalSource) -> str:
    steps = f"step times +-{say.percent_text(source.step_spread)}"
    rerun = source.steps is IntervalMethod.RERUN
    how = "the run repeated with slower and faster steps" if rerun else "times scaled"
    chance = f", scatter over {source.further_seeds + 1} seeds" if source.further_seeds else ""
    return f"80 % intervals: {steps} ({how}), the engine's own spread{chance}."


def serve_text(answered: ScenarioResult, *, assumptions: bool) -> str:
    """Everything about a served scenario as text."""
    run = answered.run
    assert isinstance(run, ServedRun), "kind serve"
    windows = _windows(run.result)
    parts = [_title(answered, run), "", _stage_table(windows), "", _latency_table(windows)]
    checks = [_objective_line(name, check) for name, stage in windows.items() for check in stage.objectives]
    if checks:
        parts += ["", "Objectives", *(f"  {line}" for line in checks)]
    if run.kv_tiers:
        parts += ["", text_table(TIER_COLUMNS, tier_rows(run.kv_tiers))]
    parts += ["", *_series_lines(run.result), ""]
    if answered.interval_method is not None:
        parts.append(_interval_line(answered.interval_method))
    parts.append(f"Step times are {answered.step_provenance.label}. Power {answered.power_w:,.0f} W mean.")
    if answered.pace_log_sigma:
        parts.append(
            "How many guesses are accepted is assumed: tokens of a step differ between tasks by "
            f"{say.percent_text(answered.pace_log_sigma)} (one standard deviation), which the intervals leave out."
        )
    parts += [f"note: {text}" for text in note_texts(answered.notes)]
    if assumptions:
        parts += ["", "Assumptions", *(f"- {text}" for text in assumption_texts(answered.assumptions))]
    else:
        parts.append(f"({len(answered.assumptions)} assumptions: --assumptions lists them)")
    return "\n".join(parts) + "\n"
