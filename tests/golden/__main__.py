"""``python -m tests.golden`` checks all golden tables; ``--write`` replaces them on purpose."""

from __future__ import annotations

import argparse
import sys
import time

from tests.golden.answers import table_for
from tests.golden.expected import count_values, differences, read_tables, said, write_tables
from tests.golden.questions import GROUPS, questions_of


def _group(group: str, *, write: bool, backwards: bool, slowest: bool) -> int:
    """Ask one group's questions; returns how many cases differ from what is stored."""
    stored = read_tables(group)
    questions = [question for question in questions_of(group) if question.available]
    tables, changed, times = {}, [], []
    for question in reversed(questions) if backwards else questions:
        begin = time.process_time()
        table = table_for(question)
        times.append((time.process_time() - begin, question.name))
        tables[question.name] = table
        lines = differences(stored.get(question.name, {}), table)
        if lines:
            changed.append(question.name)
            if not write:
                print(said(f"{group}: {question.name}", lines))
    unasked = sorted(set(stored) - {question.name for question in questions_of(group)})
    if unasked and not write:
        print(f"{group}: stored but not asked: {', '.join(unasked)}")
    if write:
        kept = {question.name: stored.get(question.name) for question in questions_of(group)}
        ordered = {name: tables.get(name, table) for name, table in kept.items()}
        write_tables(group, {name: table for name, table in ordered.items() if table is not None})
    values = sum(map(count_values, tables.values()))
    seconds = sum(item for item, _ in times)
    print(f"{group}: {len(tables)} cases, {values} values, {len(changed)} changed, {seconds:.1f} s of CPU")
    if slowest:
        print("\n".join(f"  {item:6.2f} s {name}" for item, name in sorted(times, reverse=True)[:12]))
    return len(changed) + len(unasked)


def main() -> int:
    """Entry point; 1 where a check finds differences."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--write", action="store_true", help="store what is answered now")
    parser.add_argument("--reverse", action="store_true", help="ask in reverse order")
    parser.add_argument("--slowest", action="store_true", help="list the slowest questions")
    parser.add_argument("--only", choices=GROUPS, help="one group")
    chosen = parser.parse_args()
    groups = [chosen.only] if chosen.only else list(GROUPS)
    if chosen.reverse:
        groups.reverse()
    found = sum(_group(group, write=chosen.write, backwards=chosen.reverse, slowest=chosen.slowest) for group in groups)
    return 1 if found and not chosen.write else 0


if __name__ == "__main__":
    sys.exit(main())
