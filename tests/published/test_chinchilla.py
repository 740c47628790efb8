"""Speculative sampling's own table, from the times of its parts."""

from __future__ import annotations

import pytest

from simulator.published.chinchilla import DRAFT_S, TARGET_S, TASKS, TOLERANCE, K, Task, predicted_speedup, step_s


@pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])
def test_published_speedups_follow_from_accepted_tokens(task: Task) -> None:
    assert 1 < task.tokens < K + 1
    # 10, 12.4 and 12.2 %; 8, 11 and 11 by a GPU's fits, before the v6e's table was read.
    assert predicted_speedup(task) == pytest.approx(task.speedup, rel=task.missed_by or TOLERANCE)


def test_the_table_agrees_with_itself() -> None:
    for task in TASKS:
        assert TARGET_S / task.token_s == pytest.approx(task.speedup, rel=0.03)
    assert K * DRAFT_S < TARGET_S


def test_a_step_on_an_unmeasured_device_is_no_farther_off_than_it_was() -> None:
    assert step_s() == pytest.approx(TARGET_S, rel=0.30)
