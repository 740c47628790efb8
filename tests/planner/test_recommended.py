"""The recommended fleet is simulated by default where nothing has to be compiled, and sized again where it misses."""

from __future__ import annotations

from dataclasses import replace

import pytest

import simulator
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.fleet import Sized
from simulator.planner.plan import checked, completed, is_complete, plan_capacity
from simulator.planner.search.question import Question
from simulator.planner.verification.finalists import with_check
from simulator.planner.verification.records import Verdict
from simulator.planner.verification.simulation import MANY, SEEDS, bar_chance, chance_below
from simulator.planner.verification.traces import LONGER, CheckOf, simulation, sure_simulation, surest_simulation
from simulator.reports.sections.answer import checked_text
from simulator.reports.words.fields import plan_command
from simulator.specs.question.plan import plan_spec

QUESTION = {"model": "llama-3.1-8b", "hardware": ["h100"], "rate_per_s": 30.0}


@pytest.fixture(scope="module")
def plan() -> CapacityPlan:
    return plan_capacity(plan_spec(QUESTION))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after ``roofcast warm-up``, with few requests, which Python serves in time."""
    monkeypatch.setenv("ROOFCAST_CACHE", "on")
    monkeypatch.setattr("simulator.planner.plan.machine_code", lambda: ["compiled-0123/loop.ready"])
    monkeypatch.setattr("simulator.engine.events.compilation.is_on_disk", lambda: True)
    monkeypatch.setattr("simulator.planner.verification.simulation.LEAST_REQUESTS", 200)
    monkeypatch.setattr("simulator.planner.verification.simulation.MOST_REQUESTS", 200)


@pytest.mark.usefixtures("compiled")
def test_the_fleet_is_simulated_as_it_was_planned(plan: CapacityPlan) -> None:
    found = with_check(plan)
    assert found.verification is not None
    assert found.best == plan.best
    assert found.finalists is None
    rates = found.verification.at_peak.rate_per_s, found.verification.degraded.rate_per_s
    assert rates == pytest.approx((30 / (plan.best.replicas + plan.best.spares), 30 / plan.best.replicas))
    assert "of 3 runs of 200 requests hold" in checked_text(found)


@pytest.mark.usefixtures("compiled")
def test_a_fleet_that_misses_is_said_to(plan: CapacityPlan) -> None:
    question = plan.basis.question
    tight = tuple(item.within(item.bound_s / 100) for item in question.objectives)
    basis = replace(plan.basis, question=replace(question, objectives=tight))
    found = with_check(replace(plan, basis=basis))
    assert found.verification is not None
    assert not found.verification.holds
    assert len(found.warnings) == len(plan.warnings) + 1
    assert "0 of 3 runs" in checked_text(found)
    assert "--verify" in checked_text(found)


@pytest.mark.usefixtures("compiled")
def test_a_fleet_that_misses_is_sized_until_it_holds(plan: CapacityPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    def missed(asked: CapacityPlan) -> CapacityPlan:
        found = with_check(asked)
        assert found.verification is not None
        return replace(found, verification=replace(found.verification, degraded=missing))

    tight = tuple(item.within(item.bound_s / 100) for item in plan.basis.question.objectives)
    basis = replace(plan.basis, question=replace(plan.basis.question, objectives=tight))
    tried = with_check(replace(plan, basis=basis)).verification
    assert tried is not None
    missing = tried.degraded
    monkeypatch.setattr("simulator.planner.verification.finalists.with_check", missed)
    found = checked(plan)
    assert found.verification is not None
    assert found.verification.holds
    assert found.finalists is not None
    assert found.finalists.chosen.verdict in {Verdict.HOLDS, Verdict.RESIZED}
    assert found.best.replicas >= plan.best.replicas
    assert found.spec == plan.spec, "the question is the one that was asked"
    assert checked(found) is found, "once"
    assert is_complete(checked(completed(plan))), "what a report asked for stays"


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("held", "runs"), [(1 / 3, 3), (2 / 3, 10), (1.0, 10)])
def test_ten_runs_decide_where_three_do_not(
    plan: CapacityPlan, held: float, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run of three that misses says no more than three that hold by a hair; two that miss say enough."""
    question, sized = plan.basis.question, plan.basis.shown[0]
    found = simulation(question, sized)(sized.replicas)
    unsure = tuple(replace(item, high_s=2 * item.bound_s) for item in found.objectives)

    def scattered(question: Question, sized: Sized, *, seeds: int = SEEDS) -> CheckOf:
        few = replace(found, seeds=seeds, holds=held == 1, held_fraction=held, objectives=unsure)
        return lambda replicas: few if seeds == SEEDS else replace(found, seeds=seeds)

    monkeypatch.setattr("simulator.planner.verification.traces.simulation", scattered)
    assert sure_simulation(question, sized)(sized.replicas).seeds == runs


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    ("chance", "runs"),
    [(None, MANY), (0.999, MANY), (0.97, LONGER * MANY), (0.9, LONGER * MANY), (0.75, LONGER * MANY), (0.3, MANY)],
)
def test_more_runs_decide_where_ten_leave_it_open(
    plan: CapacityPlan, chance: float | None, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten runs of which each holds with a chance of 0.9 keep a promise of nine three times in four: that is open."""
    question, sized = plan.basis.question, plan.basis.shown[0]
    ten = replace(simulation(question, sized)(sized.replicas), seeds=MANY, chance=chance)

    def counted(question: Question, sized: Sized, *, steps: int, seeds: int, times: int) -> CheckOf:
        return lambda replicas: replace(ten, seeds=times * seeds)

    monkeypatch.setattr("simulator.planner.verification.traces.simulation", counted)
    assert surest_simulation(question, sized, lambda replicas: ten)(sized.replicas).seeds == runs


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("chance", "runs"), [(0.999, MANY), (0.97, LONGER * MANY), (0.9, MANY)])
def test_a_fleet_that_is_handed_out_as_checked_is_as_sure_as_where_it_was_asked_for(
    plan: CapacityPlan, chance: float, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten runs of which each holds with 0.97 keep a promise 19 times in 20, and more decide; one that ten leave below
    that is sized again."""
    ten = replace(simulation(plan.basis.question, plan.basis.shown[0])(1), seeds=MANY, chance=chance, holds=True)

    def counted(question: Question, sized: Sized, *, steps: int, seeds: int, times: int) -> CheckOf:
        return lambda replicas: replace(ten, seeds=times * seeds)

    monkeypatch.setattr("simulator.planner.verification.finalists.sure_simulation", lambda *of: lambda replicas: ten)
    monkeypatch.setattr("simulator.planner.verification.traces.simulation", counted)
    found = with_check(plan).verification
    assert found is not None
    assert (found.degraded.seeds, found.at_peak.seeds) == (runs, runs)


@pytest.mark.usefixtures("compiled")
def test_three_runs_are_enough_only_where_their_scatter_says_so(plan: CapacityPlan) -> None:
    """Three lucky runs that lie close together say less than Student's law with two degrees of freedom asks for."""
    (found, *_) = simulation(plan.basis.question, plan.basis.shown[0])(1).objectives
    deviation = 0.01
    for excess, surely in ((3.9, False), (4.2, True)):
        bound_s = 1 + excess * deviation
        half_s = 1.886 * deviation / 3**0.5
        item = replace(found, simulated_s=1.0, high_s=1.0 + half_s, bound_s=bound_s)
        chance = chance_below(bound_s, value_s=1.0, deviation_s=deviation * (4 / 3) ** 0.5, replays=3)
        assert item.surely_holds is surely is (bar_chance(chance) >= 0.95)


def test_nothing_is_compiled_for_it(plan: CapacityPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFCAST_CACHE", "on")
    monkeypatch.setattr("simulator.planner.plan.machine_code", list)
    assert checked(plan) is plan
    # Nor for machine code of another version.
    monkeypatch.setattr("simulator.planner.plan.machine_code", lambda: ["compiled-0123/loop.ready"])
    monkeypatch.setattr("simulator.engine.events.compilation.is_on_disk", lambda: False)
    assert checked(plan) is plan
    assert checked_text(plan).startswith("Not simulated: add --verify")
    # Without a compiler a warm-up refuses, and says what to install.
    assert "pip install '.[fast]'" in checked_text(plan)


@pytest.mark.usefixtures("compiled")
def test_no_is_an_answer() -> None:
    found = simulator.plan(QUESTION, verify=False).plan
    assert found.verification is None
    assert not checked_text(found)
    assert "--no-verify" in plan_command(found.spec)
