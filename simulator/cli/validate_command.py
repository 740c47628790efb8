"""``roofcast validate`` and ``published``: how wrong predictions are; options that say what answered a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simulator.cli.progress import progress_bar
from simulator.cli.shared import AsJson, Own, Profiles, grouped, own_options, values_of
from simulator.errors import Option, ignored_option, missing_field

if TYPE_CHECKING:
    from simulator.reports.answer import Answer


CHOICES = ("hardware", "engine", "model", "mode")
"""Options that choose among today's runs."""


SERVED = own_options(
    Own("model", str, "The model."),
    Own("tp_size", int, "Tensor-parallel size."),
    Own("pp_size", int, "Pipeline stages."),
    Own("dp_size", int, "Ranks of data-parallel attention."),
    Own("ep_size", int, "Devices that share the experts."),
    Own("cp_size", int, "Ranks that share a prompt's tokens."),
    Own("engine", str, "Engine profile."),
    Own("engine_version", str, "Its release. Default: the profile's."),
    Own("weights", str, "Number format of the weights."),
    Own("kv_cache", str, "Number format of the KV cache."),
    Own("scheme", str, "Quantization method, such as gptq-g128."),
    Own("max_num_seqs", int, "Batch limit of the engine."),
    Own("max_num_batched_tokens", int, "Token budget of a step."),
    Own("max_model_len", int, "Longest request in tokens."),
    Own("gpu_memory_utilization", float, "Share of memory the engine uses."),
    Own("system_prompt_tokens", int, "That all prompts begin with."),
    panel="What served (with --from)",
)


KERNELS, END_TO_END = "kernels", "end-to-end"
TODAY = own_options(
    Own("today", bool, "Closed loops of today's models on today's chips."),
    Own("mode", str, "With --today: aggregated, mtp or disaggregated."),
    Own("every", int, "With --today: each n-th run.", 1),
    Own("anew", bool, "With --today: predict each run now."),
)
STORED = own_options(
    Own("library", str, "Only this kernel library: vllm, sglang, trtllm, nccl, torch.", several=True),
    Own("part", ("all", KERNELS, END_TO_END), "Only these errors."),
)
BENCH = own_options(
    Own(
        "bench",
        str,
        "Your result of InferenceX, vLLM bench, GuideLLM, AIPerf.",
        flag="--from RESULT.json",
        several=True,
    )
)
HOW = own_options(
    Own("speculation", str, "With --from: guesses of what served, such as mtp."),
    Own(
        "disaggregation",
        str,
        "With --from: pools, such as prefill_replicas=2, decode_replicas=1, decode_dp_size=8.",
        flag="--disaggregation POOLS",
    ),
)


@grouped(SERVED, first=[*TODAY, *STORED, *BENCH, *HOW])
def validate(
    context: typer.Context,
    hardware: Annotated[str | None, typer.Option("--hardware", help="Only this accelerator.")] = None,
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
    given = context.params
    anew, every = given["anew"], given["every"]
    sampled = {"mode": given["mode"], "anew": anew, "every": every > 1}
    stored, how, served = (values_of(given, options) for options in (STORED, HOW, SERVED))
    found: Answer
    if given["bench"]:
        _refuse_idle({"today": given["today"], **sampled, **stored}, beside="with --from")
        with progress_bar("predicting", pulses=True):
            found = _replayed(given["bench"], hardware=hardware, served={**how, **served}, profiles=profiles)
    elif given["today"]:
        chosen = {name: given[name] for name in CHOICES}
        idle = {name: value for name, value in served.items() if name not in CHOICES}
        _refuse_idle({**idle, **how, **stored}, beside="with --today")
        found = _today(chosen, anew=anew, every=every, profiles=profiles)
    else:
        _refuse_idle(sampled, beside="without --today")
        _refuse_idle({**served, **how}, beside="without --from")
        with progress_bar("predicting", pulses=True):
            found = _scorecard(**stored, hardware=hardware, profiles=profiles)
    typer.echo(found.as_printed(as_json=as_json), nl=False)


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
    typer.echo(found.as_printed(as_json=as_json), nl=False)


def _refuse_idle(given: Mapping[str, object], *, beside: str) -> None:
    for name, value in given.items():
        if value:
            raise ignored_option(f"has no effect {beside}", field=Option(name))


def _replayed(results: Sequence[str], *, hardware: str | None, served: dict[str, Any], profiles: str | None) -> Answer:
    from simulator.api.measurements import replay

    if hardware is None:
        raise missing_field("is missing", field="--hardware", hint="what the benchmark ran on")
    return replay(results, hardware=hardware, profiles=profiles, **served)


def _today(chosen: Mapping[str, str | None], *, anew: bool, every: int, profiles: str | None) -> Answer:
    from simulator.api import scored_runs
    from simulator.specs.hardware.accelerator import load_hardware
    from simulator.specs.measured.validation_rows import RunChoice

    hardware = chosen["hardware"]
    name = load_hardware(hardware, profiles=profiles).name if hardware else None
    choice = RunChoice(**{**chosen, "hardware": name})
    with progress_bar("predicting", pulses=True) as progress:
        return scored_runs.today(choice, anew=anew, every=every, profiles=profiles, report=progress)


def _scorecard(*, part: str = "", library: Sequence[str] = (), hardware: str | None, profiles: str | None) -> Answer:
    from simulator.api import measurements

    chosen = part or (KERNELS if library else "all")
    return measurements.scorecard(
        hardware=hardware,
        libraries=library,
        kernels=chosen != END_TO_END,
        end_to_end=chosen != KERNELS,
        profiles=profiles,
    )
