"""Published times of quantised and sparse models beside the simulator's: steps, single products and their ratios."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np

from simulator.kernels.library import kernel_library
from simulator.operators.formats.schemes import format_of_pair
from simulator.operators.formats.sparse_formats import sparse_product
from simulator.operators.work import Family, GemmShape, MatmulFormat, Work, decode_step, prefill_step
from simulator.phases.memory import memory_plan
from simulator.phases.step import estimate_step
from simulator.published.figures import FOLDER, AskedBy, PublishedFigure, by_library, deployed
from simulator.specs.base import Spec, read_yaml, validate
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.precision import BITS, Dtype, PrecisionSpec
from simulator.specs.question.techniques import AttentionKernel, TechniquesSpec
from simulator.units import BITS_PER_BYTE, MILLI

FILE = FOLDER / "techniques.yaml"


class PublishedStep(Spec):
    """Time of one pass of a model [ms]."""

    name: str
    model: str
    hardware: str
    phase: Literal["prefill", "decode"]
    sequences: int
    tokens: int
    pp_size: int = 1
    attention: AttentionKernel | None = None
    precision: PrecisionSpec
    milliseconds: float
    part: Literal["fit", "score"]
    tolerance: float
    source: str


class PublishedProduct(Spec):
    """Time of one matrix product with dense and with 2:4 weights [ms]."""

    name: str
    hardware: str
    m: int
    n: int
    k: int
    dense_milliseconds: float
    sparse_milliseconds: float
    part: Literal["fit", "score"]
    tolerance: float
    source: str


class PublishedRatio(Spec):
    """A quantity in one number format over that in another.

    ``what``: time of a decode step of one sequence, bytes that it needs in memory (weights, cache and the runtime's
    reserve on every device) or of the linear layers, rate of matrix units, weights that a byte of the memory carries
    """

    name: str
    what: Literal["decode_seconds", "memory_bytes", "linear_bytes", "peak", "weights_per_byte"]
    model: str
    hardware: str
    pp_size: int = 1
    sparsity: str | None = None
    first: PrecisionSpec
    second: PrecisionSpec
    value: float
    tolerance: float
    source: str


class PublishedTechniques(Spec):
    """The rows of techniques.yaml and where they come from."""

    steps: tuple[PublishedStep, ...]
    products: tuple[PublishedProduct, ...]
    ratios: tuple[PublishedRatio, ...]
    sources: dict[str, str]


@lru_cache(maxsize=1)
def published_techniques() -> PublishedTechniques:
    """The transcribed rows."""
    return validate(PublishedTechniques, read_yaml(FILE), where=str(FILE))


def step_seconds(row: PublishedStep) -> float:
    """Predicted time of a published pass [s]."""
    degrees, techniques = ParallelismSpec(pp_size=row.pp_size), TechniquesSpec(attention=row.attention)
    replica = deployed(row.model, row.hardware, degrees=degrees, precision=row.precision, techniques=techniques)
    if row.phase == "prefill":
        step = prefill_step(sequences=row.sequences, tokens=row.tokens)
    else:
        step = decode_step(sequences=row.sequences, context=row.tokens)
    return float(estimate_step(replica, step).step_s[0])


def product_seconds(row: PublishedProduct, *, sparse: bool) -> float:
    """Predicted time of a published product [s]."""
    dense = format_of_pair(Dtype.FP16, None, plain=Dtype.FP16)
    product = sparse_product(dense, kept=2, of=4) if sparse else dense
    library = kernel_library(load_hardware(row.hardware), library="torch")
    return float(library.price(_product_work(row, product)).seconds[0])


def _product_work(row: PublishedProduct, product: MatmulFormat) -> Work:
    m = np.array([float(row.m)])
    moved = m * (row.k + row.n) * product.activation_bits / BITS_PER_BYTE
    return Work(
        name=row.name,
        family=Family.GEMM,
        role="mlp",
        shape=GemmShape(m=m, n=float(row.n), k=float(row.k), format=product),
        flops=2.0 * m * row.n * row.k,
        weight_bytes=np.full(1, row.n * row.k * product.weight_bits / BITS_PER_BYTE),
        kv_bytes=np.zeros(1),
        activation_bytes=moved,
    )


def figures() -> list[PublishedFigure]:
    """Steps with their speedups over 16 bits, products, ratios."""
    found = published_techniques()
    return [
        *(_step(row) for row in found.steps),
        *(_step(row, base=base) for row, base in _pairs()),
        *(_product(row) for row in found.products),
        *(_ratio(row) for row in found.ratios),
    ]


def _pairs() -> list[tuple[PublishedStep, PublishedStep]]:
    """Every step in few bits, and the same in 16."""
    apart = {"name", "pp_size", "precision", "milliseconds", "part", "tolerance"}
    plain = PrecisionSpec(scheme="fp16")
    alike = [(row, row.model_dump(exclude=apart)) for row in published_techniques().steps]
    bases = [(row, what) for row, what in alike if row.precision == plain]
    return [(row, base) for row, what in alike if row.precision != plain for base, same in bases if same == what]


def speedups() -> list[tuple[PublishedStep, float]]:
    """Every step in few bits with the speedup over 16 bits that its source printed [-]."""
    return [(row, base.milliseconds / row.milliseconds) for row, base in _pairs()]


def _figure(
    row: PublishedStep | PublishedProduct | PublishedRatio,
    published: float,
    statement: str,
    *,
    predict: Callable[[], float],
    asked_by: AskedBy,
    name: str = "",
    topic: str = "quantization",
    unit: str = "ratio",
) -> PublishedFigure:
    return PublishedFigure(
        name=name or row.name,
        topic=topic,
        published=published,
        unit=unit,
        tolerance=row.tolerance,
        source=published_techniques().sources[row.source],
        statement=statement,
        predict=predict,
        asked_by=asked_by,
        is_fitted=not isinstance(row, PublishedRatio) and row.part == "fit",
    )


def _step(row: PublishedStep, *, base: PublishedStep | None = None) -> PublishedFigure:
    """The time of a pass, or its speedup over the ``base``."""
    said = f"{row.phase} of {row.sequences} x {row.tokens} tokens"
    if base is None:
        asked = AskedBy(commands=(step_command(row),), field="step_s", scale=MILLI)
        return _figure(
            row, row.milliseconds, said, predict=lambda: step_seconds(row) / MILLI, asked_by=asked, unit="ms"
        )
    return _figure(
        row,
        base.milliseconds / row.milliseconds,
        said,
        predict=lambda: step_seconds(base) / step_seconds(row),
        asked_by=AskedBy(commands=(step_command(base), step_command(row)), field="step_s"),
        name=f"{row.name} speedup",
    )


def step_command(row: PublishedStep) -> str:
    """``roofcast step`` with what was measured."""
    words = ["roofcast", "step", "--model", row.model, "--hardware", row.hardware, "--phase", row.phase]
    words += ["--batch", str(row.sequences), "--context", str(row.tokens), "--pp", str(row.pp_size)]
    words += ["--engine", "torch-eager", *precision_words(row.precision)]
    words += ["--attention", row.attention] if row.attention is not None else []
    return shlex.join([*words, "--json"])


def precision_words(precision: PrecisionSpec) -> list[str]:
    """The options that say a precision."""
    words = []
    for name, value in precision.model_dump(mode="json", exclude_none=True).items():
        given = [f"{role}={scheme}" for role, scheme in value] if name == "mixed" else [str(value)]
        words += [word for item in given for word in (f"--{name.replace('_', '-')}", item)]
    return words


def _product(row: PublishedProduct) -> PublishedFigure:
    name = f"{row.name} 2:4 speedup"
    return _figure(
        row,
        row.dense_milliseconds / row.sparse_milliseconds,
        f"one product of {row.m} x {row.k} x {row.n} on {row.hardware}",
        predict=lambda: product_seconds(row, sparse=False) / product_seconds(row, sparse=True),
        asked_by=by_library(name),
        name=name,
        topic="sparsity",
    )


RATIO_CONTEXT = 128
"""Tokens that the one sequence of a published ratio attends to."""


def _quantity(row: PublishedRatio, precision: PrecisionSpec, *, sparse: bool) -> float:
    """What a ratio compares, for one of its formats (the second one carries the row's sparsity)."""
    if row.what == "peak":
        assert precision.weights is not None
        return load_hardware(row.hardware).peak_flops_per_s[precision.weights]
    if row.what == "weights_per_byte":
        assert precision.weights is not None
        return BITS_PER_BYTE / BITS[precision.weights]
    degrees = ParallelismSpec(pp_size=row.pp_size)
    changed = TechniquesSpec.model_validate({"sparsity": row.sparsity if sparse else None})
    replica = deployed(
        row.model, row.hardware, engine="torch", degrees=degrees, precision=precision, techniques=changed
    )
    if row.what == "memory_bytes":
        memory = memory_plan(replica)
        held = memory.weights_bytes + memory.reserve_bytes + RATIO_CONTEXT * memory.kv_bytes_per_token
        return row.pp_size * held
    estimate = estimate_step(replica, decode_step(sequences=1, context=RATIO_CONTEXT))
    if row.what == "decode_seconds":
        return float(estimate.step_s[0])
    works = [item.work for item in estimate.rows if item.work.family in (Family.GEMM, Family.LM_HEAD)]
    return sum(work.count * work.stored_bytes for work in works)


def _ratio(row: PublishedRatio) -> PublishedFigure:
    return _figure(
        row,
        row.value,
        f"{row.what.replace('_', ' ')} of {row.model} on {row.hardware}, 16 bits or more over fewer",
        predict=lambda: _quantity(row, row.first, sparse=False) / _quantity(row, row.second, sparse=True),
        asked_by=_ratio_asked_by(row),
        topic="sparsity" if row.sparsity else "quantization",
    )


def _ratio_asked_by(row: PublishedRatio) -> AskedBy:
    """Times are printed by ``roofcast step``; sums over operators and peaks by the library alone."""
    if row.what != "decode_seconds":
        return by_library(row.name)
    words = ["roofcast", "step", "--model", row.model, "--hardware", row.hardware, "--pp", str(row.pp_size)]
    words += ["--context", str(RATIO_CONTEXT), "--engine", "torch"]
    formats = (precision_words(precision) for precision in (row.first, row.second))
    return AskedBy(commands=tuple(shlex.join([*words, *given, "--json"]) for given in formats), field="step_s")
