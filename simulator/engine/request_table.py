"""What became of each request, as columns: for files and frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.engine.latency import e2e_s, tpot_s, ttft_s
from simulator.engine.metrics import ServeResult
from simulator.engine.request import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestColumn:
    """One column, one entry per request in arrival order; times are seconds since the start, NaN if never reached."""

    name: str
    values: NDArray[Any]


def request_columns(result: ServeResult) -> tuple[RequestColumn, ...]:
    """Every request with its moments, lengths, latencies, cache hits, preemptions, replica (-1: none) and outcome."""
    requests, records = result.requests, result.run.records
    names = np.array([outcome.name.lower() for outcome in Outcome])
    columns = {
        "request": np.arange(len(requests)),
        "stage": requests.stage,
        "arrival_s": requests.arrival_s,
        "admitted_s": records.admitted_s,
        "first_token_s": records.first_token_s,
        "finish_s": records.finish_s,
        "prompt_tokens": requests.prompt_tokens,
        "output_tokens": requests.output_tokens,
        "cached_tokens": records.cached_tokens,
        "preemptions": records.preemptions,
        "replica": records.replica,
        "outcome": names[records.outcome],
        "ttft_s": ttft_s(requests, records),
        "tpot_s": tpot_s(requests, records),
        "e2e_s": e2e_s(requests, records),
    }
    return tuple(RequestColumn(name=name, values=values) for name, values in columns.items())
