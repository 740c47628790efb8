"""``simulator.reports.words.fields``: fields in the words of the command line, there and back."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import Option, no_effect
from simulator.reports.charts.marks import text_width
from simulator.reports.charts.static_svg import wrapped
from simulator.reports.words.fields import (
    assumption_text,
    error_content,
    error_field,
    error_line,
    flag_of,
    flagged,
    limit_source_text,
    note_text,
    plan_command,
    rule_text,
    source_text,
)
from simulator.specs.base import Assumption, ValueOrigin
from simulator.specs.engine.releases import LimitRule, LimitSource
from simulator.specs.question.plan import PlanSpec, plan_spec
from simulator.traffic.recorded.demand import burst_note
from tests.for_every import for_every

FIELDS = sorted(PlanSpec.model_fields)


@for_every(FIELDS)
def test_every_field_of_a_plan_has_a_flag_of_its_own(field: str) -> None:
    flag = flag_of(field)
    assert flag.startswith("--")
    assert "_" not in flag
    assert [other for other in FIELDS if flag_of(other) == flag] == [field]


@for_every(FIELDS)
def test_a_sentence_that_names_a_field_names_its_flag(field: str) -> None:
    assert flagged(f"leave `{field}` out") == f"leave {flag_of(field)} out"
    assert flagged(f"leave {field} out") == f"leave {field} out"


@given(sentence=st.text("abc `_.", max_size=40))
def test_only_what_stands_between_backquotes_changes(sentence: str) -> None:
    if sentence.count("`") < 2:
        assert flagged(sentence) == sentence


def test_a_refusal_speaks_of_flags_where_an_option_was_wrong() -> None:
    error = no_effect("changes nothing without `growth`", field=Option("lead_time"))
    assert error_field(error) == "--lead-time"
    assert error_line(error) == "--lead-time: changes nothing without --growth (leave it out)"
    assert error_content(error) == {
        "code": "no_effect", "field": "--lead-time", "message": "changes nothing without --growth",
        "hint": "leave it out",
    }  # fmt: skip
    assert error_field(no_effect("x", field="engine.name")) == "engine.name"


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "llama-3.1-8b", "rate_per_s": 12.5, "tp_size": (1, 2), "hardware": ("h100", "mi300x")},
        {"rate_per_s": 3.0, "rental": True, "load_profile": tuple(float(hour + 1) for hour in range(24))},
        {"rate_per_s": 3.0, "verify": False, "weights": ("fp8",), "max_cost_per_hour": 99.5},
        {"rate_per_s": 3.0, "ttft_p95": "2s", "tpot_p99": "50ms", "workload": "code"},
    ],
)
def test_the_command_of_a_question_asks_the_same_question(fields: dict[str, object]) -> None:
    spec = plan_spec(fields)
    words = shlex.split(plan_command(spec))
    assert words[0] == "plan-capacity"
    assert all(word.startswith("--") or words[place - 1].startswith("--") for place, word in enumerate(words) if place)
    for name, value in fields.items():
        several = isinstance(value, tuple) and name != "load_profile"
        flag = flag_of(f"no_{name}") if value is False else flag_of(name)
        assert words.count(flag) == (len(value) if several else 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (LimitRule(max_num_seqs=1, memory_gib_at_least=70, name_without="a100"), "70 GiB and more, not a100"),
        (LimitRule(max_num_seqs=1, memory_gib_below=20), "below 20 GiB"),
        (LimitRule(max_num_seqs=1, memory_gib_at_least=20, memory_gib_below=35), "20 to 35 GiB"),
        (LimitRule(max_num_seqs=1, accelerators=("h100", "h200")), "h100 or h200"),
        (LimitRule(max_num_seqs=1), ""),
    ],
)
def test_a_rule_says_its_conditions(rule: LimitRule, text: str) -> None:
    assert rule_text(rule) == text
    said = limit_source_text(LimitSource(engine="vllm", release="0.15.1", rule=rule))
    assert said == "default of vllm 0.15.1" + (f": {text}" if text else "")


def test_a_release_without_rules_names_the_one_whose_rules_it_takes() -> None:
    said = limit_source_text(LimitSource(engine="vllm", release="0.15.1", asked="0.14"))
    assert said == "default of vllm 0.15.1, the release nearest to 0.14 with known rules"


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (Assumption(key="seed", value=0), "seed = 0 (default)"),
        (
            Assumption(key="engine.max_num_seqs", value=256, detail="vllm"),
            "engine.max_num_seqs = 256 (default of vllm)",
        ),
        (Assumption(key="num_requests", value=40), "num_requests = 40 (default: ten for each client)"),
        (Assumption(key="note", detail="as published"), "as published"),
        (Assumption(key="isl", value=3, origin=ValueOrigin.TRACE, detail="a.csv"), "isl = 3 (a.csv)"),
        (Assumption(key="isl", value=3, origin=ValueOrigin.GIVEN), "isl = 3 (given)"),
    ],
)
def test_an_assumption_says_its_value_and_where_it_comes_from(item: Assumption, text: str) -> None:
    assert assumption_text(item) == text
    assert item.value is None or text.endswith(f"({source_text(item)})")


def test_bursts_of_a_trace_are_told_for_any_number_of_replicas() -> None:
    assert flagged(note_text(burst_note("bursts", 37.0))).endswith("--arrival-cv sqrt(1 + 36 / N)")


@given(words=st.lists(st.text("abcxyz", min_size=1, max_size=12), max_size=30), width=st.floats(20, 400))
def test_wrapped_lines_keep_every_word_within_the_width(words: list[str], width: float) -> None:
    lines = wrapped(" ".join(words), width=width)
    assert " ".join(lines).split() == words
    assert all(text_width(line, size=12.0) <= width or len(line.split()) == 1 for line in lines if line)
