"""``simulate``, ``serve``, ``capacity`` and ``compare``: what deployments do with requests; lines of scenarios."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from simulator.api.questions import Given, ScenarioFields, scenario_spec, written_objectives
from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.engine.runs.scenario_setup import ServeOptions
from simulator.engine.uniform.record import UniformRun
from simulator.errors import FileError, Option, RoofcastError
from simulator.records import dataclass
from simulator.reports.answer import Answer, Cells, Json, dump, error_object, result_object
from simulator.specs.parsing import MalformedError, parse_json
from simulator.specs.question.plan_values import ObjectiveSpec, parse_objectives
from simulator.specs.question.scenario import ScenarioSpec
from simulator.units import KILO, MEGA

if TYPE_CHECKING:
    from simulator.engine.runs.capacity import CapacityResult
    from simulator.engine.runs.served_run import ServedRun
    from simulator.reports.charts.chart import Chart
    from simulator.reports.tables.comparison import ComparisonAnswer
    from simulator.specs.money.prices import OfferKind

Progress = Callable[[int, int], None]
"""Called with (done, of how many)."""


@dataclass(frozen=True, slots=True)
class ScenarioAnswer(Answer):
    """One answered scenario; ``result`` is the engine's own record."""

    result: ScenarioResult

    def to_dict(self) -> Json:
        """The contract's result object."""
        return result_object(self.result)

    def to_text(self) -> str:
        """Figures with their intervals, notes and assumptions."""
        from simulator.reports.tables.scenario_figures import scenario_text
        from simulator.reports.tables.serving import setup_text

        setup = setup_text(self.result.deployment, replicas=self.result.scenario.replicas)
        return scenario_text(self.to_dict(), setup=setup)

    def cells(self) -> Cells:
        """The figures with their intervals."""
        from simulator.reports.tables.scenario_figures import SCENARIO_COLUMNS, scenario_rows

        return SCENARIO_COLUMNS, scenario_rows(self.to_dict())

    def chart(self) -> Chart:
        """Where the time of a prefill and a decode step goes."""
        from simulator.reports.charts.latency_breakdown import latency_breakdown_chart

        run = self.result.run
        phases = [("Prefill", run.prefill), *([("Decode", run.decode)] if run.decode else [])]
        return latency_breakdown_chart(phases)


@dataclass(frozen=True, slots=True)
class ServeAnswer(ScenarioAnswer):
    """A served workload: stages, percentiles, and the series over time."""

    LISTED = "stages"

    @property
    def run(self) -> ServedRun:
        """The run with every request."""
        assert not isinstance(self.result.run, UniformRun), "kind serve"
        return self.result.run

    def to_dict(self) -> Json:
        """The contract's result object with the load over time."""
        return result_object(self.result) | {"series": dump(self.run.result.run.series)}

    def to_text(self, *, assumptions: bool = False) -> str:
        """What ``roofcast serve`` prints."""
        from simulator.reports.tables.serving import serve_text

        return serve_text(self.result, assumptions=assumptions)

    def chart(self) -> Chart:
        """Running and waiting requests over time."""
        from simulator.reports.charts.chart import lines_chart

        series = self.run.result.run.series
        title = f"Up to {float(series.batch.max()):.0f} requests run at once"
        of = {"Running": series.batch.tolist(), "Waiting": series.waiting.tolist()}
        return lines_chart("load_over_time", title, x="Time [s]", y="Requests", at=series.start_s.tolist(), of=of)


def simulate(
    scenario: ScenarioSpec | Given | None = None, /, *, profiles: str | None = None, **fields: Unpack[ScenarioFields]
) -> ScenarioAnswer:
    """What one deployment does: latency, throughput, memory, energy, each with its interval: ``roofcast simulate``.

    scenario : a specification or a mapping as in the contract; keywords go over it. Without ``kind``, ``batch_size``
        asks for a batch, ``concurrency`` for a closed loop, a workload or a rate for a served one, none for offline
    profiles : your profile directory

    Raises RoofcastError: a field is unknown, missing, idle or out of its range, or the deployment cannot run.
    """
    found = answer(scenario_spec(scenario, fields, profiles=profiles), profiles=profiles)
    return ScenarioAnswer(found) if isinstance(found.run, UniformRun) else ServeAnswer(found)


def simulate_line(line: str | bytes, *, number: int, profiles: str | None = None) -> Json:
    """The result object, or the error object, of one line of JSON; a bad line never spoils the others."""
    from simulator.specs.base import validate

    identifier: str | int | None = None
    try:
        try:
            data = _parsed(line, number=number)
        except RoofcastError:
            identifier = line_identifier(line)
            raise
        identifier = _identifier(data)
        return result_object(answer(validate(ScenarioSpec, data, where=f"line {number}"), profiles=profiles))
    except RoofcastError as error:
        return error_object(identifier, error)
    except Exception as error:  # whatever one line does, the others are answered
        fault = RoofcastError(f"line {number}: {type(error).__name__}: {error}", code="internal_error")
        return error_object(identifier, fault)


def line_identifier(line: str | bytes) -> str | int | None:
    """The ``id`` of a scenario's or of a result's line; None where it has none that can be read."""
    if len(line) > LARGEST_LINE_BYTES:
        return None
    try:
        data = parse_json(line)
    except MalformedError as error:
        data = error.rest
    return _identifier(data) if isinstance(data, dict) else None


def _identifier(data: Json) -> str | int | None:
    given = data.get("id")
    return given if isinstance(given, str | int) and not isinstance(given, bool) else None


LARGEST_LINE_BYTES = int(MEGA)
"""A scenario has some hundred bytes; a line is refused by its length before it is read."""


def _parsed(line: str | bytes, *, number: int) -> dict[str, Any]:
    if len(line) > LARGEST_LINE_BYTES:
        reason = f"has {len(line) / KILO:,.0f} kB, allowed are {LARGEST_LINE_BYTES / KILO:,.0f}"
        raise RoofcastError(f"line {number} {reason}", code="malformed_json")
    try:
        data = parse_json(line)
    except MalformedError as error:
        if error.key:
            hint = "keep one of them"
            raise RoofcastError("is written twice", field=error.key, code="malformed_json", hint=hint) from None
        raise RoofcastError(f"line {number} is not JSON: {error.reason}", code="malformed_json") from None
    if not isinstance(data, dict):
        raise RoofcastError(f"line {number} holds no JSON object", code="malformed_json")
    return data


def serve(
    scenario: ScenarioSpec | Given | None = None,
    /,
    *,
    trace_steps: int = 0,
    profiles: str | None = None,
    progress: Progress | None = None,
    **fields: Unpack[ScenarioFields],
) -> ServeAnswer:
    """What clients see under a load, request by request: ``roofcast serve``.

    rate_per_s, duration_s : requests per second for so long, in place of ``workload`` with its stages
    objectives : bounds to check, such as ``{"ttft-p95": "2s"}``
    trace_steps : steps of each replica to keep
    """
    objectives = objectives_of(fields)
    spec = scenario_spec(scenario, fields, kind="serve", profiles=profiles)
    only_served(spec, "serve")
    options = ServeOptions(objectives=objectives, trace_steps=trace_steps, progress=progress)
    return ServeAnswer(answer(spec, profiles=profiles, options=options))


def objectives_of(fields: ScenarioFields) -> tuple[ObjectiveSpec, ...]:
    """Objectives among the keywords, which go before the scenario's own."""
    return parse_objectives(written_objectives(fields.pop("objectives", ())), flag="--slo")


def only_served(spec: ScenarioSpec, name: str) -> None:
    """Refuse the other kinds."""
    if spec.kind != "serve":
        raise RoofcastError(f"{spec.kind!r}; {name} takes kind serve", field="kind", hint="simulate answers the others")


def compare(
    scenario: ScenarioSpec | Given | None = None,
    /,
    *,
    changes: Sequence[str],
    price_kind: OfferKind | None = None,
    profiles: str | None = None,
    progress: Progress | None = None,
    **fields: Unpack[ScenarioFields],
) -> ComparisonAnswer:
    """What each change to a deployment is worth, in order and alone: ``roofcast compare``.

    changes : texts such as ``weights=fp8``, ``sparsity=2:4``, ``weights=int4 scheme=gptq-g128``, ``tp_size=2``
    """
    from simulator.planner.comparison import compare as compared
    from simulator.published.catalogue import printed_speedups
    from simulator.reports.tables.comparison import ComparisonAnswer
    from simulator.specs.question.scenario_file import parse_change

    parsed = [parse_change(text) for text in changes]
    spec = scenario_spec(scenario, fields, profiles=profiles)
    found = compared(spec, parsed, price_kind=price_kind, profiles=profiles, progress=progress)
    return ComparisonAnswer(found, printed_speedups(found.final.answered.scenario))


@dataclass(frozen=True, slots=True)
class CapacityAnswer(Answer):
    """The highest rate that holds the objectives, and every rate that was tried."""

    LISTED = "points"
    result: CapacityResult

    def to_dict(self) -> Json:
        """The document of ``roofcast capacity --json``."""
        return result_object(self.result)

    def to_text(self, *, assumptions: bool = False) -> str:
        """What ``roofcast capacity`` prints."""
        from simulator.reports.tables.capacity import capacity_text

        return capacity_text(self.result, listed=assumptions)

    def cells(self) -> Cells:
        """Columns and rows of the rates that were tried."""
        from simulator.reports.tables.capacity import points_cells

        return points_cells(self.result)

    def chart(self) -> Chart:
        """TTFT and TPOT over the rates that were tried."""
        from simulator.reports.charts.chart import lines_chart

        points = self.rows()
        lines = {name: [point.get(field) for point in points] for name, field in _POINT_LINES.items()}
        title = f"{self.result.rate_per_s:.4g} requests/s within the objectives"
        at = [float(point["rate_per_s"]) for point in points]
        return lines_chart("capacity", title, x="Rate [requests/s]", y="log p95 [s]", at=at, of=lines)


_POINT_LINES = {"TTFT": "ttft_p95_s", "TPOT": "tpot_p95_s", "E2E": "e2e_p95_s"}


def capacity(
    scenario: ScenarioSpec | Given | None = None,
    /,
    *,
    seeds: int = 5,
    requests: int | None = None,
    profiles: str | None = None,
    progress: Progress | None = None,
    **fields: Unpack[ScenarioFields],
) -> CapacityAnswer:
    """The highest request rate that a deployment serves within objectives, by simulation: ``roofcast capacity``.

    Stages keep their proportions; their rates are what is searched, so that ``rate_per_s`` is a start and no bound.

    seeds : independent runs at every rate; requests : of one run, None takes enough for the batch at capacity
    and for a queue that grows to show
    """
    from simulator.engine.runs.capacity import sustained_rate

    objectives = objectives_of(fields)
    spec = scenario_spec(scenario, fields, kind="serve", profiles=profiles)
    only_served(spec, "capacity")
    found = sustained_rate(
        spec, objectives=objectives, seeds=seeds, requests=requests, progress=progress, profiles=profiles
    )
    return CapacityAnswer(found)


@dataclass(frozen=True, slots=True)
class NumberedLine:
    """A line that is not blank, and its place in its file, from 1 on."""

    number: int
    content: bytes


@dataclass(frozen=True, slots=True)
class AnsweredLine:
    """One JSON document without its line end, and whether it is an error object."""

    text: str
    refused: bool


def numbered_lines(lines: Iterable[bytes]) -> Iterator[NumberedLine]:
    """Lines that hold something; a byte-order mark before the first is none of it."""
    for number, line in enumerate(lines, start=1):
        content = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if content.strip():
            yield NumberedLine(number, content.rstrip(b"\r\n"))


def answered_lines(
    lines: Iterable[NumberedLine], *, jobs: int = 1, timeout_s: float | None = None, profiles: str | None = None
) -> Iterator[AnsweredLine]:
    """The result object or the error object of each line, in their order, while they come.

    jobs : processes that answer; timeout_s : seconds that one line may take. One job without a limit is this process.
    """
    if jobs == 1 and timeout_s is None:
        for line in lines:
            yield _answered(line, profiles=profiles)
        return
    asked: deque[NumberedLine] = deque()

    def requests() -> Iterator[str]:
        for line in lines:
            asked.append(line)
            content = line.content.decode("utf-8", "surrogateescape")
            yield json.dumps([line.number, profiles, content])

    from simulator.processes import LineProcesses

    with LineProcesses(f"{__name__}:answer_request", jobs=jobs, timeout_s=timeout_s) as processes:
        for found in processes.answers(requests()):
            line = asked.popleft()
            if isinstance(found, RoofcastError):
                yield _refused(line, found)
            else:
                yield AnsweredLine(found[1:], found[0] == "1")


def answer_request(request: str) -> str:
    """What a process that answers lines does with one: its answer behind a 1 for error objects or a 0."""
    number, profiles, content = json.loads(request)
    line = NumberedLine(number, content.encode("utf-8", "surrogateescape"))
    found = _answered(line, profiles=profiles)
    return f"{found.refused:d}{found.text}"


def _answered(line: NumberedLine, *, profiles: str | None) -> AnsweredLine:
    document = simulate_line(line.content, number=line.number, profiles=profiles)
    return AnsweredLine(text=json.dumps(document, allow_nan=False), refused="error" in document)


def _refused(line: NumberedLine, error: RoofcastError) -> AnsweredLine:
    document = error_object(line_identifier(line.content), error)
    return AnsweredLine(text=json.dumps(document, allow_nan=False), refused=True)


def unanswered_lines(lines: Iterator[NumberedLine], *, answers: Iterable[bytes], where: str) -> Iterator[NumberedLine]:
    """What of ``lines`` an earlier run's ``answers`` leave, in order. Raises FileError: they answer other scenarios."""
    for held in answers:
        line = next(lines, None)
        if line is None or line_identifier(held) != line_identifier(line.content):
            raise FileError(
                f"{where} answers other scenarios" + ("" if line is None else f": line {line.number} has another id"),
                field=Option("resume"),
                hint="`force` starts anew",
            )
    return lines
