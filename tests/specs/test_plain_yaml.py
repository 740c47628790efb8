"""The fast reader of plain YAML gives what PyYAML gives, and leaves everything else to it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from simulator.errors import ProfileError
from simulator.specs import parsing
from simulator.specs.base import read_yaml
from simulator.specs.profiles import profile_root
from tests.for_every import for_every

SHIPPED = [
    path
    for kind in ("hardware_profiles", "model_profiles")
    for path in sorted(profile_root(kind).rglob("*.yaml"))
    # Calibrations are alike; those of one accelerator have every group.
    if path.parent.name != "calibration" or path.name.startswith("h100-sxm-80gb--vllm")
]


def _typed(value: object) -> object:
    """A value with the types of all its parts, and mappings in their order."""
    if isinstance(value, dict):
        return [(_typed(key), _typed(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [_typed(item) for item in value]
    return type(value), repr(value)


def _by_nodes(text: str) -> object:
    return yaml.load(text, Loader=parsing._StrictLoader)


def test_every_shipped_profile_is_plain_and_reads_the_same() -> None:
    assert len(SHIPPED) > 100
    for path in SHIPPED:
        text = path.read_text(encoding="utf-8")
        assert _typed(parsing._PlainReader(text).document()) == _typed(_by_nodes(text)), path


FLOATS = ("3.35e+12", "3.35e12", "-1.5", ".5", "5.", "1_000.5", "1e3", "1:30.5", ".inf", "-.INF", ".nan")
INTEGERS = ("12", "-7", "+3", "1_000", "0x1F", "0o17", "017", "09", "0b101", "1:30")
WORDS = ("no", "Yes", "on", "TRUE", "y", "~", "null", "''", "'3.0'", '"no"', "text")
DATES = ("2026-11-21", "2026-11-21T10:00:00Z")


@for_every(FLOATS + INTEGERS + WORDS + DATES)
def test_scalars_mean_the_same_as_values_items_and_keys(scalar: str) -> None:
    text = f"value: {scalar}\nagain: {scalar}\nitems: [{scalar}, {scalar}]\nkeys: {{{scalar}: 1}}\n"
    assert _typed(parsing.parse_yaml(text)) == _typed(_by_nodes(text))


@for_every(
    [
        "a: &x {b: 1.0}\nc: *x\n",
        "a: &x {b: 1.0}\nc:\n  <<: *x\n  d: 2\n",
        "a: !!str 1.0\n",
        "? [1, 2]\n: pair\n",
        "a: &x 1.0\nb: *x\n",
        "a: =\n",
        "a: <<\n",
        "a: |\n  two\n  lines\nb: >-\n  folded\n  text\n",
        "{a: {}, b: [], c: }\n",
        "- 1\n- 2\n",
        "",
        "# nothing\n",
    ]
)
def test_uncommon_documents_mean_the_same(text: str) -> None:
    try:
        expected = _by_nodes(text)
    except yaml.YAMLError:
        with pytest.raises(parsing.MalformedError):
            parsing.parse_yaml(text)
        return
    assert _typed(parsing.parse_yaml(text)) == _typed(expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: not valid YAML: the key 'a' is written twice"),
        ("a: {b: 1.0, b: 1.0}\n", "the key 'b' is written twice"),
        ("a: [1.0\nb: 2\n", "not valid YAML"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
        ("a: *nowhere\n", "undefined alias"),
    ],
)
def test_mistakes_are_still_refused_with_their_place(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError, match=said):
        read_yaml(path)
