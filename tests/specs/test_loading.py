"""Loading: names, aliases, the user's directory, and refusals that say file, line, field and nearest match."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.errors import ExitCode, FileError, ProfileError, RoofcastError
from simulator.specs.base import read_json, read_yaml, validate
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import (
    AcceleratorSpec,
    default_server_for,
    list_hardware,
    load_hardware,
    load_server,
)
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.loading import load_model
from simulator.specs.money.prices import load_prices
from simulator.specs.profiles import find_profile, list_profiles, profile_root
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.workload import WorkloadSpec


@pytest.fixture(autouse=True)
def _no_profiles_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROOFCAST_PROFILES", raising=False)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _copy_of_l4(directory: Path, *, name: str, aliases: str = "[]", edit: tuple[str, str] = ("", "")) -> Path:
    text = (profile_root("hardware_profiles") / "l4.yaml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith(("name:", "aliases:"))]
    body = "\n".join([f"name: {name}", f"aliases: {aliases}", *lines])
    assert edit[0] in body
    return _write(directory / f"{name}.yaml", body.replace(*edit) if edit[0] else body)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("h100-sxm-80gb", "h100-sxm-80gb"),
        ("H100", "h100-sxm-80gb"),
        ("a100", "a100-sxm-80gb"),
        ("h200", "h200-sxm-141gb"),
        ("b200", "b200-sxm"),
        (" H100 SXM_80GB ", "h100-sxm-80gb"),
        ("4090", "rtx-4090"),
    ],
)
def test_an_accelerator_is_found_by_name_and_alias_in_any_case(given: str, name: str) -> None:
    assert load_hardware(given).name == name


def test_an_accelerator_is_found_by_path(tmp_path: Path) -> None:
    path = _copy_of_l4(tmp_path, name="mine")
    assert load_hardware(path).name == "mine"
    assert load_hardware(str(path)) == load_hardware(path)


def test_an_unknown_accelerator_is_a_profile_error_with_the_nearest_names() -> None:
    with pytest.raises(ProfileError) as caught:
        load_hardware("h100-smx-80gb")
    assert caught.value.exit_code == ExitCode.PROFILE == 4
    assert caught.value.code == "unknown_profile"
    assert "h100-sxm-80gb" in caught.value.hint
    assert "'h100-smx-80gb'" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("load", [load_server, load_prices])
def test_unknown_servers_and_price_lists_are_refused_too(load) -> None:
    with pytest.raises(ProfileError, match="unknown"):
        load("no-such-thing")


def test_a_missing_path_is_an_io_error(tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        load_hardware(tmp_path / "absent.yaml")
    assert caught.value.exit_code == ExitCode.IO
    assert "absent.yaml" in str(caught.value)


def test_a_user_directory_extends_and_overrides(tmp_path: Path) -> None:
    _copy_of_l4(tmp_path, name="l4", edit=("tdp_w: 72.0", "tdp_w: 60.0"))
    _copy_of_l4(tmp_path, name="my-card", aliases="[h100, Mine]")
    assert load_hardware("l4", profiles=tmp_path).tdp_w == 60.0
    assert load_hardware("l4").tdp_w == 72.0
    assert load_hardware("h100", profiles=tmp_path).name == "my-card", "a user's alias wins over a built-in one"
    assert load_hardware("mine", profiles=tmp_path).name == "my-card"
    assert load_hardware("h200", profiles=tmp_path).name == "h200-sxm-141gb"
    assert set(list_hardware(profiles=tmp_path)) == {*list_hardware(), "my-card"}


def test_the_environment_names_the_user_directory_and_an_argument_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _copy_of_l4(tmp_path / "a", name="card-a")
    _copy_of_l4(tmp_path / "b", name="card-b")
    monkeypatch.setenv("ROOFCAST_PROFILES", str(tmp_path / "a"))
    assert "card-a" in list_hardware()
    assert "card-a" not in list_hardware(profiles=tmp_path / "b")
    monkeypatch.setenv("ROOFCAST_PROFILES", str(tmp_path / "absent"))
    with pytest.raises(FileError, match="ROOFCAST_PROFILES"):
        list_hardware()


def test_user_servers_and_prices_are_found(tmp_path: Path) -> None:
    server = (profile_root("hardware_profiles") / "servers" / "pcie-8x-l4.yaml").read_text(encoding="utf-8")
    _write(tmp_path / "servers" / "my-box.yaml", server.replace("name: pcie-8x-l4", "name: my-box"))
    prices = (profile_root("hardware_profiles") / "prices" / "default.yaml").read_text(encoding="utf-8")
    _write(tmp_path / "prices" / "default.yaml", prices.replace("pue: 1.54", "pue: 1.2"))
    assert load_server("MY-BOX", profiles=tmp_path).accelerator == "l4"
    assert default_server_for("l4", profiles=tmp_path).name == "my-box"
    assert default_server_for("l4").name == "pcie-8x-l4"
    assert load_prices(profiles=tmp_path).pue == 1.2
    assert load_prices().pue == 1.54
    assert {"my-box", "dgx-h100"} <= set(list_profiles("servers", profiles=tmp_path))
    assert list_profiles("prices", profiles=tmp_path) == list_profiles("prices") == ("default",)


def test_a_user_accelerator_without_server_is_refused_with_a_way_out(tmp_path: Path) -> None:
    _copy_of_l4(tmp_path, name="lonely")
    with pytest.raises(ProfileError, match="accelerator: lonely"):
        default_server_for("lonely", profiles=tmp_path)


def test_a_profile_that_changes_on_disk_is_read_again(tmp_path: Path) -> None:
    path = _copy_of_l4(tmp_path, name="mine")
    before = load_hardware(path)
    assert load_hardware(path) is before, "unchanged files are served from memory"
    path.write_text(path.read_text(encoding="utf-8").replace("tdp_w: 72.0", "tdp_w: 75.0"), encoding="utf-8")
    os.utime(path, ns=(1, 1))
    assert (before.tdp_w, load_hardware(path).tdp_w) == (72.0, 75.0)


def test_a_profile_must_carry_the_name_of_its_file(tmp_path: Path) -> None:
    _copy_of_l4(tmp_path, name="mine").rename(tmp_path / "other.yaml")
    with pytest.raises(ProfileError, match="'other', found 'mine'"):
        load_hardware("other", profiles=tmp_path)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("name: a\ntdp_w: [1, 2\nidle_w: 3\n", 3, "expected"),
        ("name: a\ntdp_w: 1.0\ntdp_w: 2.0\n", 3, "'tdp_w' is written twice"),
        ("name: a\npeak:\n  bf16: 1.0\n  bf16: 2.0\n", 4, "'bf16' is written twice"),
        ("- name\n", 1, "found a list"),
        ("name: *nowhere\n", 1, "undefined alias"),
        ("name: !!python/object:os.system {}\n", 1, "could not determine a constructor"),
    ],
)
def test_malformed_yaml_names_file_line_and_reason(tmp_path: Path, text: str, line: int, reason: str) -> None:
    path = _write(tmp_path / "broken.yaml", text)
    with pytest.raises(ProfileError) as caught:
        read_yaml(path)
    message = str(caught.value)
    assert "broken.yaml" in message
    assert f"line {line}:" in message
    assert reason in message
    assert caught.value.exit_code == ExitCode.PROFILE
    assert "\n" not in message


def test_yaml_dates_stay_text_and_merges_are_no_duplicates(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.yaml", "base: &b {x: 1, y: 2}\nmerged: {<<: *b, y: 3}\ndate: 2026-11-21\n")
    assert read_yaml(path) == {"base": {"x": 1, "y": 2}, "merged": {"x": 1, "y": 3}, "date": "2026-11-21"}


def test_files_that_are_no_text_or_absent_are_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"name: \xff\xfe")
    with pytest.raises(ProfileError, match="not UTF-8"):
        read_yaml(binary)
    with pytest.raises(FileError):
        read_yaml(tmp_path)
    with pytest.raises(FileError):
        read_json(tmp_path / "absent.json")


def test_json_errors_name_file_line_and_reason(tmp_path: Path) -> None:
    good = _write(tmp_path / "good.json", json.dumps({"a": 1}))
    assert read_json(good) == {"a": 1}
    with pytest.raises(ProfileError, match=r"broken\.json, line 2: not valid JSON: "):
        read_json(_write(tmp_path / "broken.json", '{"a": 1,\n "b" 2}'))
    with pytest.raises(ProfileError, match="found a list"):
        read_json(_write(tmp_path / "list.json", "[1]"))


def _raw_l4() -> dict[str, object]:
    return read_yaml(profile_root("hardware_profiles") / "l4.yaml")


@pytest.mark.parametrize(
    ("change", "field", "parts"),
    [
        ({"tdp": 72.0}, "tdp", ["unknown field (value 72.0)", "did you mean tdp_w?"]),
        ({"tdp_w": -1.0}, "tdp_w", ["greater than 0, got -1.0"]),
        ({"vendor": "nvidai"}, "vendor", ["'nvidai' is not allowed", "nvidia, amd, intel", "did you mean nvidia?"]),
        ({"peak_flops_per_s": {"bf17": 1.0}}, "peak_flops_per_s.bf17", ["'bf17' is not allowed", "did you mean bf16"]),
        (
            {"host_link": {"kind": "pcie", "bytes_per_s": 1.0, "bytes_per_s_per_direction": 1.0}},
            "host_link.bytes_per_s",
            ["unknown field", "did you mean bytes_per_s_per_direction?"],
        ),
        ({"host_link": {"kind": "pcie"}}, "host_link.bytes_per_s_per_direction", ["required and missing"]),
        ({"memory_bytes": float("inf")}, "memory_bytes", ["finite", "got inf"]),
    ],
)
def test_invalid_fields_are_one_line_with_field_value_and_nearest(
    change: dict[str, object], field: str, parts: list[str]
) -> None:
    with pytest.raises(ProfileError) as caught:
        validate(AcceleratorSpec, {**_raw_l4(), **change}, where="l4.yaml", profile=True)
    message = str(caught.value)
    assert caught.value.field == field
    assert "l4.yaml" in message
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_a_field_that_is_missing_says_what_it_may_be() -> None:
    with pytest.raises(RoofcastError) as caught:
        validate(ScenarioSpec, {"id": "x", "model": "llama-3.1-8b", "hardware": "h100"}, where="line 1")
    assert (caught.value.field, caught.value.hint) == ("kind", "one of batch, serve, closed_loop, offline")


def test_several_errors_are_counted() -> None:
    with pytest.raises(RoofcastError, match=r"\(and 1 more: block_size_tokens\) in scenario 7"):
        validate(EngineSpec, {"max_num_seqs": 0, "block_size_tokens": 0}, where="scenario 7")


def test_input_outside_profiles_is_a_usage_error() -> None:
    with pytest.raises(RoofcastError) as caught:
        validate(WorkloadSpec, {"stages": [{"rate": 1.0, "rate_per_s": 1.0, "duration_s": 1.0}]}, where="scenario x")
    assert (caught.value.exit_code, caught.value.code) == (ExitCode.USAGE, "invalid_input")
    assert caught.value.field == "stages.0.rate"
    assert "did you mean rate_per_s?" in caught.value.hint


def test_suggestions_reach_through_tagged_unions() -> None:
    attention = {"kind": "attention", "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 1, "head_dims": 1}
    data = {"name": "m", "model_type": "m", "hidden_size": 1, "vocab_size": 1, "layer_order": [0]}
    with pytest.raises(RoofcastError) as caught:
        validate(ModelSpec, {**data, "layers": [{"mixer": attention}]}, where="m.yaml")
    assert "did you mean head_dim" in caught.value.hint


def test_find_profile_answers_none_for_strangers() -> None:
    assert find_profile("hardware", "nobody") is None
    assert find_profile("hardware", "aliases") is None, "the index is no accelerator"


def test_profiles_are_found_inside_an_installed_package(tmp_path: Path) -> None:
    """A wheel carries the profiles at simulator/_data; the checkout's folders are then out of reach."""
    package = tmp_path / "simulator"
    source = profile_root("hardware_profiles").parent / "simulator"
    shutil.copytree(source / "specs", package / "specs", ignore=shutil.ignore_patterns("__pycache__"))
    for module in ("errors.py", "records.py", "units.py"):
        shutil.copy(source / module, package / module)
    (package / "__init__.py").touch()
    shutil.copytree(profile_root("hardware_profiles"), package / "_data" / "hardware_profiles")
    program = (
        "from simulator.specs.hardware.accelerator import load_hardware, default_server_for; "
        "from simulator.specs.profiles import profile_root; "
        "print(profile_root('hardware_profiles'), load_hardware('h100').name, default_server_for('l4').name)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(package / "_data" / "hardware_profiles"), "h100-sxm-80gb", "pcie-8x-l4"]


def test_a_field_on_the_wrong_level_is_sent_to_where_it_belongs() -> None:
    scenario = {"id": "x", "kind": "batch", "model": "m", "hardware": "h100", "speculation": {"method": "eagle"}}
    with pytest.raises(RoofcastError) as caught:
        validate(ScenarioSpec, scenario, where="scenario 7")
    assert caught.value.hint == "did you mean techniques.speculation?"


def test_an_empty_yaml_file_is_said_to_be_empty(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="broken.yaml is empty; a mapping of fields is needed"):
        read_yaml(_write(tmp_path / "broken.yaml", ""))


def test_a_copied_engine_that_keeps_what_its_original_stands_for_is_refused(tmp_path: Path) -> None:
    original = (profile_root("hardware_profiles") / "engines" / "vllm.yaml").read_text(encoding="utf-8")
    (tmp_path / "engines").mkdir()
    copy = tmp_path / "engines" / "my-vllm.yaml"
    copy.write_text(original.replace("name: vllm", "name: my-vllm"), encoding="utf-8")
    with pytest.raises(ProfileError, match="'lmdeploy' is vllm too") as refused:
        find_profile("engines", "lmdeploy", profiles=tmp_path)
    assert refused.value.field == "stands_in_for"
    assert find_profile("engines", "my-vllm", profiles=tmp_path) == copy
    copy.rename(copy.with_name("vllm.yaml"))
    assert find_profile("engines", "lmdeploy", profiles=tmp_path) == copy.with_name("vllm.yaml")


def test_a_copy_with_other_layers_works_out_anew_what_follows_from_them() -> None:
    model = load_model("mixtral-8x7b")
    assert (model.has_experts, model.model_class, sum(model.layer_counts)) == (True, "MoE", 32)
    plain = tuple(layer.model_copy(update={"feed_forward": ()}) for layer in model.layers)
    copy = model.model_copy(update={"layers": plain, "layer_order": model.layer_order[:8]})
    assert (copy.has_experts, copy.model_class, sum(copy.layer_counts)) == (False, "dense", 8)
