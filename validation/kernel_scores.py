"""The kernel scorecard of a checkout: ``python -m validation.kernel_scores``; the same as ``roofcast validate``."""

from __future__ import annotations

import argparse

from simulator.reports.scorecard import LIBRARIES, kernel_scores, score_lines


def main() -> int:
    """Print every stored score."""
    parser = argparse.ArgumentParser(prog="python -m validation.kernel_scores", description=__doc__)
    parser.add_argument("--library", choices=LIBRARIES, action="append", help="only this library (repeatable)")
    chosen = parser.parse_args().library or LIBRARIES
    print("\n".join(score_lines([row for library in chosen for row in kernel_scores(library)])))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
