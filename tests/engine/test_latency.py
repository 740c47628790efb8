"""Percentiles with unanswered requests, and objectives as they are written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.runs.metrics import check_objectives, meets_objectives, offered_latency_s, percentile_s
from simulator.errors import RoofcastError
from simulator.specs.question.plan_values import parse_objectives
from simulator.traffic.requests import Outcome, RequestRecords, Requests, make_requests


def served(ttft_s: list[float], *, answered: int) -> tuple[Requests, RequestRecords]:
    """Requests that all arrive at 0 and answer 11 tokens, 0.1 s apart; those beyond ``answered`` get nothing."""
    count = len(ttft_s)
    first = np.array([value if place < answered else np.nan for place, value in enumerate(ttft_s)])
    none = np.zeros(count, dtype=np.int64)
    outcome = np.where(np.arange(count) < answered, int(Outcome.FINISHED), int(Outcome.TOO_LONG))
    requests = make_requests(arrival_s=np.zeros(count), prompt_tokens=none + 1, output_tokens=none + 11)
    return requests, RequestRecords(
        outcome=outcome,
        admitted_s=first,
        first_token_s=first,
        finish_s=first + 1.0,
        cached_tokens=none,
        preemptions=none,
        replica=none,
    )


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=60), st.floats(0.1, 99.9))
def test_percentiles_are_numpys_where_everybody_is_answered(values: list[float], percentile: float) -> None:
    assert percentile_s(np.array(values), percentile) == pytest.approx(float(np.percentile(values, percentile)))


def test_turning_clients_away_meets_no_objective() -> None:
    requests, records = served([0.1] * 100, answered=90)
    objectives = parse_objectives(["ttft-p89=1s", "ttft-p95=1s", "tpot-p50=0.11s"], flag="--slo")
    checks = check_objectives(requests, records, objectives=objectives, inside=np.ones(100, dtype=np.bool_))
    assert [check.holds for check in checks] == [True, False, True]
    assert np.isinf(checks[1].value_s)
    assert checks[2].value_s == pytest.approx(0.1)
    assert int(meets_objectives(requests, records, objectives=objectives).sum()) == 90


def test_answers_of_one_token_have_no_tpot_to_miss() -> None:
    requests, records = served([0.1, 0.2], answered=2)
    single = make_requests(
        arrival_s=np.zeros(2), prompt_tokens=np.ones(2, dtype=np.int64), output_tokens=np.array([1, 11])
    )
    assert np.isnan(offered_latency_s(single, records, metric="tpot")).tolist() == [True, False]
    bound = parse_objectives(["tpot-p95=1ms"], flag="--slo")
    assert meets_objectives(single, records, objectives=bound).tolist() == [True, False]
    assert len(requests) == 2


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["ttft=2s"], "METRIC-pNN=TIME is needed"),
        (["ttft-p95"], "METRIC-pNN=TIME is needed"),
        (["itl-p95=2s"], "METRIC-pNN=TIME is needed"),
        (["ttft-p95=-1s"], "duration above zero"),
        (["ttft-p100=1s"], "less than 100"),
        (["ttft-p95=1s", "ttft_p95=2s"], "bounds what another objective bounds already"),
    ],
)
def test_bad_objectives_are_refused(texts: list[str], said: str) -> None:
    with pytest.raises(RoofcastError, match=said):
        parse_objectives(texts, flag="--slo")


def test_objectives_are_read_in_either_spelling() -> None:
    specs = parse_objectives(["TTFT-p99.5=500ms", "latency_p50=2"], flag="--slo")
    assert [(item.metric, item.percentile, item.bound_s) for item in specs] == [("ttft", 99.5, 0.5), ("e2e", 50.0, 2.0)]
