"""Sequence parallelism: the same bytes on the links, norms shared, nothing on one rank."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.errors import RoofcastError
from simulator.operators.work import Collective, CollectiveShape, Work, prefill_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.step import estimate_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.techniques import TechniquesSpec

STEP = prefill_step(sequences=1, tokens=8192)


def replica(tp_size: int, *, split: bool | None) -> Deployment:
    return deploy(
        model=load_model("llama-3.1-70b"),
        hardware=load_hardware("h100"),
        parallelism=ParallelismSpec(tp_size=tp_size),
        techniques=TechniquesSpec(sequence_parallel=split),
    )


def rows(tp_size: int, *, split: bool | None) -> list[Work]:
    return [row.work for row in estimate_step(replica(tp_size, split=split), STEP).rows]


def sent_bytes(works: list[Work], operation: Collective) -> float:
    """Of one device: a ring all-reduce sends its message twice but for one part, each half once."""
    found = 0.0
    for work in works:
        if isinstance(work.shape, CollectiveShape) and work.shape.operation is operation:
            once = (work.shape.participants - 1) / work.shape.participants
            found += work.count * float(work.shape.message_bytes[0]) * once
    return found


@pytest.mark.parametrize("tp_size", [2, 8])
def test_the_halves_move_what_the_whole_moved(tp_size: int) -> None:
    whole, halves = rows(tp_size, split=None), rows(tp_size, split=True)
    assert sent_bytes(halves, Collective.ALL_REDUCE) == 0
    scattered = sent_bytes(halves, Collective.REDUCE_SCATTER)
    gathered = sent_bytes(halves, Collective.ALL_GATHER) - sent_bytes(whole, Collective.ALL_GATHER)
    assert scattered == pytest.approx(gathered)
    assert scattered + gathered == pytest.approx(2 * sent_bytes(whole, Collective.ALL_REDUCE))


@pytest.mark.parametrize("tp_size", [2, 8])
def test_norms_are_shared_and_products_are_not_touched(tp_size: int) -> None:
    whole = {work.name: work for work in rows(tp_size, split=None)}
    halves = {work.name: work for work in rows(tp_size, split=True)}
    for name in whole.keys() & halves.keys():
        share = tp_size if whole[name].role == "norm" else 1
        np.testing.assert_allclose(halves[name].activation_bytes * share, whole[name].activation_bytes)
        np.testing.assert_array_equal(halves[name].weight_bytes, whole[name].weight_bytes)


def test_off_is_absent_and_one_rank_refuses() -> None:
    off, absent = (estimate_step(replica(4, split=split), STEP).step_s for split in (False, None))
    np.testing.assert_array_equal(off, absent)
    with pytest.raises(RoofcastError, match="changes nothing on one tensor-parallel rank") as refusal:
        estimate_step(
            deploy(
                model=load_model("llama-3.1-8b"),
                hardware=load_hardware("h100"),
                techniques=TechniquesSpec(sequence_parallel=True),
            ),
            STEP,
        )
    assert refusal.value.field == "techniques.sequence_parallel"
