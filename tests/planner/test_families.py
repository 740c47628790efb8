"""Engine limits, spread experts and pools are searched where they can help: on the best, and where limits are near."""

from __future__ import annotations

from simulator.planner.plan import plan_capacity
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
