"""Published times of quantised and sparse models beside the simulator's: steps, single products and their ratios."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import yaml
from pydantic import Field

from simulator.kernels.library import kernel_library
from simulator.operators.formats.schemes import format_of_pair
from simulator.operators.formats.stored_formats import sparse_product
from simulator.operators.step_shape import decode_step, prefill_step
from simulator.operators.work import Family, GemmShape, MatmulFormat, Work
from simulator.phases.deployment import deploy
from simulator.phases.step import estimate_step
from simulator.specs.base import Spec
from simulator.specs.documents import validate
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.loading import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.techniques import AttentionKernel, TechniquesSpec
from simulator.units import BITS_PER_BYTE, MILLI

FILE = Path(__file__).parent / "techniques.yaml"


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

    ``what``: time of a decode step of one sequence, bytes of all weights or of the linear layers, rate of matrix units
    """

    name: str
    what: Literal["decode_seconds", "weights_bytes", "linear_bytes", "peak"]
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
    sources: dict[str, str] = Field(min_length=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniqueRow:
    """A published figure beside the prediction: seconds, or a ratio of seconds."""

    name: str
    part: str
    unit: str
    measured: float
    predicted: float
    tolerance: float

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted / self.measured - 1


@lru_cache(maxsize=1)
def published_techniques() -> PublishedTechniques:
    """The transcribed rows."""
    return validate(PublishedTechniques, yaml.safe_load(FILE.read_text(encoding="utf-8")), where=str(FILE))


def step_seconds(row: PublishedStep) -> float:
    """Predicted time of a published pass [s]."""
    replica = deploy(
        model=load_model(row.model),
        hardware=load_hardware(row.hardware),
        parallelism=ParallelismSpec(pp_size=row.pp_size),
        precision=row.precision,
        engine=EngineSpec(name="torch-eager"),
        techniques=TechniquesSpec(attention=row.attention),
    )
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
        count=1.0,
        flops=2.0 * m * row.n * row.k,
        weight_bytes=np.full(1, row.n * row.k * product.weight_bits / BITS_PER_BYTE),
        kv_bytes=np.zeros(1),
        activation_bytes=moved,
    )


def _steps(prefix: tuple[str, ...]) -> list[TechniqueRow]:
    found = published_techniques().steps
    wanted = [row for row in found if row.name.startswith(prefix)]
    bases = {f"{row.name.rsplit('-', 1)[0]}-fp16" for row in wanted}
    predicted = {row.name: step_seconds(row) for row in found if row in wanted or row.name in bases}
    rows = []
    for row in wanted:
        seconds = TechniqueRow(
            name=row.name,
            part=row.part,
            unit="s",
            measured=row.milliseconds * MILLI,
            predicted=predicted[row.name],
            tolerance=row.tolerance,
        )
        rows.append(seconds)
        base = next(other for other in found if other.name == f"{row.name.rsplit('-', 1)[0]}-fp16")
        if base is not row:
            rows.append(
                TechniqueRow(
                    name=f"{row.name} speedup",
                    part=row.part,
                    unit="ratio",
                    measured=base.milliseconds / row.milliseconds,
                    predicted=predicted[base.name] / predicted[row.name],
                    tolerance=row.tolerance,
                )
            )
    return rows


def _products(prefix: tuple[str, ...]) -> list[TechniqueRow]:
    rows = []
    for row in published_techniques().products:
        if not row.name.startswith(prefix):
            continue
        dense, sparse = product_seconds(row, sparse=False), product_seconds(row, sparse=True)
        rows.append(
            TechniqueRow(
                name=f"{row.name} 2:4 speedup",
                part=row.part,
                unit="ratio",
                measured=row.dense_milliseconds / row.sparse_milliseconds,
                predicted=dense / sparse,
                tolerance=row.tolerance,
            )
        )
    return rows


RATIO_CONTEXT = 128
"""Tokens that the one sequence of a published ratio attends to."""


def _quantity(row: PublishedRatio, precision: PrecisionSpec, *, sparse: bool) -> float:
    """What a ratio compares, for one of its formats (the second one carries the row's sparsity)."""
    hardware = load_hardware(row.hardware)
    if row.what == "peak":
        assert precision.weights is not None
        return hardware.peak_flops_per_s[precision.weights]
    replica = deploy(
        model=load_model(row.model),
        hardware=hardware,
        parallelism=ParallelismSpec(pp_size=row.pp_size),
        precision=precision,
        engine=EngineSpec(name="torch"),
        techniques=TechniquesSpec.model_validate({"sparsity": row.sparsity if sparse else None}),
    )
    estimate = estimate_step(replica, decode_step(sequences=1, context=RATIO_CONTEXT))
    if row.what == "decode_seconds":
        return float(estimate.step_s[0])
    works = [item.work for item in estimate.rows]
    if row.what == "linear_bytes":
        works = [work for work in works if work.family in (Family.GEMM, Family.LM_HEAD)]
    return sum(work.count * work.stored_bytes for work in works)


def _ratios(prefix: tuple[str, ...]) -> list[TechniqueRow]:
    return [
        TechniqueRow(
            name=row.name,
            part="score",
            unit="ratio",
            measured=row.value,
            predicted=_quantity(row, row.first, sparse=False) / _quantity(row, row.second, sparse=True),
            tolerance=row.tolerance,
        )
        for row in published_techniques().ratios
        if row.name.startswith(prefix)
    ]


def technique_rows(prefix: tuple[str, ...] = ("",)) -> list[TechniqueRow]:
    """Published figures whose name starts with one of ``prefix``, each with its prediction."""
    return [*_steps(prefix), *_products(prefix), *_ratios(prefix)]
