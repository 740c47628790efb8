"""Whole models with random weights: laws of a decoder, and a serving loop that loses no request."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from simulator.operators.model_counts import parameter_counts
from simulator.specs.measured.kernel_times import load_measurements
from simulator.specs.measured.serving_results import load_serving_runs
from simulator.specs.model.loading import load_model
from validation.measure.bench import Bench, bench_of
from validation.measure.table import Machine, Measured, Row, Shape, Table
from validation.measure.whole import decoder, steps
from validation.measure.whole.decoder import Architecture, Decoder, angles_of, decoder_of
from validation.measure.whole.loop import Loop, serve
from validation.measure.whole.serving import drawn_requests, main, result_of
from validation.measure.whole.steps import cached_attention, whole_groups

pytestmark = pytest.mark.oracle  # needs torch

CPU = bench_of("cpu")
GPU = Bench(device=torch.device("cuda"), cache_bytes=50 * 2**20, memory_bytes=140 * 10**9)
DENSE = Architecture(
    name="tiny",
    hidden_size=64,
    intermediate_size=96,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    num_hidden_layers=2,
    vocab_size=128,
)
EXPERTS = replace(DENSE, name="tiny-moe", num_experts=8, num_experts_per_tok=2, intermediate_size=32, qk_norm=True)
TOKENS = 12


@pytest.fixture(autouse=True)
def large_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what the layers add can be told from what comes in."""
    monkeypatch.setattr(decoder, "WEIGHT_SCALE", 0.3)
    torch.manual_seed(3)


def made(architecture: Architecture) -> Decoder:
    return decoder_of(architecture, bench=CPU, weights="bf16", layers=2, ends=True, tokens=TOKENS)


def hidden(model: Decoder, ids: torch.Tensor, *, chunks: tuple[int, ...]) -> torch.Tensor:
    """What the layers add to the tokens, pass by pass over a cache that grows."""
    width = model.architecture.head_dim
    kept = [torch.zeros(2, 1, 2, TOKENS, width, dtype=decoder.COMPUTE) for _ in model.layers]
    found, done = [], 0
    for count in chunks:
        caches = [cache[:, :, :, : done + count] for cache in kept]
        noise = None if model.noise is None else model.noise[done:]
        x = model.embedded(ids[done : done + count])
        angles = angles_of(torch.arange(done, done + count), head_dim=width)
        attention = cached_attention(caches, sequences=1)
        found.append(replace(model, noise=noise).hidden(x, attention=attention, angles=angles) - x)
        done += count
    return torch.cat(found).float()


@pytest.mark.parametrize("architecture", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_a_prompt_in_chunks_and_token_by_token_is_the_prompt_at_once(architecture: Architecture) -> None:
    model, ids = made(architecture), torch.randint(0, 128, (TOKENS,))
    with torch.inference_mode():
        whole = hidden(model, ids, chunks=(TOKENS,))
        for chunks in ((5, 7), (11, 1), (1,) * TOKENS):
            other = hidden(model, ids, chunks=chunks)
            assert (other - whole).norm() < 0.03 * whole.norm()
        moved = ids.clone()
        moved[0] += 1
        changed = hidden(model, moved % 128, chunks=(TOKENS,))
    assert (changed - whole).norm() > 0.2 * whole.norm()


def test_each_token_gets_the_weighted_sum_of_its_experts() -> None:
    model = made(EXPERTS)
    layer, x = model.layers[0], torch.randn(TOKENS, 64).to(decoder.COMPUTE)
    assert layer.router is not None
    assert model.noise is not None
    with torch.inference_mode():
        found = decoder._routed(EXPERTS, layer, x, model.noise).double()
    logits = model.noise.double() + x.double() @ layer.router.double().t()
    weights, experts = torch.topk(torch.softmax(logits, dim=-1), 2)
    expected = torch.zeros_like(found)
    for token in range(TOKENS):
        for weight, expert in zip(weights[token], experts[token], strict=True):
            gate, up = (x[token].double() @ layer.gate_up[expert].double().t()).chunk(2)
            row = (torch.nn.functional.silu(gate) * up) @ layer.down[expert].double().t()
            expected[token] += weight * row
    assert (found - expected).norm() < 0.03 * expected.norm()


@pytest.mark.parametrize("architecture", [decoder.LLAMA_8B, decoder.LLAMA_70B, decoder.QWEN3_30B_A3B])
def test_the_shapes_are_those_of_the_models(architecture: Architecture) -> None:
    model = load_model(architecture.name)
    assert (model.hidden_size, model.vocab_size) == (architecture.hidden_size, architecture.vocab_size)
    assert len(model.layer_order) == architecture.num_hidden_layers
    weights = architecture.num_hidden_layers * architecture.layer_parameters
    ends = 2 * architecture.vocab_size * architecture.hidden_size
    # Norms are the rest.
    assert weights + ends == pytest.approx(parameter_counts(model).total, rel=1e-4)


def test_steps_say_their_model_and_the_table_reads_it_back(tmp_path: Path) -> None:
    groups = whole_groups(GPU)
    assert len({group.name for group in groups}) == len(groups) == len(steps.PLANS)
    assert {case.shape.model for group in groups for case in group.cases} == {
        "llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b",
    }  # fmt: skip
    machine = Machine(device="d", driver="1", torch_version="2.11", date="2026-11-26")
    measured = Measured(seconds=0.01, spread=0.0, repeats=5, mode="graph")
    with Table(tmp_path / "m.csv", machine=machine) as table:
        for name in ("llama-3.1-70b", ""):
            shape = Shape(model=name, sequences=1, query_tokens=1, context_tokens=512, layers=80)
            table.write(Row(family="whole_model", kernel="decode", format="fp8", shape=shape, measured=measured))
    assert [row.model for row in load_measurements(tmp_path / "m.csv").rows] == ["llama-3.1-70b", ""]


def test_the_loop_serves_every_request_in_order() -> None:
    with torch.inference_mode():
        loop = Loop(made(DENSE), bench=CPU, slots=3, tokens=20)
        requests = drawn_requests(8, isl_tokens=TOKENS, osl_tokens=5, rate_per_s=1000.0, seed=2)
        serve(loop, requests)
    assert sorted(loop.free) == [0, 1, 2]
    for request in requests:
        assert len(request.token_s) == request.osl_tokens
        assert request.arrival_s <= request.token_s[0]
        assert request.token_s == sorted(request.token_s)
    firsts = [request.token_s[0] for request in requests]
    assert firsts == sorted(firsts)
    # Never more than the slots at once.
    for request in requests:
        at = request.token_s[0]
        assert sum(other.token_s[0] <= at < other.token_s[-1] for other in requests) <= 3
    result = result_of(requests, model="tiny", rate_per_s=1000.0)
    assert result["total_output_tokens"] == sum(request.osl_tokens for request in requests)


def test_a_step_of_a_slot_is_the_next_token_of_its_prompt() -> None:
    """Slots are read where each request lies, whatever stands beside it: alone and among others come the same ids."""
    model = made(DENSE)

    def ids(slots: int, others: int) -> list[int]:
        torch.manual_seed(5)
        loop = Loop(model, bench=CPU, slots=slots, tokens=20)
        running = drawn_requests(1 + others, isl_tokens=TOKENS, osl_tokens=8, rate_per_s=1.0, seed=4)
        found = []
        for request in running:
            loop.prefill(request)
            request.token_s.append(0.0)
        for _ in range(3):
            loop.decode(running)
            for request in running:
                request.token_s.append(0.0)
            found.append(int(loop.last_ids[running[0].slot]))
        return found

    with torch.inference_mode():
        assert ids(1, 0) == ids(4, 3) == ids(6, 2)


def test_results_are_written_as_vllm_writes_them(tmp_path: Path) -> None:
    words = ["--device", "cpu", "--rate", "200", "--rate", "400", "--out", str(tmp_path / "served-{load}.json")]
    code = main(
        [*words, "--requests", "5", "--isl-tokens", "8", "--osl-tokens", "3", "--slots", "2"], architecture=DENSE
    )
    assert code == 0
    for rate in ("200", "400"):
        result = json.loads((tmp_path / f"served-{rate}.json").read_text("utf-8"))
        assert result["completed"] == len(result["ttfts"]) == len(result["start_times"]) == 5
    assert main([*words, "--requests", "5"], architecture=DENSE) == 5
    one = ["--device", "cpu", "--rate", "200", "--rate", "400", "--out", str(tmp_path / "one.json")]
    assert main(one, architecture=DENSE) == 2
    assert not (tmp_path / "one.json").exists()


def test_clients_of_a_closed_loop_wait_for_their_answers(tmp_path: Path) -> None:
    words = ["--device", "cpu", "--in-flight", "2", "--in-flight", "3", "--out", str(tmp_path / "closed-{load}.json")]
    sizes = ["--isl-tokens", "8", "--osl-tokens", "4", "--slots", "3", "--rounds", "4"]
    assert main([*words, *sizes], architecture=DENSE) == 0
    for clients in (2, 3):
        result = json.loads((tmp_path / f"closed-{clients}.json").read_text("utf-8"))
        assert result["completed"] == 4 * clients
        assert (result["max_concurrency"], result["request_rate"]) == (clients, "inf")
        starts = np.array(result["start_times"])
        ends = starts + np.array(result["ttfts"]) + np.array([sum(gaps) for gaps in result["itls"]])
        assert (np.diff(starts) >= 0).all()
        assert (starts[:clients] < ends.min()).all()
        for at in starts:
            # The one that comes takes the place of one that is answered.
            assert ((starts <= at) & (ends > at)).sum() <= clients
        (run,) = load_serving_runs(str(tmp_path / f"closed-{clients}.json"))
        assert run.concurrency == clients
        assert run.request_rate_per_s is None or np.isinf(run.request_rate_per_s)


def test_loads_that_cannot_run_are_refused_before_any_time_is_spent(tmp_path: Path) -> None:
    out = ["--device", "cpu", "--out", str(tmp_path / "closed-{load}.json")]
    assert main([*out, "--in-flight", "5", "--slots", "4"], architecture=DENSE) == 2
    assert main([*out, "--in-flight", "0"], architecture=DENSE) == 2
    assert list(tmp_path.iterdir()) == []
