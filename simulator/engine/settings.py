"""The scheduler's limits with every default filled in, as the event loop takes them."""

from __future__ import annotations

from enum import IntEnum

from simulator.errors import RoofcastError, ignored_option
from simulator.records import dataclass
from simulator.traffic.lengths import check_tokens


class Routing(IntEnum):
    """How a front end spreads requests over replicas."""

    ROUND_ROBIN = 0
    LEAST_OUTSTANDING = 1
    PREFIX_AWARE = 2


class Batching(IntEnum):
    """Continuous: sequences join and leave at every step. Static: a batch is admitted whole and leaves whole."""

    CONTINUOUS = 0
    STATIC = 1


class SchedulerPolicy(IntEnum):
    """What a step is made of and when there is room for another sequence (``events.scheduler``). CHUNKED_MIXED and
    MAX_UTILIZATION are one policy under the names of two engines (vLLM, TensorRT-LLM)."""

    CHUNKED_MIXED = 0
    MAX_UTILIZATION = 1
    GUARANTEED_NO_EVICT = 2
    PREFILL_FIRST = 3
    PREFILL_FIRST_MIXED = 4


class QueueOrder(IntEnum):
    """Who waits first is admitted first, or who finds most of its prompt in the prefix cache."""

    ARRIVAL = 0
    LONGEST_PREFIX = 1


CLIPPED_ANSWER_TOKENS = 4096
"""SGLang counts at most this much of an answer when it admits."""

STEPS_AFTER_RETRACTION = 20
"""SGLang's new-token ratio after a retraction assumes that every sequence generates this many more (its
retract_decode_steps), and counts what has been generated so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRatio:
    """Share of the answers of running sequences that SGLang keeps room for: at first, at least, and over how many steps
    it sinks from one to the other (its init_new_token_ratio, min_new_token_ratio_factor and decay steps)."""

    initial: float = 0.7
    least: float = 0.7 * 0.14
    decay_steps: int = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeSteps:
    """Every decoding sequence verifies a draft in every step.

    verify_tokens : tokens scored per sequence and step, the draft's and one more
    acceptance : per position the chance that it is accepted given that all before it were; a step yields one token more
        than it accepts, 1 + a1 + a1 a2 + ... on average
    """

    verify_tokens: int
    acceptance: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.verify_tokens < 2:
            raise RoofcastError(f"{self.verify_tokens}; at least 2 (a guess and one more)", field="verify_tokens")
        if not 0 < len(self.acceptance) < self.verify_tokens:
            raise RoofcastError(
                f"{len(self.acceptance)} positions for {self.verify_tokens} verified tokens; one token is not a guess",
                field="acceptance",
            )
        if not all(0 <= chance <= 1 for chance in self.acceptance):
            raise RoofcastError(f"{self.acceptance}; probabilities lie in [0, 1]", field="acceptance")

    @property
    def mean_tokens(self) -> float:
        """Mean tokens that a step yields per sequence."""
        reach, total = 1.0, 1.0
        for chance in self.acceptance:
            reach *= chance
            total += reach
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTier:
    """KV blocks of a replica that a tier below the device holds, what one takes to come back over its link, and what
    the first of several takes more [s]. shared : all replicas find what each of them leaves in its part of it"""

    blocks: int
    block_load_s: float
    latency_s: float = 0.0
    shared: bool = False

    def __post_init__(self) -> None:
        if self.blocks < 1:
            raise RoofcastError(f"room for {self.blocks} blocks; at least 1", field="engine.kv_tiers")


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
    policy, queue_order, token_ratio : what the engine's scheduler does; token_ratio matters to SGLang's policies
    tiers : what holds KV blocks below the device, fastest first; prompt_s : what computing the first 0, 1, 2 ... blocks
        of a prompt takes [s]: blocks below are loaded where that is sooner, without it always
    speculation : drafts that every step verifies, drawn with ``seed``
    ranks : of ``replicas`` in a row so many step together (``ParallelismSpec.ranks_in_step``)
    computed_on_arrival : prompts arrive with their KV cache and their first token (the decode pool of a disaggregated
        deployment)
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
    ranks: int = 1
    routing: Routing = Routing.ROUND_ROBIN
    request_delay_s: float = 0.0
    prompt_token_delay_s: float = 0.0
    timeout_s: float | None = None
    policy: SchedulerPolicy = SchedulerPolicy.CHUNKED_MIXED
    queue_order: QueueOrder = QueueOrder.ARRIVAL
    token_ratio: TokenRatio = TokenRatio()
    tiers: tuple[CacheTier, ...] = ()
    prompt_s: tuple[float, ...] = ()
    speculation: SpeculativeSteps | None = None
    computed_on_arrival: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("max_num_batched_tokens", "max_num_seqs", "max_model_len", "block_size_tokens", "replicas"):
            if getattr(self, name) < 1:
                raise RoofcastError(f"{getattr(self, name)}; at least 1", field=f"engine.{name}")
        for name in ("max_num_batched_tokens", "max_num_seqs", "max_model_len", "block_size_tokens"):
            check_tokens(getattr(self, name), field=f"engine.{name}")
        if self.kv_blocks < 1:
            raise RoofcastError(
                f"{self.kv_blocks} KV blocks; at least 1 is needed to serve",
                field="kv_blocks",
                code="no_kv_memory",
                hint="fewer bytes of weights per device (larger tp_size, narrower weights) or more memory",
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
        self._check_policy()

    def _check_policy(self) -> None:
        """Refuse combinations that no engine has or that would change nothing."""
        if self.queue_order is QueueOrder.LONGEST_PREFIX and not self.prefix_caching:
            raise ignored_option("needs prefix caching", field="engine.queue_order", hint="")
        if self.speculation is not None:
            verified = self.speculation.verify_tokens
            needed = self.max_num_seqs * verified
            if self.max_num_batched_tokens < needed:
                raise RoofcastError(
                    f"{self.max_num_batched_tokens} is below max_num_seqs x {verified} = {needed}",
                    field="engine.max_num_batched_tokens",
                    hint="every running sequence verifies that many tokens a step: raise it or lower max_num_seqs",
                )
        if self.batching is Batching.STATIC and self.counted_ahead:
            raise RoofcastError(
                "static batching allows no other policy, offload, speculation or disaggregation",
                field="engine.scheduler",
                code="unsupported_option",
            )

    @property
    def shared_tier(self) -> int:
        """The tier in which replicas find each other's blocks; -1 where there is none, or one replica."""
        found = [place for place, tier in enumerate(self.tiers) if tier.shared]
        return found[0] if found and self.replicas > 1 else -1

    @property
    def counted_ahead(self) -> bool:
        """Whether the queue beside a step is the one in which it is formed, not the one in which it starts."""
        return (
            self.policy not in (SchedulerPolicy.CHUNKED_MIXED, SchedulerPolicy.MAX_UTILIZATION)
            or self.queue_order is not QueueOrder.ARRIVAL
            or len(self.tiers) > 0
            or self.speculation is not None
            or self.computed_on_arrival
        )

    @property
    def watermark_blocks(self) -> int:
        """Blocks that admission leaves free."""
        return int(self.watermark_fraction * self.kv_blocks)
