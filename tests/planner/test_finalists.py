"""Finalists in the event simulation: growing until they hold, falling back, and fleets sized by replaying a trace."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.api.planning import plan_text
from simulator.engine.runs.rate_simulation import simulate_as_sent
from simulator.engine.runs.serving import ServedDeployment
from simulator.errors import RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.fleet import complete
from simulator.planner.plan import plan_capacity
from simulator.planner.verification.fleet_check import MOST_ADDED, TOLD_APART, sized_again, smallest_that_holds, surer
from simulator.planner.verification.records import FleetVerification, Verdict, Verification
from simulator.planner.verification.simulation import bar_chance, chance_below, refused
from simulator.planner.verification.traces import MOST_SHARES, TraceCheck, surest_simulation
from simulator.reports.sections.answer import rival_text
from simulator.reports.sections.performance import finalists_outcome
from simulator.reports.tables.plan_document import plan_document
from simulator.reports.words.plan_inputs import plan_input, warning_texts
from simulator.specs.question.plan import PlanSpec, plan_spec
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.traffic.recorded.demand import measured_demand
from simulator.traffic.recorded.traces import read_trace, replica_shares, resampled_requests
from tests.for_every import for_every


@pytest.fixture(scope="module")
def nothing() -> Verification:
    plan = plan_capacity(PlanSpec(rps=5, model="llama-3.1-8b", hardware=("h100",), tp=(1,)))
    return refused("", steady=plan.best.degraded)


def test_the_next_fleet_says_that_it_was_not_simulated(nothing: Verification) -> None:
    """24 B300 stood beside a fleet that was simulated, and 32 once they were as well."""
    asked = PlanSpec(rps=5, model="llama-3.1-8b", hardware=("h100", "h200"), tp=(1,), verify=False)
    plan = plan_capacity(asked)
    assert plan.rival is not None
    assert "not simulated" not in rival_text(plan.rival, plan)
    checked = replace(plan, verification=FleetVerification(at_peak=nothing, degraded=nothing))
    assert f"{plan.rival.label}, not simulated)" in rival_text(plan.rival, checked)
    unsure = rival_text(replace(plan.rival, doubt=0.1, cost_change=0.2), plan)
    assert f"20 % more; for unsure step times costs count 10 % against {plan.rival.hardware}." in unsure


@given(planned=st.integers(1, 60), needed=st.integers(1, 200), fewer=st.booleans())
def test_the_smallest_fleet_is_found(nothing: Verification, planned: int, needed: int, fewer: bool) -> None:
    def at(replicas: int) -> Verification:
        assert replicas >= 1
        return replace(nothing, holds=replicas >= needed)

    found = smallest_that_holds(at, planned=planned, fewer=fewer)
    if needed > planned + max(planned * MOST_ADDED, 1):
        assert found is None
    elif fewer:
        assert found == needed
    else:
        assert found == max(needed, planned)


@given(st.integers(1_000, 10**9), st.floats(0.1, 1.9))
def test_a_fleet_of_any_size_is_found_in_a_few_dozen_checks(nothing: Verification, planned: int, share: float) -> None:
    needed, asked = max(round(share * planned), 1), list[int]()

    def at(replicas: int) -> Verification:
        asked.append(replicas)
        return replace(nothing, holds=replicas >= needed)

    found = smallest_that_holds(at, planned=planned, fewer=True)
    assert found is not None
    assert 0 <= found - needed <= planned / TOLD_APART
    assert len(asked) < 24


@pytest.mark.parametrize(
    ("chances", "expected"),
    [
        # Sure enough: one more would be money for nothing.
        ({3: 0.0, 4: 0.5, 5: 0.99, 6: 1.0}, 5),
        # Unsure, and one more settles it.
        ({3: 0.0, 4: 0.0, 5: 0.9, 6: 1.0, 7: 1.0}, 6),
        # Likely enough, but a promise that breaks is worse than a replica too many.
        ({3: 0.5, 4: 0.75, 5: 0.92, 6: 0.99, 7: 1.0}, 6),
        # Flat: the second more is worth it as well.
        ({3: 0.8, 4: 0.84, 5: 0.9, 6: 0.92, 7: 0.97}, 7),
        # Level: six would be no surer, and four nearly do.
        ({3: 0.82, 4: 0.87, 5: 0.91, 6: 0.93, 7: 0.94}, 5),
    ],
)
def test_one_more_where_it_makes_the_fleet_surer(
    nothing: Verification, chances: dict[int, float], expected: int
) -> None:
    def at(replicas: int) -> Verification:
        return replace(nothing, holds=replicas >= 5, chance=chances[replicas])

    assert surer(at, smallest=5) == expected


def test_a_single_replica_that_is_sure_stays_single(nothing: Verification) -> None:
    assert surer(lambda replicas: replace(nothing, holds=True, chance=0.99), smallest=1) == 1
    assert surer(lambda replicas: replace(nothing, holds=True, chance=0.9 if replicas == 1 else 1.0), smallest=1) == 2


@pytest.mark.parametrize(
    ("replays", "deviate", "chance"),
    # Tables of Student's law: 4, 9 and 30 degrees of freedom.
    [(5, 2.132, 0.95), (5, 3.747, 0.99), (10, 1.383, 0.90), (31, 1.697, 0.95), (31, -1.697, 0.05), (5, 0.0, 0.5)],
)
def test_the_chance_of_a_replay_is_students(replays: int, deviate: float, chance: float) -> None:
    found = chance_below(10 + 2 * deviate, value_s=10.0, deviation_s=2.0, replays=replays)
    assert found == pytest.approx(chance, abs=0.001)
    assert chance_below(1.0, value_s=0.9, deviation_s=0.0, replays=replays) == 1
    assert chance_below(1.0, value_s=np.inf, deviation_s=0.0, replays=replays) == 0


@for_every([0.0, 0.3, 0.8, 0.9, 0.95, 1.0])
def test_nine_of_ten_by_hand(chance: float) -> None:
    drawn = np.random.default_rng(1).random((40_000, 10)) < chance
    assert bar_chance(chance) == pytest.approx((drawn.sum(axis=1) >= 9).mean(), abs=0.01)


@pytest.fixture(scope="module")
def bursty() -> CapacityPlan:
    """Bursts for which the steady state is known to be optimistic."""
    asked = {"model": "llama-3.1-8b", "rps": 60, "ttft_p95": "300ms", "arrival_cv": 4, "hardware": ("h100", "h200")}
    return plan_capacity(plan_spec({**asked, "verify": True}))


def test_what_is_recommended_holds_in_the_simulation(bursty: CapacityPlan) -> None:
    assert bursty.finalists is not None
    assert bursty.verification is not None
    assert bursty.verification.holds
    chosen = bursty.finalists.chosen
    assert (chosen.hardware, chosen.label) == (bursty.best.hardware, bursty.best.label)
    assert (chosen.replicas, chosen.devices) == (bursty.best.replicas, bursty.best.devices)
    assert chosen.found.holds
    assert bursty.finalists.members[0].verdict is not Verdict.HOLDS


def test_pools_grow_as_they_were_simulated() -> None:
    """What is signed is what was simulated: the fleet's own shape needs as many prefill replicas as the check took."""
    plan = plan_capacity(plan_spec({"model": "llama-3.1-70b", "hardware": ["b300"], "rate_per_s": 400.0}))
    question = plan.basis.question
    sized = next(item for item in plan.basis.shown if len(item.counts) > 1)
    rate_per_s = question.demand.planned_rate_per_s
    for more in (1, 3, 10):
        counts = sized.evaluated.counts(rate_per_s, replicas=sized.replicas + more)
        again = sized_again(question, sized, replicas=sized.replicas + more)
        assert again.counts == counts
        assert again.counts[0] > sized.counts[0] or more == 1
        assert again.evaluated.counts(rate_per_s) == counts
        assert again.evaluated.counts(rate_per_s, replicas=counts[-1]) == counts


@pytest.mark.parametrize("share", [0.8, 0.95])
def test_a_fleet_that_holds_with_fewer_than_its_mean_takes_lies_in_its_interval(share: float) -> None:
    """A replayed trace may need fewer replicas than a steady load of its mean rate; they then carry that rate."""
    plan = plan_capacity(plan_spec({"model": "llama-3.1-70b", "hardware": ["b300"], "rate_per_s": 2000.0}))
    question = plan.basis.question
    for sized in plan.basis.shown:
        again = sized_again(question, sized, replicas=int(sized.replicas * share))
        assert again.evaluated.counts(question.demand.planned_rate_per_s) == again.counts
        fleet = complete(again, demand=question.demand, objectives=question.objectives, spec=question.spec)
        assert fleet.devices_low <= fleet.devices <= fleet.devices_high


def test_what_holds_and_costs_less_is_never_passed_over(bursty: CapacityPlan) -> None:
    assert bursty.finalists is not None
    held = [item for item in bursty.finalists.members if item.verdict in (Verdict.HOLDS, Verdict.RESIZED)]
    assert bursty.finalists.chosen.cost_per_hour == min(item.cost_per_hour or np.inf for item in held)
    for item in held:
        assert item.found.holds
        assert item.replicas >= item.planned_replicas


def test_text_and_json_say_what_the_simulation_changed(bursty: CapacityPlan) -> None:
    assert bursty.finalists is not None
    text = plan_text(bursty, explain=False)
    assert finalists_outcome(bursty.finalists)[1:] in text
    assert "missed" in text
    found = json.loads(plan_document(bursty))["verification"]["finalists"]
    assert [item["chosen"] for item in found["members"]].count(True) == 1
    assert found["members"][0]["planned"]["objectives"][0]["holds"] is False


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten minutes of which one has four times the rate of the others."""
    rng = np.random.default_rng(5)
    rates = np.full(10, 4.0)
    rates[6] = 16.0
    moments = np.sort(np.concatenate([60 * (minute + rng.random(int(60 * rate))) for minute, rate in enumerate(rates)]))
    rows = [
        f"2023-11-16 18:{15 + int(at // 60):02d}:{at % 60:09.6f},{int(rng.integers(200, 2000))},"
        f"{int(rng.integers(20, 300))}"
        for at in moments
    ]
    path = tmp_path_factory.mktemp("traces") / "burst.csv"
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n", encoding="utf-8")
    return path


def test_a_replay_keeps_the_trace(trace: Path) -> None:
    recorded = read_trace(trace)
    counts = np.bincount((recorded.arrival_s // 60).astype(int), minlength=10)[:9]
    many = [resampled_requests(recorded, times=2, seed=seed) for seed in range(20)]
    found = np.mean([np.bincount((item.arrival_s // 60).astype(int), minlength=9) for item in many], axis=0)
    assert found == pytest.approx(2 * counts, rel=0.05)
    assert np.mean([item.prompt_tokens.mean() for item in many]) == pytest.approx(recorded.isl_tokens.mean(), rel=0.02)
    pairs = set(zip(recorded.isl_tokens.astype(int), recorded.osl_tokens.astype(int), strict=True))
    assert set(zip(many[0].prompt_tokens.tolist(), many[0].output_tokens.tolist(), strict=True)) <= pairs
    again = resampled_requests(recorded, times=2, seed=3)
    assert (again.arrival_s == many[3].arrival_s).all()


def test_shares_of_all_replicas_are_the_whole(trace: Path) -> None:
    recorded = read_trace(trace)
    whole = resampled_requests(recorded, times=1.5, seed=7)
    shares = replica_shares(recorded, times=1.5, replicas=4, places=range(4), seed=7)
    assert sum(map(len, shares)) == len(whole)
    assert np.sort(np.concatenate([share.arrival_s for share in shares])) == pytest.approx(whole.arrival_s)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_fleet_of_thousands_is_drawn_as_one_of_hundreds(trace: Path, bursty: CapacityPlan) -> None:
    """What a check draws is bounded by the trace, whatever the rate; a replica gets as many requests."""
    recorded = read_trace(trace)

    def check(times: float) -> TraceCheck:
        served = ServedDeployment(deployment=bursty.best.replica.deployment)
        objectives = bursty.objectives
        return TraceCheck(served=served, trace=recorded, times=times, step_s=0.02, steps=1, objectives=objectives)

    few, _ = check(4.0)._shares(16)
    assert check(4.0).replays(16) == len(few)
    many, _ = check(4e6)._shares(16_000_000)
    assert np.mean([len(share) for share in many]) == pytest.approx(np.mean([len(share) for share in few]), rel=0.05)
    with pytest.raises(RoofcastError, match="at most 10,000,000 are replayed"):
        check(4e6)._shares(16)


def test_a_share_meets_what_the_replica_meets_in_the_fleet(trace: Path, bursty: CapacityPlan) -> None:
    deployment, recorded = bursty.best.replica.deployment, read_trace(trace)
    delay_s = deployment.engine.overheads.prompt_token_s
    assert delay_s > 0
    whole = resampled_requests(recorded, times=2.0, seed=3)
    fleet = ServedDeployment(deployment=deployment, replicas=3).run(whole).run.records
    one = ServedDeployment(deployment=deployment)
    for place in range(3):
        (share,) = replica_shares(recorded, times=2.0, replicas=3, places=[place], seed=3, prompt_token_delay_s=delay_s)
        alone = one.run(share).run.records
        own = np.isin(whole.arrival_s, share.arrival_s)
        assert len(set(fleet.replica[own])) == 1
        assert alone.finish_s == pytest.approx(fleet.finish_s[own], abs=1e-9)


def test_parts_of_replays_count_together(trace: Path, bursty: CapacityPlan) -> None:
    served = ServedDeployment(deployment=bursty.best.replica.deployment)
    samples = replica_shares(read_trace(trace), times=1.0, replicas=8, places=range(4), seed=1)
    objectives = (ObjectiveSpec(metric="e2e", percentile=90, bound_s=5),)
    apart, pairs, all_of_them = (
        simulate_as_sent(served, samples=samples, objectives=objectives, together=count) for count in (1, 2, 4)
    )
    assert [len(point.by_seed) for point in (apart, pairs, all_of_them)] == [4, 2, 1]
    assert apart.objectives == pairs.objectives == all_of_them.objectives
    assert all_of_them.by_seed[0] == all_of_them.objectives


@pytest.mark.parametrize(("made", "again"), [(0, True), (MOST_SHARES, False)])
def test_a_trace_that_was_replayed_as_often_as_it_is_ever_is_not_replayed_again(
    made: int, again: bool, trace: Path, bursty: CapacityPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"model": "llama-3.1-8b", "hardware": "l4", "tp": 1, "trace": str(trace), "rps": 6}
    question = replace(bursty.basis.question, spec=plan_spec(asked))
    unsure = replace(bursty.finalists.chosen.found, chance=0.9, seeds=made)  # type: ignore[union-attr]
    longer = replace(unsure, chance=1.0)
    monkeypatch.setattr("simulator.planner.verification.traces.simulation", lambda *of, **how: lambda replicas: longer)
    found = surest_simulation(question, bursty.basis.shown[0], lambda replicas: unsure)(4)
    assert found is (longer if again else unsure)


def test_a_trace_is_planned_for_all_its_requests(trace: Path) -> None:
    asked = {"model": "llama-3.1-8b", "hardware": "l4", "tp": 1, "round_to": "device", "spares": 0}
    asked |= {"trace": str(trace), "rps": 6, "tpot_p95": "120ms"}
    plan = plan_capacity(plan_spec(asked))
    busiest = measured_demand(read_trace(trace), tool="trace").peak_to_mean
    steady = plan_capacity(plan_spec({**asked, "peak_to_mean": busiest}))
    assert plan.finalists is not None
    assert plan.finalists.replayed
    assert steady.finalists is None
    assert plan.best.replicas < steady.best.replicas
    assert plan.finalists.chosen.planned_replicas == steady.best.replicas
    assert plan.demand.peak_to_mean < busiest
    assert plan.finalists.chosen.found.holds
    text = plan_text(plan, explain=False)
    assert "over all requests of the trace together" in text.splitlines()[1]
    assert f"Replayed: {trace.name} at 6 requests/s" in text
    assert "over all requests" not in plan_text(steady, explain=False)
    assert plan.finalists.chosen.found.chance is not None
    assert 0.9 <= plan.finalists.chosen.found.chance <= 1
    peak = next(item for item in plan.assumptions if item.key == "peak_to_mean")
    assert "replayed trace" in plan_input(peak).source
    assert any(
        f"plans for its busiest one ({steady.best.replicas} replicas)" in item for item in warning_texts(plan.warnings)
    )


def test_a_trace_that_was_not_replayed_is_not_said_to_be(trace: Path) -> None:
    """Two pools: the steady state of the busiest minute is all that is known."""
    asked = {"model": "llama-3.1-8b", "hardware": "h100", "tp": 1, "serving": "disaggregated", "trace": str(trace)}
    plan = plan_capacity(plan_spec({**asked, "rps": 6}))
    text = plan_text(plan, explain=False)
    assert plan.finalists is not None
    assert plan.finalists.chosen.verdict is Verdict.NOT_SIMULATED
    assert "not replayed: this fleet is sized for its busiest minute" in text.splitlines()[1]
    assert "over all requests" not in text
    assert "nan" not in text
    assert "does not confirm this fleet (a trace is not replayed on two pools" in " ".join(warning_texts(plan.warnings))
