"""``simulator.phases.attention_ffn``: attention and experts on devices of their own, micro-batches in turns."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from simulator.errors import RoofcastError
from simulator.operators.model_counts import parameter_counts
from simulator.operators.work import decode_step
from simulator.phases.attention_ffn import (
    AttentionFfn,
    attention_only,
    decode_estimate,
    decode_tables,
    ffn_only,
    ping_pong,
    ping_pong_seconds,
)
from simulator.phases.compiled import device_seconds
from simulator.phases.deployment import deploy
from simulator.phases.memory import memory_plan
from simulator.phases.step import estimate_step, sampling_s
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model

MODEL = "mixtral-8x7b"
LIMITS = EngineSpec(name="vllm", max_num_seqs=64, max_model_len=4096)


@cache
def parts(*, ranks: int = 4, devices: int = 8, micro_batches: int = 3, network: bool = True) -> AttentionFfn:
    hardware = load_hardware("h100")
    alone = hardware.scale_up.model_copy(update={"domain_size": 1})
    model = load_model(MODEL)
    attention = deploy(model=attention_only(model), hardware=hardware, engine=LIMITS)
    ffn = deploy(
        model=ffn_only(model),
        hardware=hardware.model_copy(update={"scale_up": alone}) if network else hardware,
        parallelism=ParallelismSpec(dp_size=devices, ep_size=devices),
        engine=LIMITS,
    )
    return AttentionFfn(
        attention=attention, ffn=ffn, ranks=ranks, micro_batches=micro_batches, layers=model.num_hidden_layers
    )


class TestPingPong:
    def test_one_micro_batch_waits_for_everything(self) -> None:
        took = ping_pong_seconds(attention_s=1.0, ffn_s=2.0, transfers_s=0.5, micro_batches=1, layers=10)
        assert took == pytest.approx(10 * 3.5)

    def test_enough_of_them_hide_all_but_the_slower_side(self) -> None:
        """Equation 5 of the paper: a + f + c + F (m L - 1)."""
        took = ping_pong_seconds(attention_s=1.0, ffn_s=2.0, transfers_s=0.5, micro_batches=4, layers=10)
        assert took == pytest.approx(3.5 + 2.0 * (4 * 10 - 1))

    @pytest.mark.parametrize(("transfer", "needed"), [(0.0, 2), (0.4, 3), (0.5, 3), (0.6, 4), (1.0, 4)])
    def test_how_many_hide_the_transfers(self, transfer: float, needed: int) -> None:
        """m >= 2 (1 + c / F) [Zhu2025]: three where a transfer takes up to half of either side, four beyond."""
        one = ping_pong(parts(), sequences=8, context=1000)
        equal = np.ones(1)
        even = replace(one, attention_s=equal, ffn_s=equal, dispatch_s=transfer * equal, combine_s=transfer * equal)
        assert even.needed_micro_batches[0] == needed
        times = [
            float(
                ping_pong_seconds(
                    attention_s=1.0, ffn_s=1.0, transfers_s=2 * transfer, micro_batches=count, layers=1000
                )
            )
            / count
            for count in (needed, needed + 1)
        ]
        assert times[1] == pytest.approx(times[0], rel=2e-3)

    def test_layers_and_micro_batches_only_add(self) -> None:
        for name, values in (("layers", (1, 2, 40)), ("micro_batches", (1, 2, 3, 8))):
            usual = {"layers": 5, "micro_batches": 3}
            times = [
                float(ping_pong_seconds(attention_s=1.0, ffn_s=1.5, transfers_s=0.7, **{**usual, name: value}))
                for value in values
            ]
            assert times == sorted(times)


class TestParts:
    def test_both_parts_are_the_model(self) -> None:
        model = load_model(MODEL)
        whole = parameter_counts(model).total
        ends = 2 * model.vocab_size * model.hidden_size
        split = parameter_counts(attention_only(model)).total + parameter_counts(ffn_only(model)).total
        assert split - ends == pytest.approx(whole, rel=1e-5)

    def test_an_instance_has_the_memory_of_the_experts_for_its_cache(self) -> None:
        model = load_model("qwen3-30b-a3b")
        both = memory_plan(deploy(model=model, hardware=load_hardware("h100")))
        alone = memory_plan(deploy(model=attention_only(model), hardware=load_hardware("h100")))
        assert both.fits
        assert alone.kv_bytes_per_token == both.kv_bytes_per_token
        assert alone.kv_capacity_tokens > 3 * both.kv_capacity_tokens
        assert memory_plan(parts().ffn).kv_bytes_per_token == 0

    def test_the_sides_do_what_one_device_would_do(self) -> None:
        """One micro-batch, as many devices on both sides: the rows of a replica with attention ranks, added up."""
        both = parts(ranks=8, micro_batches=1, network=False)
        whole = deploy(
            model=load_model(MODEL),
            hardware=load_hardware("h100"),
            parallelism=ParallelismSpec(dp_size=8, ep_size=8),
            engine=LIMITS,
        )
        step = estimate_step(whole, decode_step(sequences=16, context=2000))
        apart = ping_pong(both, sequences=16, context=2000)
        assert apart.step_s[0] == pytest.approx(step.stage_s.sum(), rel=0.02)

    def test_more_devices_for_experts_make_that_side_no_slower(self) -> None:
        times = [float(ping_pong(parts(devices=size), sequences=48, context=500).ffn_s[0]) for size in (2, 4, 8)]
        assert all(more <= less for less, more in pairwise(times))

    @pytest.mark.parametrize("sequences", [48, 4096])
    def test_a_shared_domain_moves_tokens_no_later(self, sequences: float) -> None:
        far, near = (ping_pong(parts(network=network), sequences=sequences, context=500) for network in (True, False))
        assert near.dispatch_s + near.combine_s <= (far.dispatch_s + far.combine_s) * (1 + 1e-12)
        assert near.attention_s == far.attention_s

    def test_a_micro_batch_without_a_sequence_is_none(self) -> None:
        few, many = (ping_pong(parts(micro_batches=count), sequences=[0.2, 1, 2], context=500) for count in (2, 64))
        assert list(many.micro_batches) == [1, 1, 2]
        assert many.step_s == pytest.approx(few.step_s)
        found = decode_estimate(parts(micro_batches=64), sequences=[1, 2], context=500)
        assert sum(found.breakdown_s.values()) == pytest.approx(found.step_s)

    def test_every_token_crosses(self) -> None:
        """Of tokens of its own group each of two devices keeps half; between the sides all go."""
        two = parts(devices=2)
        crossing = ping_pong(two, sequences=480, context=500)
        own = estimate_step(two.ffn, decode_step(sequences=480 / 3 * 4 / 2, context=1.0))
        sent = next(row for row in own.rows if row.work.name == "experts_dispatch")
        assert crossing.dispatch_s[0] * two.layers > 1.3 * float(sent.seconds[0])

    def test_a_dense_model_has_nothing_to_move(self) -> None:
        with pytest.raises(RoofcastError, match="no experts"):
            attention_only(load_model("llama-3.1-8b"))


class TestStep:
    def test_its_rows_add_up_to_it(self) -> None:
        found = decode_estimate(parts(), sequences=[8, 32], context=[500, 3000])
        assert sum(found.breakdown_s.values()) == pytest.approx(found.step_s)
        assert found.step_s - found.host_s == pytest.approx(
            ping_pong(parts(), sequences=[8, 32], context=[500, 3000]).step_s
        )
        assert found.devices == 4 + 8
        assert (found.mfu > 0).all()
        assert (found.mfu < 1).all()
        assert (found.mbu < 1).all()

    @pytest.mark.parametrize(("sequences", "context"), [(1, 100), (7, 900), (32, 2048), (64, 4000)])
    def test_tables_hold_the_step(self, sequences: int, context: int) -> None:
        tables = decode_tables(parts())
        read = float(device_seconds(tables, 0, 0, 0, 0, sequences, 1, sequences * context))
        drawn = float(sampling_s(parts().attention, np.array([float(sequences)]))[0])
        step = ping_pong(parts(), sequences=sequences, context=context).step_s[0]
        assert read == pytest.approx(step, rel=0.06, abs=2 * drawn)
