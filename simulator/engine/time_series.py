"""Batch, queue and cache over time in bounded memory: a fixed number of buckets whose width doubles when a run outlasts
them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.engine.request import Floats
from simulator.engine.state import (
    SERIES_BLOCK_S,
    SERIES_BUCKETS,
    SERIES_BUSY_S,
    SERIES_SEQUENCE_S,
    SERIES_TOKENS,
    SERIES_WAITING_S,
    SERIES_WIDTH_S,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeries:
    """What went on over time, all replicas together. Arrays have one entry per bucket, at most 512.

    width_s : width of a bucket; start_s : where each begins [s]
    batch : sequences that are being computed; waiting : requests that wait (time-weighted means over the bucket, in
        which idle time counts as nothing)
    kv_utilization : share of all KV blocks in use; busy : share of the replicas' time in which a step runs
    tokens_per_s : prompt and answer tokens computed per second
    """

    width_s: float
    start_s: Floats
    batch: Floats
    waiting: Floats
    kv_utilization: Floats
    busy: Floats
    tokens_per_s: Floats


NO_SERIES = TimeSeries(
    width_s=0.0,
    start_s=np.zeros(0),
    batch=np.zeros(0),
    waiting=np.zeros(0),
    kv_utilization=np.zeros(0),
    busy=np.zeros(0),
    tokens_per_s=np.zeros(0),
)
"""Of a run without steps."""


def _at_width(rows: Floats, width_s: float, wanted_s: float) -> Floats:
    while width_s < wanted_s:
        merged = np.zeros_like(rows)
        merged[: SERIES_BUCKETS // 2] = rows[0::2] + rows[1::2]
        rows, width_s = merged, 2 * width_s
    return rows


def time_series(series: Floats, *, kv_blocks: int) -> TimeSeries:
    """Join the replicas' buckets ``series`` [replicas, buckets + 1, columns]. kv_blocks : of all replicas."""
    widths_s = series[:, SERIES_BUCKETS, SERIES_WIDTH_S]
    width_s = float(widths_s.max())
    rows = np.zeros_like(series[0, :SERIES_BUCKETS])
    for replica, own_s in zip(series, widths_s, strict=True):
        rows = rows + _at_width(replica[:SERIES_BUCKETS], float(own_s), width_s)
    used = np.flatnonzero(rows[:, SERIES_BUSY_S] > 0)
    rows = rows[: used[-1] + 1] if len(used) else rows[:0]
    return TimeSeries(
        width_s=width_s,
        start_s=np.arange(len(rows), dtype=np.float64) * width_s,
        batch=rows[:, SERIES_SEQUENCE_S] / width_s,
        waiting=rows[:, SERIES_WAITING_S] / width_s,
        kv_utilization=rows[:, SERIES_BLOCK_S] / (width_s * kv_blocks),
        busy=rows[:, SERIES_BUSY_S] / (width_s * len(series)),
        tokens_per_s=rows[:, SERIES_TOKENS] / width_s,
    )
