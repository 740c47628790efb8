"""From the workload of a scenario, or a mix, to the requests that it sends; and the same requests at another rate."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from statistics import NormalDist

import numpy as np

from simulator.allocation import kept_within
from simulator.errors import RoofcastError, contradiction, ignored_option, missing_field
from simulator.specs.question.workload import WorkloadSpec
from simulator.traffic.arrivals import conversation_requests, stage_arrivals, trace_arrivals
from simulator.traffic.lengths import LARGEST_TOKENS, LengthDistribution, RequestMix, whole_lengths
from simulator.traffic.recorded.trace_formats import HASH_BLOCK_TOKENS
from simulator.traffic.recorded.traces import RequestTrace, read_trace
from simulator.traffic.requests import (
    NO_PREFIX,
    Floats,
    Ints,
    PrefixLists,
    Requests,
    check_workload_size,
    grouped_prompts,
    hashed_prompts,
    make_requests,
    repeated,
)
from simulator.units import MIB


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
        raise missing_field("a prompt length is needed", field="workload.isl_tokens", hint="or question_tokens")
    if workload.isl_tokens <= workload.system_prompt_tokens:
        raise RoofcastError(
            f"{workload.isl_tokens} leaves no question after a system prompt of {workload.system_prompt_tokens} tokens",
            field="workload.isl_tokens",
        )
    return workload.isl_tokens


def _prompts(
    workload: WorkloadSpec, *, count: int, block_size_tokens: int, context_tokens: float, rng: np.random.Generator
) -> tuple[Ints, Ints, PrefixLists]:
    """Length and prefix list of each request, and the lists. Requests cycle through the distinct prompts in order."""
    system = workload.system_prompt_tokens
    question = _mean_prompt_tokens(workload) - system
    groups, per_group = workload.prompt_groups or 1, workload.prompts_per_group
    siblings = per_group is None and workload.answers_per_request > 1
    if siblings:
        # Every question is new, and yet asked more than once: it needs a list of its own.
        per_group = -(-count // groups)
    distinct = count if per_group is None else groups * per_group
    longest = context_tokens - system - (workload.osl_tokens or 0)
    lengths = whole_lengths(question, cv=workload.isl_cv, count=distinct, rng=rng, longest_tokens=longest)
    lengths += system
    lists = grouped_prompts(
        groups=groups,
        prompts_per_group=per_group,
        system_tokens=system,
        prompt_tokens=lengths,
        block_size_tokens=block_size_tokens,
    )
    if per_group is None:
        return lengths, repeated(np.int32(0), count) if groups == 1 else np.arange(count) % groups, lists
    order = np.arange(count)
    chosen = order % groups * per_group + order // groups if siblings else order % distinct
    return lengths[chosen], chosen, lists


def _trace_requests(workload: WorkloadSpec, trace: RequestTrace, *, block_size_tokens: int) -> Requests:
    """The trace as recorded, or scaled to each stage's rate; turns that wait for answers are sent when those come."""
    if workload.stages:
        trace.check_rate_is_its_own("workload.stages")
    times, stages = trace.arrival_s, None
    source = np.arange(len(times))
    stage_end_s = None
    if workload.stages:
        parts = [trace_arrivals(stage, recorded_s=trace.arrival_s) for stage in workload.stages]
        stage_end_s = np.cumsum([stage.duration_s for stage in workload.stages])
        starts_s = stage_end_s - [stage.duration_s for stage in workload.stages]
        times = np.concatenate([start + offsets for start, (offsets, _) in zip(starts_s, parts, strict=True)])
        source = np.concatenate([chosen for _, chosen in parts])
        stages = np.repeat(np.arange(len(parts)), [len(chosen) for _, chosen in parts])
    lists = _trace_prefixes(workload, trace, block_size_tokens=block_size_tokens)
    return make_requests(
        arrival_s=times,
        prompt_tokens=trace.isl_tokens[source].astype(np.int64),
        output_tokens=trace.osl_tokens[source].astype(np.int64),
        stage=stages,
        stage_end_s=stage_end_s,
        # The system prompt is one list for all; hashes are a list for each request.
        prefix_list=None if lists is None else source if trace.hashes is not None else np.zeros_like(source),
        list_start=None if lists is None else lists.list_start,
        block_ids=None if lists is None else lists.block_ids,
        previous=trace.previous,
        think_s=trace.wait_s,
    )


def _trace_prefixes(workload: WorkloadSpec, trace: RequestTrace, *, block_size_tokens: int) -> PrefixLists | None:
    """What the prompts of a trace share: what its hashes say, else a system prompt."""
    if trace.hashes is not None:
        if workload.system_prompt_tokens:
            raise ignored_option(
                "has no effect beside a trace whose hashes say what prompts share",
                field="workload.system_prompt_tokens",
            )
        return hashed_prompts(trace.hashes, hash_block_tokens=HASH_BLOCK_TOKENS, block_size_tokens=block_size_tokens)
    if not workload.system_prompt_tokens:
        return None
    shortest = int(trace.isl_tokens.min())
    if workload.system_prompt_tokens >= shortest:
        raise RoofcastError(
            f"{workload.system_prompt_tokens} leaves no question in the trace's shortest prompt of {shortest} tokens",
            field="workload.system_prompt_tokens",
        )
    return grouped_prompts(
        groups=1,
        prompts_per_group=None,
        system_tokens=workload.system_prompt_tokens,
        prompt_tokens=trace.isl_tokens.astype(np.int64),
        block_size_tokens=block_size_tokens,
    )


def _drawn_requests(workload: WorkloadSpec, path: str, *, rng: np.random.Generator) -> Requests:
    """Arrivals of the workload; prompt and answer lengths of requests drawn from a trace. Every prompt is new."""
    trace = read_trace(path, field="workload.lengths_trace")
    arrival_s, stage, stage_end_s = stage_arrivals(workload)
    drawn = rng.integers(0, len(trace.arrival_s), size=len(arrival_s))
    return make_requests(
        arrival_s=arrival_s,
        prompt_tokens=trace.isl_tokens[drawn].astype(np.int64),
        output_tokens=trace.osl_tokens[drawn].astype(np.int64),
        stage=stage,
        stage_end_s=stage_end_s,
    )


LENGTH_FIELDS = ("question_tokens", "isl_tokens", "osl_tokens", "prompt_groups", "prompts_per_group")


def _refuse(workload: WorkloadSpec, fields: tuple[str, ...], *, reason: str) -> None:
    for field in fields:
        if getattr(workload, field) is not None:
            raise ignored_option(reason, field=f"workload.{field}")


def _refuse_idle_fields(workload: WorkloadSpec) -> None:
    """Options that would change nothing are errors."""
    if workload.arrival != "gamma" and workload.burstiness != 1:
        raise ignored_option("has no effect unless arrival is gamma", field="workload.burstiness", hint="")
    if workload.arrival != "constant" and "spacing" in workload.model_fields_set:
        raise ignored_option("has no effect unless arrival is constant", field="workload.spacing", hint="")
    if (workload.arrival == "trace") != (workload.trace is not None):
        raise missing_field("arrival trace and the file belong together", field="workload.trace")
    if workload.trace is not None or workload.lengths_trace is not None:
        _refuse(workload, LENGTH_FIELDS, reason="lengths and prompts come from the trace")
    if workload.trace is not None:
        _refuse(workload, ("lengths_trace", "conversation"), reason="has no effect beside a trace")
    if workload.lengths_trace is not None:
        _refuse(workload, ("conversation",), reason="turns take their lengths from question_tokens and osl_tokens")
    if workload.conversation is not None:
        _refuse(workload, ("isl_tokens", "prompts_per_group"), reason="a turn's prompt follows from those before it")
    if workload.answers_per_request > 1 and (workload.trace or workload.lengths_trace or workload.conversation):
        raise contradiction(
            "needs requests of drawn lengths, without a trace or turns", field="workload.answers_per_request"
        )


def _answers(workload: WorkloadSpec, prompts: Ints, *, context_tokens: float, rng: np.random.Generator) -> Ints:
    """Answer lengths beside these prompts; where lengths vary, an answer ends with the context."""
    mean, cv = workload.osl_tokens or 1, workload.osl_cv
    longest = context_tokens - _mean_prompt_tokens(workload)
    answers = whole_lengths(mean, cv=cv, count=len(prompts), rng=rng, longest_tokens=longest)
    if context_tokens == inf or (cv == 0 and workload.isl_cv == 0):
        return answers
    # Nobody takes longer ones, so that no sum leaves the range of its numbers.
    room = np.maximum(int(min(context_tokens, LARGEST_TOKENS)) - prompts, 1)
    ended: Ints = np.minimum(answers, room)
    return ended


def build_requests(workload: WorkloadSpec, *, block_size_tokens: int, context_tokens: float = inf) -> Requests:
    """All requests of a workload in arrival order; the same seed gives the same requests.

    context_tokens : where drawn lengths end, see ``LengthDistribution``; those of a trace and equal ones stay
    """
    _refuse_idle_fields(workload)
    check_workload_size(workload, block_size_tokens=block_size_tokens)
    if workload.trace is not None:
        return _trace_requests(workload, read_trace(workload.trace), block_size_tokens=block_size_tokens)
    # Lengths have a stream of their own, so that another arrival process meets the same prompts and answers.
    rng = np.random.default_rng([workload.seed, len(workload.stages)])
    if workload.lengths_trace is not None:
        return _drawn_requests(workload, workload.lengths_trace, rng=rng)
    if workload.osl_tokens is None:
        raise missing_field("an answer length is needed", field="workload.osl_tokens")
    arrival_s, stage, stage_end_s = stage_arrivals(workload)
    if workload.conversation is not None:
        return conversation_requests(
            workload,
            workload.conversation,
            arrival_s=arrival_s,
            stage=stage,
            stage_end_s=stage_end_s,
            block_size_tokens=block_size_tokens,
            rng=rng,
        )
    count = len(arrival_s)
    prompts, prefix_list, lists = _prompts(
        workload, count=count, block_size_tokens=block_size_tokens, context_tokens=context_tokens, rng=rng
    )
    # An engine makes a sequence of every answer; those of one request arrive together and find the same blocks.
    if workload.answers_per_request > 1:
        arrival_s, stage, prompts, prefix_list = (
            np.repeat(values, workload.answers_per_request) for values in (arrival_s, stage, prompts, prefix_list)
        )
    return make_requests(
        arrival_s=arrival_s,
        prompt_tokens=prompts,
        output_tokens=_answers(workload, prompts, context_tokens=context_tokens, rng=rng),
        stage=stage,
        stage_end_s=stage_end_s,
        prefix_list=prefix_list,
        list_start=lists.list_start,
        block_ids=lists.block_ids,
    )


PREFIX_GROWTH = 1.02
"""Ratio between neighbouring lengths of cached prefixes; a request takes the one that is nearest to its share."""


def _cached_prefixes(prompts: Ints, *, fraction: float, block_size_tokens: int) -> tuple[Ints, Ints, Ints]:
    """Prefix list of each request, and lists that are beginnings of one another, so that the longest serves all."""
    blocks = np.rint(fraction * prompts / block_size_tokens).astype(np.int64)
    powers = np.arange(1 + int(np.log(max(int(blocks.max()), 1)) / np.log(PREFIX_GROWTH)))
    lengths = np.unique(np.append(PREFIX_GROWTH**powers, (0, blocks.max())).astype(np.int64))
    lists = np.searchsorted((lengths[1:] + lengths[:-1]) / 2, blocks, side="right")
    starts = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.concatenate([np.arange(length) for length in lengths])
    return np.where(lengths[lists] > 0, lists, NO_PREFIX), starts, ids


@kept_within(most=16, most_bytes=16 * MIB)
def _quantiles(count: int) -> Floats:
    """Standard normal deviates at the middle of ``count`` equally likely strata."""
    inverse = NormalDist().inv_cdf
    return np.array([inverse((place + 1 / 2) / count) for place in range(count)])


def _even_normals(count: int, rng: np.random.Generator) -> Floats:
    """Those deviates in random order. Samples then do not differ in their lengths, only in who comes when: otherwise
    one huge prompt would be most of what differs between seeds."""
    return rng.permutation(_quantiles(count))


def _even_tokens(lengths: LengthDistribution, *, count: int, rng: np.random.Generator) -> Ints:
    if lengths.cv == 0:
        return np.full(count, max(1, round(lengths.mean_tokens)), dtype=np.int64)
    return np.maximum(np.rint(lengths.at(_even_normals(count, rng))), 1).astype(np.int64)


def requests_of_mix(
    mix: RequestMix, *, rate_per_s: float, count: int, seed: int, block_size_tokens: int = 16
) -> Requests:
    """``count`` requests with gamma gaps of the mix's burstiness and lengths that are the quantiles of their
    distribution in random order; the same for the same seed.

    The share of prompt tokens that the mix finds in the prefix cache are whole blocks of one shared text (rounded),
    as long as the cache keeps them.
    """
    rng = np.random.default_rng([seed, count])
    shape = 1 / mix.arrival_cv**2
    arrival_s = np.cumsum(rng.gamma(shape, 1 / (shape * rate_per_s), count))
    prompts, outputs = (_even_tokens(lengths, count=count, rng=rng) for lengths in (mix.isl, mix.osl))
    if mix.context_tokens < inf:
        outputs = np.maximum(np.minimum(outputs, int(mix.context_tokens) - prompts), 1)
    if mix.prefix_hit_fraction == 0:
        return make_requests(arrival_s=arrival_s, prompt_tokens=prompts, output_tokens=outputs)
    lists, starts, ids = _cached_prefixes(
        prompts, fraction=mix.prefix_hit_fraction, block_size_tokens=block_size_tokens
    )
    return make_requests(
        arrival_s=arrival_s,
        prompt_tokens=prompts,
        output_tokens=outputs,
        prefix_list=lists,
        list_start=starts,
        block_ids=ids,
    )


def mix_of_requests(requests: Requests, *, block_size_tokens: int | None = None) -> RequestMix:
    """Means and coefficients of variation of requests; of their prompts counts as cached what came before them.

    block_size_tokens : of a prefix cache that forgets nothing; None where there is none
    """

    def measured(tokens: Ints) -> LengthDistribution:
        return LengthDistribution(mean_tokens=float(tokens.mean()), cv=float(tokens.std() / tokens.mean()))

    known = requests.prefix_list >= 0
    found_tokens = 0.0
    if block_size_tokens and known.any():
        sizes = np.diff(requests.list_start)[requests.prefix_list[known]]
        blocks = np.minimum(sizes, (requests.prompt_tokens[known] - 1) // block_size_tokens)
        found_tokens = block_size_tokens * max(0.0, float(blocks.sum()) - requests.distinct_blocks)
    return RequestMix(
        isl=measured(requests.prompt_tokens),
        osl=measured(requests.output_tokens),
        prefix_hit_fraction=found_tokens / float(requests.prompt_tokens.sum()),
    )


def mean_rate_per_s(requests: Requests) -> float:
    """Requests over the time in which they are sent [1/s]."""
    return len(requests) / max(float(requests.stage_end_s[-1]), float(np.finfo(np.float64).tiny))


def at_rate(requests: Requests, *, rate_per_s: float) -> Requests:
    """Requests in the same pattern at another mean rate: common random numbers across rates."""
    factor = mean_rate_per_s(requests) / rate_per_s
    return replace(requests, arrival_s=requests.arrival_s * factor, stage_end_s=requests.stage_end_s * factor)
