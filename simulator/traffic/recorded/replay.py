"""A recorded trace once more: the same minutes, rates and lengths, other moments and another draw of its requests."""

from __future__ import annotations

import numpy as np

from simulator.traffic.recorded.traces import RequestTrace
from simulator.traffic.requests import Floats, Ints, Requests, make_requests
from simulator.units import SECONDS_PER_MINUTE


def _resampled(trace: RequestTrace, *, times: float, seed: int) -> tuple[Floats, Ints, float]:
    """Moments, rows of the trace, and the end of the last whole minute [s]."""
    generator = np.random.default_rng(seed)
    window_s = min(SECONDS_PER_MINUTE, float(trace.arrival_s[-1]))
    windows = int(trace.arrival_s[-1] // window_s)
    starts = np.searchsorted(trace.arrival_s, window_s * np.arange(windows + 1))
    counts = generator.poisson(times * np.diff(starts))
    window = np.repeat(np.arange(windows), counts)
    arrival_s = window_s * (window + generator.random(len(window)))
    rows = starts[window] + (generator.random(len(window)) * np.diff(starts)[window]).astype(np.int64)
    order = np.argsort(arrival_s, kind="stable")
    return arrival_s[order], rows[order], window_s * windows


def _requests(trace: RequestTrace, *, arrival_s: Floats, rows: Ints, end_s: float) -> Requests:
    return make_requests(
        arrival_s=arrival_s,
        prompt_tokens=trace.isl_tokens[rows].astype(np.int64),
        output_tokens=trace.osl_tokens[rows].astype(np.int64),
        stage_end_s=np.array([end_s]),
    )


def resampled_requests(trace: RequestTrace, *, times: float, seed: int) -> Requests:
    """``times`` as many requests, minute by minute: Poisson counts, even moments, requests of that minute.

    Keeps how rate and lengths move from minute to minute and which answers go with which prompts; within a minute
    arrivals are Poisson. Every prompt is new: hashes of the trace are left out, as is a last minute that is not whole.
    """
    arrival_s, rows, end_s = _resampled(trace, times=times, seed=seed)
    return _requests(trace, arrival_s=arrival_s, rows=rows, end_s=end_s)


def replica_share(
    trace: RequestTrace, *, times: float, replicas: int, replica: int, seed: int, prompt_token_delay_s: float = 0.0
) -> Requests | None:
    """What one of ``replicas`` gets of that under round-robin routing, every so-manyth request; None where nothing.

    prompt_token_delay_s : host time per prompt token before an engine sees a request; turns go by that order [s]
    """
    arrival_s, rows, end_s = _resampled(trace, times=times, seed=seed)
    if replica >= len(rows):
        return None
    ready = np.argsort(arrival_s + prompt_token_delay_s * trace.isl_tokens[rows], kind="stable")
    own = np.sort(ready[replica::replicas])
    return _requests(trace, arrival_s=arrival_s[own], rows=rows[own], end_s=end_s)
