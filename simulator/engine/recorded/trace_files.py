"""Request traces from files: what they say about rate, burstiness and lengths (formats: ``trace_formats``)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from simulator.engine.lengths import Array
from simulator.engine.recorded.trace_formats import AZURE_COLUMNS as AZURE_COLUMNS
from simulator.engine.recorded.trace_formats import TraceRow, malformed, trace_rows
from simulator.errors import FileError
from simulator.units import SECONDS_PER_MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTrace:
    """Recorded requests in order of arrival (arrays of one length).

    arrival_s : since the first request [s]; isl_tokens, osl_tokens : prompt and answer lengths
    hashes : of the blocks of each prompt, equal where content is equal up to and with the block; None without
    warnings : what was put right on reading; first_s : time of the first request by the recorder's clock [s]
    has_dates : whether that clock is the world's (Unix time)
    """

    source: str
    arrival_s: Array
    isl_tokens: Array
    osl_tokens: Array
    hashes: tuple[tuple[int, ...], ...] | None = None
    warnings: tuple[str, ...] = ()
    first_s: float = 0.0
    has_dates: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSummary:
    """Mean, coefficient of variation and percentiles of token counts."""

    mean: float
    cv: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What a trace says. ``peak_to_mean`` compares the busiest of ``window_s`` long windows with the whole.

    has_hashes : whether it tells which prompts share a prefix
    """

    source: str
    requests: int
    duration_s: float
    mean_rate_per_s: float
    peak_to_mean: float
    window_s: float
    isl: LengthSummary
    osl: LengthSummary
    warnings: tuple[str, ...] = ()
    has_hashes: bool = False


def _disorder(rows: list[TraceRow], *, path: str | Path) -> tuple[str, ...]:
    """A warning where requests do not stand in the order of their times."""
    back = sum(later.at_s < earlier.at_s for earlier, later in pairwise(rows))
    times = "once" if back == 1 else f"{back:,} times"
    return (f"{path} is not in the order of its times (goes back {times}); it is read sorted",) if back else ()


def read_trace(path: str | Path) -> RequestTrace:
    """Read a trace; the format follows from the first line.

    Raises
    ------
    FileError
        The file cannot be read.
    RoofcastError
        A line is malformed: names file, line and reason.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"{path}: cannot be read: {reason}", field="trace") from None
    rows = trace_rows(text, path=path)
    if len(rows) < 2:
        raise malformed(path, where="line 1", reason=f"a trace needs at least two requests, found {len(rows)}")
    warnings = _disorder(rows, path=path)
    # Logs are often written when requests end; what counts is when they were sent.
    rows.sort(key=lambda row: (row.at_s, row.isl_tokens, row.osl_tokens))
    table = np.array([(row.at_s, row.isl_tokens, row.osl_tokens) for row in rows], dtype=np.float64)
    hashes = tuple(row.hashes for row in rows if row.hashes is not None)
    return RequestTrace(
        source=str(path),
        arrival_s=table[:, 0] - table[0, 0],
        isl_tokens=table[:, 1],
        osl_tokens=table[:, 2],
        hashes=hashes or None,
        warnings=warnings,
        first_s=float(table[0, 0]),
        has_dates=text.lstrip().startswith(AZURE_COLUMNS[0]),
    )


def _lengths(tokens: Array) -> LengthSummary:
    p50, p95, p99 = (float(value) for value in np.percentile(tokens, [50, 95, 99]))
    mean = float(tokens.mean())
    return LengthSummary(mean=mean, cv=float(tokens.std() / mean), p50=p50, p95=p95, p99=p99)


def summarise(trace: RequestTrace) -> TraceSummary:
    """Rate, peak and lengths of a trace; the peak is taken over whole minutes.

    Raises
    ------
    RoofcastError
        All requests carry one time, so that there is no rate.
    """
    duration_s = float(trace.arrival_s[-1])
    if duration_s <= 0:
        raise malformed(trace.source, where="line 1", reason="all requests have the same time")
    window_s = min(SECONDS_PER_MINUTE, duration_s)
    windows = max(1, int(duration_s // window_s))
    inside = trace.arrival_s < windows * window_s
    counts = np.bincount((trace.arrival_s[inside] // window_s).astype(np.int64), minlength=windows)
    rate = (len(trace.arrival_s) - 1) / duration_s
    return TraceSummary(
        source=trace.source,
        requests=len(trace.arrival_s),
        duration_s=duration_s,
        mean_rate_per_s=rate,
        peak_to_mean=max(1.0, float(counts.max() / counts.mean())),
        window_s=window_s,
        isl=_lengths(trace.isl_tokens),
        osl=_lengths(trace.osl_tokens),
        warnings=trace.warnings,
        has_hashes=trace.hashes is not None,
    )
