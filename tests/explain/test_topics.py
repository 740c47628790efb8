"""Every topic says its formula, works its example with the library and stands beside figures that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from simulator.api.explanations import explain
from simulator.errors import RoofcastError
from simulator.explain.catalogue import TOPICS, citation, topic_named
from simulator.explain.topic import Topic, equation_of
from simulator.kernels.roofline import ridge_point
from simulator.published.attention_traffic import flash_attention_cost, standard_attention_cost
from simulator.published.catalogue import published_figures
from simulator.published.facts import FloatLayout, largest_value, load_facts
from simulator.reports.charts.plotly_figure import plotly_figure
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.precision import Dtype
from tests.for_every import for_every

KEYS = [topic.key for topic in TOPICS]


def facts_of(document: dict) -> dict[str, float]:  # type: ignore[type-arg]
    blocks = [block for section in document["sections"] for block in section["blocks"]]
    return {fact["key"]: fact["value"] for block in blocks if block["type"] == "facts" for fact in block["facts"]}


def table_of(document: dict, key: str) -> list[dict[str, object]]:  # type: ignore[type-arg]
    blocks = [block for section in document["sections"] for block in section["blocks"]]
    table = next(block for block in blocks if block["type"] == "table" and block["key"] == key)
    return [dict(zip(table["columns"], [cell["value"] for cell in row], strict=True)) for row in table["rows"]]


@for_every(TOPICS)
def test_a_topic_has_a_formula_an_example_a_source_and_a_chart(topic: Topic) -> None:
    answer = explain(topic.key)
    document = answer.to_dict()
    sections = {section["key"]: section["blocks"] for section in document["sections"]}
    assert sections["formula"]
    assert any(block["type"] == "table" and block["rows"] for block in sections["worked"])
    assert any(item.startswith("source: [") for item in sections["around"][-1]["items"])
    json.dumps(document, allow_nan=False)
    assert plotly_figure(answer.chart()).data
    assert topic.question in answer.to_text()


@pytest.mark.slow
@pytest.mark.parametrize("hardware", ["t4", "v100-sxm-32gb", "gaudi2", "apple-m4-max"])
def test_topics_work_on_units_without_bf16_or_int8(hardware: str) -> None:
    for topic in TOPICS:
        needs_chip = "known_chip" in topic.needs and not load_facts().on_chip_of(load_hardware(hardware))
        # Topics of encoders and of chips that are known say so.
        if not needs_chip and "encoding" not in topic.needs:
            assert explain(topic.key, model="opt-1.3b", hardware=hardware).to_text()
    speed = table_of(explain("weight-quantization", model="opt-1.3b", hardware=hardware).to_dict(), "speed")
    assert speed[0]["scheme"] in ("bf16", "fp16"), "others are compared with 16 bits"
    assert speed[0]["decodes faster by"] == 1


@for_every(TOPICS)
def test_names_of_published_figures_and_references_exist(topic: Topic) -> None:
    known = [figure.name for figure in published_figures()]
    for name in topic.published:
        assert any(figure.startswith(name) for figure in known), name
    for key in topic.references:
        assert citation(key)


def test_keys_and_titles_are_unique_and_every_module_holds_numbers_of_the_library_alone() -> None:
    assert len({*KEYS, *(topic.title for topic in TOPICS)}) == 2 * len(TOPICS)
    # A literal result would need digits behind the point: what is worked out has none in the code.
    for path in Path("simulator/explain").glob("*.py"):
        literals = re.findall(r"(?<![\w\"'.])\d+\.\d*[1-9]\d*", path.read_text("utf-8"))
        assert set(literals) <= {"0.1", "0.2", "0.4", "0.52", "0.5"}, path


def test_equations_are_read_from_their_functions() -> None:
    equation = equation_of(ridge_point)
    assert equation.formula == ("I = P / W",)
    assert [symbol for symbol, _, _ in equation.symbols] == ["hardware", "dtype"]
    assert equation.references == ("Williams2009",)


def test_the_worked_roofline_is_the_hardware_s_own() -> None:
    hardware = load_hardware("a100")
    document = explain("roofline", hardware="a100").to_dict()
    assert facts_of(document)["ridge_bf16"] == pytest.approx(ridge_point(hardware, dtype=Dtype.BF16))
    levels = table_of(document, "levels")
    ridges = [row["ridge bf16"] for row in levels]
    assert ridges == sorted(ridges, key=float), "the farther the level, the higher its ridge"  # type: ignore[arg-type]


def test_a_measured_time_per_token_gives_its_bandwidth() -> None:
    rows = table_of(
        explain("mbu-mfu", model="llama-2-7b", hardware="a100", batch_size=1, tpot="14ms").to_dict(), "utilisation"
    )
    assert rows[1]["TPOT"] == pytest.approx(0.014)
    assert rows[1]["MBU"] == pytest.approx(rows[0]["MBU"] * rows[0]["TPOT"] / 0.014)  # type: ignore[operator]


def test_flash_attention_is_counted_with_the_accelerator_s_memory() -> None:
    document = explain("flash-attention", model="gpt2-medium", hardware="a100", batch_size=64).to_dict()
    rows = {row["attention"]: row for row in table_of(document, "flash")}
    shape = {"heads": 64.0 * 16, "tokens": 1024.0, "head_dim": 64.0}
    tiled = flash_attention_cost(**shape, sram_bytes=load_facts().on_chip["ampere"].memory_bytes)
    plain = standard_attention_cost(**shape, masks=False, drops=False)
    giga = 1e9
    assert rows["flash"]["GB"] == pytest.approx(tiled.hbm_bytes / giga)
    assert rows["standard"]["GB forward"] == pytest.approx(plain.forward_bytes / giga)
    assert plain.forward_bytes + plain.backward_bytes == plain.hbm_bytes


@pytest.mark.parametrize(
    ("name", "largest"),
    [("fp8 E4M3", 448.0), ("fp8 E5M2", 57344.0), ("fp16", 65504.0), ("fp4 E2M1", 6.0), ("fp6 E3M2", 28.0)],
)
def test_largest_numbers_are_the_published_ones(name: str, largest: float) -> None:
    assert largest_value(load_facts().floats[name]) == largest


def test_one_more_exponent_bit_squares_the_range() -> None:
    narrow, wide = (FloatLayout(exponent_bits=bits, mantissa_bits=3, reserved="none") for bits in (4, 5))
    assert wide.largest_exponent == 2 * narrow.largest_exponent


@pytest.mark.parametrize(("name", "near"), [("flash-atention", "flash-attention"), ("quantization", "weight-quant")])
def test_an_unknown_topic_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(RoofcastError, match=near):
        topic_named(name)


@pytest.mark.parametrize(("name", "key"), [("nf4", "weight-quantization"), ("Sinks", "kv-eviction")])
def test_a_word_that_one_topic_speaks_of_opens_it(name: str, key: str) -> None:
    assert topic_named(name).key == key


def test_a_topic_that_says_nothing_of_a_model_says_why_and_which_would() -> None:
    with pytest.raises(RoofcastError, match=r"bert-base is an encoder.*--model llama-3.1-8b; of bert-base .*memory"):
        explain("kv-cache", model="bert-base")
    with pytest.raises(RoofcastError, match=r"llama-3.1-8b generates.*--model bert-base; of llama-3.1-8b "):
        explain("retrieval", model="llama-3.1-8b")
    with pytest.raises(RoofcastError, match="the on-chip memory of tpu-v5e is not known"):
        explain("flash-attention", hardware="tpu-v5e")


def test_what_has_no_effect_is_refused() -> None:
    with pytest.raises(RoofcastError, match="has no effect on roofline"):
        explain("roofline", tpot="14ms")
    with pytest.raises(RoofcastError, match="above zero"):
        explain("mbu-mfu", tpot="soon")
    with pytest.raises(RoofcastError, match="needs a topic"):
        explain().chart()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mamba2-2.7b", "deepseek-v3"])
@for_every(TOPICS)
def test_any_model_gets_a_page_or_a_reason(model: str, topic: Topic) -> None:
    try:
        answer = explain(topic.key, model=model, hardware="mi300x", batch_size=4)
    except RoofcastError as error:
        assert error.hint  # noqa: PT017
    else:
        json.dumps(answer.to_dict(), allow_nan=False)


def test_the_page_of_topics_lists_them_all() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "topics.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| (.+) \|$", page, re.MULTILINE)
    assert rows == [(topic.key, topic.question) for topic in TOPICS]
