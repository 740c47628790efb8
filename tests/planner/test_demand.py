"""Demand from flags, files and traces; every refusal says where and why."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from simulator.errors import FileError, ProfileError, RoofcastError
from simulator.planner.demand import DEFAULT_OBJECTIVES, read_demand, read_objectives
from simulator.planner.search.question import resolve
from simulator.reports.words.fields import note_text
from simulator.reports.words.plan_inputs import plan_input, warning_texts
from simulator.specs.base import ValueOrigin
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.plan_values import SHORT_FIELDS, duration_s
from simulator.traffic.recorded.demand import measured_demand
from simulator.traffic.recorded.traces import read_trace
from simulator.traffic.workload_presets import CHAT, PRESETS, WorkloadPreset, kind_by_lengths

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,100,10
2023-11-16 18:15:47.6805900,200,20
2023-11-16 18:15:49.6805900,300,30
"""
MOONCAKE = """{"timestamp": 0, "input_length": 100, "output_length": 10, "hash_ids": [0]}
{"timestamp": 3000, "input_length": 600, "output_length": 30, "hash_ids": [0, 1]}
"""


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


class TestTraces:
    def test_azure_by_hand(self, tmp_path: Path) -> None:
        summary = measured_demand(read_trace(written(tmp_path, "t.csv", AZURE)), tool="trace")
        assert summary.requests == 3
        assert summary.duration_s == pytest.approx(3.0)
        assert summary.rate_per_s == pytest.approx(2 / 3)
        assert summary.isl.mean == pytest.approx(200)
        assert summary.isl.cv == pytest.approx((2 / 3) ** 0.5 * 100 / 200)
        assert summary.osl.mean == 20

    def test_mooncake_times_are_milliseconds(self, tmp_path: Path) -> None:
        trace = read_trace(written(tmp_path, "t.jsonl", MOONCAKE))
        assert trace.arrival_s.tolist() == [0.0, 3.0]
        assert trace.osl_tokens.tolist() == [10.0, 30.0]

    def test_peak_is_the_busiest_minute(self, tmp_path: Path) -> None:
        # 3 minutes with 1, 4 and 1 requests (and the one that ends the trace): peak over mean of 2.
        stamps = [0, 61, 70, 80, 90, 130, 180]
        lines = [f'{{"timestamp": {stamp * 1000}, "input_length": 1, "output_length": 1}}' for stamp in stamps]
        trace = read_trace(written(tmp_path, "t.jsonl", "\n".join(lines)))
        assert measured_demand(trace, tool="trace").peak_to_mean == pytest.approx(2)

    @pytest.mark.parametrize(
        ("name", "text", "line", "reason"),
        [
            ("t.csv", "time,in,out\n1,2,3\n", 1, "header lacks TIMESTAMP"),
            ("t.csv", AZURE + "2023-11-16 18:16:00,abc,1\n", 5, "ContextTokens must be a whole number"),
            ("t.csv", AZURE + "2023-11-16 18:16:00,5\n", 5, "3 fields expected, found 2"),
            ("t.csv", AZURE + "yesterday,5,5\n", 5, "TIMESTAMP is not an ISO date"),
            ("t.csv", AZURE + "2023-11-16 18:16:00,0,5\n", 5, "at least 1, got '0'"),
            ("t.csv", "", 1, "header lacks"),
            ("t.csv", "\n".join(AZURE.splitlines()[:2]), 1, "at least two requests, found 1"),
            ("t.jsonl", MOONCAKE + '{"timestamp": 1', 3, "not JSON"),
            ("t.jsonl", MOONCAKE + '{"timestamp": 1, "input_length": 5}', 3, "output_length is missing"),
            ("t.jsonl", MOONCAKE + '{"timestamp": -1, "input_length": 5, "output_length": 5}', 3, "timestamp must be"),
        ],
    )
    def test_malformed_lines_are_named(self, tmp_path: Path, name: str, text: str, line: int, reason: str) -> None:
        path = written(tmp_path, name, text)
        with pytest.raises(RoofcastError) as caught:
            read_trace(path)
        assert f"{path}, line {line}: " in str(caught.value)
        assert reason in str(caught.value)
        assert caught.value.exit_code == 2

    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="cannot be read"):
            read_trace(tmp_path / "nothing.csv")


class TestSpec:
    @pytest.mark.parametrize(
        ("text", "seconds"), [("2s", 2.0), ("500ms", 0.5), (1.5, 1.5), ("0.25", 0.25), ("1 min", 60.0), ("1e3us", 1e-3)]
    )
    def test_durations(self, text: object, seconds: float) -> None:
        assert duration_s(text) == pytest.approx(seconds)

    @pytest.mark.parametrize("text", ["0s", "-1s", "fast", "", "2 parsecs", True, "1.2.3s"])
    def test_bad_durations(self, text: object) -> None:
        with pytest.raises(ValueError, match="duration above zero"):
            duration_s(text)

    def test_files_use_the_names_of_the_flags(self, tmp_path: Path) -> None:
        path = written(
            tmp_path,
            "w.yaml",
            "rps: 20\nisl: 500\nttft-p95: 2s\ntpot_p99: 50ms\nhardware: h100\nlatency-p90: 9\ntp: [4, 8]\n",
        )
        spec = plan_spec({}, workload=path)
        assert (spec.rate_per_s, spec.isl_tokens, spec.hardware, spec.tp_size) == (20, 500, ("h100",), (4, 8))
        assert [(item.metric, item.percentile, item.bound_s) for item in spec.objectives] == [
            ("ttft", 95, 2.0),
            ("tpot", 99, 0.05),
            ("e2e", 90, 9.0),
        ]

    def test_flags_win_over_the_file(self, tmp_path: Path) -> None:
        path = written(tmp_path, "w.yaml", "rps: 20\nisl: 500\n")
        spec = plan_spec({"rps": 40.0}, workload=path)
        assert (spec.rate_per_s, spec.isl_tokens) == (40.0, 500)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("rps", 0),
            ("rps", -5),
            ("isl", 0),
            ("osl", -1),
            ("cache_hit", 1.0),
            ("prefix_hit", -0.1),
            ("peak_to_mean", 0.5),
            ("utilization", 1.5),
            ("spares", -1),
            ("max_gpus", 0),
            ("tp", (0,)),
            ("headroom", -0.1),
            ("round_to", "rack"),
            ("weights", ("fp3",)),
        ],
    )
    def test_out_of_range_names_the_field(self, field: str, value: object) -> None:
        with pytest.raises(RoofcastError) as caught:
            plan_spec({field: value})
        assert caught.value.field.startswith(SHORT_FIELDS.get(field, field))
        assert caught.value.exit_code == 2

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("rps: [1\n", "not valid YAML"),
            ("- 1\n", "must hold a mapping"),
            ("rate_per_h: 5\n", "did you mean rate_per_s"),
            ("rps: 5\nttft-p95: soon\n", "ttft-p95"),
            ("rps: 5\nrate_per_s: 6\n", "given twice"),
        ],
    )
    def test_malformed_workload(self, tmp_path: Path, text: str, reason: str) -> None:
        with pytest.raises((RoofcastError, ProfileError), match=reason):
            plan_spec({}, workload=written(tmp_path, "w.yaml", text))


class TestDemand:
    def test_defaults_are_listed_with_their_source(self) -> None:
        demand = read_demand(plan_spec({"rps": 10}))
        assert (demand.mix.isl.mean_tokens, demand.mix.isl.cv) == (CHAT.isl_tokens, CHAT.isl_cv)
        said = {item.key: plan_input(item) for item in demand.assumptions}
        assert said["rate_per_s"].source == "given"
        assert said["isl_tokens"].origin is ValueOrigin.DEFAULT
        assert "Azure" in said["isl_tokens"].source

    @pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.word)
    def test_a_named_workload_gives_what_is_not_given(self, preset: WorkloadPreset) -> None:
        mix = read_demand(plan_spec({"rps": 1}, workload=preset.name)).mix
        assert (mix.isl.mean_tokens, mix.isl.cv) == (preset.isl_tokens, preset.isl_cv)
        assert (mix.osl.mean_tokens, mix.osl.cv) == (preset.osl_tokens, preset.osl_cv)
        assert mix.prefix_hit_fraction == preset.prefix_hit
        own = read_demand(plan_spec({"rps": 1, "workload": preset.word, "isl": 99, "osl_cv": 0.1})).mix
        assert (own.isl.mean_tokens, own.isl.cv) == (99, preset.isl_cv)
        assert (own.osl.mean_tokens, own.osl.cv) == (preset.osl_tokens, 0.1)

    @pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.word)
    def test_lengths_of_a_workload_vary_as_it_does(self, preset: WorkloadPreset) -> None:
        demand = read_demand(plan_spec({"rps": 1, "isl": 1.05 * preset.isl_tokens, "osl": 0.95 * preset.osl_tokens}))
        # Nobody waits for a batch: where it is not named, its lengths are those of a chat.
        kind = CHAT if preset.name == "Batch" else preset
        assert (demand.mix.isl.cv, demand.mix.osl.cv) == (kind.isl_cv, kind.osl_cv)
        (said,) = [plan_input(item).source for item in demand.assumptions if item.key == "isl_tokens"]
        assert said == f"mean given; cv default of {kind.word}: {note_text(kind.source)}"
        _, held = read_objectives(plan_spec({"rps": 1}), mix=demand.mix)
        assert held.detail == kind, "lengths vary as the kind does whose objectives are held"

    def test_no_prompt_is_longer_than_the_context(self) -> None:
        demand = read_demand(plan_spec({"rps": 1, "isl": 120_000}), context_tokens=131_072)
        isl = demand.mix.isl
        assert isl.mean_tokens == 120_000
        assert isl.at(np.array([1.645, 6.0])).max() <= 131_072 - demand.mix.osl.mean_tokens
        (said,) = [plan_input(item).value for item in demand.assumptions if item.key == "isl_tokens"]
        assert "cut at 130,861 tokens" in said
        assert "renormalised" in said

    def test_a_workload_is_a_kind_or_a_file(self, tmp_path: Path) -> None:
        assert plan_spec({}, workload=written(tmp_path, "w.yaml", "rps: 5\nworkload: Long context\n")).workload == (
            "long-context"
        )
        with pytest.raises(FileError, match="workload.*chatt.*did you mean chat"):
            plan_spec({}, workload="chatt")

    def test_planned_rate_by_hand(self) -> None:
        demand = read_demand(plan_spec({"rps": 1000, "cache_hit": 0.2, "peak_to_mean": 1.5, "headroom": 0.1}))
        assert demand.served_mean_rate_per_s == pytest.approx(800)
        assert demand.planned_rate_per_s == pytest.approx(800 * 1.5 * 1.1)

    def test_trace_gives_lengths_and_rate(self, tmp_path: Path) -> None:
        demand = read_demand(plan_spec({"trace": written(tmp_path, "t.csv", AZURE)}))
        assert demand.mean_rate_per_s == pytest.approx(2 / 3)
        assert demand.mix.isl.mean_tokens == pytest.approx(200)

    def test_flags_win_over_the_trace(self, tmp_path: Path) -> None:
        demand = read_demand(plan_spec({"trace": written(tmp_path, "t.csv", AZURE), "rps": 7.0, "isl": 50}))
        assert demand.mean_rate_per_s == 7.0
        assert demand.mix.isl.mean_tokens == 50
        assert demand.mix.osl.mean_tokens == pytest.approx(20)

    def test_a_rate_is_needed(self) -> None:
        with pytest.raises(RoofcastError, match="a request rate is needed"):
            read_demand(plan_spec({}))

    def test_default_objectives_step_back_when_any_is_given(self) -> None:
        assert read_objectives(plan_spec({"rps": 1}))[0] == DEFAULT_OBJECTIVES
        given, source = read_objectives(plan_spec({"rps": 1, "tpot_p95": "50ms"}))
        assert [item.name for item in given] == ["TPOT p95"]
        assert source.origin is ValueOrigin.GIVEN


class TestWhatATraceSays:
    def test_shared_prefixes_are_counted(self, tmp_path: Path) -> None:
        # The second prompt repeats the first one's block of 512 tokens, of which 100 are there: 512 of 700 at most.
        path = written(tmp_path, "t.jsonl", MOONCAKE)
        demand = read_demand(plan_spec({"trace": path}))
        assert demand.mix.prefix_hit_fraction == pytest.approx(512 / 700)
        (said,) = [plan_input(item) for item in demand.assumptions if item.key == "prefix_hit"]
        assert said.origin is ValueOrigin.MEASURED
        assert "in a cache of 1,000,000 tokens" in said.source
        assert read_demand(plan_spec({"trace": path, "prefix_hit": 0.5})).mix.prefix_hit_fraction == 0.5

    def test_bursts_are_said_with_the_flag_that_counts_them(self, tmp_path: Path) -> None:
        # Every minute, a crowd of thirteen within a second: of 12 windows of 5 s one holds all.
        stamps = [60_000 * minute + 50 * place for minute in range(6) for place in range(13)]
        lines = [f'{{"timestamp": {stamp}, "input_length": 9, "output_length": 9}}' for stamp in stamps]
        path = written(tmp_path, "t.jsonl", "\n".join(lines))
        (warning,) = warning_texts(read_demand(plan_spec({"trace": path})).warnings)
        assert "vary 13 times as much as Poisson's: one of N replicas sees --arrival-cv sqrt(1 + 12 / N)" in warning
        assert read_demand(plan_spec({"trace": path, "arrival_cv": 2})).warnings == ()

    def test_the_model_that_a_benchmark_names_is_planned(self, tmp_path: Path) -> None:
        run = {
            "model_id": "Qwen/Qwen3-8B",
            "start_times": [0.0, 1.0, 2.0],
            "input_lens": [9] * 3,
            "output_lens": [9] * 3,
        }
        path = written(tmp_path, "run.json", json.dumps(run))
        question = resolve(plan_spec({"trace": path}))
        assert question.model.name == "Qwen/Qwen3-8B"
        assert question.assumptions[0].origin is ValueOrigin.TRACE
        assert resolve(plan_spec({"trace": path, "model": "llama-3.1-8b"})).model.name == "llama-3.1-8b"

    def test_steady_traces_are_not_warned_about(self, tmp_path: Path) -> None:
        demand = read_demand(plan_spec({"trace": written(tmp_path, "t.csv", AZURE)}))
        assert demand.warnings == ()

    def test_long_prompts_are_not_shown_in_powers_of_ten(self) -> None:
        demand = read_demand(plan_spec({"rps": 1, "isl": 12_035.1}))
        (shown,) = [plan_input(item).value for item in demand.assumptions if item.key == "isl_tokens"]
        assert shown.startswith("12,035 tokens")


def test_bounds_and_spreads_go_over_from_one_kind_to_the_next() -> None:
    """A token more moved the bounds of 3,000 + 60 from those of code to those of a chat."""
    lengths = np.geomspace(5, 500, 400)
    kinds = [kind_by_lengths(3000, osl) for osl in lengths]
    assert kinds[0].word == "code"
    assert kinds[-1].word == "chat-and-rag"
    for field in ("ttft_p95_s", "osl_cv", "isl_cv"):
        values = np.array([getattr(kind, field) for kind in kinds])
        assert np.abs(np.diff(np.log(values))).max() < 0.08, field
    spec = plan_spec({"rps": 1.0, "isl": 3000, "osl": 60})
    found, said = read_objectives(spec, mix=read_demand(spec).mix)
    assert 0.5 < found[0].bound_s < 1.0
    assert plan_input(said).source.startswith("default of code-and-chat: between these")


@pytest.mark.parametrize(
    ("given", "free"),
    [({"ttft_p99": "2s"}, "TPOT"), ({"tpot_p95": "50ms"}, "TTFT"), ({"latency_p95": "9s"}, ""),
     ({"ttft_p99": "2s", "tpot_p95": "50ms"}, ""), ({"ttft_p99": "2s", "osl": 1}, "")],
)  # fmt: skip
def test_a_bound_that_goes_with_the_defaults_is_named(given: dict[str, str], free: str) -> None:
    spec = plan_spec({"rps": 1.0, **given})
    source = plan_input(read_objectives(spec, mix=read_demand(spec).mix)[1]).source
    assert source == (
        f"given; {free} has no bound, because the default ones stand only where none is given" if free else "given"
    )
