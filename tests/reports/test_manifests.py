"""``simulator.reports.handoff.kubernetes`` and ``.texts``: templates of objects, notes and scripts, filled in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.reports.handoff.commands import filled, note, script, templates
from simulator.reports.handoff.kubernetes import manifest, service
from simulator.specs.base import read_yaml
from simulator.specs.profiles import profile_root
from tests.for_every import for_every

TEMPLATES = read_yaml(profile_root("hardware_profiles").parent / "simulator/reports/handoff/manifests.yaml")
PLAIN = st.one_of(st.integers(0, 99), st.booleans(), st.text("abc", min_size=1))
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("xy"), inner))


class Everything(dict[str, Any]):
    """The same value under whatever name a template asks for."""

    def __init__(self, value: object, **own: object) -> None:
        super().__init__(own)
        self.value = value

    def __missing__(self, key: str) -> object:
        return self.value


def texts(held: object) -> list[str]:
    if isinstance(held, dict):
        return [text for key, item in held.items() for text in (key, *texts(item))]
    if isinstance(held, list):
        return [text for item in held for text in texts(item)]
    return [held] if isinstance(held, str) else []


@for_every(sorted(TEMPLATES))
def test_a_filled_template_asks_for_nothing_more(name: str) -> None:
    assert not [text for text in texts(manifest(name, Everything("given"))) if "${" in text]


@for_every(["claim", "service", "budget", "config", "deployment", "leader_worker_set", "stateless"])
def test_every_object_says_what_it_is(name: str) -> None:
    found = manifest(name, Everything("given"))
    assert list(found)[:2] == ["apiVersion", "kind"]
    assert found["metadata"]


@given(value=VALUES)
def test_a_place_alone_takes_a_value_as_it_is(value: object) -> None:
    assert manifest("config", {"name": "own", "data": value})["data"] == value


@given(port=st.integers(1, 65535))
def test_numbers_stay_numbers(port: int) -> None:
    (entry,) = service("own", selector="pods", port=port)["spec"]["ports"]  # type: ignore[index]
    assert (entry["port"], entry["targetPort"]) == (port, port)


def test_what_there_is_none_of_is_left_out() -> None:
    spec = manifest("stateless", {"name": "own", "container": {}, "volumes": None})["spec"]["template"]["spec"]
    assert list(spec) == ["serviceAccountName", "containers"]
    pod = manifest("pod", Everything(None, claim="weights", shared_gib=8))
    assert [volume["name"] for volume in pod["volumes"]] == ["models", "shm"]
    assert "initContainers" not in pod


def test_a_filled_template_leaves_the_next_one_alone() -> None:
    first = manifest("budget", {"name": "own", "replicas": 2})
    first["spec"]["minAvailable"] = 99
    assert manifest("budget", {"name": "other", "replicas": 3})["spec"]["minAvailable"] == 3


def test_a_value_that_is_not_given_is_a_fault() -> None:
    with pytest.raises(KeyError):
        manifest("budget", {"name": "own"})


def test_every_note_is_asked_for_by_the_code_that_chooses_it() -> None:
    folder = profile_root("hardware_profiles").parent / "simulator/reports/handoff"
    code = "".join(one.read_text("utf-8") for one in sorted(folder.glob("*.py")))
    by_word = {"parser", "documentation", "memory"}  # what a launch profile says of its flags
    chosen = {name for name in templates("notes") if f'note("{name}"' in code or name.startswith("checkpoint_")}
    assert chosen | by_word == set(templates("notes"))


def test_a_text_keeps_places_of_a_shell_and_refuses_names_that_nobody_gives() -> None:
    text = script("verify", {"target": "one replica", "client": "vllm", "minutes": "5"})
    assert "TARGET=${1:?address of one replica}" in text
    assert note("drafter", {"drafter": "HERE"}).startswith("HERE stands for")
    with pytest.raises(KeyError, match="target"):
        filled(templates("scripts")["verify"], {"client": "vllm"})
