"""Uploads: kept for the session, answered afresh when they change, refused in one line."""

from __future__ import annotations

import json

import pytest
from streamlit.testing.v1 import AppTest

from app.uploaded import LARGEST_UPLOADS
from simulator.specs.profiles import profile_root
from tests.app.pages import opened
from tests.app.tiny_model import TINY_CONFIG

H100 = (profile_root("hardware_profiles") / "h100-sxm-80gb.yaml").read_text("utf-8")


def _upload(page: AppTest, name: str, data: str) -> AppTest:
    kind = "application/json" if name.endswith(".json") else "application/yaml"
    return page.file_uploader[0].set_value((name, data.encode(), kind)).run()


def _shown(page: AppTest) -> dict[str, str]:
    table = page.dataframe[0].value
    return dict(zip(table["quantity"], table["value"], strict=True))


def test_an_uploaded_model_can_be_chosen_and_is_read_again_when_it_changes() -> None:
    page = opened("profiles", {"browse": "Models"})
    _upload(page, "tiny.json", json.dumps(TINY_CONFIG))
    assert page.success[0].value.startswith("tiny can now be chosen")
    page.selectbox(key="model").set_value("tiny").run()
    assert _shown(page)["layers"] == "4"
    # The same name with another content: nothing remembered may answer for it.
    _upload(page, "tiny.json", json.dumps({**TINY_CONFIG, "num_hidden_layers": 8}))
    assert _shown(page)["layers"] == "8"
    assert not page.error


def test_an_uploaded_accelerator_can_take_the_place_of_a_built_in_one() -> None:
    page = opened("profiles")
    built_in = _shown(page)["memory bandwidth"]
    _upload(page, "mine.yaml", H100.replace("memory_bytes_per_s: 3.35e+12", "memory_bytes_per_s: 1.00e+12"))
    assert "in place of the built-in one" in page.success[0].value
    assert _shown(page)["memory bandwidth"] != built_in
    # Another session still has the built-in one.
    assert _shown(opened("profiles"))["memory bandwidth"] == built_in


@pytest.mark.parametrize(("name", "data", "said"), [
    ("config.json", "{", "not valid JSON"),
    ("config.json", "[]", "mapping of fields"),
    ("config.json", json.dumps({**TINY_CONFIG, "num_hidden_layers": 10**9}), "num_hidden_layers: is 1000000000"),
    ("config.json", json.dumps({**TINY_CONFIG, "warp_speed": 9}), "warp_speed"),
    ("odd.yaml", "name: x\nwarp_speed: 9\n", "in odd.yaml"),
    ("odd.yaml", "a: &a [*a]", "anchor or alias"),
    ("odd.yaml", H100.replace("3.35e+12", "-1"), "memory_bytes_per_s"),
    ("../../etc/cron.d/x.yaml", "", "mapping of fields"),
])  # fmt: skip
def test_a_bad_file_is_one_clear_line(name: str, data: str, said: str) -> None:
    page = _upload(opened("profiles"), name, data)
    assert not page.exception
    assert not page.success
    (message,) = [item.value for item in page.error]
    assert said in message
    assert "\n" not in message
    assert "Traceback" not in message


def test_a_session_has_room_for_so_many_files() -> None:
    page = opened("profiles", {"browse": "Models"})
    for number in range(LARGEST_UPLOADS):
        _upload(page, f"tiny-{number}.json", json.dumps(TINY_CONFIG))
        assert page.success
    _upload(page, "one-more.json", json.dumps(TINY_CONFIG))
    assert not page.success
    assert "reload the page" in page.warning[0].value
    assert "one-more" not in page.selectbox(key="model").options
