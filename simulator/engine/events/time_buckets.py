"""Spread what a step does over buckets of time, in compiled code."""

from __future__ import annotations

from typing import Any

from simulator.engine.events.compilation import compiled
from simulator.engine.events.state import (
    SERIES_BLOCK_S,
    SERIES_BUCKETS,
    SERIES_BUSY_S,
    SERIES_SEQUENCE_S,
    SERIES_TOKENS,
    SERIES_WAITING_S,
    SERIES_WIDTH_S,
)


@compiled
def _double_width(series: Any) -> None:
    """Merge neighbouring buckets, so that twice the time fits."""
    half = SERIES_BUCKETS // 2
    for bucket in range(SERIES_BUCKETS):
        for column in range(series.shape[1]):
            merged = series[2 * bucket, column] + series[2 * bucket + 1, column] if bucket < half else 0.0
            series[bucket, column] = merged
    series[SERIES_BUCKETS, SERIES_WIDTH_S] *= 2.0


@compiled
def add_interval(
    series: Any,
    start_s: float,
    end_s: float,
    busy_s: float,
    sequences: float,
    waiting: float,
    blocks: float,
    tokens: float,
) -> None:
    """Spread a step from ``start_s`` to ``end_s`` over the buckets that it touches.

    busy_s : how much of it, up to its end, no earlier step covers (less than the whole in a pipeline)
    """
    while end_s > series[SERIES_BUCKETS, SERIES_WIDTH_S] * SERIES_BUCKETS:
        _double_width(series)
    width_s = series[SERIES_BUCKETS, SERIES_WIDTH_S]
    bucket = int(start_s / width_s)
    at_s = start_s
    while at_s < end_s and bucket < SERIES_BUCKETS:
        until_s = min(end_s, (bucket + 1) * width_s)
        part_s = until_s - at_s
        if part_s > 0:
            row = series[bucket]
            alone_s = max(0.0, min(part_s, until_s - (end_s - busy_s)))
            row[SERIES_SEQUENCE_S] += part_s * sequences
            row[SERIES_TOKENS] += part_s / (end_s - start_s) * tokens
            row[SERIES_BUSY_S] += alone_s
            row[SERIES_BLOCK_S] += alone_s * blocks
            row[SERIES_WAITING_S] += alone_s * waiting
            at_s = until_s
        bucket += 1
