"""When requests arrive: constant gaps, random gaps, those of a recorded trace, or turns of conversations."""

from __future__ import annotations

import numpy as np

from simulator.errors import RoofcastError, missing_field
from simulator.specs.question.workload import ConversationSpec, StageSpec, WorkloadSpec
from simulator.traffic.lengths import whole_lengths
from simulator.traffic.requests import NO_PREVIOUS, Floats, Ints, Requests, make_requests, repeated


def _count(stage: StageSpec) -> int:
    return int(np.floor(stage.rate_per_s * stage.duration_s + 1 / 2))


def constant_arrivals(stage: StageSpec) -> Floats:
    """The k-th request at k / rate, for as many as rate x duration, rounded [s after the stage's start]."""
    return np.arange(_count(stage)) / stage.rate_per_s


def scattered_arrivals(stage: StageSpec, *, rng: np.random.Generator) -> Floats:
    """Arrivals at random moments of the stage: a Poisson process whose count is known [s after the start]."""
    return np.sort(rng.uniform(0.0, stage.duration_s, size=_count(stage)))


def gamma_arrivals(stage: StageSpec, *, burstiness: float, rng: np.random.Generator) -> Floats:
    """Independent gamma gaps with mean 1 / rate and coefficient of variation ``burstiness`` [s after the start].

    Notes
    -----
    Shape 1 / cv^2 and scale cv^2 / rate: cv 1 is the Poisson process, above 1 arrivals come in bursts. The stage starts
    at a request that is not counted, so that the first gap has the same law as the others.
    """
    variance = burstiness * burstiness
    mean_count = stage.rate_per_s * stage.duration_s
    parts: list[Floats] = []
    last_s = 0.0
    while last_s < stage.duration_s:
        # Usually one draw suffices: the mean number, and four standard deviations of it.
        draws = int(mean_count + 4 * burstiness * np.sqrt(mean_count)) + 2
        times = rng.gamma(1 / variance, variance / stage.rate_per_s, size=draws)
        np.cumsum(times, out=times)
        times += last_s
        parts.append(times)
        last_s = float(times[-1])
    times = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return times[: np.searchsorted(times, stage.duration_s)]


def trace_arrivals(stage: StageSpec, *, recorded_s: Floats) -> tuple[Floats, np.ndarray]:
    """Recorded arrivals, sped up or slowed down to the stage's rate and repeated until its end.

    Returns times after the stage's start [s] and, for each, the index of the recorded request. The gap from the last
    request back to the first is the mean gap.
    """
    count = len(recorded_s)
    mean_gap_s = float(recorded_s[-1] - recorded_s[0]) / max(count - 1, 1)
    if mean_gap_s <= 0:
        raise RoofcastError("all requests carry one time, so that there is no rate to scale", field="workload.trace")
    scaled_s = (recorded_s - recorded_s[0]) / (mean_gap_s * stage.rate_per_s)
    period_s = count / stage.rate_per_s
    rounds = int(np.ceil(stage.duration_s / period_s))
    times = (np.arange(rounds)[:, np.newaxis] * period_s + scaled_s).ravel()
    kept = times < stage.duration_s
    return times[kept], np.tile(np.arange(count), rounds)[kept]


def stage_arrivals(workload: WorkloadSpec) -> tuple[Floats, np.ndarray, Floats]:
    """Arrival times of all stages one after another, the stage of each, and where each stage ends [s].

    For ``constant``, ``poisson`` and ``gamma`` arrivals; deterministic for a seed, and no stage changes the draws of
    another.
    """
    if not workload.stages:
        raise RoofcastError("no stages", field="workload.stages", hint='e.g. [{"rate_per_s": 8, "duration_s": 600}]')
    times, stages = [], []
    ends_s = np.cumsum([stage.duration_s for stage in workload.stages])
    for index, stage in enumerate(workload.stages):
        rng = np.random.default_rng([workload.seed, index])
        if workload.arrival == "constant" and workload.spacing == "even":
            offsets_s = constant_arrivals(stage)
        elif workload.arrival == "constant":
            offsets_s = scattered_arrivals(stage, rng=rng)
        else:
            burstiness = 1.0 if workload.arrival == "poisson" else workload.burstiness
            offsets_s = gamma_arrivals(stage, burstiness=burstiness, rng=rng)
        offsets_s += ends_s[index] - stage.duration_s
        times.append(offsets_s)
        stages.append(repeated(np.int32(index), len(offsets_s)))
    if len(times) == 1:
        return times[0], stages[0], ends_s
    return np.concatenate(times), np.concatenate(stages), ends_s


def turn_counts(spec: ConversationSpec, *, count: int, rng: np.random.Generator) -> Ints:
    """Turns of each conversation: geometric with the asked mean, so that every turn ends it with the same chance."""
    if spec.turns_mean == 1:
        return np.ones(count, dtype=np.int64)
    return np.minimum(rng.geometric(1 / spec.turns_mean, size=count), spec.max_turns).astype(np.int64)


def _context_before(first: Ints, tokens: Ints) -> Ints:
    """Tokens said before each turn: running sums that start anew with each conversation. first : its first turn."""
    ends = np.cumsum(tokens)
    before = ends - tokens
    return before - before[first]


def _blocks(groups: Ints, own: Ints, *, shared: int, number_of_groups: int) -> tuple[Ints, Ints]:
    """(list_start, block_ids) of lists that begin with their group's ``shared`` blocks and go on with ``own`` ones."""
    sizes = shared + own
    starts = np.concatenate([[0], np.cumsum(sizes)])
    conversation = np.repeat(np.arange(len(own)), sizes)
    offset = np.arange(starts[-1]) - starts[conversation]
    first_own = number_of_groups * shared + np.cumsum(own) - own
    ids = np.where(offset < shared, groups[conversation] * shared + offset, first_own[conversation] + offset - shared)
    return starts.astype(np.int64), ids.astype(np.int64)


def conversation_requests(
    workload: WorkloadSpec,
    spec: ConversationSpec,
    *,
    arrival_s: Floats,
    stage: Ints,
    stage_end_s: Floats,
    block_size_tokens: int,
    rng: np.random.Generator,
) -> Requests:
    """Requests of conversations that begin at ``arrival_s``.

    The prompt of a turn is the system prompt, all questions and answers so far and the new question; it is sent when
    the answer before has come and its reader has thought. Its blocks are found again as long as the cache keeps them.
    """
    if workload.question_tokens is None or workload.osl_tokens is None:
        field = "question_tokens" if workload.question_tokens is None else "osl_tokens"
        raise missing_field("a turn needs it", field=f"workload.{field}")
    turns = turn_counts(spec, count=len(arrival_s), rng=rng)
    conversation = np.repeat(np.arange(len(turns)), turns)
    first = (np.cumsum(turns) - turns)[conversation]
    total = len(conversation)
    questions = whole_lengths(workload.question_tokens, cv=workload.isl_cv, count=total, rng=rng)
    answers = whole_lengths(workload.osl_tokens, cv=workload.osl_cv, count=total, rng=rng)
    prompts = workload.system_prompt_tokens + _context_before(first, questions + answers) + questions
    is_first = np.arange(total) == first
    think_s = np.where(is_first, 0.0, rng.exponential(spec.think_s, size=total)) if spec.think_s else np.zeros(total)
    shared = workload.system_prompt_tokens // block_size_tokens
    last = np.cumsum(turns) - 1
    own = np.maximum((prompts + answers)[last] // block_size_tokens - shared, 0)
    groups = workload.prompt_groups or 1
    starts, ids = _blocks(np.arange(len(turns)) % groups, own, shared=shared, number_of_groups=groups)
    return make_requests(
        arrival_s=arrival_s[conversation],
        prompt_tokens=prompts,
        output_tokens=answers,
        stage=stage[conversation],
        stage_end_s=stage_end_s,
        prefix_list=conversation,
        list_start=starts,
        block_ids=ids,
        previous=np.where(is_first, NO_PREVIOUS, np.arange(total) - 1),
        think_s=think_s,
    )
