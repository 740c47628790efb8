"""Prefill and decode in pools of their own: what moves when, what clients see, and that nobody is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.engine.pools import HAND_OVER_S, Pool, token_transfer_s, transfer_ends_s, transfer_link
from simulator.engine.runs.answers import answer
from simulator.engine.runs.disaggregation import ServedPools, serve_disaggregated, served_pools
from simulator.engine.runs.load_sweep import demand_of, load_sweep
from simulator.engine.runs.scenario_setup import ServeOptions, pool_deployments
from simulator.engine.uniform.record import UniformRun
from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import memory_plan
from simulator.reports.words.fields import note_texts
from simulator.specs.engine.deployment import DisaggregationSpec, ParallelismSpec, PoolName, TransferOrder
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import default_server_for, load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.scenario import ScenarioSpec
from simulator.traffic.requests import Outcome, Requests, make_requests


def deployment(tp_size: int = 1) -> Deployment:
    return deploy(
        model=load_model("llama-3.1-8b"),
        hardware=load_hardware("h100-sxm-80gb"),
        parallelism=ParallelismSpec(tp_size=tp_size),
        engine=EngineSpec(max_num_batched_tokens=2048, max_num_seqs=64, max_model_len=4096),
    )


def pools(prefill: int = 1, decode: int = 1) -> tuple[Pool, Pool]:
    made = deployment()
    return Pool(deployment=made, replicas=prefill), Pool(deployment=made, replicas=decode)


def requests(count: int, *, gap_s: float, prompt: int = 1000, output: int = 50) -> Requests:
    return make_requests(
        arrival_s=np.arange(count) * gap_s, prompt_tokens=np.full(count, prompt), output_tokens=np.full(count, output)
    )


SPEC = DisaggregationSpec(prefill_replicas=1, decode_replicas=1)


def test_transfers_queue_per_sender() -> None:
    """Two of 2 s that are ready at 0 and 1 s end at 2 and 4; another sender's is not held up."""
    ends_s = transfer_ends_s(np.array([1.0, 0.0, 0.5]), np.array([2.0, 2.0, 3.0]), sender=np.array([0, 0, 1]))
    np.testing.assert_allclose(ends_s, [4.0, 2.0, 3.5])


def test_the_first_token_comes_with_the_cache() -> None:
    """Alone, TTFT is the prefill and prompt tokens x KV bytes per token over the link."""
    prefill, decode = pools()
    asked = requests(3, gap_s=5.0)
    found = serve_disaggregated(asked, ServedPools(prefill=prefill, decode=decode))
    moved_bytes = 1000 * memory_plan(prefill.deployment).kv_bytes_per_token
    link_s = moved_bytes / prefill.deployment.hardware.scale_up.bytes_per_s_per_direction
    moved_s = link_s + HAND_OVER_S
    assert found.use.transfer_s == pytest.approx(moved_s)
    nobody = serve_disaggregated(requests(3, gap_s=5.0, output=1), ServedPools(prefill=prefill, decode=decode))
    assert found.result.overall.ttft.mean_s == pytest.approx(nobody.result.overall.ttft.mean_s + moved_s)
    assert nobody.use.transfer_s == 0


def test_requests_are_conserved_and_times_are_in_order() -> None:
    prefill, decode = pools(2, 1)
    rng = np.random.default_rng(1)
    asked = make_requests(
        arrival_s=np.cumsum(rng.exponential(0.05, 300)),
        prompt_tokens=rng.integers(1, 5000, 300),
        output_tokens=rng.integers(1, 200, 300),
    )
    found = serve_disaggregated(asked, ServedPools(prefill=prefill, decode=decode, timeout_s=20.0))
    records = found.result.run.records
    final = {int(outcome) for outcome in (Outcome.FINISHED, Outcome.TIMED_OUT, Outcome.TOO_LONG, Outcome.TOO_LARGE)}
    assert set(records.outcome.tolist()) <= final
    too_long = asked.prompt_tokens + asked.output_tokens > 4096
    np.testing.assert_array_equal(records.outcome == int(Outcome.TOO_LONG), too_long)
    done = records.outcome == int(Outcome.FINISHED)
    assert (records.admitted_s[done] >= asked.arrival_s[done]).all()
    assert (records.first_token_s[done] > records.admitted_s[done]).all()
    assert (records.finish_s[done] >= records.first_token_s[done]).all()
    assert (
        records.finish_s[done & (asked.output_tokens > 1)] > records.first_token_s[done & (asked.output_tokens > 1)]
    ).all()
    blocks = 2 * memory_plan(prefill.deployment).kv_blocks + memory_plan(decode.deployment).kv_blocks
    assert found.result.run.free_blocks == blocks


def test_the_same_demand_gives_the_same_bytes() -> None:
    prefill, decode = pools()
    runs = [
        serve_disaggregated(requests(50, gap_s=0.03), ServedPools(prefill=prefill, decode=decode)).result.run.records
        for _ in range(2)
    ]
    assert runs[0].finish_s.tobytes() == runs[1].finish_s.tobytes()


def test_clients_wait_from_the_moment_they_sent() -> None:
    """Patience that ends in the decode pool ends there, counted from the arrival at the prefill pool."""
    prefill, decode = pools()
    asked = requests(2, gap_s=5.0, output=400)
    found = serve_disaggregated(asked, ServedPools(prefill=prefill, decode=decode, timeout_s=0.5))
    records = found.result.run.records
    assert (records.outcome == int(Outcome.TIMED_OUT)).all()
    assert not np.isnan(records.first_token_s).any()


def test_the_link_is_the_fastest_that_reaches_or_the_named_one() -> None:
    server = default_server_for("h100-sxm-80gb")
    nvlink = load_hardware("h100-sxm-80gb").scale_up
    inside, outside = pools(4, 4), pools(8, 4)
    assert transfer_link(*inside, link=None, server=server)[0] == nvlink.kind
    assert transfer_link(*outside, link=None, server=server)[0] == server.nic.kind
    kind, bandwidth = transfer_link(*inside, link="nic", server=server)
    assert (kind, bandwidth < nvlink.bytes_per_s_per_direction) == (server.nic.kind, True)
    with pytest.raises(RoofcastError) as caught:
        transfer_link(*outside, link="scale_up", server=server)
    assert caught.value.field == "disaggregation.link"


def test_a_link_goes_by_its_own_name_too() -> None:
    server = default_server_for("h100-sxm-80gb")
    asked = pools(4, 4)
    for name, place in (("NVLink4", "scale_up"), ("infiniband", "nic")):
        assert transfer_link(*asked, link=name, server=server) == transfer_link(*asked, link=place, server=server)


def test_layer_by_layer_only_what_outlasts_the_prompt_shows() -> None:
    """A fast link hides all but the last layer's cache behind the prompt, a slow one what the prompt takes."""
    pair = pools()
    layers = pair[0].deployment.model.num_hidden_layers

    def token_s(bytes_per_s: float, transfer: TransferOrder) -> float:
        return token_transfer_s(*pair, link_bytes_per_s=bytes_per_s, transfer=transfer, prompt_tokens=1000)

    fast, slow = 1e12, 1e8
    assert token_s(fast, "layer_wise") == pytest.approx(token_s(fast, "after_prefill") / layers)
    assert 0 < token_s(slow, "layer_wise") < token_s(slow, "after_prefill")


def loop(**fields: Any) -> ScenarioSpec:
    return scenario(kind="closed_loop", workload=None, concurrency=16, isl_tokens=1000, osl_tokens=100, **fields)


def test_each_pool_of_a_loop_has_degrees_of_its_own() -> None:
    pools_of = {"prefill_replicas": 1, "decode_replicas": 1, "prefill_tp_size": 2, "decode_dp_size": 2}
    run = answer(loop(model="qwen3-30b-a3b", disaggregation={**pools_of, "decode_ep_size": 2})).run
    assert isinstance(run, UniformRun)
    assert run.pools is not None
    assert run.pools.prefill.deployment.parallelism == ParallelismSpec(tp_size=2)
    assert run.ranks == 2


def test_the_decode_pool_of_a_loop_speculates() -> None:
    """Rounds are as many times fewer as they yield tokens, and the prompt passes the drafter too."""
    guesses = {"speculation": {"method": "eagle", "k": 3, "acceptance": 0.7}}
    plain, guessed = answer(loop()), answer(loop(techniques=guesses))
    assert plain.tpot_s is not None
    assert guessed.tpot_s is not None
    assert 1 / 2.533 < guessed.tpot_s / plain.tpot_s < 0.8
    assert guessed.ttft_s > plain.ttft_s
    served = answer(scenario(techniques=guesses)).overall
    without = answer(scenario()).overall
    assert served is not None
    assert without is not None
    assert served.tpot.mean_s < 0.8 * without.tpot.mean_s


POOLS = {"prefill_replicas": 1, "decode_replicas": 2, "decode_tp_size": 2}


def scenario(**fields: Any) -> ScenarioSpec:
    return ScenarioSpec.model_validate(
        {
            "id": 1,
            "kind": "serve",
            "model": "llama-3.1-8b",
            "hardware": "h100",
            "engine": {"max_model_len": 4096},
            "disaggregation": POOLS,
            "workload": {"stages": [{"rate_per_s": 4, "duration_s": 30}], "isl_tokens": 1000, "osl_tokens": 100},
            **fields,
        }
    )


def test_a_scenario_names_its_pools() -> None:
    result = answer(scenario())
    assert result.deployment.parallelism.tp_size == 2
    assert any("1 prefill replica on 1 and 2 decode replicas on 4 devices" in note for note in note_texts(result.notes))
    assert any(f"{HAND_OVER_S:g} s of it the hand-over between engines" in note for note in note_texts(result.notes))
    hardware = load_hardware("h100")
    assert 5 * hardware.idle_w < result.power_w < 5 * hardware.tdp_w


def test_what_nobody_said_of_pools_is_an_assumption() -> None:
    said = {item.key: item.value for item in answer(scenario()).assumptions if "disaggregation" in item.key}
    assert said == {"disaggregation.transfer": "after_prefill", "disaggregation.hand_over_s": HAND_OVER_S}
    given = answer(scenario(disaggregation={**POOLS, "transfer": "layer_wise"})).assumptions
    assert not [item for item in given if item.key == "disaggregation.transfer"]


def test_a_cap_that_one_kind_of_pool_never_reaches_limits_the_other() -> None:
    """L40S draw 350 W at most, H100 700: as a plan takes it."""
    unlike = {**POOLS, "prefill_hardware": "l40s"}
    capped = answer(scenario(disaggregation=unlike, power_cap_w=500))
    free = answer(scenario(disaggregation=unlike))
    assert capped.deployment.hardware.power_cap_w == 500
    assert capped.prefill.step_s == free.prefill.step_s
    assert capped.power_w < free.power_w
    with pytest.raises(RoofcastError, match="no limit for") as refused:
        answer(scenario(disaggregation=unlike, power_cap_w=900))
    assert refused.value.field == "power_cap_w"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"replicas": 2}, "replicas"),
        ({"kind": "offline", "workload": None, "isl_tokens": 10, "osl_tokens": 10}, "disaggregation"),
        ({"disaggregation": {**POOLS, "link": "roce"}}, "disaggregation.link"),
        ({"disaggregation": {**POOLS, "devices": 4}}, "disaggregation.devices"),
        ({"disaggregation": {**POOLS, "decode_tp_size": 3}}, "disaggregation.decode_tp_size"),
        ({"disaggregation": POOLS, "tp_size": 3}, "tp_size"),
        ({"disaggregation": {**POOLS, "prefill_tp_size": 2, "decode_tp_size": 4}, "tp_size": 2}, "tp_size"),
        ({"disaggregation": {**POOLS, "prefill_hardware": "h2000"}}, "disaggregation.prefill_hardware"),
        ({"disaggregation": {**POOLS, "prefill_hardware": "mi300x"}}, "disaggregation.prefill_hardware"),
        ({"techniques": {"speculation": {"method": "mtp"}}}, "techniques.speculation.method"),
    ],
)
def test_what_pools_do_not_go_with_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(RoofcastError) as caught:
        answer(scenario(**fields))
    assert caught.value.field == field


def test_a_word_that_pools_say_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="prefill_replicas is given twice"):
        DisaggregationSpec.model_validate("prefill_replicas=2,decode_replicas=1,prefill_replicas=4")


def test_a_limit_of_prefill_steps_leaves_the_decode_pool_alone() -> None:
    fields: dict[str, Any] = {"id": 1, "kind": "serve", "model": "llama-3.1-8b", "hardware": "h100"}
    load = demand_of(isl_tokens=1000, osl_tokens=50, isl_cv=0.0, osl_cv=0.0)
    spec = DisaggregationSpec(prefill_replicas=1, decode_replicas=1, prefill_max_num_batched_tokens=512)
    scenario = ScenarioSpec(**fields, workload=load, disaggregation=spec)
    prefill, decode = pool_deployments(scenario, spec)
    _, free = pool_deployments(scenario, SPEC)
    assert prefill.engine.max_num_batched_tokens == 512 != decode.engine.max_num_batched_tokens
    assert decode == free


@pytest.mark.parametrize(
    ("technique", "one", "other"),
    [
        ("two_batch_overlap", {"dp_size": 8, "ep_size": 8}, {"tp_size": 8}),
        ("sequence_parallel", {"tp_size": 8}, {"dp_size": 8, "ep_size": 8}),
    ],
)
@pytest.mark.parametrize("pool", ["prefill", "decode"])
def test_a_technique_of_ranks_works_in_the_pool_that_has_them(
    technique: str, one: dict[str, int], other: dict[str, int], pool: PoolName
) -> None:
    places = {"prefill": other, "decode": other, pool: one}
    degrees = {f"{name}_{key}": size for name, sizes in places.items() for key, size in sizes.items()}
    fields: dict[str, Any] = {"id": 1, "kind": "closed_loop", "model": "deepseek-r1", "hardware": "h200"}
    fields |= {
        "concurrency": 16,
        "num_requests": 16,
        "isl_tokens": 512,
        "osl_tokens": 32,
        "techniques": {technique: True},
    }
    spec = DisaggregationSpec.model_validate({"prefill_replicas": 1, "decode_replicas": 1, **degrees})
    scenario = ScenarioSpec(**fields, disaggregation=spec)
    made = dict(zip(("prefill", "decode"), pool_deployments(scenario, spec), strict=True))
    works = {name: getattr(deployment.techniques.spec, technique) for name, deployment in made.items()}
    assert works == {"prefill": None, "decode": None, pool: True}
    answer(scenario)
    nowhere = DisaggregationSpec.model_validate(
        {"prefill_replicas": 1, "decode_replicas": 1}
        | {f"{name}_{key}": n for name in made for key, n in other.items()}
    )
    with pytest.raises(RoofcastError, match="changes nothing"):
        answer(scenario.model_copy(update={"disaggregation": nowhere}))


def test_every_point_of_a_sweep_over_two_pools_is_what_is_answered() -> None:
    fields: dict[str, Any] = {"id": 1, "kind": "serve", "model": "llama-3.1-8b", "hardware": "h100"}
    load = demand_of(isl_tokens=1000, osl_tokens=50, isl_cv=0.5, osl_cv=0.5)
    spec = DisaggregationSpec(prefill_replicas=2, decode_replicas=1)
    scenario = ScenarioSpec(**fields, workload=load, disaggregation=spec)
    prefill, decode = pool_deployments(scenario, spec)
    server = default_server_for("h100-sxm-80gb")
    pools = served_pools(prefill, decode, spec=spec, server=server, timeout_s=load.timeout_s)
    found = load_sweep(pools, workload=load, shares=(0.3, 0.8, 1.2))
    for point in found.points:
        asked = scenario.model_copy(update={"workload": point.workload})
        assert answer(asked, options=ServeOptions(intervals=False)).overall == point.stage
    assert [point.stage.saturated for point in found.points] == [False, False, True]
    waits = [point.stage.ttft.p95_s for point in found.points]
    assert waits == sorted(waits)
