"""How soon prompts come again, and what share of them a cache of a given size still holds.

A cache that forgets the least recently used block holds a block again if fewer different blocks were touched since than
it has room for. That number, the block's reuse distance, is taken as the mean footprint of so many touches anywhere in
the run, which turns one pass over the requests into the hits of every size at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.records import dataclass
from simulator.traffic.requests import Floats, Ints, RequestRecords, Requests

MOST_TOUCHES = 20_000_000
"""Blocks that are followed; of a longer run the first requests count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Touches:
    """Blocks in the order in which a replica touched them. content : ids, all different where nobody knows them;
    findable : whether the prompt of its request could have found it; prompt_tokens : of all these requests"""

    content: Ints
    findable: NDArray[np.bool_]
    prompt_tokens: float


def _touches(requests: Requests, chosen: Ints, *, block_size_tokens: int) -> _Touches:
    """Of the requests ``chosen``, in this order: the blocks of each from first to last."""
    prompts, answers = requests.prompt_tokens[chosen], requests.output_tokens[chosen]
    whole = -(-(prompts + answers - 1) // block_size_tokens)
    reach = np.searchsorted(np.cumsum(whole), MOST_TOUCHES, side="right")
    chosen, whole, prompts = chosen[: max(int(reach), 1)], whole[: max(int(reach), 1)], prompts[: max(int(reach), 1)]
    full = (prompts + answers[: len(chosen)] - 1) // block_size_tokens
    lists = requests.prefix_list[chosen]
    known = np.zeros(len(chosen), dtype=np.int64)
    shares = lists >= 0
    start = requests.list_start[np.maximum(lists, 0)] if len(requests.list_start) > 1 else np.zeros_like(known)
    if shares.any():
        sizes = np.diff(requests.list_start)[np.maximum(lists, 0)]
        known = np.where(shares, np.minimum(sizes, full), 0)
    place = np.arange(int(whole.sum())) - np.repeat(np.cumsum(whole) - whole, whole)
    named = place < np.repeat(known, whole)
    content = requests.distinct_blocks + np.arange(len(place))
    content[named] = requests.block_ids[(np.repeat(start, whole) + place)[named]]
    findable = named & (place < np.repeat((prompts - 1) // block_size_tokens, whole))
    return _Touches(content=content, findable=findable, prompt_tokens=float(prompts.sum()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reuse:
    """gaps : touches from a block to the same one again, ascending, and whether that is findable; edges : touches up to
    the first and from the last of each block, ascending; touches : how many there are"""

    gaps: Floats
    findable: NDArray[np.bool_]
    edges: Floats
    touches: int


def _reuse(touches: _Touches) -> _Reuse:
    count = len(touches.content)
    order = np.argsort(touches.content, kind="stable")
    again = touches.content[order][1:] == touches.content[order][:-1]
    gaps = (order[1:] - order[:-1])[again].astype(np.float64)
    ascending = np.argsort(gaps, kind="stable")
    firsts, lasts = order[np.append(True, ~again)], order[np.append(~again, True)]
    edges = np.sort(np.concatenate([firsts + 1.0, count - lasts.astype(np.float64)]))
    return _Reuse(
        gaps=gaps[ascending], findable=touches.findable[order[1:][again]][ascending], edges=edges, touches=count
    )


def _beyond(values: Floats, window: Floats) -> Floats:
    """Sum of what each of the ascending ``values`` exceeds each window by."""
    sums = np.append(0.0, np.cumsum(values[::-1]))[::-1]
    place = np.searchsorted(values, window, side="right")
    return sums[place] - (len(values) - place) * window


def _footprint(reuse: _Reuse, window: Floats) -> Floats:
    """Mean number of different blocks among touches in a row [-].

    Equation
    --------
    F(w) = m - (sum of (g - w)+ over gaps + sum of (e - w)+ over edges) / (n - w + 1)

    Parameters
    ----------
    reuse : different blocks m [-], touches n, gaps g between touches of a block, touches e up to its first and
        from its last one on
    window : touches in a row w [-]

    Range of validity
    -----------------
    The exact mean over all windows of one record; that every window holds about so many is what is assumed of it.
    Leaves out trends within it.

    References
    ----------
    [Xiang2011]

    Examples
    --------
    Blocks 1, 2, 1, 3: each pair holds two of them, all together three.

    >>> from types import SimpleNamespace as Record
    >>> reuse = _reuse(Record(content=np.array([1, 2, 1, 3]), findable=np.full(4, True)))
    >>> _footprint(reuse, np.array([1.0, 2.0, 4.0])).tolist()
    [1.0, 2.0, 3.0]
    """
    distinct = len(reuse.edges) / 2
    missing = _beyond(reuse.gaps, window) + _beyond(reuse.edges, window)
    return distinct - missing / (reuse.touches - window + 1)


def _hits(reuse: _Reuse, capacities: Floats) -> Floats:
    """Findable touches that find their block in LRU caches of so many blocks."""
    windows = np.unique(reuse.gaps)
    held = np.maximum.accumulate(_footprint(reuse, windows))
    reach = np.searchsorted(held, capacities, side="right")
    ends = np.append(0.0, windows)[reach]
    hits = np.append(0.0, np.cumsum(reuse.findable))
    return hits[np.searchsorted(reuse.gaps, ends, side="right")]


def reuse_fractions(
    requests: Requests, records: RequestRecords, *, block_size_tokens: int, capacities: Ints | Floats
) -> tuple[float, ...]:
    """Share of prompt tokens that LRU caches of so many blocks hold when requests come as they did in a run.

    Each replica has a cache of its own. Left out: blocks that running sequences hold and nobody can take, and what is
    still computed when the same prefix comes again.
    """
    hits, tokens = np.zeros(len(capacities)), 0.0
    for replica in np.unique(records.replica[records.replica >= 0]):
        own = np.flatnonzero((records.replica == replica) & np.isfinite(records.admitted_s))
        own = own[np.argsort(records.admitted_s[own], kind="stable")]
        if not len(own):
            continue
        touches = _touches(requests, own, block_size_tokens=block_size_tokens)
        hits += _hits(_reuse(touches), np.asarray(capacities, dtype=np.float64))
        tokens += touches.prompt_tokens
    return tuple((hits * block_size_tokens / max(tokens, 1.0)).tolist())
