"""Uploads: kept for the session, answered afresh when they change, refused in one line."""

from __future__ import annotations

import io
import json
from pathlib import Path
from zipfile import ZipFile

import pytest
from streamlit.testing.v1 import AppTest

from app.fields.uploaded import LARGEST_UPLOADS
from app.parts.display import COMMAND_LINE
from simulator.specs.model.loading import load_model
from simulator.specs.money.prices import load_prices
from simulator.specs.profiles import profile_root
from tests.app.pages import ROOT, headline, opened, tables
from tests.app.tiny_model import TINY_CONFIG
from tests.cli.test_calibrate import measured_csv
from tests.traffic.test_demand_import import METRICS

HEADINGS = "accelerator,provider,term,price,currency,unit,date"
QUOTES = f"{HEADINGS}\nh100,Acme,on_demand,1.00,USD,accelerator-hour,2026-11-02\n"
H100 = (profile_root("hardware_profiles") / "h100-sxm-80gb.yaml").read_text("utf-8")


def _upload(page: AppTest, name: str, data: str) -> AppTest:
    kind = "application/json" if name.endswith(".json") else "application/yaml"
    return page.file_uploader[0].set_value((name, data.encode(), kind)).run()


def _browsed(page: AppTest, view: str) -> AppTest:
    return page.segmented_control(key="browse").set_value(view).run()


def _own(page: AppTest) -> AppTest:
    return _browsed(page, "Your files")


def _shared_files(page: AppTest) -> str:
    """What a link calls the uploads of this session."""
    return str(page.session_state["_profiles_folder"].shared_id)


def _frame(page: AppTest) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in tables(page)[0].to_numpy().tolist()}


def _shown(page: AppTest) -> dict[str, str]:
    table = tables(page)[0]
    return dict(zip(table["quantity"], table["value"], strict=True))


def test_what_was_understood_of_a_file_is_shown_at_once() -> None:
    page = _upload(opened("profiles", {"browse": "Models"}), "quotes.csv", QUOTES)
    assert page.segmented_control(key="browse").value == "Your files"
    assert page.selectbox(key="mine").value == "quotes (prices)"


def test_an_uploaded_model_can_be_chosen_and_is_read_again_when_it_changes() -> None:
    page = opened("profiles", {"browse": "Models"})
    _upload(page, "tiny.json", json.dumps(TINY_CONFIG))
    assert page.success[0].value.startswith("tiny can now be chosen")
    _browsed(page, "Models").selectbox(key="model").set_value("tiny").run()
    assert _shown(page)["layers"] == "4"
    # The same name with another content: nothing remembered may answer for it.
    _upload(page, "tiny.json", json.dumps({**TINY_CONFIG, "num_hidden_layers": 8}))
    assert _shown(_browsed(page, "Models"))["layers"] == "8"
    assert not page.error


def test_configurations_of_two_models_stand_beside_each_other_and_travel_with_a_link() -> None:
    page = opened("profiles")
    for layers in (4, 8, 4):
        _upload(page, "config.json", json.dumps({**TINY_CONFIG, "num_hidden_layers": layers}))
        assert page.success, [item.value for item in page.error]
    assert page.selectbox(key="mine").options == ["config (model)", "config-2 (model)"], (
        "the same one is not kept twice"
    )
    files = _shared_files(page)
    for name, layers in (("config", "4"), ("config-2", "8")):
        other = opened("profiles", {"files": files, "browse": "Models", "model": name})
        assert _shown(other)["layers"] == layers


def test_a_file_is_renamed_and_removed() -> None:
    page = _upload(opened("profiles"), "config.json", json.dumps(TINY_CONFIG))
    page.text_input(key="new_name").set_value("mine/8b").run()
    page.button(key="rename").click().run()
    assert "letters, digits, dots and hyphens" in page.error[0].value
    page.text_input(key="new_name").set_value("mine-8b").run()
    page.button(key="rename").click().run()
    assert not page.error
    assert page.selectbox(key="mine").value == "mine-8b (model)"
    asked = opened("what_if", {"files": _shared_files(page), "model": "mine-8b"})
    assert "mine-8b" in headline(asked)
    _upload(page, "my-card.yaml", H100.replace("name: h100-sxm-80gb", "name: my-card"))
    page.text_input(key="new_name").set_value("my-other-card").run()
    page.button(key="rename").click().run()
    assert page.selectbox(key="mine").value == "my-other-card (accelerator)"
    assert _frame(page), "it is read by its new name"
    page.button(key="remove").click().run()
    assert page.selectbox(key="mine").options == ["mine-8b (model)"]
    page.button(key="remove").click().run()
    assert not page.exception
    assert "Your files" not in page.segmented_control(key="browse").options
    # The link from before still has what was removed here.
    assert "mine-8b" in headline(
        opened("what_if", {"files": asked.session_state["_profiles_folder"].shared_id, "model": "mine-8b"})
    )


@pytest.mark.parametrize("name", ["70", "null", "2026-11-26"])
def test_a_file_may_be_called_what_yaml_reads_as_something_else(name: str) -> None:
    page = _upload(opened("profiles"), "config.json", json.dumps(TINY_CONFIG))
    page.text_input(key="new_name").set_value(name).run()
    page.button(key="rename").click().run()
    assert not page.exception
    assert not page.error
    assert page.selectbox(key="mine").value == f"{name} (model)"


def test_a_name_of_two_kinds_is_renamed_for_one() -> None:
    page = _upload(opened("profiles"), "mine.yaml", H100.replace("name: h100-sxm-80gb", "name: mine"))
    page.session_state["_kept"] = {"model": "mine", "gpu": "mine"}
    page.text_input(key="new_name").set_value("my-card").run()
    page.button(key="rename").click().run()
    assert page.session_state["_kept"]["gpu"] == "my-card"
    assert page.session_state["_kept"]["model"] == "mine"


def test_a_corrected_file_says_that_it_replaces_the_one_before() -> None:
    page = _upload(opened("profiles"), "my-card.yaml", H100.replace("name: h100-sxm-80gb", "name: my-card"))
    assert "replaces" not in page.success[0].value
    _upload(page, "my-card.yaml", H100.replace("name: h100-sxm-80gb", "name: my-card").replace("3.35e+12", "3.30e+12"))
    assert "replaces your earlier one" in page.success[0].value


def test_an_uploaded_accelerator_can_take_the_place_of_a_built_in_one() -> None:
    page = opened("profiles")
    built_in = _shown(page)["memory bandwidth"]
    _upload(page, "mine.yaml", H100.replace("memory_bytes_per_s: 3.35e+12", "memory_bytes_per_s: 1.00e+12"))
    assert "in place of the built-in one" in page.success[0].value
    assert _shown(_browsed(page, "Accelerators"))["memory bandwidth"] != built_in
    # Looked at as a file, it stands beside the one that it replaces.
    assert _frame(_own(page))["memory bandwidth"] == ["1 TB/s", built_in]
    # Another session still has the built-in one.
    assert _shown(opened("profiles"))["memory bandwidth"] == built_in


@pytest.mark.parametrize(("name", "data", "said"), [
    ("config.json", "{", "not valid JSON"),
    ("config.json", "[]", "mapping of fields"),
    ("config.json", json.dumps({**TINY_CONFIG, "num_hidden_layers": 10**9}), "num_hidden_layers: is 1000000000"),
    ("config.json", json.dumps({**TINY_CONFIG, "warp_speed": 9}), "warp_speed"),
    ("odd.yaml", "name: x\nwarp_speed: 9\n", "in odd.yaml"),
    ("odd.yaml", "a: &a [*a]", "anchor or alias"),
    ("bad.csv", QUOTES.replace("1.00", "nil"), "row 2, price"),
    ("odd.csv", "a,b\n1,2\n", "odd.csv"),
    ("list.yaml", "name: list\noffers: 3\n", "list.yaml"),
    ("work.yaml", "rate_per_s: 3\ntrace: /etc/passwd\n", "trace"),
    ("metrics.txt", "# HELP vllm:num_requests_running x\n", "FILE: metrics.txt holds none"),
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
    assert "one-more" not in _browsed(page, "Models").selectbox(key="model").options


def test_quotes_are_what_every_page_counts_with() -> None:
    page = _own(_upload(opened("profiles"), "quotes.csv", QUOTES))
    assert not page.exception
    assert _frame(page)["h100-sxm-80gb"][2] == "$1.00"
    files = {"files": _shared_files(page), "prices": "quotes"}
    listed, quoted = (headline(opened("compare", query)) for query in ({}, files))
    assert listed != quoted
    plan = opened("plan", {"gpus": "h100-sxm-80gb", "rps": "10", "model": "llama-3.1-8b", **files})
    assert plan.selectbox(key="prices").value == "quotes"
    assert any("prices of quotes" in item.value for item in plan.markdown)
    assert not plan.warning, "a link that says more than its page asks"


def test_a_trace_becomes_a_demand_to_ask_with() -> None:
    rows = [f"2026-11-02 00:{minute:02}:{second:02}.0000000,1000,100" for minute in range(30) for second in range(60)]
    trace = "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows])
    page = _own(_upload(opened("profiles"), "mine.csv", trace))
    assert not page.exception
    found = _frame(page)
    assert found["prompt tokens"][0] == "1,000"
    assert float(found["requests per second"][0]) == pytest.approx(1, rel=0.01)
    assert "rate_per_s:" in page.code[0].value


def test_a_long_trace_is_understood_and_not_kept() -> None:
    rows = "".join(f"2026-11-02 00:{row // 60 % 60:02}:{row % 60:02}.{row:07},1000,100\n" for row in range(40_000))
    page = _upload(opened("profiles"), "long.csv", f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    assert page.success, [item.value for item in page.error]
    assert page.session_state["_profiles_folder"].folders[-1].size_bytes() < 10_000


def test_measured_kernels_are_fitted_and_counted_with(tmp_path: Path) -> None:
    measured = measured_csv(tmp_path / "mine.csv").read_text("utf-8")
    page = _own(_upload(opened("profiles", {"gpu": "h100-sxm-80gb"}), "mine.csv", measured))
    page.toggle(key="fit").set_value(True).run()
    assert "gemm" in page.code[0].value
    page.button(key="keep_fit").click().run()
    assert not page.exception
    assert any("calibration" in path.parts for path in page.session_state["_profiles_folder"].folders[-1].files())


def test_a_benchmark_stands_beside_its_prediction_and_fits_the_engine() -> None:
    bench = (ROOT / "examples/data/vllm_bench.json").read_text("utf-8")
    page = _own(_upload(opened("profiles", {"model": "llama-3.1-8b"}), "bench.json", bench))
    measured = tables(page)[1]
    assert {"TTFT", "TPOT", "output tokens/s"} <= set(measured["metric"])
    page.toggle(key="fit").set_value(True).run()
    assert not page.exception
    assert not page.error
    page.button(key="keep_fit").click().run()
    assert not page.exception
    assert list(tables(page)[1]["error"]) != list(measured["error"])


def test_a_model_is_known_by_its_hub_id_and_never_by_a_path() -> None:
    page = opened("profiles")
    page.text_input(key="hub").set_value("RedHatAI/Qwen3-32B-NVFP4").run()
    assert "qwen3-32b" in page.success[0].value
    page.text_input(key="hub").set_value("/etc/hostname").run()
    assert "`/etc/hostname` is no model known here" in page.error[0].value
    page.text_input(key="hub").set_value("meta-llama/Llama-3.1-9B").run()
    assert "Did you mean llama-3.1-8b" in page.error[0].value
    assert "Upload its config.json" in page.error[0].value


def test_what_is_one_s_own_stands_beside_what_is_most_like_it() -> None:
    config = {**TINY_CONFIG, "model_type": "qwen3", "hidden_size": 5120, "num_hidden_layers": 64, "head_dim": 128}
    page = _upload(opened("profiles"), "config.json", json.dumps(config))
    assert page.selectbox(key="beside_model").value == "qwen3-32b"
    _upload(page, "my-card.yaml", H100.replace("name: h100-sxm-80gb", "name: my-card"))
    assert page.selectbox(key="beside_gpu").value == "h100-sxm-80gb"


def test_a_refused_record_names_the_box_that_it_is_about() -> None:
    page = _upload(opened("profiles"), "metrics.txt", METRICS)
    assert page.error[0].value.startswith("Time that /metrics cover: ")


def test_what_was_uploaded_comes_back_as_profiles_for_the_command_line(tmp_path: Path) -> None:
    page = _upload(opened("profiles"), "tiny.json", json.dumps(TINY_CONFIG))
    _upload(page, "quotes.csv", QUOTES)
    asked = opened("what_if", {"files": _shared_files(page), "model": "tiny"})
    asked.session_state[COMMAND_LINE] = True
    assert "--profiles my-files" in asked.run().code[0].value
    folder = page.session_state["_profiles_folder"].folders[-1]
    with ZipFile(io.BytesIO(folder.archive())) as file:
        file.extractall(tmp_path)
    assert load_model("tiny", profiles=tmp_path).num_hidden_layers == 4
    assert any(offer.provider == "Acme" for offer in load_prices("quotes", profiles=tmp_path).offers)
