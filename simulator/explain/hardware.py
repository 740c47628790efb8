"""Topics of the accelerator: rooflines, levels of memory, intensity, utilisation, energy, launches."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Literal

import numpy as np

from simulator.errors import RoofcastError
from simulator.explain.formats import known_schemes
from simulator.explain.topic import Example, bars, facts, generates, lines
from simulator.kernels.roofline import ridge_point
from simulator.kernels.sustained import cache_rate
from simulator.operators.work import Array
from simulator.phases.crossover import crossover_batch
from simulator.phases.deployment import Deployment
from simulator.phases.one_step import roofline_points
from simulator.phases.power import energy_prices, energy_split
from simulator.phases.step import StepEstimate
from simulator.published.facts import load_facts
from simulator.reports.charts.roofline import roofline_chart
from simulator.reports.content.document import Block, Figure, Origin, fraction, known_as, number, seconds, table, text
from simulator.reports.content.quantities import bytes_text
from simulator.specs.question.techniques import StructureSpec, TechniquesSpec
from simulator.units import BITS_PER_BYTE, GIGA, MILLI, PICO, format_si

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TURNING_SCHEMES = ("fp8", "w8a8", "gptq-g128", "nvfp4")
"""Formats whose turning batch is shown beside 16 bits: 8 and 4 on both sides, 4 on the weights alone."""
WIDTHS = (128, 256, 512, 1024, 2048, 4096, 8192)


def _levels(replica: Deployment) -> list[tuple[str, float | None, float, Origin]]:
    """Levels of memory from the nearest to the farthest: (name, bytes, bytes/s of the device, how it is known)."""
    hardware, on_chip = replica.hardware, load_facts().on_chip_of(replica.hardware)
    cache = cache_rate(replica.kernels)
    found: list[tuple[str, float | None, float, Origin]] = []
    if on_chip is not None:
        units = hardware.compute_units
        rate = on_chip.bytes_per_clock * units * hardware.boost_clock_hz
        found.append(("shared memory (SRAM)", on_chip.memory_bytes * units, rate, Origin.ASSUMED))
    found.append(("L2 cache", hardware.l2_bytes, cache.bytes_per_s, known_as(cache.provenance.label)))
    found.append((hardware.memory_kind.upper(), hardware.memory_bytes, hardware.memory_bytes_per_s, Origin.SOURCED))
    for link in (hardware.scale_up, hardware.host_link):
        found.append((link.kind, None, link.bytes_per_s_per_direction, Origin.SOURCED))
    return found


def _roofline(example: Example) -> tuple[Block, ...]:
    replica, hardware = example.deployed(), example.hardware
    peak = example.half_peak_flops_per_s
    rows = [
        (name, bytes_text(held) if held else "-", text(format_si(rate, "B/s"), origin=origin), peak / rate)
        for name, held, rate, origin in _levels(replica)
    ]
    ridges = [
        (f"ridge_{dtype.value}", f"ridge of {dtype.value}", number(ridge_point(hardware, dtype=dtype), "FLOP/byte"))
        for dtype in hardware.peak_flops_per_s
    ]
    note = "a kernel whose data stays in a level is bound by that level's ridge [FLOP/byte]"
    if load_facts().on_chip_of(hardware) is None:
        note += "; the memory beside the compute units has no source here"
    return (
        facts(*ridges),
        table("levels", "Levels of memory", f"level: | size: | rate: | ridge {example.half.value}", rows, note=note),
        Figure(chart=roofline_chart(example.phases(replica), deployment=replica)),
    )


def _intensity(example: Example) -> tuple[Block, ...]:
    replica = example.deployed()
    ridge = ridge_point(example.hardware, dtype=example.half)
    rows = [
        (
            phase,
            point.name,
            point.flops / GIGA,
            point.bytes / GIGA,
            point.arithmetic_intensity,
            "compute" if point.arithmetic_intensity >= ridge else "memory",
        )
        for phase, estimate in example.phases(replica)
        for point in roofline_points(phase, estimate, deployment=replica)
    ]
    heads = "phase: | operator: | GFLOP | GB | FLOP/byte | side:"
    shown = table("operators", f"Operators against a ridge of {ridge:.0f} FLOP/byte", heads, rows)
    if generates(example):
        return (shown,)
    steps = example.decode(replica, batch=BATCHES)
    intensity = (_step_sum(steps, "flops") / _step_sum(steps, "bytes")).tolist()
    title, of = "Arithmetic intensity of a decode step", {"step": intensity, "ridge": [ridge] * len(BATCHES)}
    curves = lines("intensity", title, x="log Batch", y="log Intensity [FLOP/byte]", at=BATCHES, of=of)
    return (*_turning(example), shown, curves)


def _turning(example: Example) -> tuple[Block, ...]:
    """From which batch on each format decodes bound by compute."""
    found, refused = known_schemes(example, TURNING_SCHEMES)
    turns = {name: crossover_batch(item, context_tokens=example.context_tokens) for name, item in found.items()}
    rows = [(name, "beyond 4,096" if batch is None else number(batch, digits=0)) for name, batch in turns.items()]
    title = f"Batch from which the weight products of decoding are bound by compute on {example.hardware.name}"
    return (table("crossover", title, "format: | sequences", rows), refused)


def _step_sum(estimate: StepEstimate, what: Literal["flops", "bytes"]) -> Array:
    total = np.zeros_like(estimate.host_s)
    for row in estimate.rows:
        total = total + row.work.count * row.work.executed * getattr(row.work, what)
    return total


def _utilisation(example: Example) -> tuple[Block, ...]:
    replica = example.deployed()
    steps, one = example.decode(replica, batch=BATCHES), example.decode(replica)
    read, flops = float(one.read_bytes[0]), float(one.model_flops[0])
    times = {"predicted": seconds(float(one.step_s[0]), origin=example.known(one))}
    times |= {"measured by you": seconds(example.tpot_s)} if example.tpot_s else {}
    rows = [
        (
            name,
            step_s,
            read / GIGA,
            fraction(read / step_s.value / example.hardware.memory_bytes_per_s),
            fraction(flops / step_s.value / one.peak_flops_per_s),
        )
        for name, step_s in times.items()
        if isinstance(step_s.value, float)
    ]
    title = f"A decode step of {example.batch_size} at {example.context_tokens} tokens"
    shares = {"MBU": steps.mbu.tolist(), "MFU": steps.mfu.tolist()}
    return (
        table("utilisation", title, "time: | TPOT: | GB read | MBU | MFU", rows),
        lines(
            "utilisation", "Utilisation of a decode step", x="log Batch", y="Share of the peak", at=BATCHES, of=shares
        ),
    )


ENERGY_PARTS = {"memory": "memory_j", "arithmetic": "compute_j", "being busy": "busy_j", "idle": "idle_j"}


def _energy(example: Example) -> tuple[Block, ...]:
    replica, prices = example.deployed(), energy_prices(example.hardware)
    operations = [
        (item.name, item.kind, item.picojoules, item.picojoules * BITS_PER_BYTE / item.bits)
        for item in load_facts().operations
    ]
    here = [
        *((dtype.value, number(value / PICO, "pJ/FLOP")) for dtype, value in prices.flop_j.items()),
        (example.hardware.memory_kind.upper(), number(prices.byte_j / PICO, "pJ/byte")),
    ]
    splits = {
        phase: (energy_split(replica, estimate=item, weights=np.ones(1)), float(np.sum(item.step.new_tokens)))
        for phase, item in example.phases(replica)
    }
    parts = {
        name: [getattr(split, field) / tokens / MILLI for split, tokens in splits.values()]
        for name, field in ENERGY_PARTS.items()
    }
    rows = [
        (phase, split.total_j / tokens / MILLI, *(values[place] for values in parts.values()))
        for place, (phase, (split, tokens)) in enumerate(splits.items())
    ]
    note = load_facts().sources["operations"].source
    return (
        table("operations", "One operation in 45 nm", "operation: | kind: | pJ | pJ/byte", operations, note=note),
        table("prices", f"One operation on {example.hardware.name}, above idle", "operation: | energy", here),
        table("tokens", "Millijoules of a token", f"phase: | all | {' | '.join(parts)}", rows),
        bars("energy", "Where a token's energy goes", y="Energy of a token [mJ]", names=list(splits), of=parts),
    )


def _fusion(example: Example) -> tuple[Block, ...]:
    found = {}
    for name, fused in (("fused", None), ("unfused", False)):
        replica = example.deployed(techniques=TechniquesSpec(fusion=fused))
        found[name] = example.phases(replica)[-1][1]
    rows = [
        (name, float(_step_sum(item, "bytes")[0]) / GIGA, seconds(float(item.step_s[0]), origin=example.known(item)))
        for name, item in found.items()
    ]
    families = list(found["unfused"].breakdown_s)
    of = {
        name: [float(item.breakdown_s[part][0]) / MILLI if part in item.breakdown_s else 0.0 for part in families]
        for name, item in found.items()
    }
    return (
        table("fusion", "One step", "kernels: | GB moved | time:", rows),
        bars("fusion", "Time of a step by family", y="Time [ms]", names=families, of=of),
    )


def _width(example: Example) -> tuple[Block, ...]:
    """One layer's time over the hidden size, all else in proportion."""
    times: list[tuple[int, float]] = []
    for width in (size for size in WIDTHS if size < example.model.hidden_size):
        # Widths that the heads do not divide are passed over.
        with suppress(RoofcastError):
            narrow = example.deployed(techniques=TechniquesSpec(structure=StructureSpec(hidden_size=width)))
            times.append((width, float(example.prefill(narrow).step_s[0]) / narrow.model.num_hidden_layers))
    whole = example.deployed()
    times.append((example.model.hidden_size, float(example.prefill(whole).step_s[0]) / whole.model.num_hidden_layers))
    exponents = [
        float(np.log(after[1] / before[1]) / np.log(after[0] / before[0])) for before, after in pairwise(times)
    ]
    rows = [
        (number(width, digits=0), seconds(layer_s), exponent)
        for (width, layer_s), exponent in zip(times, [None, *exponents], strict=True)
    ]
    title = f"One layer over a prompt of {example.context_tokens} tokens"
    return (
        table("width", title, "hidden size | time | local exponent", rows,
                   note="near 0 launches and reads decide, at 2 arithmetic does"),
        lines("width", "Time of a layer", x="log Hidden size", y="log Time [ms]", at=[width for width, _ in times],
              of={"layer": [layer_s / MILLI for _, layer_s in times]}),
    )  # fmt: skip
