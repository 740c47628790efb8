"""Limits that engines take by themselves: published values by release and device, what wins, and which rule is said."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.phases.deployment import deploy
from simulator.phases.memory import memory_plan
from simulator.planner.records import Platform
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import own_limits
from simulator.reports.words.fields import assumption_texts
from simulator.specs.base import validate
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineProfile, EngineSpec, engine_limits, load_engine
from simulator.specs.engine.releases import (
    LIMIT_FIELDS,
    EngineLimits,
    LimitRule,
    MemoryShare,
    nearest_release,
    release_number,
)
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.profiles import list_profiles
from simulator.specs.question.plan import PlanSpec
from simulator.units import GIB
from tests.for_every import for_every


def limits(engine: str, hardware: str, *, tp_size: int = 1, version: str | None = None) -> EngineLimits:
    return engine_limits(
        EngineSpec(name=engine, version=version),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(tp_size=tp_size),
    )


# shared/data/fact_corrections.csv: vllm/engine/arg_utils.py of both releases.
@pytest.mark.parametrize(
    ("hardware", "version", "tokens", "sequences", "share", "graphs"),
    [
        ("h100", "0.15.1", 8192, 1024, 0.9, 512), ("h200", "0.15.1", 8192, 1024, 0.9, 512),
        ("mi300x", "0.15.1", 8192, 1024, 0.9, 512), ("a100-sxm-80gb", "0.15.1", 2048, 256, 0.9, 512),
        ("a100-sxm-40gb", "0.15.1", 2048, 256, 0.9, 512), ("l40s", "0.15.1", 2048, 256, 0.9, 512),
        ("tpu-v6e", "0.15.1", 1024, 256, 0.9, 512), ("tpu-v5e", "0.15.1", 512, 256, 0.9, 512),
        ("tpu-v5p", "0.15.1", 256, 256, 0.9, 512), ("b200", "0.15.1", 8192, 1024, 0.9, 512),
        ("b200", "0.33.0", 16384, 1024, 0.92, 1024), ("gb300", "0.33.0", 16384, 1024, 0.92, 1024),
        ("mi300x", "0.33.0", 16384, 1024, 0.92, 512), ("h100", "0.33.0", 8192, 1024, 0.92, 512),
        ("a100", "0.33.0", 2048, 256, 0.92, 512), ("rtx-5090", "0.33.0", 2048, 256, 0.92, 512),
    ],
)  # fmt: skip
def test_vllm_as_its_argument_code_says(
    hardware: str, version: str, tokens: int, sequences: int, share: float, graphs: int
) -> None:
    found = limits("vllm", hardware, version=version)
    assert (found.max_num_batched_tokens, found.max_num_seqs) == (tokens, sequences)
    assert (found.gpu_memory_utilization, found.cuda_graph_max_sequences) == (share, graphs)


# The same file: python/sglang/srt/server_args.py 0.5.6, and 0.5.23 in the last rows.
@pytest.mark.parametrize(
    ("hardware", "tp_size", "version", "tokens", "graphs"),
    [
        ("t4", 1, "0.5.6", 2048, 8), ("l4", 1, "0.5.6", 2048, 24), ("l4", 4, "0.5.6", 2048, 80),
        ("l40s", 1, "0.5.6", 4096, 32), ("l40s", 4, "0.5.6", 4096, 160), ("h100", 1, "0.5.6", 8192, 256),
        ("h100", 8, "0.5.6", 8192, 512), ("h200", 2, "0.5.6", 8192, 256), ("h200", 4, "0.5.6", 8192, 512),
        ("b200", 1, "0.5.6", 16384, 512), ("mi300x", 8, "0.5.6", 16384, 512),
        ("l4", 1, "0.5.23", 4096, 48), ("l4", 4, "0.5.23", 4096, 160), ("h100", 1, "0.5.23", 8192, 256),
    ],
)  # fmt: skip
def test_sglang_by_memory_and_degree(hardware: str, tp_size: int, version: str, tokens: int, graphs: int) -> None:
    found = limits("sglang", hardware, tp_size=tp_size, version=version)
    assert (found.max_num_batched_tokens, found.cuda_graph_max_sequences) == (tokens, graphs)
    assert found.max_num_seqs == 2048


@pytest.mark.parametrize(("tp_size", "share"), [(1, 0.835), (8, 0.818)])
def test_sglangs_share_of_the_memory_is_what_its_source_says(tp_size: int, share: float) -> None:
    """Of nvidia-smi's 81,559 MiB; torch sees 0.6 % less."""
    assert limits("sglang", "h100", tp_size=tp_size).gpu_memory_utilization == pytest.approx(share, abs=0.0015)


def test_other_engines_as_their_sources_say() -> None:
    tensorrt, tgi, slots = limits("tensorrt-llm", "h100"), limits("tgi", "h100"), limits("llama.cpp", "rtx-4090")
    assert (tensorrt.chunked_prefill, tensorrt.cuda_graph_max_sequences) == (False, 128)
    assert (tgi.cuda_graph_max_sequences, tgi.block_size_tokens) == (32, 1)
    assert (slots.max_num_seqs, slots.max_num_batched_tokens) == (4, 512)
    assert limits("llama.cpp", "rtx-4090", version="b6000").max_num_seqs == 1
    assert limits("sglang", "h100", version="0.5.23").block_size_tokens == 64


SHARE = MemoryShare(
    fixed_mib=512, per_token_mib=1.5, least_tokens=2048, per_graph_sequence_mib=2, per_device_mib=128,
    least_mib=10240, least_from_gib=60,
)  # fmt: skip


def test_a_share_falls_with_everything_that_needs_room_and_rises_with_the_memory() -> None:
    def share(memory_gib: float = 40, tokens: int = 8192, graph_sequences: int = 256, devices: int = 1) -> float:
        return SHARE.share(
            memory_bytes=memory_gib * GIB, tokens=tokens, graph_sequences=graph_sequences, devices=devices
        )

    assert 0 < share() < 1
    assert share(tokens=16384) < share()
    assert share(graph_sequences=512) < share()
    assert share(devices=8) < share()
    assert share(memory_gib=48) > share()
    assert share(tokens=1) == share(tokens=2048), "fewer tokens need as much"
    assert share(memory_gib=80, tokens=1, graph_sequences=1) == 1 - 10240 / 81920, "at least 10 GiB on large devices"


def test_what_the_user_gives_wins_and_a_share_follows_the_given_tokens() -> None:
    given = EngineSpec(max_num_batched_tokens=4096, max_num_seqs=64, gpu_memory_utilization=0.8, chunked_prefill=False)
    place = {"hardware": load_hardware("h100"), "parallelism": ParallelismSpec()}
    found = engine_limits(given, **place)
    assert all(
        getattr(found, name) == getattr(given, name)
        for name in LIMIT_FIELDS
        if hasattr(given, name) and getattr(given, name)
    )
    assert found.chunked_prefill is False
    smaller = engine_limits(EngineSpec(name="sglang", max_num_batched_tokens=2048), **place)
    assert smaller.gpu_memory_utilization > limits("sglang", "h100").gpu_memory_utilization
    fixed = engine_limits(EngineSpec(name="sglang", max_num_batched_tokens=2048, gpu_memory_utilization=0.5), **place)
    assert fixed.gpu_memory_utilization == 0.5


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("0.15.1", "0.15.1"), ("0.15", "0.15.1"), ("0.5.4", "0.15.1"), ("0.20.0", "0.15.1"), ("0.32.1", "0.33.0"),
        ("0.33", "0.33.0"), ("1.0", "0.33.0"), ("main", "0.33.0"), ("nightly", "0.33.0"),
    ],
)  # fmt: skip
def test_a_release_without_rules_takes_the_nearest(asked: str, nearest: str) -> None:
    assert nearest_release(asked, ("0.33.0", "0.15.1")) == nearest


def test_numbers_of_releases() -> None:
    assert release_number("v0.15.1.post1") == (0, 15, 1)
    assert release_number("b6000") == (6000,)
    assert release_number("master") == ()
    assert nearest_release("b4000", ("master", "b6000")) == "b6000"
    assert nearest_release("master", ("b6000", "master")) == "master"


def said(engine: str, hardware: str, *, version: str | None = None) -> list[str]:
    spec = EngineSpec(name=engine, version=version)
    return assumption_texts(
        deploy(model=load_model("llama-3.1-8b"), hardware=load_hardware(hardware), engine=spec).assumptions
    )


def test_the_rule_and_the_release_are_said() -> None:
    assert "engine.max_num_seqs = 1024 (default of vllm 0.15.1: 70 GiB and more, not a100)" in said("vllm", "h100")
    assert "engine.max_num_seqs = 256 (default of vllm 0.15.1)" in said("vllm", "a100")
    nearest = "default of vllm 0.15.1, the release nearest to 0.12.0 with known rules"
    assert f"engine.max_num_seqs = 256 ({nearest})" in said("vllm", "l4", version="0.12.0")
    assert "engine.max_num_batched_tokens = 4096 (default of sglang 0.5.6: 35 to 60 GiB)" in said("sglang", "l40s")
    assert any("gpu_memory_utilization = 0.83" in text and "by its formula" in text for text in said("sglang", "h100"))


def test_a_step_takes_no_more_than_all_sequences_at_their_longest() -> None:
    spec = EngineSpec(max_num_seqs=1, max_model_len=4096)
    replica = deploy(model=load_model("llama-3.1-8b"), hardware=load_hardware("h100"), engine=spec)
    assert replica.engine.max_num_batched_tokens == 4096
    text = "engine.max_num_batched_tokens = 4096 (max_num_seqs x max_model_len)"
    assert text in assumption_texts(replica.assumptions)


@pytest.mark.parametrize("hardware", ["h100", "l4", "rtx-4090", "b200"])
def test_a_static_share_leaves_the_cache_what_it_says(hardware: str) -> None:
    """However many requests may run: SGLang profiles no sampling of all of them."""
    replica = deploy(
        model=load_model("llama-3.1-8b"), hardware=load_hardware(hardware), engine=EngineSpec(name="sglang")
    )
    memory = memory_plan(replica)
    share = replica.engine.gpu_memory_utilization * replica.hardware.memory_visible_bytes
    assert memory.kv_capacity_bytes == pytest.approx(share - memory.weights_bytes)


@for_every(list_profiles("engines"))
def test_a_search_sees_the_limits_that_a_replica_gets(engine: str) -> None:
    for name in ("h100", "a100", "l40s", "mi300x"):
        hardware = load_hardware(name)
        if hardware.vendor not in (load_engine(engine).runs_on or (hardware.vendor,)):
            continue
        replica = deploy(model=load_model("llama-3.1-8b"), hardware=hardware, engine=EngineSpec(name=engine))
        platform = Platform(hardware=hardware, server=None)
        found = own_limits(EngineSpec(name=engine), platform, profiles=None)
        assert found == (replica.engine.max_num_seqs, replica.engine.max_num_batched_tokens)


def test_rules_without_a_limit_a_source_or_the_profiles_version_are_refused() -> None:
    with pytest.raises(ValueError, match="a rule needs a limit"):
        LimitRule(memory_gib_at_least=70)
    with pytest.raises(ValueError, match="in place of"):
        LimitRule(gpu_memory_utilization=0.9, memory_share=SHARE)
    facts = load_engine("vllm").model_dump()
    with pytest.raises(Exception, match="have no source"):
        validate(EngineProfile, {**facts, "rules": {"0.15.1": [], "9.9": []}}, where="")
    with pytest.raises(Exception, match="lack the profile's own version"):
        validate(EngineProfile, {**facts, "version": "9.9"}, where="")


@pytest.mark.parametrize(("engine", "hardware"), [("tensorrt-llm", "mi355x"), ("atom", "b200-sxm")])
def test_an_engine_of_one_vendor_refuses_the_others_accelerators(engine: str, hardware: str) -> None:
    with pytest.raises(RoofcastError, match=f"{engine} does not run on {hardware}"):
        limits(engine, hardware)
    with pytest.raises(RoofcastError, match=f"{engine} does not run on {hardware}"):
        platforms(PlanSpec(model="llama-3.1-8b", rate_per_s=1, engine=engine, hardware=(hardware,)))
    offered = {item.hardware.vendor for item in platforms(PlanSpec(model="llama-3.1-8b", rate_per_s=1, engine=engine))}
    assert offered == set(load_engine(engine).runs_on)
