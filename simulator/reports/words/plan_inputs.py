"""What a plan rests on, in words: inputs and their sources, prices, what was searched; what to check before its use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from simulator.planner.money.market import MarketPrice
from simulator.planner.records import LengthOrigins, TraceName
from simulator.planner.serving.capacity import Limit
from simulator.records import dataclass
from simulator.reports.content.quantities import bytes_text, counted_text, money_text, price_text
from simulator.reports.words.fields import (
    assumption_text,
    cut_text,
    flag_of,
    flagged,
    note_text,
    source_text,
    value_text,
)
from simulator.specs.base import Assumption, Note, ValueOrigin
from simulator.specs.engine.releases import SlowerExperts, SlowProducts
from simulator.specs.model.checkpoints import PublishedCheckpoint
from simulator.specs.money.prices import OfferKind, PriceProfile
from simulator.specs.question.plan import NONE
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.traffic.lengths import LengthDistribution
from simulator.traffic.workload_presets import WorkloadPreset
from simulator.units import KILO, bound_text, percent_text, plain_text

if TYPE_CHECKING:
    from simulator.planner.capacity_plan import BoughtFleet, CapacityPlan, PriceRanking, PriceRival
    from simulator.planner.fleet.records import Fleet, FleetCost
    from simulator.planner.records import FamilyFound

_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "model": "model",
        "rate_per_s": "request rate",
        "peak_to_mean": "peak over mean",
        "cache_hit": "answered from cache",
        "isl_tokens": "prompt length",
        "osl_tokens": "answer length",
        "prefix_hit": "prompt tokens in prefix cache",
        "arrival_cv": "burstiness of arrivals (cv)",
        "headroom": "headroom for growth",
        "answers_per_request": "answers to a request",
        "objectives": "objectives",
        "confidence": "confidence",
        "utilization": "highest load of a replica",
        "spares": "spare replicas",
        "max_quality_loss": "loss of answer quality, at most",
        "hardware": "accelerators",
        "power_cap_w": "power of each accelerator, at most",
        "prices": "prices",
        "price": "price of the chosen accelerator",
        "format": "number formats",
        "hand_over_s": "hand-over between pools",
        "kv_tiers": "tiers below a replica's cache",
    }
)
_DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "peak_to_mean": f"{flag_of('rate_per_s')} is taken as the peak; {flag_of('peak_to_mean')} plans above a mean",
        "confidence": f"where kernels were not measured that margin counts once more when fleets are compared; "
        f"{flag_of('confidence')} 50 plans for the times as predicted",
        "utilization": "the objectives decide, up to where the steady state was checked",
        "spares": "N+1",
        "hardware": "all that are on offer; announced parts, desktops and consumer cards where "
        f"{flag_of('hardware')} names them",
        "prices": f"{flag_of('prices')} and {flag_of('price_kind')} choose others",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """One input of a plan as it is shown; ``remark`` : of the source, what its badge does not say."""

    name: str
    value: str
    source: str
    origin: ValueOrigin
    remark: str


def _value(item: Assumption) -> str:
    match item.key, item.value:
        case "rate_per_s", float(rate):
            return f"{plain_text(rate, digits=6)} requests/s"
        case "peak_to_mean", float(peak):
            return f"{peak:.3g}"
        case (("cache_hit" | "headroom" | "prefix_hit"), (float() | int()) as share):
            return percent_text(share)
        case "arrival_cv", float(variation):
            return f"{variation:g}"
        case (("isl_tokens" | "osl_tokens"), LengthDistribution() as lengths):
            return _lengths(lengths)
        case "objectives", tuple(objectives):
            return ", ".join(f"{o.name} <= {bound_text(o.bound_s)}" for o in objectives if isinstance(o, ObjectiveSpec))
        case "confidence", int(percent):
            return f"objectives hold in {percent} % of draws of the step times"
        case "format", PublishedCheckpoint() as served:
            known = "; from memory, verify" if served.source == "memory" else ""
            return f"{served.format.method}, the checkpoint {served.id}{known}"
        case "utilization", float(load):
            return f"{percent_text(load)} of the rate that saturates it"
        case "spares", tuple(wanted):
            return ", at least ".join(map(note_text, wanted))
        case "max_quality_loss", float(loss):
            return f"{percent_text(loss, digits=3)} of a published metric; what nobody published is refused"
        case "power_cap_w", float(watts):
            return f"{watts:g} W; clocks as a full load allows, memory slowed where it alone draws more"
        case "hardware", tuple(left_out):
            return f"{item.detail} compared" + (f", not {', '.join(map(str, left_out))}" if left_out else "")
        case "kv_tiers", tuple(tiers):
            return ", ".join(f"{tier.medium} {bytes_text(tier.capacity_bytes)}" for tier in tiers)
        case "hand_over_s", float(seconds):
            return f"{seconds:g} s of every TTFT, beside the KV cache's way over the link"
        case "prices", PriceProfile() as prices:
            return f"{prices.name}, {item.detail}, {prices.currency}, {prices.date}"
        case "price", MarketPrice() as price:
            return price_source_text(price, currency=str(item.detail))
    return str(item.value)


def _lengths(lengths: LengthDistribution) -> str:
    digits = 0 if lengths.mean_tokens >= KILO or lengths.mean_tokens == round(lengths.mean_tokens, 0) else 1
    shown = f"{lengths.mean_tokens:,.{digits}f} tokens on average"
    if lengths.uncut_cv is not None:
        return f"{shown}, {cut_text(lengths)}"
    return f"{shown}, cv {lengths.cv:.2f}" + (", log-normal" if lengths.cv > 0 else "")


def _trace(name: TraceName | None) -> str:
    return "trace" if name is None else f"trace {name.source} ({name.requests} requests in {name.duration_s:.0f} s)"


def _lengths_source(found: LengthOrigins) -> str:
    texts = {ValueOrigin.GIVEN: "given", ValueOrigin.TRACE: _trace(found.trace)}
    mean, cv = (
        texts.get(origin, f"default of {kind.word}: {note_text(kind.source)}")
        for origin, kind in ((found.mean, found.workload), (found.cv, found.nearest))
    )
    return mean if mean == cv else f"mean {mean}; cv {cv}"


def _source(item: Assumption) -> str:
    match item.key, item.origin, item.detail:
        case "model", origin, str(profile) if profile != item.value:
            return f"{origin}; it has the configuration of {profile}"
        case (("isl_tokens" | "osl_tokens"), _, LengthOrigins() as found):
            return _lengths_source(found)
        case "objectives", ValueOrigin.DEFAULT, WorkloadPreset() as kind:
            return f"default of {kind.word}: {note_text(kind.objective_source)}"
        case "objectives", ValueOrigin.GIVEN, Note() as unbounded:
            return f"given; {note_text(unbounded)}"
        case "format", _, str(hardware):
            return (
                f"default: the narrowest published checkpoint that {hardware} multiplies faster, of the model's maker "
                f"or known to lose little; {flag_of('weights')} bf16 serves the model's own"
            )
        case "prefix_hit", ValueOrigin.DEFAULT, WorkloadPreset() as kind:
            return f"default of {kind.word}: {note_text(kind.source)}"
        case "prefix_hit", ValueOrigin.DEFAULT, _:
            return "default: every prompt is new"
        case "prefix_hit", ValueOrigin.MEASURED, TraceName() as name:
            return (
                f"{_trace(name)}, in a cache of {name.cache_tokens:,.0f} tokens; {flag_of('prefix_hit')} says otherwise"
            )
        case "answers_per_request", _, _:
            return "given; rates and latencies of replicas are of single answers, prices of requests of all of them"
        case "arrival_cv", ValueOrigin.DEFAULT, found:
            return "default: Poisson arrivals" + (f"; {warning_text(found)}" if isinstance(found, Note) else "")
        case "price", _, _:
            return f"price list; {flag_of('price_of')} and {flag_of('provider')} take others"
        case "hand_over_s", _, _:
            return source_text(item)
        case "rate_per_s", ValueOrigin.RULE, float(peak):
            return f"mean of {flag_of('load_profile')} under the given peak of {plain_text(peak)}"
        case "peak_to_mean", ValueOrigin.MEASURED, TraceName() as name:
            return f"busiest minute over mean of the {_trace(name)}"
        case "peak_to_mean", ValueOrigin.RULE, Assumption() as before:
            own = f"{_value(before)} is the {_source(before)}"
            return f"what the replayed trace needs, its objectives over all requests; {own}"
        case "peak_to_mean", ValueOrigin.RULE, _:
            return flag_of("load_profile")
        case key, ValueOrigin.DEFAULT, _ if key in _DEFAULTS:
            return f"default: {_DEFAULTS[key]}"
    return str(item.origin)


def plan_input(item: Assumption) -> PlanInput:
    """An assumption of a plan; what its deployment filled in keeps the names of a scenario's fields."""
    if item.key in _NAMES:
        # Pools on two kinds of accelerator have a price each.
        name = f"price of {item.value.hardware}" if isinstance(item.value, MarketPrice) else _NAMES[item.key]
        return _said(name, _value(item), _source(item), item.origin)
    of = f"{item.pool} " if item.pool else ""
    if isinstance(item.value, SlowerExperts | SlowProducts):
        return _said(f"{of}kernels", assumption_text(replace(item, pool="")), str(item.origin), item.origin)
    if item.value is None or (item.key, item.origin) == ("engine.name", ValueOrigin.RULE):
        said = assumption_text(replace(item, pool=""))
        return _said(f"{of}replica", said, "default", ValueOrigin.DEFAULT)
    return _said(of + item.key, value_text(item), source_text(item), item.origin)


def _said(name: str, value: str, source: str, origin: ValueOrigin) -> PlanInput:
    return PlanInput(name=name, value=value, source=source, origin=origin, remark=source.removeprefix("default: "))


def warning_text(item: Note) -> str:
    """One sentence, without its capital and its stop."""
    return flagged(note_text(item))


def warning_texts(items: Iterable[Note]) -> list[str]:
    """All of them."""
    return list(map(warning_text, items))


TERMS: Mapping[OfferKind, str] = MappingProxyType(
    {
        "on_demand": "on demand",
        "reserved_1y": "1 year",
        "reserved_3y": "3 years",
        "spot": "spot",
        "capacity_block": "capacity block",
    }
)


CASES: Mapping[str, str] = MappingProxyType(
    {
        "planned": "as planned",
        "low": "all at their lowest",
        "median": "all at their median",
        "high": "all at their highest",
        "hyperscaler": "hyperscalers alone",
        "specialist": "specialists alone",
        "marketplace": "marketplaces alone",
    }
)


def terms_text(terms: Sequence[OfferKind]) -> str:
    """``on demand``, ``1 year``, or both of a median between them."""
    return " or ".join(TERMS[kind] for kind in terms)


def taken_text(price: MarketPrice) -> str:
    """``1 year, median of 6``, ``on demand, Oracle Cloud``: what was taken, for a column of a table."""
    old = ", old" if price.outdated else ""
    return f"{terms_text(price.terms)}, {_whose(price)}{old}"


def offers_text(cost: FleetCost) -> str:
    """What was taken of each accelerator's prices, and when it was asked: ``1 year, median of 6, 2026-09-27``."""
    return " + ".join(f"{taken_text(item)}, {item.date}" for item in cost.prices) or cost.offer


def _whose(price: MarketPrice) -> str:
    match price.taken:
        case "median" if price.of_median > 1:
            return f"median of {price.of_median}"
        case "low" | "high":
            return f"{price.taken} of {price.providers}"
        case "marked":
            return price.provider
    return f"{price.provider} only"


def price_source_text(price: MarketPrice, *, currency: str) -> str:
    """What was taken, between which ends, from how many offers of which days."""
    said = f"{price_text(price.per_hour, currency)} an hour ({terms_text(price.terms)}): "
    match price.taken:
        case "only":
            said += f"{price.provider}, the only offer"
        case "marked":
            said += f"{price.provider}, marked in the list"
        case "low" | "high":
            end = "lowest" if price.taken == "low" else "highest"
            said += f"{price.provider}, the {end} of {counted_text(price.providers, 'offer')}"
        case _:
            said += price.provider
    if price.providers > 1:
        low, high = price_text(price.low, currency), price_text(price.high, currency)
        said += f"; {price.providers} run from {low} ({price.low_provider}) to {high} ({price.high_provider})"
    days = price.date if price.oldest == price.date else f"{price.oldest} to {price.date}"
    said += f"; of {days}"
    if price.left_out:
        said += f"; {counted_text(price.left_out, 'stale price')} left out"
    return f"{said}; stale on the day of the list" if price.outdated else said


def _rival_text(rival: PriceRival, *, currency: str, first: bool) -> str:
    name = f"{rival.hardware} {rival.setup}"
    said = f"{name}{', the next,' if first and rival.per_hour is not None else ''} wins below "
    said += f"{price_text(rival.wins_below, currency)}"
    if rival.per_hour is None or rival.low is None:
        return f"{said}; nobody lists a price"
    planned = f"planned at {price_text(rival.per_hour, currency)}"
    lowest = f"{rival.low_provider} asks {price_text(rival.low, currency)}"
    return f"{said} ({planned}): {lowest}" if rival.offered else f"{said} ({planned}); nobody asks less"


def _limit_text(above: float, price: MarketPrice, *, currency: str, average: str) -> str:
    """Up to which price the chosen accelerator stays the choice, and what is asked for it."""
    low, high = price_text(price.low, currency), price_text(price.high, currency)
    said = f"{price.hardware} is chosen up to {price_text(above, currency)} an hour{average}"
    if price.providers == 1:
        return f"{said}; its only offer is {low} ({price.low_provider})"
    if price.high <= above:
        return f"{said}; all its offers are below that, {low} to {high}"
    return f"{said}; its offers run from {low} ({price.low_provider}) to {high} ({price.high_provider})"


def ranking_texts(found: PriceRanking, best: Fleet) -> tuple[str, ...]:
    """Where another fleet than the chosen one becomes the choice, a sentence each without its stop."""
    lines, price, currency = [], best.price, best.cost.currency
    if price is not None and found.loses_above is not None:
        average = " on average" if best.is_unlike else ""
        lines.append(_limit_text(found.loses_above, price, currency=currency, average=average))
    lines += [_rival_text(item, currency=currency, first=place == 0) for place, item in enumerate(found.rivals)]
    return tuple(lines)


def bought_text(bought: BoughtFleet, *, currency: str) -> str:
    """What the cheapest fleet costs that quotes allow to buy, beside the one that costs least to rent."""
    term = "as planned" if bought.rent_kind == "planned" else TERMS[bought.rent_kind]
    rent = f"renting {bought.rent_hardware} ({term}, {price_text(bought.rent_per_hour, currency)})"
    named = " ".join(f"{flag_of('hardware')} {name}" for name in bought.accelerators)
    advice = f": buy it, {named} plans it alone" if bought.chosen else ""
    return (
        f"Bought at the quote of {bought.provider}, {bought.devices:,} x {bought.hardware} {bought.setup} cost "
        f"{price_text(bought.per_hour, currency)} an hour over {bought.years} years with their operation "
        f"({money_text(bought.capital, currency)} at the start), {percent_text(abs(bought.change))} "
        f"{'less' if bought.change < 0 else 'more'} than {rent}{advice}."
    )


def steady_text(found: PriceRanking) -> str:
    """Whether the recommendation depends on the prices, in one sentence."""
    first = found.cases[0]
    unlisted = [CASES[case.name].removesuffix(" alone") for case in found.cases if not case.chosen_priced]
    absent = f" {' and '.join(unlisted).capitalize()} do not list it." if unlisted else ""
    if found.steady:
        return f"{first.hardware} is chosen at the lowest, planned and highest listed prices alike.{absent}"
    others = [
        f"{case.hardware} ({CASES[case.name]})"
        for case in found.cases
        if case.hardware != first.hardware and case.chosen_priced
    ]
    return f"The choice rests on prices: {first.hardware} wins as planned, {', '.join(others)}. Get quotes.{absent}"


def _own_resource(limit: Limit) -> str:
    return str(limit.resource) if limit.objective is None else f"{limit.objective.name} ({limit.resource})"


def resource_text(limit: Limit) -> str:
    """``KV memory``, ``TPOT p95 (memory bandwidth)``; of both pools where they differ."""
    return "; ".join(f"{role}: {_own_resource(own)}" for role, own in limit.of_pools) or _own_resource(limit)


def order_text(fleets: Sequence[Fleet]) -> str:
    """How a table of fleets is sorted: what counts against kernels that nobody measured is part of it."""
    return "cheapest first" + (", unmeasured kernels counted as dearer" if any(item.doubt for item in fleets) else "")


def families_text(plan: CapacityPlan) -> str:
    """``Searched as well on h100, h200: engine limits save 6 % on h100; nothing is saved by pools.``"""
    families, spec = plan.families, plan.spec
    found = [_found(item) for item in families if item.saving > 0]
    nothing = "; ".join(item.family for item in families if item.saving <= 0)
    found += [f"nothing is saved by {nothing}"] if nothing else []
    open_options = (
        ("pipeline stages", f"{flag_of('search')} wide", spec.pp_size),
        ("speculation", flag_of("any_technique"), spec.speculation),
        ("other formats", flag_of("any_precision"), spec.weights),
        ("two pools", f"{flag_of('serving')} disaggregated", not spec.speculation or NONE in spec.speculation),
    )
    left = [(name, flag) for name, flag, asked in open_options if not asked]
    names, flags = ", ".join(name for name, _ in left), ", ".join(flag for _, flag in left)
    said = f" Left out: {names} ({flags})." if left else ""
    others = not spec.hardware and any(fleet.hardware not in plan.searched for fleet in plan.fleets)
    if others:
        said = f" Not searched so: the others, which may need fewer where {flag_of('hardware')} names them.{said}"
    where = f" on {', '.join(plan.searched)}" if others else ""
    return f"Searched as well{where}: {'; '.join(found)}.{said}"


def _found(item: FamilyFound) -> str:
    said = f"{item.family} save {percent_text(item.saving)} on {item.hardware}"
    return said if item.kept else f"{said} ({item.label}), too little for what they take to run"
