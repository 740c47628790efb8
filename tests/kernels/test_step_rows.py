"""Rows of a step in few calls: each costs what it costs alone, and equal collectives are priced once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.kernels.library import kernel_library
from simulator.kernels.step_rows import price_rows
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.transformer import operator_list
from simulator.operators.work import CollectiveShape, Family, decode_step
from simulator.phases.deployment import deploy
from simulator.phases.step import estimate_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import list_hardware, load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec
from tests.for_every import for_every

SIXTEEN_BIT = tuple(name for name in list_hardware() if Dtype.BF16 in load_hardware(name).peak_flops_per_s)
READING = (Family.GEMM, Family.MOE, Family.LM_HEAD, Family.DECODE_ATTENTION)

KERNELS = kernel_library(load_hardware("h100"), library="vllm")
MODEL = load_model("llama-3.1-8b")
ROWS = operator_list(
    MODEL,
    parallelism=ParallelismSpec(tp_size=2),
    plan=precision_plan(MODEL, PrecisionSpec()),
    step=decode_step(sequences=[1.0, 64.0], context=[100.0, 2000.0]),
)


def test_every_row_costs_what_it_costs_alone() -> None:
    together = price_rows(KERNELS, ROWS)
    assert len(together) == len(ROWS)
    for row, timing in zip(ROWS, together, strict=True):
        np.testing.assert_allclose(timing.seconds, KERNELS.price(row).seconds, rtol=1e-12, err_msg=row.name)


def test_the_order_of_the_rows_does_not_matter() -> None:
    forwards, backwards = price_rows(KERNELS, ROWS), price_rows(KERNELS, ROWS[::-1])[::-1]
    for one, other in zip(forwards, backwards, strict=True):
        np.testing.assert_allclose(one.seconds, other.seconds, rtol=1e-12)


def test_equal_messages_are_one_price() -> None:
    message = next(row for row in ROWS if isinstance(row.shape, CollectiveShape))
    first, second = price_rows(KERNELS, (message, replace(message, name="again")))
    assert first is second


def test_no_rows_cost_nothing() -> None:
    assert price_rows(KERNELS, ()) == ()


@for_every(SIXTEEN_BIT)
def test_no_kernel_of_a_step_reads_faster_than_memory_delivers(hardware: str) -> None:
    """Tables of cards with a large L2 hold layers that were read from it again and again: 1.2 times the memory's rate
    for one row on L40S and RTX PRO 6000 under TensorRT-LLM, 1.5 times for a cache of the size of the L2."""
    facts = load_hardware(hardware)
    most = 0.95 * facts.memory_data_share * facts.memory_bytes_per_s * (1 + 1e-9)
    engines = ("vllm", "sglang", *(("tensorrt-llm",) if facts.vendor == "nvidia" else ()))
    for model in ("llama-2-7b", "qwen3-30b-a3b"):
        for engine in engines:
            replica = deploy(model=load_model(model), hardware=facts, engine=EngineSpec(name=engine))
            step = decode_step(sequences=[1.0, 2.0, 8.0, 64.0], context=[8192.0, 2000.0, 2000.0, 2000.0])
            for row in estimate_step(replica, step).rows:
                if row.work.family in READING:
                    read = row.work.weight_bytes + row.work.kv_bytes
                    assert np.all(read <= most * row.timing.seconds), (model, engine, row.work.name)
