"""Patterns over module names, matched in time that grows with their length and not with what they can be made to try.

Checkpoints come from anywhere, and Python's own engine can be kept busy for ever by thirty characters. What the tools
write is a small language: literals, ``.``, classes, groups of alternatives, repetitions and ``$``. It becomes an
automaton whose states are walked together [Thompson1968].
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from simulator.errors import shown

LONGEST_PATTERN = 500
_MOST_STATES = 5_000
_DEEPEST_GROUP = 20
_SHOWN = 20
# One character of a name: a class, an escape or a letter. None of them can backtrack.
_ATOM = re.compile(r"\\[dDwWsS]|\\[^\w\s]|\[\^?(?:\\[dDwWsS.-]|[\w.:/-])+\]|[^\\\[\](){}|*+?^$]", re.ASCII)
_REPEAT = re.compile(r"(?:([*+?])|\{(\d{1,3})(?:(,)(\d{1,3})?)?\})\??", re.ASCII)
_END = "$"

_Edge = tuple[Callable[[str], object], int]


@dataclass(slots=True)
class _States:
    """An automaton under construction: free moves, and moves over one character; the end of a name is one too."""

    free: list[list[int]] = field(default_factory=list)
    edges: list[_Edge | None] = field(default_factory=list)

    def add(self, *free: int, edge: _Edge | None = None) -> int:
        if len(self.free) >= _MOST_STATES:
            raise ValueError(f"stands for more than {_MOST_STATES} steps")
        self.free.append(list(free))
        self.edges.append(edge)
        return len(self.free) - 1


class Pattern:
    """A pattern that matches from the start of a name.

    Raises ValueError: it is too long, or uses what is not understood; says where.
    """

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST_PATTERN:
            raise ValueError(f"has {len(text)} characters, allowed are {LONGEST_PATTERN}")
        self._text = text
        self._at = 1 if text.startswith("^") else 0
        self._states = _States()
        self._accepted = self._states.add()
        # Built from the end: every part knows what follows it.
        self._start = self._alternatives(self._parsed(0), self._accepted)
        if self._at < len(text):
            raise self._odd()
        self._known: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Whether some beginning of ``name`` fits."""
        here = self._closure([self._start])
        for letter in name:
            if self._accepted in here:
                return True
            here = self._after(here, letter)
        # The end of a name stays there, however many ``$`` look at it.
        seen: set[frozenset[int]] = set()
        while self._accepted not in here and here not in seen:
            seen.add(here)
            here = self._after(here, "")
        return self._accepted in here

    def _after(self, here: frozenset[int], letter: str) -> frozenset[int]:
        following = self._known.get((here, letter))
        if following is None:
            moves = (edge for state in here if (edge := self._states.edges[state]) is not None)
            following = self._known[here, letter] = self._closure([target for fits, target in moves if fits(letter)])
        return following

    def _closure(self, states: list[int]) -> frozenset[int]:
        found = set(states)
        waiting = list(states)
        while waiting:
            new = [state for state in self._states.free[waiting.pop()] if state not in found]
            found.update(new)
            waiting.extend(new)
        return frozenset(found)

    def _odd(self) -> ValueError:
        rest = self._text[self._at : self._at + _SHOWN]
        return ValueError(f"is not understood from character {self._at + 1} on ({rest!r})")

    def _parsed(self, depth: int) -> _Alternatives:
        """Alternatives up to a closing bracket or the end."""
        if depth > _DEEPEST_GROUP:
            raise ValueError(f"nests more than {_DEEPEST_GROUP} groups")
        choices: _Alternatives = [[]]
        while self._at < len(self._text) and self._text[self._at] != ")":
            if self._text[self._at] == "|":
                self._at += 1
                choices.append([])
                continue
            choices[-1].append(self._repeated(self._item(depth)))
        return choices

    def _item(self, depth: int) -> _Item:
        text = self._text
        if text[self._at] == "(":
            self._at += 3 if text.startswith("(?:", self._at) else 1
            inner = self._parsed(depth + 1)
            if self._at >= len(text):
                raise ValueError("has a group that is not closed")
            self._at += 1
            return inner
        if text[self._at] == _END:
            self._at += 1
            return lambda letter: not letter
        found = _ATOM.match(text, self._at)
        if found is None:
            raise self._odd()
        try:
            matched = re.compile(found[0]).fullmatch
        except re.error:
            raise self._odd() from None
        self._at = found.end()
        return matched

    def _repeated(self, item: _Item) -> _Repeated:
        found = _REPEAT.match(self._text, self._at)
        if found is None:
            return item, 1, 1
        self._at = found.end()
        if found[1]:
            return item, int(found[1] == "+"), 1 if found[1] == "?" else None
        least, most = int(found[2]), int(found[4] or found[2])
        if most < least:
            raise ValueError(f"repeats {least} times at least and {most} at most")
        return item, least, None if found[3] and not found[4] else most

    def _alternatives(self, choices: _Alternatives, following: int) -> int:
        return self._states.add(*(self._sequence(choice, following) for choice in choices))

    def _sequence(self, parts: list[_Repeated], following: int) -> int:
        for item, least, most in reversed(parts):
            if most is None:
                loop = self._states.add(following)
                self._states.free[loop].append(self._once(item, loop))
                following = loop
            for _ in range(0 if most is None else max(0, most - least)):
                following = self._states.add(following, self._once(item, following))
            for _ in range(least):
                following = self._once(item, following)
        return following

    def _once(self, item: _Item, following: int) -> int:
        if isinstance(item, list):
            return self._alternatives(item, following)
        return self._states.add(edge=(item, following))


_Item = Callable[[str], object] | list["list[_Repeated]"]
_Repeated = tuple[_Item, int, int | None]
_Alternatives = list[list[_Repeated]]


@lru_cache(maxsize=256)
def compiled(text: str) -> Pattern:
    """``text`` as a pattern, built once; raises ValueError that names it."""
    try:
        return Pattern(text)
    except ValueError as error:
        raise ValueError(f"the pattern {shown(text)} {error}") from None
