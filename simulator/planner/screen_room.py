"""What a screened set-up leaves for its cache, under every engine limit at once and on any accelerator."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.engine.lengths import Array
from simulator.phases.deployment import Deployment
from simulator.phases.memory import activation_bytes, memory_plan
from simulator.planner.search_space import SearchSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRoom:
    """What a set-up leaves for the KV cache on one accelerator, to be carried over to others.

    visible_bytes : of that accelerator; free_bytes [sequences, budgets] : below 0 where it does not fit
    share : of more memory that goes to the cache; per_token_bytes : of one cached token, 0 where nothing is cached
    """

    visible_bytes: float
    free_bytes: Array
    share: float
    per_token_bytes: float

    def kv_tokens(self, visible_bytes: float, *, lanes: int) -> Array:
        """Tokens that the cache of one lane holds [sequences, budgets]; below 0 where it does not fit."""
        free = self.free_bytes + self.share * (visible_bytes - self.visible_bytes)
        if not self.per_token_bytes:
            return np.where(free > 0, np.inf, -1.0)
        return free / self.per_token_bytes / lanes


def cache_room(deployment: Deployment, *, space: SearchSpace) -> CacheRoom:
    """Room for the cache under every engine limit: linear in the token budget and in the sequences sampled at once."""
    engine, memory = deployment.engine, memory_plan(deployment)
    left = memory.kv_capacity_bytes if memory.shortfall_bytes == 0 else -memory.shortfall_bytes

    def beside(sequences: int, tokens: int) -> float:
        limits = replace(engine, max_num_seqs=sequences, max_num_batched_tokens=tokens)
        return activation_bytes(replace(deployment, engine=limits)) + sequences * memory.state_bytes_per_sequence

    now = beside(engine.max_num_seqs, engine.max_num_batched_tokens)
    per_token = beside(1, 2) - beside(1, 1)
    per_sequence = beside(2, 2) - beside(1, 2)
    tokens = np.array(space.tokens)
    sampled = np.minimum(np.array(space.sequences)[:, None], tokens)
    taken = beside(1, 1) + per_token * (tokens - 1) + per_sequence * (sampled - 1)
    scale = engine.gpu_memory_utilization if engine.memory_rule == "of_free" else 1.0
    return CacheRoom(
        visible_bytes=deployment.hardware.memory_visible_bytes,
        free_bytes=left - engine.max_num_seqs * memory.state_bytes_per_sequence - scale * (taken - now),
        share=engine.gpu_memory_utilization,
        per_token_bytes=memory.kv_bytes_per_token,
    )
