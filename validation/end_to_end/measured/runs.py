"""The table format that all end-to-end sources share, read as measured runs."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from simulator.errors import FileError
from simulator.specs.measured.validation_rows import WholeRun as MeasuredRun
from simulator.units import MILLI

# Metric and unit of the tables -> name and factor of the contract's result.
METRICS: dict[str, tuple[str, float]] = {
    "ttft_ms": ("ttft_s", MILLI),
    "tpot_ms": ("tpot_s", MILLI),
    "latency_ms": ("e2e_s", MILLI),
    "output_tok_s": ("output_tokens_per_s", 1.0),
    "throughput_tok_s": ("total_tokens_per_s", 1.0),
}


Row = Mapping[str, str]


def read_rows(path: Path) -> list[dict[str, str]]:
    """Rows of one CSV table as text."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}", field="--data") from error


def gather(
    source: str,
    rows: Iterable[Row],
    *,
    scenario_of: Callable[[Row], dict[str, Any] | None],
    metrics: Mapping[str, tuple[str, float]] = METRICS,
) -> tuple[MeasuredRun, ...]:
    """Group rows with equal scenarios into runs; repeated measurements of a metric count by their median.

    ``scenario_of`` returns the scenario of a row without its id, or None for rows that no scenario expresses.
    """
    grouped: dict[str, tuple[dict[str, Any], dict[str, list[float]]]] = {}
    for row in rows:
        scenario = scenario_of(row)
        if scenario is None or row["metric"] not in metrics:
            continue
        key = repr(sorted(scenario.items(), key=str))
        _, values = grouped.setdefault(key, (scenario, defaultdict(list)))
        name, factor = metrics[row["metric"]]
        values[name].append(float(row["value"]) * factor)
    return tuple(
        MeasuredRun(
            source=source,
            scenario={"id": f"{source}-{number}", **scenario},
            measured={name: median(items) for name, items in values.items()},
        )
        for number, (scenario, values) in enumerate(grouped.values())
    )
