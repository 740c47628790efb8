"""Profiles of one's own are found wherever their folder is named: by ``--profiles``, ``profiles=`` or the variable."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import simulator
from simulator.errors import ProfileError
from simulator.specs.engine.engine import load_engine
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.money.ownership import load_ownership
from simulator.specs.money.prices import load_prices
from simulator.specs.profiles import PROFILES_VARIABLE, profile_root, profiles_at_once
from tests.golden.entry_points import run

_BUILT_IN = profile_root("hardware_profiles")
_LOADED: tuple[tuple[Callable[..., Any], str, str], ...] = (
    (load_engine, "Brisk_LLM", "brisk"),
    (load_hardware, "mg", "my-gpu"),
    (load_model, "mine-8b", "mine-8b"),
    (load_prices, "mine", "mine"),
    (load_prices, "mine-again", "mine-again"),
    (load_ownership, "default", "default"),
)
_SERVED = "--rate 1 --duration 5 --isl 64 --osl 8"
_PLANNED = "plan-capacity --json --no-verify --model mine-8b --rps 50 --tp 1 --hardware mg"
_ASKED = (
    "roofcast step --json --model mine-8b --hardware my-gpu --engine brisk-llm",
    f"roofcast serve --json --model mine-8b --hardware my-gpu {_SERVED} --with engine=brisk-llm",
    "roofcast compare --json --model mine-8b --hardware my-gpu --with engine=brisk-llm",
    f"{_PLANNED} --engine brisk --prices mine",
    f"{_PLANNED} --engine brisk-llm --prices mine-again --ownership default --rental",
    "roofcast prices list --json --prices mine-again --hardware mg",
)
_STEP_S = 0.002
_LINE = {"id": 1, "kind": "batch", "model": "mine-8b", "hardware": "mg", "engine": "brisk", "batch_size": 2}


def _written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An accelerator, an engine with fits, a model, price lists that extend others and an ownership; with aliases."""
    folder = tmp_path_factory.mktemp("own")
    gpu = (_BUILT_IN / "l40s.yaml").read_text(encoding="utf-8")
    gpu = gpu.replace("name: l40s", "name: my-gpu").replace("aliases: [l40s-48gb, nvidia-l40s]", "aliases: [mg]")
    _written(folder / "my-gpu.yaml", gpu)
    engine = (_BUILT_IN / "engines" / "vllm.yaml").read_text(encoding="utf-8").replace("name: vllm", "name: brisk")
    engine = engine.replace(
        "stands_in_for: [lmdeploy, aphrodite, dynamo-vllm, vllm-disagg, llm-d]", "stands_in_for: [brisk-llm]"
    )
    _written(folder / "engines" / "brisk.yaml", engine)
    fits = yaml.safe_load((_BUILT_IN / "calibration" / "engines" / "vllm.yaml").read_text(encoding="utf-8"))
    fits["overheads"]["step_s"] = _STEP_S
    _written(folder / "calibration" / "engines" / "brisk.yaml", yaml.safe_dump(fits))
    model = (profile_root("model_profiles") / "llama-3.1-8b.yaml").read_text(encoding="utf-8")
    _written(folder / "models" / "mine-8b.yaml", model.replace("name: llama-3.1-8b", "name: mine-8b"))
    offer = '{hardware: mg, kind: on_demand, provider: Me, per_hour: 2.0, date: "2026-11-21", source: "mine"}'
    _written(folder / "prices" / "mine.yaml", f"name: mine\nextends: default\noffers:\n  - {offer}\n")
    whole = (_BUILT_IN / "prices" / "default.yaml").read_text(encoding="utf-8")
    whole = whole.replace("name: default", "name: base").replace("offers:\n", f"offers:\n  - {offer}\n", 1)
    _written(folder / "prices" / "base.yaml", whole)
    _written(folder / "prices" / "mine-again.yaml", "name: mine-again\nextends: base\npue: 1.2\noffers: []\n")
    _written(folder / "ownership" / "default.yaml", 'extends: default\nname: default\ndate: "2026-11-21"\n')
    return str(folder)


@pytest.mark.parametrize(("load", "given", "name"), _LOADED)
def test_a_folder_named_in_a_call_is_the_one_named_by_the_variable(
    load: Callable[..., Any], given: str, name: str, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = load(given, profiles=own)
    assert found.name == name
    monkeypatch.setenv(PROFILES_VARIABLE, own)
    assert load(given) == found


@pytest.mark.parametrize("words", _ASKED)
def test_every_command_finds_what_its_folder_holds(words: str, own: str) -> None:
    printed = run([*words.split(), "--profiles", own])
    assert printed.code == 0, printed.err
    assert "engine=" in words or "my-gpu" in printed.out
    assert "engine" not in words or "brisk" in printed.out
    refused = run(words.split())
    assert refused.code == 4, "without the folder nothing knows these names"


def test_lines_and_the_library_find_them_too(own: str) -> None:
    line = json.dumps({**_LINE, "isl_tokens": 8, "osl_tokens": 2})
    printed = run(["roofcast", "simulate", "-", "--profiles", own], stdin=f"{line}\n")
    assert json.loads(printed.out)["provenance"], printed.out
    asked = {"model": "mine-8b", "hardware": "mg", "engine": "brisk-llm"}
    found = simulator.simulate({**asked, "rate_per_s": 1, "duration_s": 5}, profiles=own)
    assert found.result.deployment.engine.name == "brisk"
    plan = simulator.plan({**asked, "rps": 5, "tp": 1, "verify": False, "profiles": own})
    assert plan.to_dict()["plan"]["hardware"] == "my-gpu"
    with pytest.raises(ProfileError, match="unknown engine 'brisk-llm'"):
        simulator.step(model="llama-3.1-8b", engine="brisk-llm")


def test_an_engine_of_the_folder_takes_its_fits_from_the_folder(own: str) -> None:
    assert load_engine("brisk", profiles=own).overheads.step_s == _STEP_S != load_engine("vllm").overheads.step_s


def test_one_question_is_answered_from_the_files_as_they_were(tmp_path: Path) -> None:
    """What was looked up within stays, a question within it too; whoever asks afterwards reads what stands there."""
    text = (_BUILT_IN / "l40s.yaml").read_text(encoding="utf-8").replace("name: l40s", "name: mine")
    text = text.replace("aliases: [l40s-48gb, nvidia-l40s]", "aliases: []")
    _written(tmp_path / "mine.yaml", text)

    def memory_bytes() -> float:
        return load_hardware("mine", profiles=tmp_path).memory_bytes

    with profiles_at_once():
        before = memory_bytes()
        _written(tmp_path / "mine.yaml", text.replace("memory_bytes: 48.0e+9", "memory_bytes: 49.0e+9"))
        os.utime(tmp_path / "mine.yaml", ns=(1, 1))
        with profiles_at_once():
            assert memory_bytes() == before
        assert memory_bytes() == before
    assert memory_bytes() != before


def test_an_accelerator_of_a_maker_that_is_not_listed_borrows_kernels(tmp_path: Path) -> None:
    """A word that nobody knows is refused, as it may be a slip; ``other`` is answered, and known as what it is."""
    gpu = (_BUILT_IN / "l40s.yaml").read_text(encoding="utf-8").replace("name: l40s", "name: new-chip")
    gpu = gpu.replace("aliases: [l40s-48gb, nvidia-l40s]", "aliases: []").replace(
        "architecture: ada", "architecture: x1"
    )
    asked = {"model": "llama-3.1-8b", "hardware": "new-chip", "profiles": str(tmp_path)}
    _written(tmp_path / "new-chip.yaml", gpu.replace("vendor: nvidia", "vendor: newcomer"))
    with pytest.raises(ProfileError, match="newcomer.*other"):
        simulator.step(**asked)  # type: ignore[arg-type]
    _written(tmp_path / "new-chip.yaml", gpu.replace("vendor: nvidia", "vendor: other"))
    found, known = simulator.step(**asked), simulator.step(model="llama-3.1-8b", hardware="l40s")  # type: ignore[arg-type]
    assert found["provenance"] == "extrapolated"
    widths = [ends[1] / ends[0] for ends in (item["interval"]["step_s"] for item in (found, known))]
    assert widths[0] > widths[1]
