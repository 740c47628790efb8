"""The fleet that a measured rate asks for, beside the predicted one."""

from __future__ import annotations

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.studies.measured_rate import MeasuredObjective, MeasuredRate
from simulator.reports.content.document import Block, Bullets, columns, count, kilowatts, price, table
from simulator.reports.content.quantities import counted_text, kilowatts_text, price_text, seconds_text
from simulator.reports.words.fields import flag_of

KNOWN = "measured by you"


def measured_sentence(found: MeasuredRate, currency: str) -> str:
    """GPUs = those that the measured rate needs + spare + idle, cost and power."""
    parts = [f"{found.needed_devices} at {found.rate_per_gpu_per_s:g} requests/s each ({KNOWN})"]
    parts += [f"{found.spare_devices} spare"] if found.spare_devices else []
    parts += [f"{found.idle_devices} idle in whole servers"] if found.idle_devices else []
    hourly, power = price_text(found.cost_per_hour, currency), kilowatts_text(found.typical_w)
    gpus = f"{counted_text(found.devices, 'GPU')} {found.hardware}"
    return f"{gpus} ({found.label}) = {' + '.join(parts)}: {hourly}/h, {power} kW"


def _objective(item: MeasuredObjective) -> str:
    if item.measured_s is None:
        return f"{item.name}: not said what was measured ({flag_of('measured_at')}), taken to hold"
    verdict = "within" if item.holds else "measure at a lower rate: above"
    return f"{item.name}: {seconds_text(item.measured_s)} {KNOWN}, {verdict} {seconds_text(item.bound_s)}"


def measured_blocks(plan: CapacityPlan) -> tuple[Block, ...]:
    """Both fleets and what became of the objectives; nothing where no rate was measured."""
    found, best = plan.study(MeasuredRate), plan.best
    if found is None:
        return ()
    heads = columns("known as", "setup", "GPUs", "cost/h", "per 1M requests", "kW", words=("known as", "setup"))
    rows = [
        (
            KNOWN,
            found.label,
            count(found.devices),
            price(found.cost_per_hour),
            price(found.cost_per_million_requests),
            kilowatts(found.typical_w),
        ),
        (
            best.provenance,
            best.label,
            count(best.devices),
            price(best.cost.per_hour),
            price(best.cost.per_million_requests),
            kilowatts(best.typical_w),
        ),
    ]
    said = [
        f"{found.rate_per_gpu_per_s:g} requests/s a GPU where prediction plans for {found.predicted_per_gpu_per_s:.3g} "
        f"({found.label})",
        *map(_objective, found.objectives),
    ]
    if found.gpus_over:
        said.append(f"{counted_text(found.gpus_over, 'GPU')} more than {flag_of('max_gpus')} allows")
    said.append("everything else said of this plan is about the predicted fleet")
    return (table("measured_rate", "", heads, rows), Bullets(items=tuple(said)))
