"""Early exit: depth laws, batches that wait for their last member, engines that compact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.operators.work import decode_step, mixed_step, prefill_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import memory_plan
from simulator.phases.step import estimate_step
from simulator.specs.base import validate
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.techniques import EarlyExitSpec, TechniquesSpec
from simulator.techniques.early_exit import executed_fraction, staying
from tests.techniques.scenarios import run, with_technique

HALF = {"mean_fraction": 0.5}


def replica(early_exit: dict[str, Any] | None) -> Deployment:
    spec = validate(EarlyExitSpec, early_exit, where="t") if early_exit else None
    return deploy(
        model=load_model("llama-2-7b"),
        hardware=load_hardware("h100"),
        engine=EngineSpec(name="vllm"),
        techniques=TechniquesSpec(early_exit=spec),
    )


def decode_s(early_exit: dict[str, Any] | None, sequences: float) -> float:
    return float(estimate_step(replica(early_exit), decode_step(sequences=[sequences], context=512)).step_s[0])


@given(mean=st.floats(0.1, 0.99), layers=st.integers(11, 120))
def test_the_mean_is_met_and_deeper_layers_see_fewer_tokens(mean: float, layers: int) -> None:
    shares = staying(EarlyExitSpec(mean_fraction=mean), layers=layers)
    assert shares.mean() == pytest.approx(mean, rel=1e-6)
    assert shares[0] == 1.0
    assert np.all(np.diff(shares) <= 0)


@given(mean=st.floats(0.1, 0.9), batch=st.integers(1, 500))
def test_a_batch_runs_between_the_mean_and_everything(mean: float, batch: int) -> None:
    shares = staying(EarlyExitSpec(mean_fraction=mean), layers=32)
    one, some, more = executed_fraction(shares, np.array([1.0, batch, batch + 1.0]))
    assert one == pytest.approx(mean, rel=1e-6)
    assert one <= some * (1 + 1e-12)
    assert some <= more <= 1.0


def test_given_exits_are_steps() -> None:
    shares = staying(
        EarlyExitSpec(exits=[{"layer": 8, "probability": 0.25}, {"layer": 16, "probability": 0.5}]), layers=32
    )  # type: ignore[list-item]
    assert list(shares) == [1.0] * 8 + [0.75] * 8 + [0.25] * 16


def test_one_sequence_saves_its_layers_and_a_batch_waits_for_its_last() -> None:
    single = decode_s(HALF, 1) / decode_s(None, 1)
    assert 0.5 < single < 0.65  # embeddings, head and the keys of skipped layers remain
    saved = [decode_s(HALF, batch) / decode_s(None, batch) for batch in (1, 4, 16, 128)]
    assert saved == sorted(saved)
    assert saved[-1] > 0.99


def test_compacting_keeps_the_saving_of_what_scales_with_tokens() -> None:
    together, compact = decode_s(HALF, 128), decode_s({**HALF, "compacts": True}, 128)
    assert compact < 0.9 * together
    assert decode_s({**HALF, "compacts": True}, 1) == pytest.approx(decode_s(HALF, 1))


def test_prompts_and_memory_stay() -> None:
    step = prefill_step(sequences=[1.0], tokens=1024.0)
    assert estimate_step(replica(HALF), step).step_s == estimate_step(replica(None), step).step_s
    mixed = mixed_step(prefill_sequences=[1.0], prefill_tokens=512.0, decode_sequences=[4.0], decode_context=100.0)
    assert estimate_step(replica(HALF), mixed).step_s == estimate_step(replica(None), mixed).step_s
    assert memory_plan(replica(HALF)) == memory_plan(replica(None))


def test_skipped_layers_still_get_their_keys() -> None:
    rows = estimate_step(replica(HALF), decode_step(sequences=[4.0], context=512)).rows
    row = next(row for row in rows if row.work.name == "exit_kv_proj")
    assert row.work.flops[0] == 2 * 4 * 4096 * 2 * 4096
    layer = next(row for row in rows if row.work.name == "o_proj")
    assert row.work.executed + layer.work.executed == pytest.approx(1.0)  # type: ignore[operator]


def test_the_whole_answer_gets_faster_also_with_adapters_and_stages() -> None:
    single = {"batch_size": 1}
    assert with_technique("early_exit", HALF, **single).run.tpot_s < 0.7 * run(**single).run.tpot_s
    staged = {**single, "pp_size": 2}
    assert with_technique("early_exit", HALF, **staged).run.tpot_s < 0.7 * run(**staged).run.tpot_s
    both = run(techniques={"early_exit": HALF, "adapters": {"rank": 16}}, **single)
    assert both.run.tpot_s < with_technique("adapters", {"rank": 16}, **single).run.tpot_s


REFUSED = [
    ({}, {}, "", "either exits or mean_fraction"),
    ({**HALF, "exits": [{"layer": 3, "probability": 0.5}]}, {}, "", "either"),
    ({"exits": [{"layer": 32, "probability": 0.5}]}, {}, "exits", "32 layers"),
    ({"exits": [{"layer": 3, "probability": 0.6}, {"layer": 5, "probability": 0.6}]}, {}, "exits", "more than 1"),
    ({"mean_fraction": 0.01}, {}, "mean_fraction", "less than one layer"),
    (HALF, {"model": "bert-base", "osl_tokens": 1}, "", "generates nothing"),
    (HALF, {"model": "mamba-2.8b"}, "", "recurrent states"),
]


@pytest.mark.parametrize(("early_exit", "changes", "field", "words"), REFUSED)
def test_what_cannot_leave_early_is_refused(
    early_exit: dict[str, Any], changes: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(RoofcastError) as caught:
        with_technique("early_exit", early_exit, **changes)
    assert caught.value.field == "techniques.early_exit" + (f".{field}" if field else "")
    assert words in str(caught.value)
