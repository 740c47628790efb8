"""Checkpoints that share a shape keep their own names: in title, inputs, provenance, digest and launch commands."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from simulator import plan
from simulator.planner.capacity_plan import CapacityPlan
from simulator.reports.formats.markdown import report_markdown
from simulator.reports.report import build_report
from simulator.reports.studies import Studies, gather
from simulator.specs.model.loading import list_models, read_profile
from simulator.specs.profiles import profile_root
from tests.for_every import for_every

_ROOT = profile_root("model_profiles")
_ENCODERS = ("all", "bert", "modernbert", "nomic", "t5", "xlm")
_GENERATING = [name for name in list_models() if name.partition("-")[0] not in _ENCODERS]
SPELLINGS = [
    spelling for name in _GENERATING for spelling in read_profile(_ROOT / f"{name}.yaml").spellings if spelling != name
]
EVERY = 48
"""Share of the spellings that the quick run asks: each by itself takes a twentieth of a second."""
_LOADED = re.compile(r"(?:vllm serve|--model-path|trtllm-serve) '?([^\s']+)")


def planned(model: str) -> CapacityPlan:
    return plan(model=model, rate_per_s=2.0, hardware=["b300"], isl_tokens=64, osl_tokens=16).plan


def studies_of(model: str, *, complete: bool) -> Studies:
    return gather(planned(model), command=f"plan-capacity --model {model}", complete=complete)


def check_served(spelling: str) -> None:
    """The plan document and the launch commands name what was asked; no sibling's checkpoint is loaded."""
    found = planned(spelling)
    model = found.best.replica.deployment.model
    assert model.name == spelling
    assert found.best.replica.deployment.model.profile in _GENERATING
    inputs = {item.key: item for item in found.assumptions}
    assert inputs["model"].value == spelling
    studies = gather(found, command="", complete=False)
    wanted = spelling if "/" in spelling else model.checkpoint
    assert studies.model_id == wanted
    loaded = {name for file in studies.handoff.files for name in _LOADED.findall(file.text)}
    # A published checkpoint of it stands for it where the plan is of one.
    served = inputs["format"].value.id if "format" in inputs else wanted
    assert loaded == {served}


@pytest.mark.slow
@for_every(SPELLINGS[::EVERY])
def test_an_alias_is_served_under_its_own_name(spelling: str) -> None:
    check_served(spelling)


@pytest.mark.slow
@pytest.mark.parametrize("spelling", [name for place, name in enumerate(SPELLINGS) if place % EVERY])
def test_every_other_alias_is_served_under_its_own_name(spelling: str) -> None:
    check_served(spelling)


@pytest.mark.parametrize(
    ("spelling", "sibling"),
    [
        ("deepseek-ai/DeepSeek-R1", "DeepSeek-V3"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "Llama-3.1-70B-Instruct"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "meta-llama"),
    ],
)
def test_a_report_names_nothing_else(spelling: str, sibling: str) -> None:
    """A sibling of the same shape is named once, as where the configuration comes from."""
    studies = studies_of(spelling, complete=True)
    report = build_report(studies)
    assert report.title == f"Capacity plan: {spelling}"
    text = report_markdown(report)
    assert f"of {spelling}" in text
    measured = replace(report, sections=tuple(item for item in report.sections if item.key != "evidence"))
    assert sibling not in report_markdown(measured), "but for the runs that were measured"


def test_siblings_have_digests_of_their_own() -> None:
    first, second = (studies_of(f"deepseek-ai/DeepSeek-{name}", complete=False) for name in ("R1", "V3"))
    assert first.input_hash != second.input_hash
    assert first.plan.best.devices == second.plan.best.devices


def test_launch_files_of_ones_own_start_the_fleet(tmp_path: Path) -> None:
    own = tmp_path / "engines" / "launch" / "vllm.yaml"
    own.parent.mkdir(parents=True)
    text = (profile_root("hardware_profiles") / "engines" / "launch" / "vllm.yaml").read_text("utf-8")
    own.write_text(text.replace("command: vllm serve ${checkpoint}", "command: our-launcher ${checkpoint}"), "utf-8")
    asked = {"model": "llama-3.1-8b", "rate_per_s": 2.0, "hardware": ["h100"], "isl_tokens": 64, "osl_tokens": 16}
    started = []
    for profiles in (None, str(tmp_path)):
        found = plan({**asked, "profiles": profiles}).plan
        files = gather(found, command="", complete=False).handoff.files
        started.append(any("our-launcher" in file.text for file in files))
    assert started == [False, True]
