"""Range queries of Prometheus: rates and peaks by hand, restarts, and every refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.engine.demand_import import import_demand
from simulator.errors import RoofcastError


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
