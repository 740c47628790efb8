"""``validation.fit.left_out``: whose fits stand in for an accelerator, and the table of families."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from simulator.kernels.transfer import TYPICAL, Relative
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import KernelFit
from validation.fit.left_out import (
    ACCELERATOR,
    ARCHITECTURE,
    BARS,
    LIBRARIES,
    SHAPES,
    Kernel,
    error_rows,
    kernel_name,
    log_ratios_of,
    relatives_of,
    shipped_fit,
    table_lines,
)
from validation.fits import shipped_fits
from validation.silicon.attention_tables import ENCODER
from validation.silicon.tables import SYSTEMS

NAMES = ("h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm", "gb200", "rtx-pro-6000", "l40s")
PRODUCT = ("gemm", "bf16", "")


def product_of(name: str, *, off: float = 0.1) -> Kernel:
    """A kernel whose rows take exp(off) times what any relative's fit says."""

    def log_ratios(fit: KernelFit, on: Relative) -> np.ndarray:
        assert fit.family == "gemm"
        assert on.name != name
        return np.array([off, -off])

    fit = shipped_fit(name, library="vllm", group="gemm", wanted=PRODUCT)
    assert fit is not None
    return Kernel(
        label="products",
        hardware=load_hardware(name),
        library="vllm",
        group="gemm",
        wanted=PRODUCT,
        fit=fit,
        log_ratios=log_ratios,
    )


def relative(name: str, *, left_out: str) -> str | None:
    others = [load_hardware(other) for other in NAMES]
    found = relatives_of(product_of(name), others=others, left_out=left_out)
    return found[0].name if found else None


def test_a_known_architecture_is_that_of_the_same_chips() -> None:
    assert relative("h100-sxm-80gb", left_out=ACCELERATOR) == "h200-sxm-141gb"
    assert relative("b200-sxm", left_out=ACCELERATOR) == "gb200"
    assert relative("rtx-pro-6000", left_out=ACCELERATOR) is None, (
        "a workstation's Blackwell has other units and memory"
    )


def test_without_its_generation_the_nearest_other_stands_in() -> None:
    assert relative("gb200", left_out=ARCHITECTURE) in ("h100-sxm-80gb", "h200-sxm-141gb")
    assert relative("rtx-pro-6000", left_out=ARCHITECTURE) == "l40s"


def test_of_an_unknown_generation_the_nearer_of_the_others_says_more() -> None:
    others = [load_hardware(name) for name in NAMES]
    near, far = relatives_of(product_of("gb200"), others=others, left_out=ARCHITECTURE)
    assert (near.name, far.name) == ("h100-sxm-80gb", "l40s")
    said = {near.name: 0.0, far.name: 1.0}
    kernel = replace(product_of("gb200"), log_ratios=lambda fit, on: np.array([said[on.name]]))
    assert 0.0 < log_ratios_of(kernel, (near, far))[0] < 0.5


def test_errors_are_those_of_the_relatives_predictions() -> None:
    rows = pd.DataFrame(list(error_rows([product_of(name) for name in NAMES])))
    assert set(rows["left_out"]) == {SHAPES, ACCELERATOR, ARCHITECTURE}
    far = rows[rows["left_out"] == ARCHITECTURE]
    assert len(far) == len(NAMES)
    np.testing.assert_allclose(far["mape"], (np.expm1(0.1) - np.expm1(-0.1)) / 2, atol=1e-4)
    np.testing.assert_allclose(far["bias"], (np.expm1(0.1) + np.expm1(-0.1)) / 2, atol=1e-4)


def test_the_table_has_a_row_a_family_and_its_bars() -> None:
    rows = pd.DataFrame(list(error_rows([product_of(name) for name in NAMES])))
    _, _, *lines = table_lines(rows)
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == list(BARS)
    assert "10.0% of 6 (15%)" in lines[0]
    assert "10.0% of 4 (7%)" in lines[0]


@pytest.mark.parametrize("library", ["vllm", "sglang"])
def test_experts_that_nobody_tuned_are_priced_as_the_simulator_does(library: str) -> None:
    fit = shipped_fit("h200-sxm-141gb", library=library, group="moe", wanted=("moe", "fp8", ""))
    assert (fit.format if fit else None) == ("fp8_block" if library == "vllm" else None)


def test_fits_name_the_kernel_of_their_table() -> None:
    fit = shipped_fit("b200-sxm", library="sglang", group="attention", wanted=("prefill_attention", "bf16", "d192"))
    assert fit is not None
    assert kernel_name(fit) == "triton"


@pytest.mark.parametrize("model", sorted(TYPICAL))
def test_the_typical_kernel_is_the_mean_of_those_that_were_fitted(model: str) -> None:
    """Over kernels that answer requests, then architectures, in octaves; these agree to a factor of 1.5 (passes of
    experts less)."""
    logs: dict[str, dict[str, list[float]]] = {}
    for item in shipped_fits():
        answers = item.hardware in SYSTEMS and item.library in LIBRARIES and not item.fit.variant.endswith(ENCODER)
        if answers and item.fit.model == model:
            architecture = load_hardware(item.hardware).architecture.removesuffix("-ultra")
            for name in TYPICAL[model]:
                by_name = logs.setdefault(name, {})
                by_name.setdefault(architecture, []).append(np.log(item.fit.parameters[name]))
    for name, by_architecture in logs.items():
        means = [np.mean(values) for values in by_architecture.values()]
        assert np.exp(np.mean(means)) == pytest.approx(TYPICAL[model][name], rel=0.005), name
        assert np.std(means) < np.log(2.5 if name == "pass_speedup" else 1.5)
