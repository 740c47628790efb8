"""Blocks of the README that commands write: ``python -m validation.readme [--data DIR] [--check]``.

``plan`` is the answer of the first command, ``kernels`` the held-out errors stored with the fits, ``facts`` how many
facts of the profiles are sourced, assumed and stale, ``visits`` what real GPUs gave, ``vllm`` what a real vLLM did;
with ``--data`` also ``accuracy``, the end-to-end scorecard, ``serving``, real runs under load, and ``today``, closed
loops of today's models. ``--check`` writes nothing and fails when a block is out of date.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from simulator.api.scored_runs import today
from simulator.reports.answers.today import COLUMNS, score_row
from simulator.specs.measured.scores import kernel_scores, today_scores
from simulator.specs.measured.validation_rows import ValidationRow
from validation.commands import exit_code_of
from validation.end_to_end.measured.sources import TABLES, load_source
from validation.end_to_end.score import markdown_table, predict, scores
from validation.end_to_end.visits import visits_tables
from validation.end_to_end.vllm_visit import vllm_table
from validation.facts.summary import readme_line
from validation.fit.runs.serve_spread import serving_table
from validation.writing import write_whole

PLAN_COMMAND = ("-m", "simulator.cli.plan_capacity", "--rps", "1000", "--model", "llama-3.1-70b", "--output", "md")
README_FAMILIES = ("gemm", "prefill_attention", "decode_attention", "moe", "recurrent", "all_reduce")


def replaced(text: str, *, block: str, content: str) -> str:
    """``text`` with ``content`` between the markers of ``block``; text without the markers stays as it is."""
    pattern = re.compile(rf"(<!-- {block}: begin[^>]*-->\n).*?(<!-- {block}: end -->)", re.DOTALL)
    return pattern.sub(lambda found: f"{found.group(1)}{content.strip()}\n{found.group(2)}", text)


def plan_answer() -> str:
    """What ``plan-capacity --rps 1000 --model llama-3.1-70b`` answers, without the assumptions."""
    done = subprocess.run([sys.executable, *PLAN_COMMAND], check=True, capture_output=True, encoding="utf-8")
    return done.stdout.split("\n## Assumptions")[0]


def kernel_table(library: str = "vllm") -> str:
    """Families by accelerators in Markdown, percent, for the README."""
    rows = [row for row in kernel_scores(library) if row.group != "roofline" and row.family in README_FAMILIES]
    names = sorted({row.hardware for row in rows})
    found = {(row.hardware, row.family, row.format): row for row in reversed(rows)}
    lines = [f"| {library} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for index, fmt in sorted({(README_FAMILIES.index(row.family), row.format) for row in rows}):
        family = README_FAMILIES[index]
        mapes = (found[name, family, fmt].mape if (name, family, fmt) in found else None for name in names)
        cells = ("-" if mape is None else f"{100 * mape:.1f} %" for mape in mapes)
        lines.append(f"| {family} {fmt} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def today_markdown(rows: Sequence[ValidationRow]) -> str:
    """The scores as the README shows them."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    lines += ["| " + " | ".join(score_row(score)) + " |" for score in today_scores(rows)]
    return "\n".join(lines) + "\n"


def accuracy_answer(data: Path) -> str:
    """The end-to-end scorecard over every source in ``data``."""
    predictions, _ = predict(item for name in sorted(TABLES) for item in load_source(name, data))
    return markdown_table(scores(predictions))


def main() -> int:
    """Write or check the blocks."""
    parser = argparse.ArgumentParser(prog="python -m validation.readme", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder that holds e2e/")
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = arguments.readme.read_text(encoding="utf-8")
    updated = replaced(text, block="plan", content=plan_answer())
    updated = replaced(updated, block="kernels", content=kernel_table())
    updated = replaced(updated, block="facts", content=readme_line())
    updated = replaced(updated, block="visits", content=visits_tables())
    updated = replaced(updated, block="vllm", content=vllm_table())
    if arguments.data:
        updated = replaced(updated, block="accuracy", content=accuracy_answer(arguments.data))
        updated = replaced(updated, block="serving", content=serving_table(arguments.data))
        updated = replaced(updated, block="today", content=today_markdown(today().chosen))
    if arguments.check:
        if updated != text:
            print("README.md is out of date: run python -m validation.readme --data DIR", file=sys.stderr)
        return int(updated != text)
    write_whole(arguments.readme, updated)
    return 0


if __name__ == "__main__":
    raise SystemExit(exit_code_of(main))
