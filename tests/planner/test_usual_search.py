"""What is remembered is what would be worked out again, and nothing else counts as the same question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from simulator.planner.plan import plan_capacity
from simulator.planner.records import Candidate, Rejection
from simulator.planner.search import usual_search
from simulator.planner.search.candidates import candidates, platforms
from simulator.planner.search.question import Question, resolve
from simulator.planner.search.usual_search import evaluate_once, evaluate_together
from simulator.planner.serving import disaggregated
from simulator.planner.serving.replica import LoadPolicy
from simulator.planner.serving.shapes import Aggregated, Shape, evaluate
from simulator.specs.question.plan import plan_spec
from tests.for_every import for_every

ASKED = {"model": "llama-3.1-8b", "hardware": ("h100-sxm-80gb",), "tp": (1,), "ttft_p95": 1.0}


def _question(**changes: object) -> tuple[Question, Candidate]:
    spec = plan_spec({**ASKED, "rps": 20.0, **changes})
    question = resolve(spec)
    (platform,) = platforms(spec)
    return question, candidates(spec, model=question.model, platform=platform)[0]


def _outcome(question: Question, candidate: Candidate, *, policy: LoadPolicy | None = None) -> Shape | Rejection:
    return evaluate_once(
        candidate,
        model=question.model,
        mix=question.demand.mix,
        objectives=question.objectives,
        policy=policy or question.policy,
    )


def test_remembered_is_what_would_be_worked_out() -> None:
    question, candidate = _question()
    found = _outcome(question, candidate)
    fresh = evaluate(
        candidate, model=question.model, mix=question.demand.mix, objectives=question.objectives, policy=question.policy
    )
    assert isinstance(found, Aggregated)
    assert isinstance(fresh, Aggregated)
    assert found.replica.capacity_per_s == fresh.replica.capacity_per_s
    assert found.replica.at_capacity == fresh.replica.at_capacity


def test_another_rate_works_out_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # With limits and shape given, nothing is screened whose best would depend on the rate.
    fixed = {**ASKED, "serving": "aggregated", "max_num_seqs": 256, "max_num_batched_tokens": 8192}
    plan_capacity(plan_spec({**fixed, "rps": 20.0}))

    def refuse(*args: object, **words: object) -> None:
        raise AssertionError("evaluated again")

    monkeypatch.setattr(usual_search, "evaluate_prepared", refuse)
    small, large = (plan_capacity(plan_spec({**fixed, "rps": rate})) for rate in (20.0, 2000.0))
    assert small.best.replicas < large.best.replicas


def test_pools_are_remembered_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    question, candidate = _question(ttft_p95=2.5)
    pair = replace(candidate, prefill=candidate)
    found = _outcome(question, pair)
    fresh = disaggregated.evaluate_pools(
        pair, model=question.model, mix=question.demand.mix, objectives=question.objectives, policy=question.policy
    )
    assert isinstance(found, disaggregated.Disaggregated)
    assert isinstance(fresh, disaggregated.Disaggregated)
    assert [part.replica for part in found.parts] == [part.replica for part in fresh.parts]

    def refuse(*args: object, **words: object) -> None:
        raise AssertionError("evaluated again")

    monkeypatch.setattr(usual_search, "evaluate_pools", refuse)
    assert _outcome(replace(question, demand=replace(question.demand, mean_rate_per_s=500.0)), pair) is found


def test_other_objectives_are_another_question() -> None:
    (first, candidate), (second, again) = _question(ttft_p95=2.0), _question(ttft_p95=0.2)
    before, after = _outcome(first, candidate), _outcome(second, again)
    assert isinstance(before, Aggregated)
    assert isinstance(after, Aggregated)
    assert before.replica.capacity_per_s > after.replica.capacity_per_s


@for_every([{"isl": 4000}, {"osl": 20}, {"weights": "int8"}, {"tp": (2,)}, {"engine": "sglang"}, {"sparsity": "2:4"}])
def test_what_changes_a_replica_is_another_question(changes: dict[str, object]) -> None:
    (first, candidate), (second, other) = _question(), _question(**changes)
    before, after = _outcome(first, candidate), _outcome(second, other)
    assert isinstance(before, Aggregated)
    assert isinstance(after, Aggregated)
    assert before.replica.capacity_per_s != after.replica.capacity_per_s


def test_a_profile_of_the_same_name_is_another_one() -> None:
    question, candidate = _question()
    hardware = candidate.platform.hardware
    slower = hardware.model_copy(update={"memory_bytes_per_s": hardware.memory_bytes_per_s / 3})
    other = replace(candidate, platform=replace(candidate.platform, hardware=slower))
    before, after = _outcome(question, candidate), _outcome(question, other)
    assert isinstance(before, Aggregated)
    assert isinstance(after, Aggregated)
    assert before.replica.capacity_per_s > after.replica.capacity_per_s


def test_a_lower_utilisation_is_another_question() -> None:
    question, candidate = _question(ttft_p95=60.0)
    lower = replace(question.policy, utilization=0.5)
    full, half = _outcome(question, candidate), _outcome(question, candidate, policy=lower)
    assert isinstance(full, Aggregated)
    assert isinstance(half, Aggregated)
    assert half.replica.capacity_per_s < full.replica.capacity_per_s


def test_other_objectives_and_another_load_price_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    question, candidate = _question(ttft_p95=3.0)
    _outcome(question, candidate)

    def refuse(*args: object, **words: object) -> None:
        raise AssertionError("priced again")

    monkeypatch.setattr(usual_search, "prepare_all", refuse)
    tighter, _ = _question(ttft_p95=0.3)
    found = _outcome(tighter, candidate, policy=replace(question.policy, utilization=0.6))
    fresh = evaluate(
        candidate,
        model=tighter.model,
        mix=tighter.demand.mix,
        objectives=tighter.objectives,
        policy=replace(question.policy, utilization=0.6),
    )
    assert isinstance(found, Aggregated)
    assert isinstance(fresh, Aggregated)
    assert found.replica == fresh.replica


def test_larger_degrees_are_priced_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that no usual degree holds: one call for these, one for all that are larger."""
    asked = resolve(plan_spec({"rps": 1, "model": "deepseek-r1", "hardware": "a100-sxm-80gb", "isl": 913, "osl": 87}))
    calls: list[int] = []
    prepare = usual_search.prepare_all

    def counted(tried: Sequence[Candidate], **known: object) -> object:
        calls.append(len(tried))
        return prepare(tried, **known)  # type: ignore[arg-type]

    monkeypatch.setattr(usual_search, "prepare_all", counted)
    usual_search.usual_search(asked, platforms(asked.spec))
    assert len(calls) == 2
    assert min(calls) > 1


def test_priced_curves_of_other_lengths_are_not_taken() -> None:
    (first, candidate), (second, again) = _question(isl=700), _question(isl=2100)
    before, after = _outcome(first, candidate), _outcome(second, again)
    assert isinstance(before, Aggregated)
    assert isinstance(after, Aggregated)
    assert before.part.curve is not after.part.curve
    assert before.replica.saturation_per_s > after.replica.saturation_per_s


def test_worked_out_ahead_is_what_each_comes_to_alone() -> None:
    spec = plan_spec({**ASKED, "rps": 20.0, "tp": (1, 2, 4, 8), "hardware": ("h100-sxm-80gb", "a10"), "isl": 900})
    question = resolve(spec)
    tried = [item for place in platforms(spec) for item in candidates(spec, model=question.model, platform=place)]
    mix, objectives, policy = question.demand.mix, question.objectives, question.policy
    evaluate_together(question, tried)
    for candidate in tried:
        ahead = _outcome(question, candidate)
        alone = evaluate(candidate, model=question.model, mix=mix, objectives=objectives, policy=policy)
        assert type(ahead) is type(alone)
        if isinstance(ahead, Aggregated) and isinstance(alone, Aggregated):
            assert ahead.candidate is candidate
            assert ahead.replica.capacity_per_s == pytest.approx(alone.replica.capacity_per_s, rel=1e-12)
            assert ahead.replica.unloaded.ttft_p95_s == pytest.approx(alone.replica.unloaded.ttft_p95_s, rel=1e-12)
        else:
            assert ahead == alone
