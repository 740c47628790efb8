"""``simulator.reports.tables.serving`` and ``.request_files``: requests once each, sentences that follow numbers."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from simulator.engine.events.simulation import simulate_requests
from simulator.engine.pools import Pool
from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.engine.runs.metrics import ServeResult, serve_result
from simulator.engine.settings import SchedulerSettings
from simulator.errors import RoofcastError
from simulator.phases.compiled import uniform_tables
from simulator.phases.deployment import deploy
from simulator.reports.answer import result_object
from simulator.reports.formats.text import sparkline
from simulator.reports.tables.request_files import (
    TRACED_REQUESTS,
    check_request_format,
    request_csv,
    request_parquet,
    trace_json,
)
from simulator.reports.tables.serving import (
    objective_chances,
    pools_setup_text,
    serve_text,
    serving_headline,
    serving_quantities,
    setup_text,
)
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.scenario import ScenarioSpec
from simulator.traffic.requests import make_requests


@cache
def served() -> ServeResult:
    """Four requests on one replica, the third of which is longer than the engine takes."""
    requests = make_requests(
        arrival_s=np.array([0.0, 0.0, 0.5, 1.0]),
        prompt_tokens=np.array([10, 20, 90, 10]),
        output_tokens=np.array([5, 1, 20, 3]),
    )
    limits = SchedulerSettings(max_num_batched_tokens=64, max_num_seqs=4, max_model_len=100, kv_blocks=40)
    tables = uniform_tables(step_s=0.01, max_tokens=64, max_sequences=4, max_context=128)
    run = simulate_requests(tables, requests=requests, settings=limits, trace_steps=100)
    return serve_result(requests, run, kv_blocks=40)


@cache
def scenario() -> ScenarioResult:
    return answer(
        ScenarioSpec.model_validate(
            {
                "id": "load",
                "kind": "serve",
                "model": "llama-3.1-8b",
                "hardware": "h100",
                "workload": {
                    "stages": [{"rate_per_s": 5.0, "duration_s": 10.0}, {"rate_per_s": 10.0, "duration_s": 5.0}],
                    "isl_tokens": 200,
                    "osl_tokens": 10,
                },
            }
        )
    )


def document() -> dict[str, Any]:
    return result_object(scenario())


class TestRequestFiles:
    def test_a_line_a_request_and_nothing_where_nothing_was_reached(self) -> None:
        rows = list(csv.DictReader(io.StringIO(b"".join(request_csv(served())).decode())))
        assert [row["request"] for row in rows] == ["0", "1", "2", "3"]
        assert [row["outcome"] for row in rows] == ["finished", "finished", "too_long", "finished"]
        assert rows[2]["finish_s"] == rows[2]["ttft_s"] == ""
        for row in (rows[0], rows[1], rows[3]):
            assert float(row["e2e_s"]) == pytest.approx(float(row["finish_s"]) - float(row["arrival_s"]))
        # Five tokens of an answer are four steps of 10 ms behind the first; one token has no pace.
        assert float(rows[0]["tpot_s"]) == pytest.approx(0.01)
        assert rows[1]["tpot_s"] == ""

    def test_parquet_holds_the_same_with_nulls(self) -> None:
        parquet = pytest.importorskip("pyarrow.parquet")
        found = parquet.read_table(io.BytesIO(b"".join(request_parquet(served())))).to_pylist()
        rows = list(csv.DictReader(io.StringIO(b"".join(request_csv(served())).decode())))
        assert [item["finish_s"] is None for item in found] == [row["finish_s"] == "" for row in rows]
        assert [item["prompt_tokens"] for item in found] == [10, 20, 90, 10]
        assert found[0]["ttft_s"] == pytest.approx(float(rows[0]["ttft_s"]))

    @pytest.mark.parametrize("suffix", ["", ".json", ".CSV"])
    def test_another_suffix_is_refused_by_its_flag(self, suffix: str) -> None:
        with pytest.raises(RoofcastError, match=r"allowed: \.csv, \.parquet") as caught:
            check_request_format(suffix, flag="--requests")
        assert caught.value.field == "--requests"

    def test_a_trace_holds_every_step_and_spans_of_answered_requests(self) -> None:
        result = served()
        events = json.loads(trace_json(result))["traceEvents"]
        steps = [event for event in events if event["ph"] == "X"]
        assert len(steps) == result.run.steps
        assert sum(event["dur"] for event in steps) == pytest.approx(float(result.run.usage[:, 0].sum()) * 1e6)
        assert sum(event["args"]["new_tokens"] for event in steps) == 10 + 20 + 10 + (5 - 1) + (3 - 1)
        begun = [event for event in events if event["ph"] == "b"]
        assert len(begun) == len([event for event in events if event["ph"] == "e"])
        assert {event["id"] for event in begun} == {0, 1, 3}
        assert TRACED_REQUESTS > 4


class TestSentences:
    def test_set_ups_name_their_degrees(self) -> None:
        replica = deploy(
            model=load_model("llama-3.1-8b"),
            hardware=load_hardware("h100"),
            parallelism=ParallelismSpec(tp_size=2, pp_size=2),
        )
        text = setup_text(replica, replicas=3)
        assert text.startswith("llama-3.1-8b on 3 x TP2 PP2 h100-sxm-80gb, bf16 weights, vllm ")
        pools = pools_setup_text(Pool(deployment=replica, replicas=1), Pool(deployment=replica, replicas=2))
        assert (
            "1 x TP2 PP2 h100-sxm-80gb for prompts and 2 x TP2 PP2 h100-sxm-80gb for answers, bf16 weights, vllm "
            in pools
        )

    def test_a_sparkline_rises_in_eighths(self) -> None:
        values = np.array([0.0, 1.0, 4.0, 8.0, 16.0])
        assert sparkline(values, largest=8.0) == " ▁▄██"
        assert sparkline(values, largest=0.0) == sparkline(np.zeros(0), largest=1.0) == ""

    def test_a_bound_beyond_its_interval_holds_and_one_before_it_does_not(self) -> None:
        shown = document()
        low_s, high_s = shown["interval"]["ttft_p95_s"]
        value_s = shown["overall"]["ttft_p95_s"]
        bounds_s = (low_s / 10, low_s, value_s, high_s, 10 * high_s)
        chances = [objective_chances(shown, {"ttft": bound_s})[0].chance for bound_s in bounds_s]
        assert chances == sorted(chances)
        assert chances[0] < 0.01
        assert chances[1] == pytest.approx(0.1, abs=0.03)
        assert chances[3] == pytest.approx(0.9, abs=0.03)
        assert chances[4] > 0.99

    def test_a_headline_says_what_is_missed_and_that_an_overload_meets_nothing(self) -> None:
        shown = document()
        kept, missed = (objective_chances(shown, {"ttft": bound_s}) for bound_s in (1e3, 1e-9))
        assert serving_headline(5.0, shown, kept).startswith("Holds its objectives at 5.00 requests/s: TTFT p95 ")
        assert serving_headline(5.0, shown, missed).startswith("Misses TTFT p95 ")
        over = {**shown, "overall": {**shown["overall"], "saturated": True}}
        assert objective_chances(over, {"ttft": 1e3})[0].chance == 0
        assert serving_headline(5.0, over, kept) == "Overloaded at 5.00 requests/s: the queue keeps growing"

    def test_quantities_are_those_of_the_document(self) -> None:
        shown = document()
        found = {item.key: item for item in serving_quantities(shown)}
        for key in ("ttft_p95_s", "tpot_p95_s", "e2e_p95_s", "mean_batch", "kv_utilization"):
            assert found[key].value == shown["overall"][key]


class TestText:
    def test_each_stage_and_the_whole_have_a_line_and_three_latencies(self) -> None:
        text = serve_text(scenario(), assumptions=False)
        lines = [line.split() for line in text.splitlines() if line]
        stages = [line[0] for line in lines if line[0] in ("0", "1", "overall")]
        assert stages == ["0", "1", "overall"] + [name for name in ("0", "1", "overall") for _ in range(3)]
        assert "Load over time" in text
        assert f"({len(scenario().assumptions)} assumptions: --assumptions lists them)" in text

    def test_assumptions_are_listed_when_they_are_asked_for(self) -> None:
        text = serve_text(scenario(), assumptions=True)
        assert text.partition("Assumptions\n")[2].count("\n- ") + 1 == len(scenario().assumptions)

    def test_notes_are_kept_apart(self) -> None:
        noted = replace(scenario(), notes=("look here",))
        assert "note: look here" in serve_text(noted, assumptions=False)
