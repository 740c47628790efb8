"""Prefill pools on one kind of accelerator and decode pools on another: searched on request, never to the worse."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import inf
from pathlib import Path

import pytest
import yaml

from simulator import simulate, verify
from simulator.engine.pools import slower_network
from simulator.errors import RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.fleet import Sized
from simulator.planner.plan import plan_capacity
from simulator.planner.search import candidates, usual_search
from simulator.planner.search.candidates import platforms, unlike_pairs
from simulator.planner.search.question import Question, resolve
from simulator.planner.search.search import search
from simulator.planner.search.usual_search import try_pair
from simulator.planner.search.wide_search import pool_finalists, screen_space
from simulator.planner.serving.disaggregated import Disaggregated
from simulator.planner.studies.length_split import length_split_of
from simulator.planner.studies.rental import RentalMix
from simulator.planner.studies.stock_fleets import StockPlan
from simulator.planner.verification.simulation import pool_check
from simulator.reports.content.document import Table
from simulator.reports.decide.decision import lead_text
from simulator.reports.formats.files import ReportFormat, render
from simulator.reports.report import Report, build_report
from simulator.reports.sections.answer import price_blocks, rival_text
from simulator.reports.studies import Studies, gather
from simulator.reports.tables.plan_document import plan_document
from simulator.reports.words.plan_inputs import warning_text
from simulator.specs.question.plan import plan_spec

CHEAPER = {
    **{"model": "llama-3.1-70b", "rps": 200, "hardware": ("h200", "h100"), "prefill_hardware": "h100"},
    **{"isl": 3000, "osl": 1000, "tpot_p95": "25ms", "serving": "disaggregated"},
}
"""A question whose best fleet has unlike pools."""


@lru_cache(maxsize=4)
def plan(**changes: object) -> CapacityPlan:
    return plan_capacity(plan_spec({**CHEAPER, **changes}))


@lru_cache(maxsize=1)
def gathered() -> Studies:
    return gather(plan(), command="", created="2026-11-26")


def _question(**fields: object) -> Question:
    return resolve(plan_spec({"model": "llama-3.1-8b", "rps": 60, "tp": (1, 2), **fields}))


class TestSearch:
    def test_a_buyer_gets_the_cheaper_fleet_of_two_kinds(self) -> None:
        best, alone = plan().best, plan(prefill_hardware=()).best
        assert [pool.hardware for pool in best.pools] == ["h100-sxm-80gb", "h200-sxm-141gb"]
        assert best.hardware == "h100-sxm-80gb + h200-sxm-141gb"
        assert best.counted_per_hour is not None
        assert alone.counted_per_hour is not None
        assert best.counted_per_hour < alone.counted_per_hour

    @pytest.mark.parametrize(
        "fields",
        [
            {"model": "llama-3.1-70b", "rps": 20, "hardware": "h200", "prefill_hardware": "h100"},
            {"model": "llama-3.1-8b", "rps": 300, "hardware": ("l40s", "h100"), "prefill_hardware": ("h100", "l40s")},
            {"model": "llama-3.1-70b", "rps": 40, "hardware": "mi325x", "prefill_hardware": "mi355x"},
            {"model": "qwen3-30b-a3b", "rps": 40, "hardware": "h200", "prefill_hardware": "h100", "e2e_p95": "12s"},
            {"model": "llama-3.1-8b", "rps": 40, "hardware": "h200", "prefill_hardware": "h100", "search": "wide"},
        ],
    )
    def test_it_never_costs_more_than_one_kind_alone(self, fields: dict[str, object]) -> None:
        both = search(resolve(plan_spec(fields))).trial
        alone = search(resolve(plan_spec({**fields, "prefill_hardware": ()}))).trial
        assert {item.evaluated.candidate.label for item in alone.sized} <= {
            item.evaluated.candidate.label for item in both.sized
        }
        assert min(item.rank for item in both.sized) <= min(item.rank for item in alone.sized)
        assert any(" + " in item.evaluated.candidate.hardware for item in both.sized)

    def test_equal_kinds_counted_as_two_are_the_fleet_of_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        question = _question(hardware="h100", serving="disaggregated")
        (platform,) = platforms(question.spec)
        alone = try_pair(question, platform, platform).sized[0]
        monkeypatch.setattr(usual_search._Pools, "_unlike", True)
        same = try_pair(question, platform, platform).sized[0]
        assert (same.counts, same.spare, same.housing, same.cost) == (
            *(alone.counts, alone.spare, alone.housing),
            alone.cost,
        )
        for one, other in zip(same.evaluated.parts, alone.evaluated.parts, strict=True):
            assert one.replica.capacity_per_s == other.replica.capacity_per_s

    def test_more_requests_never_cost_less_nor_take_fewer_accelerators(self) -> None:
        fleets = [
            min((item for item in _unlike(_question(hardware="h200", prefill_hardware="h100", rps=rate))), key=_cost)
            for rate in (20, 60, 200, 600)
        ]
        assert all(_cost(less) <= _cost(more) for less, more in pairwise(fleets))
        assert all(less.devices <= more.devices for less, more in pairwise(fleets))

    def test_what_costs_more_than_is_known_is_not_worked_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        question = _question(hardware="h200", prefill_hardware="h100", serving="disaggregated")
        (pair,) = unlike_pairs(question.spec)
        worked_out, evaluate = [], usual_search.evaluate_pair

        def counted(*args: object, **kwargs: object) -> object:
            worked_out.append(args[0])
            return evaluate(*args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(usual_search, "evaluate_pair", counted)
        every = try_pair(question, *pair).sized
        of_all = len(worked_out)
        found = try_pair(question, *pair, below=0.0).sized
        assert len(worked_out) - of_all == 1 <= of_all
        assert found[0].cost.per_hour == every[0].cost.per_hour
        asked = replace(question, spec=question.spec.model_copy(update={"search": "wide", "pp_size": (1,)}))
        space = screen_space(asked, pair)
        assert pool_finalists(space, asked, unlike=(pair,))
        assert not pool_finalists(space, asked, unlike=(pair,), below=0.0)

    def test_pools_that_cannot_serve_are_named_with_the_reason(self) -> None:
        found = plan_capacity(
            plan_spec({"model": "llama-3.1-70b", "rps": 20, "hardware": "h200", "prefill_hardware": "rtx-4090"})
        )
        (said,) = (item for item in found.warnings if item.key == "no_unlike_pools")
        text = warning_text(said)
        assert "rtx-4090 + h200-sxm-141gb" in text
        assert "TTFT" in text
        assert "--prefill-hardware" in text

    def test_both_pools_serve_one_checkpoint_in_one_release(self) -> None:
        for item in _unlike(_question(hardware="b200", prefill_hardware="h200")):
            prefill, decode = item.evaluated.candidate.parts
            assert prefill.precision == decode.precision
            assert prefill.engine.version == decode.engine.version


class TestAnswer:
    def test_every_part_of_the_report_knows_both_kinds(self) -> None:
        studies = gathered()
        report = build_report(studies)
        for form in (ReportFormat.MD, ReportFormat.JSON, ReportFormat.HTML):
            text = render(report, studies, form)[0].data.decode()
            for name in ("h100-sxm-80gb", "h200-sxm-141gb", "dgx-h100", "dgx-h200"):
                assert name in text, (form, name)
        assert studies.cost.owning is not None
        assert studies.energy.embodied_t is None or studies.energy.embodied_t > 0
        said = {name: block for name, block in _decided(report).items()}
        assert said["Of whom"].count("$") >= 8
        assert "+" in said["Availability"]
        counts = [int(count) for count in re.findall(r"(\d+) h[12]00-sxm", lead_text(studies))]
        assert counts == [item.devices for item in plan().best.housing]
        assert sum(counts) == plan().best.devices

    def test_a_fleet_at_the_same_cost_is_said_to_cost_as_much(self) -> None:
        best, rival = plan().best, plan().rival
        assert rival is not None
        for more, words in ((0.0001, "as much"), (0.2, "20 % more. It would be the choice if")):
            said = rival_text(replace(rival, doubt=best.doubt, cost_change=more, break_even_change=more), plan())
            assert words in said
            assert f": {rival.devices} {rival.hardware}" in said  # TPUs are no GPUs

    def test_a_chosen_fleet_that_is_dearer_than_the_next_says_why(self) -> None:
        ranking = plan().price_ranking
        assert ranking is not None
        case = ranking.cases[0]
        for less, said in ((1.0, True), (-1.0, False)):
            cases = (replace(case, next_hardware="h100-sxm-80gb", next_cost_per_hour=case.cost_per_hour - less),)
            shown = price_blocks(replace(plan(), price_ranking=replace(ranking, cases=cases)))[1]
            assert ("kernels are not measured" in shown.note) is said

    def test_each_price_says_whose_it_is(self) -> None:
        names = [item["name"] for item in json.loads(plan_document(plan()))["assumptions"]]
        assert {"price of h100-sxm-80gb", "price of h200-sxm-141gb"} < set(names)

    @pytest.mark.slow
    def test_its_document_names_each_kind_and_is_replayed(self, tmp_path: Path) -> None:
        document = json.loads(plan_document(plan()))["plan"]
        best = plan().best
        assert document["prefill"]["hardware"] == best.pools[0].hardware
        assert [item["hardware"] for item in document["housing"]] == [item.hardware for item in best.housing]
        assert sum(item["devices"] for item in document["housing"]) == document["devices"]
        assert "housing" not in json.loads(plan_document(plan(prefill_hardware=())))["plan"]
        path = tmp_path / "plan.json"
        path.write_text(plan_document(plan()))
        assert verify(str(path), seeds=2).promise.fleet.hardware == best.hardware

    def test_each_pool_is_launched_on_its_own_nodes(self) -> None:
        studies = gathered()
        files = {file.name: file.text for file in studies.handoff.files}
        assert "--tensor-parallel-size 2" in files["launch-vllm-prefill.sh"]
        assert "--tensor-parallel-size 4" in files["launch-vllm-decode.sh"]
        labels = {
            item["metadata"]["name"]: item["metadata"]["labels"]["roofcast/hardware"]
            for item in yaml.safe_load_all(files["kubernetes.yaml"])
            if item["kind"] == "Deployment" and "labels" in item["metadata"]
        }
        assert set(labels.values()) == {"h100-sxm-80gb", "h200-sxm-141gb"}
        assert any("on h100-sxm-80gb and answers on h200-sxm-141gb" in note for note in studies.handoff.notes)

    def test_stock_of_one_kind_serves_beside_the_other_that_is_bought(self) -> None:
        with_both, alone = (plan(stock="h100=64", prefill_hardware=names).study(StockPlan) for names in ("h100", ()))
        assert with_both is not None
        assert alone is not None
        assert with_both.cost_per_hour is not None
        assert alone.cost_per_hour is not None
        assert with_both.cost_per_hour < alone.cost_per_hour
        (share,) = with_both.shares
        assert share.from_stock == 64
        assert dict(share.by_kind).keys() == {"h100-sxm-80gb", "h200-sxm-141gb"}
        assert share.bought == sum(dict(share.by_kind).values()) == share.devices - 64

    def test_rent_by_the_hour_is_of_each_kind(self) -> None:
        mix = plan(rental=True).study(RentalMix)
        assert mix is not None
        assert {share.hardware for share in mix.shares} == {"h100-sxm-80gb", "h200-sxm-141gb"}
        assert max(mix.devices) == plan().best.devices
        assert mix.per_month <= mix.flat_per_month * (1 + 1e-9)

    def test_limits_are_of_both_kinds_together(self) -> None:
        best = plan().best
        assert plan(max_gpus=best.devices).best.devices == best.devices
        within = plan(max_gpus=best.devices - 1).best
        assert within.devices < best.devices
        assert within.hardware != best.hardware

    @pytest.mark.parametrize("kind", ["closed_loop", "serve"])
    def test_a_scenario_puts_the_prefill_pool_on_another_accelerator(self, kind: str) -> None:
        lengths = {"isl_tokens": 1000, "osl_tokens": 100}
        load = (
            {"concurrency": 32, **lengths}
            if kind == "closed_loop"
            else {
                "workload": {
                    "stages": [{"rate_per_s": 4, "duration_s": 30}],
                    "question_tokens": 1000,
                    "osl_tokens": 100,
                }
            }
        )
        pools = {"prefill_replicas": 1, "decode_replicas": 1, "link": "nic"}
        found = [
            simulate(
                {"kind": kind, "model": "llama-3.1-8b", "hardware": "h200", **load, "disaggregation": pools | more}
            )
            for more in ({}, {"prefill_hardware": "h200"}, {"prefill_hardware": "a100"})
        ]
        first = [item["ttft_s"] for item in found]
        assert first[0] == first[1] < first[2]
        assert found[2]["tpot_s"] <= found[0]["tpot_s"] * 1.1, "the decode pool is the same, and no fuller"


def _decided(report: Report) -> dict[str, str]:
    blocks = [block for section in report.sections for block in section.blocks]
    (found,) = (block for block in blocks if isinstance(block, Table) and block.key == "decisions")
    cells = [[str(cell.value) for cell in row.cells] for row in found.rows]
    return {name: " ".join(said) for name, *said in cells}


class TestLink:
    def test_the_slower_network_sets_the_pace(self) -> None:
        question = _question(hardware="h200", prefill_hardware="h100")
        ((first, second),) = unlike_pairs(question.spec)
        assert second.server is not None
        slow = second.server.model_copy(
            update={"nic": second.server.nic.model_copy(update={"bytes_per_s_per_direction": 1e9})}
        )
        assert slower_network(first.server, slow) is slow
        assert slower_network(slow, first.server) is slow
        assert slower_network(first.server, None) is None
        fast = try_pair(question, first, second).sized[0].evaluated
        slower = try_pair(question, first, replace(second, server=slow)).sized[0].evaluated
        assert isinstance(fast, Disaggregated)
        assert isinstance(slower, Disaggregated)
        assert slower.link.token_s > 10 * fast.link.token_s

    def test_the_event_simulation_moves_caches_at_that_pace_and_agrees(self) -> None:
        question = _question(hardware="h200", prefill_hardware="h100")
        item = _unlike(question)[0]
        server = slower_network(*(part.server for part in item.housing))
        first, second = (part.replica.deployment for part in item.evaluated.parts)
        check = pool_check(first, second, server=server, demand=question.demand, objectives=question.objectives)
        state = item.evaluated.at_counts(60.0, item.counts, objectives=question.objectives)[0]
        found = check.at(item.counts, state)
        assert found.holds
        assert found.ttft_mean_s == pytest.approx(state.ttft_mean_s, rel=0.2)
        assert found.tpot_mean_s == pytest.approx(state.tpot_mean_s, rel=0.1)


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"hardware": "h100", "prefill_hardware": "h100"}, "prefill_hardware", "need no such option"),
        ({"hardware": "h200", "prefill_hardware": ("h100", "h100-sxm-80gb")}, "prefill_hardware", "given twice"),
        ({"hardware": "h200", "prefill_hardware": "mi300x"}, "prefill_hardware", "no release"),
        ({"hardware": "h200", "prefill_hardware": "h1000"}, "prefill_hardware", "unknown accelerator"),
        ({"hardware": "h200", "prefill_hardware": "h100", "osl": 1}, "prefill_hardware", "nothing to decode"),
        ({"hardware": "h200", "prefill_hardware": "h100", "serving": "aggregated"}, "prefill_hardware", "contradicts"),
        (
            {"hardware": "h200", "prefill_hardware": "h100", "measured_rps_per_gpu": 1.0},
            "measured_rps_per_gpu",
            "one accelerator",
        ),
    ],
)
def test_what_cannot_be_is_said_in_one_line(fields: dict[str, object], field: str, said: str) -> None:
    with pytest.raises(RoofcastError) as raised:
        plan_capacity(plan_spec({"model": "llama-3.1-8b", "rps": 20, **fields}))
    assert raised.value.field == field
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_accelerator_without_a_server_profile_reaches_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_server", lambda hardware, spec: None)
    with pytest.raises(RoofcastError, match="no server profile for h100-sxm-80gb says over what network"):
        unlike_pairs(plan_spec({"model": "llama-3.1-8b", "hardware": "h200", "prefill_hardware": "h100"}))


def _unlike(question: Question) -> list[Sized]:
    found = [item for pair in unlike_pairs(question.spec) for item in try_pair(question, *pair).sized]
    return sorted(found, key=lambda item: item.rank)


def _cost(item: Sized) -> float:
    assert item.cost.per_hour is not None
    return item.cost.per_hour


def test_results_know_their_own_ratios() -> None:
    best, other = plan().best, plan(prefill_hardware=()).best
    assert best.cost_ratio(other) == (best.cost.per_hour or 0.0) / (other.cost.per_hour or 1.0)
    assert best.changed_by(devices=best.devices * 1.5, cost_per_hour=None) == pytest.approx(0.5)
    assert best.changed_by(devices=1.0, cost_per_hour=2 * (best.cost.per_hour or 0.0)) == pytest.approx(1.0)
    assert best.more_devices == best.devices_high - best.devices
    assert [pool.spare_devices for pool in best.pools] == [pool.spares * pool.replica.devices for pool in best.pools]
    price = best.price
    assert price is not None
    assert price.spread == price.high / price.low
    assert price.above_median(price.median) == 0
    (bound, *_) = plan().objectives
    assert bound.margin(bound.bound_s) == 0 == 1 - bound.margin(0.0)


class TestByLength:
    @pytest.mark.slow
    def test_fleets_by_prompt_length_may_have_unlike_pools_too_and_never_cost_more_by_it(self) -> None:
        asked = {"pools": True, "isl_cv": 1.0, "rps": 100}
        both, alone = (
            length_split_of(resolve(plan_spec({**CHEAPER, **asked, **given})), devices=0)
            for given in ({}, {"prefill_hardware": ()})
        )
        costs = [sum(fleet.cost_per_hour or inf for fleet in split.fleets) for split in (both, alone)]
        assert costs[0] < costs[1]
        unlike = [fleet for fleet in both.fleets if len(fleet.accelerators) > 1]
        assert unlike
        assert all(fleet.hardware == " + ".join(fleet.accelerators) for fleet in both.fleets)
        assert all(len(fleet.accelerators) == 1 for fleet in alone.fleets)
