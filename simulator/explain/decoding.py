"""Topics of a step and of generating less: phases, batches, speculation, early exit, contextual sparsity, experts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

import numpy as np

from simulator.engine.encoders import wait_percentile_s
from simulator.engine.lanes.queueing import gg1_wait_mean_s
from simulator.engine.uniform.loop_requests import LoopLengths
from simulator.engine.uniform.loops import closed_loop, static_batch
from simulator.engine.uniform.speculation_gain import speedup_by_batch
from simulator.errors import RoofcastError
from simulator.explain.topic import Example, bars, columns_table, facts, lines, shares, times, whole
from simulator.operators.model_counts import parameter_counts
from simulator.operators.moe import distinct_experts
from simulator.phases.crossover import crossover_batch
from simulator.phases.deployment import Deployment
from simulator.phases.memory import memory_plan, sequences_that_fit
from simulator.reports.content.document import Block, Value, fraction, number, seconds, table
from simulator.specs.engine.engine import SchedulerName
from simulator.specs.model.architecture import FeedForward, MlpSpec, ModelSpec, MoeSpec
from simulator.specs.model.fitted import routing_skew, speculation_table
from simulator.specs.question.plan_values import READING_TOKENS_PER_S
from simulator.specs.question.techniques import (
    ContextualSparsitySpec,
    EarlyExitSpec,
    MoeOverride,
    SpeculationMethod,
    SpeculationSpec,
    StructureSpec,
    TechniquesSpec,
)
from simulator.techniques.contextual_sparsity import union_fraction
from simulator.techniques.early_exit import executed_fraction, staying
from simulator.techniques.speculation.acceptance import any_child_accepted, mean_tokens, rounds_needed
from simulator.units import GIGA, MILLI

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ACCEPTANCES = tuple(place / 10 for place in range(1, 10))
GUESSES = (1, 2, 4, 8)
ENCODERS, TAIL = (1, 4, 16), 95.0
HALF = 1 / 2
LONGEST_ANSWER, SHORTEST_SHARE = 512, 0.2
"""Of the batching example: answers are uniform between that share and the longest [tokens]."""
DEJA_VU = ContextualSparsitySpec(attention_fraction=HALF, mlp_fraction=1 / 5)
"""About what its authors report for OPT-175B [Liu2023]: half of the heads, a fifth of the neurons; from memory."""
EXPERTS = MoeOverride(num_experts=4, num_experts_per_tok=1)
"""One of four parts of each block a token: a quarter of its parameters [Zhang2022]."""


def _phases(example: Example) -> tuple[Block, ...]:
    replica = example.deployed()
    rows = [
        (
            phase,
            number(float(step.step.new_tokens[0]), digits=0),
            seconds(float(step.step_s[0]), origin=example.known(step)),
            float(step.model_flops[0]) / GIGA,
            float(step.read_bytes[0]) / GIGA,
            fraction(float(step.mfu[0])),
            fraction(float(step.mbu[0])),
            step.bound[0],
        )
        for phase, step in example.phases(replica)
    ]
    batch = crossover_batch(replica, context_tokens=example.context_tokens)
    steps = example.decode(replica, batch=BATCHES)
    heads = "phase: | tokens | time: | GFLOP | GB of weights and cache | MFU | MBU | bound:"
    return (
        facts(("crossover", "batch from which decoding computes", batch or "none up to 4,096")),
        table("phases", f"A prompt of {example.context_tokens} tokens, a decode step of {example.batch_size}",
                   heads, rows),
        lines("phases", "Decode step over the batch", x="log Batch", y="TPOT [ms]", at=BATCHES,
              of={"step": (steps.step_s / MILLI).tolist()}),
    )  # fmt: skip


def _offline(example: Example) -> tuple[Block, ...]:
    """All that fits at once, beside the largest batch whose readers do not wait."""
    replica, reading_s = example.deployed(), 1 / READING_TOKENS_PER_S
    room = sequences_that_fit(replica, memory_plan(replica), tokens=float(example.context_tokens))
    most = int(min(room, replica.engine.max_num_seqs))
    if most < 1:
        raise RoofcastError(
            f"{example.model.name} does not fit one {example.hardware.name}",
            field="--model",
            hint="a larger accelerator",
        )
    every = np.unique(np.geomspace(1, most, 64).astype(int))
    step_s = example.decode(replica, batch=every.astype(float)).step_s
    keeping = every[step_s <= reading_s]
    chosen = {"offline: all that fits": most, "online: as fast as people read": int(keeping[-1]) if len(keeping) else 0}
    rows = []
    for name, batch in chosen.items():
        each_s = float(example.decode(replica, batch=max(batch, 1)).step_s[0])
        rows.append((name, number(batch, digits=0), seconds(each_s), batch / each_s))
    return (
        facts(("reading", "reading speed", number(READING_TOKENS_PER_S, "tokens/s"))),
        table("offline", f"At {example.context_tokens} tokens each", "aim: | batch | TPOT | tokens/s", rows),
        lines("offline", "Throughput over the batch", x="log Batch", y="log Throughput [tokens/s]", at=every.tolist(),
              of={"tokens/s": (every / step_s).tolist()}),
    )  # fmt: skip


def _batching(example: Example) -> tuple[Block, ...]:
    """The same clients before three schedulers; answers are of varied lengths, prompts as long as the context."""
    replica, clients = example.deployed(), example.batch_size
    lengths = LoopLengths(isl_tokens=example.context_tokens, osl_tokens=LONGEST_ANSWER, range_ratio=SHORTEST_SHARE)
    whole_batch = static_batch(
        replica, batch_size=clients, isl_tokens=lengths.mean_isl_tokens, osl_tokens=LONGEST_ANSWER, limit_tokens=None
    )
    found = {"static batches": (whole_batch, clients * lengths.mean_osl_tokens / whole_batch.e2e_s)}
    schedulers: dict[str, SchedulerName] = {"whole prompts first": "prefill_first", "chunked beside": "chunked_mixed"}
    for name, scheduler in schedulers.items():
        engine = replace(replica.engine, scheduler=scheduler)
        run = closed_loop(replace(replica, engine=engine), concurrency=clients, lengths=lengths)
        found[name] = (run, run.output_tokens_per_s)
    rows: list[tuple[Value, ...]] = [
        (name, seconds(run.ttft_s), seconds(run.tpot_s), rate) for name, (run, rate) in found.items()
    ]
    title = (
        f"{clients} clients, prompts of {lengths.mean_isl_tokens} and answers of {lengths.mean_osl_tokens} on average"
    )
    rates = [rate for _, rate in found.values()]
    return (
        table("batching", title, "scheduler: | TTFT | TPOT | tokens/s", rows),
        bars("batching", "Answers by scheduler", y="Rate [tokens/s]", names=list(found), of={"tokens/s": rates}),
    )


def _queue(example: Example) -> tuple[Block, ...]:
    """Waiting before a server that answers one request at a time, over its load."""
    replica = example.deployed()
    service_s = float(example.prefill(replica).step_s[0])
    loads = np.arange(1, 10) / 10
    waits = {
        name: gg1_wait_mean_s(
            arrival_rate_per_s=loads / service_s, service_mean_s=service_s, service_cv=variation, arrival_cv=1.0
        ).tolist()
        for name, variation in (("equal prompts", 0.0), ("exponential lengths", 1.0))
    }
    served = facts(("service", f"one prompt of {example.context_tokens} tokens", seconds(service_s)))
    title = "Mean wait for a prompt's pass, Poisson arrivals"
    return (served, *_over_load("queue", title, "Mean wait over the load", loads=loads, waits=waits))


def _over_load(
    key: str, title: str, charted: str, *, loads: np.ndarray, waits: Mapping[str, Sequence[float]]
) -> tuple[Block, ...]:
    """Waits [s] over the load, by name."""
    columns: dict[str, Iterable[Value]] = {"load": shares(loads)}
    columns |= {name: times(values) for name, values in waits.items()}
    chart = lines(key, charted, x="Load", y="Wait [s]", at=loads.tolist(), of=waits)
    return columns_table(key, title, columns), chart


def _guessing(example: Example, method: SpeculationMethod) -> Deployment | None:
    """The example with a method of speculation at its usual settings; None where the model has no drafter for it."""
    try:
        return example.deployed(techniques=TechniquesSpec(speculation=SpeculationSpec(method=method)))
    except RoofcastError:
        return None


def _speculation(example: Example) -> tuple[Block, ...]:
    names: tuple[SpeculationMethod, ...] = get_args(SpeculationMethod)
    found = {name: replica for name in names if (replica := _guessing(example, name)) is not None}
    gains = {
        name: speedup_by_batch(replica, batches=BATCHES, context_tokens=float(example.context_tokens))
        for name, replica in found.items()
    }
    rows = [
        (
            name,
            gain.tokens_per_step,
            float(gain.speedup[0]),
            float(gain.speedup[-1]),
            number(int(gain.best_k[0]), digits=0),
            f"above {BATCHES[-1]}" if gain.break_even_batch is None else number(gain.break_even_batch, digits=0),
            speculation_table().methods[name].measured,
        )
        for name, gain in gains.items()
    ]
    columns = f"speedup at 1 | at {BATCHES[-1]} | best k at 1 | loses from batch"
    heads = f"method: | tokens a step | {columns} | acceptance from:"
    speedups: dict[str, list[float]] = {name: gain.speedup.tolist() for name, gain in gains.items()}
    return (
        table("methods", f"Speedup of decoding at {example.context_tokens} tokens", heads, rows),
        lines("methods", "Speedup over the batch", x="log Batch", y="Speedup", at=BATCHES, of=speedups),
    )


def _acceptance(example: Example) -> tuple[Block, ...]:
    rows = [
        (
            rate,
            *(mean_tokens(np.full(k, rate)) for k in GUESSES),
            float(any_child_accepted(np.array(rate), children=np.array(2.0))),
            rounds_needed(np.full(GUESSES[2], rate), tokens=example.context_tokens),
        )
        for rate in ACCEPTANCES
    ]
    heads = f"acceptance | {' | '.join(f'k = {k}' for k in GUESSES)} | one of two guesses | rounds of k = {GUESSES[2]}"
    note = f"rounds: of one answer of {example.context_tokens} tokens"
    of = {f"k = {k}": [mean_tokens(np.full(k, rate)) for rate in ACCEPTANCES] for k in GUESSES}
    return (
        table("acceptance", "Tokens of a verify step", heads, rows, note=note),
        lines("acceptance", "Tokens of a verify step", x="Acceptance", y="Tokens", at=ACCEPTANCES, of=of),
    )


def _early_exit(example: Example) -> tuple[Block, ...]:
    alone, regrouped = (EarlyExitSpec(mean_fraction=HALF, compacts=compacts) for compacts in (False, True))
    passing = staying(alone, layers=example.model.num_hidden_layers)
    gains = {
        "waits for its last": _gain(example, TechniquesSpec(early_exit=alone)),
        "regroups": _gain(example, TechniquesSpec(early_exit=regrouped)),
    }
    executed = shares(executed_fraction(passing, np.array(BATCHES, dtype=float)))
    columns: dict[str, Iterable[Value]] = {"batch": whole(BATCHES), "layers that run": executed, **gains}
    return (
        columns_table("exit", "Speedup where a token passes half of the layers on average", columns),
        lines("exit", "Speedup of early exit", x="log Batch", y="Speedup", at=BATCHES, of=gains),
    )


def _gain(example: Example, techniques: TechniquesSpec) -> list[float]:
    """Decode step without over that with the techniques, at each of BATCHES."""
    plain = example.decode(example.deployed(), batch=BATCHES).step_s
    return list((plain / example.decode(example.deployed(techniques=techniques), batch=BATCHES).step_s).tolist())


def _deja_vu(example: Example) -> tuple[Block, ...]:
    tokens = np.array(BATCHES, dtype=float)
    gains = {"speedup": _gain(example, TechniquesSpec(contextual_sparsity=DEJA_VU))}
    columns: dict[str, Iterable[Value]] = {
        "batch": whole(BATCHES),
        "heads read": shares(union_fraction(DEJA_VU.attention_fraction, tokens=tokens)),
        "neurons read": shares(union_fraction(DEJA_VU.mlp_fraction, tokens=tokens)),
        **gains,
    }
    return (
        columns_table("deja-vu", "Half of the heads and a fifth of the neurons a token", columns),
        lines("deja-vu", "Speedup of contextual sparsity", x="log Batch", y="Speedup", at=BATCHES, of=gains),
    )


def _moe(model: ModelSpec) -> MoeSpec | None:
    blocks = [block for layer in model.layers for block in layer.feed_forward]
    return next((block for block in blocks if isinstance(block, MoeSpec)), None)


def _dense(model: ModelSpec) -> ModelSpec:
    """As many parameters, all of which every token passes: experts become one block of all of them."""
    layers = tuple(
        layer.model_copy(update={"feed_forward": tuple(_whole(block) for block in layer.feed_forward)})
        for layer in model.layers
    )
    return model.model_copy(update={"layers": layers})


def _whole(block: FeedForward) -> FeedForward:
    if not isinstance(block, MoeSpec):
        return block
    width = block.num_experts * block.moe_intermediate_size + block.shared_expert_intermediate_size
    return MlpSpec(intermediate_size=width, gated=block.gated)


def _experts(example: Example) -> tuple[Block, ...]:
    """The model's own experts; of a dense model, what its feed-forward blocks would be as four."""
    own = _moe(example.model)
    replica = example.deployed(techniques=None if own else TechniquesSpec(structure=StructureSpec(moe=EXPERTS)))
    moe = own or _moe(replica.model)
    assert moe is not None, "made just now"
    counts = parameter_counts(replica.model)
    reached = distinct_experts(
        tokens=np.array(BATCHES, dtype=float),
        num_experts=float(moe.num_experts),
        num_experts_per_tok=float(moe.num_experts_per_tok),
        local_experts=float(moe.num_experts),
        skew=routing_skew(moe),
    )
    steps = example.decode(replica, batch=BATCHES)
    dense = example.decode(replace(example, model=_dense(example.model)).deployed(), batch=BATCHES)
    columns: dict[str, Iterable[Value]] = {
        "batch": whole(BATCHES),
        "experts read": reached.tolist(),
        "decode step": times(steps.step_s),
        "GB read": (steps.read_bytes / GIGA).tolist(),
        "faster than dense": (dense.step_s / steps.step_s).tolist(),
    }
    title = f"{moe.num_experts_per_tok} of {moe.num_experts} experts a token"
    return (
        facts(
            ("total", "parameters, billion", counts.total / GIGA),
            ("active", "active a token, billion", counts.active / GIGA),
        ),
        columns_table("experts", title if own else f"If its feed-forward blocks were split: {title}", columns),
        lines("experts", "Experts that a step reads", x="log Batch", y="Experts", at=BATCHES,
              of={"experts": reached.tolist()}),
    )  # fmt: skip


def _encoder_pool(example: Example) -> tuple[Block, ...]:
    """Waits for one of several encoders, each pass as long as one prompt of the example."""
    service_s = float(example.prefill(example.deployed()).step_s[0])
    loads = np.arange(1, 10) / 10
    waits = {
        f"{servers} of them": [
            wait_percentile_s(
                rate_per_s=load * servers / service_s, service_s=service_s, servers=servers, percentile=95
            )
            for load in loads.tolist()
        ]
        for servers in ENCODERS
    }
    served = facts(("pass", f"one pass of {example.context_tokens} tokens", seconds(service_s)))
    title = "Wait at p95 for one of several encoders, Poisson arrivals"
    return (served, *_over_load("encoders", title, "p95 wait over the load", loads=loads, waits=waits))
