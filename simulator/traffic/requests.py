"""Requests as flat arrays, with the KV blocks that prompts share (equal ids: equal content up to there)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.errors import RoofcastError
from simulator.records import dataclass
from simulator.specs.question.workload import WorkloadSpec
from simulator.traffic.lengths import check_tokens
from simulator.units import GIB, GIGA, MEGA

LARGEST_REQUESTS = int(10 * MEGA)
"""Requests of one run, and distinct prompts among them; a run of that size takes half a minute and 1 GB."""
LARGEST_STATE_BYTES = 8 * GIB
"""Memory for the state of all replicas that are simulated at once."""
LARGEST_REPLICAS = 10_000
"""Replicas of one run; so many take some seconds before they serve anything."""
LARGEST_STEPS = int(GIGA)
"""Steps of one run that take a minute; where a step goes through its sequences, a quarter of its sequences counts."""


def check_workload_size(workload: WorkloadSpec, *, block_size_tokens: int) -> None:
    """Refuse a workload that would not fit into memory, before any of it is drawn."""
    for name in ("system_prompt_tokens", "question_tokens", "isl_tokens", "osl_tokens"):
        check_tokens(getattr(workload, name) or 0, field=f"workload.{name}")
    turns = 1.0 if workload.conversation is None else workload.conversation.turns_mean
    answers = turns * workload.answers_per_request
    sent = answers * sum(stage.rate_per_s * stage.duration_s for stage in workload.stages)
    if sent > LARGEST_REQUESTS:
        raise RoofcastError(
            f"{sent:.4g} requests; at most {LARGEST_REQUESTS:,} are simulated",
            field="workload.stages",
            code="out_of_range",
            hint="shorten the stages: percentiles settle long before",
        )
    groups, each = workload.prompt_groups or 1, workload.prompts_per_group
    prompt = workload.isl_tokens or workload.system_prompt_tokens + (workload.question_tokens or 0)
    named = groups * (workload.system_prompt_tokens if each is None else each * prompt) / block_size_tokens
    if groups * (each or 1) > LARGEST_REQUESTS or named > 10 * LARGEST_REQUESTS:
        raise RoofcastError(
            f"{groups * (each or 1):,} distinct prompts of {prompt:,} tokens are more than a run remembers",
            field="workload.prompt_groups",
            code="out_of_range",
            hint="fewer or shorter ones; without prompts_per_group every question is new",
        )


_FEWER = "simulate a share of the replicas under the same share of the rate"


def _check_most(value: float, most: float, said: str, *, field: str, hint: str) -> None:
    if value > most:
        raise RoofcastError(said, field=field, code="out_of_range", hint=hint)


def check_replicas(replicas: int) -> None:
    """Refuse more replicas than are simulated in a time that anybody waits."""
    said = f"{replicas:,} replicas; at most {LARGEST_REPLICAS:,} are simulated"
    _check_most(replicas, LARGEST_REPLICAS, said, field="replicas", hint=_FEWER)


def check_steps(steps: float) -> None:
    """Refuse a run of more steps than are simulated in a time that anybody waits."""
    said = f"up to {steps:.3g} steps; at most {LARGEST_STEPS:.3g} are simulated"
    hint = "shorter answers or shorter stages: percentiles settle long before"
    _check_most(steps, LARGEST_STEPS, said, field="workload", hint=hint)


def check_state_size(bytes_of_one: float, *, replicas: int) -> None:
    """Refuse more replicas, or larger ones, than memory holds the state of."""
    most = f"at most {LARGEST_STATE_BYTES:.3g} bytes"
    said = f"{replicas:,} replicas of {bytes_of_one:.3g} bytes of state each; {most}"
    _check_most(bytes_of_one * replicas, LARGEST_STATE_BYTES, said, field="replicas", hint=_FEWER)


Floats = NDArray[np.float64]
Ints = NDArray[np.signedinteger[Any]]

NO_PREFIX = -1
"""``prefix_list`` of a request whose prompt shares nothing."""
NO_PREVIOUS = -1
"""``previous`` of a request that waits for no other."""


class Outcome(IntEnum):
    """What became of a request."""

    WAITING = 0
    RUNNING = 1
    FINISHED = 2
    TIMED_OUT = 3
    TOO_LONG = 4
    TOO_LARGE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Demand in arrival order; one entry per request except for the two block arrays. Where all have the same entry it
    is one in memory.

    arrival_s : when the client sends it, ascending [s]
    prompt_tokens, output_tokens : lengths; the first output token comes out of the prefill
    stage : which stage of the workload sent it
    prefix_list : which list of block ids its tokens start with, or NO_PREFIX. Many requests may share a list
    list_start : where each list begins in ``block_ids``, one entry more than there are lists
    block_ids : dense ids of full KV blocks. Equal ids mean equal content up to and with that block
    stage_end_s : end of each stage's sending window [s]
    previous : for a later turn of a conversation the request whose answer it waits for, else NO_PREVIOUS. Its own
        ``arrival_s`` is only known once it has been sent: ``RequestRecords.sent_s``
    think_s : from that answer to the sending of the next turn [s]
    deadline_s : when its client gives up, if that is before the scheduler's timeout [s]
    ahead_s : what other machines take before the engine sees it [s]
    """

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    stage: Ints
    prefix_list: Ints
    list_start: Ints
    block_ids: Ints
    stage_end_s: Floats
    previous: Ints
    think_s: Floats
    deadline_s: Floats
    ahead_s: Floats

    def __len__(self) -> int:
        return len(self.arrival_s)

    def part(self, rows: slice | Ints) -> Requests:
        """Some of the requests, which still name the lists and earlier turns of all."""
        shared = ("list_start", "block_ids", "stage_end_s")
        own = (item.name for item in fields(self) if item.name not in shared)
        return replace(self, **{name: _picked(getattr(self, name), rows) for name in own})

    @property
    def distinct_blocks(self) -> int:
        """How many different block ids there are."""
        return int(self.block_ids.max()) + 1 if len(self.block_ids) else 0


def make_requests(
    *,
    arrival_s: Floats,
    prompt_tokens: Ints,
    output_tokens: Ints,
    stage: Ints | None = None,
    stage_end_s: Floats | None = None,
    prefix_list: Ints | None = None,
    list_start: Ints | None = None,
    block_ids: Ints | None = None,
    previous: Ints | None = None,
    think_s: Floats | None = None,
) -> Requests:
    """Check and complete a demand: one stage that ends with the last arrival, no shared prompts, unless told otherwise.

    Raises RoofcastError for unsorted or negative times and for lengths below 1.
    """
    count = len(arrival_s)
    _check_times(np.asarray(arrival_s, dtype=np.float64))
    _check_lengths(np.asarray(prompt_tokens), field="prompt_tokens", count=count)
    _check_lengths(np.asarray(output_tokens), field="output_tokens", count=count)
    last_s = float(arrival_s[-1]) if count else 0.0
    return Requests(
        arrival_s=np.ascontiguousarray(arrival_s, dtype=np.float64),
        prompt_tokens=_ints(prompt_tokens, count),
        output_tokens=_ints(output_tokens, count),
        stage=_ints(stage, count),
        prefix_list=_ints(prefix_list, count, fill=NO_PREFIX),
        list_start=np.zeros(1, dtype=np.int64) if list_start is None else np.asarray(list_start, dtype=np.int64),
        block_ids=_ints(block_ids, 0),
        stage_end_s=np.array([last_s]) if stage_end_s is None else np.ascontiguousarray(stage_end_s, dtype=np.float64),
        previous=_ints(previous, count, fill=NO_PREVIOUS),
        think_s=repeated(0.0, count) if think_s is None else np.ascontiguousarray(think_s, dtype=np.float64),
        deadline_s=repeated(np.inf, count),
        ahead_s=repeated(0.0, count),
    )


def repeated(value: Any, count: int) -> NDArray[Any]:
    """An array of one value, which is once in memory and cannot be written."""
    return np.broadcast_to(value, count)


def _picked(values: NDArray[Any], rows: slice | Ints) -> NDArray[Any]:
    """Entries of an array; what is once in memory stays so."""
    return values[rows] if isinstance(rows, slice) or values.strides != (0,) else repeated(values[:1], len(rows))


def _ints(values: Ints | None, count: int, *, fill: int = 0) -> Ints:
    """The values in four bytes each, or as many times ``fill`` where there are none."""
    return repeated(np.int32(fill), count) if values is None else np.asarray(values, dtype=np.int32)


def _check_times(arrival_s: Floats) -> None:
    if not len(arrival_s):
        raise RoofcastError("no requests; at least one is needed", field="workload", hint="raise rate or duration")
    if not np.isfinite(arrival_s).all() or arrival_s.min() < 0:
        raise RoofcastError("negative or not finite; arrivals are at or after 0 s", field="arrival_s", code="bad_trace")
    backwards = np.flatnonzero(np.diff(arrival_s) < 0)
    if len(backwards):
        row = int(backwards[0]) + 1
        raise RoofcastError(
            f"request {row} arrives at {arrival_s[row]:g} s, before request {row - 1} at {arrival_s[row - 1]:g} s",
            field="arrival_s",
            code="bad_trace",
            hint="sort the trace by arrival",
        )


def _check_lengths(tokens: NDArray[np.int64], *, field: str, count: int) -> None:
    if len(tokens) != count:
        raise RoofcastError(f"{len(tokens)} lengths for {count} arrivals", field=field, code="bad_trace")
    if count and int(tokens.min()) < 1:
        row = int(np.argmin(tokens))
        raise RoofcastError(
            f"request {row} has {int(tokens[row])} tokens; lengths are at least 1",
            field=field,
            code="bad_trace",
            hint="drop requests without prompt or output",
        )
    if count:
        check_tokens(int(tokens.max()), field=field)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecords:
    """What became of each request, in the order of ``Requests``; times are NaN where it never got there.

    outcome : Outcome value
    admitted_s : first time that a step took it in [s]
    first_token_s, finish_s : when its first and last token left the engine [s]
    cached_tokens : prompt tokens found in the prefix cache at first admission
    preemptions : times it was thrown out and recomputed
    replica : which replica served it
    sent_s : when its client sent it: its arrival, or for a later turn of a conversation what came of it [s]
    """

    outcome: Ints
    admitted_s: Floats
    first_token_s: Floats
    finish_s: Floats
    cached_tokens: Ints
    preemptions: Ints
    replica: Ints
    sent_s: Floats = field(default_factory=lambda: np.zeros(0))

    def part(self, rows: slice) -> RequestRecords:
        """Records of some of the requests."""
        return RequestRecords(**{item.name: getattr(self, item.name)[rows] for item in fields(self)})


CACHE_TOKENS = int(MEGA)
"""Tokens that the cache of one replica is taken to hold where hits of a trace are counted: of the order of what an
accelerator's memory leaves beside the weights. Assumed; hits of a real replica follow from its own cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixLists:
    """Lists of block ids one after another; list k is ``block_ids[list_start[k]:list_start[k + 1]]``."""

    list_start: Ints
    block_ids: Ints


def _joined(lists: Sequence[Ints]) -> PrefixLists:
    starts = np.cumsum([0, *(len(ids) for ids in lists)])
    joined = np.concatenate([np.zeros(0, dtype=np.int64), *lists])
    return PrefixLists(list_start=starts.astype(np.int64), block_ids=joined.astype(np.int64))


def grouped_prompts(
    *, groups: int, prompts_per_group: int | None, system_tokens: int, prompt_tokens: Ints, block_size_tokens: int
) -> PrefixLists:
    """Prompts that start with their group's system prompt and go on with a question of their own.

    prompt_tokens : whole length of each of the groups x prompts_per_group prompts, group by group. Where
    ``prompts_per_group`` is None every question is new: there is one list per group, of the system prompt alone.
    Only full blocks are shared; the one that holds the border between system prompt and question is the question's.
    """
    shared = system_tokens // block_size_tokens
    if prompts_per_group is None:
        return _joined([np.arange(group * shared, (group + 1) * shared) for group in range(groups)])
    lists = []
    following = groups * shared
    for prompt in range(groups * prompts_per_group):
        group = prompt // prompts_per_group
        own = max(int(prompt_tokens[prompt]) // block_size_tokens - shared, 0)
        lists.append(
            np.concatenate([np.arange(group * shared, (group + 1) * shared), np.arange(following, following + own)])
        )
        following += own
    return _joined(lists)


def hashed_prompts(
    hashes: Sequence[Sequence[int] | Ints], *, hash_block_tokens: int, block_size_tokens: int
) -> PrefixLists:
    """One list per request from a trace's own hashes, each of which stands for ``hash_block_tokens`` of prompt.

    A trace hashes blocks together with everything before them, as Mooncake's do [Qin2024]. Its blocks must be
    whole multiples of the engine's.
    """
    lists = _joined([np.asarray(row, dtype=np.int64) for row in hashes])
    return in_engine_blocks(lists, hash_block_tokens=hash_block_tokens, block_size_tokens=block_size_tokens)


def in_engine_blocks(lists: PrefixLists, *, hash_block_tokens: int, block_size_tokens: int) -> PrefixLists:
    """Prefix lists in an engine's blocks, numbered from 0 on, of lists in blocks of ``hash_block_tokens``."""
    if hash_block_tokens % block_size_tokens:
        raise RoofcastError(
            f"{block_size_tokens} does not divide the trace's blocks of {hash_block_tokens} tokens",
            field="engine.block_size_tokens",
            hint="choose a block size that divides them",
        )
    parts = hash_block_tokens // block_size_tokens
    _, dense = np.unique(lists.block_ids, return_inverse=True)
    # In the four bytes that requests keep: a long trace has hundreds of blocks a prompt.
    ids = np.add.outer((dense * parts).astype(np.int32), np.arange(parts, dtype=np.int32))
    return PrefixLists(list_start=lists.list_start * parts, block_ids=ids.ravel())
