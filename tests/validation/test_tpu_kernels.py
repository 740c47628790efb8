"""``validation.fit.kernels.tpu_kernels`` and what it ships: times of one v6e chip; what stays other vendors' matter."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from simulator.kernels.fits import fit_set
from simulator.operators.work import Family, decode_step, prefill_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.step import estimate_step
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from validation.fit.kernels.tpu_kernels import TOKENS, product_fit, product_rows


@pytest.fixture(scope="module")
def replica() -> Deployment:
    return deploy(model=load_model("llama-3.1-8b"), hardware=load_hardware("tpu-v6e"))


@pytest.mark.parametrize(
    ("sequences", "cached", "measured_us"), [(8, 1024, 92.5), (16, 512, 106.5), (64, 1024, 716.6), (128, 128, 455.2)]
)
def test_decode_attention_takes_what_was_measured(
    replica: Deployment, sequences: int, cached: int, measured_us: float
) -> None:
    rows = estimate_step(replica, decode_step(sequences=float(sequences), context=float(cached))).rows
    found = next(row.timing.seconds[0] for row in rows if row.work.family is Family.DECODE_ATTENTION)
    assert found * 1e6 == pytest.approx(measured_us, rel=0.15)


@pytest.mark.parametrize(("chunk", "cached", "measured_us"), [(512, 0, 71.6), (1024, 0, 205.2), (1024, 1024, 524.2)])
def test_prefill_attention_takes_what_was_measured(
    replica: Deployment, chunk: int, cached: int, measured_us: float
) -> None:
    rows = estimate_step(replica, prefill_step(sequences=1, tokens=chunk, context=float(cached))).rows
    found = next(row.timing.seconds[0] for row in rows if row.work.family is Family.PREFILL_ATTENTION)
    assert found * 1e6 == pytest.approx(measured_us, rel=0.15)


def test_products_of_a_prompt_reach_three_quarters_of_the_peak(replica: Deployment) -> None:
    """Gate and up, 2,048 rows: 693 us, 0.76 of the peak."""
    rows = estimate_step(replica, prefill_step(sequences=1, tokens=2048)).rows
    found = next(row.timing.seconds[0] for row in rows if row.work.name == "gate_up_proj")
    assert found * 1e6 == pytest.approx(693.3, rel=0.15)


def test_only_its_own_vendor_borrows_from_it() -> None:
    for name, lender in (("tpu-v5e", "tpu-v6e"), ("tpu-v7x", "tpu-v6e")):
        fits = fit_set(load_hardware(name), library="vllm", group="gemm")
        assert fits is not None
        assert fits.relative.name == lender
    for name in ("gaudi3", "trainium2", "mi250x"):
        fits = fit_set(load_hardware(name), library="vllm", group="gemm")
        assert fits is not None
        assert fits.relative.name != "tpu-v6e"


def table() -> pd.DataFrame:
    """Products at 0.7 of the peak and 0.9 of the memory's rate, and one that beats the memory."""
    facts = load_hardware("tpu-v6e")
    rows = [("gate_proj", 14336.0, 4096.0), ("down_proj", 4096.0, 14336.0), ("lm_head", 128256.0, 4096.0)]
    found = []
    for op, n, k in rows:
        for tokens in TOKENS[TOKENS <= 2048]:
            compute = 2 * tokens * n * k / (0.7 * facts.peak_flops_per_s["bf16"])  # type: ignore[index]
            seconds = 4e-6 + max(compute, 2 * n * k / (0.9 * facts.memory_bytes_per_s))
            found.append({"op": op, "tokens": tokens, "seconds": seconds})
    found.append({"op": "o_proj", "tokens": 16.0, "seconds": 5e-6})
    return pd.DataFrame(found)


def test_known_numbers_come_back_and_weights_kept_on_the_chip_are_left_out() -> None:
    rows = product_rows(table())
    assert "o_proj" not in set(rows["op"])
    fit = product_fit(rows)
    assert fit.parameters["compute_fraction"] == pytest.approx(0.7, rel=0.1)
    assert fit.parameters["memory_fraction"] == pytest.approx(0.9, rel=0.05)
    assert fit.error.fit_mape < 0.05
    assert np.isfinite(fit.error.score_mape)
