"""Range queries of Prometheus: rates and peaks by hand, restarts, and every refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator import demand
from simulator.errors import RoofcastError
from simulator.planner.plan import plan_capacity
from simulator.planner.studies.rental import RentalMix
from simulator.specs.question.plan import plan_spec
from simulator.traffic.recorded.importers import import_demand


def answer(name: str, values: list[float], *, step: float = 60.0, **labels: str) -> dict[str, object]:
    samples = [[step * place, str(value)] for place, value in enumerate(values)]
    series = {"metric": {"__name__": name, **labels}, "values": samples}
    return {"status": "success", "data": {"resultType": "matrix", "result": [series]}}


REQUESTS = answer("vllm:request_success_total", [0, 60, 300, 360])
TOKENS = [
    answer("vllm:prompt_tokens_total", [0, 6_000, 30_000, 36_000]),
    answer("vllm:generation_tokens_total", [0, 600, 3_000, 3_600]),
]


def write(tmp_path: Path, document: object) -> str:
    path = tmp_path / "range.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def test_rate_peak_and_lengths_by_hand(tmp_path: Path) -> None:
    found = import_demand(write(tmp_path, [REQUESTS, *TOKENS]))
    assert (found.requests, found.duration_s) == (360, 180.0)
    assert found.rate_per_s == pytest.approx(2.0)
    assert found.peak_to_mean == pytest.approx(240 / 60 / 2)
    assert (found.isl.mean, found.osl.mean) == (pytest.approx(100.0), pytest.approx(10.0))
    assert found.isl.cv is None


def test_a_restart_of_the_server_loses_nothing_that_was_counted(tmp_path: Path) -> None:
    restarted = answer("vllm:request_success_total", [0, 60, 300, 60])
    assert import_demand(write(tmp_path, [restarted, *TOKENS])).requests == 360


def test_series_of_several_engines_add_up_and_hits_are_a_share(tmp_path: Path) -> None:
    other = answer("vllm:request_success_total", [0, 60, 300, 360], engine="1")
    cache = [
        answer("vllm:prefix_cache_queries_total", [0, 500, 800, 1000]),
        answer("vllm:prefix_cache_hits_total", [0, 100, 200, 250]),
    ]
    found = import_demand(write(tmp_path, [REQUESTS, other, *TOKENS, *cache]))
    assert found.rate_per_s == pytest.approx(4.0)
    assert found.prefix_hit == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([REQUESTS], "add the answers for vllm:request_prompt_tokens_sum"),
        (TOKENS[0], "vllm:request_success_total is needed"),
        ({"status": "error", "error": "bad query"}, "bad query"),
        ({"status": "success", "data": {"resultType": "vector", "result": []}}, "gives a matrix"),
        ([answer("vllm:request_success_total", [5, 5]), *TOKENS], "no request finished"),
        ([answer("vllm:request_success_total", [5])], "two samples"),
        ({"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": []}]}}, "__name__"),
    ],
)
def test_what_is_no_demand_is_refused_by_name(tmp_path: Path, document: object, text: str) -> None:
    with pytest.raises(RoofcastError, match=text):
        import_demand(write(tmp_path, document))


def test_over_is_refused_because_the_answer_holds_its_time(tmp_path: Path) -> None:
    with pytest.raises(RoofcastError, match="states its own duration"):
        import_demand(write(tmp_path, [REQUESTS, *TOKENS]), over_s=60.0)


MONDAY = 1_767_571_200  # 2026-01-05 00:00 UTC


def hourly(counts: list[int]) -> dict[str, object]:
    total = [sum(counts[:place]) for place in range(len(counts) + 1)]
    document = answer("vllm:request_success_total", [float(value) for value in total], step=3600.0)
    for sample in document["data"]["result"][0]["values"]:  # type: ignore[index]
        sample[0] += MONDAY
    return document


def tokens_of(counts: list[int]) -> list[dict[str, object]]:
    return [
        answer(name, [0.0, float(each * sum(counts))])
        for name, each in (("vllm:prompt_tokens_total", 100), ("vllm:generation_tokens_total", 10))
    ]


def test_a_week_of_hours_becomes_a_load_profile_from_monday(tmp_path: Path) -> None:
    day = [100 + 10 * hour for hour in range(24)]
    week = day * 5 + [value // 2 for value in day] * 2
    found = import_demand(write(tmp_path, [hourly(week), *tokens_of(week)]))
    assert len(found.load_profile) == 168
    assert found.load_profile == pytest.approx([value / 330 for value in week])


def test_days_that_do_not_make_a_week_are_averaged_and_less_than_a_day_says_nothing(tmp_path: Path) -> None:
    two = [100] * 12 + [200] * 12 + [300] * 12 + [200] * 12 + [999] * 5
    found = import_demand(write(tmp_path, [hourly(two), *tokens_of(two)]))
    assert found.load_profile == pytest.approx([1.0] * 24)
    short = [100] * 23
    assert import_demand(write(tmp_path, [hourly(short), *tokens_of(short)])).load_profile == ()


def test_the_workload_of_a_recorded_week_plans_its_rental(tmp_path: Path) -> None:
    week = ([100] * 8 + [900] * 16) * 5 + [50] * 48
    record, workload = write(tmp_path, [hourly(week), *tokens_of(week)]), tmp_path / "w.yaml"
    workload.write_text(demand(str(record)).to_text(), encoding="utf-8")
    spec = plan_spec({"model": "llama-3.1-8b", "hardware": ("h100",)}, workload=workload)
    plan = plan_capacity(spec)
    assert plan.study(RentalMix) is not None
    assert plan.study(RentalMix).period == "week"
    assert plan.study(RentalMix).profile == pytest.approx([value / 900 for value in week], abs=1e-3)
    assert plan.demand.mean_rate_per_s * 168 * 3600 == pytest.approx(sum(week), rel=1e-5)
    assert plan.demand.planned_rate_per_s == pytest.approx(900 / 3600, rel=1e-5)
