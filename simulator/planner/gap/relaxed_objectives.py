"""The nearest objectives that can be held, where nothing serves or the limits of a fleet do not allow those asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from simulator.planner.fleet.fleet import Sized, Trial, size
from simulator.planner.gap.limits import Overrun, fleet_limits, option_of
from simulator.planner.gap.records import GapOption, MissedBound
from simulator.planner.records import FieldValue, Rejection
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import Question
from simulator.planner.search.usual_search import evaluate_all, usual_search
from simulator.planner.serving.capacity import UNLOADED_SHARE
from simulator.planner.serving.shapes import Shape
from simulator.specs.base import LARGEST_NUMBER, Note
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.units import MILLI


def closest_refusal(trial: Trial) -> Rejection:
    """The refusal that came nearest to serving."""
    return min(trial.rejections, key=lambda item: item.distance)


def _without_objectives(question: Question, refused: Rejection) -> Sized | None:
    """The refused set-up when no objective binds."""
    free = replace(question, objectives=())
    return next(iter(evaluate_all(free, (refused.candidate,)).sized), None)


def _made_of(evaluated: Shape, question: Question) -> Note:
    """What the time of an idle replica goes to."""
    idle, steps = evaluated.replica.unloaded, question.demand.mix.decode_steps
    parts = {"tokens": question.demand.mix.isl.mean_tokens, "ttft_s": idle.ttft_mean_s}
    return (
        Note("idle_prompt", parts)
        if steps <= 0
        else Note("idle_request", {**parts, "steps": steps, "tpot_s": idle.tpot_mean_s})
    )


def missed_bounds(question: Question, trial: Trial) -> tuple[MissedBound, ...]:
    """Every objective beside what an idle replica of the nearest set-up takes; none where memory is what misses."""
    closest = closest_refusal(trial)
    if closest.code != "objective":
        return ()
    sized = _without_objectives(question, closest)
    if sized is None:
        return ()
    evaluated = sized.evaluated
    rate = evaluated.replica.saturation_per_s * UNLOADED_SHARE
    (idle,) = evaluated.latencies(rate, objectives=question.objectives)
    return tuple(
        MissedBound(
            objective=item.name,
            bound_s=item.bound_s,
            idle_s=value_s,
            hardware=closest.hardware,
            label=closest.label,
            made_of=_made_of(evaluated, question),
        )
        for item, value_s in zip(question.objectives, idle.objectives_s, strict=True)
    )


_NAME = "a later answer"
# Bounds that are tried, as multiples of what was asked or of what an idle replica takes, up to ten times.
_FACTORS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
_MOST_TIMES = 2
"""Size at most of a fleet whose replicas are at work, over that of one without objectives: chosen."""


def _typed(bound_s: float) -> tuple[str, float]:
    """A bound that ``bound_s`` stays under, as text and rounded up to two digits [s]."""
    # Two digits resolve ten percent at worst; half of that more, and rounding to the nearest cannot fall short.
    rounded_ms = float(f"{bound_s / MILLI * (1 + 1 / 20):.2g}")
    text = f"{rounded_ms:g}ms" if rounded_ms < 1 / MILLI else f"{rounded_ms * MILLI:g}s"
    return text, rounded_ms * MILLI


def _with_bounds(question: Question, bounds_s: tuple[float, ...]) -> tuple[tuple[FieldValue, ...], Question]:
    """What to give and the question with other bounds; one that stays as asked is not given again."""
    given, objectives = list[FieldValue](), list[ObjectiveSpec]()
    for item, wanted_s in zip(question.objectives, bounds_s, strict=True):
        bound_s = item.bound_s
        if wanted_s > bound_s:
            text, bound_s = _typed(wanted_s)
            given.append(FieldValue(field=item.key, value=text))
        objectives.append(item.within(bound_s))
    spec = question.spec.model_copy(update={"objectives": tuple(objectives)})
    return tuple(given), replace(question, spec=spec, objectives=tuple(objectives))


Search = Callable[[Question], Sequence[Sized]]
"""Fleets of a question, engine limits, spread experts and pools among them; the usual search tries fewer."""


def _usual(question: Question, *, among: frozenset[str] | None = None) -> Sequence[Sized]:
    tried = platforms(question.spec)
    return usual_search(question, [item for item in tried if among is None or item.hardware.name in among]).sized


def _hardware(found: Iterable[Sized]) -> frozenset[str]:
    return frozenset(item.evaluated.candidate.hardware for item in found)


def _too_late(bounds_s: tuple[float, ...]) -> bool:
    """Whether no question can ask for such bounds."""
    return max(bounds_s, default=0.0) > LARGEST_NUMBER / _FACTORS[-1]


def _option(
    question: Question, bounds_s: tuple[float, ...], *, start: Sized | None, search: Search = _usual
) -> GapOption | None:
    """The best fleet under other bounds, None where nothing serves, or within no time that can be asked for."""
    if _too_late(bounds_s):
        return None
    given, relaxed = _with_bounds(question, bounds_s)
    overrun = Overrun(limits=fleet_limits(relaxed))
    item = min(search(relaxed), key=overrun.order, default=None)
    if item is None:
        return None
    return option_of(relaxed, item, name=_NAME, given=given, overrun=overrun, start=start)


def _first(option_at: Callable[[float], GapOption | None], *, enough: Callable[[GapOption], bool]) -> GapOption | None:
    """The smallest of a few factors that is ``enough``, found by halving: later answers need no more."""
    low, high, found = 0, len(_FACTORS), None
    while low < high:
        middle = (low + high) // 2
        option = option_at(_FACTORS[middle])
        if option is not None and enough(option):
            high, found = middle, option
        else:
            low = middle + 1
    return found


def relaxed_options(question: Question, missed: tuple[MissedBound, ...], *, search: Search) -> tuple[GapOption, ...]:
    """The nearest objectives that a fleet at work holds: near the idle time replicas would stand idle without end."""
    if not missed:
        return ()
    free = _usual(replace(question, objectives=()))
    most = _MOST_TIMES * min((item.devices for item in free), default=0)

    # Objectives make no fleet smaller.
    small = partial(_usual, among=_hardware(item for item in free if item.devices <= most))

    @cache
    def option_at(factor: float, *, search: Search = small) -> GapOption | None:
        return _option(question, tuple(item.idle_s * factor for item in missed), start=None, search=search)

    def at_work(option: GapOption) -> bool:
        return option.devices is not None and option.devices <= most

    def within(option: GapOption) -> bool:
        return option.closes and at_work(option)

    held = _first(option_at, enough=within) or _first(option_at, enough=at_work)
    held = held or option_at(_FACTORS[-1], search=search)
    return () if held is None else (held,)


def later_options(question: Question, overrun: Overrun, start: Sized) -> tuple[GapOption, ...]:
    """Where fleets serve but not within the limits: objectives with which one does."""
    if not question.objectives or overrun.holds(start):
        return ()

    def bounds_s(factor: float) -> tuple[float, ...]:
        return tuple(item.bound_s * factor for item in question.objectives)

    if _too_late(bounds_s(_FACTORS[-1])):
        return ()
    # What no fleet holds within the latest answers it holds within no earlier ones.
    latest = _usual(_with_bounds(question, bounds_s(_FACTORS[-1]))[1])
    near = partial(_usual, among=_hardware(filter(overrun.holds, latest)))
    if not near.keywords["among"]:
        return ()
    found = _first(
        lambda factor: _option(question, bounds_s(factor), start=start, search=near),
        enough=lambda option: option.closes,
    )
    return () if found is None else (found,)


def smaller_fleets(
    question: Question, ranked: list[Sized], overrun: Overrun, start: Sized, *, search: Search
) -> tuple[GapOption, ...]:
    """Spares and whole servers that may be given up to stay within the limits: one of them, else both."""
    spec = question.spec
    # Single accelerators have no rack, and are counted without the power of their hosts: that would close no gap.
    of_servers = any(limit.kind in ("racks", "power") for limit in overrun.limits)
    loose: dict[str, Any] = {} if spec.round_to == "device" or of_servers else {"round_to": "device"}
    kept = (spec.server_spares, spec.availability) != (None, None) or spec.spares == 0
    bare: dict[str, Any] = {} if kept else {"spares": 0}

    def option(name: str, update: dict[str, Any]) -> list[GapOption]:
        if not update:
            return []
        changed = replace(question, spec=spec.model_copy(update=update))
        sized = [
            size(item.evaluated, demand=question.demand, spec=changed.spec, prices=question.prices) for item in ranked
        ]
        # What saved nothing in whole servers was left out of the fleets: it may be what fits.
        if not any(map(overrun.holds, sized)):
            sized = list(search(changed))
        best = min(sized, key=overrun.order)
        if not overrun.holds(best):
            return []
        given = tuple(FieldValue(field=field, value=value) for field, value in update.items())
        return [option_of(changed, best, name=name, given=given, overrun=overrun, start=start)]

    single = [*option("single devices", loose), *option("no spare replica", bare)]
    both = {**loose, **bare} if loose and bare else {}
    return tuple(single or option("neither spares nor whole servers", both))
