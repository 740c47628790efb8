"""Files from a browser: read strictly, named safely, kept where they belong."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from simulator.errors import ProfileError, RoofcastError
from simulator.specs.hardware.accelerator import list_hardware, load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.profiles import profile_root
from simulator.specs.uploads import (
    LARGEST_UPLOAD_BYTES,
    hardware_from_upload,
    keep_hardware_upload,
    keep_model_upload,
    model_from_upload,
    upload_name,
)

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "rms_norm_eps": 1e-05,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
H100 = (profile_root("hardware_profiles") / "h100-sxm-80gb.yaml").read_bytes()


@pytest.mark.parametrize(
    ("filename", "name"),
    [
        ("config.json", "config"),
        ("../../etc/passwd", "passwd"),
        ("C:\\models\\My Model.JSON", "my-model"),
        ("a/b/../x;rm -rf.yaml", "x-rm--rf"),
        ("....", "uploaded"),
        ("", "uploaded"),
    ],
)
def test_a_name_never_is_a_path(filename: str, name: str) -> None:
    assert upload_name(filename) == name


def test_a_model_arrives_as_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tiny" / "config.json"
    file.parent.mkdir()
    file.write_text(json.dumps(CONFIG))
    uploaded = model_from_upload(json.dumps(CONFIG).encode(), filename="tiny.json")
    assert uploaded == load_model(file).model_copy(update={"name": "tiny"})


def test_a_kept_model_is_found_by_its_name(tmp_path: Path) -> None:
    data = json.dumps(CONFIG).encode()
    name = keep_model_upload(data, filename="tiny.json", folder=tmp_path)
    assert load_model(name, profiles=tmp_path).layers == model_from_upload(data, filename="tiny.json").layers
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.yaml")] == ["models/tiny.yaml"]


def test_kept_hardware_is_found_by_its_name(tmp_path: Path) -> None:
    data = H100.replace(b"name: h100-sxm-80gb", b"name: my-card", 1)
    name = keep_hardware_upload(data, filename="whatever.yaml", folder=tmp_path)
    assert name == "my-card"
    assert load_hardware(name, profiles=tmp_path).memory_bytes == load_hardware("h100").memory_bytes


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "line 1: not valid JSON"),
        (b"[1, 2]", "found a list"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"model_type": "warp-drive"}', "warp-drive"),
        (b"[" * 100_000, "JSON"),
        (b" " * (LARGEST_UPLOAD_BYTES + 1), "allowed"),
    ],
)
def test_a_bad_model_is_refused_in_one_line(data: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(RoofcastError, match=said) as refusal:
        keep_model_upload(data, filename="bad.json", folder=tmp_path)
    assert "\n" not in str(refusal.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"a: [", "not valid YAML"), (b"- 1", "found a list"), (b"name: x\n", "required"), (b"a: 1\na: 2\n", "twice")],
)
def test_bad_hardware_is_refused_in_one_line(data: bytes, said: str) -> None:
    with pytest.raises(RoofcastError, match=said) as refusal:
        hardware_from_upload(data, filename="bad.yaml")
    assert "\n" not in str(refusal.value)


def test_a_profile_name_that_is_a_path_is_refused(tmp_path: Path) -> None:
    data = H100.replace(b"name: h100-sxm-80gb", b"name: ../evil", 1)
    with pytest.raises(ProfileError, match="not a profile name"):
        keep_hardware_upload(data, filename="x.yaml", folder=tmp_path / "inside")
    assert not list(tmp_path.iterdir())


def _bomb(link: str) -> str:
    """Nine aliases to nine aliases, nine times over: a few hundred bytes that stand for some hundred million values."""
    lines = ["a0: &a0 {k: 1}"]
    for level in range(1, 10):
        aliases = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(f"a{level}: &a{level} " + link.format(aliases))
    return "\n".join(lines)


@pytest.mark.parametrize(("text", "said"), [
    (_bomb("[{}]"), "line 1: an anchor or alias \\(a0\\)"),
    (_bomb("{{<<: [{}]}}"), "anchor or alias"),
    ("name: &a [*a]", "anchor or alias"),
    ("[" * 100_000, "nested deeper than 32 levels"),
    ("a: " + "{a: " * 3000, "nested deeper than 32 levels"),
    ("name: 1" + ":59" * 100_000, "more than 2000 characters"),
    ("name: " + "9" * 100_000, "more than 2000 characters"),
    ("name: !!python/object/apply:os.system ['echo']", "could not determine a constructor"),
])  # fmt: skip
def test_a_hostile_yaml_is_refused_at_once(text: str, said: str) -> None:
    started = time.perf_counter()
    with pytest.raises(ProfileError, match=said):
        hardware_from_upload(text.encode(), filename="odd.yaml")
    assert time.perf_counter() - started < 2.0


def test_built_in_accelerators_stay_within_the_bounds_of_an_upload() -> None:
    for name in list_hardware():
        data = (profile_root("hardware_profiles") / f"{name}.yaml").read_bytes()
        assert hardware_from_upload(data, filename=f"{name}.yaml").name == name
