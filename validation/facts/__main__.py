"""Check every fact of the profiles: ``python -m validation.facts [--today DATE] [--list KIND]``.

Prints how many facts are sourced, from memory, assumed and stale, the profiles that rest on assumptions most, and every
contradiction: one of those makes the exit code 1.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from datetime import date

from validation.commands import exit_code_of
from validation.facts.contradictions import contradictions
from validation.facts.origins import FOLDERS, Fact, Origin, all_facts
from validation.facts.summary import counted, headline

_WORST = 8


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the state of the facts; 1 where two of them contradict each other."""
    parser = argparse.ArgumentParser(prog="python -m validation.facts", description=__doc__)
    parser.add_argument("--today", type=date.fromisoformat, default=date.today(), help="day that ages count from")
    kinds = ["stale", *(origin.value for origin in Origin)]
    parser.add_argument("--list", choices=kinds, dest="listed", help="print every fact of this kind")
    options = parser.parse_args(arguments)
    facts = all_facts()
    print(headline(counted(facts, today=options.today)))
    print(_by_folder(facts, today=options.today))
    print(_worst(facts))
    if options.listed:
        print("\n".join(f"{_place(fact)}: {fact.source} ({fact.dated})" for fact in _chosen(facts, options)))
    found = contradictions(facts, today=options.today)
    print("\n".join(f"contradiction: {line}" for line in found) if found else "contradictions: none")
    return int(bool(found))


def _chosen(facts: tuple[Fact, ...], options: argparse.Namespace) -> list[Fact]:
    if options.listed == "stale":
        return [fact for fact in facts if fact.is_stale(options.today)]
    return [fact for fact in facts if fact.origin.value == options.listed]


def _place(fact: Fact) -> str:
    return f"{fact.folder}/{fact.profile} {fact.field}"


def _by_folder(facts: tuple[Fact, ...], *, today: date) -> str:
    rows = [f"{'':10s} {'facts':>6s}" + "".join(f" {origin.value:>15s}" for origin in Origin) + f" {'stale':>6s}"]
    for folder in FOLDERS:
        own = tuple(fact for fact in facts if fact.folder == folder)
        found = counted(own, today=today)
        shares = "".join(f" {found.by_origin[origin]:15d}" for origin in Origin)
        rows.append(f"{folder:10s} {found.total:6d}{shares} {found.stale:6d}")
    return "\n".join(rows)


def _worst(facts: tuple[Fact, ...]) -> str:
    """Accelerators on sale whose figures rest on assumptions and memory most."""
    offered = [fact for fact in facts if fact.folder == "hardware" and not fact.announced]
    total = Counter(fact.profile for fact in offered)
    weak = Counter(fact.profile for fact in offered if fact.origin in (Origin.MEMORY, Origin.ASSUMED))
    ranked = sorted(total, key=lambda name: (-weak[name] / total[name], name))[:_WORST]
    return "least known: " + ", ".join(f"{name} ({weak[name]} of {total[name]} assumed)" for name in ranked)


if __name__ == "__main__":
    raise SystemExit(exit_code_of(main))
