"""Answers made of records: verdicts, prices, scores and fits say what their numbers say.

``simulator.reports.answers.promise``, ``.prices``, ``.today``, ``.replay`` and ``.calibration``;
``simulator.reports.sections.sizing`` and ``simulator.reports.model_plans``.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from simulator import plan, plan_models
from simulator.errors import RoofcastError
from simulator.fitting.engine_overheads import EngineCalibration, OverheadFit, RunErrors
from simulator.fitting.replay import ReplayedRun, ReplayedValue
from simulator.planner.serving.capacity import Latencies
from simulator.planner.studies.measured_rate import MeasuredObjective, MeasuredRate
from simulator.planner.verification.promise import Promise, PromiseCase, ReplayedCase, SignedFleet
from simulator.planner.verification.records import ObjectiveVerification, Verification
from simulator.reports.answers.calibration import REPLAY_COLUMNS, EngineCalibrationAnswer, ReplayAnswer, replay_rows
from simulator.reports.answers.prices import (
    PriceFilter,
    asked_filter,
    comparison_document,
    comparison_text,
    offers_document,
    offers_text,
    quotes_table,
)
from simulator.reports.answers.promise import PromiseAnswer, verdict_text
from simulator.reports.answers.today import score_row
from simulator.reports.model_plans import ModelPlansAnswer
from simulator.reports.sections.sizing import measured_blocks, measured_sentence
from simulator.specs.measured.scores import ALL, today_scores
from simulator.specs.measured.serving_results import ServingRun
from simulator.specs.measured.validation_rows import ValidationRow
from simulator.specs.money.prices import PriceProfile, load_prices
from simulator.specs.question.scenario import ScenarioSpec
from tests.reports.report_cases import measured_row

TODAY = date(2026, 6, 1)


class TestPromise:
    @staticmethod
    def case(kind: PromiseCase, *, simulated_s: float, held: float, reason: str = "") -> ReplayedCase:
        steady = Latencies(**dict.fromkeys(Latencies.__dataclass_fields__, 0.0) | {"objectives_s": ()})
        objective = ObjectiveVerification(
            name="TTFT p95", bound_s=2.0, simulated_s=simulated_s, low_s=0.9, high_s=1.1, steady_s=1.0
        )
        numbers = dict.fromkeys(Verification.__dataclass_fields__, 0.0)
        found = Verification(
            **numbers
            | {
                "holds": simulated_s <= 2 and held >= 0.9,
                "saturated": False,
                "objectives": () if reason else (objective,),
                "steady": steady,
                "seeds": 10,
                "requests": 1000,
                "reason": reason,
                "chance": None,
                "held_fraction": held,
            }
        )
        return ReplayedCase(case=kind, replicas=4, found=found)

    def promise(self, *cases: ReplayedCase, least: int | None = 4) -> Promise:
        fleet = SignedFleet(hardware="h100", label="TP1", replicas=4, spares=1)
        return Promise(fleet=fleet, cases=cases, least_replicas=least)

    def test_a_promise_is_kept_by_its_smallest_margin(self) -> None:
        kept = self.promise(
            self.case(PromiseCase.ALL_UP, simulated_s=1.0, held=1.0),
            self.case(PromiseCase.SPARES_DOWN, simulated_s=1.5, held=0.95),
            self.case(PromiseCase.BURSTIER, simulated_s=9.0, held=0.0),
        )
        # 1.5 s of 2 s leave a quarter; what was not promised does not count.
        assert verdict_text(kept) == "Kept: 4 x h100 (TP1) meets every objective with 25 % of a bound to spare."
        document = PromiseAnswer(kept, ()).to_dict()
        assert document["kept"]
        assert [case["promised"] for case in document["cases"]] == [True, True, False]
        assert [case["margin"] for case in document["cases"]] == [0.5, 0.25, -3.5]

    def test_a_missed_one_says_where_and_how_often(self) -> None:
        missed = self.promise(
            self.case(PromiseCase.ALL_UP, simulated_s=1.0, held=1.0),
            self.case(PromiseCase.SPARES_DOWN, simulated_s=2.5, held=0.4),
        )
        assert verdict_text(missed) == "Not kept: 4 x h100 (TP1) misses with spares down, in 60 % of replays."
        near = self.promise(self.case(PromiseCase.ALL_UP, simulated_s=2.01, held=0.95))
        assert verdict_text(near).endswith("too near a bound for 90 % of replays.")

    def test_what_cannot_be_simulated_says_why(self) -> None:
        refused = self.promise(self.case(PromiseCase.ALL_UP, simulated_s=0.0, held=0.0, reason="too many steps"))
        assert verdict_text(refused) == "Not simulated: 4 x h100 (TP1): too many steps"
        assert PromiseAnswer(refused, ()).to_text() == "Not simulated: 4 x h100 (TP1): too many steps\n\n"

    @pytest.mark.parametrize(
        ("least", "said"),
        [
            (None, "No fleet up to twice as large holds in 90 % of replays."),
            (6, "6 replicas would hold in 90 % of replays, 2 more than planned."),
            (4, "has 4 replicas with the spares down, as planned."),
            (3, "1 fewer than planned: its margin for slower steps."),
            (1, "has 1 replica with the spares down, 3 fewer than planned"),
        ],
    )
    def test_the_smallest_fleet_is_compared_with_the_planned_one(self, least: int | None, said: str) -> None:
        found = self.promise(self.case(PromiseCase.ALL_UP, simulated_s=1.0, held=1.0), least=least)
        assert said in PromiseAnswer(found, ()).to_text()

    def test_what_has_changed_since_is_listed(self) -> None:
        found = self.promise(self.case(PromiseCase.ALL_UP, simulated_s=1.0, held=1.0))
        text = PromiseAnswer(found, (("devices", 8, 9),)).to_text()
        assert "Changed since the plan: devices was 8, planning again gives 9." in text
        assert len(PromiseAnswer(found, ()).chart().series) == 1


class TestPrices:
    @staticmethod
    def prices(*, name: str = "list", dearer: float = 1.0) -> PriceProfile:
        made = (("one", 2.0, "2026-05-01"), ("two", 3.0, "2025-01-01"), ("three", 10.0, "2026-05-02"))
        offers = [
            {"hardware": "h100-sxm-80gb", "kind": "on_demand", "provider": provider, "per_hour": hourly * dearer,
             "date": day, "source": "a page"}
            for provider, hourly, day in made
        ]  # fmt: skip
        bought = {"hardware": "l4", "kind": "purchase", "provider": "shop", "per_device": 2500.0, "date": "2026-05-01",
                  "source": "a page"}  # fmt: skip
        return PriceProfile.model_validate(
            {"name": name, "currency": "USD", "date": "2026-05-10", "power_per_kwh": 0.1, "power_source": "x",
             "pue": 1.2, "pue_source": "x", "stale_after_days": 90, "stale_source": "x", "offers": [*offers, bought]}
        )  # fmt: skip

    def test_offers_are_filtered_and_the_old_ones_are_stale(self) -> None:
        every = offers_document(self.prices(), asked=PriceFilter(), today=TODAY)["offers"]
        assert [item["hardware"] for item in every] == ["h100-sxm-80gb"] * 3 + ["l4"]
        assert [item["stale"] for item in every] == [False, True, False, False]
        bought = offers_document(self.prices(), asked=PriceFilter(kind="purchase"), today=TODAY)["offers"]
        assert [item["per_device"] for item in bought] == [2500.0]
        text = offers_text(self.prices(), asked=PriceFilter(provider="two"), today=TODAY)
        assert "1 offers" in text
        assert "stale" in text
        none = offers_text(self.prices(), asked=PriceFilter(hardware=("a10",)), today=TODAY)
        assert none == "The price list list has no such offer.\n"

    def test_the_market_is_low_median_and_high_of_providers(self) -> None:
        found = comparison_document(self.prices(), asked=PriceFilter(kind="on_demand"), quotes=None)["prices"]
        # The stale one is no market price.
        assert [item["low"] for item in found] == [2.0]
        assert [item["median"] for item in found] == [6.0]
        assert [(item["high"], item["providers"]) for item in found] == [(10.0, 2)]
        text = comparison_text(self.prices(), asked=PriceFilter(kind="on_demand"), quotes=None)
        assert "5.0" in text, "the highest over the lowest"

    def test_a_quote_stands_beside_the_median(self) -> None:
        quotes = self.prices(name="quotes", dearer=1.5)
        (first, *_) = comparison_document(self.prices(), asked=PriceFilter(), quotes=quotes)["quotes"]
        assert first["per_hour"] == 3.0
        assert first["over_median"] == 3 / 6 - 1
        table = quotes_table(self.prices(), asked=PriceFilter(), quotes=quotes)
        assert len(table.rows) == 3, "what is bought has no hourly price"
        assert quotes_table(self.prices(), asked=PriceFilter(), quotes=self.prices()).rows == ()

    def test_a_quote_of_a_purchase_stands_beside_the_listed_ones(self) -> None:
        listed = load_prices("default")
        offers = [offer for offer in listed.offers if offer.kind == "purchase" and offer.server_included]
        quote = offers[0].model_copy(update={"per_device": 1.5 * (offers[0].per_device or 0.0), "provider": "a vendor"})
        own = listed.model_copy(update={"offers": (quote,)})
        (found,) = comparison_document(listed, asked=PriceFilter(), quotes=own)["quotes"]
        same = sorted(offer.per_device or 0.0 for offer in offers if offer.hardware == quote.hardware)
        assert (found["low"], found["high"]) == (same[0], same[-1])
        assert found["over_median"] == pytest.approx((quote.per_device or 0.0) / found["median"] - 1)
        assert len(quotes_table(listed, asked=PriceFilter(), quotes=own).rows) == 1

    def test_names_are_those_of_profiles_and_of_the_list(self) -> None:
        asked = asked_filter(self.prices(), hardware=("h100",), kind=None, provider="one", profiles=None)
        assert asked.hardware == ("h100-sxm-80gb",)
        with pytest.raises(RoofcastError):
            asked_filter(self.prices(), hardware=(), kind=None, provider="nobody", profiles=None)


class TestToday:
    @staticmethod
    def row(**changed: Any) -> ValidationRow:
        return measured_row(**{"metric": "tpot_p50_s", "low": 0.9, "high": 1.2} | changed)

    def test_errors_are_means_with_their_sign_and_the_whole_comes_first(self) -> None:
        rows = [
            self.row(run="a"),
            self.row(run="b", predicted=0.7, low=0.5, high=0.8),
            self.row(run="b", metric="total_tokens_per_s", predicted=1.0),
            self.row(run="c", engine="sglang", predicted=1.3, low=float("nan"), high=float("nan")),
        ]
        whole, *parts = today_scores(rows)
        assert (whole.engine, whole.model_class, whole.mode, whole.runs) == (ALL, ALL, ALL, 3)
        assert [(item.engine, item.runs) for item in parts] == [("sglang", 1), ("vllm", 2)]
        vllm = parts[1]
        # +10 % and -30 %: 20 % off on average, 10 % too low.
        assert vllm.metrics["tpot_p50_s"].mean == pytest.approx(0.2)
        assert vllm.metrics["tpot_p50_s"].bias == pytest.approx(-0.1)
        assert score_row(vllm)[5:] == ("20 % (-10 %)", "0 % (+0 %)", "-", "67 %")
        assert score_row(parts[0])[-1] == "-", "nothing lies in an interval that is not stated"

    def test_energy_of_decoding_counts_as_energy(self) -> None:
        (whole, _) = today_scores([self.row(metric="decode_energy_per_output_token_j")])
        assert list(whole.metrics) == ["energy_per_output_token_j"]


def run_of(**changed: Any) -> ServingRun:
    fields: dict[str, Any] = {
        "tool": "vllm bench", "path": "x.json", "isl_tokens": 512.0, "osl_tokens": 64.0, "ttft_s": 0.2, "tpot_s": 0.01,
        "requests": 100, "answered_per_s": 5.0, "request_rate_per_s": None, "concurrency": 16.0,
    }  # fmt: skip
    return ServingRun(**fields | changed)


class TestMeasuredRuns:
    def test_an_error_is_predicted_over_measured(self) -> None:
        scenario = ScenarioSpec.model_validate(
            {"id": "first", "kind": "closed_loop", "model": "llama-3.1-8b", "hardware": "h100", "concurrency": 16,
             "isl_tokens": 512, "osl_tokens": 64}
        )  # fmt: skip
        values = (
            ReplayedValue(metric="ttft_s", measured=0.2, predicted=0.25, interval=(0.2, 0.3)),
            ReplayedValue(metric="output_tokens_per_s", measured=400.0, predicted=300.0, interval=None),
        )
        found = ReplayAnswer((ReplayedRun(run=run_of(), scenario=scenario, values=values),))
        assert [row["error"] for row in found.rows()] == pytest.approx([0.25, -0.25])
        assert [row["result"] for row in found.rows()] == ["first", "first"]
        text = found.to_text()
        assert "first (vllm bench, 16 in flight, lengths taken to vary by 6.4 %: the file has means alone)" in text
        told = ReplayAnswer((ReplayedRun(run=run_of(isl_cv=0.0, osl_cv=0.1), scenario=scenario, values=values),))
        assert "first (vllm bench, 16 in flight)" in told.to_text()
        assert "ttft_s: measured 0.2, predicted 0.25 (+25.0 %, 80 %: 0.2 to 0.3)" in text
        assert "(-25.0 %)" in text
        rows = replay_rows(found.runs)
        assert {len(row) for row in rows} == {len(REPLAY_COLUMNS)}
        assert [row[1] for row in rows] == ["TTFT", "output tokens/s"]

    def test_overheads_that_stay_write_nothing(self) -> None:
        errors = RunErrors(run=run_of(), ttft_before=0.1, tpot_before=-0.2, ttft_after=0.0, tpot_after=0.01)
        fit = OverheadFit(step_s=2e-3, request_s=1e-3, errors=(errors,), changed=True)
        found = EngineCalibration(engine="vllm", fit=fit, lengths="equal", profile=None)
        text = EngineCalibrationAnswer(found, (Path("own/engines/vllm.yaml"),)).to_text()
        assert "TTFT 200 ms, off by +10.0 % before, +0.0 % after; TPOT 10 ms, off by -20.0 % before, +1.0 %" in text
        assert "vllm: step_s 2 ms, request_s 1 ms" in text
        assert "use it with --profiles own" in text
        assert "lengths: taken as equal, which come in waves" in text
        assert "lengths" not in EngineCalibrationAnswer(replace(found, lengths=None), ()).to_text()
        kept = EngineCalibrationAnswer(replace(found, fit=replace(fit, changed=False)), ())
        assert kept.to_text().endswith("vllm: no change needed: step_s 2 ms, request_s 1 ms stay, nothing written\n")
        assert kept.to_dict()["changed"] is False
        assert [series.name for series in kept.chart().series] == ["before", "after"]


class TestMeasuredRate:
    FOUND = MeasuredRate(
        hardware="h100-sxm-80gb",
        label="TP1",
        rate_per_gpu_per_s=12.5,
        predicted_per_gpu_per_s=10.0,
        needed_devices=16,
        spare_devices=1,
        idle_devices=7,
        devices=24,
        cost_per_hour=48.0,
        cost_per_million_requests=66.7,
        typical_w=15_000.0,
        gpus_over=0,
        objectives=(),
    )

    def test_devices_of_the_sentence_add_up(self) -> None:
        said = measured_sentence(self.FOUND, "USD")
        assert said.startswith("24 GPUs h100-sxm-80gb (TP1) = 16 at 12.5 requests/s each (measured by you) + 1 spare")
        alone = replace(self.FOUND, spare_devices=0, idle_devices=0, needed_devices=24)
        assert " + " not in measured_sentence(alone, "USD").partition(":")[0]

    def test_a_plan_shows_both_fleets_and_what_was_measured(self) -> None:
        asked = {"model": "llama-3.1-8b", "hardware": "h100", "rate_per_s": 100.0}
        assert measured_blocks(plan(asked).plan) == ()
        measured = plan({**asked, "measured_rps_per_gpu": 12.5}).plan
        shown, said = measured_blocks(measured)
        found = measured.study(MeasuredRate)
        assert found is not None
        # 100 requests/s over 12.5 of one accelerator.
        assert found.needed_devices >= 8
        assert found.devices == found.needed_devices + found.spare_devices + found.idle_devices
        assert len(shown.rows) == 2  # type: ignore[union-attr]
        assert "12.5 requests/s a GPU" in said.items[0]  # type: ignore[union-attr]

    def test_a_bound_is_judged_only_where_something_was_measured(self) -> None:
        unknown = MeasuredObjective(name="TTFT p95", bound_s=1.0, measured_s=None)
        assert [replace(unknown, measured_s=value).holds for value in (None, 1.0, 1.1)] == [None, True, False]


class TestModelPlans:
    @staticmethod
    @cache
    def found() -> ModelPlansAnswer:
        return plan_models(["llama-3.1-70b", "llama-3.1-8b"], {"rate_per_s": 20.0, "hardware": "h100"})

    def test_the_cheapest_is_named_first(self) -> None:
        document = self.found().to_dict()
        hourly = {item["model"]: item["plan"]["plan"]["cost"]["per_hour"] for item in document["models"]}
        cheapest = min(hourly, key=lambda name: (hourly[name],))
        assert document["answer"].startswith(f"{cheapest} is the cheapest of 2")
        assert document["total"] is None

    def test_a_step_down_is_after_over_before(self) -> None:
        (step,) = self.found().to_dict()["steps"]
        high, low = self.found().found.steps[0].fleets
        assert step["change_fraction"]["power"] == pytest.approx(low.typical_w / high.typical_w - 1)
        assert step["change_fraction"]["TPOT p95"] < 0

    def test_text_table_and_chart_hold_every_model(self) -> None:
        text = self.found().to_text()
        assert all(text.count(name) >= 2 for name in ("llama-3.1-70b", "llama-3.1-8b"))
        assert len(self.found().rows()) == 2
        devices = [item["plan"]["plan"]["devices"] for item in self.found().rows()]
        assert list(self.found().chart().series[0].y) == devices
