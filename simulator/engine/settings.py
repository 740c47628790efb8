"""The scheduler's limits with every default filled in, as the event loop takes them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from simulator.errors import RoofcastError


class Routing(IntEnum):
    """How a front end spreads requests over replicas."""

    ROUND_ROBIN = 0
    LEAST_OUTSTANDING = 1
    PREFIX_AWARE = 2


class Batching(IntEnum):
    """Continuous: sequences join and leave at every step. Static: a batch is admitted whole and leaves whole."""

    CONTINUOUS = 0
    STATIC = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Limits and policies of one replica's scheduler.

    max_num_batched_tokens : new tokens of one step; max_num_seqs : sequences that run at once
    max_model_len : prompt plus output tokens beyond which a request is rejected
    kv_blocks : KV blocks of the replica; block_size_tokens : tokens of one
    watermark_fraction : share of the blocks that admission leaves free (running sequences may use them)
    prefix_caching : reuse full blocks of earlier prompts; chunked_prefill : split prompts over steps
    async_scheduling : the next step is put together when the current one starts, not when it ends
    request_delay_s, prompt_token_delay_s : from arrival to the scheduler's queue, fixed and per prompt token [s]
    timeout_s : a request that has not finished this long after its arrival is given up, or None [s]
    """

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    kv_blocks: int
    block_size_tokens: int = 16
    watermark_fraction: float = 0.0
    prefix_caching: bool = True
    chunked_prefill: bool = True
    async_scheduling: bool = True
    batching: Batching = Batching.CONTINUOUS
    replicas: int = 1
    routing: Routing = Routing.ROUND_ROBIN
    request_delay_s: float = 0.0
    prompt_token_delay_s: float = 0.0
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_num_batched_tokens", "max_num_seqs", "max_model_len", "block_size_tokens", "replicas"):
            if getattr(self, name) < 1:
                raise RoofcastError(f"{getattr(self, name)}; at least 1", field=f"engine.{name}")
        if self.kv_blocks < 1:
            raise RoofcastError(
                f"{self.kv_blocks} KV blocks; at least 1 is needed to serve",
                field="kv_blocks",
                code="no_kv_memory",
                hint="fewer weights bytes per device (larger tp_size, narrower weights) or more memory",
            )
        if not 0 <= self.watermark_fraction < 1:
            raise RoofcastError(f"{self.watermark_fraction}; allowed: 0 <= x < 1", field="engine.watermark_fraction")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise RoofcastError(
                f"{self.max_num_batched_tokens} is below max_num_seqs {self.max_num_seqs}",
                field="engine.max_num_batched_tokens",
                hint="every running sequence needs one token a step: raise it or lower max_num_seqs",
            )
        if self.batching is Batching.STATIC and self.async_scheduling:
            raise RoofcastError(
                "static batching has no step to schedule ahead", field="async_scheduling", hint="set it to False"
            )
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise RoofcastError(f"{self.timeout_s} s; must be positive", field="timeout_s")

    @property
    def watermark_blocks(self) -> int:
        """Blocks that admission leaves free."""
        return int(self.watermark_fraction * self.kv_blocks)
