"""``simulator.specs.engine.releases``: which release came first, and which one stands in for another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.specs.engine.releases import came_before, nearest_release, release_number

NUMBERS = st.lists(st.integers(0, 40), min_size=1, max_size=3).map(tuple)
RELEASES = NUMBERS.map(lambda parts: ".".join(map(str, parts)))


@pytest.mark.parametrize(
    ("version", "number"),
    [("v0.15.1.post1", (0, 15, 1)), ("b6000", (6000,)), ("1.2.0rc4", (1, 2, 0)), ("main", ()), (" 0.9 ", (0, 9))],
)
def test_a_release_has_the_number_that_it_begins_with(version: str, number: tuple[int, ...]) -> None:
    assert release_number(version) == number


@given(first=RELEASES, second=RELEASES)
def test_of_two_releases_one_came_before_or_they_are_equal(first: str, second: str) -> None:
    earlier, later = came_before(first, second), came_before(second, first)
    assert not (earlier and later)
    assert (earlier or later) is (release_number(first) != release_number(second))


@given(first=RELEASES, second=RELEASES, third=RELEASES)
def test_the_order_is_transitive(first: str, second: str, third: str) -> None:
    if came_before(first, second) and came_before(second, third):
        assert came_before(first, third)


@given(release=RELEASES)
def test_what_has_no_number_came_before_nothing(release: str) -> None:
    assert not came_before("main", release)
    assert not came_before(None, release)


@given(known=st.lists(RELEASES, min_size=1, max_size=6, unique_by=release_number), data=st.data())
def test_a_known_release_stands_in_for_itself(known: list[str], data: st.DataObject) -> None:
    asked = data.draw(st.sampled_from(known))
    assert nearest_release(asked, tuple(known)) == asked


@given(asked=RELEASES, known=st.lists(RELEASES, min_size=1, max_size=6, unique_by=release_number))
def test_what_stands_in_is_a_neighbour(asked: str, known: list[str]) -> None:
    found = nearest_release(asked, tuple(known))
    place, at = release_number(found), release_number(asked)
    between = [name for name in known if min(place, at) < release_number(name) < max(place, at)]
    assert found in known
    assert not between


@given(known=st.lists(RELEASES, min_size=1, max_size=6, unique_by=release_number))
def test_a_build_without_a_number_is_the_latest(known: list[str]) -> None:
    assert nearest_release("nightly", tuple(known)) == max(known, key=release_number)
