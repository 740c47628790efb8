"""Scenario lines as they come, answered as they go: in this process or in several, in order, each within its time."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator

from simulator.api.scenarios import line_identifier, simulate_line
from simulator.errors import FileError, Option, RoofcastError
from simulator.records import dataclass


@dataclass(frozen=True, slots=True)
class NumberedLine:
    """A line that is not blank, and its place in its file, from 1 on."""

    number: int
    content: bytes


@dataclass(frozen=True, slots=True)
class AnsweredLine:
    """One JSON document without its line end, and whether it is an error object."""

    text: str
    refused: bool


def numbered_lines(lines: Iterable[bytes]) -> Iterator[NumberedLine]:
    """Lines that hold something; a byte-order mark before the first is none of it."""
    for number, line in enumerate(lines, start=1):
        content = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if content.strip():
            yield NumberedLine(number, content.rstrip(b"\r\n"))


def answered_lines(
    lines: Iterable[NumberedLine], *, jobs: int = 1, timeout_s: float | None = None, profiles: str | None = None
) -> Iterator[AnsweredLine]:
    """The result object or the error object of each line, in their order, while they come.

    jobs : processes that answer; timeout_s : seconds that one line may take. One job without a limit is this process.
    """
    if jobs == 1 and timeout_s is None:
        for line in lines:
            yield _answered(line, profiles=profiles)
        return
    asked: deque[NumberedLine] = deque()

    def requests() -> Iterator[str]:
        for line in lines:
            asked.append(line)
            content = line.content.decode("utf-8", "surrogateescape")
            yield json.dumps([line.number, profiles, content])

    from simulator.processes import LineProcesses

    with LineProcesses(f"{__name__}:answer_request", jobs=jobs, timeout_s=timeout_s) as processes:
        for answer in processes.answers(requests()):
            line = asked.popleft()
            yield (
                _refused(line, answer)
                if isinstance(answer, RoofcastError)
                else AnsweredLine(answer[1:], answer[0] == "1")
            )


def answer_request(request: str) -> str:
    """What a process that answers lines does with one: its answer behind a 1 for error objects or a 0."""
    number, profiles, content = json.loads(request)
    line = NumberedLine(number, content.encode("utf-8", "surrogateescape"))
    found = _answered(line, profiles=profiles)
    return f"{found.refused:d}{found.text}"


def _answered(line: NumberedLine, *, profiles: str | None) -> AnsweredLine:
    document = simulate_line(line.content, number=line.number, profiles=profiles)
    return AnsweredLine(text=json.dumps(document, allow_nan=False), refused="error" in document)


def _refused(line: NumberedLine, error: RoofcastError) -> AnsweredLine:
    from simulator.reports.answer import error_object

    document = error_object(line_identifier(line.content), error)
    return AnsweredLine(text=json.dumps(document, allow_nan=False), refused=True)


def unanswered_lines(lines: Iterator[NumberedLine], *, answers: Iterable[bytes], where: str) -> Iterator[NumberedLine]:
    """What of ``lines`` an earlier run's ``answers`` leave, in order. Raises FileError: they answer other scenarios."""
    for answer in answers:
        line = next(lines, None)
        if line is None or line_identifier(answer) != line_identifier(line.content):
            raise FileError(
                f"{where} answers other scenarios" + ("" if line is None else f": line {line.number} has another id"),
                field=Option("resume"),
                hint="`force` starts anew",
            )
    return lines
