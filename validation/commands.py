"""How the commands of this package end: a refusal is one line on stderr and the contract's exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from simulator.errors import RoofcastError
from simulator.reports.words.fields import error_line


def exit_code_of(main: Callable[[], int]) -> int:
    """Run ``main`` and return its exit code, or that of its refusal."""
    try:
        code = main()
        sys.stdout.flush()
        return code
    except RoofcastError as error:
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        name = spec.name.removesuffix(".__main__") if spec is not None else "validation"
        print(f"{name}: {error_line(error)}", file=sys.stderr)
        return int(error.exit_code)
    except BrokenPipeError:
        # The reader went away (head, a pager): nothing may be written any more, not even while the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
