"""Earlier versions of an engine: which ones a release covers, and that it says what changed."""

from __future__ import annotations

import pytest

from simulator.specs.engine.engine import load_engine


@pytest.mark.parametrize("version", ["0.5", "0.5.4", "v0.4.2", "0.5.3.post1", "0"])
def test_versions_before(version: str) -> None:
    assert load_engine("vllm").release(version) == "0.6"


@pytest.mark.parametrize("version", ["0.6", "0.6.0", "0.10.2", "v0.15.1", "1.0", "main", "nightly", "", None])
def test_versions_since_and_versions_without_a_number(version: str | None) -> None:
    assert load_engine("vllm").release(version) is None


def test_a_profile_of_an_earlier_version_differs_in_overheads_and_what_it_lacked_only() -> None:
    now, then = load_engine("vllm"), load_engine("vllm").at("0.5.4")
    assert then.overheads.step_per_sequence_s > now.overheads.step_per_sequence_s
    assert now.async_scheduling
    assert not then.async_scheduling
    assert now.side_stream_tokens > then.side_stream_tokens == 0
    changed = {"overheads", "async_scheduling", "spread", "side_stream_tokens", "recipe", "vendors"}
    assert now.model_dump(exclude=changed) == then.model_dump(exclude=changed)
    assert load_engine("vllm").at("0.15.1") == load_engine("vllm").at(None) == now
