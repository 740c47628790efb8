"""Scenarios of the contract: defaults disclosed, bad input refused by field."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.engine.runs.answers import answer
from simulator.errors import ProfileError, RoofcastError
from simulator.reports.words.fields import assumption_texts, note_texts
from simulator.specs.base import validate
from simulator.specs.question.scenario import ScenarioSpec

BATCH: dict[str, Any] = {
    "id": "a",
    "kind": "batch",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "hardware": "h100",
    "batch_size": 4,
    "isl_tokens": 512,
    "osl_tokens": 32,
}


def scenario(base: dict[str, Any], **changes: Any) -> ScenarioSpec:
    return validate(ScenarioSpec, {**base, **changes}, where="test")


def test_null_means_not_given() -> None:
    plain = scenario(BATCH)
    with_nulls = scenario(BATCH, interconnect=None, concurrency=None, workload=None)
    assert plain == with_nulls


def test_defaults_are_disclosed_and_given_values_are_not() -> None:
    said = assumption_texts(answer(scenario(BATCH)).assumptions)
    assert "tp_size = 1 (default)" in said
    assert "engine.name = vllm (default)" in said
    for kind in ("offline", "closed_loop"):
        asked = scenario(BATCH, kind=kind, batch_size=None, concurrency=2 if kind == "closed_loop" else None)
        others = assumption_texts(answer(asked).assumptions)
        assert "engine.name = vllm (default)" in others
    given = answer(scenario(BATCH, tp_size=2, engine={"name": "vllm", "max_num_seqs": 8}))
    quiet = assumption_texts(given.assumptions)
    assert not any(text.startswith(("tp_size", "engine.name", "engine.max_num_seqs")) for text in quiet)


def test_answers_keep_their_length_when_the_model_may_stop_and_the_result_says_so() -> None:
    workload = {"stages": [{"rate_per_s": 1, "duration_s": 5}], "question_tokens": 50, "osl_tokens": 5}
    given = {"id": "x", "kind": "serve", "model": "llama-3.1-8b", "hardware": "h100"}
    told, quiet = (
        assumption_texts(answer(scenario({**given, "workload": {**workload, "ignore_eos": ignores}})).assumptions)
        for ignores in (False, True)
    )
    assert [text for text in told if text not in quiet] == [
        "workload.ignore_eos = False: answers are as long as osl_tokens and osl_cv say"
    ]


def test_replicas_multiply_throughput_and_leave_latency_alone() -> None:
    from simulator.reports.answer import result_object

    one, three = (result_object(answer(scenario(BATCH, replicas=count))) for count in (1, 3))
    assert three["output_tokens_per_s"] == pytest.approx(3 * one["output_tokens_per_s"])
    assert three["power_w"] == pytest.approx(3 * one["power_w"])
    assert three["ttft_s"] == one["ttft_s"]


def test_a_token_takes_as_many_joules_served_at_a_rate_as_in_a_loop_of_that_rate() -> None:
    """Prompts and answers draw power by the time that each takes: one step of either would be mostly the prompt's."""
    replica = {"id": "x", "model": "llama-3.1-8b", "hardware": "h100"}
    load = {"kind": "closed_loop", "concurrency": 16, "range_ratio": 1.0, "num_requests": 320}
    loop = answer(scenario({**replica, **load, "isl_tokens": 1000, "osl_tokens": 250}))
    stages = [{"rate_per_s": 0.97 * loop.requests_per_s, "duration_s": 60}]
    workload = {"arrival": "constant", "stages": stages, "question_tokens": 1000, "osl_tokens": 250}
    served = answer(scenario({**replica, "kind": "serve", "workload": workload}))
    assert served.energy_per_output_token_j == pytest.approx(loop.energy_per_output_token_j, rel=0.08)


def test_pcie_makes_tensor_parallelism_slower() -> None:
    fast, slow = (
        answer(scenario(BATCH, tp_size=4, engine={"name": "vllm"}, interconnect=link)) for link in ("nvlink", "pcie")
    )
    assert slow.run.ttft_s > 1.2 * fast.run.ttft_s


@pytest.mark.parametrize(
    ("hardware", "tp_size", "links"),
    [
        ("h100", 8, None),
        ("h100", 16, "dgx-h100 (accelerators that a link joins: nvlink 8; more by infiniband-400g at 50 GB/s each)"),
        ("a100-pcie-80gb", 4, "pcie-8x-a100-pcie-80gb (accelerators that a link joins: nvlink-bridge 2, pcie4-x16 8;"),
    ],
)
def test_the_server_that_joins_accelerators_beyond_their_link_is_stated(
    hardware: str, tp_size: int, links: str | None
) -> None:
    said = assumption_texts(answer(scenario(BATCH, hardware=hardware, tp_size=tp_size)).assumptions)
    stated = [text for text in said if text.startswith("server = ")]
    assert len(stated) == (links is not None)
    assert links is None or stated[0].startswith(f"server = {links}")


def test_ranks_share_the_batch_and_add_their_throughput() -> None:
    from simulator.reports.answer import result_object

    base = {**BATCH, "batch_size": 8, "engine": {"name": "vllm"}}
    half = result_object(answer(scenario({**base, "batch_size": 4})))
    two = result_object(answer(scenario(base, dp_size=2)))
    assert two["tpot_s"] == pytest.approx(half["tpot_s"])
    assert two["output_tokens_per_s"] == pytest.approx(2 * half["output_tokens_per_s"])
    assert two["energy_per_output_token_j"] == pytest.approx(half["energy_per_output_token_j"], rel=0.01)
    with pytest.raises(RoofcastError, match="nothing to do"):
        answer(scenario(base, dp_size=9))


def test_what_a_reader_should_know_is_said() -> None:
    notes = note_texts(answer(scenario(BATCH, model="gpt2", isl_tokens=2000, engine={"name": "torch-eager"})).notes)
    assert any("1,024 positions" in note for note in notes)
    assert any("host bound" in note for note in notes)
    assert not any("host bound" in note for note in note_texts(answer(scenario(BATCH, engine={"name": "vllm"})).notes))


def test_answers_of_one_token_under_load_have_no_tpot() -> None:
    import json

    from simulator.reports.answer import result_object

    load = {"stages": [{"rate_per_s": 5, "duration_s": 20}], "isl_tokens": 256, "osl_tokens": 1}
    served = {"id": "s", "kind": "serve", "model": "llama-3.1-8b", "hardware": "h100", "workload": load}
    result = result_object(answer(scenario(served)))
    assert result["tpot_s"] is None
    assert result["stages"][0]["finished"] == result["stages"][0]["requests"] > 50
    json.dumps(result, allow_nan=False)


def test_pipeline_stages_do_not_improve_provenance() -> None:
    from simulator.reports.answer import result_object

    known = [
        result_object(answer(scenario(BATCH, pp_size=size, engine={"name": "vllm"})))["provenance"] for size in (1, 32)
    ]
    assert "measured" not in known


REFUSED = [
    ({"kind": "batch", "batch_size": None}, "batch_size", "kind batch needs it"),
    ({"concurrency": 4}, "concurrency", "no effect under kind batch"),
    ({"batch_size": 0}, "batch_size", "greater than 0"),
    ({"isl_tokens": -5}, "isl_tokens", "greater than 0"),
    ({"tp_size": 3}, "tp_size", "1, 2, 4, 8"),
    ({"precision": {"weights": "fp7"}}, "precision.weights", "allowed: "),
    ({"precision": {"weights": "fp4", "activations": "fp4"}}, "precision", "fp4"),
    ({"techniques": {"attention": "warp"}}, "techniques.attention", "allowed: "),
    ({"interconnect": "token-ring"}, "interconnect", "allowed: nvlink"),
    ({"engine": {"name": "vllm", "max_model_len": 100}}, "engine.max_model_len", "exceeds"),
    ({"colour": "red"}, "colour", "unknown field"),
]


@pytest.mark.parametrize(("changes", "field", "words"), REFUSED, ids=[row[1] + "-" + row[2][:12] for row in REFUSED])
def test_bad_scenarios_are_refused_by_field(changes: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(RoofcastError) as caught:
        answer(scenario(BATCH, **changes))
    assert caught.value.field.startswith(field)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_names_come_with_the_nearest_ones() -> None:
    with pytest.raises(ProfileError, match=r"did you mean.*h100"):
        answer(scenario(BATCH, hardware="h10O"))
    with pytest.raises(ProfileError, match=r"did you mean.*llama-3\.1-8b"):
        answer(scenario(BATCH, model="lama-3.1-8b"))


LOOP = {**BATCH, "kind": "closed_loop", "batch_size": None, "isl_tokens": 1024}


@pytest.mark.parametrize(
    ("one", "kind", "field"), [(24, "closed_loop", "concurrency"), (900, "offline", "num_requests")]
)
def test_replicas_share_clients_and_requests_as_ranks_do(one: int, kind: str, field: str) -> None:
    alone = answer(scenario(LOOP, kind=kind, **{field: one}))
    replicas, ranks = (
        answer(scenario(LOOP, kind=kind, **{field: 2 * one, name: 2})) for name in ("replicas", "dp_size")
    )
    assert replicas.requests_per_s == pytest.approx(2 * alone.requests_per_s)
    assert replicas.ttft_s == pytest.approx(alone.ttft_s)
    assert any(f"has {one} of {2 * one} " in note for note in note_texts(replicas.notes))
    assert replicas.requests_per_s == pytest.approx(ranks.requests_per_s, rel=0.05)
    more = answer(scenario(LOOP, kind=kind, **{field: 2 * one + 1, "replicas": 2}))
    assert more.requests_per_s == pytest.approx(replicas.requests_per_s, rel=0.03)
    with pytest.raises(RoofcastError, match="share") as refused:
        answer(scenario(LOOP, kind=kind, **{field: 2, "replicas": 3}))
    assert refused.value.field == "replicas"
