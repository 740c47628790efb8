"""The points of a sweep, answered: in processes of this machine, or by the workers of a Dask or Ray cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

from simulator.errors import FileError, MissingPackageError, Option, RoofcastError
from simulator.processes import LineProcesses
from simulator.records import dataclass
from simulator.reports.answers.sweep import Row, SweepColumn
from simulator.specs.base import found_at
from simulator.specs.question.sweep import Point, SweepPoints, SweepSpec, asked_fields

SCHEMES = ("dask", "ray")
_CONNECT_S = 10
"""Seconds in which a cluster has to answer its first call."""
PARTS_ARE_KEPT = "finished parts are kept; `resume` goes on with them"
_AHEAD = 256
"""Parts that a cluster knows of before the first is answered: more than it has workers, less than it would forget."""

ERROR_COLUMNS = tuple(SweepColumn(f"error.{name}", "text") for name in ("code", "field", "message"))
_PERCENTILES = tuple(f"{name}_{point}_s" for name in ("ttft", "tpot", "e2e") for point in ("p50", "p90", "p95", "p99"))
_SCENARIO_NUMBERS = (
    *("ttft_s", "tpot_s", "e2e_s", *_PERCENTILES),
    *("output_tokens_per_s", "total_tokens_per_s", "requests_per_s", "mean_batch", "kv_utilization", "preemptions"),
    *("power_w", "energy_per_output_token_j", "prefill.mfu", "decode.mfu", "decode.mbu"),
    *("memory.weights_bytes", "memory.kv_capacity_tokens"),
)
_BOUNDED = ("ttft_s", "tpot_s", "e2e_s", "output_tokens_per_s")
_PLAN_NUMBERS = (
    *("devices", "replicas", "spare_replicas", "idle_devices", "utilization", "power_typical_w"),
    *("cost.per_hour", "cost.per_million_output_tokens", "at_peak.ttft_p95_s", "at_peak.tpot_p95_s"),
)
ANSWER_COLUMNS: Mapping[str, tuple[SweepColumn, ...]] = {
    "scenario": (
        *(SweepColumn(name, "number") for name in _SCENARIO_NUMBERS),
        *(SweepColumn(f"{name}.{end}", "number") for name in _BOUNDED for end in ("low", "high")),
        *(SweepColumn(name, "text") for name in ("decode.bound", "provenance")),
    ),
    "plan": (
        *(SweepColumn(f"plan.{name}", "number") for name in _PLAN_NUMBERS),
        *(SweepColumn(f"plan.{name}", "text") for name in ("hardware", "setup", "limited_by", "provenance")),
    ),
}
"""What a point's answer leaves in the table, by what was asked: fields of the JSON documents, by their dotted names."""


def _scenario_row(fields: dict[str, Any], profiles: str | None) -> Row:
    from simulator.api.scenarios import simulate

    document = simulate(fields, profiles=profiles).to_dict()
    interval = document["interval"]
    # Percentiles of a served workload stand in its whole run.
    figures = {**document.get("overall", {}), **document}
    ends = {f"{name}.{end}": (interval.get(name) or (None, None))[place] for name in _BOUNDED for place, end in _ENDS}
    return ends | {
        column.name: found_at(figures, column.name) for column in ANSWER_COLUMNS["scenario"] if column.name not in ends
    }


_ENDS = ((0, "low"), (1, "high"))


def _plan_row(fields: dict[str, Any], profiles: str | None) -> Row:
    from simulator.api.planning import plan

    document = plan({**fields, "profiles": profiles} if profiles else fields).to_dict()
    return {column.name: found_at(document, column.name) for column in ANSWER_COLUMNS["plan"]}


def check_point(spec: SweepSpec, point: Point, *, profiles: str | None = None) -> None:
    """Refuse a point whose fields do not make a question, without answering it."""
    from simulator.api.questions import plan_question, scenario_spec
    from simulator.specs.engine.engine import DEFAULT_ENGINE, load_engine

    fields = asked_fields(spec.base, point)
    if spec.ask == "plan":
        engine = plan_question(None, fields).engine or DEFAULT_ENGINE
    else:
        engine = scenario_spec(None, fields, profiles=profiles).engine.name
    load_engine(engine, profiles=profiles)


def point_request(spec: SweepSpec, point: Point, *, profiles: str | None) -> str:
    """A point as one line for the process that answers it."""
    return json.dumps([spec.ask, asked_fields(spec.base, point), profiles])


def answer_point(request: str) -> str:
    """What such a process does: the answer's columns as one line, or the error's."""
    ask, fields, profiles = json.loads(request)
    try:
        return json.dumps(_plan_row(fields, profiles) if ask == "plan" else _scenario_row(fields, profiles))
    except RoofcastError as error:
        return json.dumps(_error_row(error))
    except Exception as error:  # whatever one point does, the others are answered
        return json.dumps(_error_row(RoofcastError(f"{type(error).__name__}: {error}", code="internal_error")))


def _error_row(error: RoofcastError) -> Row:
    from simulator.reports.words.fields import error_content

    content = error_content(error)
    return {column.name: content[column.name.partition(".")[2]] for column in ERROR_COLUMNS}


def answered_points(requests: Iterable[str], *, jobs: int, timeout_s: float | None) -> Iterator[Row]:
    """The columns of each request's answer, in their order; late ones and those that end their process are errors."""
    with LineProcesses(f"{__name__}:answer_point", jobs=jobs, timeout_s=timeout_s) as processes:
        for answer in processes.answers(requests):
            yield _error_row(answer) if isinstance(answer, RoofcastError) else json.loads(answer)


@dataclass(frozen=True, slots=True)
class PartTask:
    """A part for a worker of a cluster: which of a sweep's points, and how long one of them may take."""

    number: int
    sweep: str
    first: int
    last: int
    profiles: str | None
    timeout_s: float | None


def answer_part(task: PartTask) -> tuple[int, list[Row]]:
    """What a worker of a cluster does: one part after another, each point in a process that may be stopped."""
    spec = SweepSpec.model_validate_json(task.sweep)
    points = SweepPoints(spec)
    requests = (point_request(spec, points[place], profiles=task.profiles) for place in range(task.first, task.last))
    return task.number, list(answered_points(requests, jobs=1, timeout_s=task.timeout_s))


Answered = Iterator[tuple[int, list[Row]]]
"""Parts and their rows in any order, each once."""


@contextmanager
def cluster(backend: str) -> Iterator[Callable[[Iterable[PartTask]], Answered]]:
    """What answers parts on the cluster of ``dask://host:port`` or ``ray://host:port`` while the block lasts.

    A part whose worker dies is given to another one.

    Raises RoofcastError: the scheme is another, or its package is not installed.
    Raises FileError: nobody answers there; in the block: the cluster gave a part up, or went away.
    """
    scheme, separator, address = backend.partition("://")
    if scheme not in SCHEMES or not separator or not address:
        raise RoofcastError(
            f"{backend!r}; allowed: dask://host:port, ray://host:port", field=Option("backend"), hint="or leave it out"
        )
    with _dask(address) if scheme == "dask" else _ray(backend) as run:

        def answered(tasks: Iterable[PartTask]) -> Answered:
            try:
                yield from run(tasks)
            except Exception as error:  # engines raise what they like; what was answered is on the disk by now
                raise FileError(
                    f"the cluster gave up: {type(error).__name__}: {error}",
                    field=Option("backend"),
                    hint=PARTS_ARE_KEPT,
                ) from error

        yield answered


def _missing(package: str) -> MissingPackageError:
    return MissingPackageError(
        f"needs {package}", field=Option("backend"), hint=f"install the extra: pip install '.[{package}]'"
    )


def _unreachable(address: str, error: BaseException) -> FileError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return FileError(f"no cluster answers at {address}: {reason}", field=Option("backend"))


@contextmanager
def _dask(address: str) -> Iterator[Callable[[Iterable[PartTask]], Answered]]:
    try:
        import distributed
    except ImportError:
        raise _missing("dask") from None
    try:
        client: Any = distributed.Client(f"tcp://{address}", timeout=_CONNECT_S)  # type: ignore[no-untyped-call, unused-ignore]
    except (OSError, ValueError) as error:
        raise _unreachable(address, error) from None

    def run(tasks: Iterable[PartTask]) -> Answered:
        left = iter(tasks)
        sent: Any = distributed.as_completed([])  # type: ignore[no-untyped-call, unused-ignore]
        for task in islice(left, _AHEAD):
            sent.add(client.submit(answer_part, task, pure=False))
        for future in sent:
            yield future.result()
            for task in islice(left, 1):
                sent.add(client.submit(answer_part, task, pure=False))

    with client:
        yield run


@contextmanager
def _ray(backend: str) -> Iterator[Callable[[Iterable[PartTask]], Answered]]:
    try:
        import ray
        from ray.util.multiprocessing import Pool
    except ImportError:
        raise _missing("ray") from None
    try:
        ray.init(address=backend, log_to_driver=False)
    except (OSError, ValueError, RuntimeError) as error:
        raise _unreachable(backend, error) from None
    try:
        # Actors that are started again where they die, their part with them.
        pool = Pool(ray_remote_args={"max_restarts": -1, "max_task_retries": -1})
        yield lambda tasks: pool.imap_unordered(answer_part, tasks)
        pool.terminate()
    finally:
        ray.shutdown()
