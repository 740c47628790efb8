"""``simulator.specs.question.scenario_file``: one scenario from a file or a pipe, with values over it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from simulator.errors import FileError, RoofcastError
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.scenario_file import read_scenario

SERVE: dict[str, Any] = {
    "kind": "serve",
    "model": "llama-3.1-8b",
    "hardware": "h100",
    "workload": {
        "arrival": "poisson",
        "stages": [{"rate_per_s": 4.0, "duration_s": 60.0}],
        "question_tokens": 100,
        "osl_tokens": 20,
    },
}


def write(path: Path, data: dict[str, Any] | str) -> str:
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return str(path)


def read(source: str, **changes: Any) -> ScenarioSpec:
    return read_scenario(source, changes=changes, command="serve")


def test_json_and_yaml_of_one_scenario_are_one(tmp_path: Path) -> None:
    as_json = read(write(tmp_path / "a.json", SERVE))
    text = (
        "kind: serve\nmodel: llama-3.1-8b\nhardware: h100\nworkload:\n  arrival: poisson\n"
        "  stages:\n  - {rate_per_s: 4.0, duration_s: 60.0}\n  question_tokens: 100\n  osl_tokens: 20\n"
    )
    as_yaml = read(write(tmp_path / "a.yaml", text))
    assert as_json == as_yaml
    assert as_json.id == "a"


def test_a_pipe_is_read_like_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(SERVE)))
    piped = read("-")
    assert piped.id == "stdin"
    assert piped.model_copy(update={"id": "a"}) == read(write(tmp_path / "a.json", SERVE))


def test_the_kind_may_be_left_out_where_there_is_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", {name: value for name, value in SERVE.items() if name != "kind"})
    assert read(path).kind == "serve"
    assert read_scenario(path, command="compare", kinds=("serve", "batch")).kind == "serve"
    loop = {"model": "llama-3.1-8b", "hardware": "h100", "concurrency": 4, "isl_tokens": 8, "osl_tokens": 8}
    path = write(tmp_path / "b.json", loop)
    assert read_scenario(path, command="compare", kinds=("closed_loop", "batch")).kind == "closed_loop"
    with pytest.raises(RoofcastError) as refused:
        read_scenario(path, command="compare", kinds=("serve", "batch"))
    assert refused.value.field == "kind"


@pytest.mark.parametrize(("kind", "hinted"), [("batch", True), ("nothing", False)])
def test_other_kinds_are_refused(tmp_path: Path, kind: str, hinted: bool) -> None:
    with pytest.raises(RoofcastError) as refused:
        read(write(tmp_path / "a.json", {**SERVE, "kind": kind}))
    assert refused.value.field == "kind"
    assert bool(refused.value.hint) is hinted


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"model": "qwen3-8b"}, "model", "qwen3-8b"),
        ({"hardware": "a100"}, "hardware", "a100"),
        ({"tp_size": 2}, "tp_size", 2),
        ({"replicas": 3}, "replicas", 3),
    ],
)
def test_values_replace_fields(tmp_path: Path, changes: dict[str, Any], field: str, value: object) -> None:
    changed = read(write(tmp_path / "a.json", SERVE), **changes)
    assert getattr(changed, field) == value
    plain = read(str(tmp_path / "a.json"))
    assert changed.model_copy(update={field: getattr(plain, field)}) == plain


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rate_per_s": 9.0}, (9.0, 60.0)),
        ({"duration_s": 5.0}, (4.0, 5.0)),
        ({"rate_per_s": 9.0, "duration_s": 5.0}, (9.0, 5.0)),
    ],
)
def test_rate_and_duration_are_those_of_the_only_stage(
    tmp_path: Path, changes: dict[str, Any], expected: tuple[float, float]
) -> None:
    workload = read(write(tmp_path / "a.json", SERVE), **changes).workload
    assert workload is not None
    ((stage),) = workload.stages
    assert (stage.rate_per_s, stage.duration_s) == expected


def test_one_value_cannot_choose_among_stages_and_both_replace_them(tmp_path: Path) -> None:
    stages = [{"rate_per_s": 1.0, "duration_s": 10.0}, {"rate_per_s": 2.0, "duration_s": 10.0}]
    path = write(tmp_path / "a.json", {**SERVE, "workload": {**SERVE["workload"], "stages": stages}})
    with pytest.raises(RoofcastError, match="2 stages"):
        read(path, rate_per_s=9.0)
    workload = read(path, rate_per_s=9.0, duration_s=5.0).workload
    assert workload is not None
    assert len(workload.stages) == 1


def test_a_seed_changes_the_draw_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", SERVE)
    workload = read(path, seed=9).workload
    assert workload is not None
    assert workload.seed == 9
    assert workload.stages == read(path).workload.stages  # type: ignore[union-attr]


def test_what_ifs_apply_one_after_another(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", SERVE)
    changed = read(path, what_if=("tp_size=2", "hardware=a100"))
    assert (changed.tp_size, changed.hardware) == (2, "a100")
    with pytest.raises(RoofcastError) as refused:
        read(path, what_if=("hardware=h100",))
    assert refused.value.code == "no_effect"
    with pytest.raises(RoofcastError) as refused:
        read(path, tp_size=4, what_if=("tp_size=2",))
    assert refused.value.code == "contradiction"


@pytest.mark.parametrize("text", ["{", '{"kind": }', "kind: [", "- a\n- b\n", "just words"])
def test_what_is_neither_json_nor_yaml_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        read(write(tmp_path / "a.json", text))
    assert refused.value.field == "SCENARIO"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        read(str(tmp_path / "none.json"))
    binary = tmp_path / "b.json"
    binary.write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(RoofcastError, match="UTF-8"):
        read(str(binary))


def test_unknown_fields_name_their_nearest(tmp_path: Path) -> None:
    with pytest.raises(RoofcastError) as refused:
        read(write(tmp_path / "a.json", {**SERVE, "modle": "x"}))
    assert "model" in str(refused.value)
