"""Which KV blocks prompts have in common: dense ids such that equal ids mean equal content up to and with a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.errors import RoofcastError
from simulator.traffic.requests import Ints
from simulator.units import MEGA

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
    if hash_block_tokens % block_size_tokens:
        raise RoofcastError(
            f"{block_size_tokens} does not divide the trace's blocks of {hash_block_tokens} tokens",
            field="engine.block_size_tokens",
            hint="choose a block size that divides them",
        )
    parts = hash_block_tokens // block_size_tokens
    flat = np.concatenate([np.zeros(0, dtype=np.int64), *(np.asarray(row, dtype=np.int64) for row in hashes)])
    _, dense = np.unique(flat, return_inverse=True)
    ids = (dense[:, np.newaxis] * parts + np.arange(parts)).ravel()
    starts = np.cumsum([0, *(len(row) * parts for row in hashes)])
    return PrefixLists(list_start=starts.astype(np.int64), block_ids=ids.astype(np.int64))
