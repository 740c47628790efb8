"""``roofcast validate`` and ``published``: how wrong predictions are; options that say what answered a benchmark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simulator.cli.progress import progress_bar
from simulator.cli.shared import AsJson, Profiles, grouped, own_options
from simulator.errors import Option, ignored_option, missing_field

if TYPE_CHECKING:
    from simulator.api.questions import ServedFields
    from simulator.reports.answer import Answer


class ValidationPart(StrEnum):
    """What ``roofcast validate`` scores."""

    ALL = "all"
    KERNELS = "kernels"
    END_TO_END = "end-to-end"


CHOICES = ("hardware", "engine", "model", "mode")
"""Options that choose among today's runs."""


SERVED = own_options(
    ("model", str, "The model."),
    ("tp_size", int, "Tensor-parallel size."),
    ("pp_size", int, "Pipeline stages."),
    ("dp_size", int, "Ranks of data-parallel attention."),
    ("ep_size", int, "Devices that share the experts."),
    ("cp_size", int, "Ranks that share a prompt's tokens."),
    ("engine", str, "Engine profile."),
    ("weights", str, "Number format of the weights."),
    ("kv_cache", str, "Number format of the KV cache."),
    ("scheme", str, "Quantization method, such as gptq-g128."),
    ("max_num_seqs", int, "Batch limit of the engine."),
    ("max_num_batched_tokens", int, "Token budget of a step."),
    ("max_model_len", int, "Longest request in tokens."),
    ("gpu_memory_utilization", float, "Share of memory the engine uses."),
    ("system_prompt_tokens", int, "That all prompts begin with."),
    panel="What served (with --from)",
)


def served_of(values: Mapping[str, Any]) -> ServedFields:
    """The options that were given."""
    given = {item.name: values[item.name] for item in SERVED if values.get(item.name) is not None}
    return given  # type: ignore[return-value]


@grouped(SERVED)
def validate(
    context: typer.Context,
    hardware: Annotated[str | None, typer.Option("--hardware", help="Only this accelerator.")] = None,
    today: Annotated[bool, typer.Option("--today", help="Closed loops of today's models on today's chips.")] = False,
    mode: Annotated[str | None, typer.Option("--mode", help="With --today: aggregated, mtp or disaggregated.")] = None,
    every: Annotated[int, typer.Option("--every", min=1, help="With --today: each n-th run.")] = 1,
    anew: Annotated[bool, typer.Option("--anew", help="With --today: predict each run now.")] = False,
    library: Annotated[
        list[str] | None, typer.Option("--library", help="Only this kernel library: vllm, sglang, trtllm, nccl, torch.")
    ] = None,
    part: Annotated[ValidationPart | None, typer.Option("--part", help="Only these errors.")] = None,
    bench: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="RESULT.json", help="Your result of InferenceX, vLLM bench, GuideLLM, AIPerf."),
    ] = None,
    speculation: Annotated[
        str | None, typer.Option("--speculation", help="With --from: guesses of what served, such as mtp.")
    ] = None,
    disaggregation: Annotated[
        str | None,
        typer.Option(
            "--disaggregation",
            metavar="POOLS",
            help="With --from: pools, such as prefill_replicas=2, decode_replicas=1, decode_dp_size=8.",
        ),
    ] = None,
    as_json: AsJson = False,
    profiles: Profiles = None,
) -> None:
    """Print the scorecards: kernel fits on shapes that they never saw, and whole runs that others measured.

    Example: roofcast validate --today --hardware b200 --engine vllm

    Without --part both are printed, with --library the kernels. --today scores by accelerator, engine, class of model
    and mode, and predicts each run now where the library has changed since it was stored (seconds to minutes); other
    runs are predicted anew from a source checkout: python -m validation.end_to_end --data DIR. With --from your own
    runs stand beside their predictions. --model and --engine choose with --today too.
    """
    sampled = {"mode": mode, "anew": anew, "every": every > 1}
    stored = {"library": library, "part": part}
    served, how = served_of(context.params), {"speculation": speculation, "disaggregation": disaggregation}
    found: Answer
    if bench:
        _refuse_idle({"today": today, **sampled, **stored}, beside="with --from")
        with progress_bar("predicting", pulses=True):
            found = _replayed(bench, hardware=hardware, how=how, served=served, profiles=profiles)
    elif today:
        chosen = {name: context.params[name] for name in CHOICES}
        idle = {name: value for name, value in served.items() if name not in CHOICES}
        _refuse_idle({**idle, **how, **stored}, beside="with --today")
        found = _today(chosen, anew=anew, every=every, profiles=profiles)
    else:
        _refuse_idle(sampled, beside="without --today")
        _refuse_idle({**served, **how}, beside="without --from")
        with progress_bar("predicting", pulses=True):
            found = _scorecard(part, hardware=hardware, libraries=library or (), profiles=profiles)
    typer.echo(json.dumps(found.to_dict(), allow_nan=False) + "\n" if as_json else found.to_text(), nl=False)


def published(
    topic: Annotated[
        str | None, typer.Option("--topic", help="roofline, attention, kv-cache, quantization, speculation, engines...")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the figures of papers and vendors beside the predictions: error, source, and the recipe of each.

    Example: roofcast published --topic quantization
    """
    from simulator.api.published import published as answer

    found = answer(topic)
    typer.echo(json.dumps(found.to_dict(), allow_nan=False) + "\n" if as_json else found.to_text(), nl=False)


def _refuse_idle(given: Mapping[str, object], *, beside: str) -> None:
    for name, value in given.items():
        if value:
            raise ignored_option(f"has no effect {beside}", field=Option(name))


def _replayed(
    results: Sequence[str],
    *,
    hardware: str | None,
    how: Mapping[str, str | None],
    served: ServedFields,
    profiles: str | None,
) -> Answer:
    from simulator.api.measurements import replay

    if hardware is None:
        raise missing_field("is missing", field="--hardware", hint="what the benchmark ran on")
    return replay(results, hardware=hardware, profiles=profiles, **how, **served)


def _today(chosen: Mapping[str, str | None], *, anew: bool, every: int, profiles: str | None) -> Answer:
    from simulator.api import scored_runs
    from simulator.specs.hardware.accelerator import load_hardware
    from simulator.specs.measured.validation_rows import RunChoice

    hardware = chosen["hardware"]
    name = load_hardware(hardware, profiles=profiles).name if hardware else None
    choice = RunChoice(**{**chosen, "hardware": name})
    with progress_bar("predicting", pulses=True) as progress:
        return scored_runs.today(choice, anew=anew, every=every, profiles=profiles, report=progress)


def _scorecard(
    part: ValidationPart | None, *, hardware: str | None, libraries: Sequence[str], profiles: str | None
) -> Answer:
    from simulator.api import measurements

    chosen = part or (ValidationPart.KERNELS if libraries else ValidationPart.ALL)
    return measurements.scorecard(
        hardware=hardware,
        libraries=libraries,
        kernels=chosen is not ValidationPart.END_TO_END,
        end_to_end=chosen is not ValidationPart.KERNELS,
        profiles=profiles,
    )
