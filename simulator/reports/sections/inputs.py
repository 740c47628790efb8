"""Sections 2 and 3: what is asked for, and the model and software that answer."""

from __future__ import annotations

import numpy as np

from simulator.planner.studies.rental import RentalMix
from simulator.reports.charts.memory_stack import memory_stack_chart
from simulator.reports.content.document import (
    Cell,
    Figure,
    Origin,
    Paragraph,
    Row,
    Section,
    Table,
    Tone,
    columns,
    count,
    fraction,
    number,
    row,
    seconds,
    table,
    text,
)
from simulator.reports.studies import Studies
from simulator.reports.words.plan_inputs import PlanInput, plan_input
from simulator.specs.base import ValueOrigin
from simulator.traffic.lengths import LengthDistribution
from simulator.units import GIGA, KILO

# Normal deviate that leaves 5 % above.
DEVIATE_95 = 1.6449
DEFINITIONS = (
    "TTFT: first token minus arrival, queueing included. TPOT: (E2E - TTFT) / (output tokens - 1), one value a "
    "request. "
    "E2E: last token minus arrival. Output tokens count the first one."
)


_BADGES = {
    ValueOrigin.DEFAULT: Origin.DEFAULT,
    ValueOrigin.TRACE: Origin.MEASURED,
    ValueOrigin.MEASURED: Origin.MEASURED,
}

_OF_REPLICA = ("engine.", "precision.", "replica")
"""Assumptions of a replica begin with these."""


def _assumption(item: PlanInput) -> Row:
    return row(item.name, item.value, text(item.remark, origin=_BADGES.get(item.origin, Origin.GIVEN)))


def _lengths(name: str, lengths: LengthDistribution) -> Row:
    median, high = (float(value) for value in lengths.at(np.array([0.0, DEVIATE_95])))
    tokens = (number(value, digits=0) for value in (lengths.mean_tokens, median, high))
    return row(name, *tokens, number(lengths.cv, digits=2))


def _demand_table(studies: Studies) -> Table:
    demand, profile = studies.plan.demand, studies.plan.study(RentalMix)
    rows = (
        row("mean rate", number(demand.mean_rate_per_s, "requests/s")),
        row("answered from a cache", fraction(demand.cache_hit_fraction)),
        row("peak over mean", number(demand.peak_to_mean)),
        row("headroom for growth", fraction(demand.headroom_fraction)),
        row("planned peak on accelerators", number(demand.planned_rate_per_s, "requests/s"), total=True),
        row("prompt tokens in the prefix cache", fraction(demand.mix.prefix_hit_fraction)),
        row("burstiness of arrivals (cv)", number(demand.mix.arrival_cv)),
    )
    note = f"Over the {profile.period}, for the mix of rentals: {profile.profile_source}." if profile else ""
    return table("demand", "Demand", columns("Quantity", "Value", words=("Quantity",)), rows, note=note)


def workload_section(studies: Studies) -> Section:
    """Demand, lengths, objectives, and every assumption with its source."""
    plan = studies.plan
    mix = plan.demand.mix
    blocks = (
        _demand_table(studies),
        table(
            "lengths",
            "Tokens of a request",
            columns("", "Mean", "P50", "P95", "cv", words=("",)),
            (_lengths("prompt (ISL)", mix.isl), _lengths("answer (OSL)", mix.osl)),
            note="Log-normal with the stated mean and coefficient of variation.",
        ),
        table(
            "objectives",
            "Objectives",
            columns("Objective", "At most", words=("Objective",)),
            [(item.name, seconds(item.bound_s)) for item in plan.objectives],
            note=DEFINITIONS,
        ),
        table(
            "assumptions",
            "Every input and where it comes from",
            columns("Input", "Value", "Source", words=("Input", "Value"), wide="Source"),
            (_assumption(plan_input(item)) for item in plan.assumptions if not item.key.startswith(_OF_REPLICA)),
        ),
    )
    return Section(key="workload", title="Workload and objectives", blocks=blocks)


def _model_rows(studies: Studies) -> tuple[tuple[str, Cell], ...]:
    deployment, memory = studies.plan.best.replica.deployment, studies.plan.best.replica.memory
    model, engine, plan = deployment.model, deployment.engine, deployment.plan
    parallelism = deployment.parallelism
    return (
        ("model", text(model.name)),
        ("weights served", text(studies.model_id)),
        ("parameters", number(studies.parameters.total / GIGA, "billion")),
        ("active per token", number(studies.parameters.active / GIGA, "billion")),
        ("layers", count(model.num_hidden_layers)),
        ("weights, products, KV cache", text(f"{plan.weights.value}, {plan.activations.value}, {plan.kv_dtype.value}")),
        ("KV cache of a token, one device", number(memory.kv_bytes_per_token / KILO, "kB")),
        ("engine", text(f"{engine.name} {engine.version}")),
        ("tensor x pipeline parallel", text(f"{parallelism.tp_size} x {parallelism.pp_size}")),
        ("sequences at once, at most", count(engine.max_num_seqs)),
        ("tokens of a step, at most", count(engine.max_num_batched_tokens)),
        ("longest request", count(engine.max_model_len, "tokens")),
        ("memory for the engine", fraction(engine.gpu_memory_utilization)),
        ("prefix caching, chunked prefill", text(f"{_word(engine.prefix_caching)}, {_word(engine.chunked_prefill)}")),
    )


def _word(is_on: bool) -> str:
    return "on" if is_on else "off"


def software_section(studies: Studies) -> Section:
    """The model, its formats, the engine and its limits, and how memory divides."""
    fleet = studies.plan.best
    memory = fleet.replica.memory
    heads = columns("Property", "Value", words=("Property",))
    formula = (
        f"KV bytes of a token and device = sum over layers of 2 x KV heads of the device x head size x bytes of an "
        f"element = {memory.kv_bytes_per_token:,.0f} bytes (latent attention stores its latent instead); "
        f"{memory.kv_capacity_bytes / GIGA:,.1f} GB hold {memory.kv_capacity_tokens:,} tokens in "
        f"{memory.kv_blocks:,} blocks."
    )
    label = f"{fleet.hardware} {fleet.label}"
    blocks = (
        table("software", "One replica", heads, _model_rows(studies)),
        Paragraph(text=formula, tone=Tone.NOTE),
        table(
            "engine_inputs",
            "Formats and limits, and where they come from",
            columns("Input", "Value", "Source", words=("Input", "Value"), wide="Source"),
            (_assumption(plan_input(item)) for item in studies.plan.assumptions if item.key.startswith(_OF_REPLICA)),
        ),
        Figure(chart=memory_stack_chart([(label, memory)])),
    )
    return Section(key="software", title="Model and software", blocks=blocks)
