"""Multi-turn chat: conversations whose prompts hold all that was said before, turn by turn."""

from __future__ import annotations

import numpy as np

from simulator.engine.lengths import whole_lengths
from simulator.engine.request import NO_PREVIOUS, Floats, Ints, Requests, make_requests
from simulator.errors import RoofcastError
from simulator.specs.workload import ConversationSpec, WorkloadSpec


def turn_counts(spec: ConversationSpec, *, count: int, rng: np.random.Generator) -> Ints:
    """Turns of each conversation: geometric with the asked mean, so that every turn ends it with the same chance."""
    if spec.turns_mean == 1:
        return np.ones(count, dtype=np.int64)
    return np.minimum(rng.geometric(1 / spec.turns_mean, size=count), spec.max_turns).astype(np.int64)


def _context_before(first: Ints, tokens: Ints) -> Ints:
    """Tokens said before each turn: running sums that start anew with each conversation. first : its first turn."""
    ends = np.cumsum(tokens)
    before = ends - tokens
    result: Ints = before - before[first]
    return result


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
        raise RoofcastError("a turn needs it", field=f"workload.{field}", code="missing_field")
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
