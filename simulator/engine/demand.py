"""From the workload of a scenario to the requests that it sends."""

from __future__ import annotations

import numpy as np

from simulator.engine.arrivals import stage_arrivals, trace_arrivals
from simulator.engine.lengths import LengthDistribution
from simulator.engine.prefixes import PrefixLists, grouped_prompts
from simulator.engine.request import Ints, Requests, make_requests
from simulator.engine.trace_files import RequestTrace, read_trace
from simulator.errors import RoofcastError
from simulator.specs.workload import WorkloadSpec


def _mean_prompt_tokens(workload: WorkloadSpec) -> int:
    if workload.question_tokens is not None:
        whole = workload.system_prompt_tokens + workload.question_tokens
        if workload.isl_tokens is not None and workload.isl_tokens != whole:
            raise RoofcastError(
                f"{workload.isl_tokens}, but system_prompt_tokens + question_tokens = {whole}",
                field="workload.isl_tokens",
                hint="give isl_tokens or question_tokens, not both",
            )
        return whole
    if workload.isl_tokens is None:
        raise RoofcastError(
            "a prompt length is needed", field="workload.isl_tokens", hint="or question_tokens", code="missing_field"
        )
    if workload.isl_tokens <= workload.system_prompt_tokens:
        raise RoofcastError(
            f"{workload.isl_tokens} leaves no question after a system prompt of {workload.system_prompt_tokens} tokens",
            field="workload.isl_tokens",
        )
    return workload.isl_tokens


def _lengths(mean_tokens: int, *, cv: float, count: int, rng: np.random.Generator) -> Ints:
    """Whole token counts, log-normal around the mean where they vary."""
    if cv == 0:
        return np.full(count, mean_tokens, dtype=np.int64)
    drawn = LengthDistribution(mean_tokens=mean_tokens, cv=cv).at(rng.standard_normal(count))
    return np.rint(drawn).astype(np.int64)


def _prompts(
    workload: WorkloadSpec, *, count: int, block_size_tokens: int, rng: np.random.Generator
) -> tuple[Ints, Ints, PrefixLists]:
    """Length and prefix list of each request, and the lists. Requests cycle through the distinct prompts in order."""
    system = workload.system_prompt_tokens
    question = _mean_prompt_tokens(workload) - system
    groups, per_group = workload.prompt_groups or 1, workload.prompts_per_group
    distinct = count if per_group is None else groups * per_group
    lengths = system + _lengths(question, cv=workload.isl_cv, count=distinct, rng=rng)
    lists = grouped_prompts(
        groups=groups,
        prompts_per_group=per_group,
        system_tokens=system,
        prompt_tokens=lengths,
        block_size_tokens=block_size_tokens,
    )
    order = np.arange(count)
    if per_group is None:
        return lengths, order % groups, lists
    return lengths[order % distinct], order % distinct, lists


def _trace_requests(workload: WorkloadSpec, trace: RequestTrace) -> Requests:
    """The trace as recorded, or scaled to each stage's rate; every prompt is new."""
    if not workload.stages:
        return make_requests(
            arrival_s=trace.arrival_s,
            prompt_tokens=trace.isl_tokens.astype(np.int64),
            output_tokens=trace.osl_tokens.astype(np.int64),
        )
    times, sources, stages = [], [], []
    ends_s = np.cumsum([stage.duration_s for stage in workload.stages])
    for index, stage in enumerate(workload.stages):
        offsets_s, source = trace_arrivals(stage, recorded_s=trace.arrival_s)
        times.append(ends_s[index] - stage.duration_s + offsets_s)
        sources.append(source)
        stages.append(np.full(len(source), index))
    source = np.concatenate(sources)
    return make_requests(
        arrival_s=np.concatenate(times),
        prompt_tokens=trace.isl_tokens[source].astype(np.int64),
        output_tokens=trace.osl_tokens[source].astype(np.int64),
        stage=np.concatenate(stages),
        stage_end_s=ends_s,
    )


def _refuse_idle_fields(workload: WorkloadSpec) -> None:
    """Options that would change nothing are errors."""
    if workload.arrival != "gamma" and workload.burstiness != 1:
        raise RoofcastError("has no effect unless arrival is gamma", field="workload.burstiness", code="ignored_option")
    if workload.arrival != "constant" and "spacing" in workload.model_fields_set:
        raise RoofcastError("has no effect unless arrival is constant", field="workload.spacing", code="ignored_option")
    if (workload.arrival == "trace") != (workload.trace is not None):
        raise RoofcastError("arrival trace and the file belong together", field="workload.trace", code="missing_field")
    if workload.arrival == "trace":
        for field in ("question_tokens", "isl_tokens", "osl_tokens", "prompt_groups", "prompts_per_group"):
            if getattr(workload, field) is not None:
                raise RoofcastError(
                    "lengths and prompts come from the trace", field=f"workload.{field}", code="ignored_option"
                )


def build_requests(workload: WorkloadSpec, *, block_size_tokens: int) -> Requests:
    """All requests of a workload in arrival order; the same seed gives the same requests."""
    _refuse_idle_fields(workload)
    if workload.trace is not None:
        return _trace_requests(workload, read_trace(workload.trace))
    if workload.osl_tokens is None:
        raise RoofcastError("an answer length is needed", field="workload.osl_tokens", code="missing_field")
    arrival_s, stage, stage_end_s = stage_arrivals(workload)
    count = len(arrival_s)
    # Lengths have a stream of their own, so that another arrival process meets the same prompts and answers.
    rng = np.random.default_rng([workload.seed, len(workload.stages)])
    prompts, prefix_list, lists = _prompts(workload, count=count, block_size_tokens=block_size_tokens, rng=rng)
    return make_requests(
        arrival_s=arrival_s,
        prompt_tokens=prompts,
        output_tokens=_lengths(workload.osl_tokens, cv=workload.osl_cv, count=count, rng=rng),
        stage=stage,
        stage_end_s=stage_end_s,
        prefix_list=prefix_list,
        list_start=lists.list_start,
        block_ids=lists.block_ids,
    )
