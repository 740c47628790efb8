"""Topics of number formats, quantisation and pruning: ranges, rates, bits, speed, preparation, published quality."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from simulator.errors import RoofcastError
from simulator.explain.topic import Example, bars, facts, lines
from simulator.operators.formats.schemes import SCALE_BITS, scheme_named
from simulator.operators.formats.sparse_formats import bitmap_bits, pattern_bits
from simulator.operators.work import GemmShape
from simulator.phases.crossover import decode_seconds, format_crossover
from simulator.phases.deployment import Deployment
from simulator.phases.memory import memory_plan
from simulator.published.facts import largest_value, load_facts
from simulator.reports.content.document import Block, Bullets, Table, Value, number, seconds, table
from simulator.specs.model.checkpoints import DENSE, QualityRow, load_quality_table
from simulator.specs.model.precision import BITS, Dtype
from simulator.specs.question.techniques import SparsitySpec, TechniquesSpec
from simulator.units import GIGA, MILLI, TERA

ACTIVATION_SCHEMES = ("w8a8", "llm.int8", "smoothquant-o1", "smoothquant-o2", "smoothquant-o3", "fp8", "nvfp4")
WEIGHT_SCHEMES = ("rtn-g128", "gptq-g128", "gptq-3bit", "awq-g128", "nf4", "aqlm-1x16", "aqlm-2x8",
                  "kmeans-4bit", "kmeans-3bit", "q4-k-m", "bitnet")  # fmt: skip
GRANULARITIES = ("per tensor", "per channel", "groups of 1024", "groups of 128", "groups of 64", "groups of 32")
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def _formats(example: Example) -> tuple[Block, ...]:
    layouts = load_facts().floats
    ranges: list[tuple[Value, ...]] = [
        (name, largest_value(layout), layout.smallest, layout.step, "relative to the value")
        for name, layout in layouts.items()
    ]
    for bits in (BITS[Dtype.INT8], BITS[Dtype.INT4]):
        steps = (1 << (bits - 1)) - 1
        ranges.append((f"int{bits}", number(steps, digits=0), 1, 1 / steps, "of the largest value, times a scale"))
    peaks = example.hardware.peak_flops_per_s
    base = peaks.get(Dtype.FP32, max(peaks.values()))
    rates = [
        (dtype.value, number(BITS[dtype], digits=0), peak / TERA, peak / base, BITS[Dtype.FP32] / BITS[dtype])
        for dtype, peak in peaks.items()
    ]
    limits = "format: | largest | smallest normal | step at 1 | step is:"
    heads = "format: | bits | TFLOP/s | rate over fp32 | values a byte over fp32"
    return (
        table("ranges", "What a number can say", limits, ranges),
        table("rates", f"Matrix units of {example.hardware.name}, dense", heads, rates),
        bars("rates", "Rate of matrix units", y="log Rate [TFLOP/s]", names=[dtype.value for dtype in peaks],
             of={"dense": [peak / TERA for peak in peaks.values()]}),
    )  # fmt: skip


def known_schemes(example: Example, schemes: Iterable[str]) -> tuple[dict[str, Deployment], Bullets]:
    """16 bits first, then those of the schemes that the accelerator multiplies; and why not the others."""
    found: dict[str, Deployment] = {}
    refused = []
    for scheme in (example.half.value, *schemes):
        try:
            found[scheme] = example.deployed(scheme=scheme)
        except RoofcastError as error:
            refused.append(f"not here: {scheme}: {error.message}")
    return found, Bullets(items=tuple(refused))


def quality_table(chosen: Callable[[QualityRow], bool], *, model: str) -> Table:
    """Published quality beside the dense model: of ``model`` where there is any, or else of one other a method."""
    every = load_quality_table()
    rows = [row for row in every.rows if row.method != DENSE and chosen(row)]
    own = [row for row in rows if row.model == model]
    cells = [
        (
            row.model,
            row.metric.replace("_", " "),
            _compression(row),
            every.dense(row).value,
            row.value,
            f"[{row.source}{', recalled' if row.recalled else ''}]",
        )
        for row in own or {(row.source, row.metric, _compression(row)): row for row in rows}.values()
    ]
    note = "" if own else f"nothing is published of {model} here: rows of others are evidence, not an estimate"
    return table(
        "quality", "Published quality", "model: | metric: | method: | dense | compressed | source:", cells, note=note
    )


def _compression(row: QualityRow) -> str:
    bits = f" {row.weight_bits} bit" if row.weight_bits else ""
    group = f" g{row.group_size}" if row.group_size else ""
    said = f" ({row.note})" if row.note else ""
    return f"{row.method}{bits}{group} {row.sparsity or ''}".rstrip() + said


def _speed_rows(example: Example, found: dict[str, Deployment]) -> list[tuple[Value, ...]]:
    """Bits, weights, prompt and decode step of each scheme, and the batch up to which it beats the first."""
    first, context = next(iter(found.values())), float(example.context_tokens)
    rows: list[tuple[Value, ...]] = []
    for scheme, replica in found.items():
        product = scheme_named(scheme, plain=Dtype.BF16, model=example.model).format
        prompt, step = example.prefill(replica), example.decode(replica)
        wins = "-" if replica is first else format_crossover(replica, first, context_tokens=context)
        rows.append(
            (
                scheme,
                product.weight_bits,
                memory_plan(replica).weights_bytes / GIGA,
                seconds(float(prompt.step_s[0])),
                seconds(float(step.step_s[0]), origin=example.known(step)),
                float(example.decode(first).step_s[0] / step.step_s[0]),
                "every batch" if wins is None else wins if isinstance(wins, str) else number(wins, digits=0),
            )
        )
    return rows


SPEED_HEADS = "scheme: | bits a weight | GB of weights | prompt | TPOT: | decodes faster by | slower from batch"


def _by_batch(example: Example, found: dict[str, Deployment], *, key: str) -> Block:
    batches = np.array(BATCHES, dtype=float)
    times = {
        scheme: (decode_seconds(replica, batches, context_tokens=float(example.context_tokens)) / MILLI).tolist()
        for scheme, replica in found.items()
    }
    return lines(key, "Decode step by format", x="log Batch", y="log TPOT [ms]", at=BATCHES, of=times)


def _speeds(example: Example, found: dict[str, Deployment]) -> Block:
    title = f"A prompt of {example.context_tokens} tokens, a decode step of {example.batch_size}"
    return table("speed", title, SPEED_HEADS, _speed_rows(example, found))


def _activations(example: Example) -> tuple[Block, ...]:
    found, refused = known_schemes(example, ACTIVATION_SCHEMES)
    return (
        _speeds(example, found),
        refused,
        quality_table(lambda row: row.activation_bits is not None, model=example.model.name),
        _by_batch(example, found, key="activations"),
    )


def _weights(example: Example) -> tuple[Block, ...]:
    found, refused = known_schemes(example, WEIGHT_SCHEMES)
    return (
        _speeds(example, found),
        refused,
        quality_table(lambda row: row.activation_bits is None and row.sparsity is None, model=example.model.name),
        _by_batch(example, {name: found[name] for name in list(found)[:3]}, key="weights"),
    )


def _products(example: Example) -> list[tuple[float, float, float]]:
    """(count, n, k) of the model's linear layers."""
    rows = example.prefill(example.deployed()).rows
    shapes = [(row.work.count, row.work.shape) for row in rows if row.work.role in example.plan.quantised_roles]
    return [(count, shape.n, shape.k) for count, shape in shapes if isinstance(shape, GemmShape)]


def _granularity(example: Example) -> tuple[Block, ...]:
    """Scales of 16 bits per tensor, row or group."""
    products = _products(example)
    weights = sum(count * n * k for count, n, k in products)
    scales = {
        "per tensor": sum(count for count, _, _ in products),
        "per channel": sum(count * n for count, n, _ in products),
        **{name: weights / int(name.rsplit(maxsplit=1)[-1]) for name in GRANULARITIES[2:]},
    }
    rows, shares = [], []
    for name in GRANULARITIES:
        extra = scales[name] * SCALE_BITS / weights
        shares.append(extra)
        rows.append(
            (name, number(scales[name], digits=0), extra, BITS[Dtype.INT4] + extra, BITS[Dtype.INT4] + 2 * extra)
        )
    heads = "granularity: | scales | bits a weight of scales | int4 with scales | and zero points of 16 bits"
    added = {"scales": shares}
    return (
        table("granularity", "Scales of the linear layers", heads, rows),
        bars("granularity", "Bits a weight that scales add", y="Scales [bit]", names=GRANULARITIES, of=added),
    )


def _preparation(example: Example) -> tuple[Block, ...]:
    """Operations over all linear layers by the order that each method's authors state."""
    products = _products(example)
    orders = {
        "round": sum(count * n * k for count, n, k in products),
        "d^2": sum(count * n * k for count, n, k in products),
        "d^3": sum(count * (k**3 / 3 + n * k * k) for count, n, k in products),
        "d^4": sum(count * n * k**3 / 3 for count, n, k in products),
    }
    peak = example.hardware.peak_flops_per_s.get(Dtype.TF32, example.half_peak_flops_per_s)
    rows = []
    for row in load_quality_table().preparation:
        order = next((flops for name, flops in orders.items() if name in row.cost), None)
        counted = (None, seconds(None)) if order is None else (order / TERA, seconds(order / peak))
        rows.append((row.method, row.kind, row.cost, row.data, *counted, f"[{row.source}]" if row.source else "-"))
    heads = "method: | kind: | cost: | data: | 10^12 operations | at the least | source:"
    named = {
        "Wanda, RTN: d^2": orders["d^2"] / TERA,
        "GPTQ, SparseGPT: d^3": orders["d^3"] / TERA,
        "OBS: d^4": orders["d^4"] / TERA,
    }
    return (
        table("preparation", f"Preparing {example.model.name}", heads, rows,
                   note=f"at the least: at {peak / TERA:,.0f} TFLOP/s; the calibration set's own passes come on top"),
        bars("preparation", "Operations by order", y="log Operations [10^12]", names=list(named),
             of={"operations": list(named.values())}),
    )  # fmt: skip


PATTERNS: dict[str, SparsitySpec | None] = {
    "dense": None,
    "unstructured 50 %": SparsitySpec(pattern="unstructured", fraction=1 / 2),
    "unstructured 50 %, compressed": SparsitySpec(pattern="unstructured", fraction=1 / 2, compressed=True),
    "4:8": SparsitySpec(pattern="4:8"),
    "2:4": SparsitySpec(pattern="2:4"),
    "channels 50 %": SparsitySpec(pattern="structured", fraction=1 / 2, target="channels"),
    "layers 50 %": SparsitySpec(pattern="structured", fraction=1 / 2, target="layers"),
}


def _pruning(example: Example) -> tuple[Block, ...]:
    rows, names, prompts, steps = [], [], [], []
    refused: list[str] = []
    for name, spec in PATTERNS.items():
        try:
            replica = example.deployed(techniques=TechniquesSpec(sparsity=spec) if spec else None)
            prompt, step = example.prefill(replica), example.decode(replica)
        except RoofcastError as error:
            refused.append(f"no gain: {name}: {error.message}")
            continue
        names.append(name)
        prompts.append(float(prompt.step_s[0]))
        steps.append(float(step.step_s[0]))
        rows.append((name, memory_plan(replica).weights_bytes / GIGA, seconds(prompts[-1]), prompts[0] / prompts[-1],
                     seconds(steps[-1], origin=example.known(step)), steps[0] / steps[-1]))  # fmt: skip
    title = f"A prompt of {example.context_tokens} tokens, a decode step of {example.batch_size}"
    heads = "pattern: | GB of weights | prompt | speedup | TPOT: | speedup"
    return (
        facts(
            ("bits_2_4", "bits a weight of 2:4 in 16 bits", pattern_bits(BITS[Dtype.BF16], kept=2, of=4)),
            ("bits_2_4_int8", "of 2:4 in 8 bits", pattern_bits(BITS[Dtype.INT8], kept=2, of=4)),
            ("bits_bitmap", "of half the weights with a bitmap", bitmap_bits(BITS[Dtype.BF16], kept_fraction=1 / 2)),
        ),
        table("pruning", title, heads, rows),
        Bullets(items=tuple(refused)),
        quality_table(lambda row: row.sparsity is not None, model=example.model.name),
        bars("pruning", "Speedup over dense", y="Speedup", names=names,
             of={"prompt": [prompts[0] / value for value in prompts], "decode": [steps[0] / value for value in steps]}),
    )  # fmt: skip
