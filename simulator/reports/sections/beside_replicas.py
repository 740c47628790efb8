"""What stands beside replicas, against replicas alone: tiers below their caches, encoders of pictures."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.studies.encoder_pool import EncoderFleet, NoEncoders, NotPossible
from simulator.planner.studies.kv_tiers import KvTiersFound
from simulator.reports.content import document as doc
from simulator.reports.content import quantities as say


def saved_text(*, devices: int, per_hour: float | None, currency: str) -> str:
    """``saves 8 accelerators and costs $53.92/h less``."""
    word = "saves" if devices > 0 else "takes"
    verdict = f"{word} {say.counted_text(abs(devices), 'accelerator')}{'' if devices > 0 else ' more'}"
    if devices == 0:
        verdict = "takes as many accelerators"
    if per_hour is None:
        return verdict
    return f"{verdict} and costs {say.price_text(abs(per_hour), currency)}/h {'less' if per_hour > 0 else 'more'}"


def kv_tiers_blocks(plan: CapacityPlan) -> tuple[doc.Table, ...]:
    """What prompts find in each tier, and what the fleet takes without them."""
    found = plan.study(KvTiersFound)
    if found is None:
        return ()
    rows = [
        (
            *(tier.medium, doc.count(tier.capacity_tokens)),
            *(doc.fraction(tier.hit_fraction), doc.fraction(tier.reuse_fraction)),
            doc.seconds(tier.load_s_per_token or None),
            "never" if tier.break_even_tokens is None else f"{tier.break_even_tokens:,} tokens",
        )
        for tier in found.levels
    ]
    heads = "Cache: | Tokens a replica | Hits | LRU would hold | Load of a token | Worth loading from:"
    note = _tiers_verdict(found, plan.best.cost.currency)
    return (doc.table("kv_tiers", "Tiers below the cache of each replica", heads, rows, note=note),)


def _tiers_verdict(found: KvTiersFound, currency: str) -> str:
    """What they save, what they may cost, and what the servers have for them."""
    said = ["Prompts that begin alike go to one replica."]
    if found.saved_devices is None:
        said.append("Without tiers this set-up does not serve.")
    else:
        saved = saved_text(devices=found.saved_devices, per_hour=found.saved_per_hour, currency=currency)
        said.append(f"Against the same set-up without tiers, whose replicas take prompts in turn, the fleet {saved}.")
    stored = say.bytes_text(found.stored_bytes)
    if found.worth_per_tb_month:
        worth = say.price_text(found.worth_per_tb_month, currency)
        said.append(f"No price list has the {stored} of all replicas: up to {worth} a TB and month they pay.")
    else:
        said.append(f"No price list has the {stored} of all replicas, which is not in the cost.")
    if found.host_memory_bytes is not None:
        said.append(f"The servers have {say.bytes_text(found.host_memory_bytes)} of host memory a replica.")
    return " ".join(said)


def encoder_blocks(plan: CapacityPlan) -> tuple[doc.Block, ...]:
    """Encoders and the fleet behind them, or why there can be none."""
    found, refused = plan.study(EncoderFleet), plan.study(NoEncoders)
    if refused is not None:
        said = f"Pictures encoded on accelerators of their own: {_reasons(refused.not_possible)}"
        return (doc.Paragraph(text=said, tone=doc.Tone.NOTE),)
    limited = plan.basis.question.has_limits
    return () if found is None else (_encoders(found, plan.best.cost.currency, limited=limited),)


def _reasons(refused: Sequence[NotPossible]) -> str:
    """``not possible with l4 (encoding takes ...), l40s (...).``"""
    return f"not possible with {', '.join(f'{item.hardware} ({item.reason})' for item in refused)}."


def _encoders(found: EncoderFleet, currency: str, *, limited: bool) -> doc.Table:
    saved = saved_text(devices=found.saved_devices, per_hour=found.saved_per_hour, currency=currency)
    behind = f"{found.fleet_hardware} {found.fleet_label}"
    fleets = (
        ("encoders", found.hardware, found.replicas, found.spares, found.devices, found.cost_per_hour),
        ("replicas", behind, found.fleet_replicas, found.fleet_spares, found.fleet_devices, found.fleet_cost_per_hour),
    )
    return doc.table(
        "encoder_pool",
        "Pictures encoded on accelerators of their own",
        f"Part: | Fleet: | Replicas: | Devices | {currency}/h",
        [
            (part, fleet, f"{replicas} + {spares}", doc.count(devices), doc.money(hourly, digits=0))
            for part, fleet, replicas, spares, devices, hourly in fleets
        ],
        note=f"A request is encoded in {say.seconds_text(found.request_s)} after up to "
        f"{say.seconds_text(found.wait_p95_s)} of waiting (p95, closed form) and {say.seconds_text(found.transfer_s)} "
        f"over {found.link}; encoders are busy {say.percent_text(found.busy_fraction)}. The replicas keep what that "
        f"leaves of the objectives. Against replicas that encode, this {saved}. Both together "
        f"{'are within the limits and ' if limited else ''}draw up to "
        f"{say.watts_text(found.power_max_w)}; power, racks and launch files of the plan are of replicas that encode."
        + (f" It is {_reasons(found.not_possible)}" if found.not_possible else ""),
    )
