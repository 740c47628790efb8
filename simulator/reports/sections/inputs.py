"""Sections 2 and 3: what is asked for, and the model and software that answer."""

from __future__ import annotations

import numpy as np

from simulator.planner.records import Assumption
from simulator.reports.charts.memory_stack import memory_stack_chart
from simulator.reports.content.cells import count, fraction, number, seconds, text
from simulator.reports.content.document import Cell, Column, Figure, Origin, Paragraph, Row, Section, Table, Tone
from simulator.reports.studies import Studies
from simulator.traffic.lengths import LengthDistribution
from simulator.units import GIGA, KILO

# Normal deviate that leaves 5 % above.
DEVIATE_95 = 1.6449
DEFINITIONS = (
    "TTFT: first token minus arrival, queueing included. TPOT: (E2E - TTFT) / (output tokens - 1), one value a "
    "request. "
    "E2E: last token minus arrival. Output tokens count the first one."
)


def origin_of(source: str) -> Origin:
    """The badge of an assumption's source."""
    if source.startswith("default"):
        return Origin.DEFAULT
    return Origin.MEASURED if source.startswith(("trace", "busiest")) else Origin.GIVEN


def _assumption(item: Assumption) -> Row:
    origin = origin_of(item.source)
    said = item.source.removeprefix("default: ") if origin is Origin.DEFAULT else item.source
    return Row(cells=(text(item.name), text(item.value), text(said, origin=origin)))


def _lengths(name: str, lengths: LengthDistribution) -> Row:
    median, high = (float(value) for value in lengths.at(np.array([0.0, DEVIATE_95])))
    return Row(
        cells=(
            text(name),
            number(lengths.mean_tokens, digits=0),
            number(median, digits=0),
            number(high, digits=0),
            number(lengths.cv, digits=2),
        )
    )


def _demand_table(studies: Studies) -> Table:
    demand, profile = studies.plan.demand, studies.plan.rental
    rows = (
        ("mean rate", number(demand.mean_rate_per_s, "requests/s")),
        ("answered from a cache", fraction(demand.cache_hit_fraction)),
        ("peak over mean", number(demand.peak_to_mean)),
        ("headroom for growth", fraction(demand.headroom_fraction)),
        ("planned peak on accelerators", number(demand.planned_rate_per_s, "requests/s")),
        ("prompt tokens in the prefix cache", fraction(demand.mix.prefix_hit_fraction)),
        ("burstiness of arrivals (cv)", number(demand.mix.arrival_cv)),
    )
    return Table(
        key="demand",
        title="Demand",
        columns=(Column(title="Quantity"), Column(title="Value", numeric=True)),
        rows=tuple(Row(cells=(text(name), cell), total=name.startswith("planned")) for name, cell in rows),
        note=f"Over the {profile.period}, for the mix of rentals: {profile.profile_source}." if profile else "",
    )


def workload_section(studies: Studies) -> Section:
    """Demand, lengths, objectives, and every assumption with its source."""
    plan = studies.plan
    mix = plan.demand.mix
    lengths = Table(
        key="lengths",
        title="Tokens of a request",
        columns=(
            Column(title=""),
            Column(title="Mean", numeric=True),
            Column(title="P50", numeric=True),
            Column(title="P95", numeric=True),
            Column(title="cv", numeric=True),
        ),
        rows=(_lengths("prompt (ISL)", mix.isl), _lengths("answer (OSL)", mix.osl)),
        note="Log-normal with the stated mean and coefficient of variation.",
    )
    objectives = Table(
        key="objectives",
        title="Objectives",
        columns=(Column(title="Objective"), Column(title="At most", numeric=True)),
        rows=tuple(Row(cells=(text(item.name), seconds(item.bound_s))) for item in plan.objectives),
        note=DEFINITIONS,
    )
    assumptions = Table(
        key="assumptions",
        title="Every input and where it comes from",
        columns=(Column(title="Input"), Column(title="Value"), Column(title="Source", wide=True)),
        rows=tuple(_assumption(item) for item in plan.assumptions),
    )
    blocks = (_demand_table(studies), lengths, objectives, assumptions)
    return Section(number=2, key="workload", title="Workload and objectives", blocks=blocks)


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
    table = Table(
        key="software",
        title="One replica",
        columns=(Column(title="Property"), Column(title="Value", numeric=True)),
        rows=tuple(Row(cells=(text(name), cell)) for name, cell in _model_rows(studies)),
    )
    formula = (
        f"KV bytes of a token and device = sum over layers of 2 x KV heads of the device x head size x bytes of an "
        f"element = {memory.kv_bytes_per_token:,.0f} bytes (latent attention stores its latent instead); "
        f"{memory.kv_capacity_bytes / GIGA:,.1f} GB hold {memory.kv_capacity_tokens:,} tokens in "
        f"{memory.kv_blocks:,} blocks."
    )
    label = f"{fleet.hardware} {fleet.label}"
    blocks = (table, Paragraph(text=formula, tone=Tone.NOTE), Figure(chart=memory_stack_chart([(label, memory)])))
    return Section(number=3, key="software", title="Model and software", blocks=blocks)
