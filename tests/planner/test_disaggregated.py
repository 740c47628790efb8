"""Two pools as a way to serve: laws of their sizing, agreement with the event simulation, what a plan says of it."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from itertools import product
from math import ceil

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simulator.api.planning import plan_markdown, plan_text
from simulator.engine.pools import HAND_OVER_S, Pool, small_group
from simulator.engine.runs.disaggregation import ServedPools, serve_disaggregated
from simulator.errors import RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.fleet import size
from simulator.planner.fleet.records import pack
from simulator.planner.fleet.replica_load import latency_range, replica_load
from simulator.planner.gap.closing import carried_rate_per_s
from simulator.planner.gap.limits import Overrun, fleet_limits
from simulator.planner.plan import plan_capacity
from simulator.planner.records import Candidate, Rejection
from simulator.planner.search.candidates import candidates, platforms
from simulator.planner.search.question import Question, resolve
from simulator.planner.search.screened_space import candidate_of
from simulator.planner.search.wide_search import screen_pools, screen_space
from simulator.planner.serving.capacity import Latencies
from simulator.planner.serving.disaggregated import Disaggregated, evaluate_pools
from simulator.planner.serving.pool_states import _scattered
from simulator.planner.studies.stock_fleets import StockPlan
from simulator.planner.verification.simulation import LEAST_DECODING, MOST_REPLICAS
from simulator.reports.handoff.launch import launch_handoff
from simulator.reports.tables.plan_document import plan_csv, plan_document
from simulator.reports.words.fields import rejection_text
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.traffic.workload_requests import requests_of_mix

BOTH = ("aggregated", "disaggregated")


def question(**fields: object) -> Question:
    return resolve(plan_spec({"rps": 60, "model": "llama-3.1-8b", "hardware": ("h100",), **fields}))


def tried(asked: Question) -> list[Candidate]:
    (platform,) = platforms(asked.spec)
    return list(candidates(asked.spec, model=asked.model, platform=platform))


def pair(asked: Question, *, prefill: int = 0, decode: int = 0) -> Disaggregated:
    found = tried(asked)
    both = replace(found[decode], prefill=found[prefill])
    outcome = evaluate_pools(
        both, model=asked.model, mix=asked.demand.mix, objectives=asked.objectives, policy=asked.policy
    )
    assert isinstance(outcome, Disaggregated)
    return outcome


@pytest.mark.parametrize("engine", ["sglang", "vllm", "tensorrt-llm"])
@pytest.mark.parametrize("hardware", ["mi325x", "h200"])
def test_pools_and_replicas_that_a_plan_compares_run_one_release(hardware: str, engine: str) -> None:
    if (hardware, engine) == ("mi325x", "tensorrt-llm"):
        return
    asked = {"hardware": hardware, "engine": engine}
    both, alone, pools = (
        {item.engine.version for item in tried(question(serving=serving, **asked))}
        for serving in (("aggregated", "disaggregated"), ("aggregated",), ("disaggregated",))
    )
    assert both == alone == pools
    assert len(both) == 1


def seen(
    shape: Disaggregated,
    decode_rates: Sequence[float],
    prefill_rates: Sequence[float],
    *,
    objectives: tuple[ObjectiveSpec, ...] = (),
    replicas: int = 1,
) -> tuple[Latencies, ...]:
    """Latencies at rates of one decode replica and, at once, of one of several prefill replicas that take turns."""
    rates = [np.array(prefill_rates), np.array(decode_rates)]
    return shape.at_rates(rates, replicas=[np.full(1, float(replicas))] * 2, objectives=objectives)


@pytest.fixture(scope="module")
def evaluated() -> Disaggregated:
    return pair(question())


@pytest.fixture(scope="module")
def plan() -> CapacityPlan:
    return plan_capacity(plan_spec({"rps": 60, "model": "llama-3.1-8b", "hardware": ("h100",), "serving": BOTH}))


class TestStates:
    def test_scattered_pairs_are_a_permutation_with_even_rows(self) -> None:
        places = _scattered()
        assert sorted(places) == list(range(len(places)))
        # Each quarter of the first coordinate meets each quarter of the second equally often.
        size = len(places) // 4
        counts = np.histogram2d(np.arange(len(places)), places, bins=4)[0]
        assert (counts == size // 4).all()

    def test_pools_share_no_time(self, evaluated: Disaggregated) -> None:
        """TTFT does not know the decode pool's load, TPOT not the prefill pool's, and E2E mean is the sum of both."""
        low, high = 0.2, 0.8
        rates = [load * evaluated.replica.saturation_per_s for load in (low, high, low, high)]
        first = [load * evaluated.prefill.replica.saturation_per_s for load in (low, low, high, high)]
        a, b, c, d = seen(evaluated, rates, first, objectives=())
        assert a.ttft_p95_s == b.ttft_p95_s < c.ttft_p95_s == d.ttft_p95_s
        assert a.tpot_p95_s == c.tpot_p95_s < b.tpot_p95_s == d.tpot_p95_s
        assert d.e2e_mean_s - b.e2e_mean_s == pytest.approx(c.e2e_mean_s - a.e2e_mean_s, rel=1e-9)

    @pytest.mark.parametrize(("load", "replicas"), [(0.4, 1), (0.7, 1), (0.6, 4), (0.75, 4)])
    def test_agrees_with_the_event_simulation(self, evaluated: Disaggregated, load: float, replicas: int) -> None:
        asked = question()
        rate = load * min(evaluated.replica.saturation_per_s, evaluated.prefill.replica.saturation_per_s)
        (steady,) = seen(evaluated, (rate,), (rate,), objectives=(), replicas=replicas)
        simulated = serve_disaggregated(
            requests_of_mix(asked.demand.mix, rate_per_s=replicas * rate, count=4000 * replicas, seed=2),
            ServedPools(
                prefill=Pool(deployment=evaluated.prefill.replica.deployment, replicas=replicas),
                decode=Pool(deployment=evaluated.replica.deployment, replicas=replicas),
                link="nic",
                server=evaluated.candidate.platform.server,
            ),
        ).result.overall
        assert steady.ttft_mean_s == pytest.approx(simulated.ttft.mean_s, rel=0.1)
        assert steady.ttft_p95_s == pytest.approx(simulated.ttft.p95_s, rel=0.15)
        assert steady.tpot_mean_s == pytest.approx(simulated.tpot.mean_s, rel=0.05)
        assert steady.tpot_p95_s == pytest.approx(simulated.tpot.p95_s, rel=0.07)
        assert steady.e2e_mean_s == pytest.approx(simulated.e2e.mean_s, rel=0.05)
        assert steady.e2e_p95_s == pytest.approx(simulated.e2e.p95_s, rel=0.05)


class TestCapacity:
    def test_objectives_hold_at_capacity_and_fail_beyond(self) -> None:
        bound_s = 0.2 + HAND_OVER_S
        asked = question(objectives=({"metric": "ttft", "percentile": 95, "bound_s": bound_s},), confidence=50)
        found = pair(asked)
        at, beyond = seen(
            found,
            [found.replica.capacity_per_s] * 2,
            [share * found.prefill.replica.capacity_per_s for share in (1.0, 1.1)],
            objectives=asked.objectives,
        )
        assert at.ttft_p95_s <= bound_s * (1 + 1e-9) < beyond.ttft_p95_s
        assert found.prefill.replica.binding == 0
        assert found.replica.binding is None

    def test_a_bound_on_the_whole_lowers_both_pools(self) -> None:
        loose = pair(question(objectives=({"metric": "e2e", "percentile": 95, "bound_s": 100},)))
        asked = question(objectives=({"metric": "e2e", "percentile": 95, "bound_s": 4},))
        tight = pair(asked)
        assert tight.replica.at_capacity.objectives_s[0] <= 4
        assert tight.replica.capacity_per_s <= loose.replica.capacity_per_s
        assert tight.prefill.replica.capacity_per_s <= loose.prefill.replica.capacity_per_s
        assert tight.replica.binding == 0

    def test_an_impossible_bound_is_refused_by_its_name(self) -> None:
        asked = question(objectives=({"metric": "e2e", "percentile": 95, "bound_s": 0.5},))
        found = tried(asked)
        outcome = evaluate_pools(
            replace(found[0], prefill=found[0]),
            model=asked.model,
            mix=asked.demand.mix,
            objectives=asked.objectives,
            policy=asked.policy,
        )
        assert isinstance(outcome, Rejection)
        assert outcome.code == "objective"
        assert rejection_text(outcome).startswith("E2E p95")

    def test_a_slower_link_takes_longer(self, evaluated: Disaggregated) -> None:
        slow = replace(evaluated, link=replace(evaluated.link, token_s=10 * evaluated.link.token_s))
        rate = 0.3 * evaluated.prefill.replica.saturation_per_s
        fast_at, slow_at = (seen(item, (rate,), (rate,), objectives=())[0] for item in (evaluated, slow))
        longer_s = 9 * evaluated.link.token_s * question().demand.mix.isl.mean_tokens
        assert slow_at.ttft_mean_s - fast_at.ttft_mean_s >= longer_s
        assert slow_at.tpot_mean_s == fast_at.tpot_mean_s


class TestGuesses:
    def test_only_the_decode_pool_guesses(self, evaluated: Disaggregated) -> None:
        guessing = pair(question(speculation=("ngram",)))
        assert guessing.replica.deployment.speculation is not None
        assert guessing.prefill.replica.deployment.speculation is None
        assert guessing.prefill.replica.saturation_per_s == evaluated.prefill.replica.saturation_per_s
        assert guessing.replica.unloaded.tpot_mean_s < evaluated.replica.unloaded.tpot_mean_s
        assert guessing.replica.unloaded.ttft_mean_s == pytest.approx(evaluated.replica.unloaded.ttft_mean_s)

    def test_agrees_with_the_event_simulation(self) -> None:
        """Beyond a third of the load the steady state is slower, by 15 % at half of it where every guess is sampled."""
        asked = question(speculation=("ngram",), weights="bf16")
        found = pair(asked)
        rate = 0.3 * min(found.replica.saturation_per_s, found.prefill.replica.saturation_per_s)
        (steady,) = seen(found, (rate,), (rate,), objectives=())
        pools = [Pool(deployment=item.replica.deployment, replicas=1) for item in (found.prefill, found.decode)]
        simulated = serve_disaggregated(
            requests_of_mix(asked.demand.mix, rate_per_s=rate, count=3000, seed=2),
            ServedPools(prefill=pools[0], decode=pools[1], link="nic", server=found.candidate.platform.server),
        ).result.overall
        assert steady.tpot_mean_s == pytest.approx(simulated.tpot.mean_s, rel=0.1)
        assert steady.tpot_p95_s == pytest.approx(simulated.tpot.p95_s, rel=0.15)

    def test_a_drafter_with_a_cache_of_its_own_reads_the_prompts_in_the_prefill_pool(
        self, evaluated: Disaggregated
    ) -> None:
        guessing = pair(question(speculation=("eagle",)))
        assert guessing.prefill.replica.memory.draft_kv_bytes_per_token > 0
        assert guessing.link.token_s > evaluated.link.token_s
        assert guessing.prefill.replica.saturation_per_s < evaluated.prefill.replica.saturation_per_s
        assert guessing.prefill.replica.saturation_per_s > 0.8 * evaluated.prefill.replica.saturation_per_s
        assert guessing.replica.unloaded.tpot_mean_s < evaluated.replica.unloaded.tpot_mean_s


class TestWideSearch:
    def test_screened_pools_agree_with_the_exact_evaluation(self) -> None:
        asked = question(search="wide", serving=BOTH, tp=(1, 2), pp=(1,))
        found = screen_space(asked, platforms(asked.spec))
        pools = screen_pools(found, asked)
        ratios = []
        for place, (row, column) in product(range(len(found.tables)), ((9, 3), (13, 4))):
            limits = (found.space.sequences[row], found.space.tokens[column])
            one = candidate_of(asked, found.tables[place], limits=limits)
            exact = evaluate_pools(
                replace(one, prefill=one),
                model=asked.model,
                mix=asked.demand.mix,
                objectives=asked.objectives,
                policy=asked.policy,
            )
            assert isinstance(exact, Disaggregated)
            ratios.append(pools.prefill_per_s[place, column] / exact.prefill.replica.capacity_per_s)
            ratios.append(pools.decode_per_s[place, row, column] / exact.replica.capacity_per_s)
        assert np.abs(np.log(ratios)).max() < np.log(1.25)

    def test_a_wide_search_is_not_worse_than_the_usual_one(self) -> None:
        base = {"rps": 200, "model": "llama-3.1-8b", "hardware": ("h100",), "serving": ("disaggregated",)}
        usual, wide = (plan_capacity(plan_spec({**base, "search": search})) for search in ("usual", "wide"))
        assert wide.best.prefill is not None
        assert wide.search is not None
        assert wide.best.devices <= usual.best.devices
        assert wide.search.candidates == wide.candidates
        assert wide.search.axes[0] == "two pools"

    def test_pools_that_guess_are_not_screened(self) -> None:
        fields = {"rps": 60, "model": "llama-3.1-8b", "hardware": ("h100",), "serving": ("disaggregated",), "tp": (1,)}
        with pytest.raises(RoofcastError, match="one token at a time"):
            plan_capacity(plan_spec({**fields, "speculation": ("ngram",), "search": "wide"}))


class TestTransfer:
    @pytest.mark.parametrize(("prefill", "decode"), [(0, 0), (1, 2), (2, 1)])
    def test_moves_the_models_own_cache_of_the_prompt(self, prefill: int, decode: int) -> None:
        """Keys and values of 8 heads of 128 in 32 layers, 2 bytes each: 131,072 bytes a token, split over devices."""
        asked = question(tp=(1, 2, 4))
        found = pair(asked, prefill=prefill, decode=decode)
        server = found.candidate.platform.server
        assert server is not None
        token_bytes = 2 * 32 * 8 * 128 * 2
        devices = min(found.prefill.replica.devices, found.replica.devices)
        nics = min(server.nics_per_server / server.accelerators_per_server, 1)
        sent_bytes_per_s = devices * nics * server.nic.bytes_per_s_per_direction
        mean_tokens = asked.demand.mix.isl.mean_tokens
        seconds = found.link.prompt_s(asked.demand.mix)
        assert seconds * sent_bytes_per_s == pytest.approx(token_bytes * mean_tokens)


class TestSizing:
    @given(
        counts=st.tuples(st.integers(1, 50), st.integers(1, 50)), powers=st.tuples(st.integers(0, 5), st.integers(0, 5))
    )
    def test_servers_hold_both_pools(self, counts: tuple[int, int], powers: tuple[int, int]) -> None:
        devices = (2 ** powers[0], 2 ** powers[1])
        servers = pack(counts, devices=devices, devices_per_server=8)
        used = sum(count * each for count, each in zip(counts, devices, strict=True))
        assert servers * 8 >= used
        if max(devices) <= 8:
            assert servers == ceil(used / 8)

    def test_sizes_that_leave_gaps_get_servers_of_their_own(self) -> None:
        assert pack((2, 2), devices=(3, 4), devices_per_server=8) == 1 + 1

    def test_pools_are_sized_by_hand(self, plan: CapacityPlan) -> None:
        fleet = next(item for item in (plan.best, *plan.alternatives) if item.prefill is not None)
        pool = fleet.prefill
        assert pool is not None
        assert pool.replicas == ceil(60 / pool.replica.capacity_per_s)
        assert fleet.replicas == ceil(60 / fleet.replica.capacity_per_s)
        assert pool.spares == fleet.spares == 1
        own = (fleet.replicas + fleet.spares) * fleet.replica.devices
        assert fleet.devices == own + pool.devices + fleet.idle_devices
        assert fleet.cost.per_hour == pytest.approx(fleet.devices * (fleet.cost.per_device_hour or 0))
        assert fleet.devices_low <= fleet.devices <= fleet.devices_high

    def test_the_bill_is_split_by_the_devices_of_the_pools(self, plan: CapacityPlan) -> None:
        fleet = next(item for item in (plan.best, *plan.alternatives) if item.prefill is not None)
        mix, cost = plan.demand.mix, fleet.cost
        assert cost.per_million_input_tokens is not None
        assert cost.per_million_output_tokens is not None
        paid = (
            cost.per_million_input_tokens * mix.isl.mean_tokens + cost.per_million_output_tokens * mix.osl.mean_tokens
        )
        assert paid == pytest.approx((cost.per_million_output_tokens_all_in or 0) * mix.osl.mean_tokens)

    @pytest.mark.parametrize(
        ("fleet", "expected"),
        [((3, 5), (3, 5)), ((100, 50), (8, 4)), ((175, 32), (22, 4)), ((60, 8), (30, 4)), ((500, 2), (62, 2))],
    )
    def test_a_small_group_keeps_the_ratio(self, fleet: tuple[int, int], expected: tuple[int, int]) -> None:
        group = small_group(fleet, least=LEAST_DECODING, most=MOST_REPLICAS)
        assert (group.prefill, group.decode) == expected
        assert group.is_alike == (fleet != (500, 2))
        # Both are loaded as there at least, one of them a little more where the ratio is not quite theirs.
        loads = [group.share * whole / part for part, whole in zip(expected, fleet, strict=True)]
        assert min(loads) == pytest.approx(1.0)
        assert max(loads) < 1.03 or not group.is_alike

    @pytest.mark.parametrize("most", [2, 3, 8, 16])
    def test_wide_replicas_are_simulated_in_smaller_groups(self, most: int) -> None:
        group = small_group((8, 101), least=LEAST_DECODING, most=most)
        assert group.prefill + group.decode <= most

    def test_a_refusal_counts_both_pools_in_what_the_budget_carries(self) -> None:
        asked = question(rps=600, serving="disaggregated", tp=1, pp=1)
        sized = size(pair(asked), demand=asked.demand, spec=asked.spec, prices=asked.prices)
        limit = Overrun(limits=fleet_limits(replace(asked, spec=asked.spec.model_copy(update={"max_gpus": 16}))))
        carried = carried_rate_per_s(asked, sized, overrun=limit)
        less = replace(asked.demand, mean_rate_per_s=0.999 * carried)
        assert 0 < carried < asked.demand.mean_rate_per_s
        assert size(sized.evaluated, demand=less, spec=asked.spec, prices=asked.prices).devices <= 16 < sized.devices


class TestPlan:
    def test_comparing_is_never_worse_than_either_way(self, plan: CapacityPlan) -> None:
        alone = [
            plan_capacity(plan_spec({"rps": 60, "model": "llama-3.1-8b", "hardware": ("h100",), "serving": (way,)}))
            for way in BOTH
        ]
        costs = [found.best.cost.per_hour or 0 for found in alone]
        assert plan.best.cost.per_hour == pytest.approx(min(costs))
        assert alone[0].best.prefill is None
        assert alone[1].best.prefill is not None

    @pytest.mark.parametrize(
        "fields",
        [
            {"rps": 3, "model": "llama-3.1-8b", "tp": (1,)},
            {"rps": 40, "model": "llama-3.1-70b", "tp": (4,), "ttft_p95": "0.6s", "tpot_p95": "45ms"},
            {"rps": 20, "model": "llama-3.1-8b", "tp": (1, 2), "isl": 6000, "osl": 60},
            {"rps": 50, "model": "llama-3.1-8b", "tp": (1,), "isl": 200, "osl": 900, "speculation": ("ngram",)},
        ],
    )
    def test_pools_are_never_chosen_where_one_kind_of_replica_is_cheaper(self, fields: dict[str, object]) -> None:
        both = plan_capacity(plan_spec({"hardware": ("h100",), **fields, "serving": BOTH}))
        alone = plan_capacity(plan_spec({"hardware": ("h100",), **fields, "serving": BOTH[:1]}))
        costs = both.best.cost.per_hour, alone.best.cost.per_hour
        assert costs[0] is not None
        assert costs[1] is not None
        assert costs[0] <= costs[1]
        # A tie goes to the fleet with one kind of replica.
        better = (costs[0], both.best.devices) < (costs[1], alone.best.devices)
        assert (both.best.prefill is not None) == better
        assert both.objectives == alone.objectives

    def test_aggregated_is_the_default(self) -> None:
        base = {"rps": 60, "model": "llama-3.1-8b", "hardware": ("h100",)}
        usual, asked = (plan_capacity(plan_spec(fields)) for fields in (base, {**base, "serving": ("aggregated",)}))
        assert usual.best.label == asked.best.label
        assert usual.best.devices == asked.best.devices

    def test_degraded_latencies_hold_the_objectives(self, plan: CapacityPlan) -> None:
        for fleet in (plan.best, *plan.alternatives):
            for value_s, item in zip(fleet.degraded.objectives_s, plan.objectives, strict=True):
                assert value_s <= item.bound_s * (1 + 1e-9)

    def test_latencies_over_the_load_and_their_range_pass_through_the_plan(self, plan: CapacityPlan) -> None:
        fleet = next(item for item in (plan.best, *plan.alternatives) if item.prefill is not None)
        load = replica_load(fleet, rates_per_s=(fleet.degraded.rate_per_s,))
        ttft, tpot = (next(point for point in load.at[0] if point.metric.value == name) for name in ("ttft", "tpot"))
        assert ttft.values_s[2] == pytest.approx(fleet.degraded.ttft_p95_s, rel=0.02)
        assert tpot.values_s[2] == pytest.approx(fleet.degraded.tpot_p95_s, rel=1e-6)
        assert list(load.ttft_slow_s) == sorted(load.ttft_slow_s)
        found = latency_range(fleet)
        assert found.ttft_p95_s[0] < fleet.degraded.ttft_p95_s < found.ttft_p95_s[1]
        assert found.tpot_p95_s[0] < fleet.degraded.tpot_p95_s < found.tpot_p95_s[1]

    def test_every_form_of_the_answer_has_both_pools(self, plan: CapacityPlan) -> None:
        fleets = (plan.best, *plan.alternatives)
        place = next(index for index, fleet in enumerate(fleets) if fleet.prefill is not None)
        fleet, pool = fleets[place], fleets[place].prefill
        assert pool is not None
        shown = f"{pool.replicas}P + 1, {fleet.replicas}D + 1"
        text = plan_text(plan, explain=True)
        assert shown in text
        assert "disaggregated at best" in text
        assert shown in plan_markdown(plan, explain=False)
        document = json.loads(plan_document(plan))
        found = [document["plan"], *document["alternatives"]][place]["prefill"]
        assert (found["replicas"], found["spare_replicas"]) == (pool.replicas, 1)
        row = plan_csv(plan).splitlines()[1 + place]
        assert row.endswith(f",{pool.replicas},1,{pool.replica.devices}")

    def test_stock_is_filled_with_both_pools_before_anything_is_obtained(self) -> None:
        asked = {"rps": 200, "model": "llama-3.1-8b", "hardware": ("h100",), "serving": "disaggregated", "tp": 1}
        stocked = plan_capacity(plan_spec({**asked, "stock": ("h100=8",)})).study(StockPlan)
        enough = plan_capacity(plan_spec({**asked, "stock": ("h100=64",)})).study(StockPlan)
        assert stocked is not None
        assert enough is not None
        assert sum(share.from_stock for share in stocked.shares) == 8
        assert stocked.bought > 0
        assert enough.bought == 0
        assert sum(share.capacity_per_s for share in enough.shares) >= 200 * (1 - 1e-6)

    def test_devices_of_both_pools_are_the_total_everywhere(self) -> None:
        spec = plan_spec({"rps": 90, "model": "llama-3.1-70b", "hardware": ("h100",), "serving": ("disaggregated",)})
        plan = plan_capacity(spec)
        for place, fleet in enumerate((plan.best, *plan.alternatives)):
            document = json.loads(plan_document(plan))
            found = [document["plan"], *document["alternatives"]][place]
            parts = [found, found["prefill"]]
            busy = sum(part["devices_per_replica"] * (part["replicas"] + part["spare_replicas"]) for part in parts)
            assert found["devices"] == busy + found["idle_devices"] == fleet.devices
            row = list(csv.DictReader(StringIO(plan_csv(plan))))[place]
            pools = [
                int(row[f"{pool}devices_per_replica"])
                * (int(row[f"{pool}replicas"]) + int(row[f"{pool}spare_replicas"]))
                for pool in ("", "prefill_")
            ]
            assert int(row["devices"]) == sum(pools) + int(row["idle_devices"])
            files = launch_handoff(
                fleet, model_id="org/model", scheme=None, demand=plan.demand, objectives=plan.objectives
            ).files
            (text,) = (file.text for file in files if file.name == "kubernetes.yaml")
            counted = [
                item["spec"]["replicas"] * container["resources"]["limits"]["nvidia.com/gpu"]
                for item in yaml.safe_load_all(text)
                if item["kind"] == "Deployment"
                for container in item["spec"]["template"]["spec"]["containers"]
                if "resources" in container
            ]
            assert sum(counted) == busy

    def test_hand_off_starts_both_roles(self, plan: CapacityPlan) -> None:
        fleet = next(item for item in (plan.best, *plan.alternatives) if item.prefill is not None)
        found = launch_handoff(fleet, model_id="org/model", scheme=None, demand=plan.demand, objectives=plan.objectives)
        texts = {file.name: file.text for file in found.files}
        for role in ("prefill", "decode"):
            assert "NixlConnector" in texts[f"launch-vllm-{role}.sh"]
            assert f"name: model-{role}\n" in texts["kubernetes.yaml"]
        assert "--vllm-pd-disaggregation" in texts["router.sh"]
        assert "--request-rate 60 " in texts["verify.sh"]
