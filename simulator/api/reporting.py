"""``report`` and ``verify``: the paper of a plan that is signed, and its replay request by request."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.api.planning import PlanAnswer, plan_models, planned, specified
from simulator.errors import InfeasibleError, Option, ProfileError, RoofcastError, missing_field, plain_word, shown
from simulator.records import dataclass
from simulator.specs.question.plan_values import PROMISE_SEEDS
from simulator.units import MEGA

if TYPE_CHECKING:
    from simulator.api.questions import Given
    from simulator.planner.capacity_plan import CapacityPlan
    from simulator.planner.verification.promise import SignedFleet
    from simulator.reports.answers.promise import PromiseAnswer
    from simulator.reports.formats.files import ReportFormat
    from simulator.reports.model_plans import ModelPlansAnswer
    from simulator.specs.question.plan import PlanSpec

_HEAD_CHARACTERS, _OUT = 80, "--out"
_MOST_SEEDS = 100
_MOST_REPLICAS = int(MEGA)
_SAME = 1e-8
"""Relative difference of two figures that count as the same."""


@dataclass(frozen=True, slots=True)
class ReportAnswer(PlanAnswer):
    """A plan answered in full, and the files of its report."""

    files: tuple[Path, ...]


def _refused(error: InfeasibleError, *, spec: PlanSpec, out: str, flag: str) -> None:
    """Write the report of a question that no fleet answers; the error says where it is."""
    from simulator.reports.formats.files import write_refusal

    written = write_refusal(error, spec=spec, folder=out, flag=flag)
    error.add_note(f"no plan, {len(written)} files of the refusal in {out}")


def check_report_target(
    out: str, *, formats: str | None = None, force: bool = False, flag: str = _OUT
) -> tuple[ReportFormat, ...]:
    """The forms asked for. Refuses a folder that holds what would be written, before anything is computed."""
    from simulator.reports.formats.files import ALL_FORMATS, check_targets, parse_formats

    chosen = parse_formats(formats) if formats is not None else ALL_FORMATS
    check_targets(out, formats=chosen, force=force, flag=flag)
    return chosen


def report(
    question: PlanAnswer | PlanSpec | Given | str,
    *,
    out: str = "report",
    formats: str | None = None,
    ownership: str | None = None,
    force: bool = False,
) -> ReportAnswer:
    """Write the report of a plan into a folder: ``roofcast report``.

    question : an answer of `plan`, a plan document or a workload file by name, a specification or a mapping
    formats : comma-separated: html, pdf, xlsx, md, csv, json, handoff; None writes all, and a report of a refusal too
    ownership : figures of owning, a name or a YAML file

    Raises RoofcastError: the document holds no plan, or planning again gives other figures than it states.
    Raises InfeasibleError: no fleet answers the question.
    Raises FileError: files exist and ``force`` is not given, or cannot be written.
    """
    from simulator.reports.formats.files import write_reports
    from simulator.reports.words.fields import plan_command

    chosen = check_report_target(out, formats=formats, force=force)
    spec, document = _asked(question)
    try:
        found = _in_full(question, spec)
    except InfeasibleError as error:
        if formats is None:
            _refused(error, spec=spec, out=out, flag=_OUT)
        raise
    if document is not None and isinstance(question, str):
        _check(found, document, path=question)
    command = plan_command(spec)
    files = write_reports(
        found, folder=out, formats=chosen, command=command, force=force, ownership=ownership, flag=_OUT
    )
    return ReportAnswer(found, files)


def reported_plan(spec: PlanSpec, *, out: str, force: bool, flag: str) -> ReportAnswer:
    """The plan of ``spec`` without what only its report needs, after that was written; a refusal's is raised."""
    from simulator.planner.capacity_plan import only_asked
    from simulator.reports.formats.files import write_reports
    from simulator.reports.words.fields import plan_command

    try:
        found = _in_full(spec, spec)
    except InfeasibleError as error:
        _refused(error, spec=spec, out=out, flag=flag)
        raise
    files = write_reports(found, folder=out, command=plan_command(spec), force=force, flag=flag)
    return ReportAnswer(only_asked(found), files)


def reported_models(spec: PlanSpec, models: Sequence[str], *, out: str, force: bool, flag: str) -> ModelPlansAnswer:
    """`plan_models` after a report of each model's fleet was written, in a folder of its name, and of all together."""
    from simulator.reports.formats.files import MODELS_NAME, Rendered, drop_models, write_files, write_reports
    from simulator.reports.formats.markdown import sections_markdown
    from simulator.reports.words.fields import plan_command

    answer = plan_models(models, spec)
    names = [plain_word(item.name).replace("/", "-") for item, _ in answer.found.planned]
    for name, (_, found) in zip(names, answer.found.planned, strict=True):
        folder = str(Path(out) / name)
        write_reports(found, folder=folder, command=plan_command(found.spec), force=force, flag=flag)
    drop_models(out, kept=names)
    text = sections_markdown(answer.sections(), currency=answer.currency)
    write_files((Rendered(name=MODELS_NAME, data=text.encode()),), folder=out, flag=flag, instead_of=())
    return answer


def report_schema() -> str:
    """The JSON Schema of ``report.json``."""
    from importlib.resources import files

    return files("simulator.reports.templates").joinpath("report.schema.json").read_text("utf-8")


def verify(question: PlanAnswer | PlanSpec | Given | str, *, seeds: int = PROMISE_SEEDS) -> PromiseAnswer:
    """Replay a planned fleet request by request: ``roofcast verify``.

    question : as for `report`; of a plan document the fleet that it states is replayed, whatever would be planned now
    seeds : replays of each case, 2 to 100

    Raises RoofcastError: the document holds no plan, or its set-up serves the question no more.
    Raises InfeasibleError: no fleet answers the question.
    """
    from simulator.planner.verification.promise import SignedFleet, replayed_promise
    from simulator.reports.answers.promise import PromiseAnswer

    if not 2 <= seeds <= _MOST_SEEDS:
        raise RoofcastError(f"{seeds} is out of range; allowed: 2 to {_MOST_SEEDS}", field=Option("seeds"))
    spec, document = _asked(question)
    found = question.plan if isinstance(question, PlanAnswer) else planned(spec)
    stated = document.get("plan") if document is not None else None
    if not isinstance(stated, Mapping):
        best, first = found.best, found.best.pools[0]
        prefill = {"prefill_replicas": first.replicas, "prefill_spares": first.spares} if first.role else {}
        fleet = SignedFleet(
            hardware=best.hardware, label=best.label, replicas=best.replicas, spares=best.spares, **prefill
        )
        return PromiseAnswer(replayed_promise(found, fleet, seeds=seeds), ())
    fleet = _stated_fleet(stated)
    changes = tuple(_changes(found, document or {}))
    if (found.best.hardware, found.best.label) != (fleet.hardware, fleet.label):
        found = planned(spec.model_copy(update={**_stated_hardware(stated), "verify": False}))
    return PromiseAnswer(replayed_promise(found, fleet, seeds=seeds), changes)


def _stated_hardware(stated: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The accelerators of a document's fleet as a question names them, those of unlike pools in their order."""
    from simulator.specs.base import found_at

    housing = stated.get("housing")
    names = [found_at(item, "hardware") for item in housing] if isinstance(housing, list) else []
    if not names or not all(isinstance(name, str) for name in names):
        return {"hardware": (stated["hardware"],)}
    return {"hardware": (names[-1],), "prefill_hardware": tuple(names[:-1])}


def _stated_fleet(stated: Mapping[str, Any]) -> SignedFleet:
    from simulator.planner.verification.promise import SignedFleet

    for name in ("hardware", "setup"):
        if not isinstance(stated.get(name), str):
            raise missing_field("is missing or of another kind", field=f"plan.{name}", hint="make the plan anew")
    replicas, spares = _stated_counts(stated, field="plan")
    prefill = stated.get("prefill")
    if not isinstance(prefill, Mapping | None):
        raise missing_field("is of another kind", field="plan.prefill", hint="make the plan anew")
    first = _stated_counts(prefill, field="plan.prefill") if isinstance(prefill, Mapping) else (0, 0)
    return SignedFleet(
        hardware=stated["hardware"],
        label=stated["setup"],
        replicas=replicas,
        spares=spares,
        prefill_replicas=first[0],
        prefill_spares=first[1],
    )


def _stated_counts(stated: Mapping[str, Any], *, field: str) -> tuple[int, int]:
    """Replicas and spares of a pool."""
    found = []
    for name, least in (("replicas", 1), ("spare_replicas", 0)):
        value = stated.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise missing_field("is missing or of another kind", field=f"{field}.{name}", hint="make the plan anew")
        if not least <= value <= _MOST_REPLICAS:
            raise RoofcastError(
                f"{shown(value)} is out of range; allowed: {least} to {_MOST_REPLICAS:,}",
                field=f"{field}.{name}",
                hint="make the plan anew",
            )
        found.append(value)
    return found[0], found[1]


def _in_full(question: object, spec: PlanSpec) -> CapacityPlan:
    from simulator.planner.plan import answered_in_full, checked, completed
    from simulator.reports.words.fields import reason_in_words

    with reason_in_words():
        return checked(completed(question.plan) if isinstance(question, PlanAnswer) else answered_in_full(spec))


def _asked(question: PlanAnswer | PlanSpec | Given | str) -> tuple[PlanSpec, Mapping[str, Any] | None]:
    """The specification, and the document where one was named."""
    from simulator.specs.base import read_json

    if isinstance(question, PlanAnswer):
        return question.plan.spec, None
    if not isinstance(question, str) or not _holds_object(question):
        return specified(question, {}), None
    try:
        document = read_json(question)
    except ProfileError as error:
        raise RoofcastError(error.message, field="PLAN") from None
    inputs = document.get("inputs")
    if "error" in document and isinstance(inputs, Mapping):
        return specified(inputs, {}), None
    if "error" in document:
        said = document["error"].get("message", "") if isinstance(document["error"], Mapping) else document["error"]
        raise RoofcastError(f"{question} holds a refusal, not a plan: {said}", field="PLAN")
    if "plan" not in document and "schema_version" not in document:
        return specified(question, {}), None
    if not isinstance(inputs, Mapping):
        raise missing_field(
            f"{question} does not say which question it answers",
            field="PLAN",
            hint="make it with plan-capacity ... --json of this version, or give a workload file",
        )
    return specified(inputs, {}), document


def _holds_object(path: str) -> bool:
    """Whether a file is JSON, whatever it is called."""
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            head = file.read(_HEAD_CHARACTERS).lstrip()
            return head.startswith("{") or (not head and path.lower().endswith(".json"))
    except (OSError, UnicodeDecodeError):
        return path.lower().endswith(".json")


def _stated(document: Mapping[str, Any], found: CapacityPlan) -> Sequence[tuple[str, object]]:
    """(Field of a plan document or of a report's, what the plan says)."""
    fleet = found.best
    if document.get("kind") == "capacity_report":
        return ("totals.devices", fleet.devices), ("totals.cost_per_hour", fleet.cost.per_hour)
    return (
        ("plan.hardware", fleet.hardware),
        ("plan.devices", fleet.devices),
        ("plan.cost.per_hour", fleet.cost.per_hour),
    )


def _changes(found: CapacityPlan, document: Mapping[str, Any]) -> Iterator[tuple[str, object, object]]:
    """(Field, what the document holds, what planning again gives), where they differ."""
    from simulator.specs.base import found_at

    for name, now in _stated(document, found):
        before = found_at(document, name)
        same = before == now
        if isinstance(before, float) and isinstance(now, float):
            same = math.isclose(before, now, rel_tol=_SAME)
        if not same:
            yield name, before, now


def _check(found: CapacityPlan, document: Mapping[str, Any], *, path: str) -> None:
    """Refuse to report other figures than those that the document holds."""
    for name, before, now in _changes(found, document):
        raise RoofcastError(
            f"{path} says {before}, planning again gives {now}",
            field=name,
            code="plan_changed",
            hint="roofcast, a profile or a price list has changed since: make the plan anew",
        )
