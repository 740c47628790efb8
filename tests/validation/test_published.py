"""Published figures: each row within its own tolerance, and misses no worse than they were."""

from __future__ import annotations

import csv

import pytest

from validation.published.identities import COMPUTED, Identity, identities
from validation.published.rows import FOLDER, PublishedRun, error_of, known_misses, measured_runs

WIDEST_TOLERANCE = 0.25
DRIFT = 0.05
"""By how much a miss may grow before it has to be looked at."""

RUNS = measured_runs()
MISSES = known_misses()
IDENTITIES = identities()


@pytest.mark.parametrize("published", RUNS, ids=[row.label for row in RUNS])
def test_a_published_run_is_reproduced_within_its_tolerance(published: PublishedRun):
    assert abs(error_of(published)) <= published.limit


@pytest.mark.parametrize("published", MISSES, ids=[row.label for row in MISSES])
def test_a_known_miss_does_not_grow(published: PublishedRun):
    assert abs(error_of(published)) <= published.limit + DRIFT


@pytest.mark.parametrize("identity", IDENTITIES, ids=[row.name for row in IDENTITIES])
def test_a_worked_example_is_reproduced(identity: Identity):
    assert COMPUTED[identity.name]() == pytest.approx(identity.value, rel=max(identity.tolerance, 1e-12))


def test_tolerances_are_honest_and_misses_have_a_reason():
    assert all(0 < row.limit <= WIDEST_TOLERANCE for row in RUNS)
    assert all(row.limit > 0.2 for row in MISSES)
    assert all(len(row.reason.split()) > 5 for row in MISSES)
    assert {row.name for row in IDENTITIES} == set(COMPUTED)


def test_no_row_stands_twice_and_every_row_names_its_source_and_version():
    labels = [row.label for row in RUNS + MISSES]
    assert len(labels) == len(set(labels))
    for file in ("measured_runs.csv", "known_misses.csv"):
        with (FOLDER / file).open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                assert row["source"]
                assert row["source_path"]
                assert len(row["commit_or_version"]) == 40
                assert row["unit"]
    assert all(row.source for row in IDENTITIES)
