"""Engine limits, spread experts and pools are searched where they can help: on the best, and where limits are near."""

from __future__ import annotations

import pytest

from simulator.planner.plan import plan_capacity
from simulator.planner.search.search import SHOWN_FLEETS
from simulator.reports.words.plan_inputs import families_text
from simulator.specs.question.plan import plan_spec

BLACKWELL_AND_CDNA = ("mi355x", "b200", "mi350x", "b300")


def test_a_limit_of_devices_is_met_by_whichever_family_comes_nearest() -> None:
    """The cheapest three take 104 devices and more; the fourth takes the fewest, and its families save the rest."""
    asked = {"rps": 705, "model": "llama-3.1-70b", "hardware": BLACKWELL_AND_CDNA}
    free = plan_capacity(plan_spec(asked))
    assert free.best.devices > 100
    limited = plan_capacity(plan_spec({**asked, "max_gpus": 100}))
    assert limited.best.devices <= 100
    assert limited.best.cost.per_hour is not None
    assert free.best.cost.per_hour is not None
    assert limited.best.cost.per_hour >= free.best.cost.per_hour


def test_who_is_named_beside_others_is_searched_as_if_alone() -> None:
    """H200 took 408 GPUs beside four others and 312 by itself: its engine limits were searched there alone."""
    asked = {"rps": 1000, "model": "llama-3.1-70b"}
    rivals = ("mi355x", "b200", "h100", "h200", "gb200")
    together = plan_capacity(plan_spec({**asked, "hardware": rivals}))
    for name in ("h200-sxm-141gb", "gb200"):
        alone = plan_capacity(plan_spec({**asked, "hardware": (name,)})).best
        beside = next(fleet for fleet in together.fleets if fleet.hardware == name)
        assert (beside.label, beside.devices) == (alone.label, alone.devices)
    assert "Not searched so" not in families_text(together)


def test_who_is_shown_is_searched_as_if_named() -> None:
    """MI350X, the sixth fleet, took 288 GPUs where nobody named it and 248 where somebody did."""
    asked = {"rps": 1000, "model": "llama-3.1-70b"}
    plan = plan_capacity(plan_spec(asked))
    shown = plan.fleets[:SHOWN_FLEETS]
    assert {fleet.hardware for fleet in shown} <= set(plan.searched)
    assert "mi350x" in plan.searched
    named = plan_capacity(plan_spec({**asked, "hardware": tuple({fleet.hardware for fleet in shown})}))
    for fleets in zip(shown, named.fleets, strict=False):
        assert len({(fleet.hardware, fleet.label, fleet.devices) for fleet in fleets}) == 1
    assert "Not searched so" in families_text(plan)


@pytest.mark.slow
def test_a_model_that_no_server_holds_spreads_its_experts_over_several() -> None:
    """DeepSeek-V3 in FP8 takes more than eight H100 have: only stages were tried, at twice the devices."""
    asked = {"rps": 50, "model": "deepseek-v3", "hardware": ("h100",)}
    for search in ({}, {"search": "wide"}):
        found = plan_capacity(plan_spec({**asked, **search})).best
        told = plan_capacity(plan_spec({**asked, **search, "tp": (2, 4), "dp": (4, 8)})).best
        assert found.replica.deployment.parallelism.ep_size > 8
        assert (found.cost.per_hour or 0.0) <= (told.cost.per_hour or 0.0)


def test_pools_that_are_asked_for_take_no_more_than_those_that_are_found() -> None:
    """Asked for by name only equal limits of the engine were tried: 144 B300 where a plan without a word found 136."""
    asked = {"rps": 1000, "model": "llama-3.1-70b", "hardware": ("b300",)}
    unasked = [fleet for fleet in plan_capacity(plan_spec(asked)).fleets if fleet.prefill is not None]
    assert unasked
    for serving in (("disaggregated",), ("aggregated", "disaggregated")):
        found = plan_capacity(plan_spec({**asked, "serving": serving})).fleets
        pools = [fleet.devices for fleet in found if fleet.prefill is not None]
        assert min(pools) <= min(fleet.devices for fleet in unasked)


def test_to_compare_guesses_as_well_never_makes_a_plan_dearer() -> None:
    """Pools do not guess: with guesses to compare they were not searched, and two pools are the cheapest here."""
    asked = {"rps": 200, "model": "deepseek-r1", "hardware": ("mi355x",)}
    plain, compared, guessing = (
        plan_capacity(plan_spec({**asked, "speculation": guesses})) for guesses in ((), ("mtp", "none"), ("mtp",))
    )
    costs = [found.best.cost.per_hour or 0.0 for found in (compared, plain, guessing)]
    assert costs == sorted(costs)
    assert "two pools" not in families_text(plain)
    assert "two pools" not in families_text(compared)
    assert "two pools" in families_text(guessing)
    assert "speculation" in families_text(plain)
    assert "speculation" not in families_text(guessing)


def test_prompts_that_are_cached_never_take_more_accelerators() -> None:
    """448 MI355X without hits, 504 with a fifth of the prompts cached: of spread experts only those over attention
    ranks were tried there, which the screen thought faster than they are."""
    asked = {"rps": 150, "model": "qwen3-235b-a22b", "hardware": "mi355x", "isl": 1000, "osl": 1000, "verify": False}
    bounds = {"ttft_p95": "0.5s", "tpot_p95": "25ms"}
    taken = [plan_capacity(plan_spec({**asked, **bounds, "prefix_hit": hit})).best.devices for hit in (0.0, 0.2)]
    assert taken[1] <= taken[0]
