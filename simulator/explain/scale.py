"""Topics of many devices and of changing a model: parallelism, pools, cached answers, adapters, students, training."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np

from simulator.engine.pools import shown_transfer_s
from simulator.errors import RoofcastError
from simulator.explain.topic import Example, bars, columns_table, facts, lines, times, whole
from simulator.operators.model_counts import parameter_counts
from simulator.operators.parallelism import kv_bytes_per_sequence
from simulator.operators.work import CollectiveShape, Family, prefill_step
from simulator.phases.late_interaction import INTERACTIONS, retrieval_cost
from simulator.phases.memory import memory_plan
from simulator.phases.step import StepEstimate, estimate_step
from simulator.published.worked_examples import CHINCHILLA_TOKENS_PER_PARAMETER, training_flops
from simulator.reports.content.document import Block, Value, fraction, number, seconds, table
from simulator.specs.model.checkpoints import DENSE, load_quality_table
from simulator.specs.model.loading import load_model
from simulator.specs.question.techniques import AdaptersSpec, FineTuneMethod, StructureSpec, TechniquesSpec
from simulator.techniques.adapters import distinct_adapters
from simulator.techniques.fine_tuning import fine_tuning_memory
from simulator.units import GIGA, MEGA, MILLI, PETA, SECONDS_PER_DAY, SECONDS_PER_HOUR

DEGREES = (1, 2, 4, 8)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
RANK = 16
"""Of the QLoRA and LoRA papers' usual range 4 to 64 [Hu2021] [Dettmers2023]."""
PROMPT_TOKENS = 20
"""Of prompt tuning's default in [Lester2021]."""
ADAPTERS = 100
TRAINING_MFU = 0.4
"""Of large runs, 38 to 43 % on A100 [Touvron2023]; from memory, verify."""
DOCUMENTS, CANDIDATES, DOCUMENT_TOKENS = 100_000.0, 1000, 128
ANSWER_TOKENS = (64, 256, 1024, 4096)
NETWORK_GBIT_PER_S = (100, 400)
"""Of the cards of a server for each of its accelerators."""


def _collective_bytes(estimate: StepEstimate) -> float:
    """Message bytes of all collectives of a step on one device."""
    rows = [(row.work.count, row.work.shape) for row in estimate.rows]
    return sum(count * float(shape.message_bytes[0]) for count, shape in rows if isinstance(shape, CollectiveShape))


def _parallelism(example: Example) -> tuple[Block, ...]:
    rows, spent, waited, names = [], [], [], []
    for tp_size in DEGREES:
        try:
            replica = example.deployed(tp_size=tp_size)
        except RoofcastError:
            continue  # the heads do not divide so
        for phase, step in example.phases(replica):
            total_s = float(step.step_s[0])
            links_s = float(sum(row.seconds[0] for row in step.rows if row.work.family is Family.COLLECTIVE))
            rows.append((f"TP {tp_size}", phase, seconds(total_s, origin=example.known(step)),
                         _collective_bytes(step) / MEGA, fraction(links_s / total_s),
                         memory_plan(replica).weights_bytes / GIGA))  # fmt: skip
            names.append(f"TP {tp_size} {phase}")
            spent.append((total_s - links_s) / MILLI)
            waited.append(links_s / MILLI)
    heads = "degree: | phase: | step: | MB of messages | share of collectives | GB of weights a device"
    return (
        table("parallelism", f"Tensor parallelism over {example.hardware.scale_up.kind}", heads, rows),
        bars("parallelism", "Step by degree", y="Time [ms]", names=names, of={"compute": spent, "collectives": waited}),
    )


def _disaggregation(example: Example) -> tuple[Block, ...]:
    """One pool for prompts and answers beside two, and the caches that the two exchange."""
    replica, batch, length = example.deployed(), example.batch_size, example.context_tokens
    prompt, step = example.prefill(replica), example.decode(replica)
    prompt_s, step_s = float(prompt.step_s[0]), float(step.step_s[0])
    answers = np.array(ANSWER_TOKENS, dtype=float)
    together, ratio = step_s + batch * prompt_s / answers, batch * prompt_s / (answers * step_s)
    rows = [
        (number(tokens, digits=0), seconds(together[place]), seconds(step_s, origin=example.known(step)), ratio[place])
        for place, tokens in enumerate(ANSWER_TOKENS)
    ]
    held = kv_bytes_per_sequence(example.model, plan=replica.plan, tp_size=1, context_tokens=length)[0]
    domain = example.hardware.scale_up
    links = {domain.kind: domain.bytes_per_s_per_direction}
    links |= {f"{speed} Gb/s network": speed * GIGA / 8 for speed in NETWORK_GBIT_PER_S}
    sent = []
    for name, bytes_per_s in links.items():
        whole_s, layers = held / bytes_per_s, example.model.num_hidden_layers
        shown_s = shown_transfer_s(whole_s, prompt_s=prompt_s, layers=layers)
        sent.append((name, seconds(whole_s), seconds(shown_s), fraction(min(1.0, whole_s / prompt_s))))
    return (
        table("pools", f"Prompts of {length} tokens, {batch} answers at a time",
                   "answer's tokens | TPOT in one pool | TPOT in a pool of its own | prefill replicas a decode replica",
                   rows, note=f"prompt's pass {prompt_s / MILLI:.3g} ms ({example.known(prompt).value})"),
        table("transfer", f"Its cache of {held / MEGA:.3g} MB on the way",
                   "link: | after the prompt | layer by layer | link busy while prompts follow each other", sent),
        lines("pools", "Prefill replicas a decode replica", x="log Tokens of an answer", y="log Ratio",
              at=list(ANSWER_TOKENS), of={"ratio": ratio.tolist()}),
    )  # fmt: skip


def _prefixes(example: Example) -> tuple[Block, ...]:
    """One prompt whose first part is cached, or whose answer is."""
    replica, length = example.deployed(), example.context_tokens
    shares = np.arange(0, 10) / 10
    new = np.maximum(1.0, np.round((1 - shares) * length))
    step_s = estimate_step(replica, prefill_step(sequences=1, tokens=new, context=length - new)).step_s
    rows = [
        (fraction(share), seconds(float(step_s[place])), float(step_s[0] / step_s[place]), 1 / (1 - share))
        for place, share in enumerate(shares.tolist())
    ]
    return (
        table("prefixes", f"A prompt of {length} tokens",
                   "share cached | prompt's pass | faster by | rate for the same GPUs, if answers are cached", rows),
        lines("prefixes", "Prompt's pass over the cached share", x="Cached share", y="Time [ms]", at=shares.tolist(),
              of={"pass": (step_s / MILLI).tolist()}),
    )  # fmt: skip


def _fine_tuning(example: Example) -> tuple[Block, ...]:
    rows, names, sizes = [], [], []
    for method in get_args(FineTuneMethod):
        low_rank = method in ("lora", "qlora", "adapter")
        try:
            memory = fine_tuning_memory(
                example.model,
                method=method,
                rank=RANK if low_rank else None,
                prompt_tokens=PROMPT_TOKENS if method == "prompt_tuning" else None,
                sequences=1,
                tokens=example.context_tokens,
            )
        except RoofcastError:
            continue  # nothing that the method could train
        names.append(method)
        sizes.append(memory.total_bytes / GIGA)
        trained = memory.weights_bytes + memory.adapter_bytes
        parts = (trained, memory.gradient_bytes, memory.optimizer_bytes, memory.activation_bytes, memory.total_bytes)
        rows.append((method, memory.trained_parameters / MEGA, *(value / GIGA for value in parts)))
    heads = "method: | million trained | weights | gradients | optimizer | activations | all"
    return (
        table("tuning", f"{example.context_tokens} tokens, Adam with FP32 states [GB]", heads, rows,
                   note=f"rank {RANK}, {PROMPT_TOKENS} virtual tokens"),
        bars("tuning", "Memory to fine-tune", y="log Memory [GB]", names=names, of={"all": sizes}),
    )  # fmt: skip


def _adapters(example: Example) -> tuple[Block, ...]:
    apart = AdaptersSpec(method="lora", rank=RANK, count=ADAPTERS)
    merged = AdaptersSpec(method="lora", rank=RANK, merged=True)
    plain = example.decode(example.deployed(), batch=BATCHES).step_s
    with_them = {
        name: example.decode(example.deployed(techniques=TechniquesSpec(adapters=spec)), batch=BATCHES).step_s
        for name, spec in ((f"{ADAPTERS} adapters", apart), ("one, merged", merged))
    }
    columns = {
        "batch": whole(BATCHES),
        "adapters used": distinct_adapters(np.array(BATCHES, dtype=float), count=ADAPTERS).tolist(),
        "none": times(plain),
        **{name: times(item) for name, item in with_them.items()},
    }
    of = {name: (item / plain).tolist() for name, item in with_them.items()}
    return (
        columns_table("adapters", f"LoRA of rank {RANK}: decode step", columns),
        lines("adapters", "Step with adapters over without", x="log Batch", y="Ratio", at=BATCHES, of=of),
    )  # fmt: skip


DISTILLED_FROM, DISTILLED_METRIC = "gpt2-xl", "dolly_rouge_l"
"""Teacher and metric of the published students [Gu2023b]."""
STUDENTS = {"three quarters of the layers": 3 / 4, "half of the layers": 1 / 2, "a quarter of the layers": 1 / 4}


def _distilled(example: Example) -> list[tuple[Value, ...]]:
    """Students that one source compares with their teacher: their speed here, and what both answer."""
    table = load_quality_table()
    dense = {row.model: row for row in table.rows if row.method == DENSE and row.metric == DISTILLED_METRIC}
    teacher = dense[DISTILLED_FROM]
    taken = {}
    for name in dense:
        one = replace(example, model=load_model(name))
        taken[name] = float(one.phases(one.deployed())[-1][1].step_s[0])
    students = [row for row in table.rows if row.metric == DISTILLED_METRIC and row.model != teacher.model]
    return [
        (
            row.model,
            "tuned alone" if row.method == DENSE else row.method,
            taken[teacher.model] / taken[row.model],
            row.metric.replace("_", " "),
            teacher.value,
            row.value,
            f"[{row.source}{', recalled' if row.recalled else ''}]",
        )
        for row in students
    ]


def _students(example: Example) -> tuple[Block, ...]:
    rows: list[tuple[Value, ...]] = []
    taken: list[float] = []
    for name, share in {"teacher": 1.0, **STUDENTS}.items():
        techniques = None if share == 1 else TechniquesSpec(structure=StructureSpec(layers_fraction=share))
        replica = example.deployed(techniques=techniques)
        steps_s = [float(step.step_s[0]) for _, step in example.phases(replica)]
        taken.append(steps_s[-1] / MILLI)
        billions = parameter_counts(replica.model).total / GIGA
        rows.append((name, billions, *times(steps_s), taken[0] / taken[-1], "unknown"))
    teachers = _distilled(example)
    phases = " | ".join(("prefill", "decode")[: len(steps_s)])
    heads = f"model: | billion parameters | {phases} | last faster by | quality:"
    names, title = ["teacher", *STUDENTS], f"Published students of {DISTILLED_FROM} on {example.hardware.name}"
    compared = "model: | method: | last faster by | metric: | of the teacher | of the student | source:"
    note = "a student's speed is that of its size, however it was trained"
    return (
        table("students", "Shallower students", heads, rows),
        table("distilled", title, compared, teachers, note=note),
        bars("students", "Time of a step", y="Time [ms]", names=names, of={"last phase": taken}),
    )


def _training(example: Example) -> tuple[Block, ...]:
    counts, peak = parameter_counts(example.model), example.half_peak_flops_per_s
    tokens = CHINCHILLA_TOKENS_PER_PARAMETER * counts.active
    amounts = {"Chinchilla's optimum": tokens, "ten times as many": 10 * tokens}
    rows, hours = [], []
    for name, many in amounts.items():
        flops = training_flops(parameters=counts.active, tokens=many)
        hours.append(flops / (peak * TRAINING_MFU) / SECONDS_PER_HOUR)
        rows.append((name, many / GIGA, flops, flops / (PETA * SECONDS_PER_DAY), hours[-1]))
    return (
        facts(("active", "parameters that a token trains, billion", counts.active / GIGA),
              ("mfu", "MFU", fraction(TRAINING_MFU))),
        table("training", f"Training {example.model.name}",
                   f"data: | billion tokens | FLOP | PFLOP/s-days | {example.hardware.name} hours", rows),
        bars("training", "Device-hours of training", y="log Hours", names=list(amounts), of={"hours": hours}),
    )  # fmt: skip


def _retrieval(example: Example) -> tuple[Block, ...]:
    replica = example.deployed()
    costs = {
        name: retrieval_cost(replica, interaction=name, documents=DOCUMENTS, candidates=CANDIDATES,
                             document_tokens=DOCUMENT_TOKENS)
        for name in INTERACTIONS
    }  # fmt: skip
    rows = [
        (name.replace("_", " "), cost.index_bytes / GIGA, seconds(cost.document_s), seconds(cost.query_s),
         seconds(cost.total_query_s))
        for name, cost in costs.items()
    ]  # fmt: skip
    return (
        table("retrieval", f"{DOCUMENTS:,.0f} documents of {DOCUMENT_TOKENS} tokens, {CANDIDATES} scored",
                   "interaction: | GB of index | encoding a document | encoding a query | a query", rows),
        bars("retrieval", "Time of a query", y="log Query [ms]", names=list(costs),
             of={"query": [cost.total_query_s / MILLI for cost in costs.values()]}),
    )  # fmt: skip
