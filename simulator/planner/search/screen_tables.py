"""Step-time tables of every set-up of a wide search, without its engine limits, and the room for its cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simulator.engine.lanes.queueing import arrivals_in_turns
from simulator.errors import RoofcastError
from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.operators.work import StepShape, mixed_step
from simulator.phases.deployment import Deployment, Speculation, deploy, with_speculation, without_speculation
from simulator.planner.records import Platform, SearchSpace, Variant
from simulator.planner.search import screen_rows
from simulator.records import dataclass
from simulator.specs.base import Same
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import PROMPTS_APART, EngineSpec, engine_limits, load_engine
from simulator.specs.model.architecture import ModelSpec
from simulator.traffic.lengths import Array, RequestMix

_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedSteps:
    """Which steps are priced: decoding alone [N], with arriving prompts and filled to the budget [budgets, N].

    nodes : decoding sequences [N]; shared, room : prompt tokens of the two kinds [budgets, N]
    apart : prompts have steps of their own, in which nobody decodes
    """

    nodes: Array
    shared: Array
    room: Array
    step: StepShape
    apart: bool

    def beside(self, decoding: Array) -> Array:
        """What of ``decoding``, sequences or seconds of a plain step, goes on in a step with prompts."""
        return np.zeros_like(decoding) if self.apart else decoding


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenTable:
    """One replica set-up without its engine limits: step times [s] and what the cache holds [tokens]. decode_s [N];
    shared_s, full_s [budgets, N]; delaying : how many times its own time a prompt of a lane delays it, for those of
    other stages' lanes [budgets, N]; kv_tokens [sequences, budgets] of one lane"""

    platform: Platform
    parallelism: ParallelismSpec
    variant: Variant
    decode_s: Array
    shared_s: Array
    full_s: Array
    delaying: Array
    kv_tokens: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fitting:
    """A set-up that can be deployed, and what its cache holds [sequences, budgets] [tokens].

    lanes : the steps that are priced of it with their rows; with speculation the verify steps alone and with prompts
    """

    deployment: Deployment
    variant: Variant
    kv_tokens: Array
    lanes: tuple[tuple[StepShape, screen_rows.SharedRows], ...]


def screened_steps(mix: RequestMix, *, space: SearchSpace, apart: bool = False) -> ScreenedSteps:
    """Steps of octaves of decoding sequences, for every token budget; as ``load_curve`` builds them."""
    largest = max(space.sequences)
    octaves = int(np.ceil(np.log2(max(largest, 2))))
    nodes = np.append(np.zeros(1), np.exp2(np.arange(octaves + 1)))
    budgets = np.array(space.tokens, dtype=np.float64)[:, None]
    beside = np.zeros_like(nodes) if apart else nodes
    room = np.maximum(budgets - beside, 1.0)
    arrivals = np.maximum(nodes / mix.decode_steps, np.finfo(float).eps)
    if apart:
        arrivals = arrivals_in_turns(arrivals)
    together = arrivals / -np.expm1(-arrivals)
    chunk = np.minimum(mix.new_prompt_tokens, room)
    shared = np.minimum(room, mix.new_prompt_tokens * together)
    tokens = np.concatenate([np.zeros_like(nodes), shared.ravel(), room.ravel()])
    chunks = np.concatenate([np.ones_like(nodes), chunk.ravel(), chunk.ravel()])
    cached = mix.isl.mean_tokens - mix.new_prompt_tokens
    context = np.maximum(cached + (mix.new_prompt_tokens - chunks) / 2, 0.0)
    decoding = np.concatenate([np.maximum(nodes, 1.0), np.tile(beside, 2 * len(budgets))])
    step = mixed_step(
        prefill_sequences=tokens / chunks,
        prefill_tokens=chunks,
        prefill_context=context,
        decode_sequences=decoding,
        decode_context=mix.decode_context_tokens,
    )
    return ScreenedSteps(nodes=nodes, shared=shared, room=room, step=step, apart=apart)


_RATIOS = np.geomspace(1 / 128, 512.0, 11)
"""Of a prompt's time over that of a step, at which delays are tabulated."""


class TableMaker:
    """Makes the tables of a search space; what accelerators and set-ups share is kept between calls. Equal variants
    share what they have in common only where they are the same object. ``known`` : rows that another maker kept."""

    def __init__(
        self,
        engines: Mapping[Platform, EngineSpec],
        *,
        model: ModelSpec,
        mix: RequestMix,
        space: SearchSpace,
        profiles: str | None,
        known: screen_rows.DistinctRows | None = None,
    ) -> None:
        engine = next(iter(engines.values()))
        scheduler = engine.scheduler or load_engine(engine.name, profiles=profiles).scheduler
        self.steps = screened_steps(mix, space=space, apart=scheduler == PROMPTS_APART)
        self._model, self._mix, self._space = model, mix, space
        self._profiles, self._engines = profiles, engines
        self._depth = max(item.pp_size for item in space.parallelisms)
        self._distinct = known or screen_rows.DistinctRows()
        self._rows: dict[_Key, tuple[screen_rows.SharedRows, ...]] = {}
        self._room: dict[_Key, screen_rows.CacheRoom] = {}
        self._prices: dict[_Key, screen_rows.RowPrices] = {}
        self._deployed: dict[_Key, Deployment | None] = {}
        self._drafting: dict[_Key, tuple[Array, Array]] = {}
        self._draft_passes: dict[_Key, tuple[screen_rows.DraftPass, ...]] = {}
        self._memory_shares: dict[_Key, Array] = {}
        self._delayed: dict[int, Array] = {}
        self._paced: dict[int, tuple[StepShape, StepShape]] = {}
        self._plans: dict[PrecisionPlan, PrecisionPlan] = {}

    def tables(self, wanted: Mapping[Platform, Iterable[tuple[ParallelismSpec, Variant]]]) -> tuple[ScreenTable, ...]:
        """Tables of every set-up of each platform that can be deployed and fits; what they share is priced once."""
        made: list[ScreenTable] = []
        for platform, pairs in wanted.items():
            fitting = [found for pair in pairs if (found := self._fitting(platform, *pair)) is not None]
            self._price_together(fitting)
            made += [table for found in fitting if (table := self._table(platform, found)) is not None]
            for prices in self._prices.values():
                prices.forget_sums()
        return self._with_delays(made)

    def _price_together(self, members: Sequence[_Fitting]) -> None:
        """Price the kernels of several set-ups on one accelerator at once; what has no rate is left to be refused."""
        by_prices: dict[int, tuple[screen_rows.RowPrices, list[_Fitting]]] = {}
        for found in members:
            prices = self._row_prices(found.deployment)
            by_prices.setdefault(id(prices), (prices, []))[1].append(found)
        for prices, sharing in by_prices.values():
            try:
                prices.price(row for found in sharing for row in self._rows_of(found))
            except RoofcastError:
                # A format has no rate: the others are priced together, its set-ups one by one when they are asked for.
                formats = dict.fromkeys(found.variant.precision for found in sharing)
                for precision in formats if len(formats) > 1 else ():
                    self._price_together([found for found in sharing if found.variant.precision == precision])

    def _rows_of(self, found: _Fitting) -> Iterator[screen_rows.DistinctRow]:
        for _, shared in found.lanes:
            yield from shared.all
        for one in self._drafted_beside(found.deployment):
            yield from one.rows

    def _table(self, platform: Platform, found: _Fitting) -> ScreenTable | None:
        """None where one of its operators has no rate."""
        parallelism = found.deployment.parallelism
        try:
            seconds = self._lane_s(found)
        except RoofcastError:
            # A format that one operator, such as the LM head, has no rate for.
            return None
        count, budgets = len(self.steps.nodes), len(self._space.tokens)
        decode_s, shared_s, full_s = np.split(seconds, [count, count * (1 + budgets)])
        shared_s = shared_s.reshape(budgets, count)
        return ScreenTable(
            platform=platform,
            parallelism=parallelism,
            variant=found.variant,
            decode_s=decode_s,
            shared_s=shared_s,
            full_s=full_s.reshape(budgets, count),
            delaying=np.ones_like(shared_s),
            kv_tokens=found.kv_tokens,
        )

    def _fitting(self, platform: Platform, parallelism: ParallelismSpec, variant: Variant) -> _Fitting | None:
        if parallelism.tp_size > platform.linked_devices:
            return None
        deployment = self._deployment(platform, parallelism, variant)
        if deployment is None:
            return None
        kv_tokens = self._kv_tokens(platform, parallelism, variant, deployment)
        if kv_tokens.max() <= self._mix.decode_context_tokens:
            return None
        lanes = self._lanes(deployment, variant)
        return _Fitting(deployment=deployment, variant=variant, kv_tokens=kv_tokens, lanes=lanes)

    def _kv_tokens(
        self, platform: Platform, parallelism: ParallelismSpec, variant: Variant, deployment: Deployment
    ) -> Array:
        # The formats of a variant that leaves them open are those that the accelerator multiplies.
        key = (parallelism, Same(variant), Same(deployment.plan))
        if key not in self._room:
            self._room[key] = screen_rows.cache_room(
                deployment, sequences=self._space.sequences, budgets=self._space.tokens
            )
        shares = self._shares(platform, parallelism)
        return self._room[key].kv_tokens(
            platform.hardware.memory_visible_bytes, shares=shares, lanes=parallelism.pp_size
        )

    def _shares(self, platform: Platform, parallelism: ParallelismSpec) -> Array:
        """Of the memory that the engine takes under each token budget [budgets]."""
        key = (platform.hardware.name, parallelism.tp_size, parallelism.pp_size)
        if key not in self._memory_shares:
            engine, shares = self._engines[platform], list[float]()
            for tokens in self._space.tokens:
                limits = engine_limits(
                    engine.model_copy(update={"max_num_batched_tokens": tokens}),
                    hardware=platform.hardware,
                    parallelism=parallelism,
                    profiles=self._profiles,
                )
                shares.append(limits.gpu_memory_utilization)
                rule = limits.source("gpu_memory_utilization").rule
                if rule is None or rule.memory_share is None:  # the same whatever a step holds
                    break
            self._memory_shares[key] = np.resize(shares, len(self._space.tokens))
        return self._memory_shares[key]

    def _with_delays(self, tables: Sequence[ScreenTable]) -> tuple[ScreenTable, ...]:
        """Tables of pipelines with ``delaying`` from ``prompt_delays``, interpolated between ratios of a prompt's time
        over that of a step. Only what some table asks for is worked out."""
        found = list(tables)
        piped: dict[int, list[int]] = {}
        for place, table in enumerate(tables if self._mix.decode_steps > 0 else ()):
            if table.parallelism.pp_size > 1:
                piped.setdefault(table.parallelism.pp_size, []).append(place)
        for stages, places in piped.items():
            decode_s = np.stack([tables[place].decode_s for place in places])[:, None]
            shared_s = np.stack([tables[place].shared_s for place in places])
            own_s = np.maximum(shared_s - self.steps.beside(decode_s), 0.0)
            own_s = own_s * self._mix.new_prompt_tokens / self.steps.shared
            ratio = np.log(np.maximum(own_s / decode_s, _RATIOS[0]))
            place_of = np.interp(ratio, np.log(_RATIOS), np.arange(len(_RATIOS)))
            low = np.minimum(place_of.astype(np.intp), len(_RATIOS) - 2)
            below, above = self._delays(stages, low)
            delaying = stages * (below + (place_of - low) * (above - below))
            for place, own in zip(places, delaying, strict=True):
                found[place] = replace(tables[place], delaying=own)
        return tuple(found)

    def _delays(self, stages: int, low: NDArray[np.intp]) -> tuple[Array, Array]:
        """Shares of a prompt's time that delay all, at the ratios ``low`` [tables, budgets, nodes] and at the next."""
        from simulator.engine.lanes.pipeline import prompt_delays  # not needed without stages

        own_s, room, nodes = np.broadcast_arrays(
            _RATIOS[:, None, None], self.steps.room, np.maximum(self.steps.nodes, 1 / stages)
        )
        known = self._delayed.setdefault(stages, np.full(own_s.shape, np.nan))
        asked = np.zeros(own_s.shape, dtype=bool)
        at, above = np.ogrid[tuple(map(slice, low.shape))][1:], low + 1
        asked[low, *at] = asked[above, *at] = True
        asked &= np.isnan(known)
        if asked.any():
            known[asked] = prompt_delays(
                self._mix,
                stages=stages,
                sequences=nodes[asked],
                room=room[asked],
                own_s=own_s[asked],
                apart=self.steps.apart,
            )
        return known[low, *at], known[above, *at]

    def _deployment(self, platform: Platform, parallelism: ParallelismSpec, variant: Variant) -> Deployment | None:
        """The formats and fits of a platform are resolved once and serve every parallelism within its links."""
        beyond_links = parallelism.devices > platform.hardware.scale_up.domain_size
        key = (platform.hardware.name, Same(variant), beyond_links)
        if key not in self._deployed:
            try:
                self._deployed[key] = self._resolved(platform, parallelism, variant)
            except RoofcastError:
                self._deployed[key] = None
        found = self._deployed[key]
        if found is None:
            return None
        alone = found.speculation is None or found.speculation.draft is None
        if alone or found.parallelism.tp_size == parallelism.tp_size:
            return replace(found, parallelism=parallelism)
        # A drafter is spread like its target.
        spread = (*key, parallelism.tp_size)
        if spread not in self._deployed:
            try:
                target = replace(without_speculation(found), parallelism=parallelism)
                self._deployed[spread] = with_speculation(target, profiles=self._profiles)
            except RoofcastError:
                self._deployed[spread] = None
        found = self._deployed[spread]
        return None if found is None else replace(found, parallelism=parallelism)

    def _resolved(self, platform: Platform, parallelism: ParallelismSpec, variant: Variant) -> Deployment:
        found = deploy(
            model=self._model,
            hardware=platform.hardware,
            parallelism=parallelism,
            precision=variant.precision,
            techniques=variant.techniques,
            engine=self._engines[platform],
            profiles=self._profiles,
        )
        # Equal formats are the same object: tables are looked up more often than formats are compared.
        return replace(found, plan=self._plans.setdefault(found.plan, found.plan))

    def _lane_s(self, found: _Fitting) -> Array:
        """Of every screened step; with speculation of one token at the pace of its rounds, as ``per_token_step``."""
        deployment, prices = found.deployment, self._row_prices(found.deployment)
        priced = [screen_rows.lane_seconds(deployment, shared, prices, step=step) for step, shared in found.lanes]
        if deployment.speculation is None:
            return priced[0]
        bare, together = priced
        guesses, prompts = self._drafting_s(deployment, deployment.speculation)
        return (bare + guesses) / deployment.speculation.plan.mean_tokens + together - bare + prompts

    def _drafting_s(self, deployment: Deployment, speculation: Speculation) -> tuple[Array, Array]:
        """What the drafter takes for guesses and for prompts, whatever the formats of its target [s]."""
        from simulator.phases.draft_cost import drafting_s

        draft, degree = speculation.draft, deployment.parallelism.tp_size
        key = (deployment.hardware.name, speculation.spec, draft.plan if draft else None, degree)
        if key not in self._drafting:
            passes, prices = self._drafted_beside(deployment), self._row_prices(deployment)
            self._drafting[key] = (
                drafting_s(
                    deployment,
                    self.steps.step,
                    pass_times=lambda draft, _: [screen_rows.draft_pass_s(draft, one, prices) for one in passes],
                )
                if passes
                else drafting_s(deployment, self.steps.step)
            )
        return self._drafting[key]

    def _drafted_beside(self, deployment: Deployment) -> tuple[screen_rows.DraftPass, ...]:
        """Passes of a drafter that runs on its target's devices, with the same kernels; none of any other."""
        speculation = deployment.speculation
        if speculation is None or speculation.draft is None or speculation.plan.draft_device != "same":
            return ()
        from simulator.phases.draft_cost import drafting_steps

        draft = speculation.draft
        key = (speculation.spec, draft.plan, draft.parallelism, draft.engine.eager)
        if key not in self._draft_passes:
            self._draft_passes[key] = tuple(
                screen_rows.draft_pass(draft, step, self._distinct)
                for step in drafting_steps(speculation, self.steps.step)
            )
        return self._draft_passes[key]

    def _lanes(self, deployment: Deployment, variant: Variant) -> tuple[tuple[StepShape, screen_rows.SharedRows], ...]:
        steps: tuple[StepShape, ...] = (self.steps.step,)
        if deployment.speculation is not None:
            steps = self._paced_shapes(deployment.speculation)
        parallelism = deployment.parallelism
        degrees = (parallelism.tp_size, parallelism.ep_size, parallelism.dp_size, parallelism.cp_size)
        key = (*degrees, Same(variant), Same(deployment.plan))
        if key not in self._rows:
            self._rows[key] = tuple(
                screen_rows.shared_rows(deployment, self._distinct, step=step, depth=self._depth) for step in steps
            )
        return tuple(zip(steps, self._rows[key], strict=True))

    def _paced_shapes(self, speculation: Speculation) -> tuple[StepShape, StepShape]:
        """Those of every set-up that verifies as many tokens at once."""
        from simulator.phases.draft_cost import paced_shapes

        tokens = speculation.plan.verify_tokens
        if tokens not in self._paced:
            self._paced[tokens] = paced_shapes(speculation, self.steps.step)
        return self._paced[tokens]

    def _row_prices(self, deployment: Deployment) -> screen_rows.RowPrices:
        key = (deployment.hardware.name, deployment.kernels.beyond is not None)
        if key not in self._prices:
            self._prices[key] = screen_rows.RowPrices(deployment.kernels)
        return self._prices[key]
