"""Bytes that sequences keep on a device."""

from __future__ import annotations

import pytest

from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.parallelism import (
    kv_bytes_per_sequence,
    kv_bytes_per_token,
    kv_layout,
    state_bytes_per_sequence,
)
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.units import KIB
from tests.operators import operator_models as models


def per_token(model: ModelSpec, *, tp: int = 1, pp: int = 1, kv: Dtype | None = None) -> float:
    plan = precision_plan(model, PrecisionSpec(kv_cache=kv))
    return kv_bytes_per_token(model, plan=plan, tp_size=tp, pp_size=pp)


@pytest.mark.parametrize(
    ("model", "tp", "pp", "kv", "expected"),
    [
        (models.LLAMA_2_7B, 1, 1, None, 512 * KIB),  # 2 x 32 layers x 32 heads x 128 x 2 bytes
        (models.LLAMA_31_70B, 1, 1, None, 320 * KIB),  # 2 x 80 x 8 x 128 x 2
        (models.LLAMA_31_70B, 1, 1, Dtype.FP8, 160 * KIB),
        (models.LLAMA_31_70B, 8, 1, None, 40 * KIB),
        (models.LLAMA_31_70B, 16, 1, None, 40 * KIB),  # one KV head per rank, replicated twice
        (models.LLAMA_31_70B, 1, 3, None, 27 * 4 * KIB),  # the largest stage has 27 layers
        (models.deepseek(), 1, 1, None, 70272),  # 61 x (512 + 64) x 2
        (models.deepseek(), 8, 1, None, 70272),  # latents are replicated
        (models.deepseek(sparse=True), 1, 1, None, 70272 + 61 * 132),  # 128 fp8 index keys and a scale
    ],
)
def test_bytes_per_token(model: ModelSpec, tp: int, pp: int, kv: Dtype | None, expected: float) -> None:
    assert per_token(model, tp=tp, pp=pp, kv=kv) == expected


def test_windows_bound_a_sequence_and_states_are_constant() -> None:
    """HYBRID: one full and one 100-token layer of 4 heads x 16, six recurrent layers."""
    model = models.HYBRID
    plan = precision_plan(model, PrecisionSpec())
    layer = 2 * 4 * 16 * 2
    state = state_bytes_per_sequence(model, plan=plan, tp_size=1)
    mamba = 256 * 16 * 4 + 256 * 3 * 2
    mamba2 = 8 * 32 * 64 * 4 + (256 + 2 * 8 * 64) * 3 * 2
    delta = 8 * 32 * 32 * 4 + (2 * 4 * 32 + 8 * 32) * 3 * 2
    assert state == 2 * (mamba + mamba2 + delta)
    kept = kv_bytes_per_sequence(model, plan=plan, tp_size=1, context_tokens=[0, 100, 1000])
    assert kept.tolist() == [state, state + 200 * layer, state + 1100 * layer]
    assert [(group.layers, group.window) for group in kv_layout(model, plan=plan, tp_size=1)] == [(1, None), (1, 100)]


def test_an_encoder_keeps_nothing() -> None:
    assert per_token(models.ENCODER_ONLY) == 0


def test_stages_share_what_sequences_keep() -> None:
    """Stages hold disjoint layers: their layouts add up to that of one device."""
    plan = precision_plan(models.LLAMA_31_70B, PrecisionSpec())
    stages = [kv_layout(models.LLAMA_31_70B, plan=plan, tp_size=1, pp_size=3, stage=stage) for stage in range(3)]
    assert sum(group.layers for groups in stages for group in groups) == 80
