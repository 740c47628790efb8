"""Commands of the validation package end with the contract's exit codes and one line."""

from __future__ import annotations

import pytest

from simulator.errors import ExitCode, FileError
from validation.commands import exit_code_of


def test_a_refusal_is_one_line_and_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> int:
        raise FileError("cannot read 'x.csv'", field="--data")

    assert exit_code_of(refused) == ExitCode.IO
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith("--data: cannot read 'x.csv'\n")
    assert printed.err.count("\n") == 1


def test_other_exit_codes_pass_through() -> None:
    assert exit_code_of(lambda: 1) == 1
