"""What every set-up of a wide search sustains, as one array: the steady state with its percentiles in closed form.

A coarser ``steady_state`` that ranks: sums of independent parts are matched by a log-normal instead of sampled, waits
for a slot are those of G/G/c. Whoever comes out best is evaluated again, exactly. Pools for prompts and for answers are
screened each by itself.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from simulator.engine.lanes import queueing
from simulator.engine.lanes.limits import LaneLimits, decoding_share, kv_slots
from simulator.engine.lanes.occupancy import PromptSteps, carrying_prompts
from simulator.engine.lanes.prompt_queue import company_correlation
from simulator.engine.pools import HAND_OVER_S
from simulator.planner.records import SearchSpace
from simulator.planner.search.screen_tables import ScreenedSteps, ScreenTable
from simulator.planner.serving.pool_states import decode_mix
from simulator.records import dataclass
from simulator.specs.question.plan_values import LatencyMetric, ObjectiveSpec
from simulator.traffic.lengths import Array, RequestMix

# Shares of the highest allowed load that are tried where an objective fails at the highest.
LOADS = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.01)
_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedLoad:
    """What set-ups are screened for: requests, engine limits and objectives, up to ``utilization`` of saturation.

    steps : the kinds of step that every table prices
    """

    steps: ScreenedSteps
    space: SearchSpace
    mix: RequestMix
    limits: LaneLimits
    objectives: tuple[ObjectiveSpec, ...]
    utilization: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """Per set-up and engine limits [tables, sequences, budgets]; ``capacity_per_s`` is 0 where nothing can be served.

    capacity_per_s : requests/s of a replica within the objectives; latencies at it [s]
    """

    capacity_per_s: Array
    ttft_p95_s: Array
    tpot_p95_s: Array
    e2e_p95_s: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Mean and variance of a latency [s, s^2], [tables, budgets, nodes]; matched by a log-normal."""

    mean_s: Array
    variance: Array

    def quantile_s(self, percentile: float) -> Array:
        """Percentile of the matched log-normal [s]."""
        # A mean without end, as near saturation, has every percentile without end.
        variance = np.where(np.isfinite(self.mean_s), self.variance, 0.0)
        log_variance = np.log1p(variance / np.maximum(self.mean_s, _EPSILON) ** 2)
        deviate = NormalDist().inv_cdf(percentile / 100)
        value: Array = self.mean_s * np.exp(np.sqrt(log_variance) * deviate - log_variance / 2)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lanes:
    """Lanes without slot limits along their decoding sequences [tables, budgets, nodes]."""

    nodes: Array
    rate_per_s: Array
    full_prompt_s: Array
    hold_s: Array
    moments: dict[LatencyMetric, Moments]


def _pace_variance(stepping: PromptSteps, *, nodes: Array, steps_per_prompt: Array, mix: RequestMix) -> Array:
    """Squared coefficient of variation of TPOT: occupancy fluctuates like a Poisson number over one stay, prompts come
    in spells, and who comes meanwhile is company for the rest of the stay (see ``company_correlation``)."""
    step_s, prompt_step_s, share = stepping.step_s, stepping.prompt_step_s, stepping.time_share
    slope = np.gradient(np.log(step_s), np.log(nodes), axis=2)
    crowding = slope**2 * queueing.window_factor(np.ones(1)) / nodes
    relaxation_s = prompt_step_s * steps_per_prompt * (1 + mix.isl.cv**2) / (2 * (1 - share))
    spells = share * (1 - share) * queueing.window_factor(mix.decode_steps * step_s / relaxation_s)
    in_spells = spells * (step_s * (1 / stepping.decode_s - 1 / prompt_step_s)) ** 2
    common = float(company_correlation(mix).mean()) / np.sqrt(1 + mix.isl.cv**2)
    variance: Array = crowding + in_spells + 2 * common * np.sqrt(crowding * in_spells)
    return variance


def _lanes(tables: tuple[ScreenTable, ...], load: ScreenedLoad) -> _Lanes:
    """Little's law and the moments of TTFT, TPOT and E2E at every node; see ``load_curve`` and ``occupancy``."""
    steps, mix, limits = load.steps, load.mix, load.limits
    nodes, shared, room = steps.nodes[1:], steps.shared[:, 1:], steps.room[:, 1:]
    decode_s = np.stack([table.decode_s[1:] for table in tables])[:, None, :]
    stages = np.array([table.parallelism.pp_size for table in tables])[:, None, None]
    priced = ((table.shared_s, table.full_s, table.delaying) for table in tables)
    shared_s, full_s, delaying = (np.stack(kind)[:, :, 1:] for kind in zip(*priced, strict=True))
    new, decodes = mix.new_prompt_tokens, mix.decode_steps
    beside_s = steps.beside(decode_s)
    per_prompt, full_prompt_s = new / shared, full_s * new / room
    own_s = np.maximum(shared_s - beside_s, 0.0) * per_prompt
    prefill_s = own_s * delaying
    rate = queueing.arrival_rate_per_s(sequences=nodes, decode_steps=decodes, decode_s=decode_s, prefill_s=prefill_s)
    stepping = carrying_prompts(
        rates_per_s=rate,
        decode_s=decode_s,
        beside_s=beside_s,
        prefill_s=prefill_s,
        steps_per_prompt=per_prompt * delaying,
        others_s=np.minimum(decode_s, beside_s + own_s / per_prompt) * (1 - 1 / stages),
        size_variance=np.where(per_prompt > 1, 0.0, mix.isl.cv**2 * per_prompt),
    )
    step_s, met_s = stepping.step_s, stepping.length_biased_s - stepping.others_s
    rho = np.minimum(rate * full_prompt_s, 1 - _EPSILON)
    wait_s = queueing.gg1_wait_mean_s(
        arrival_rate_per_s=rho / full_prompt_s,
        service_mean_s=full_prompt_s,
        service_cv=mix.isl.cv,
        arrival_cv=mix.arrival_cv,
    )
    # A pipeline prepares no step before one returns, and all of its lanes work on what waits.
    prepared = stages == 1
    wait_s, company = wait_s / stages, rate * stages * (prepared * step_s + met_s)
    host_s = limits.host_s(mix.isl.mean_tokens)
    ttft = Moments(
        mean_s=host_s
        + met_s / 2
        + prepared * decode_s
        + beside_s * np.maximum(per_prompt, 1.0)
        + wait_s
        + own_s * (1 + company),
        variance=met_s**2 / (4 * (2 + 1))
        + queueing.delayed_wait_variance(mean_s=wait_s, probability=np.maximum(rho, _EPSILON))
        + own_s**2 * (mix.isl.cv**2 + company * (1 + mix.isl.cv**2)),
    )
    tpot_cv2, stay_s = _pace_variance(stepping, nodes=nodes, steps_per_prompt=per_prompt, mix=mix), decodes * step_s
    return _Lanes(
        nodes=nodes,
        rate_per_s=np.maximum.accumulate(rate, axis=2),
        full_prompt_s=full_prompt_s,
        hold_s=stay_s,
        moments={
            LatencyMetric.TTFT: ttft,
            LatencyMetric.TPOT: Moments(mean_s=step_s, variance=tpot_cv2 * step_s**2),
            LatencyMetric.E2E: Moments(
                mean_s=ttft.mean_s + stay_s, variance=ttft.variance + stay_s**2 * (mix.osl.cv**2 + tpot_cv2)
            ),
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where candidates [tables, sequences, budgets] lie between the nodes of their lanes."""

    low: NDArray[np.intp]
    share: Array

    def read(self, values: Array) -> Array:
        """Linear interpolation of [tables, budgets, nodes] at every candidate."""
        along = np.swapaxes(values, 1, 2)
        tables = np.arange(along.shape[0])[:, None, None]
        budgets = np.arange(along.shape[2])
        low = along[tables, self.low, budgets]
        return low + self.share * (along[tables, self.low + 1, budgets] - low)


def _place(axis: Array, values: Array) -> _Place:
    """Place ``values`` [tables, sequences, budgets] along ``axis`` [tables or 1, budgets or 1, nodes]."""
    edges = axis[:, None, :, :]
    low = np.clip((values[..., None] >= edges).sum(axis=-1) - 1, 0, axis.shape[-1] - 2)
    full = np.broadcast_to(edges, (*values.shape, axis.shape[-1]))
    left = np.take_along_axis(full, low[..., None], axis=-1)[..., 0]
    right = np.take_along_axis(full, low[..., None] + 1, axis=-1)[..., 0]
    share = np.clip((values - left) / np.maximum(right - left, _EPSILON * right), 0.0, 1.0)
    return _Place(low=low, share=share)


def _slots(tables: tuple[ScreenTable, ...], load: ScreenedLoad) -> Array:
    """Sequences that decode at once in one lane, by batch limit, token budget and cache; as ``lane_steps``."""
    kv_tokens = np.stack([table.kv_tokens for table in tables])
    lanes = np.array([table.parallelism.pp_size for table in tables])[:, None, None]
    by_cache = kv_slots(load.mix, limits=load.limits, kv_tokens=np.minimum(kv_tokens, np.finfo(np.float32).max))
    by_limit = np.maximum(1, np.array(load.space.sequences)[:, None] // lanes)
    tokens, ahead = np.array(load.space.tokens), load.limits.steps_ahead * (lanes == 1)
    share = decoding_share(load.mix, limits=load.limits, batched_tokens=tokens, steps_ahead=ahead)
    slots: Array = np.minimum(np.floor(np.minimum(by_cache, by_limit)) * share, tokens - 1)
    return slots


def _slot_wait_s(rho: Array, slots: Array, hold_s: Array, *, variability: float, percentile: float) -> Array:
    """Percentile of the wait for one of ``slots`` at load ``rho`` [s].

    Waits where all slots are taken, and then exponentially with mean E[S] / (c (1 - rho)) times (ca^2 + cs^2) / 2.

    Reference: [Sakasegawa1977]; [Allen1990] for the variability.
    """
    waits = queueing.busy_servers_probability(load=rho, servers=slots)
    mean_s = hold_s / np.maximum(slots, 1) / np.maximum(1 - rho, _EPSILON) * variability
    return mean_s * np.log(np.maximum(waits / (1 - percentile / 100), 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """Candidates at any of their rates: slots, saturation rate [1/s], and a sequence's stay when all are full [s]."""

    lanes: _Lanes
    slots: Array
    by_slots_per_s: Array
    saturation_per_s: Array
    stages: Array
    hold_full_s: Array
    variability: float
    quantiles: dict[tuple[LatencyMetric, float], Array]

    def values_s(self, rate_per_s: Array, wanted: tuple[tuple[LatencyMetric, float], ...]) -> list[Array]:
        """Percentiles of latencies at a rate of every candidate [s]; waiting for a slot counts in TTFT and E2E."""
        place = _place(self.lanes.rate_per_s, rate_per_s)
        rho = np.minimum(rate_per_s / np.maximum(self.by_slots_per_s, _EPSILON), 1 - _EPSILON)
        found = []
        for metric, percentile in wanted:
            own_s = place.read(self.quantiles[metric, percentile])
            if metric is not LatencyMetric.TPOT:
                own_s += _slot_wait_s(
                    rho, self.slots * self.stages, self.hold_full_s, variability=self.variability, percentile=percentile
                )
            found.append(own_s)
        return found


def _loaded(
    tables: tuple[ScreenTable, ...], load: ScreenedLoad, *, wanted: tuple[tuple[LatencyMetric, float], ...]
) -> _Loaded:
    lanes, slots, mix = _lanes(tables, load), _slots(tables, load), load.mix
    filled = np.array(load.space.tokens) * mix.decode_steps / (mix.new_prompt_tokens + mix.decode_steps)
    if load.steps.apart:
        filled = np.full_like(filled, np.inf)
    full = _place(lanes.nodes[None, None, :], np.minimum(slots, filled))
    by_slots = full.read(lanes.rate_per_s)
    return _Loaded(
        lanes=lanes,
        slots=slots,
        by_slots_per_s=by_slots,
        saturation_per_s=np.where(slots > 0, np.minimum(by_slots, 1 / full.read(lanes.full_prompt_s)), 0.0),
        stages=np.array([table.parallelism.pp_size for table in tables])[:, None, None],
        hold_full_s=full.read(lanes.hold_s),
        variability=(mix.arrival_cv**2 + mix.osl.cv**2) / 2,
        quantiles={(metric, percentile): lanes.moments[metric].quantile_s(percentile) for metric, percentile in wanted},
    )


def _capacity_per_s(loaded: _Loaded, *, objectives: tuple[ObjectiveSpec, ...], utilization: float) -> Array:
    """Highest rate of a lane at which every objective holds; between two tried loads the excess is linear [1/s]."""
    capacity = np.zeros_like(loaded.saturation_per_s)
    wanted = tuple((item.metric, item.percentile) for item in objectives)
    rate_above, worst_above = np.zeros_like(capacity), np.ones_like(capacity)
    for load in LOADS:
        rate = load * utilization * loaded.saturation_per_s
        worst = np.zeros_like(capacity)
        for value_s, item in zip(loaded.values_s(rate, wanted), objectives, strict=True):
            worst = np.maximum(worst, value_s / item.bound_s)
        share = np.clip((1 - worst) / np.maximum(worst_above - worst, _EPSILON), 0.0, 1.0)
        between = rate + share * np.maximum(rate_above - rate, 0.0)
        capacity = np.where((capacity == 0) & (loaded.saturation_per_s > 0) & (worst <= 1), between, capacity)
        if (capacity > 0).all():
            break
        rate_above, worst_above = rate, worst
    return capacity


def screen(tables: tuple[ScreenTable, ...], load: ScreenedLoad) -> Screened:
    """Capacity of every set-up under every engine limit.

    Reference: [Little1961]; [Agrawal2024].
    """
    shown = tuple((metric, 95.0) for metric in LatencyMetric)
    loaded = _loaded(tables, load, wanted=(*shown, *((item.metric, item.percentile) for item in load.objectives)))
    capacity = _capacity_per_s(loaded, objectives=load.objectives, utilization=load.utilization)
    values_s = [np.where(capacity > 0, value_s, np.inf) for value_s in loaded.values_s(capacity, shown)]
    lanes_of = np.array([table.parallelism.pp_size for table in tables])[:, None, None]
    return Screened(
        capacity_per_s=capacity * lanes_of, ttft_p95_s=values_s[0], tpot_p95_s=values_s[1], e2e_p95_s=values_s[2]
    )


DECODE_SHARE = 9 / 10
"""Of the bound of an objective on E2E, what the decode pool may take while it is screened."""


def _of(objectives: tuple[ObjectiveSpec, ...], metric: LatencyMetric) -> tuple[ObjectiveSpec, ...]:
    return tuple(item for item in objectives if item.metric is metric)


def holds_one(table: ScreenTable, mix: RequestMix) -> NDArray[np.bool_]:
    """Limits [sequences, budgets] whose buffers leave room for one request."""
    return table.kv_tokens > mix.decode_context_tokens


def screen_prefill(tables: tuple[ScreenTable, ...], load: ScreenedLoad) -> Array:
    """Highest rate of a prefill replica within the objectives on TTFT [tables, budgets] [1/s].

    Reference: [Kleinrock1975] section 5.6, mean wait of M/G/1.
    """
    steps, mix, limits = load.steps, load.mix, load.limits
    new = mix.new_prompt_tokens
    # Nobody decodes: the first node.
    full_s = np.stack([table.full_s[:, 0] for table in tables]) * new / steps.room[:, 0]
    own_s = np.maximum(np.stack([table.shared_s[:, 0] for table in tables]) * new / steps.shared[:, 0], full_s)
    host_s = limits.host_s(mix.isl.mean_tokens) + HAND_OVER_S
    capacity = np.zeros_like(full_s)
    for share in LOADS:
        rho = share * load.utilization
        wait_s = queueing.gg1_wait_mean_s(
            arrival_rate_per_s=rho / full_s, service_mean_s=full_s, service_cv=mix.isl.cv, arrival_cv=mix.arrival_cv
        )
        ttft = Moments(
            mean_s=host_s + own_s + wait_s,
            variance=(own_s * mix.isl.cv) ** 2 + queueing.delayed_wait_variance(mean_s=wait_s, probability=rho),
        )
        holds = np.ones_like(full_s, dtype=bool)
        for item in _of(load.objectives, LatencyMetric.TTFT):
            holds &= ttft.quantile_s(item.percentile) <= item.bound_s
        capacity = np.where((capacity == 0) & holds, rho / full_s, capacity)
    lanes = np.array([table.parallelism.pp_size * table.parallelism.dp_size for table in tables])
    fits = np.stack([holds_one(table, mix).any(axis=0) for table in tables])
    return np.where(fits, capacity * lanes[:, None], 0.0)


def screen_decode(tables: tuple[ScreenTable, ...], load: ScreenedLoad) -> Screened:
    """Rates of a lane of a decode replica within the objectives on TPOT and E2E."""
    alone = tuple(
        replace(
            table,
            shared_s=np.broadcast_to(table.decode_s, table.shared_s.shape),
            full_s=np.broadcast_to(table.decode_s, table.full_s.shape),
        )
        for table in tables
    )
    whole = (item.within(DECODE_SHARE * item.bound_s) for item in _of(load.objectives, LatencyMetric.E2E))
    objectives = (*_of(load.objectives, LatencyMetric.TPOT), *whole)
    beside = replace(load.steps, apart=False)  # no prompts, so that none stops the others
    return screen(alone, replace(load, steps=beside, mix=decode_mix(load.mix), objectives=objectives))
