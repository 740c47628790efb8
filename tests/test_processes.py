"""``simulator.processes``: answers in order, and a line that is late or fatal costs itself alone."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import pytest

from simulator.allocation import COLLECT_EVERY
from simulator.errors import RoofcastError
from simulator.processes import AHEAD, DIED_CODE, LineProcesses, _LineProcess

ENTRY = "tests.odd_answers:answer"


def answers(*lines: str, jobs: int = 2, timeout_s: float | None = None, entry: str = ENTRY) -> list[str]:
    """Each answer, or the code of the refusal in its place."""
    with LineProcesses(entry, jobs=jobs, timeout_s=timeout_s) as processes:
        return [one.code if isinstance(one, RoofcastError) else one for one in processes.answers(lines)]


def test_answers_come_in_the_order_of_their_lines() -> None:
    assert answers("sleep 0.3", "ab", "", "print", "c" * 300_000) == ["3.0 peels", "ba", "", "tnirp", "c" * 300_000]


def test_long_lines_are_no_dead_end() -> None:
    """Neither side waits for the other to read, though a pipe holds less than a line or its answer."""
    long = "c" * 300_000
    assert answers(*[long, "ab", long, long] * 3, jobs=1) == [long, "ba", long, long] * 3


@pytest.mark.parametrize(("line", "most"), [("ab", 2), ("\u00e9\u00e9", 1), ("c" * 2_000, 1)])
def test_a_process_holds_its_next_line_while_it_works(line: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """But no line that its pipe might not take beside the one before."""
    held: dict[_LineProcess, int] = {}
    counts: list[int] = []
    hand_over, answer = _LineProcess.hand_over, _LineProcess.answer

    def handed(process: _LineProcess, text: str) -> None:
        held[process] = held.get(process, 0) + 1
        hand_over(process, text)

    def answered(process: _LineProcess, *, timeout_s: float | None) -> str | RoofcastError:
        counts.append(held[process])
        held[process] -= 1
        return answer(process, timeout_s=timeout_s)

    monkeypatch.setattr(_LineProcess, "hand_over", handed)
    monkeypatch.setattr(_LineProcess, "answer", answered)
    assert answers(*[line] * 40) == [line[::-1]] * 40
    assert max(counts) == most


def test_the_line_that_a_dead_process_held_is_asked_of_another() -> None:
    fatal = answers("kill", *["ab"] * 40)
    assert fatal == [DIED_CODE, *["ba"] * 40]


@pytest.mark.parametrize("lines", [["\ud800"], ["ab", "\ud800", *["ab"] * 20]])
def test_a_line_that_no_pipe_takes_costs_itself_alone(lines: list[str]) -> None:
    assert answers(*lines, timeout_s=60.0) == [DIED_CODE if line == "\ud800" else "ba" for line in lines]


FORKS = """
import sys, threading
import tests.odd_answers
from simulator.processes import LineProcesses
tests.odd_answers.told = "this"
if "thread" in sys.argv:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("before")
with LineProcesses("tests.odd_answers:answer", jobs=2) as processes:
    print(*processes.answers(["told", "told"]))
    print({str(one)[:10] for one in processes.answers(["linger"] * 6)})  # enough for either process to take one
    print(*processes.answers(["told", "told", "told", "print"]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks elsewhere are not safe")
@pytest.mark.parametrize(("argument", "first"), [("alone", "this"), ("thread", "nothing")])
def test_the_first_processes_are_forks_where_nothing_else_runs(argument: str, first: str) -> None:
    found = subprocess.run([sys.executable, "-c", FORKS, argument], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == [
        "before",
        f"{first} {first}",
        "{'its proces'}",
        "nothing nothing nothing tnirp",
    ]
    assert found.stderr == "not an answer\n"


HOLDS = """
import fcntl, sys
import tests.odd_answers
from simulator.processes import LineProcesses
held = open(sys.argv[1], "w")
fcntl.flock(held, fcntl.LOCK_EX)
with LineProcesses("tests.odd_answers:answer", jobs=2) as processes:
    answers = processes.answers(["ab", "cd", "sleep 600", "sleep 0.3"])
    print(*[next(answers), next(answers)], flush=True)
    next(answers)
"""


def _locked(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="forks elsewhere are not safe")
def test_a_fork_holds_no_file_of_its_parent(tmp_path: Path) -> None:
    """A process that was killed leaves no lock behind, and its forks end when they have answered."""
    target = tmp_path / "held"
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(target)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ba dc\n"
    forks = [int(word) for word in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    assert len(forks) == 2
    process.kill()
    process.wait()
    await_end = time.monotonic() + 60
    try:
        with target.open() as free:
            # One of them may have answered both lines before the other has begun.
            while not _locked(free):
                assert time.monotonic() < await_end
                time.sleep(0.05)
        assert any(Path(f"/proc/{fork}").exists() for fork in forks)
        while all(Path(f"/proc/{fork}").exists() for fork in forks):
            assert time.monotonic() < await_end
            time.sleep(0.05)
    finally:
        process.stdout.close()
        for fork in forks:
            with suppress(ProcessLookupError):
                os.kill(fork, signal.SIGKILL)


def test_a_process_rarely_looks_for_garbage_and_keeps_what_arrays_leave() -> None:
    rounds, kept = answers("settings", jobs=1)[0].split()
    assert int(rounds) == COLLECT_EVERY
    assert int(kept) == 1, "asked of the C library once"


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


def test_lines_of_two_sources_are_answered_by_the_same_processes() -> None:
    # Threads of tests before this one may end meanwhile.
    before = set(threading.enumerate())
    with LineProcesses(ENTRY, jobs=2) as processes:
        asked = len(set(threading.enumerate()) - before)
        first, second = processes.answers(["ab", "cd"]), processes.answers(["ef", "gh"])
        assert [next(first), next(second), next(first), next(second)] == ["ba", "fe", "dc", "hg"]
        assert asked == 2
        assert len(set(threading.enumerate()) - before) <= 2 + 2, "one that takes in the lines of each source"
        assert len(processes._started) <= 2


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
        def __init__(self, process: Any) -> None:
            super().__init__(process)
            started.append(self)
            processes.__exit__(None, None, None)

    monkeypatch.setattr("simulator.processes._LineProcess", Late)
    with LineProcesses(ENTRY, jobs=1) as processes:
        assert [str(answer) for answer in processes.answers(["ab"])] != ["ba"]
    assert started[0]._process.exit_code() is not None


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
    assert all(process._process.exit_code() is not None for process in both)
