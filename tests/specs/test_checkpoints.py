"""Published checkpoints: each is of a known model, in a format that its own name stands for."""

from __future__ import annotations

import pytest

from simulator.operators.formats.schemes import scheme_named
from simulator.specs.measured.checkpoints import CheckpointSpec, load_checkpoints, published_checkpoints
from simulator.specs.model.hub_names import named_checkpoint
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype

ROWS = load_checkpoints().checkpoints


def test_each_is_of_a_model_in_16_bit_and_in_the_format_of_its_name() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert load_model(row.of).quantization is None
        found = named_checkpoint(row.id)
        assert found is not None
        scheme = scheme_named(row.scheme, plain=Dtype.BF16)
        assert scheme.weights is found.format.weights
        assert row.dtype is (scheme.activations if scheme.activations is scheme.weights else Dtype.BF16)
        assert row in published_checkpoints(row.of.upper())


@pytest.mark.parametrize(("publisher", "own"), [("Qwen", True), ("qwen", True), ("nvidia", False)])
def test_a_maker_publishes_under_its_own_name(publisher: str, own: bool) -> None:
    row = CheckpointSpec(
        of="Qwen/Qwen3-32B", scheme="fp8", dtype=Dtype.FP8, id=f"{publisher}/Qwen3-32B-FP8", source="-"
    )
    assert row.by_maker is own
