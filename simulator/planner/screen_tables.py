"""Step-time tables of every set-up of a wide search, without its engine limits, and the room for its cache."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.engine.lengths import Array, RequestMix
from simulator.errors import RoofcastError
from simulator.operators.step_shape import StepShape, mixed_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.draft_cost import drafting_s, paced_shapes
from simulator.phases.memory import activation_bytes, memory_plan
from simulator.planner.candidates import Platform
from simulator.planner.replica_curve import bubble_factor
from simulator.planner.screen_rows import RowPrices, SharedRows, lane_seconds, shared_rows
from simulator.planner.search_space import SearchSpace, Variant
from simulator.specs.deployment import ParallelismSpec
from simulator.specs.engine import EngineSpec
from simulator.specs.model import ModelSpec

_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedSteps:
    """Which steps are priced: decoding alone [N], with arriving prompts and filled to the budget [budgets, N].

    nodes : decoding sequences [N]; shared, room : prompt tokens of the two kinds [budgets, N]
    """

    nodes: Array
    shared: Array
    room: Array
    step: StepShape


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenTable:
    """One replica set-up without its engine limits: step times [s] and what the cache holds [tokens].

    decode_s [N]; shared_s, full_s [budgets, N]; kv_tokens [sequences, budgets] of one lane
    """

    platform: Platform
    parallelism: ParallelismSpec
    variant: Variant
    decode_s: Array
    shared_s: Array
    full_s: Array
    kv_tokens: Array


def screened_steps(mix: RequestMix, *, space: SearchSpace) -> ScreenedSteps:
    """Steps of octaves of decoding sequences, for every token budget; as ``load_curve`` builds them."""
    largest = max(space.sequences)
    octaves = int(np.ceil(np.log2(max(largest, 2))))
    nodes = np.append(np.zeros(1), np.exp2(np.arange(octaves + 1)))
    budgets = np.array(space.tokens, dtype=np.float64)[:, None]
    room = np.maximum(budgets - nodes, 1.0)
    arrivals = np.maximum(nodes / mix.decode_steps, np.finfo(float).eps)
    together = arrivals / -np.expm1(-arrivals)
    chunk = np.minimum(mix.new_prompt_tokens, room)
    shared = np.minimum(room, mix.new_prompt_tokens * together)
    tokens = np.concatenate([np.zeros_like(nodes), shared.ravel(), room.ravel()])
    chunks = np.concatenate([np.ones_like(nodes), chunk.ravel(), chunk.ravel()])
    cached = mix.isl.mean_tokens - mix.new_prompt_tokens
    context = np.maximum(cached + (mix.new_prompt_tokens - chunks) / 2, 0.0)
    decoding = np.concatenate([np.maximum(nodes, 1.0), np.tile(nodes, 2 * len(budgets))])
    step = mixed_step(
        prefill_sequences=tokens / chunks,
        prefill_tokens=chunks,
        prefill_context=context,
        decode_sequences=decoding,
        decode_context=mix.decode_context_tokens,
    )
    return ScreenedSteps(nodes=nodes, shared=shared, room=room, step=step)


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


class TableMaker:
    """Makes the tables of a search space; what accelerators and set-ups share is kept between calls."""

    def __init__(
        self, *, model: ModelSpec, mix: RequestMix, space: SearchSpace, engine: EngineSpec, profiles: str | None
    ) -> None:
        self.steps = screened_steps(mix, space=space)
        self._model, self._mix, self._space = model, mix, space
        self._profiles, self._engine = profiles, engine
        self._depth = max(item.pp_size for item in space.parallelisms)
        self._rows: dict[_Key, SharedRows] = {}
        self._room: dict[_Key, CacheRoom] = {}
        self._prices: dict[_Key, RowPrices] = {}
        self._deployed: dict[_Key, Deployment | None] = {}
        self._drafting: dict[_Key, tuple[Array, Array]] = {}

    def table(self, platform: Platform, parallelism: ParallelismSpec, variant: Variant) -> ScreenTable | None:
        """Of one set-up, or None where it cannot be deployed or does not fit."""
        if parallelism.tp_size > platform.linked_devices:
            return None
        deployment = self._deployment(platform, parallelism, variant)
        if deployment is None:
            return None
        key = (parallelism, variant)
        if key not in self._room:
            self._room[key] = cache_room(deployment, space=self._space)
        visible = platform.hardware.memory_visible_bytes
        kv_tokens = self._room[key].kv_tokens(visible, lanes=parallelism.pp_size)
        if kv_tokens.max() <= self._mix.decode_context_tokens:
            return None
        try:
            seconds = self._lane_s(deployment, variant)
        except RoofcastError:
            # A format that one operator, such as the LM head, has no rate for.
            return None
        count, budgets = len(self.steps.nodes), len(self._space.tokens)
        decode_s, shared_s, full_s = np.split(seconds, [count, count * (1 + budgets)])
        shared_s = self._with_bubbles(decode_s, shared_s.reshape(budgets, count), stages=parallelism.pp_size)
        return ScreenTable(
            platform=platform,
            parallelism=parallelism,
            variant=variant,
            decode_s=decode_s,
            shared_s=shared_s,
            full_s=full_s.reshape(budgets, count),
            kv_tokens=kv_tokens,
        )

    def _with_bubbles(self, decode_s: Array, shared_s: Array, *, stages: int) -> Array:
        """Steps with prompts [budgets, nodes] with what the prompts of the other lanes add; see ``bubble_factor``."""
        if stages == 1:
            return shared_s
        budgets = np.array(self._space.tokens, dtype=np.float64)[:, None]
        factor = bubble_factor(self.steps.nodes, mix=self._mix, batched_tokens=budgets, stages=stages)
        longer: Array = decode_s + np.maximum(shared_s - decode_s, 0.0) * factor
        return longer

    def _deployment(self, platform: Platform, parallelism: ParallelismSpec, variant: Variant) -> Deployment | None:
        """The formats and fits of a platform are resolved once and serve every parallelism within its links."""
        beyond_links = parallelism.devices > platform.hardware.scale_up.domain_size
        # A drafter is spread like its target.
        spread = parallelism.tp_size if variant.techniques.speculation is not None else 1
        key = (platform.hardware.name, variant, beyond_links, spread)
        if key not in self._deployed:
            try:
                self._deployed[key] = deploy(
                    model=self._model,
                    hardware=platform.hardware,
                    parallelism=parallelism,
                    precision=variant.precision,
                    techniques=variant.techniques,
                    engine=self._engine,
                    profiles=self._profiles,
                )
            except RoofcastError:
                self._deployed[key] = None
        found = self._deployed[key]
        return None if found is None else replace(found, parallelism=parallelism)

    def _lane_s(self, deployment: Deployment, variant: Variant) -> Array:
        """Of every screened step; with speculation of one token at the pace of its rounds, as ``per_token_step``."""
        step, speculation = self.steps.step, deployment.speculation
        if speculation is None:
            return self._priced_s(deployment, variant, step, kind="plain")
        verify, mixed = paced_shapes(speculation, step)
        bare = self._priced_s(deployment, variant, verify, kind="verify")
        together = self._priced_s(deployment, variant, mixed, kind="mixed")
        draft = speculation.draft
        key = (
            deployment.hardware.name,
            speculation.spec,
            draft.plan if draft else None,
            deployment.parallelism.tp_size,
        )
        if key not in self._drafting:
            self._drafting[key] = drafting_s(deployment, step)
        guesses, prompts = self._drafting[key]
        paced: Array = (bare + guesses) / speculation.plan.mean_tokens + together - bare + prompts
        return paced

    def _priced_s(self, deployment: Deployment, variant: Variant, step: StepShape, *, kind: str) -> Array:
        parallelism = deployment.parallelism
        key = (parallelism.tp_size, parallelism.ep_size, parallelism.dp_size, variant, kind)
        if key not in self._rows:
            self._rows[key] = shared_rows(deployment, step=step, depth=self._depth)
        return lane_seconds(deployment, self._rows[key], self._row_prices(deployment), step=step)

    def _row_prices(self, deployment: Deployment) -> RowPrices:
        key = (deployment.hardware.name, deployment.kernels.network is not None)
        if key not in self._prices:
            self._prices[key] = RowPrices(deployment.kernels)
        return self._prices[key]
