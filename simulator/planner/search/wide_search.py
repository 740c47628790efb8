"""A search over a hundred thousand set-ups: screened as arrays, the best of them evaluated exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import inf

import numpy as np

from simulator.errors import InfeasibleError, Option, RoofcastError
from simulator.operators.formats.schemes import multiplied_dtypes, on_chip
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.work import MatmulFormat
from simulator.planner.money.market import market_price, plan_rule
from simulator.planner.records import (
    FORMATS_DIFFER,
    NO_TECHNIQUES,
    TECHNIQUES_SAVE,
    Candidate,
    Platform,
    SearchSpace,
    Variant,
    shared_by_pools,
)
from simulator.planner.search.candidates import engine_on
from simulator.planner.search.question import Question, own_limits, search_space, variants_on
from simulator.planner.search.screen_rows import DistinctRows
from simulator.planner.search.screen_tables import ScreenTable, TableMaker
from simulator.planner.search.screened_space import (
    SCREEN_ERROR,
    Pairs,
    ScreenedSpace,
    alike,
    candidate_of,
    capacities,
    fleet_axes,
    of_all_ranks,
    screened_load,
    screened_pairs,
    sizes_that_may_do,
)
from simulator.planner.search.screening import holds_one, screen_decode, screen_prefill
from simulator.records import dataclass
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.precision import BITS, PrecisionSpec
from simulator.techniques.applied import works_on
from simulator.traffic.lengths import Array

TECHNIQUES_DIFFER = 2.0
"""Most by which what techniques save may differ between set-ups of one accelerator: those that cost more than this
beside its best are not combined with them."""


def screen_space(
    question: Question, platforms: tuple[Platform, ...], *, known: DistinctRows | None = None
) -> ScreenedSpace:
    """Price the shared kernels of a question's search space and screen every set-up; ``known`` : rows of an earlier
    screen of the question on other platforms."""
    if question.demand.mix.decode_steps == 0:
        raise RoofcastError(
            "a wide search needs answers of more than one token", field=Option("search"), hint="`search` usual"
        )
    if "max_length" in question.spec.kv_allocation:
        raise RoofcastError(
            "max_length is not screened: the usual search compares it",
            field=Option("kv_allocation"),
            hint="`search` usual",
        )
    spec = question.spec
    space = search_space(spec, model=question.model, platforms=platforms, least_tokens=question.least_tokens)
    if not space.parallelisms:
        raise InfeasibleError(
            f"no replica of {question.model.name} has the degrees that are asked for", field=Option("tp_size")
        )
    maker = TableMaker(
        {item: engine_on(spec, item) for item in platforms},
        model=question.model,
        mix=question.demand.mix,
        space=space,
        profiles=question.policy.profiles,
        known=known,
    )
    offered = variants_on(space, platforms, spec=spec, model=question.model)
    if _every_one_counts(question, offered):
        return screened_pairs(question, maker, space, _with_all(space.parallelisms, offered))
    without = {id(one) for one in space.variants if one.techniques == NO_TECHNIQUES}
    bare = {item: tuple(one for one in found if id(one) in without) for item, found in offered.items()}
    found, tried = _in_formats(question, maker, space, bare)
    combined = {
        item: tuple(one for one in every if id(one) not in without and one.precision in tried[item])
        for item, every in offered.items()
    }
    if not any(combined.values()):
        return found
    worth = worth_combining(question, found, combined)
    return replace(found.with_more(screened_pairs(question, maker, space, worth)), combined=len(worth))


_Offered = Mapping[Platform, tuple[Variant, ...]]


def _every_one_counts(question: Question, offered: _Offered) -> bool:
    """Whether all is screened at once: for a Pareto front, within limits of the fleet, and where something is offered
    with techniques alone."""
    bare = (any(one.techniques == NO_TECHNIQUES for one in found) for found in offered.values())
    return bool(question.spec.pareto or question.has_limits or question.spec.stock) or not all(bare)


def _with_all(parallelisms: Sequence[ParallelismSpec], offered: _Offered) -> dict[Platform, Pairs]:
    return {
        item: tuple(pair for pair in product(parallelisms, variants) if works_on(pair[1].techniques, pair[0]))
        for item, variants in offered.items()
    }


def _in_formats(
    question: Question, maker: TableMaker, space: SearchSpace, bare: _Offered
) -> tuple[ScreenedSpace, Mapping[Platform, frozenset[PrecisionSpec]]]:
    """The set-ups without techniques, and the formats of every accelerator that were tried: its leading ones first, the
    others where they may win. What the user named is compared to the end."""
    named = question.spec.hardware or question.spec.prefill_hardware
    leading = bare if named else {item: _leading(item, every, model=question.model) for item, every in bare.items()}
    found = screened_pairs(question, maker, space, _with_all(space.parallelisms, leading))
    tried = leading
    if leading != bare:
        may_win = formats_that_may_win(question, found, bare)
        others = {item: tuple(one for one in may_win[item] if one not in leading[item]) for item in bare}
        found = found.with_more(screened_pairs(question, maker, space, _with_all(space.parallelisms, others)))
        tried = {item: leading[item] + others[item] for item in bare}
        found = replace(found, in_all_formats=sum(len(tried[item]) == len(bare[item]) for item in bare))
    return found, {item: frozenset(one.precision for one in every) for item, every in tried.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Multiplied:
    """How an accelerator multiplies a format: its data-sheet rate [FLOP/s], and bits per weight."""

    flops_per_s: float
    weight_bits: float
    widens: bool


def _multiplied(platform: Platform, precision: PrecisionSpec, *, model: ModelSpec) -> _Multiplied:
    """``widens`` : weights are stored in fewer bits than they are multiplied in."""
    peaks = platform.hardware.peak_flops_per_s
    taken = on_chip(precision, model=model, hardware=platform.hardware)
    multiplied = multiplied_dtypes(model, platform.hardware)
    linear: MatmulFormat = precision_plan(model, taken, multiplied=multiplied).linear
    return _Multiplied(
        flops_per_s=peaks.get(linear.math, 0.0),
        weight_bits=linear.weight_bits,
        widens=linear.weight_bits < BITS[linear.math],
    )


def _leading(platform: Platform, offered: Sequence[Variant], *, model: ModelSpec) -> tuple[Variant, ...]:
    """The formats that an accelerator multiplies fastest, as they are stored."""
    return _first({one: _multiplied(platform, one.precision, model=model) for one in offered})


def _first(how: Mapping[Variant, _Multiplied]) -> tuple[Variant, ...]:
    fastest = max((value.flops_per_s for value in how.values() if not value.widens), default=0.0)
    return tuple(one for one, value in how.items() if value.flops_per_s == fastest and not value.widens)


def formats_that_may_win(question: Question, leading: ScreenedSpace, bare: _Offered) -> _Offered:
    """Variants of every accelerator that may make the best fleet, told from its leading formats, which are screened.

    Nothing multiplies faster than the leading formats: another format takes fewer bits per weight at best, and no less
    than its multiplications at the data sheet's rate.
    """
    serving, at_least = _cheapest_limits(leading, question), _cheapest_when_full(leading, question)
    cheapest, least = min(serving, default=np.inf), _least_by_platform(leading.tables, at_least)
    if cheapest == np.inf:
        return bare
    mix, model, rule = question.demand.mix, question.model, plan_rule(question.spec)
    tokens_per_s = question.demand.planned_rate_per_s * (mix.new_prompt_tokens + mix.decode_steps)
    # Embeddings are looked up, and a prompt asks for the vocabulary once.
    from simulator.operators.model_counts import parameter_counts

    multiplied = max(0.0, parameter_counts(model).active - 2 * model.vocab_size * model.hidden_size)
    flops_per_s = 2 * multiplied * tokens_per_s
    found = {}
    for item, offered in bare.items():
        offer = market_price(question.prices, hardware=item.hardware.name, rule=rule)
        per_hour = np.inf if offer is None else offer.per_hour
        how = {one: _multiplied(item, one.precision, model=model) for one in offered}
        first = _first(how)
        bits = min((how[one].weight_bits for one in first), default=0.0)
        found[item] = tuple(
            one
            for one, value in how.items()
            if item not in least
            or max(
                least[item] * min(1.0, value.weight_bits / bits),
                per_hour * flops_per_s / value.flops_per_s if value.flops_per_s else 0.0,
            )
            <= FORMATS_DIFFER * cheapest
        )
    return found


def worth_combining(question: Question, bare: ScreenedSpace, combined: _Offered) -> dict[Platform, Pairs]:
    """Set-ups with techniques that may make the best fleet of an accelerator that may be the best.

    bare : the set-ups without techniques, from which both are told; those that do not fit without them are tried on
        every accelerator that is left. What the user named is compared to the end.
    """
    serving, at_least = _cheapest_limits(bare, question), _cheapest_when_full(bare, question)
    best, least = (_least_by_platform(bare.tables, cost) for cost in (serving, at_least))
    cheapest = min(serving, default=np.inf)
    dear = {
        (table.platform, table.parallelism, table.variant.precision)
        for table, cost in zip(bare.tables, at_least, strict=True)
        if cost > TECHNIQUES_DIFFER * best[table.platform]
    }
    beaten = _beaten(bare)
    named = bool(question.spec.hardware) or cheapest == np.inf
    return {
        item: [
            (parallelism, one)
            for parallelism, one in product(bare.space.parallelisms, variants)
            if (place := (item, parallelism, one.precision)) not in dear
            and (place not in beaten or one.techniques.sparsity is not None)
            and works_on(one.techniques, parallelism)
        ]
        for item, variants in combined.items()
        if named or least.get(item, 0.0) <= TECHNIQUES_SAVE * cheapest
    }


def _cheapest_when_full(found: ScreenedSpace, question: Question) -> list[float]:
    """Cost of a fleet of every table whose steps are as full as its limits allow, whatever the cache holds and the
    objectives ask: no technique makes a step of as many tokens much faster."""
    endless = tuple(replace(item, kv_tokens=np.full_like(item.kv_tokens, np.inf)) for item in found.tables)
    roomy = replace(found, tables=endless)
    return _cheapest_limits(replace(roomy, screened=capacities(question, roomy, ())) if endless else found, question)


def _least_by_platform(tables: tuple[ScreenTable, ...], cost: list[float]) -> dict[Platform, float]:
    found: dict[Platform, float] = {}
    for table, value in zip(tables, cost, strict=True):
        found[table.platform] = min(value, found.get(table.platform, np.inf))
    return found


def _cheapest_limits(found: ScreenedSpace, question: Question) -> list[float]:
    """Cost of a fleet of every table under its best engine limits; infinite without a price, or where none serves."""
    cost, _ = fleet_axes(found, question)
    least: list[float] = cost.reshape(found.screened.capacity_per_s.shape).min(axis=(1, 2)).tolist()
    return least


def _beaten(bare: ScreenedSpace) -> set[tuple[Platform, ParallelismSpec, PrecisionSpec]]:
    """Formats that another beats in every step of the same set-up, and in room for its cache: with techniques too, but
    for sparse weights, which some formats store and multiply better than others."""
    alike: dict[tuple[Platform, ParallelismSpec], list[ScreenTable]] = {}
    for table in bare.tables:
        alike.setdefault((table.platform, table.parallelism), []).append(table)
    found = set()
    for members in alike.values():
        steps = np.stack([np.concatenate([item.decode_s, *item.shared_s, *item.full_s]) for item in members])
        room = np.stack([item.kv_tokens.ravel() for item in members])
        beaten = (steps[:, None] >= steps).all(axis=2) & (room[:, None] <= room).all(axis=2)
        same = beaten & beaten.T
        first = same & np.tri(len(members), k=-1, dtype=bool)
        lost: list[bool] = np.any((beaten & ~same) | first, axis=1).tolist()
        found |= {
            (item.platform, item.parallelism, item.variant.precision)
            for item, gone in zip(members, lost, strict=True)
            if gone
        }
    return found


_PAIRS_PER_PLATFORM = 2
"""Number formats of a platform whose pairs are worked out in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedPools:
    """Requests/s of a prefill replica [tables, budgets] and of a decode replica [tables, sequences, budgets]."""

    prefill_per_s: Array
    decode_per_s: Array


def screen_pools(found: ScreenedSpace, question: Question) -> ScreenedPools:
    """Both pools of every set-up that a search has priced; what cannot decode in a pool of its own gets 0."""
    load = screened_load(question, steps=found.steps, space=found.space)
    prefill, decode = screen_prefill(found.tables, load), screen_decode(found.tables, load)
    guessing = np.array(found.speculates)
    return ScreenedPools(
        prefill_per_s=np.where(guessing[:, None], 0.0, prefill),
        decode_per_s=np.where(guessing[:, None, None], 0.0, of_all_ranks(decode, found.tables).capacity_per_s),
    )


def pool_finalists(
    found: ScreenedSpace,
    question: Question,
    *,
    per_platform: int = _PAIRS_PER_PLATFORM,
    unlike: Sequence[tuple[Platform, Platform]] = (),
    below: float = inf,
) -> tuple[Candidate, ...]:
    """The pairs of every platform that may make the smallest fleet, of the formats that take least per request.

    unlike : accelerators for prompts and for answers to be paired instead, where that may cost less than ``below``
    """
    if not found.tables:
        return ()
    if question.spec.serving == ("disaggregated",) and all(found.speculates):
        raise RoofcastError(
            "a wide search screens pools that decode one token at a time",
            field=Option("speculation"),
            code="unsupported_option",
            hint="`search` usual",
        )
    pools, rate = screen_pools(found, question), question.demand.planned_rate_per_s
    ahead, after = pools.prefill_per_s.max(axis=1), pools.decode_per_s.max(axis=(1, 2))
    devices = np.array([table.parallelism.devices for table in found.tables])
    formats: dict[tuple[str, Variant], list[int]] = {}
    for index, table in enumerate(found.tables):
        variant = replace(table.variant, techniques=shared_by_pools(table.variant.techniques))
        formats.setdefault((table.platform.hardware.name, variant), []).append(index)
    pairs: dict[tuple[str, str], list[tuple[float, list[tuple[int, int]]]]] = {}
    for names, members in _paired(formats, unlike):
        first, second = (
            sizes_that_may_do(found, own, most, rate_per_s=rate)
            for own, most in zip(members, (ahead, after), strict=True)
        )
        if first and second:
            with np.errstate(divide="ignore"):
                each = [
                    float((devices[own] / most[own]).min()) for own, most in zip(members, (ahead, after), strict=True)
                ]
            least = _least(question, names, each)
            if not unlike or rate * least * (1 - SCREEN_ERROR) < below:
                pairs.setdefault(names, []).append((least, list(product(first, second))))
    chosen = [pair for group in pairs.values() for _, own in sorted(group)[:per_platform] for pair in own]
    return tuple(_pair(found, question, pools, *places) for places in chosen)


def _paired(
    formats: Mapping[tuple[str, Variant], list[int]], unlike: Sequence[tuple[Platform, Platform]]
) -> Iterator[tuple[tuple[str, str], tuple[list[int], list[int]]]]:
    """Accelerators for prompts and for answers, with the tables of each in a format that both have."""
    names = [(prefill.hardware.name, decode.hardware.name) for prefill, decode in unlike]
    for (decode, variant), members in formats.items():
        for ahead, after in names or [(decode, decode)]:
            if after == decode and (ahead, variant) in formats:
                yield (ahead, after), (formats[ahead, variant], members)


def _least(question: Question, names: tuple[str, str], devices: Sequence[float]) -> float:
    """Accelerators of both pools for a request a second; of two kinds what they cost an hour."""
    if names[0] == names[1]:
        return sum(devices)
    rule = plan_rule(question.spec)
    prices = [market_price(question.prices, hardware=name, rule=rule) for name in names]
    return sum(count * (inf if price is None else price.per_hour) for count, price in zip(devices, prices, strict=True))


def _pair(found: ScreenedSpace, question: Question, pools: ScreenedPools, first: int, second: int) -> Candidate:
    """The tables at two places, each under the limits nearest to its engine's own among those that carry most."""
    space, made = found.space, []
    fits = holds_one(found.tables[first], question.demand.mix)
    for index, good in ((first, fits & alike(pools.prefill_per_s[first])), (second, alike(pools.decode_per_s[second]))):
        table = found.tables[index]
        engine = engine_on(question.spec, table.platform)
        own = own_limits(engine, table.platform, table.parallelism, profiles=question.policy.profiles)
        far = [
            np.abs(np.log(np.array(axis) / usual))
            for axis, usual in zip((space.sequences, space.tokens), own, strict=True)
        ]
        row, column = divmod(int(np.where(good, far[0][:, None] + far[1], np.inf).argmin()), len(space.tokens))
        limits = (space.sequences[row], space.tokens[column])
        made.append(candidate_of(question, table, limits=limits))
    return replace(made[1], prefill=made[0])
