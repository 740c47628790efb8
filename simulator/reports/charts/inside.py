"""What a request waits for from its arrival to its last token, and what a step does from its start to its end."""

from __future__ import annotations

import numpy as np

from simulator.engine.runs.served_run import ServedRun
from simulator.engine.uniform.record import UniformRun
from simulator.engine.uniform.steps import PhaseEstimate
from simulator.operators.work import Family
from simulator.reports.charts.chart import Axis, Chart, Series, SeriesKind, places, waterfall_chart
from simulator.reports.content.quantities import percent_text, seconds_text
from simulator.traffic.requests import Outcome
from simulator.units import MILLI

_SHOWN_ROWS = 14
"""Longest operators of a step that stand alone; the others are one bar where the first of them runs."""


def _network_share(phase: PhaseEstimate | None) -> float:
    """Share of a phase's steps in which devices exchange what the next operator needs."""
    if phase is None:
        return 0.0
    collective = phase.estimate.breakdown_s.get(Family.COLLECTIVE.value)
    return 0.0 if collective is None else float(phase.weights @ collective) / phase.total_s


def request_parts(run: ServedRun | UniformRun) -> dict[str, float]:
    """Mean seconds of a request by what it waits for, in their order; they add up to the mean end to end."""
    queue_s, transfer_s = 0.0, 0.0
    if isinstance(run, ServedRun):
        requests, records = run.result.requests, run.result.run.records
        done = records.outcome == int(Outcome.FINISHED)
        queue_s = float(np.mean((records.admitted_s - requests.arrival_s)[done]))
        first_s = float(np.mean((records.first_token_s - requests.arrival_s)[done]))
        whole_s = float(np.mean((records.finish_s - requests.arrival_s)[done]))
        transfer_s = 0.0 if run.pools is None else run.pools.transfer_mean_s
    else:
        first_s, whole_s = run.ttft_s, run.e2e_s
        transfer_s = 0.0 if run.pools is None else run.pools.transfer_s
    prefill_s, decode_s = first_s - queue_s - transfer_s, whole_s - first_s
    prompt_share, answer_share = _network_share(run.prefill), _network_share(run.decode)
    parts = {
        "Queue": queue_s,
        "Prefill": prefill_s * (1 - prompt_share),
        "Network in prefill": prefill_s * prompt_share,
        "KV transfer": transfer_s,
        "Decode": decode_s * (1 - answer_share),
        "Network in decode": decode_s * answer_share,
    }
    return {name: seconds for name, seconds in parts.items() if seconds > 0}


def request_waterfall_chart(run: ServedRun | UniformRun) -> Chart:
    """A mean request from its arrival to its last token, one bar for each thing it waits for."""
    parts = request_parts(run)
    whole_s = sum(parts.values())
    longest = max(parts, key=lambda name: parts[name])
    unit, scale = ("s", 1.0) if whole_s > 1 else ("ms", MILLI)
    bars = [(name, seconds / scale, False) for name, seconds in parts.items()]
    return waterfall_chart(
        key="request_waterfall",
        title=f"{longest} takes {percent_text(parts[longest] / whole_s)} of a request's {seconds_text(whole_s)}",
        y=Axis(title="Time", unit=unit),
        parts=[*bars, ("End to end", whole_s / scale, True)],
        caption="Means over all requests; the network's share within a phase is that of its mean step."
        if isinstance(run, ServedRun)
        else "Every prompt of the batch starts at once; the network's share within a phase is that of its mean step.",
    )


def _lanes(phase: PhaseEstimate) -> list[tuple[str, float]]:
    """Mean seconds of each operator of a step over all layers, in the order in which they run; the host comes first."""
    estimate = phase.estimate
    found = {"host": float(phase.weights @ estimate.host_s)}
    if estimate.draft_s is not None:
        found["drafting"] = float(phase.weights @ estimate.draft_s)
    for row in estimate.rows:
        found[row.work.name] = found.get(row.work.name, 0.0) + float(phase.weights @ row.seconds)
    kept = sorted(found, key=lambda name: -found[name])[:_SHOWN_ROWS]
    lanes = [(name, seconds / phase.steps) for name, seconds in found.items() if name in kept and seconds > 0]
    rest_s = sum(seconds for name, seconds in found.items() if name not in kept) / phase.steps
    return [*lanes, ("others", rest_s)] if rest_s > 0 else lanes


def step_timeline_chart(name: str, phase: PhaseEstimate) -> Chart:
    """The mean step of a phase as a timeline: each operator from where the ones before it end."""
    lanes = _lanes(phase)
    ends_s = np.cumsum([seconds for _, seconds in lanes])
    starts_s = (0.0, *ends_s[:-1].tolist())
    longest, seconds = max(lanes, key=lambda lane: lane[1])
    starts = tuple(start / MILLI for start in starts_s)
    return Chart(
        key="step_timeline",
        title=f"{longest} takes {percent_text(seconds / float(ends_s[-1]))} of a {name.lower()} step",
        x=Axis(title=f"Time within the {name.lower()} step", unit="ms"),
        y=Axis(title="", categories=tuple(f"{lane}, {seconds_text(seconds)}" for lane, seconds in lanes)),
        series=(
            Series(
                name=name,
                kind=SeriesKind.TORNADO,
                x=places(len(lanes)),
                y=starts,
                low=starts,
                high=tuple(float(end) / MILLI for end in ends_s),
            ),
        ),
        caption="Mean step, each operator over all layers, in the order in which a layer runs them.",
    )
