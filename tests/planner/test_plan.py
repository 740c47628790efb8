"""Laws of the planner on real profiles, and every kind of refusal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from app.hosting import work
from simulator.api import planning as api
from simulator.errors import InfeasibleError, ProfileError, RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.demand import DEFAULT_OBJECTIVES, read_demand
from simulator.planner.fleet.fleet import Trial, fleet_cost
from simulator.planner.fleet.records import pack
from simulator.planner.gap.records import GapError
from simulator.planner.money.market import PriceRule, market_price
from simulator.planner.plan import plan_capacity
from simulator.planner.records import Candidate, Platform, Rejection
from simulator.planner.search import search
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import Question
from simulator.planner.search.usual_search import usual_search
from simulator.planner.serving.replica import LoadPolicy
from simulator.planner.serving.shapes import Aggregated, evaluate, replicas_for
from simulator.reports.words.fields import rejection_text, sentence
from simulator.reports.words.plan_inputs import resource_text, warning_texts
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.money.prices import load_prices
from simulator.specs.question.plan import PlanSpec, plan_spec
from simulator.specs.question.plan_values import ObjectiveSpec

MODEL = "llama-3.1-70b"
SMALL = "llama-3.1-8b"


def planned(**fields: object) -> CapacityPlan:
    asked = {"model": MODEL, "hardware": "h100", "tp": 4, "rps": 100, "weights": "bf16", "serving": "aggregated"}
    return plan_capacity(plan_spec({**asked, "ttft_p95": "2s", "tpot_p95": "200ms", **fields}))


def replica_on(
    platform: Platform, *, tp_size: int = 4, objectives: tuple[ObjectiveSpec, ...] = DEFAULT_OBJECTIVES
) -> Aggregated | Rejection:
    candidate = Candidate(
        platform=platform, parallelism=ParallelismSpec(tp_size=tp_size), precision=PrecisionSpec(), engine=EngineSpec()
    )
    return evaluate(
        candidate,
        model=load_model(MODEL),
        mix=read_demand(plan_spec({"rps": 1})).mix,
        objectives=objectives,
        policy=LoadPolicy(utilization=0.8),
    )


class TestArithmetic:
    @pytest.mark.parametrize(
        ("replicas", "each", "server", "servers", "idle"),
        [(6, 8, 8, 6, 0), (5, 4, 8, 3, 4), (1, 1, 8, 1, 7), (3, 16, 8, 6, 0), (2, 12, 8, 4, 8), (5, 3, 8, 3, 9)],
    )
    def test_packing_by_hand(self, replicas: int, each: int, server: int, servers: int, idle: int) -> None:
        packed = pack((replicas,), devices=(each,), devices_per_server=server)
        assert (packed, packed * server - replicas * each) == (servers, idle)

    def test_exact_multiples_need_no_extra_replica(self) -> None:
        assert replicas_for(3 * 0.1, capacity_per_s=0.1) == 3
        assert replicas_for(0.31, capacity_per_s=0.1) == 4
        assert replicas_for(0.0001, capacity_per_s=5.0) == 1

    def test_cost_is_devices_times_price_and_splits_without_remainder(self) -> None:
        prices = load_prices()
        offer = market_price(prices, hardware="h100-sxm-80gb", rule=PriceRule())
        assert offer is not None
        demand = read_demand(plan_spec({"rps": 50, "cache_hit": 0.5, "isl": 1000, "osl": 100}))
        cost = fleet_cost(prices=prices, bill=[(offer, 48)], demand=demand, prompt_share=0.3)
        assert cost.per_hour == pytest.approx(48 * offer.per_hour)
        assert cost.per_hour is not None
        assert cost.per_month == pytest.approx(48 * offer.per_hour * 8760 / 12)
        # 25 requests/s reach the fleet: 90,000 an hour, 90 M input and 9 M output tokens.
        assert cost.per_million_input_tokens is not None
        assert cost.per_million_output_tokens is not None
        bill = cost.per_million_input_tokens * 90 + cost.per_million_output_tokens * 9
        assert bill == pytest.approx(cost.per_hour)
        assert cost.per_million_output_tokens_all_in == pytest.approx(cost.per_hour / 9)

    def test_unknown_price_stays_unknown(self) -> None:
        demand = read_demand(plan_spec({"rps": 50}))
        cost = fleet_cost(prices=load_prices(), bill=[(None, 48)], demand=demand, prompt_share=0.3)
        assert cost.per_hour is None
        assert cost.per_million_output_tokens is None


class TestLaws:
    def test_double_rate_takes_about_double_the_replicas(self) -> None:
        once, twice = (planned(rps=rate).best.replicas for rate in (200, 400))
        assert 2 * once - 1 <= twice <= 2 * once

    def test_more_requests_never_take_fewer_devices(self) -> None:
        devices = [planned(rps=rate).best.devices for rate in (1, 10, 100, 1000)]
        assert devices == sorted(devices)

    @pytest.mark.parametrize("metric", ["ttft_p95", "tpot_p95"])
    def test_tighter_objective_never_takes_fewer_devices(self, metric: str) -> None:
        bounds = ("400ms", "600ms", "1s", "4s") if metric == "ttft_p95" else ("30ms", "40ms", "60ms", "200ms")
        devices = [planned(**{metric: bound}).best.devices for bound in bounds]
        assert devices == sorted(devices, reverse=True)
        assert devices[0] > devices[-1]

    def test_higher_percentile_never_takes_fewer_devices(self) -> None:
        devices = [planned(**{f"ttft_p{percentile}": "600ms"}).best.devices for percentile in (50, 90, 95, 99)]
        assert devices == sorted(devices)

    def test_more_bandwidth_never_lowers_capacity(self) -> None:
        (platform,) = platforms(plan_spec({"hardware": "h100"}))
        hardware = platform.hardware
        rates = []
        for factor in (1.0, 1.3, 2.0):
            faster = hardware.model_copy(update={"memory_bytes_per_s": hardware.memory_bytes_per_s * factor})
            outcome = replica_on(replace(platform, hardware=faster))
            assert isinstance(outcome, Aggregated)
            rates.append(outcome.replica.capacity_per_s)
        assert rates == sorted(rates)

    def test_spare_is_exactly_one_replica(self) -> None:
        none, one, two = (planned(spares=count, round_to="device").best for count in (0, 1, 2))
        assert none.replicas == one.replicas == two.replicas
        assert one.devices - none.devices == two.devices - one.devices == 4

    def test_answers_from_cache_need_no_device(self) -> None:
        assert planned(rps=1000, cache_hit=0.5).best.replicas == planned(rps=500).best.replicas

    def test_headroom_and_peak_multiply(self) -> None:
        plain = planned(rps=720).best.replicas
        assert planned(rps=400, peak_to_mean=1.5, headroom=0.2).best.replicas == plain

    def test_prefix_hits_never_cost_devices(self) -> None:
        assert planned(prefix_hit=0.6).best.devices < planned().best.devices

    def test_lower_target_utilisation_takes_more(self) -> None:
        assert planned(rps=500, utilization=0.4).best.replicas > planned(rps=500, utilization=0.8).best.replicas

    def test_objectives_hold_with_the_spares_down(self) -> None:
        for bounds in ({"ttft_p95": "500ms", "tpot_p95": "45ms"}, {"e2e_p99": "40s"}, {}):
            plan = planned(rps=300, **bounds)
            for objective, value_s in zip(plan.objectives, plan.best.degraded.objectives_s, strict=True):
                assert value_s <= objective.bound_s * 1.01
            assert plan.best.degraded.load <= 0.9 + 1e-9
            assert plan.best.at_peak.load <= plan.best.degraded.load

    def test_pipeline_stages_share_one_cache(self) -> None:
        flat, deep = planned(), planned(pp=2)
        assert deep.best.replica.devices == 8
        assert deep.best.replica.capacity_per_s > flat.best.replica.capacity_per_s

    def test_cheapest_is_first_and_prices_unknown_come_last(self) -> None:
        plan = plan_capacity(plan_spec({"model": SMALL, "rps": 200, "hardware": ("h100", "l4", "h20", "a100")}))
        priced = [(fleet.cost.per_hour, fleet.doubt) for fleet in (plan.best, *plan.alternatives)]
        costs = [None if cost is None else cost * (1 + doubt) for cost, doubt in priced]
        known = [cost for cost in costs if cost is not None]
        assert known == sorted(known), "what kernels that were not measured may cost counts"
        assert costs[: len(known)] == known

    def test_interval_holds_the_plan(self) -> None:
        best = planned().best
        assert best.devices_low <= best.devices <= best.devices_high


class TestLimits:
    def test_small_cache_is_named(self) -> None:
        best = planned(tp=2, hardware="a100", isl=4000, osl=1000, ttft_p95="60s").best
        assert "KV memory" in resource_text(best.limit)

    def test_batch_limit_is_named(self) -> None:
        best = planned(max_num_seqs=8).best
        assert "batch limit" in resource_text(best.limit)
        assert best.replica.slots == 8

    def test_objective_is_named(self) -> None:
        assert resource_text(planned(tpot_p95="30ms", serving="aggregated").best.limit).startswith("TPOT p95")

    def test_long_prompts_wait_for_the_tensor_cores(self) -> None:
        best = planned(isl=6000, osl=20, ttft_p95="60s").best
        assert resource_text(best.limit) == "tensor cores"


class TestKinds:
    def test_encoders_are_planned_without_decode_steps(self) -> None:
        plan = plan_capacity(
            plan_spec({"model": "bert-base", "hardware": "h100", "rps": 1000, "isl": 128, "isl_cv": 0.5, "osl": 1})
        )
        assert plan.best.degraded.tpot_mean_s == 0
        assert plan.best.replica.capacity_per_s > 100
        assert resource_text(plan.best.limit) == "tensor cores"

    @pytest.mark.parametrize("model", ["codestral-mamba-7b", "mixtral-8x7b", "t5-11b", "gemma-3-12b", "qwen3-30b-a3b"])
    def test_every_kind_of_model_is_planned(self, model: str) -> None:
        plan = plan_capacity(
            plan_spec({"model": model, "hardware": "h100", "tp": 2, "rps": 10, "isl": 200, "osl": 50, "osl_cv": 0})
        )
        assert plan.best.replicas >= 1
        assert 0 < plan.best.degraded.tpot_mean_s < 0.2


@pytest.mark.usefixtures("few_accelerators")
class TestRefusals:
    def test_too_large_says_by_how_much_and_what_would_be_enough(self) -> None:
        with pytest.raises(GapError) as caught:
            plan_capacity(plan_spec({"model": "llama-3.1-405b", "hardware": "a10", "tp": 8, "pp": 1, "rps": 1}))
        assert caught.value.reason is not None
        assert re.match(r"does not fit by [\d.]+ GB per device", sentence(caught.value.reason))
        assert "enough would be `hardware`" in caught.value.hint
        assert caught.value.exit_code == 3

    @pytest.mark.slow
    @pytest.mark.parametrize("ask", [api.plan, work.planned])
    def test_the_library_and_the_page_say_why_the_closest_cannot_serve(self, ask: Callable[[PlanSpec], object]) -> None:
        spec = plan_spec({"model": "llama-3.1-405b", "hardware": "a10", "tp": 8, "pp": 1, "rps": 1})
        with pytest.raises(InfeasibleError, match=r"closest is a10 TP8: does not fit by [\d.]+ GB per device"):
            ask(spec)

    def test_impossible_objective_names_the_closest_bound_and_that_bound_works(self) -> None:
        with pytest.raises(GapError) as caught:
            planned(tpot_p95="3ms")
        assert caught.value.reason is not None
        assert sentence(caught.value.reason).startswith("TPOT p95 of an idle replica")
        flag = caught.value.hint.split("`tpot_p95` ")[1].split()[0]
        assert planned(tpot_p95=flag).best.replicas > 0

    def test_budget_says_what_is_missing(self) -> None:
        needed = planned(rps=1000).best.devices
        with pytest.raises(InfeasibleError) as caught:
            planned(rps=1000, max_gpus=needed // 2)
        assert f"need at least {needed} GPUs" in caught.value.message
        assert f"{needed - needed // 2} more" in caught.value.message
        assert planned(rps=1000, max_gpus=needed).best.devices == needed

    def test_dtype_that_the_hardware_lacks(self) -> None:
        with pytest.raises(GapError) as caught:
            plan_capacity(plan_spec({"model": SMALL, "hardware": "t4", "rps": 1, "weights": "bf16"}))
        assert caught.value.reason is not None
        assert "no bf16" in sentence(caught.value.reason)

    @pytest.mark.parametrize(
        ("fields", "error", "text"),
        [
            ({"model": "llama-3.1-71b"}, ProfileError, "did you mean"),
            ({"hardware": "h101"}, ProfileError, "did you mean h100"),
            ({"tp": 3}, RoofcastError, "does not divide the heads"),
            ({"isl": 200_000}, RoofcastError, "longer than the 131072 positions"),
            ({"isl": 900, "max_model_len": 1000}, RoofcastError, "longer than the 1000 that `max_model_len` allows"),
            ({"price_kind": "purchase"}, RoofcastError, "not a price per hour"),
            ({"price_of": "cheapest"}, RoofcastError, "price_of"),
            ({"provider": "Lamda"}, RoofcastError, "did you mean Lambda"),
            ({"provider": "Lambda", "price_kind": "spot"}, RoofcastError, "Lambda has no spot offers"),
            ({"prices": "nowhere"}, ProfileError, "unknown price list"),
        ],
    )
    def test_named_refusals(self, fields: dict[str, object], error: type[RoofcastError], text: str) -> None:
        with pytest.raises(error, match=text):
            planned(**fields)

    def test_rejections_carry_amounts(self) -> None:
        plan = plan_capacity(plan_spec({"model": MODEL, "hardware": "h100", "rps": 10, "weights": "bf16"}))
        (alone,) = [item for item in plan.rejections if item.label == "TP1 bf16"]
        assert alone.code == "memory"
        assert 60 < float(rejection_text(alone).split("by ")[1].split()[0]) < 80  # 141 GB of weights in 80 GB


class TestWarnings:
    def test_thousands_of_devices_come_with_a_hint(self) -> None:
        plan = plan_capacity(plan_spec({"model": MODEL, "hardware": "a40", "tp": 8, "rps": 1000, "ttft_p95": "10s"}))
        assert plan.best.devices >= 1000
        assert "implausibly many" in warning_texts(plan.warnings)[0]
        assert "--hardware" in warning_texts(plan.warnings)[0]

    @pytest.mark.parametrize("fields", [{}, {"hardware": "h100"}])
    def test_the_hint_tries_a_few_accelerators_and_not_all_again(
        self, fields: dict[str, object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tried: list[int] = []

        def counted(question: Question, offered: Sequence[Platform]) -> Trial:
            tried.append(len(offered))
            return usual_search(question, offered)

        spec = plan_spec({"model": MODEL, "rps": 10_000, **fields})
        offered = len(platforms(spec))
        monkeypatch.setattr(search, "usual_search", counted)
        monkeypatch.setattr("simulator.planner.search.usual_search.usual_search", counted)
        plan = plan_capacity(spec)
        assert plan.best.devices >= 1000
        assert tried[0] == offered
        assert tried[1:]
        assert max(tried[1:]) <= 3

    def test_prompts_that_an_engine_refuses_are_counted(self) -> None:
        """Log-normal of mean 3,000 and cv 1: ln 9,000 lies (9.105 - 8.006 + 0.347) / 0.833 = 1.74 sigma up, 4.1 %."""
        long = {"engine": "tensorrt-llm", "isl": 3000, "isl_cv": 1, "osl": 200}
        said = " ".join(warning_texts(planned(**long, max_num_batched_tokens=9000).warnings))
        assert "4.1 % of the requests, too long for steps of 9,000 tokens, get no answer" in said
        none_refused = planned(**{**long, "isl": 300}), planned(**{**long, "engine": "vllm"})
        assert not any("chunk" in text for plan in none_refused for text in warning_texts(plan.warnings))

    def test_no_more_is_refused_than_an_objective_allows(self) -> None:
        """In steps of 8,192 tokens 5.3 %, more than the twentieth beyond a 95th percentile."""
        long = {"engine": "tensorrt-llm", "isl": 3000, "isl_cv": 1, "osl": 200, "max_num_batched_tokens": 8192}
        with pytest.raises(InfeasibleError, match=r"5\.3 % of the requests.*leaves 5 %") as found:
            planned(**long)
        planned(**{**long, **found.value.offers})

    @pytest.mark.parametrize("search", ["usual", "wide"])
    @pytest.mark.parametrize("isl", [1000, 8000, 20_000])
    @pytest.mark.parametrize("engine", ["tensorrt-llm", "torch"])
    def test_steps_hold_the_longest_prompt_of_an_engine_that_splits_none(
        self, engine: str, isl: int, search: str
    ) -> None:
        plan = planned(engine=engine, isl=isl, isl_cv=0.3, osl=200, ttft_p95="20s", tpot_p95="1s", search=search)
        assert "no answer" not in " ".join(warning_texts(plan.warnings))

    def test_who_may_be_preempted_must_fit_a_step_with_its_answer(self) -> None:
        """FasterTransformer reserves nothing: 8,100 and 200 tokens are too many; TensorRT-LLM counts 8,100."""
        equal = {"isl": 8100, "isl_cv": 0, "osl": 200, "osl_cv": 0, "ttft_p95": "20s", "max_num_batched_tokens": 8192}
        planned(engine="tensorrt-llm", **equal)
        with pytest.raises(InfeasibleError, match="100 % of the requests"):
            planned(engine="fastertransformer", **equal)

    def test_a_named_accelerator_that_cannot_be_compared_is_left_out_with_a_warning(self) -> None:
        asked = {"rps": 5.0, "model": "llama-3.1-8b", "engine": "tensorrt-llm", "verify": False}
        found = plan_capacity(plan_spec({**asked, "hardware": ("h100", "mi300x")}))
        assert {fleet.hardware for fleet in found.fleets} == {"h100-sxm-80gb"}
        said = warning_texts(found.warnings)
        assert any("not compared: tensorrt-llm does not run on mi300x" in text for text in said)
        with pytest.raises(RoofcastError, match="tensorrt-llm does not run on mi300x"):
            plan_capacity(plan_spec({**asked, "hardware": ("mi300x",)}))

    def test_no_spare_and_high_load_are_warned_of(self) -> None:
        warnings = " ".join(warning_texts(planned(spares=0, utilization=0.95).warnings))
        assert "no spare replica" in warnings
        assert "95 % of saturation" in warnings
