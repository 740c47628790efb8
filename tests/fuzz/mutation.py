"""Hostile variants of real inputs: trees with odd values in odd places, and texts with odd bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import yaml

Tree = Any
"""What JSON can say."""

TEXTS = (
    "",
    " ",
    "x" * 300,
    "a" * 5000,
    "\x00",
    "\x1b[31mred",
    "\u202eright",
    "é",
    "null",
    "8",
    " 8 ",
    "1_000",
    "1e400",
    "nan",
    "-1",
    "true",
    "../../etc/passwd",
    "/dev/null",
    "~root",
    "{{x}}",
    "'",
    '"',
    "re:(((",
    "re:(\\w*\\.?)*!",
    "2:4",
    "0:0",
    "9:9",
    "eagle",
    "h100",
    "llama-3.1-8b",
    "fp8",
    "\n\n",
    "a/b",
    "%s%n",
    "٣",
    "²",
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    16,
    100,
    101,
    1000,
    10**6,
    10**9,
    10**12,
    2**53,
    2**63,
    2**64,
    10**30,
    10**400,
    0.0,
    -0.0,
    0.5,
    1.0,
    1.5,
    8.0,
    1e-300,
    1e-30,
    1e-9,
    1e9,
    1e30,
    1e300,
    1e308,
    -1e308,
    float("inf"),
    float("nan"),
)
OTHERS = (None, True, False, [], {}, [[]], [None], {"": None}, [1, "2"], [[[[[[[[1]]]]]]]])
_SCALES = (0.0, 0.1, 0.5, 0.9, 1.1, 2.0, 10.0, 1e3, 1e6)
_DEEP = (40, 600, 3000)


def paths(tree: Tree, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a tree, the whole first."""
    found = [prefix]
    if isinstance(tree, dict):
        for key, value in tree.items():
            found += paths(value, (*prefix, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree[:40]):
            found += paths(value, (*prefix, index))
    return found


def odd_value(rng: random.Random, old: Tree) -> Tree:
    """A value in place of ``old``: near to it more often than far."""
    draw = rng.random()
    if isinstance(old, bool):
        return rng.choice((not old, *NUMBERS[:3], "true", None))
    if isinstance(old, int | float) and draw < 0.5 and abs(old) < 1e300:
        scaled = old * rng.choice(_SCALES)
        return int(scaled) if isinstance(old, int) else scaled
    if isinstance(old, str) and draw < 0.2:
        return odd_text(rng, old, most=2)
    return deepcopy(rng.choice(rng.choice((TEXTS, NUMBERS, NUMBERS, OTHERS))))


def odd_tree(rng: random.Random, tree: Tree, *, words: tuple[str, ...]) -> Tree:
    """``tree`` with one to three changes; ``words`` are keys and values that mean something to who reads it."""
    changed = json.loads(json.dumps(tree))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        changed = _one_change(rng, changed, words)
    return changed


def _one_change(rng: random.Random, tree: Tree, words: tuple[str, ...]) -> Tree:
    path = rng.choice(paths(tree))
    if not path:
        if isinstance(tree, dict):
            tree[rng.choice(words)] = rng.choice((rng.choice(words), odd_value(rng, None)))
        return tree
    *parents, last = path
    place = tree
    for part in parents:
        place = place[part]
    old, draw = place[last], rng.random()
    if draw < 0.12:
        del place[last]
    elif draw < 0.2 and isinstance(place, dict):
        place[rng.choice((*TEXTS, *words))] = place.pop(last)
    elif draw < 0.3:
        place[last] = rng.choice(words)
    elif draw < 0.35:
        place[last] = [deepcopy(old) for _ in range(rng.choice((2, 3, 50)))]
    else:
        place[last] = odd_value(rng, old)
    return tree


def near_tree(rng: random.Random, tree: Tree) -> Tree:
    """``tree`` with one to four of its numbers near to what they were, or a list shorter, longer, turned or doubled."""
    changed = json.loads(json.dumps(tree))
    for _ in range(rng.choice((1, 1, 2, 4))):
        places = [(path, held) for path in paths(changed) if path and not isinstance(held := _at(changed, path), dict)]
        if not places:
            break
        (*parents, last), old = rng.choice(places)
        _at(changed, parents)[last] = _near(rng, old, [held for _, held in places])
    return changed


def _at(tree: Tree, path: Sequence[Any]) -> Tree:
    for part in path:
        tree = tree[part]
    return tree


def _near(rng: random.Random, old: Tree, others: list[Tree]) -> Tree:
    """A value of the same type, another's of the tree among them."""
    same = [other for other in others if type(other) is type(old)]
    if isinstance(old, list):
        return deepcopy(
            rng.choice((old[1:], old[:-1], old[::-1], old + old, old[:1], [*old, *old[-1:]], rng.choice(same)))
        )
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return rng.choice((old + 1, old - 1, 2 * old, old // 2, 0, 1, 10**6 * old, rng.choice(same)))
    if isinstance(old, float):
        scaled = old * rng.choice((0.0, 1e-300, 1e-9, 0.01, 0.5, 0.9, 1.1, 2.0, 100.0, 1e9, -1.0))
        return rng.choice((scaled, scaled, 5e-324, 1.0, rng.choice(same)))
    return rng.choice(same) if same else old


def odd_text(rng: random.Random, text: str, *, most: int = 4) -> str:
    """``text`` with pieces cut out, doubled, exchanged or put in."""
    for _ in range(rng.randint(1, most)):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice((1, 1, 3, 10, 100)))
        piece = text[at:end]
        text = text[:at] + rng.choice(_PIECES)(rng, piece) + text[end:]
    return text


_PIECES: tuple[Callable[[random.Random, str], str], ...] = (
    lambda rng, piece: "",
    lambda rng, piece: piece * 2,
    lambda rng, piece: piece[::-1],
    lambda rng, piece: piece + rng.choice(TEXTS),
    lambda rng, piece: rng.choice(TEXTS),
    lambda rng, piece: str(rng.choice(NUMBERS[:-10])),
    lambda rng, piece: rng.choice("{}[]:,\"'\\\t\n#&*!|>%@`-=;"),
    lambda rng, piece: chr(rng.choice((0, 1, 27, 127, 133, 0x2028, 0xFEFF, 0xD7FF, 0x1F600))),
)


def deep(rng: random.Random, text: str) -> str:
    """``text`` inside, or before, more brackets than anything needs."""
    levels = rng.choice(_DEEP)
    opening, closing = rng.choice((("[", "]"), ('{"a":', "}")))
    return rng.choice((opening * levels + text + closing * levels, opening * levels, text + opening * levels))


def odd_json(rng: random.Random, tree: Tree, *, words: tuple[str, ...]) -> str:
    """JSON text that mostly parses."""
    draw = rng.random()
    if draw < 0.9:
        return json.dumps(odd_tree(rng, tree, words=words))
    text = json.dumps(tree)
    return deep(rng, text) if draw < 0.91 else odd_text(rng, text)


def _fields(spec: type[Any]) -> tuple[str, ...]:
    """Names of a specification's fields and of its parts."""
    found = set(spec.model_fields)
    for part in spec.model_json_schema().get("$defs", {}).values():
        found |= set(part.get("properties", {})) | {str(word) for word in part.get("enum", ())}
    return tuple(sorted(found))


@cache
def words_of(spec: type[Any]) -> tuple[str, ...]:
    """Keys and values that mean something to a specification."""
    return (*_fields(spec), *TEXTS[-12:])


def mutated_yaml(rng: random.Random, text: str, *, allowed: Callable[[random.Random, Tree], Tree] | None = None) -> str:
    """``text`` with other bytes, or another tree as YAML or JSON; half of the time one that is ``allowed``."""
    draw = rng.random()
    if draw < 0.2:
        return odd_text(rng, text)
    tree = json.loads(json.dumps(yaml_tree(text), default=str))
    if allowed is not None and draw < 0.7:
        changed = allowed(rng, tree)
    elif draw < 0.5:
        changed = near_tree(rng, tree)
    else:
        words = tuple(str(word) for word in tree) if isinstance(tree, dict) and tree else ("name",)
        changed = odd_tree(rng, tree, words=words)
    if rng.random() < 0.5:
        return json.dumps(changed)
    return str(yaml.dump(changed, Dumper=_Dumper, sort_keys=False))


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@cache
def yaml_tree(text: str) -> Any:
    """What a text holds."""
    return yaml.load(text, Loader=_Loader)
