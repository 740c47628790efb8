"""The two commands as a process would start them, which goes on: the only place that knows where they are."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.cli.plan_capacity import main as plan_capacity_main
from simulator.cli.roofcast import app
from simulator.cli.shared import run_process

HERE = Path(__file__).resolve().parent
_NOT_FROM_OUTSIDE = ("ROOFCAST_PROFILES", "ROOFCAST_CACHE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What one run left: its exit code and its two streams."""

    code: int
    out: str
    err: str


@contextlib.contextmanager
def _process(words: Sequence[str], stdin: str) -> Iterator[None]:
    """Arguments, standard input, folder and environment as of a process of its own; restored afterwards."""
    before = sys.argv, sys.stdin, {name: os.environ.pop(name, None) for name in _NOT_FROM_OUTSIDE}
    sys.argv, sys.stdin = list(words), io.StringIO(stdin)
    # What is compared is worked out, never looked up.
    os.environ["ROOFCAST_CACHE"] = "off"
    try:
        with contextlib.chdir(HERE):
            yield
    finally:
        sys.argv, sys.stdin, variables = before
        del os.environ["ROOFCAST_CACHE"]
        os.environ.update({name: value for name, value in variables.items() if value is not None})


def run(words: Sequence[str], *, stdin: str = "") -> Printed:
    """Run ``words``, the program's name first, inside this process; relative paths start in this folder."""
    out, err = io.StringIO(), io.StringIO()
    with _process(words, stdin), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            answer = _started(words)
        except SystemExit as end:
            answer = end.code
    return Printed(code=answer if isinstance(answer, int) else 0, out=out.getvalue(), err=err.getvalue())


def _started(words: Sequence[str]) -> object:
    # plan-capacity tunes garbage collection for good when it reads the process's own arguments: it is given them.
    if words[0] == "plan-capacity":
        return plan_capacity_main(list(words[1:]))
    return run_process(app, name=words[0])
