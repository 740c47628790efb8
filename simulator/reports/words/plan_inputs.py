"""What a plan rests on, in words: name, value and source of every input, and what to check before it is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from simulator.planner.money.market import MarketPrice
from simulator.planner.records import LengthOrigins, TraceName
from simulator.records import dataclass
from simulator.reports.content.quantities import bytes_text
from simulator.reports.words.derivation import price_source_text, price_switch_text
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
from simulator.specs.money.prices import PriceProfile
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.traffic.lengths import LengthDistribution
from simulator.traffic.workload_presets import WorkloadPreset
from simulator.units import KILO, bound_text, percent_text, plain_text

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
            return f"price list; {price_switch_text()}"
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
