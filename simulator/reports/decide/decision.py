"""Section 1: the decision on one page: buy or rent, what, of whom, how safely, what else, and until which price."""

from __future__ import annotations

from itertools import islice

from simulator.planner.capacity_plan import CapacityPlan, better_known, elsewhere
from simulator.planner.fleet.records import Fleet
from simulator.planner.money.market import MarketPrice, market_price, offers_of, plan_rule
from simulator.planner.studies.growth import Growth
from simulator.planner.studies.stock_fleets import StockPlan
from simulator.planner.studies.uncertainty import DEFAULT_DEMAND_SIGMA, DrawnFleet, drawn_fleet
from simulator.planner.verification.confidence import Confidence, confidence_in
from simulator.records import dataclass
from simulator.reports.content import document as doc
from simulator.reports.content import quantities as say
from simulator.reports.decide.risks import confidence_text, top_risks
from simulator.reports.sections.answer import device_word, rival_text, sentence
from simulator.reports.sections.cost import buying_text
from simulator.reports.sections.stock import existing, slowest, stock_shapes
from simulator.reports.studies import Studies, named_parts
from simulator.reports.words.fields import note_text
from simulator.reports.words.plan_inputs import TERMS, bought_text, offers_text, terms_text
from simulator.units import KILO


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVerdict:
    """What a reader needs before the numbers.

    drawn : the fleet over draws of demand and step times; confidence : that it keeps its promise; rival : what stands
    beside it, empty for nothing
    """

    drawn: DrawnFleet
    confidence: Confidence
    rival: str


def plan_verdict(plan: CapacityPlan) -> PlanVerdict:
    """Judge the recommended fleet."""
    return PlanVerdict(
        drawn=drawn_fleet(plan.basis.question, plan.basis.shown[0]),
        confidence=confidence_in(plan),
        rival="" if plan.rival is None else rival_text(plan.rival, plan),
    )


def _needed_text(verdict: PlanVerdict, plan: CapacityPlan) -> str:
    more = verdict.drawn.more_devices
    tail = f", {say.count_text(more)} more" if more > 0 else ", no more than planned"
    return f"{say.count_text(verdict.drawn.devices.p90)} {device_word(plan.best)}{tail}"


def verdict_line(verdict: PlanVerdict, plan: CapacityPlan) -> str:
    """``86 % likely to hold its objectives · confidence B, of A to D · nine in ten draws of demand need 224 GPUs``."""
    sure = verdict.confidence
    parts = [f"{say.chance_text(sure.chance)} likely to hold its objectives"] if sure.chances else []
    parts += [f"confidence {sure.letter}, of A to D", f"nine in ten draws of demand need {_needed_text(verdict, plan)}"]
    return " · ".join(parts)


def verdict_text(verdict: PlanVerdict, plan: CapacityPlan) -> str:
    """``Confidence B, of A to D: ... Carries 75 % of draws of demand as well; nine in ten need 216 GPUs, 24 more.``"""
    sigma = plan.spec.demand_sigma
    spread = say.percent_text(DEFAULT_DEMAND_SIGMA if sigma is None else sigma)
    return (
        f"{confidence_text(verdict.confidence)} "
        f"Carries {say.percent_text(verdict.drawn.enough_share)} of draws where demand is uncertain as well "
        f"(spread {spread}); nine in ten of them need {_needed_text(verdict, plan)}."
    )


_ASKED = 3
_RISKS = 5
_PER_MILLION_REQUESTS = "plan_cost_per_hour/(served_rate*3600/1000000)"


def lead_text(studies: Studies) -> str:
    """``Rent 56 h100-sxm-80gb to serve 100 requests/s of llama-3.1-70b: $184k a month, 1 year.``"""
    fleet, cost, stock = studies.plan.best, studies.cost, studies.plan.study(StockPlan)
    served = say.demand_text(studies.plan.demand)
    purpose = f"to serve {served} of {fleet.replica.deployment.model.name}"
    if stock is not None:
        return _stock_lead(studies, stock, purpose=purpose)
    what = " + ".join(f"{item.devices:,} {item.hardware}" for item in fleet.housing) + f" {purpose}"
    if cost.buys and cost.owning is not None:
        paid, yearly = (
            say.money_text(value, studies.currency) for value in (cost.owning.capex_total, cost.owning.opex_total)
        )
        return f"Buy {what}: {paid} at the start, {yearly} a year."
    if fleet.cost.per_month is None:
        return f"Obtain {what}: nobody lists a price, so get quotes and plan again."
    terms = f", {_terms(studies)}" if fleet.cost.terms else ""
    return f"Rent {what}: {say.money_text(fleet.cost.per_month, studies.currency)} a month{terms}."


def _stock_lead(studies: Studies, stock: StockPlan, *, purpose: str) -> str:
    """``Rent 56 mi355x beside 16 h100-sxm-80gb in stock to serve 100 requests/s ...``"""
    kept = " + ".join(f"{share.from_stock:,} {share.hardware}" for share in stock.shares if share.from_stock)
    new = " + ".join(f"{count:,} {hardware}" for share in stock.shares for hardware, count in share.by_kind)
    if not new:
        return f"Obtain nothing {purpose}: {kept} in stock are enough."
    what = f"{new} beside {kept} in stock {purpose}" if kept else f"{new} {purpose}"
    if stock.cost_per_month is None:
        return f"Obtain {what}: nobody lists a price, so get quotes and plan again."
    terms = terms_text(tuple(sorted({kind for price in _prices(studies) for kind in price.terms})))
    return f"Rent {what}: {say.money_text(stock.cost_per_month, studies.currency)} a month, {terms}."


def _equipment(studies: Studies) -> doc.Facts:
    """Machines and their room, and how sure their number is."""
    fleet, rooms, sure = studies.plan.best, studies.rooms, confidence_in(studies.plan)
    devices = doc.count(fleet.devices, origin=doc.known_as(fleet.provenance), follows="devices")
    servers = f"servers, {fleet.servers_text}" if fleet.servers_text else "servers"
    per_rack = f"{rooms.servers_per_rack} to a rack" if rooms.servers_per_rack else rooms.bound_by
    if fleet.is_unlike and fleet.servers is not None:
        per_rack = " + ".join(say.count_text(item.servers or 0) for item in fleet.housing)
    nameplate = f"nameplate {fleet.maximum_w / KILO:,.1f} kW"
    racks = doc.count(rooms.racks, follows="racks") if rooms.servers_per_rack else doc.count(rooms.racks)
    power = doc.kilo(fleet.typical_w, "kW", follows="typical_kw")
    facts = (
        doc.fact(
            "devices", f"{device_word(fleet)} in all", devices, f"80 %: {fleet.devices_low} to {fleet.devices_high}"
        ),
        doc.fact("servers", servers, doc.count(fleet.servers, follows="servers"), per_rack),
        doc.fact("racks", "racks", racks, f"bound by {rooms.bound_by}"),
        doc.fact("power_typical_kw", "expected power", power, nameplate),
        doc.fact(
            "confidence", "confidence, from A to D", doc.text(sure.letter), "by measured whole runs alone (section 2)"
        ),
    )
    return doc.Facts(facts=facts)


def _money(studies: Studies) -> doc.Facts:
    fleet, cost = studies.plan.best, studies.plan.best.cost
    answers = studies.plan.demand.answers_per_request
    each = f" of {answers} answers" if answers > 1 else ""
    offer, ends = f"no such price in the list {studies.prices.name}", ""
    if cost.per_hour is not None:
        low, high = fleet.ends_of(cost.per_hour)
        offer, ends = f"price: {offers_text(cost)}", f"80 %: {low:,.2f} to {high:,.2f}"
    rows = (
        ("cost_per_hour", f"an hour, rented {_terms(studies)}", 2, "plan_cost_per_hour", ends),
        ("cost_per_month", "a month, rented", 0, "plan_cost_per_month", offer),
        ("cost_per_million_input_tokens", "per million input tokens", 4, "plan_per_million_input", "split by time"),
        ("cost_per_million_output_tokens", "per million output tokens", 4, "plan_per_million_output", ""),
        ("cost_per_million_requests", f"per million requests{each}", 2, _PER_MILLION_REQUESTS, ""),
    )
    facts = []
    for key, label, digits, formula, remark in rows:
        value = getattr(cost, key.removeprefix("cost_"))
        live = formula if cost.per_hour is not None and value is not None else ""
        facts.append(doc.fact(key, label, doc.money(value, digits=digits, follows=live), remark))
    return doc.Facts(facts=tuple(facts))


def _limits(studies: Studies) -> doc.Facts:
    """Until which prices the decision stands, what owning takes, and when."""
    ranking, growth, owning = studies.plan.price_ranking, studies.growth, studies.cost.owning
    leave = None if ranking is None else ranking.loses_above
    then = "no other option has a price"
    if ranking is not None and leave is not None:
        average = ", on average" if studies.plan.best.is_unlike else ""
        then = f"then {ranking.cases[0].next_hardware}{average}"
    owned = "no purchase price known"
    if owning is not None:
        owned = f"{owning.monthly:,.0f} a month all in{'' if owning.quoted else '; no quote'}"
    capital = doc.money(owning.capex_total if owning else None, digits=0, follows="capex_total" if owning else "")
    even = studies.cost.break_even_price
    pays = doc.money(even, digits=0, follows="break_even_price" if even else "")
    bought = "an accelerator with its share of a server"
    facts = [
        doc.fact("walk_away_price", "walk away from an hour above", doc.money(leave), then),
        doc.fact("break_even_price", "buy below", pays, bought),
        doc.fact("capex", "capital if owned", capital, owned),
    ]
    if growth is None:
        return doc.Facts(facts=(*facts, doc.fact("order_by", "next order by", doc.text("not planned"), "no growth")))
    if owning is not None:
        lead = f"{growth.lead_time_days:g} days: {note_text(growth.lead_time_source)}"
        facts.append(doc.fact("in_use", f"in use, if bought on {growth.start}", doc.text(growth.arrival), lead))
    return doc.Facts(facts=(*facts, _next_order(studies, growth)))


def _next_order(studies: Studies, growth: Growth) -> doc.Fact:
    origin = doc.Origin.ASSUMED if studies.illustrates_growth else doc.Origin.NONE
    illustrated = ", an illustration: give --growth" if studies.illustrates_growth else ""
    at = f"at {say.signed_percent_text(growth.base.rate_per_month)} a month{illustrated}"
    if not growth.steps:
        return doc.fact("order_by", "next order by", doc.text("no step in sight", origin=origin), at)
    step = growth.steps[0]
    parts = named_parts(studies.plan, brief=True)
    whose = next((f" of {name}" for name, part in parts if name and growth in part.studies), "")
    when = doc.text("with this fleet" if step.late else step.order_by, origin=origin)
    return doc.fact(
        "order_by", "next order by", when, f"{step.devices_after} accelerators{whose} from {step.date} {at}"
    )


def _terms(studies: Studies) -> str:
    return terms_text(studies.plan.best.cost.terms or plan_rule(studies.spec).terms)


def _asked(studies: Studies, hardware: str) -> str:
    """The cheapest providers to ask, each with its term and price."""
    offers = offers_of(studies.prices, hardware=hardware, rule=plan_rule(studies.spec))
    return ", ".join(
        f"{item.provider} {say.price_text(item.per_hour, studies.currency)} ({TERMS[item.kind]}, {item.date})"
        for item in islice(offers, _ASKED)
    )


def _obtained(studies: Studies) -> tuple[str, ...]:
    """Kinds of accelerators to obtain: of the fleet, or beside what exists."""
    stock = studies.plan.study(StockPlan)
    if stock is None:
        return tuple(item.hardware for item in studies.plan.best.housing)
    return tuple(dict.fromkeys(hardware for share in stock.shares for hardware, _ in share.by_kind))


def _prices(studies: Studies) -> list[MarketPrice]:
    """What an hour of each kind to obtain costs, where anybody lists it."""
    rule = plan_rule(studies.spec)
    found = (market_price(studies.prices, hardware=name, rule=rule) for name in _obtained(studies))
    return [price for price in found if price is not None]


def _whom(studies: Studies) -> tuple[str, str]:
    owning, prices, names = studies.cost.owning, _prices(studies), _obtained(studies)
    if not names:
        return "nobody", "what exists is enough"
    if studies.cost.buys and owning is not None:
        quote = f"quote of {owning.offer.date}: {studies.currency} {owning.offer.per_device:,.0f} an accelerator"
        return owning.offer.provider, quote
    if len(prices) < len(names):
        return "not decided", f"the price list {studies.prices.name} has no price of {' + '.join(names)}"
    several = len(prices) > 1
    hourly, asked = [], []
    for price in prices:
        of = f"{price.hardware} " if several else ""
        paid = say.price_text(price.per_hour, studies.currency)
        hourly.append(f"{of}{paid} an hour, {terms_text(price.terms)}: {price.provider}")
        asked.append(f"{of}{_asked(studies, price.hardware)}")
    return "; ".join(hourly), f"ask first: {'; '.join(asked)}"


def _precision(studies: Studies) -> tuple[str, str]:
    fleet = studies.plan.best
    plan = fleet.replica.deployment.plan
    said = f"weights {plan.weights.value}, products {plan.activations.value}, KV cache {plan.kv_dtype.value}"
    return said, note_text(fleet.quality or f"{studies.model_id}: the published answers")


def cheapest_elsewhere(studies: Studies) -> Fleet | None:
    """The cheapest fleet of other accelerators; None where none was compared."""
    return next(iter(elsewhere(studies.plan.fleets)), None)


def _against(fleet: Fleet, best: Fleet) -> str:
    """``8 b300-sxm TP4, +168 %, 11 kW, step times calibrated``."""
    change = (
        say.change_text(fleet.cost.per_hour, best.cost.per_hour) if fleet.cost.per_hour and best.cost.per_hour else ""
    )
    shape = f"{fleet.devices:,} {fleet.hardware} {fleet.label}"
    return f"{shape}, {change or 'at the same cost'}, {fleet.typical_w / KILO:,.0f} kW, step times {fleet.provenance}"


def _alternative(studies: Studies) -> tuple[str, str]:
    """The cheapest of all others, and beside it the cheapest that measurements stand behind."""
    rival, best = cheapest_elsewhere(studies), studies.plan.best
    if studies.plan.spec.stock:
        new = f"{best.devices:,} new {best.hardware} {best.label}"
        return new, f"{new}, as if nothing existed: {say.price_text(best.cost.per_hour, studies.currency)} an hour"
    if rival is None:
        return "none was compared", "name several accelerators, or none, to compare all"
    known = better_known(studies.plan.fleets)
    said = f"; on measurements: {_against(known, best)}" if known is not None and known is not rival else ""
    return f"{rival.devices:,} {rival.hardware} {rival.label}", f"{_against(rival, best)}{said}"


def _availability(studies: Studies) -> tuple[str, str]:
    """Who has it, as far as anybody says."""
    names, rule = _obtained(studies), plan_rule(studies.spec)
    each = [offers_of(studies.prices, hardware=name, rule=rule) for name in names]
    if not names:
        return "in stock", "nothing is to be obtained"
    if not all(each):
        return "nobody lists it for rent", "ask providers and vendors for a date"
    newest = max(item.date for offers in each for item in offers)
    return (
        f"{' + '.join(say.counted_text(len(offers), 'provider') for offers in each)} on the list",
        f"as of {newest}; nobody says how many: ask for a date",
    )


def rent_or_buy_text(studies: Studies) -> str:
    """Below which price owning this fleet pays, and what the cheapest fleet costs that quotes allow to buy."""
    ranking = studies.plan.price_ranking
    quoted = None if ranking is None else ranking.bought
    bought = () if quoted is None else (bought_text(quoted, currency=studies.currency),)
    return " ".join((buying_text(studies.cost), *bought))


def _sure(studies: Studies) -> tuple[str, str]:
    """How surely it keeps its promise; of fleets side by side the one that is known least."""
    of_each = [(confidence_in(part), name) for name, part in named_parts(studies.plan, brief=True)]
    sure, name = max(of_each, key=lambda item: (item[0].letter, -item[0].chance))
    said = f"{name}: {confidence_text(sure)}" if len(of_each) > 1 else confidence_text(sure)
    return f"{sure.letter}, of A to D: {say.chance_word(sure.chance).lower()}", said


def _decisions(studies: Studies) -> doc.Table:
    fleet = studies.plan.best
    engine = fleet.replica.deployment.engine
    stock = studies.plan.study(StockPlan)
    pools = (
        f"{pool.replicas:,} + {pool.spares:,} spare {pool.role} replicas of ".replace("  ", " ")
        + f"{pool.replica.devices} {pool.hardware} ({pool.label})"
        for pool in fleet.pools
    )
    shape = ", ".join(pools) if stock is None else stock_shapes(stock)
    buys = ("buy" if studies.cost.buys else "rent") if studies.cost.priced else "not decided"
    said = (
        ("Buy or rent", buys, rent_or_buy_text(studies)),
        ("What", shape, f"{engine.name} {engine.version}; {sentence(studies.plan)}"),
        ("Of whom", *_whom(studies)),
        ("Precision", *_precision(studies)),
        ("Alternative", *_alternative(studies)),
        ("Availability", *_availability(studies)),
        ("Confidence", *_sure(studies)),
    )
    return doc.table(
        "decisions",
        "What is decided",
        "Question: | Answer: | Why::",
        [doc.row(name, answer, why) for name, answer, why in said],
    )


def _margins(studies: Studies) -> tuple[doc.Block, ...]:
    """Every objective at the planned peak with the spares down, and what is left to its bound; where something exists
    those of the slowest fleet of what serves."""
    plan, stock = studies.plan, studies.plan.study(StockPlan)
    if not plan.objectives:
        return (doc.Paragraph(text="No latency objective was asked for."),)
    found, note = plan.verification, "Margin: what the forecast leaves of the bound."
    if stock is None:
        seen = list(zip(plan.best.degraded.objectives_s, studies.latencies.objectives_s, strict=True))
        known = plan.best.provenance
    else:
        of_all = slowest(plan, stock)
        seen, known = [of_all[item.name] for item in plan.objectives], stock.provenance
        checks = [share.simulated for share in stock.shares]
        found = None if None in checks else next((item for item in checks if item and not item.holds), checks[0])
    if found is not None:
        note += f" The event simulation {'confirms' if found.holds else 'does not confirm'} them."
    heads = "Objective: | At most | Forecast | 80 % from | to | Margin"
    rows = [
        doc.row(
            item.name,
            doc.seconds(item.bound_s),
            doc.seconds(value, origin=doc.known_as(known)),
            *map(doc.seconds, ends),
            doc.fraction(item.margin(value)),
        )
        for item, (value, ends) in zip(plan.objectives, seen, strict=True)
    ]
    return (doc.table("margins", "Objectives at the planned peak, spares down", heads, rows, note=note),)


def decision_content(studies: Studies) -> tuple[doc.Block, ...]:
    """What is decided, the margins, and what has to be verified first: all that a reader needs to decide."""
    return (
        doc.Paragraph(text=lead_text(studies), tone=doc.Tone.LEAD),
        *existing(studies),
        _equipment(studies),
        _money(studies),
        _limits(studies),
        _decisions(studies),
        *_margins(studies),
        doc.Paragraph(text="To verify first, and what speaks against it", tone=doc.Tone.HEAD),
        doc.Bullets(items=top_risks(studies)[:_RISKS]),
    )
