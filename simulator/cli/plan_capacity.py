"""The command ``plan-capacity``: from a model and a request rate to a fleet."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from enum import StrEnum
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated

import typer

from simulator.allocation import keep_freed_memory
from simulator.cli.shared import (
    HELP_ALL,
    PlanCommand,
    end_process,
    field_option,
    grouped,
    print_version,
    print_whole_help,
    run,
    run_process,
)
from simulator.errors import InfeasibleError, RoofcastError, contradiction, no_effect, one_line
from simulator.files import STANDARD_STREAM, check_target, write_text
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import WrittenField, written_fields

if TYPE_CHECKING:
    from simulator.cli.kept_answers import KeptAnswer
    from simulator.planner.capacity_plan import CapacityPlan
    from simulator.reports.model_plans import ModelPlansAnswer


class PlanOutput(StrEnum):
    """Forms of the answer."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"


_PANELS: Mapping[str, tuple[str, str]] = {
    "Demand": (
        "rate_per_s model isl_tokens osl_tokens trace workload peak_to_mean prefix_hit headroom",
        "isl_cv osl_cv cache_hit images_per_request image_pixels arrival_cv answers_per_request "
        "measured_rps_per_gpu measured_at",
    ),
    "Latency": ("objective", ""),
    "Replica": (
        "hardware weights tp_size engine",
        "activations kv_cache scheme pp_size max_num_seqs max_num_batched_tokens max_model_len "
        "gpu_memory_utilization power_cap_w kv_tiers",
    ),
    "Fleet": ("spares max_gpus", "confidence utilization round_to ownership"),
    "Prices": ("", "prices price_kind price_of provider"),
    "Search": (
        "",
        "search serving prefill_hardware encoder_hardware any_precision pareto pools any_technique speculation "
        "sparsity kv_policy weight_offload two_batch_overlap kv_allocation dp_size ep_size cp_size",
    ),
    "Limits of the fleet": ("", "max_cost_per_hour max_power_kw max_racks stock max_quality_loss"),
    "Gap": ("", "explain_gap"),
    "Resilience": ("", "resilience server_spares availability mtbf_hours mttr_hours ramp startup autoscaler_lag"),
    "Uncertainty": ("uncertainty verify", "demand_sigma draws seed"),
    "Growth and rental": ("growth", "horizon start lead_time rental load_profile weekend"),
    "Output": ("", "profiles"),
}
"""Fields by panel of the help: those of its short form, and the rest."""
_METAVARS = {
    "trace": "FILE",
    "workload": "KIND|FILE",
    "objective": "METRIC-pNN=TIME",
    "measured_at": "METRIC-pNN=TIME",
    "stock": "KIND=COUNT",
    "kv_tiers": "MEDIUM:BYTES",
    "start": "DATE",
    "load_profile": "H0,H1,...",
    "profiles": "DIR",
}
_FLAGS = {
    "rate_per_s": ("--rps", "--rate"),
    "model": ("--model", "-m"),
    "max_cost_per_hour": ("--max-cost-per-hour", "--budget"),
}
_OBJECTIVE = WrittenField(
    name="objective",
    text="A bound to hold, also written --ttft-p95 2s, --tpot-p99 50ms, --latency-p95 3s, --tpot-p95 reading.",
    several=True,
)
_MODELS = (
    "Name, Hugging Face id, config.json or its folder; several: what each step down saves and loses, or with "
    "NAME=SHARE a mix behind one router."
)


def plan_options() -> list[Parameter]:
    """An option for every field of a plan; objectives are texts, and models may be several."""
    fields = {**written_fields(PlanSpec), "objective": _OBJECTIVE}
    fields["model"] = replace(fields["model"], text=_MODELS, several=True)
    return [
        field_option(fields[name], flags=_FLAGS.get(name, ()), panel=panel, metavar=_METAVARS.get(name), hidden=hidden)
        for panel, short_and_rest in _PANELS.items()
        for hidden, names in zip((False, True), short_and_rest, strict=True)
        for name in names.split()
    ]


_OUTPUT = "Output"
Output = Annotated[PlanOutput, typer.Option("--output", help="Form of the answer.", rich_help_panel=_OUTPUT)]
AsJson = Annotated[bool, typer.Option("--json", help="Same as --output json.", rich_help_panel=_OUTPUT)]
Explain = Annotated[
    bool, typer.Option("--explain", help="Add the derivation and the refusals.", rich_help_panel=_OUTPUT)
]
Out = Annotated[
    str, typer.Option("--out", metavar="FILE", help='Write to a new file; "-" is stdout.', rich_help_panel=_OUTPUT)
]
Report = Annotated[
    str | None,
    typer.Option("--report", metavar="DIR", help="Write the whole report into a folder.", rich_help_panel=_OUTPUT),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files of --out and --report.", rich_help_panel=_OUTPUT)]
HelpAll = Annotated[
    bool, typer.Option(HELP_ALL, callback=print_whole_help, is_eager=True, help="Every option, each with its default.")
]
Version = Annotated[
    bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and stop.")
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show a traceback on errors.", rich_help_panel=_OUTPUT, hidden=True)
]


NAME = "plan-capacity"
EPILOG = "The same question again is looked up in the cache folder; ROOFCAST_CACHE=off plans it anew."

_THREE_WAYS = ("verify",)
"""Options whose no is an answer of its own."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(name=NAME, cls=PlanCommand, epilog=EPILOG)
@grouped(first=plan_options())
def plan_capacity(
    context: typer.Context,
    output: Output = PlanOutput.TABLE,
    as_json: AsJson = False,
    explain: Explain = False,
    out: Out = STANDARD_STREAM,
    report: Report = None,
    force: Force = False,
    help_all: HelpAll = False,
    version: Version = False,
    debug: Debug = False,
) -> None:
    """How many GPUs carry a request rate, at what cost, and why.

    Example: roofcast plan --rps 1000 --model llama-3.1-70b --tpot-p95 50ms
    """
    form = _form(output, as_json=as_json, explain=explain)
    # The target is checked first: nothing is computed for an answer that cannot be written.
    check_target(out, flag="--out", force=force)
    if report is not None:
        from simulator.api.reporting import check_report_target

        check_report_target(report, force=force, flag="--report")
    text = _answered(context, form=form, explain=explain, to_stdout=out == STANDARD_STREAM)
    write_text(text, out, force=force, flag="--out")


def _form(output: PlanOutput, *, as_json: bool, explain: bool) -> PlanOutput:
    if as_json and output not in (PlanOutput.TABLE, PlanOutput.JSON):
        raise contradiction(f"contradicts --output {output.value}: give one or the other", field="--json")
    if explain and output is PlanOutput.CSV:
        raise no_effect("changes nothing with --output csv", field="--explain", hint="")
    return PlanOutput.JSON if as_json else output


def _answered(context: typer.Context, *, form: PlanOutput, explain: bool, to_stdout: bool) -> str:
    """The plan as text; of a refusal, what belongs to stdout is printed before it goes on."""
    spec: PlanSpec | None = None
    try:
        spec = _question(context.params, form=form)
        return _answer(spec, context.params, form=form, explain=explain, program=context.command_path)
    except RoofcastError as error:
        if form is PlanOutput.JSON and to_stdout:
            from simulator.reports.tables.plan_document import error_document

            sys.stdout.write(error_document(error, spec=spec))
        elif isinstance(error, InfeasibleError):
            _print_gap(error)
        raise


def _question(parameters: Mapping[str, object], *, form: PlanOutput) -> PlanSpec:
    """The question that the options ask. Imports wait until there is something to do."""
    from simulator.specs.question.plan import PlanSpec, plan_spec

    flags: dict[str, object] = {}
    for name, value in parameters.items():
        if value is None or value == () or (value is False and name not in _THREE_WAYS) or name == "workload":
            continue
        if name == "model":
            if isinstance(value, list | tuple) and not _several(value):
                flags[name] = value[0]
            continue
        if name == "objective" and isinstance(value, list | tuple):
            flags.update(_objectives([str(item) for item in value]))
            continue
        if name == "measured_at" and isinstance(value, list | tuple):
            for text in value:
                _check_bound(str(text), flag="--measured-at")
        if name in PlanSpec.model_fields:
            flags[name] = tuple(value) if isinstance(value, list) else value
    if "ownership" in flags and parameters.get("report") is None and form is not PlanOutput.JSON:
        raise no_effect("changes nothing without --report or --json", field="--ownership", hint="")
    workload = parameters.get("workload")
    return plan_spec(flags, workload=None if workload is None else str(workload))


def _several(models: Sequence[str]) -> bool:
    """Whether more than one model is asked for, or one with a share, of which the sum is then checked."""
    from simulator.specs.question.plan_values import model_share

    try:
        return len(models) > 1 or model_share(models[0])[1] is not None
    except ValueError:
        return True


def _pulse() -> AbstractContextManager[object]:
    """A bar where somebody looks on; what nobody sees is not loaded."""
    if not sys.stderr.isatty():
        return nullcontext()
    from simulator.cli.progress import progress_bar

    return progress_bar("planning", pulses=True)


def _answer(spec: PlanSpec, parameters: Mapping[str, object], *, form: PlanOutput, explain: bool, program: str) -> str:
    folder, models = parameters.get("report"), parameters.get("model")
    several = tuple(models) if isinstance(models, list | tuple) and models and _several(models) else ()
    if several and (form is PlanOutput.CSV or explain):
        word = "--explain" if explain else "--output csv"
        raise RoofcastError("is of one model, and several are given", field=word, hint="plan each one by itself")
    if folder is None:
        from simulator.cli.kept_answers import digest_of, evaluations_kept, find_answer, keep_answer

        digest = digest_of(spec, form=(form, explain, *several))
        answer = find_answer(digest)
        if answer is None:
            keep_freed_memory()
            from simulator.api.planning import plan

            with _pulse():
                if several:
                    from simulator.api.planning import plan_models

                    answer = _composed_models(plan_models(several, spec), form=form)
                else:
                    with evaluations_kept(spec):
                        answer = _composed(plan(spec).plan, form=form, explain=explain)
            keep_answer(digest, answer)
    elif several:
        from simulator.api.reporting import reported_models

        with _pulse():
            own = reported_models(spec, several, out=str(folder), force=bool(parameters.get("force")), flag="--report")
        print(f"{program}: models.md and a report of each model in {folder}", file=sys.stderr)
        answer = _composed_models(own, form=form)
    else:
        from simulator.api.reporting import reported_plan

        with _pulse():
            found = reported_plan(spec, out=str(folder), force=bool(parameters.get("force")), flag="--report")
        # Where the files went is no result of the plan and goes to stderr.
        print(f"{program}: {len(found.files)} files in {folder}", file=sys.stderr)
        answer = _composed(found.plan, form=form, explain=explain)
    for warning in answer.warnings:
        print(f"{program}: warning: {warning}", file=sys.stderr)
    return answer.text


def _composed_models(found: ModelPlansAnswer, *, form: PlanOutput) -> KeptAnswer:
    from simulator.cli.kept_answers import KeptAnswer
    from simulator.cli.scenario_commands import one_line
    from simulator.reports.formats.markdown import sections_markdown

    match form:
        case PlanOutput.JSON:
            text = one_line(found.to_dict())
        case PlanOutput.MD:
            text = sections_markdown(found.sections(), currency=found.currency)
        case _:
            text = found.to_text()
    return KeptAnswer(text=text, warnings=found.warnings())


def _composed(plan: CapacityPlan, *, form: PlanOutput, explain: bool) -> KeptAnswer:
    from simulator.cli.kept_answers import KeptAnswer
    from simulator.reports.words.plan_inputs import warning_texts

    warnings = tuple(warning_texts(plan.warnings))
    match form:
        case PlanOutput.JSON:
            from simulator.reports.tables.plan_document import plan_document

            text = plan_document(plan)
        case PlanOutput.CSV:
            from simulator.api.planning import study_titles
            from simulator.reports.tables.plan_document import plan_csv

            text = plan_csv(plan)
            left_out = ", ".join(study_titles(plan))
            if left_out:
                warnings = (*warnings, f"--output csv lists fleets alone, not: {left_out}")
        case PlanOutput.MD:
            from simulator.api.planning import plan_markdown

            text = plan_markdown(plan, explain=explain)
        case PlanOutput.TABLE:
            from simulator.api.planning import plan_text

            text = plan_text(plan, explain=explain)
    return KeptAnswer(text=text, warnings=warnings)


def _print_gap(error: InfeasibleError) -> None:
    """What would close the gap is a result, though there is no plan."""
    from simulator.planner.gap.records import GapError

    if isinstance(error, GapError):
        from simulator.reports.formats.text import sections_text
        from simulator.reports.sections.gap import gap_sections

        print(sections_text(gap_sections(error.gap, currency=error.currency), currency=error.currency), end="")


def _objective(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise RoofcastError(f"METRIC-pNN=TIME is needed, such as ttft-p95=2s, got {text!r}", field="--objective")
    return name.strip(), value.strip()


def _check_bound(text: str, *, flag: str) -> None:
    """Refuse what is no percentile and time by the flag that was given, not in the words of a specification."""
    from simulator.specs.question.plan_values import parse_objectives

    try:
        parse_objectives([text], flag=flag)
    except RoofcastError as error:
        error.hint = error.hint or "percentiles lie between 0 and 100, times are such as 2s or 500ms: ttft-p95=2s"
        raise


def _objectives(texts: Sequence[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in map(_objective, texts):
        _check_bound(f"{name}={value}", flag=one_line(f"--{name}"))
        if found.setdefault(name, value) != value:
            raise contradiction(
                f"is given twice, as {found[name]} and {value}",
                field=f"--{name}",
                hint="keep the tighter one, which holds the other too",
            )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the console script; the exit code of a command on ``arguments``."""
    if arguments is None:
        end_process(run_process(app, name=NAME))
    return run(app, name=NAME, arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
