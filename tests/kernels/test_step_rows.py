"""Rows of a step in few calls: each costs what it costs alone, and equal collectives are priced once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.kernels.library import kernel_library
from simulator.kernels.step_rows import price_rows
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.transformer import operator_list
from simulator.operators.work import CollectiveShape, decode_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec

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
