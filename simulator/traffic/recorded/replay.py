"""A recorded trace once more: the same minutes, rates and lengths, other moments and another draw of its requests."""

from __future__ import annotations

import numpy as np

from simulator.traffic.recorded.trace_formats import HASH_BLOCK_TOKENS
from simulator.traffic.recorded.traces import RequestTrace
from simulator.traffic.requests import Floats, Ints, PrefixLists, Requests, hashed_prompts, make_requests
from simulator.units import SECONDS_PER_MINUTE


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


def _prefixes(trace: RequestTrace, rows: Ints, copies: Ints, *, block_size_tokens: int) -> PrefixLists | None:
    """Blocks of the drawn prompts: those of one copy of the trace are shared, another copy is of other users."""
    if trace.hashes is None:
        return None
    most = int(copies.max()) + 1 if len(copies) else 1
    # One number for a hash and its copy, so that neither is mistaken for another.
    drawn = [
        np.asarray(trace.hashes[row], dtype=np.int64) * most + copy
        for row, copy in zip(rows.tolist(), copies.tolist(), strict=True)
    ]
    return hashed_prompts(drawn, hash_block_tokens=HASH_BLOCK_TOKENS, block_size_tokens=block_size_tokens)


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


def replica_share(
    trace: RequestTrace,
    *,
    times: float,
    replicas: int,
    replica: int,
    seed: int,
    prompt_token_delay_s: float = 0.0,
    block_size_tokens: int = 16,
) -> Requests | None:
    """What one of ``replicas`` gets of that under round-robin routing, every so-manyth request; None where nothing.

    prompt_token_delay_s : host time per prompt token before an engine sees a request; turns go by that order [s]
    """
    arrival_s, rows, end_s = _resampled(trace, times=times, seed=seed)
    if replica >= len(rows):
        return None
    ready = np.argsort(arrival_s + prompt_token_delay_s * trace.isl_tokens[rows], kind="stable")
    own = np.sort(ready[replica::replicas])
    return _requests(
        trace,
        arrival_s=arrival_s[own],
        rows=rows[own],
        copies=_occurrences(rows)[own],
        end_s=end_s,
        block_size_tokens=block_size_tokens,
    )
