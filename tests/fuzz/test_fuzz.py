"""Hostile inputs of every kind end in an answer that keeps the laws, or in one line."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.campaign import ask_kept, campaign, find, keep, kept, share
from tests.fuzz.kinds import KINDS
from tests.fuzz.laws import broken
from tests.fuzz.tally import run_all

_COMMANDS = ("plan", "replay", "command", "own", "document", "address", "file")
"""Kinds whose cases take a second and more."""
_QUICK = {name: 12 for name in KINDS if name not in _COMMANDS}
_QUICK_SEED = 7
_SLOW_CASES = 20_000


_FILLED: dict[str, Any] = {
    "hardware": "h100",
    "engine": {"name": "vllm", "gpu_memory_utilization": 0.9},
    "memory": {
        "weights_bytes": 16060522496.0,
        "kv_bytes_per_token": 131072.0,
        "kv_capacity_tokens": 404448,
        "kv_blocks": 25278,
        "activation_bytes": 7142899712.0,
        "reserve_bytes": 320000000.0,
        "fits": True,
    },
}


@pytest.mark.parametrize("name", _QUICK)
def test_a_few_cases_of_every_kind_do_no_harm(name: str) -> None:
    found = [item for item in campaign(name, cases=_QUICK[name], seed=_QUICK_SEED) if item is not None]
    assert not found, [f"{item.place}: {item.detail}" for item in found]


@pytest.mark.slow
def test_twenty_thousand_cases_do_no_harm() -> None:
    tallies = run_all(list(KINDS), cases=_SLOW_CASES, seed=1, jobs=2)
    assert sum(tally.cases for tally in tallies.values()) >= 0.99 * _SLOW_CASES
    assert not {name: tally.classes for name, tally in tallies.items() if tally.classes}


def _asked_again(path: Path) -> Any:
    """What was kept because it took too long still takes seconds."""
    long = path.stem.startswith(_COMMANDS) or json.loads(path.read_text("utf-8"))["place"].startswith("too slow")
    return pytest.param(path, marks=[pytest.mark.slow] if long else [], id=path.stem)


@pytest.mark.parametrize("path", [_asked_again(path) for path in kept()])
def test_what_once_failed_does_not_fail_again(path: Path) -> None:
    assert ask_kept(path) is None


@pytest.mark.slow
def test_the_same_seed_makes_the_same_cases() -> None:
    for name, kind in KINDS.items():
        seeds = kind.seeds()
        made = [[kind.make(random.Random(f"{name}{n}"), seeds[n % len(seeds)]) for n in range(3)] for _ in range(2)]
        assert made[0] == made[1]
        assert json.loads(json.dumps(made[0])) == made[0]


def test_kinds_share_the_cases() -> None:
    assert sum(share(name, _SLOW_CASES, of=KINDS) for name in KINDS) == pytest.approx(_SLOW_CASES, rel=0.01)


@pytest.mark.parametrize(
    ("document", "law"),
    [
        ({"ttft_s": float("inf")}, "finite"),
        ({"decode": {"mfu": 1.06}}, "share"),
        ({"stages": [{"ttft_p50_s": 2.0, "ttft_p95_s": 1.0}]}, "out of order"),
        ({"cost_p10": 2.0, "cost_p90": 1.0}, "out of order"),
        ({"ttft_s": 2.0, "e2e_s": 1.0}, "above E2E"),
        ({"devices": 9, "devices_interval": [7, 8]}, "does not hold"),
        ({**_FILLED, "memory": {**_FILLED["memory"], "weights_bytes": 9e9}}, "of the budget"),
        ({**_FILLED, "memory": {**_FILLED["memory"], "weights_bytes": 99e9}}, "above the budget"),
        ({"hardware": "h100", "steps": [{"memory": {**_FILLED["memory"], "weights_bytes": 99e9}}]}, "above the budget"),
        ({"tpot_s": 1.0, "interval": {"tpot_s": [1.1, 1.2]}}, "does not hold"),
        ({"overall": {"requests": 3, "finished": 3, "timed_out": 1, "rejected": 0}}, "more requests end"),
        ({"output_tokens_per_s": 3.0, "total_tokens_per_s": 2.0}, "more output tokens"),
        ({"step_s": 1.0, "breakdown_s": {"gemm": 0.5, "host": 0.1}}, "do not sum"),
        ({"memory": {"weights_bytes": -1.0}}, "negative"),
    ],
)
def test_a_broken_law_is_seen(document: dict[str, object], law: str) -> None:
    assert any(law in said for said in broken(document))


def test_memory_that_is_full_breaks_no_law() -> None:
    assert not list(broken(_FILLED))


def test_a_failure_is_found_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def harm(case: object) -> dict[str, object]:
        raise ZeroDivisionError

    monkeypatch.setitem(
        KINDS, "text", type(KINDS["text"])(weight=1, seeds=list, make=lambda rng, case: case, answer=harm)
    )  # type: ignore[index, arg-type]
    found = find("text", "objective x")
    assert found is not None
    assert "ZeroDivisionError" in found.place
    stored = json.loads(keep(found, folder=tmp_path).read_text(encoding="utf-8"))
    assert (stored["kind"], stored["case"]) == ("text", "objective x")


@pytest.mark.parametrize("waits_s", [0.0, 0.1])
def test_a_case_that_takes_too_long_is_found(waits_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it computes or waits for what never comes."""

    def endless(case: object) -> dict[str, object]:
        while True:
            time.sleep(waits_s)

    monkeypatch.setitem(
        KINDS, "text", type(KINDS["text"])(weight=1, seeds=list, make=lambda rng, case: case, answer=endless)
    )  # type: ignore[index, arg-type]
    found = find("text", "objective x", limit_s=0.02)
    assert found is not None
    assert found.place.startswith("too slow")
