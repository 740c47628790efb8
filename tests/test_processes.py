"""``simulator.processes``: answers in order, and a line that is late or fatal costs itself alone."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from simulator.errors import RoofcastError
from simulator.processes import AHEAD, LineProcesses, _LineProcess
from simulator.units import MIB

ENTRY = "tests.odd_answers:answer"


def answers(*lines: str, jobs: int = 2, timeout_s: float | None = None, entry: str = ENTRY) -> list[str]:
    """Each answer, or the code of the refusal in its place."""
    with LineProcesses(entry, jobs=jobs, timeout_s=timeout_s) as processes:
        return [one.code if isinstance(one, RoofcastError) else one for one in processes.answers(lines)]


def test_answers_come_in_the_order_of_their_lines() -> None:
    assert answers("sleep 0.3", "ab", "", "print", "c" * 300_000) == ["3.0 peels", "ba", "", "tnirp", "c" * 300_000]


def test_a_process_rarely_looks_for_garbage_and_keeps_what_arrays_leave() -> None:
    rounds, kept = answers("settings", jobs=1)[0].split()
    assert int(rounds) > 100 * 700, "Python's own"
    assert float(kept) >= 16 * MIB


def test_a_process_that_dies_costs_its_line_alone() -> None:
    assert answers("ab", "kill", "leave", "cd", "ef", jobs=1) == ["ba", "process_died", "process_died", "dc", "fe"]


def test_a_refusal_says_how_the_process_ended() -> None:
    with LineProcesses(ENTRY, jobs=1) as processes:
        killed, left = processes.answers(["kill", "leave"])
    assert "SIGKILL" in str(killed)
    assert "exit code 7" in str(left)


def test_a_line_that_takes_too_long_is_stopped() -> None:
    start = time.monotonic()
    assert answers("sleep 600", "ab", jobs=1, timeout_s=1.0) == ["timeout", "ba"]
    assert time.monotonic() - start < 60


def test_a_process_that_cannot_start_is_said() -> None:
    assert answers("ab", entry="tests.odd_answers:missing") == ["process_died"]


def test_one_process_answers_many_lines() -> None:
    assert len(set(answers(*["which"] * 20, jobs=1))) == 1
    assert len(set(answers(*["which"] * 20, jobs=2))) <= 2


def test_no_more_is_taken_in_than_is_worked_on() -> None:
    taken = 0

    def lines() -> Iterator[str]:
        nonlocal taken
        for _ in range(1000):
            taken += 1
            yield "ab"

    with LineProcesses(ENTRY, jobs=1) as processes:
        for count, answer in enumerate(processes.answers(lines()), start=1):
            assert answer == "ba"
            assert taken <= count + AHEAD + 1
    assert taken == 1000


def test_an_error_of_the_source_is_raised_where_answers_are_read() -> None:
    def lines() -> Iterator[str]:
        yield "ab"
        raise OSError("gone")

    with LineProcesses(ENTRY, jobs=1) as processes:
        found = processes.answers(lines())
        assert next(found) == "ba"
        with pytest.raises(OSError, match="gone"):
            next(found)


def test_leaving_early_stops_what_still_works() -> None:
    start = time.monotonic()
    with LineProcesses(ENTRY, jobs=2) as processes:
        assert next(processes.answers(["ab", "sleep 600", "sleep 600"])) == "ba"
    assert time.monotonic() - start < 60


def test_a_process_that_starts_while_the_others_are_ended_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class Late(_LineProcess):
        def __init__(self, entry: str) -> None:
            super().__init__(entry)
            started.append(self)
            processes.__exit__(None, None, None)

    monkeypatch.setattr("simulator.processes._LineProcess", Late)
    with LineProcesses(ENTRY, jobs=1) as processes:
        assert [str(answer) for answer in processes.answers(["ab"])] != ["ba"]
    assert started[0]._process.poll() is not None


def test_every_process_is_ended_while_those_before_it_leave_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """What asked an ended process takes it off the list of those to end, which the next one may not slip through."""
    started: list[_LineProcess] = []
    stop = _LineProcess.stop

    def slowly(process: _LineProcess) -> None:
        stop(process)
        started.append(process)
        if process in processes._started and len(started) == 1:
            processes._started.remove(process)

    with LineProcesses(ENTRY, jobs=2) as processes:
        found = processes.answers(["ab", "cd", "ef", "gh"])
        assert [str(next(found)) for _ in range(4)] == ["ba", "dc", "fe", "hg"]
        both = list(processes._started)
        monkeypatch.setattr(_LineProcess, "stop", slowly)
    assert len(both) == 2
    assert all(process._process.poll() is not None for process in both)
