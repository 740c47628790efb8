"""``studies.kv_tiers``, ``encoder_pool``, ``search.beside_replicas``: tiers below caches, encoders of pictures."""

from __future__ import annotations

import json
import re
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.engine.encoders import pool_wait_mean_s, wait_percentile_s
from simulator.errors import InfeasibleError, RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.availability import DEFAULT_MTTR_HOURS, replica_unavailability, spares_for
from simulator.planner.plan import plan_capacity
from simulator.planner.search.beside_replicas import check_beside
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import resolve, tier_tokens
from simulator.planner.search.search import try_platforms
from simulator.planner.studies.encoder_pool import EncoderFleet, NoEncoders, NotPossible
from simulator.planner.studies.kv_tiers import KvTiersFound
from simulator.planner.verification import traces
from simulator.planner.verification.traces import steady_states
from simulator.reports.content.document import Paragraph, Table
from simulator.reports.handoff.launch import launch_handoff
from simulator.reports.sections.beside_replicas import encoder_blocks, kv_tiers_blocks, saved_text
from simulator.reports.tables.plan_document import plan_document
from simulator.reports.words.fields import plan_command
from simulator.specs.model.loading import load_model
from simulator.specs.question.plan import plan_spec
from simulator.traffic.recorded.traces import read_trace, replica_shares
from simulator.traffic.requests import Requests

SLOW = {"tpot_p95": "200ms"}
TURNS, APART_MS, TURN_BLOCKS = 4, 60_000, 4
PICTURES = {
    "model": "qwen2.5-vl-7b",
    "hardware": "h100",
    "tp": 1,
    "rps": 20.0,
    "images_per_request": 4,
    "isl": 6500,
    "osl": 100,
    "ttft_p95": "2s",
    "tpot_p95": "60ms",
}


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> str:
    """120 conversations of four turns a minute apart, each longer by 2,048 tokens, after one common block."""
    rng, rows = np.random.default_rng(1), []
    for number, start_ms in enumerate(rng.uniform(0, 300_000, 120)):
        for turn in range(TURNS):
            own = [1 + 100 * number + place for place in range(TURN_BLOCKS * (turn + 1))]
            rows.append((start_ms + turn * APART_MS, [0, *own]))
    path = tmp_path_factory.mktemp("trace") / "conversations.jsonl"
    lines = [
        {"timestamp": int(at), "input_length": 512 * len(blocks), "output_length": 60, "hash_ids": blocks}
        for at, blocks in sorted(rows)
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return str(path)


@cache
def planned(trace: str | None, *tiers: str, **fields: Any) -> CapacityPlan:
    # In FP8 the device's own cache holds what is found again here.
    formats = {"weights": "fp8", "kv_cache": "bf16"}
    question = {"trace": trace, "model": "llama-3.1-8b", "hardware": "l4", "tp": 1, **formats}
    bounds = {"round_to": "device", "ttft_p95": "3s", "tpot_p95": "100ms"}
    return plan_capacity(plan_spec({**question, **bounds, "kv_tiers": tiers, **fields}))


def found_tiers(plan: CapacityPlan) -> KvTiersFound:
    found = plan.study(KvTiersFound)
    assert found is not None
    return found


def endless_hits(requests: Requests) -> int:
    """Findable blocks of prompts that stood in one before."""
    seen: set[int] = set()
    hits = 0
    for place in range(len(requests)):
        start, end = requests.list_start[place : place + 2]
        blocks = requests.block_ids[start:end].tolist()
        hits += sum(block in seen for block in blocks)
        seen.update(blocks)
    return hits


class TestTiers:
    @pytest.mark.slow
    def test_hits_come_from_the_prompts_that_come_again(self, conversations: str) -> None:
        """Of 44 blocks in four turns 24 + 3 stood in the turns before; a share of the draws lacks the turn before."""
        found = found_tiers(planned(conversations, "host:4e10"))
        device, host = found.levels
        assert (device.medium, host.medium) == ("device", "host")
        assert host.hit_fraction > 0.1
        assert device.hit_fraction + host.hit_fraction < 27 / 44
        assert host.hit_fraction == pytest.approx(host.reuse_fraction, abs=0.03)

    @pytest.mark.slow
    def test_the_fleet_is_priced_against_the_one_without(self, conversations: str) -> None:
        plan = planned(conversations, "host:4e10")
        found, plain = found_tiers(plan), planned(conversations)
        assert plain.study(KvTiersFound) is None
        assert found.without_devices == plain.best.devices
        assert found.without_per_hour == pytest.approx(plain.best.cost.per_hour)
        assert found.saved_devices == plain.best.devices - plan.best.devices >= 1
        assert found.stored_bytes == 4e10 * found.replicas == 4e10 * plan.best.devices
        terabytes, hours = found.stored_bytes / 1e12, 365 * 24 / 12
        assert found.worth_per_tb_month == pytest.approx(found.saved_per_hour * hours / terabytes)
        assert plan.verification is not None
        assert plan.verification.holds

    @pytest.mark.slow
    def test_every_output_names_them(self, conversations: str) -> None:
        plan = planned(conversations, "host:4e10")
        (table,) = kv_tiers_blocks(plan)
        assert "whose replicas take prompts in turn, the fleet saves" in table.note
        assert "a TB and month they pay" in table.note
        document = json.loads(plan_document(plan))
        assert [level["medium"] for level in document["kv_tiers"]["levels"]] == ["device", "host"]
        inputs = {item["name"]: item["value"] for item in document["assumptions"]}
        assert inputs["tiers below a replica's cache"] == "host 40.0 GB"
        assert "--kv-tiers host:4e10" in plan_command(plan.spec)
        handed = launch_handoff(
            plan.best, model_id="m", scheme=plan.best.scheme, demand=plan.demand, objectives=plan.objectives
        )
        launch = next(file.text for file in handed.files if file.name == "launch-vllm.sh")
        assert "--kv-offloading-size 37" in launch
        assert "--kv-offloading-backend native" in launch
        assert any("begin alike" in note for note in handed.notes)

    @pytest.mark.slow
    def test_pages_of_one_token_are_replayed_in_blocks_as_they_would_be_alone(
        self, conversations: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = {"trace": conversations, "model": "llama-3.1-8b", "hardware": "l4", "tp": 1, "engine": "sglang"}
        question = resolve(plan_spec({**asked, "ttft_p95": "3s", "tpot_p95": "100ms", "kv_tiers": ("host:4e10",)}))
        sized = try_platforms(question, platforms(question.spec)).trial.sized[0]
        steady = steady_states(question, sized)(sized.replicas)
        found = []
        for block in (1, 16):
            monkeypatch.setattr(traces, "LEAST_BLOCK", block)
            check = traces.trace_check(question, sized.evaluated, steps=traces.COARSE_STEPS)
            assert check.served.deployment.engine.block_size_tokens == block
            found.append([item.simulated_s for item in check.at(sized.replicas, steady=steady).objectives])
        assert found[1] == pytest.approx(found[0], rel=0.03)

    def test_prompts_that_begin_alike_go_to_one_replica(self, conversations: str) -> None:
        trace = read_trace(conversations)
        known = replica_shares(trace, times=1.0, replicas=3, places=range(3), seed=0, by_prefix=True)
        turned = replica_shares(trace, times=1.0, replicas=3, places=range(3), seed=0)
        assert sum(map(len, known)) == sum(map(len, turned))
        assert max(map(len, known)) < 1.5 * min(map(len, known))
        # Hits of endless caches: what a conversation finds of its own turns is not spread over replicas.
        alone, spread = (sum(map(endless_hits, shares)) for shares in (known, turned))
        assert alone > 1.5 * spread

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"isl": 100.0}, "isl_tokens"),
            ({"prefix_hit": 0.3}, "prefix_hit"),
            ({"serving": "disaggregated"}, "two pools"),
            ({"trace": None, "rps": 1.0}, "changes nothing without `trace`"),
            ({"kv_tiers": ("nvme:1e12",)}, "bytes_per_s"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, conversations: str, fields: dict[str, Any], said: str) -> None:
        with pytest.raises(RoofcastError, match=said) as refused:
            planned(fields.pop("trace", conversations), **{"kv_tiers": ("host:1e10",), **fields})
        assert refused.value.field == "kv_tiers"

    @pytest.mark.parametrize("more", [{}, {"hardware": ("l4", "h100"), "tp": ()}])
    def test_tiers_faster_than_every_host_link_are_refused_before_the_search(
        self, conversations: str, more: dict[str, Any]
    ) -> None:
        """A replica's host links carry 32 GB/s a device on PCIe 4, 64 on PCIe 5."""
        asked = {"trace": conversations, "model": "llama-3.1-8b", "hardware": "l4", "tp": 1, **more}
        with pytest.raises(RoofcastError, match="at most 5.1.e\\+11" if more else "at most 3.2e\\+10") as refused:
            plan_capacity(plan_spec({**asked, "kv_tiers": ("host:1e10,bytes_per_s=9e12",)}))
        assert (refused.value.field, refused.value.code) == ("kv_tiers", "out_of_range")
        check_beside(resolve(plan_spec({**asked, "kv_tiers": ("host:1e10,bytes_per_s=3e10",)})))

    def test_tiers_keep_tokens_in_the_format_of_the_plan(self) -> None:
        """131,072 bytes a token of Llama 3.1 8B in 16 bits, half of that in FP8."""
        model = load_model("llama-3.1-8b")
        asked = {"model": "llama-3.1-8b", "hardware": "l4", "trace": "any", "kv_tiers": ("host:131072e4",)}
        formats: list[tuple[dict[str, str], float]] = [
            ({"weights": "bf16"}, 1e4),
            ({"kv_cache": "fp8"}, 2e4),
            ({"weights": "fp8"}, 2e4),
            ({"weights": "fp8", "kv_cache": "bf16"}, 1e4),
            # TGI takes no format of the cache from a checkpoint.
            ({"weights": "fp8", "engine": "tgi"}, 1e4),
            ({"kv_cache": "fp8", "engine": "tgi"}, 2e4),
        ]
        for fields, tokens in formats:
            assert tier_tokens(plan_spec({**asked, **fields}), model=model) == tokens

    def test_a_trace_that_does_not_know_its_prompts_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "plain.jsonl"
        rows = [{"timestamp": 1000 * at, "input_length": 900, "output_length": 20} for at in range(100)]
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        with pytest.raises(RoofcastError, match="does not tell which prompts begin alike"):
            planned(str(path), "host:1e10")


@cache
def with_encoders(*names: str, **fields: Any) -> CapacityPlan:
    return plan_capacity(plan_spec({**PICTURES, "encoder_hardware": names, **fields}))


def found_none(plan: CapacityPlan) -> tuple[NotPossible, ...]:
    """Why no kind of encoders serves."""
    found = plan.study(NoEncoders)
    assert found is not None
    assert plan.study(EncoderFleet) is None
    return found.not_possible


class TestEncoders:
    def test_a_pool_keeps_up_and_leaves_the_fleet_less_to_do(self) -> None:
        plan = with_encoders("l40s")
        found = plan.study(EncoderFleet)
        assert found is not None
        rate = plan.demand.planned_rate_per_s
        assert found.busy_fraction == pytest.approx(rate * found.request_s / found.replicas)
        assert found.busy_fraction < 0.9
        assert found.wait_p95_s <= found.request_s
        assert found.fleet_replicas < plan.best.replicas
        assert found.devices % 8 == found.fleet_devices % 8 == 0
        assert found.saved_devices == plan.best.devices - found.devices - found.fleet_devices
        assert found.saved_per_hour == pytest.approx(plan.best.cost.per_hour - found.total_per_hour)

    @pytest.mark.slow
    def test_the_cheapest_kind_is_shown(self) -> None:
        both, one = (with_encoders(*names).study(EncoderFleet) for names in (("h100", "l40s"), ("l40s",)))
        other = with_encoders("h100").study(EncoderFleet)
        assert both is not None
        assert one is not None
        assert other is not None
        assert both.total_per_hour == min(one.total_per_hour, other.total_per_hour)
        assert both.hardware in ("h100-sxm-80gb", "l40s")

    def test_a_kind_that_cannot_serve_is_said_and_refuses_no_other(self) -> None:
        found = with_encoders("l4", "l40s", ttft_p95="1200ms").study(EncoderFleet)
        assert found is not None
        assert found.hardware == "l40s"
        (refused,) = found.not_possible
        assert (refused.hardware, refused.code) == ("l4", "infeasible")
        assert refused.reason.startswith("no replica meets the objectives in the time that encoding leaves")
        (table,) = encoder_blocks(with_encoders("l4", "l40s", ttft_p95="1200ms"))
        assert isinstance(table, Table)
        assert "It is not possible with l4 (no replica meets" in table.note

    @pytest.mark.parametrize(
        ("hardware", "fields", "code", "said"),
        [
            ("l40s", {"max_gpus": 8, **SLOW}, "over_budget", "encoders alone take 8 of the 8 GPUs allowed"),
            ("l40s", {"max_power_kw": 12, **SLOW}, "over_budget", r"replicas take 10.2 of the [\d.]+ kW nameplate"),
            ("l40s", {"max_racks": 1, **SLOW}, "over_budget", "encoders alone take 1 of the 1 racks allowed"),
            ("l4", {"ttft_p95": "800ms"}, "infeasible", r"encoding takes [\d.]+ s of TTFT p95, which allows 0.8 s"),
        ],
    )
    def test_encoders_that_cannot_serve_leave_the_plan_as_it_is_without(
        self, hardware: str, fields: dict[str, Any], code: str, said: str
    ) -> None:
        plan, alone = with_encoders(hardware, **fields), with_encoders(**fields)
        assert plan.best == alone.best
        (refused,) = found_none(plan)
        assert (refused.hardware, refused.code) == (hardware, code)
        assert re.match(said, refused.reason)
        (block,) = encoder_blocks(plan)
        assert isinstance(block, Paragraph)
        assert f"not possible with {hardware} ({refused.reason})" in block.text
        document = json.loads(plan_document(plan))["encoder_pool"]
        assert document == {"not_possible": [{"hardware": hardware, "code": code, "reason": refused.reason}]}

    def test_what_replicas_take_is_written_out(self) -> None:
        """Of five digits too, not as a power of ten."""
        asked: dict[str, Any] = {"rps": 80_000.0, "round_to": "device", "spares": 0, **SLOW}
        devices = with_encoders(**asked).best.devices
        (refused,) = found_none(with_encoders("l40s", max_gpus=devices, **asked))
        assert re.match(r"replicas take \d\d,\d{3} of the [\d,]+ GPUs that encoders leave", refused.reason)

    @pytest.mark.slow
    def test_limits_are_those_of_encoders_and_replicas_together(self) -> None:
        free = with_encoders("l40s", round_to="device").study(EncoderFleet)
        assert free is not None
        both = free.devices + free.fleet_devices
        kept = with_encoders("l40s", round_to="device", max_gpus=both).study(EncoderFleet)
        assert kept is not None
        assert kept.devices + kept.fleet_devices <= both
        (refused,) = found_none(with_encoders("l40s", round_to="device", max_gpus=both - 1))
        # What the steady state still holds and the simulation does not is refused, not shown as if it served.
        left = free.fleet_devices - 1
        assert refused.reason == f"replicas need more, simulated, than the {left} GPUs that encoders leave"
        (refused,) = found_none(with_encoders("l40s", round_to="device", max_gpus=both - 2))
        assert refused.reason.startswith(f"replicas take {left} of the ")
        # At three times the rate they cost less than replicas that encode for themselves.
        free = with_encoders("l40s", round_to="device", rps=60.0).study(EncoderFleet)
        assert free is not None
        assert free.total_per_hour is not None
        with pytest.raises(InfeasibleError) as refused:
            with_encoders("l40s", round_to="device", rps=60.0, max_cost_per_hour=free.total_per_hour + 0.1)
        assert f"{free.devices} x l40s in front of {free.fleet_devices} x h100-sxm-80gb" in refused.value.hint
        with pytest.raises(InfeasibleError) as refused:
            with_encoders("l40s", round_to="device", rps=60.0, max_cost_per_hour=free.total_per_hour - 0.1)
        assert "l40s" not in refused.value.hint

    @pytest.mark.slow
    def test_an_availability_is_that_of_both_together(self) -> None:
        """Each half gets the root of it, so that spares are as for a fleet of two pools."""
        asked = {"availability": 99.9, "mtbf_hours": 500.0, "round_to": "device"}
        plan = with_encoders("l40s", **asked)
        found = plan.study(EncoderFleet)
        assert found is not None
        down = replica_unavailability(devices=1, mtbf_hours=500.0, mttr_hours=DEFAULT_MTTR_HOURS)
        for replicas, spares in ((found.replicas, found.spares), (found.fleet_replicas, found.fleet_spares)):
            assert spares == spares_for(replicas=replicas, unavailability=down, target=0.999**0.5)

    def test_every_output_names_them(self) -> None:
        plan = with_encoders("l40s")
        (table,) = encoder_blocks(plan)
        assert "A request is encoded in" in table.note
        document = json.loads(plan_document(plan))["encoder_pool"]
        assert document["hardware"] == "l40s"
        assert document["power_max_w"] > 8 * 350
        assert document["not_possible"] == []

    def test_what_makes_no_sense_is_refused(self) -> None:
        with pytest.raises(RoofcastError, match="changes nothing without `images_per_request`"):
            with_encoders("l40s", images_per_request=None)
        with pytest.raises(RoofcastError, match="embeddings from mi300x"):
            with_encoders("mi300x")


class TestWait:
    def test_the_tail_has_the_mean_of_the_queue(self) -> None:
        """An exponential tail above the share that waits: its mean over all requests is the closed form's."""
        queue = {"rate_per_s": 8.0, "service_s": 0.1, "servers": 1}
        levels = np.linspace(0.0005, 99.9995, 100_000)
        waits = np.array([wait_percentile_s(percentile=level, **queue) for level in levels[::100]])
        assert waits.mean() == pytest.approx(pool_wait_mean_s(**queue), rel=0.02)

    def test_more_servers_wait_less_and_full_ones_for_ever(self) -> None:
        waits = [
            wait_percentile_s(rate_per_s=20, service_s=0.2, servers=servers, percentile=95) for servers in (4, 5, 6, 9)
        ]
        assert waits[0] == inf
        assert waits == sorted(waits, reverse=True)
        assert waits[-1] < 0.1 * waits[1]
        assert wait_percentile_s(rate_per_s=1, service_s=0.01, servers=1, percentile=95) == 0.0


def test_what_is_saved_is_said_in_words() -> None:
    assert saved_text(devices=1, per_hour=2.0, currency="USD") == "saves 1 accelerator and costs $2.00/h less"
    assert saved_text(devices=-8, per_hour=None, currency="USD") == "takes 8 accelerators more"
