"""The arrays of one idle replica and a small demand, for tests of the loop's parts one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from simulator.engine.events import state as at
from simulator.engine.events.arrays import make_limits, make_state
from simulator.engine.events.columns import fate_of_group, has_turns, make_demand, make_fate, queue_order, queue_rows
from simulator.engine.events.state import EngineState, Fate, Limits, RequestColumns
from simulator.engine.settings import SchedulerSettings
from simulator.records import dataclass
from simulator.traffic.requests import Requests, make_requests

SETTINGS = SchedulerSettings(
    max_num_batched_tokens=64, max_num_seqs=4, max_model_len=128, kv_blocks=8, block_size_tokens=4
)


def lengths(
    prompts: list[int], answers: list[int] | None = None, *, arrival_s: list[float] | None = None, **columns: Any
) -> Requests:
    """Requests that come together, each with 4 tokens of answer, unless told otherwise."""
    return make_requests(
        arrival_s=np.array(arrival_s or [0.0] * len(prompts)),
        prompt_tokens=np.array(prompts),
        output_tokens=np.array(answers or [4] * len(prompts)),
        **columns,
    )


def sharing(prompts: list[int], lists: list[list[int]]) -> Requests:
    """Requests whose prompts begin with the content ids of one list each."""
    return lengths(
        prompts,
        prefix_list=np.arange(len(prompts)),
        list_start=np.cumsum([0, *map(len, lists)]),
        block_ids=np.concatenate([np.array(ids, dtype=np.int32) for ids in lists]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What functions of the loop take; state : of the first replica of ``stack``"""

    limits: Limits
    demand: RequestColumns
    fate: Fate
    stack: EngineState

    @property
    def state(self) -> EngineState:
        return self.of(0)

    def of(self, replica: int) -> EngineState:
        return EngineState._make(column[replica] for column in self.stack)


def parts(
    requests: Requests, settings: SchedulerSettings = SETTINGS, *, stages: int = 1, trace_steps: int = 0, **changed: Any
) -> Parts:
    """An idle engine that is asked for ``requests``; changed : of ``settings``."""
    settings = replace(settings, **changed)
    order = queue_order(requests, settings)
    demand = make_demand(requests, settings, rows=queue_rows(order, group=0, groups=1))
    fate = fate_of_group(make_fate(requests, settings), demand, settings, group=0, groups=1)
    longest = int((requests.prompt_tokens + requests.output_tokens).max())
    limits = make_limits(settings, slots=settings.max_num_seqs, stages=stages, conversations=has_turns(requests))
    stack = make_state(
        limits, requests, replicas=settings.replicas, stages=stages, longest_tokens=longest, trace_steps=trace_steps
    )
    return Parts(limits=limits, demand=demand, fate=fate, stack=stack)


def listed(nodes: Any, head: int) -> list[int]:
    """A linked list from its first node to its last; it must be as long backwards."""
    found, node = [], int(nodes[head, at.NEXT])
    while node != head:
        found.append(node)
        node = int(nodes[node, at.NEXT])
    backwards, node = [], int(nodes[head, at.PREV])
    while node != head:
        backwards.append(node)
        node = int(nodes[node, at.PREV])
    assert found == backwards[::-1]
    return found
