"""Pages of the dashboard without a browser."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
from streamlit.dataframe_util import convert_arrow_bytes_to_pandas_df
from streamlit.testing.v1 import AppTest

from app.parts.display import COMMAND_LINE
from simulator.cli import plan_capacity
from simulator.cli.roofcast import app as roofcast
from simulator.cli.shared import run

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("plan", "what_if", "roofline", "serving", "sweep", "compare", "validation", "learn", "profiles")
_PLAIN = str.maketrans({"\N{NO-BREAK SPACE}": " ", "\N{WORD JOINER}": None, "\\": None})
"""Takes out what keeps ranges on one line and dollars from being formulas."""
_SCRIPT = """
import sys
sys.path.insert(0, {root!r})
from app.shell import main
main({name!r})
"""


def opened(name: str, query: dict[str, str] | None = None) -> AppTest:
    """A page as its first visitor sees it, at an address with these parameters."""
    test = AppTest.from_string(_SCRIPT.format(root=str(ROOT), name=name.replace("_", "-")), default_timeout=60)
    for key, value in (query or {}).items():
        test.query_params[key] = value
    return test.run()


def headline(test: AppTest) -> str:
    """The sentence on top."""
    shown = next(item.value for item in test.markdown if item.value.startswith("## "))
    return str(shown.removeprefix("## ").translate(_PLAIN))


def equation(test: AppTest) -> str:
    """What the fleet of a plan is made of: the line below its headline."""
    return next(text for text in captions(test) if re.search("(GPUs?|accelerators?) = ", text))


def metrics(test: AppTest) -> dict[str, str]:
    """Numbers of the page by label."""
    return {item.label: item.value for item in test.metric}


def captions(test: AppTest) -> list[str]:
    """Small print of the page as it is read."""
    return [item.value.translate(_PLAIN) for item in test.caption]


def bar(test: AppTest) -> str:
    """The question on top."""
    return next(item.value.translate(_PLAIN) for item in test.markdown if " → " in item.value)


def tables(test: AppTest) -> list[pd.DataFrame]:
    """Tables of the page as they are read: texts where cells hold numbers that they sort by."""
    found = []
    for item in test.dataframe:
        texts = item.proto.arrow_data.styler.display_values
        found.append(convert_arrow_bytes_to_pandas_df(texts) if texts else item.value)
    # Those that are read and not sorted have their first column as heads of rows; dollars and stars are escaped there.
    read = [item.value.reset_index().map(lambda text: text.translate(_PLAIN)) for item in test.table]
    return found + read


def printed(test: AppTest) -> list[dict[str, Any]]:
    """What the command line on the page prints: one JSON document for each line of it."""
    if not test.code:
        test.session_state[COMMAND_LINE] = True
        test.run()
    words, *rest = [item.value for item in test.code]
    command = shlex.split(words)
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        if command[0] == "plan-capacity":
            code = run(plan_capacity.app, name="plan-capacity", arguments=_objectives(command[1:]))
        elif command[1] == "simulate":
            return [_simulated(line) for line in rest[0].splitlines()]
        else:
            code = run(roofcast, name="roofcast", arguments=command[1:])
    assert code == 0, words
    return [json.loads(stream.getvalue())]


def document_of(command: str) -> dict[str, Any]:
    """What a command of the README prints as JSON."""
    name, *words = shlex.split(command)
    entry = plan_capacity.app if name == "plan-capacity" else roofcast
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(io.StringIO()):
        assert run(entry, name=name, arguments=[*words, "--json"]) == 0
    document: dict[str, Any] = json.loads(stream.getvalue())
    return document


def _objectives(words: list[str]) -> list[str]:
    from simulator.cli.shared import spell_objectives

    return list(spell_objectives(words))


def _simulated(line: str) -> dict[str, Any]:
    from simulator.api.scenarios import simulate_line

    return simulate_line(line, number=1)
