"""Weights in the host's memory: every byte taken from the device crosses the host link in every pass."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.operators.work import decode_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import memory_plan
from simulator.phases.step import estimate_step
from simulator.reports.words.fields import note_texts
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec, load_engine
from simulator.specs.engine.fits import HostProducts
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.techniques import TechniquesSpec
from tests.techniques.scenarios import with_technique


def replica(
    fraction: float | None = None,
    *,
    model: str = "llama-3.1-8b",
    tp_size: int = 1,
    hardware: str = "h100",
    engine: str = "vllm",
) -> Deployment:
    return deploy(
        model=load_model(model),
        engine=EngineSpec(name=engine),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(tp_size=tp_size),
        techniques=TechniquesSpec.model_validate({"weight_offload": fraction}),
    )


def step_s(made: Deployment, *, sequences: float = 1.0) -> float:
    return float(estimate_step(made, decode_step(sequences=sequences, context=512)).step_s[0])


@pytest.mark.parametrize("tp_size", [1, 4])
@pytest.mark.parametrize("fraction", [0.25, 1.0])
def test_what_the_device_saves_crosses_the_link(fraction: float, tp_size: int) -> None:
    plain, made = replica(tp_size=tp_size), replica(fraction, tp_size=tp_size)
    saved = memory_plan(plain).weights_bytes - memory_plan(made).weights_bytes
    link = made.hardware.host_link.bytes_per_s_per_direction
    assert saved > 0
    assert step_s(made) - step_s(plain) == pytest.approx(saved / link, rel=1e-3)


@pytest.mark.parametrize("hardware", ["rtx-4090", "rtx-5090", "v100-sxm-32gb", "apple-m4-max"])
def test_an_engine_that_computes_on_the_host_reads_there_and_copies_for_prompts_alone(hardware: str) -> None:
    plain, made = (replica(fraction, hardware=hardware, engine="llama.cpp") for fraction in (None, 0.5))
    saved = memory_plan(plain).weights_bytes - memory_plan(made).weights_bytes
    rule, spec = load_engine("llama.cpp").host_products, made.hardware
    assert rule is not None
    for sequences, rate in ((1.0, rule.reads_bytes_per_s(spec)), (64.0, spec.host_link.bytes_per_s_per_direction)):
        more_s = step_s(made, sequences=sequences) - step_s(plain, sequences=sequences)
        assert more_s == pytest.approx(saved / rate, rel=1e-3)
    assert rule.reads_bytes_per_s(spec) > spec.host_link.bytes_per_s_per_direction


@pytest.mark.parametrize(("card", "server"), [("rtx-4090", "l40s"), ("rtx-5090", "rtx-pro-6000")])
def test_the_host_of_a_consumer_card_has_two_channels(card: str, server: str) -> None:
    rule, named, link = load_engine("llama.cpp").host_products, load_hardware(card), load_hardware(server).host_link
    assert rule is not None
    assert (named.form_factor, named.host_link.kind) == ("consumer-card", link.kind)
    assert rule.reads_bytes_per_s(named) == 2 * 8 * 5.6e9
    assert rule.reads_bytes_per_s(load_hardware(server)) > 2 * rule.reads_bytes_per_s(named)


def test_a_host_without_a_link_of_its_own_reads_the_devices_memory() -> None:
    rule, shared = HostProducts(rows_below=32, memory_bytes_per_s={"pcie4": 2e11}), load_hardware("apple-m4-max")
    assert rule.reads_bytes_per_s(load_hardware("l40s")) == 2e11
    assert rule.reads_bytes_per_s(shared) == shared.memory_bytes_per_s


def test_more_outside_is_slower_and_leaves_more_cache() -> None:
    made = [replica(fraction) for fraction in (None, 0.2, 0.5, 1.0)]
    times = [step_s(item) for item in made]
    room = [memory_plan(item).kv_capacity_tokens for item in made]
    assert times == sorted(times)
    assert room == sorted(room)
    assert len(set(times)) == len(set(room)) == 4


def test_a_batch_shares_the_trip() -> None:
    """Why FlexGen runs large batches: the copy costs the same for one sequence as for many."""
    alone, many = (step_s(replica(0.5), sequences=n) - step_s(replica(), sequences=n) for n in (1.0, 64.0))
    assert alone == pytest.approx(many, rel=1e-6)


def test_experts_without_tokens_stay_where_they_are() -> None:
    few, all_ = (
        step_s(replica(0.5, model="mixtral-8x7b"), sequences=n) - step_s(replica(model="mixtral-8x7b"), sequences=n)
        for n in (1.0, 64.0)
    )
    assert few < 0.4 * all_


def test_a_model_too_large_for_the_device_fits_with_its_weights_outside() -> None:
    assert not memory_plan(replica(model="llama-3.1-70b")).fits
    assert memory_plan(replica(0.7, model="llama-3.1-70b")).fits


def test_a_result_says_what_it_assumes() -> None:
    found = with_technique("weight_offload", 0.5)
    assert any("cross pcie5" in note for note in note_texts(found.deployment.techniques.notes))


@pytest.mark.parametrize("fraction", [0, -0.1, 1.5, True, "half"])
def test_shares_outside_their_range_are_refused(fraction: object) -> None:
    with pytest.raises((RoofcastError, ValueError), match="weight_offload"):
        with_technique("weight_offload", fraction)
