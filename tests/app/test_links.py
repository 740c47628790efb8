"""A link shows what its sender saw, or says what of it cannot be shown; undo and reset take changes back."""

from __future__ import annotations

import json
from urllib.parse import parse_qs

import pytest
from streamlit.testing.v1 import AppTest

from app.address import links
from app.address.links import SAID, VERSION, version
from app.fields.uploaded import FILES
from tests.app.pages import captions, headline, metrics, opened
from tests.app.tiny_model import TINY_CONFIG

SMALL = {"model": "llama-3.1-8b", "gpus": "h100-sxm-80gb", "rps": "50"}
QUICK: list[tuple[str, dict[str, str]]] = [
    ("what_if", {}),
    *(("what_if", {"preset": preset}) for preset in ("Long context", "Agents")),
    ("what_if", {"model": "qwen3-8b", "batch": "8", "weights": "fp8", "gpu": "l40s"}),
    ("what_if", {"model": "mistral-7b-v0.3", "batch": "8", "weights": "int8", "gpu": "a100-sxm-80gb"}),
    ("what_if", {"model": "gemma-2-9b", "batch": "8", "weights": "gptq-g128", "gpu": "mi300x"}),
    *(("what_if", {"weights": name, "gpu": "rtx-4090"}) for name in ("awq", "nf4")),
    ("what_if", {"model": "mixtral-8x7b", "tp": "4", "ep": "4"}),
    ("what_if", {"model": "llama-3.1-70b", "tp": "8", "pp": "2", "kv": "fp8", "engine": "sglang"}),
    ("what_if", {"speculation": "eagle", "k": "3", "acceptance": "0.8"}),
    ("what_if", {"speculation": "ngram"}),
    ("what_if", {"sparsity": "unstructured, stored compressed", "zeros_sparsity": "0.7"}),
    ("what_if", {"adapters": "lora", "rank": "8", "loras": "2", "separate": "true"}),
    ("what_if", {"seqs": "16", "step_tokens": "512", "batch": "64"}),
    ("what_if", {"exit": "0.5", "neurons": "0.6", "offload": "0.1", "attention": "standard"}),
    ("roofline", {}),
    ("roofline", {"batch": "7", "context": "999", "operator": "down_proj (prefill)"}),
    ("roofline", {"model": "deepseek-v3", "gpu": "b200-sxm", "tp": "8", "ep": "8"}),
    ("compare", {"columns": "2", "gpu_b": "l40s", "weights_b": "fp8"}),
    ("compare", {"columns": "4", "preset": "RAG"}),
    ("validation", {"source": "inferencex", "measured_on": "mi300x", "details": "Kernels"}),
    ("learn", {"topic": "attention"}),
    ("profiles", {"browse": "Models", "model": "mixtral-8x7b"}),
]
SLOW: list[tuple[str, dict[str, str]]] = [
    ("serving", {"rate": "3", "preset": "Code"}),
    ("serving", {"prompts": "300", "isl": "3000", "host_gb": "200", "nvme_gb": "900", "nvme_gb_per_s": "9"}),
    ("serving", {"model": "qwen2.5-vl-7b", "isl": "6500", "osl": "9", "images": "4", "encoders": "2", "rate": "2"}),
    (
        "serving",
        {
            **{"model": "mixtral-8x7b", "dp": "4", "ffn": "4", "ffn_gpu": "h200-sxm-141gb"},
            **{"prefill_tp": "2", "decode_replicas": "1"},
        },
    ),
    ("serving", {"rate": "12", "osl_cv": "0.2", "prefix": "0.5", "tpot": "0.02"}),
    ("plan", SMALL),
    ("plan", {**SMALL, "sure": "Robust", "load": "0.7", "spares": "2", "price": "on_demand"}),
    ("plan", {**SMALL, "formats": "fp8", "ttft": "0.4", "view": "Rejected"}),
    ("plan", {"rps": "20", "preset": "Agents", "view": "Assumptions", "growth": "0.1"}),
]


def _link(page: AppTest) -> dict[str, str]:
    """The parameters of the link that Share shows."""
    page.session_state["share"] = True
    page.run()
    text = next(item.value for item in page.code if "?" in item.value and VERSION in item.value)
    return {key: values if len(values) > 1 else values[0] for key, values in parse_qs(text.partition("?")[2]).items()}


def _banner(page: AppTest) -> list[str]:
    return [item.value for item in page.warning if item.icon == ":material/link_off:"]


def _seen(page: AppTest) -> dict[str, object]:
    """What somebody sees who opens a page, and the link that they would pass on."""
    assert not page.exception
    assert not _banner(page)
    link = {key: value for key, value in _link(page).items() if key != SAID}
    errors = [item.value for item in page.error]
    return {"headline": headline(page), "metrics": metrics(page), "errors": errors, "link": link}


@pytest.mark.parametrize(("name", "query"), QUICK)
def test_a_link_shows_what_its_sender_saw(name: str, query: dict[str, str]) -> None:
    sent = opened(name, query)
    assert _seen(opened(name, _link(sent))) == _seen(sent)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "query"), SLOW)
def test_a_link_to_a_plan_or_a_load_shows_what_its_sender_saw(name: str, query: dict[str, str]) -> None:
    sent = opened(name, query)
    assert _seen(opened(name, _link(sent))) == _seen(sent)


@pytest.mark.parametrize(("name", "query", "said"), [
    ("what_if", {"model": "nope"}, ("`model=nope` is not possible here", "Answered with `llama-3.1-8b`")),
    ("what_if", {"batch": "0"}, ("`batch=0`", "1 to 512")),
    ("what_if", {"batch": "100000"}, ("`batch=100000`", "1 to 512")),
    ("what_if", {"isl": "12x"}, ("`isl=12x`", "1 to 1,048,576")),
    ("what_if", {"isl": "1" + "0" * 400}, ("`isl=1000", "1 to 1,048,576")),
    ("roofline", {"context": "9" * 400}, ("`context=999", "1 to 1,048,576")),
    ("what_if", {"tp": "3"}, ("`tp=3`", "1, 2, 4, 8")),
    ("what_if", {"model": "llama-3.1-8"}, ("for Model. Did you mean llama-3.1-8b",)),
    ("what_if", {"weights": "fp7"}, ("`weights=fp7`", "Answered with `native`")),
    ("what_if", {"warp": "9"}, ("`warp=9` asks nothing of this page",)),
    ("what_if", {"rps": "abc"}, ("`rps=abc` is not possible",)),
    ("what_if", {"rps": "0"}, ("`rps=0` is not possible",)),
    ("what_if", {"model": "<script>alert(1)</script>"}, ("`model=<script>alert(1)</script>`",)),
    ("plan", {**SMALL, "rps": "0"}, ("`rps=0`", "0.01 to 100,000")),
    ("plan", {**SMALL, "gpus": "warp9"}, ("`gpus=warp9`",)),
    ("roofline", {"gpu": "gone"}, ("`gpu=gone`",)),
    ("what_if", {"baseline": "{"}, ("`baseline` cannot be read",)),
    ("what_if", {VERSION: "0.0.1-abc"}, ("made with roofcast `0.0.1-abc`", "numbers may differ")),
    ("what_if", {SAID: "00000000"}, ("The answer has changed",)),
    ("what_if", {FILES: "0123456789abcdef"}, ("no longer on this server",)),
])  # fmt: skip
def test_what_a_link_cannot_show_is_said(name: str, query: dict[str, str], said: tuple[str, ...]) -> None:
    page = opened(name, query)
    assert not page.exception
    (text,) = _banner(page)
    for part in said:
        assert part in text


@pytest.mark.parametrize(("isl", "context"), [("1155", 1155), ("999999999", 1_048_576)])
def test_a_step_attends_to_the_prompts_that_an_address_asks_about(isl: str, context: int) -> None:
    page = opened("roofline", {"isl": isl})
    assert not page.exception
    assert page.number_input(key="context").value == context


def test_a_banner_goes_when_its_input_is_changed() -> None:
    page = opened("what_if", {"batch": "0"})
    assert _banner(page)
    page.number_input(key="osl").set_value(99).run()
    assert _banner(page), "something else was changed"
    page.slider(key="batch").set_value(9).run()
    assert not _banner(page)


def test_whether_the_answer_has_changed_is_said_of_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet that is simulated may be sized again after the page has shown it."""
    sent = _link(opened("what_if"))
    answer = links.said
    with monkeypatch.context() as patch:
        patch.setattr(links, "said", lambda _: answer("of another fleet"))
        page = opened("what_if", sent)
        assert len(_banner(page)) == 1
    assert not _banner(page.run())
    assert not _banner(page.slider(key="batch").set_value(9).run()), "another question has another answer"


@pytest.mark.parametrize(("name", "key", "asked", "answered"), [
    ("what_if", "batch", "0", 1),
    ("what_if", "batch", "100000", 512),
    ("what_if", "isl", "12.4", 12),
    ("what_if", "isl", "-inf", 1),
    ("what_if", "isl", "1" + "0" * 400, 1_048_576),
    ("what_if", "tp", "3", 2),
    ("what_if", "tp", "inf", 64),
    ("what_if", "seqs", "1e9", 4096),
    ("what_if", "cap", "0", 1.0),
    ("what_if", "offload", "7", 1.0),
    ("serving", "rate", "-3", 0.001),
    ("plan", "rps", "0", 0.01),
    ("plan", "rps", "1e6", 100_000.0),
    ("plan", "load", "0.99", 0.95),
])  # fmt: skip
def test_a_number_out_of_range_is_answered_with_the_nearest_that_works(
    name: str, key: str, asked: str, answered: float
) -> None:
    page = opened(name, {**(SMALL if name == "plan" else {}), key: asked})
    assert not page.exception
    assert page.session_state[key] == answered
    (text,) = _banner(page)
    assert f"Answered with `{answered:,.10g}`, the nearest." in text
    # It holds: neither the next run nor a link made of this page asks for anything else.
    page.run()
    assert page.session_state[key] == answered
    assert float(_link(page)[key]) == answered
    if name != "what_if":  # whose model has an end of its own
        assert not page.error


@pytest.mark.parametrize(("name", "query", "others"), [
    ("what_if", {"batch": "0"}, {"batch": 32}),
    ("what_if", {"tp": "3"}, {"tp": 4}),
    ("what_if", {"model": "llama-3.1-7"}, {"model": "llama-3.1-70b"}),
    ("what_if", {"gpu": "mi300"}, {"gpu": "mi300x"}),
    ("what_if", {"hardware": "l40s"}, {"gpu": "l40s"}),
    ("what_if", {"isl_tokens": "4000"}, {"isl": 4000}),
    ("plan", {**SMALL, "gpus": "l40"}, {"gpus": ["l40s"]}),
])  # fmt: skip
def test_one_click_asks_for_what_was_likely_meant(name: str, query: dict[str, str], others: dict[str, object]) -> None:
    page = opened(name, query)
    ((key, value),) = others.items()
    assert page.session_state[key] != value, "it is offered, not taken"
    asked = next(iter(query)) if name != "plan" else "gpus"
    (button, *_) = [item for item in page.button if item.key.startswith(f"instead_{asked}_")]
    button.click().run()
    assert not page.exception
    assert page.session_state[key] == value
    assert not _banner(page)


def test_what_else_a_link_asks_for_stays_said_after_a_click() -> None:
    page = opened("what_if", {"batch": "0", "tp": "3"})
    assert len(_banner(page)) == 2
    (button, *_) = [item for item in page.button if item.key.startswith("instead_batch_")]
    button.click().run()
    (left,) = _banner(page)
    assert "`tp=3` is not possible" in left


@pytest.mark.parametrize(("name", "query", "answered"), [
    ("what_if", {"gpu": "h200"}, {"gpu": "h200-sxm-141gb"}),
    ("what_if", {"engine": "trt-llm"}, {"engine": "tensorrt-llm"}),
    ("what_if", {"model": "meta-llama/Llama-3.1-70B-Instruct"}, {"model": "llama-3.1-70b"}),
    ("plan", {**SMALL, "gpus": "h100"}, {"gpus": ["h100-sxm-80gb"]}),
    ("plan", {**SMALL, "owned": "h100"}, {"owned": "h100-sxm-80gb"}),
])  # fmt: skip
def test_a_profile_is_taken_by_every_name_that_it_has(
    name: str, query: dict[str, str], answered: dict[str, object]
) -> None:
    page = opened(name, query)
    assert not page.exception
    assert not _banner(page)
    assert {key: page.session_state[key] for key in answered} == answered


def test_a_page_without_a_box_for_it_hands_a_name_on_by_the_one_that_others_have() -> None:
    page = opened("plan", {**SMALL, "gpu": "h200"})
    assert not page.exception
    assert not _banner(page)


def test_a_profile_lists_the_models_that_it_stands_for() -> None:
    page = opened("profiles", {"browse": "Models", "model": "deepseek-v3"})
    assert any("deepseek-ai/DeepSeek-R1" in text for text in captions(page))


def test_a_model_that_another_stands_for_is_named_so() -> None:
    page = opened("what_if", {"model": "deepseek-r1", "gpu": "b200", "tp": "8"})
    assert page.session_state["model"] == "deepseek-v3"
    assert "`model=deepseek-r1` is known here as `deepseek-v3`: the same to compute." in captions(page)
    assert not _banner(page)
    page.selectbox(key="model").set_value("llama-3.1-8b").run()
    assert not [text for text in captions(page) if "known here as" in text]


def test_a_number_that_no_box_takes_is_not_offered() -> None:
    page = opened("what_if", {"isl_tokens": "999999999"})
    assert _banner(page)
    assert not [item for item in page.button if item.key.startswith("instead_")]


def test_a_link_of_this_version_is_taken_without_a_word() -> None:
    assert not _banner(opened("what_if", {VERSION: version()}))


def test_uploads_travel_with_a_link_and_survive_a_reload() -> None:
    page = opened("profiles", {"browse": "Models"})
    page.file_uploader[0].set_value(("tiny.json", json.dumps(TINY_CONFIG).encode(), "application/json")).run()
    assert page.success
    page.segmented_control(key="browse").set_value("Models").run()
    page.selectbox(key="model").set_value("tiny").run()
    sent = _link(page)
    assert FILES in sent
    other = opened("what_if", {"model": "tiny", FILES: sent[FILES]})
    assert not _banner(other)
    assert "tiny" in headline(other)
    assert _link(other)[FILES] == sent[FILES]


def test_undo_takes_back_one_change_at_a_time() -> None:
    page = opened("what_if", {"batch": "8"})
    first = metrics(page)
    page.slider(key="batch").set_value(64).run()
    page.selectbox(key="weights").set_value("fp8").run()
    page.button(key="undo").click().run()
    assert page.selectbox(key="weights").value == "native"
    assert page.slider(key="batch").value == 64
    page.button(key="undo").click().run()
    assert metrics(page) == first
    page.button(key="undo").click().run()
    assert metrics(page) == first


def test_reset_asks_what_the_page_asks_first() -> None:
    first = opened("what_if")
    page = opened("what_if", {"preset": "RAG", "model": "qwen3-8b", "batch": "7", "weights": "fp8", "seqs": "8"})
    page.button(key="reset").click().run()
    assert not page.exception
    assert metrics(page) == metrics(first)
    assert headline(page) == headline(first)
