"""Sections 2 and 3: what is asked for, and the model and software that answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from simulator.phases.memory import cached_layers
from simulator.planner.serving.capacity import Replica
from simulator.planner.studies.rental import RentalMix
from simulator.reports.charts.latency_breakdown import memory_stack_chart
from simulator.reports.content import document as doc
from simulator.reports.content import quantities as say
from simulator.reports.studies import Studies
from simulator.reports.words.fields import note_text
from simulator.reports.words.plan_inputs import PlanInput, plan_input
from simulator.specs.base import Assumption, ValueOrigin
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
    ValueOrigin.DEFAULT: doc.Origin.DEFAULT,
    ValueOrigin.TRACE: doc.Origin.MEASURED,
    ValueOrigin.MEASURED: doc.Origin.MEASURED,
}

_OF_REPLICA = ("engine.", "precision.", "replica")
"""Assumptions of a replica begin with these."""


def _assumption(item: PlanInput) -> doc.Row:
    return doc.row(item.name, item.value, doc.text(item.remark, origin=_BADGES.get(item.origin, doc.Origin.GIVEN)))


def _lengths(name: str, lengths: LengthDistribution) -> doc.Row:
    median, high = (float(value) for value in lengths.at(np.array([0.0, DEVIATE_95])))
    tokens = (doc.number(value, digits=0) for value in (lengths.mean_tokens, median, high))
    return doc.row(name, *tokens, doc.number(lengths.cv, digits=2))


def _demand_table(studies: Studies) -> doc.Table:
    demand, profile = studies.plan.demand, studies.plan.study(RentalMix)
    rows = (
        doc.row("mean rate", doc.number(demand.requests_per_s, "requests/s")),
        *([doc.row("answers to a request", doc.count(answers))] if (answers := demand.answers_per_request) > 1 else []),
        doc.row("answered from a cache", doc.fraction(demand.cache_hit_fraction)),
        doc.row("peak over mean", doc.number(demand.peak_to_mean)),
        doc.row("headroom for growth", doc.fraction(demand.headroom_fraction)),
        doc.row(
            "planned peak on accelerators", doc.number(demand.planned_rate_per_s, say.served_unit(demand)), total=True
        ),
        doc.row("prompt tokens in the prefix cache", doc.fraction(demand.mix.prefix_hit_fraction)),
        doc.row("burstiness of arrivals (cv)", doc.number(demand.mix.arrival_cv)),
    )
    note = f"Over the {profile.period}, for the mix of rentals: {note_text(profile.profile_source)}." if profile else ""
    return doc.table("demand", "Demand", "Quantity: | Value", rows, note=note)


def workload_content(studies: Studies) -> tuple[doc.Block, ...]:
    """Demand, lengths, objectives, and every assumption with its source."""
    plan, mix = studies.plan, studies.plan.demand.mix
    given = [item for item in plan.assumptions if not item.key.startswith(_OF_REPLICA)]
    return (
        _demand_table(studies),
        doc.table(
            "lengths",
            "Tokens of a request",
            ": | Mean | P50 | P95 | cv",
            (_lengths("prompt (ISL)", mix.isl), _lengths("answer (OSL)", mix.osl)),
            note="Log-normal with the stated mean and coefficient of variation.",
        ),
        doc.table(
            "objectives",
            "Objectives",
            "Objective: | At most",
            [(item.name, doc.seconds(item.bound_s)) for item in plan.objectives],
            note=DEFINITIONS,
        ),
        _inputs("assumptions", "Every input and where it comes from", given),
    )


def _inputs(key: str, title: str, items: Iterable[Assumption]) -> doc.Table:
    return doc.table(key, title, "Input: | Value: | Source::", map(_assumption, map(plan_input, items)))


def _model_rows(studies: Studies) -> tuple[tuple[str, doc.Cell], ...]:
    deployment, memory = studies.plan.best.replica.deployment, studies.plan.best.replica.memory
    model, engine, plan = deployment.model, deployment.engine, deployment.plan
    each = " of an attention rank" if deployment.parallelism.dp_size > 1 else ""
    formats = f"{plan.weights.value}, {plan.activations.value}, {plan.kv_dtype.value}"
    switched = ", ".join("on" if on else "off" for on in (engine.prefix_caching, engine.chunked_prefill))
    return (
        ("model", doc.text(model.name)),
        ("published as", doc.text(studies.model_id)),
        ("parameters", doc.number(studies.parameters.total / GIGA, "billion")),
        ("active per token", doc.number(studies.parameters.active / GIGA, "billion")),
        ("layers", doc.count(model.num_hidden_layers)),
        ("weights, products, KV cache", doc.text(formats)),
        ("KV cache of a token, one device", doc.number(memory.kv_bytes_per_token / KILO, "kB")),
        ("engine", doc.text(f"{engine.name} {engine.version}")),
        ("accelerators", doc.text(f"{studies.plan.best.replica.devices}: {studies.plan.best.pools[-1].label}")),
        (f"sequences at once{each}, at most", doc.count(engine.max_num_seqs)),
        (f"tokens of a step{each}, at most", doc.count(engine.max_num_batched_tokens)),
        ("longest request", doc.count(engine.max_model_len, "tokens")),
        ("memory for the engine", doc.fraction(engine.gpu_memory_utilization)),
        ("prefix caching, chunked prefill", doc.text(switched)),
    )


def _cache_text(replica: Replica) -> str:
    """What a token keeps on a device, layer by layer, and how many tokens that leaves room for."""
    memory, parallelism = replica.memory, replica.deployment.parallelism
    alike: Counter[tuple[float, float | None]] = Counter()
    for group in cached_layers(replica.deployment):
        alike[group.bytes_per_token, group.window] += group.layers
    layers = [
        f"{count} layers x {each_bytes:,.0f} bytes{f' (of the last {window:,.0f} tokens)' if window else ''}"
        for (each_bytes, window), count in alike.items()
    ]
    layers += (
        [f"{memory.draft_kv_bytes_per_token:,.0f} bytes of the drafter"] if memory.draft_kv_bytes_per_token else []
    )
    if not layers:
        return "Nothing is cached."
    split = f", divided by {parallelism.cp_size} devices that share the tokens," if parallelism.cp_size > 1 else ""
    each = f" in each of {parallelism.dp_size} attention ranks" if parallelism.dp_size > 1 else ""
    return (
        f"KV cache of a token on one device: {' + '.join(layers)}{split} = {memory.kv_bytes_per_token:,.0f} bytes; "
        f"{memory.kv_capacity_bytes / GIGA:,.1f} GB hold {memory.kv_capacity_tokens:,} tokens{each}, in "
        f"{memory.kv_blocks:,} blocks. A layer keeps the keys and values of the device's KV heads, or its latent."
    )


def software_content(studies: Studies) -> tuple[doc.Block, ...]:
    """The model, its formats, the engine and its limits, and how memory divides."""
    fleet = studies.plan.best
    label = f"{fleet.pools[-1].hardware} {fleet.pools[-1].label}"
    role = f" {fleet.pools[-1].role}".rstrip()
    ranks = fleet.replica.deployment.parallelism.dp_size
    of_replica = [item for item in studies.plan.assumptions if item.key.startswith(_OF_REPLICA)]
    return (
        doc.table("software", f"One{role} replica", "Property: | Value", _model_rows(studies)),
        doc.Paragraph(text=_cache_text(fleet.replica), tone=doc.Tone.NOTE),
        _inputs("engine_inputs", "Formats and limits, and where they come from", of_replica),
        doc.Figure(chart=memory_stack_chart([(label, fleet.replica.memory)], ranks=ranks)),
    )
