"""Answers that are right for the question and make one doubt the question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

from simulator.planner import records
from simulator.planner.candidate import NO_TECHNIQUES, Platform
from simulator.planner.fleet.fleet import Trial
from simulator.planner.fleet.records import Fleet
from simulator.planner.money.market import MarketPrice
from simulator.planner.search.candidates import leaves_format_open, platforms
from simulator.planner.search.question import Question
from simulator.specs.money.prices import PriceProfile
from simulator.specs.question.plan import PlanSpec
from simulator.units import KILO

if TYPE_CHECKING:
    from simulator.planner.gap.changes import Change

# A fleet of this many accelerators is worth a second look at hardware and formats.
MANY_DEVICES = KILO
_HALF = 1 / 2
# Accelerators that are tried in place of one that was asked for by name.
_FASTEST = 3
_RISKY_UTILIZATION = 0.9


def _worth_trying(change: Change, best: Fleet) -> list[Platform]:
    """What a change is tried on: the accelerator itself, or instead of it those with the fastest memory. A warning must
    not cost another plan: what stands beside the fleet was compared already."""
    offered = platforms(change.spec)
    if change.field != "hardware":
        return [platform for platform in offered if platform.hardware.name == best.hardware]
    return sorted(offered, key=lambda platform: platform.hardware.memory_bytes_per_s)[-_FASTEST:]


def _fewer(question: Question, best: Fleet) -> list[records.FewerDevices]:
    """Single changes that need at most half the accelerators, each one tried."""
    from simulator.planner.gap.changes import single_changes
    from simulator.planner.search.usual import usual_search

    found = []
    for change in single_changes(question):
        sized = usual_search(replace(question, spec=change.spec), _worth_trying(change, best)).sized
        if not sized:
            continue
        smallest = min(sized, key=lambda item: (item.devices, item.rank))
        if smallest.devices <= best.devices * _HALF:
            found.append(
                records.FewerDevices(devices=smallest.devices, change=change.given(smallest.evaluated.candidate))
            )
    return found


def _many(question: Question, best: Fleet, fleets: list[Fleet]) -> records.ManyDevices:
    smaller = [fleet for fleet in fleets if fleet.devices <= best.devices * _HALF]
    ways = [records.FewerDevices(devices=fleet.devices, hardware=fleet.hardware) for fleet in smaller[:1]]
    return records.ManyDevices(devices=best.devices, hardware=best.hardware, ways_out=(*ways, *_fewer(question, best)))


def stale_prices(prices: PriceProfile, taken: Sequence[MarketPrice], *, today: date) -> list[records.StalePrice]:
    """Prices whose newest offer is older on the day ``today`` than the list says that a price may be."""
    if prices.stale_after_days is None:
        return []
    aged = [(price, (today - date.fromisoformat(price.date)).days) for price in taken]
    return [
        records.StalePrice(
            hardware=price.hardware,
            price_list=prices.name,
            newest=price.date,
            days=days,
            allowed_days=prices.stale_after_days,
        )
        for price, days in aged
        if days > prices.stale_after_days
    ]


def unlike_pools_refused(spec: PlanSpec, trial: Trial) -> tuple[records.NoUnlikePools, ...]:
    """That no pools on two kinds of accelerator serve, where they were asked for: the refusal that came nearest."""
    if not spec.prefill_hardware or any(item.evaluated.candidate.prefill_hardware for item in trial.sized):
        return ()
    asked = [item for item in trial.rejections if item.candidate.prefill_hardware] or trial.rejections
    nearest = min(asked, key=lambda item: item.distance, default=None)
    if nearest is None:
        return ()
    return (records.NoUnlikePools(hardware=nearest.hardware, label=nearest.label, reason=str(nearest.reason)),)


def warnings_for(question: Question, best: Fleet, fleets: list[Fleet]) -> tuple[records.PlanWarning, ...]:
    """What to check before the plan is used."""
    found: list[records.PlanWarning] = []
    deployment = best.replica.deployment
    if best.devices >= MANY_DEVICES:
        found.append(_many(question, best, fleets))
    # What a default checkpoint is known to lose stands under the assumptions.
    plain = deployment.techniques.spec == NO_TECHNIQUES and not question.spec.kv_cache
    taken_by_default = leaves_format_open(question.spec) and plain
    if best.quality and not taken_by_default:
        found.append(records.AnswersMayDiffer(model=question.model.name, quality=best.quality))
    if best.provenance == "assumed" and deployment.speculation is not None:
        found.append(records.AcceptanceAssumed())
    if best.spares == 0:
        found.append(records.NoSpareReplica())
    if question.policy.utilization > _RISKY_UTILIZATION:
        found.append(records.HighUtilization(utilization=question.policy.utilization))
    if best.cost.per_hour is None:
        found.append(records.PriceUnknown(hardware=best.hardware))
    unpriced = {fleet.hardware for fleet in fleets if fleet.cost.per_hour is None and fleet.devices < best.devices}
    if best.cost.per_hour is not None and unpriced:
        found.append(records.SmallerUnpriced(hardware=tuple(sorted(unpriced))))
    found.extend(stale_prices(question.prices, best.cost.prices, today=date.today()))
    if not deployment.engine.chunked_prefill:
        found.append(records.PromptsNotChunked())
    return tuple(found)
