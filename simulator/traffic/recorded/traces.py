"""Request traces from files: what they say about rate, burstiness and lengths (formats: ``trace_formats``)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from simulator.errors import FileError, contradiction, said_of
from simulator.records import dataclass
from simulator.specs.base import Note, Same
from simulator.specs.engine.fits import host_tokens
from simulator.specs.parsing import MalformedError, parse_json, read_text
from simulator.traffic.lengths import Array
from simulator.traffic.recorded.trace_formats import AZURE_COLUMNS, HASH_BLOCK_TOKENS, TraceRow, malformed, trace_rows
from simulator.traffic.requests import (
    NO_PREVIOUS,
    Floats,
    Ints,
    PrefixLists,
    Requests,
    hashed_prompts,
    in_engine_blocks,
    make_requests,
)
from simulator.units import HOURS_PER_YEAR, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

LONGEST_TRACE_S = 10 * HOURS_PER_YEAR * SECONDS_PER_HOUR
"""Ten years: timestamps further apart are in another unit, or wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTrace:
    """Recorded requests in order of arrival (arrays of one length).

    arrival_s : since the first request [s]; isl_tokens, osl_tokens : prompt and answer lengths
    hashes : of the blocks of each prompt, equal where content is equal up to and with the block; None without
    previous, wait_s : of a turn that waits the request whose answer it waits for (NO_PREVIOUS of others) and from that
        answer to its sending [s]; None where no turn waits. Its ``arrival_s`` is the earliest, as if answers took none
    model : what the recorder calls it; warnings : what was put right on reading
    first_s : time of the first request by the recorder's clock [s]
    has_dates : whether that clock is the world's (Unix time)
    """

    source: str
    arrival_s: Array
    isl_tokens: Array
    osl_tokens: Array
    hashes: tuple[tuple[int, ...], ...] | None = None
    previous: Ints | None = None
    wait_s: Array | None = None
    warnings: tuple[Note, ...] = ()
    first_s: float = 0.0
    has_dates: bool = False
    model: str | None = None

    @property
    def mean_rate_per_s(self) -> float:
        """Requests after the first over the time of all [1/s]. Raises RoofcastError: all requests carry one time."""
        if self.arrival_s[-1] <= 0:
            raise malformed(self.source, where="line 1", reason="all requests have the same time")
        return (len(self.arrival_s) - 1) / float(self.arrival_s[-1])

    def check_rate_is_its_own(self, field: str) -> None:
        """Refuse to be sent at another rate where turns wait for answers: those come as fast as the fleet is."""
        if self.previous is None:
            return
        raise contradiction(
            f"{self.source} holds turns that wait for answers, and comes at no rate but that of those",
            field=field,
            hint="roofcast serve replays it as recorded; roofcast demand reads lengths and prefix hits from it",
        )


def _disorder(rows: list[TraceRow], *, path: str | Path) -> tuple[Note, ...]:
    """A warning where requests do not stand in the order of their times."""
    back = sum(later.at_s < earlier.at_s for earlier, later in pairwise(rows))
    return (Note("read_sorted", {"path": path, "back": back}),) if back else ()


def read_trace(path: str | Path, *, field: str = "trace") -> RequestTrace:
    """Read a trace; the format follows from the first line.

    Raises FileError: the file cannot be read.
    Raises RoofcastError: a line is malformed: names file, line and reason. Both name ``field``.
    """
    try:
        state = os.stat(os.path.expanduser(path))
        with said_of({"trace": field}):
            return _read(str(path), (state.st_mtime_ns, state.st_size), field)
    except (OSError, ValueError, MalformedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"{path}: cannot be read: {reason}", field=field) from None


def _in_time(rows: list[TraceRow], row: int) -> tuple[float, int, float, float]:
    """Sorts by time; of turns at one time those that wait come later, in the order of the file."""
    item = rows[row]
    return item.at_s, 0 if item.previous is None else row + 1, item.isl_tokens, item.osl_tokens


@lru_cache(maxsize=2)
def _read(path: str, state: tuple[int, int], field: str) -> RequestTrace:
    """One file, read once for all questions about it; ``state`` retires it when the file changes."""
    text = read_text(os.path.expanduser(path), field=field)
    rows = trace_rows(text, path=path)
    if len(rows) < 2:
        raise malformed(path, where="line 1", reason=f"a trace needs at least two requests, found {len(rows)}")
    warnings = _disorder(rows, path=path)
    # Logs are often written when requests end; what counts is when they were sent.
    order = sorted(range(len(rows)), key=lambda row: _in_time(rows, row))
    place = {row: at for at, row in enumerate(order)}
    rows = [rows[row] for row in order]
    previous = np.array([NO_PREVIOUS if row.previous is None else place[row.previous] for row in rows])
    waits = bool((previous != NO_PREVIOUS).any())
    table = np.array([(row.at_s, row.isl_tokens, row.osl_tokens) for row in rows], dtype=np.float64)
    if table[-1, 0] - table[0, 0] > LONGEST_TRACE_S:
        raise malformed(path, where="its times", reason="the requests are more than ten years apart")
    hashes = tuple(row.hashes for row in rows if row.hashes is not None)
    return RequestTrace(
        source=path,
        arrival_s=table[:, 0] - table[0, 0],
        isl_tokens=table[:, 1],
        osl_tokens=table[:, 2],
        hashes=hashes or None,
        previous=previous if waits else None,
        wait_s=np.array([row.wait_s for row in rows]) if waits else None,
        warnings=warnings,
        first_s=float(table[0, 0]),
        has_dates=text.lstrip().startswith(AZURE_COLUMNS[0]),
        model=_named_model(text),
    )


def _named_model(text: str) -> str | None:
    """The model that a benchmark's result names."""
    if '"model_id"' not in text:
        return None
    try:
        named = parse_json(text)["model_id"]
    except (MalformedError, KeyError, TypeError):
        return None
    return named if isinstance(named, str) and named else None


def _resampled(trace: RequestTrace, *, times: float, seed: int) -> tuple[Floats, Ints, float]:
    """Moments, rows of the trace, and the end of the last whole minute [s]."""
    trace.check_rate_is_its_own("trace")
    generator = np.random.default_rng(seed)
    window_s = min(SECONDS_PER_MINUTE, float(trace.arrival_s[-1]))
    windows = int(trace.arrival_s[-1] // window_s)
    starts = np.searchsorted(trace.arrival_s, window_s * np.arange(windows + 1))
    counts = generator.poisson(times * np.diff(starts))
    window = np.repeat(np.arange(windows), counts)
    arrival_s = window_s * (window + generator.random(len(window)))
    rows = starts[window] + (generator.random(len(window)) * np.diff(starts)[window]).astype(np.int64)
    order = np.argsort(arrival_s, kind="stable")
    return arrival_s[order], rows[order], window_s * windows


def _occurrences(rows: Ints) -> Ints:
    """How often each row was drawn before."""
    order = np.argsort(rows, kind="stable")
    ranked = rows[order]
    first = np.searchsorted(ranked, ranked)
    found = np.empty(len(rows), dtype=np.int64)
    found[order] = np.arange(len(rows)) - first
    return found


@lru_cache(maxsize=4)
def _numbered_blocks(trace: Same[RequestTrace]) -> PrefixLists:
    """Blocks of all prompts one after another, their hashes numbered from 0 on."""
    hashes = trace.held.hashes
    assert hashes is not None, "known of a trace whose prompts repeat"
    lists = hashed_prompts(hashes, hash_block_tokens=HASH_BLOCK_TOKENS, block_size_tokens=HASH_BLOCK_TOKENS)
    return replace(lists, block_ids=lists.block_ids.astype(np.int64))


def _prefixes(trace: RequestTrace, rows: Ints, copies: Ints, *, block_size_tokens: int) -> PrefixLists | None:
    """Blocks of the drawn prompts: those of one copy of the trace are shared, another copy is of other users."""
    if trace.hashes is None:
        return None
    every = _numbered_blocks(Same(trace))
    starts, counts = every.list_start[rows], np.diff(every.list_start)[rows]
    ends = np.append(0, np.cumsum(counts))
    places = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], counts)
    # One number for a block and its copy, so that neither is mistaken for another.
    drawn = every.block_ids[places] * (int(copies.max(initial=0)) + 1) + np.repeat(copies, counts)
    lists = PrefixLists(list_start=ends, block_ids=drawn)
    return in_engine_blocks(lists, hash_block_tokens=HASH_BLOCK_TOKENS, block_size_tokens=block_size_tokens)


def _requests(
    trace: RequestTrace, *, arrival_s: Floats, rows: Ints, copies: Ints, end_s: float, block_size_tokens: int
) -> Requests:
    lists = _prefixes(trace, rows, copies, block_size_tokens=block_size_tokens)
    return make_requests(
        arrival_s=arrival_s,
        prompt_tokens=trace.isl_tokens[rows].astype(np.int64),
        output_tokens=trace.osl_tokens[rows].astype(np.int64),
        stage_end_s=np.array([end_s]),
        prefix_list=None if lists is None else np.arange(len(rows)),
        list_start=None if lists is None else lists.list_start,
        block_ids=None if lists is None else lists.block_ids,
    )


def resampled_requests(trace: RequestTrace, *, times: float, seed: int, block_size_tokens: int = 16) -> Requests:
    """``times`` as many requests, minute by minute: Poisson counts, even moments, requests of that minute.

    Keeps how rate and lengths move from minute to minute and which answers go with which prompts; within a minute
    arrivals are Poisson. A request that is drawn again is another user's: prompts share the blocks that they share in
    the trace with requests drawn as often. A last minute that is not whole is left out.
    """
    arrival_s, rows, end_s = _resampled(trace, times=times, seed=seed)
    return _requests(
        trace,
        arrival_s=arrival_s,
        rows=rows,
        copies=_occurrences(rows),
        end_s=end_s,
        block_size_tokens=block_size_tokens,
    )


COMMON_SHARE = 0.01
"""A block that a larger share of all prompts begins with, such as a system prompt, says of none where it belongs."""


@lru_cache(maxsize=4)
def _own_blocks(trace: Same[RequestTrace]) -> Ints:
    """Of each request the first block that few others begin with; a number of its own where there is none."""
    every = _numbered_blocks(trace)
    requests, blocks = len(every.list_start) - 1, int(every.block_ids.max(initial=-1)) + 1
    request = np.repeat(np.arange(requests), np.diff(every.list_start))
    often = np.bincount(np.unique(every.block_ids * requests + request) // requests, minlength=blocks)
    rare = np.flatnonzero(often[every.block_ids] <= COMMON_SHARE * requests)
    having, first = np.unique(request[rare], return_index=True)
    own = blocks + np.arange(requests)
    own[having] = every.block_ids[rare[first]]
    return own


def _families(trace: RequestTrace, rows: Ints, copies: Ints) -> Ints:
    """Of each drawn request the number of those that its prompt begins like, counted as they first come."""
    keys = _own_blocks(Same(trace))[rows] * (int(copies.max(initial=0)) + 1) + copies
    _, first, family = np.unique(keys, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return number[family]


def replica_shares(
    trace: RequestTrace,
    *,
    times: float,
    replicas: int,
    places: Sequence[int],
    seed: int,
    prompt_token_delay_s: float = 0.0,
    block_size_tokens: int = 16,
    by_prefix: bool = False,
) -> list[Requests]:
    """What some of ``replicas`` get of that under round-robin routing, every so-manyth request; nothing of those that
    get none.

    places : of those replicas
    by_prefix : prompts that begin alike go to one replica, every so-manyth family of them
    prompt_token_delay_s : host time per prompt token before an engine sees a request; turns go by that order [s]
    """
    arrival_s, rows, end_s = _resampled(trace, times=times, seed=seed)
    copies = _occurrences(rows)
    if by_prefix:
        turns = _families(trace, rows, copies) % replicas
        shares = [np.flatnonzero(turns == place) for place in places]
    else:
        ready = np.argsort(arrival_s + prompt_token_delay_s * host_tokens(trace.isl_tokens[rows]), kind="stable")
        shares = [np.sort(ready[place::replicas]) for place in places]
    return [
        _requests(
            trace,
            arrival_s=arrival_s[own],
            rows=rows[own],
            copies=copies[own],
            end_s=end_s,
            block_size_tokens=block_size_tokens,
        )
        for own in shares
        if len(own)
    ]
