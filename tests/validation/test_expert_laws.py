"""Laws that every shipped fit of experts keeps with its correction, on shapes of models that are served."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.kernels.fits import lattice_of
from simulator.kernels.moe import moe_timing
from simulator.operators.work import MoeShape
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import load_arrays
from validation.fits import NamedFit, shipped_fits
from validation.silicon.amd_tables import FORMATS as AMD_FORMATS
from validation.silicon.formats import EXPERT_FORMATS

FORMATS = {format.name: format for format in (*EXPERT_FORMATS.values(), *AMD_FORMATS.values())}
MODELS = {
    "Mixtral-8x7B on two": (4096.0, 7168.0, 2.0, 8.0),
    "Qwen3-30B-A3B": (2048.0, 768.0, 8.0, 128.0),
    "Qwen3-30B-A3B on four": (2048.0, 192.0, 8.0, 128.0),
    "gpt-oss-120b": (2880.0, 2880.0, 4.0, 128.0),
    "DeepSeek-R1 on eight": (7168.0, 256.0, 8.0, 256.0),
    "MiniMax-M2.5 on four": (3072.0, 384.0, 8.0, 256.0),
}
"""Hidden size, width of an expert on one device, experts a token, experts."""
FITS = [item for item in shipped_fits() if item.fit.model == "grouped_gemm" and item.fit.format in FORMATS]


def measured(item: NamedFit, model: str) -> bool:
    """Whether a fit of usual experts saw such a width."""
    low, high = item.fit.box["intermediate_size"]
    return not item.fit.variant and low <= MODELS[model][1] <= high


def seconds_of(item: NamedFit, model: str) -> NDArray[np.float64]:
    """One layer at 1, 2, 4, ... tokens, as far as the fit was measured."""
    hidden, width, top_k, experts = MODELS[model]
    tokens = np.exp2(np.arange(np.log2(item.fit.box["tokens"][1]) + 1))
    shape = MoeShape(
        tokens=tokens,
        hidden_size=hidden,
        intermediate_size=width,
        num_experts=experts,
        num_experts_per_tok=top_k,
        local_experts=experts,
        gated=True,
        distinct_experts=experts * (1.0 - (1.0 - top_k / experts) ** tokens),
        local_assignments=tokens * top_k,
        format=FORMATS[item.fit.format],
    )
    lattice = lattice_of(item.fit.correction, load_arrays(item.hardware, library=item.library, group="moe"))
    return moe_timing(shape, hardware=load_hardware(item.hardware), fit=item.fit, lattice=lattice).seconds


@pytest.mark.parametrize("model", MODELS)
def test_twice_the_tokens_take_no_less_time(model: str) -> None:
    """Within what a correction may bend between two of its nodes."""
    for item in FITS:
        if measured(item, model):
            for fewer, more in pairwise(seconds_of(item, model)):
                assert more > 0.92 * fewer, (item.hardware, item.library, item.fit.format)


@pytest.mark.parametrize("model", MODELS)
def test_the_same_chip_with_a_faster_memory_is_faster_by_no_more_than_its_memory(model: str) -> None:
    """H200 beside H100 (4.8 and 3.35 TB/s), on the same libraries' kernels."""
    fits = {(item.hardware, item.library, item.fit.format): item for item in FITS if measured(item, model)}
    for (hardware, *kernel), item in fits.items():
        other = fits.get(("h200-sxm-141gb", *kernel))  # type: ignore[arg-type]
        if hardware == "h100-sxm-80gb" and other is not None:
            h100, h200 = seconds_of(item, model), seconds_of(other, model)
            ratios = h100[: len(h200)] / h200[: len(h100)]
            assert 0.9 < ratios.min() <= ratios.max() < 1.08 * 4.8 / 3.35, kernel
