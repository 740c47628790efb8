"""What goes through a pipe comes out equal, and what went through before takes next to nothing."""

from __future__ import annotations

import io
import pickle
from threading import Lock

import pytest

from app.hosting import work, workers
from app.hosting.workers import Receiver, Sender
from simulator.specs.question.plan import plan_spec


class _Pipe(io.BytesIO):
    """Both ends of a pipe: reads follow what was written."""

    def write(self, message: object) -> int:  # type: ignore[override]
        here = self.tell()
        self.seek(0, io.SEEK_END)
        count = super().write(message)  # type: ignore[arg-type]
        self.seek(here)
        return count


def _ends() -> tuple[_Pipe, Sender, Receiver]:
    pipe = _Pipe()
    return pipe, Sender(pipe), Receiver(pipe)


def test_the_next_plan_is_equal_and_takes_a_tenth() -> None:
    pipe, sender, receiver = _ends()
    sizes = []
    for rate in (20.0, 22.0, 24.0):
        asked = plan_spec({"model": "llama-3.1-8b", "hardware": ("h100-sxm-80gb",), "rate_per_s": rate})
        plan, before = work.planned(asked), len(pipe.getvalue())
        sender.send(plan)
        sizes.append(len(pipe.getvalue()) - before)
        found = receiver.receive()
        assert isinstance(found, work.Planned)
        assert found.plan.best == plan.plan.best
        assert found.verdict == plan.verdict
    assert max(sizes[1:]) < 0.1 * len(pickle.dumps(plan))


def test_what_cannot_be_packed_is_refused_and_the_next_arrives() -> None:
    _, sender, receiver = _ends()
    shared = ("kept", "by both")
    sender.send(shared)
    with pytest.raises(TypeError):
        sender.send((shared, Lock()))
    sender.send((shared, 2))
    assert receiver.receive() == shared
    assert receiver.receive() == (shared, 2)


def test_both_ends_forget_before_they_remember_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_MOST_REMEMBERED_BYTES", 640)
    pipe, sender, receiver = _ends()
    text = "x" * 600
    sizes = []
    for _ in range(12):
        before = len(pipe.getvalue())
        sender.send(text)
        assert receiver.receive() == text
        sizes.append(len(pipe.getvalue()) - before)
    # Whole, then named for as long as there is room, then whole again.
    assert [size > 600 for size in sizes].count(True) > 1
    assert sizes[0] > 600 > 50 > sizes[1]


def test_a_closed_pipe_ends_it() -> None:
    _, _, receiver = _ends()
    with pytest.raises(EOFError):
        receiver.receive()
