"""Prepare the arrays of the loop that walks over its sequences, and run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.engine.policy_loop import run_policies
from simulator.engine.policy_state import (
    NUMBERS,
    PolicyDemand,
    PolicyFate,
    PolicyState,
    make_policy_limits,
    make_policy_state,
    make_verification,
)
from simulator.engine.request import NO_PREVIOUS, Floats, Requests
from simulator.engine.settings import SchedulerSettings
from simulator.engine.state import Demand, Fate
from simulator.phases.compiled import StepTables

RunSlices = Callable[[Callable[[int, int], None]], None]


def _stacked(stages: tuple[StepTables, ...]) -> Any:
    """One set of arrays with a leading axis of stages, so that any pipeline runs through the same compiled code.

    A ``StepTables`` whose arrays, and ``issue_s``, have one entry per stage.
    """
    first = stages[0]
    issue_s: Any = np.array([tables.issue_s for tables in stages], dtype=np.float64)
    return first._replace(
        token_s=np.stack([tables.token_s for tables in stages]),
        logits_s=np.stack([tables.logits_s for tables in stages]),
        decode_s=np.stack([tables.decode_s for tables in stages]),
        prefill_s=np.stack([tables.prefill_s for tables in stages]),
        issue_s=issue_s,
    )


def _followers(requests: Requests, order: np.ndarray) -> np.ndarray:
    """For each request, in the order of the queue, the turn that follows it, or -1."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    follower = np.full(len(order), -1, dtype=np.int64)
    turns = np.flatnonzero(requests.previous != NO_PREVIOUS)
    follower[place[requests.previous[turns]]] = place[turns]
    return follower


def _policy_demand(demand: Demand, requests: Requests, settings: SchedulerSettings, order: np.ndarray) -> PolicyDemand:
    delay_s = settings.request_delay_s + settings.prompt_token_delay_s * requests.prompt_tokens
    return PolicyDemand(
        times_s=demand.times_s,
        shape=demand.shape,
        list_start=demand.list_start,
        block_ids=demand.block_ids,
        stage_end_s=demand.stage_end_s,
        follower=_followers(requests, order),
        is_follower=(requests.previous != NO_PREVIOUS)[order],
        think_s=requests.think_s[order],
        delay_s=delay_s[order],
        patience_s=np.inf if settings.timeout_s is None else float(settings.timeout_s),
    )


def run_with_policy(
    stages: tuple[StepTables, ...],
    *,
    requests: Requests,
    settings: SchedulerSettings,
    demand: Demand,
    fate: Fate,
    order: np.ndarray,
    longest_tokens: int,
    trace_steps: int,
    run_slices: RunSlices,
) -> tuple[PolicyState, Floats]:
    """Fill ``fate`` in. Returns the final state, and when each request was sent, in the order of the queue [s].

    demand, fate : in the order of the queue, ``order``; stages : step tables of each pipeline stage
    """
    limits = make_policy_limits(settings, stages=len(stages))
    state = make_policy_state(
        settings, requests, limits=limits, stages=len(stages), longest_tokens=longest_tokens, trace_steps=trace_steps
    )
    conversations = _policy_demand(demand, requests, settings, order)
    turns = int(conversations.is_follower.sum())
    fates = PolicyFate(
        times_s=fate.times_s,
        notes=fate.notes,
        sent_s=np.where(conversations.is_follower, np.nan, requests.arrival_s[order]),
        log=np.zeros(len(order), dtype=np.int64),
        heap_s=np.zeros(turns + 1),
        heap_request=np.zeros(turns + 1, dtype=np.int64),
        numbers=np.zeros(NUMBERS, dtype=np.int64),
    )
    tables = _stacked(stages)
    verification = make_verification(settings)
    chosen = settings.token_ratio
    ratio = np.array([chosen.initial, (chosen.initial - chosen.least) / chosen.decay_steps, chosen.least])
    run_slices(
        lambda first, last: run_policies(state, conversations, fates, limits, tables, verification, ratio, first, last)
    )
    return state, fates.sent_s
