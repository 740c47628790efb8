"""Measured serving runs from benchmark tools: InferenceX, vllm bench serve, GuideLLM, AIPerf, told apart by fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, TypeGuard

from simulator.errors import Option, RoofcastError
from simulator.specs.documents import read_json
from simulator.units import MICRO, MILLI

FORMATS = (
    "InferenceX results, vllm bench serve --save-result, guidellm benchmarks.json, aiperf profile_export_aiperf.json"
)
VLLM_REQUEST_FIELDS = ("start_times", "input_lens", "output_lens")
"""Lists of every request in a result that was saved in detail."""
INFERENCEX_RANGE_RATIO = 0.8
"""Its client draws lengths uniformly between that share of the nominal ones and the nominal ones."""
INFERENCEX_REQUESTS_PER_CLIENT = 10
FAILED_SHARE_AT_MOST = 0.05
"""Of the requests: those that fail leave room for the others, whose latencies then belong to a smaller load."""
LEAST_LENGTHS = 3
"""Of a list that tells how lengths vary."""
UNITS_S = {"ms": MILLI, "milliseconds": MILLI, "s": 1.0, "sec": 1.0, "seconds": 1.0, "us": MICRO}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRun:
    """Means over the answered requests of one run [s, tokens].

    tpot_s : (E2E - TTFT) / (OSL - 1), the definition of all three tools; requests : how many were answered
    request_rate_per_s : what the client sent, where arrivals did not wait for answers; else None
    concurrency : requests in flight, as set by the client or by Little's law from rate and latency
    isl_cv, osl_cv : coefficients of variation of the lengths, None where the file does not tell
    range_ratio : where lengths are nominal ones of which shorter ones are drawn, down to that share; else None
    gap_cv : coefficient of variation of the gaps between open arrivals, 1 for Poisson
    longest_osl_tokens : of one answer, None where the file does not tell
    has_requests : whether the file holds every request's start and lengths, so that it can be replayed as a trace
    model : what the file calls the model, None where it does not
    """

    tool: str
    path: str
    isl_tokens: float
    osl_tokens: float
    ttft_s: float
    tpot_s: float
    requests: int
    answered_per_s: float
    request_rate_per_s: float | None
    concurrency: float
    isl_cv: float | None = None
    osl_cv: float | None = None
    range_ratio: float | None = None
    gap_cv: float = 1.0
    longest_osl_tokens: float | None = None
    has_requests: bool = False
    model: str | None = None


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Numbers of one JSON object by dotted name, each refused by its name."""

    data: Mapping[str, Any]
    path: str
    prefix: str = ""

    def refuse(self, field: str, message: str, *, code: str = "invalid_measurement", hint: str = "") -> RoofcastError:
        return RoofcastError(f"{message} in {self.path}", field=self.prefix + field, code=code, hint=hint)

    def find(self, field: str) -> Any:
        node: Any = self.data
        for part in field.split("."):
            node = node.get(part) if isinstance(node, Mapping) else None
        return node

    def number(self, field: str) -> float:
        value = self.find(field)
        if value is None:
            raise self.refuse(field, "is missing", code="missing_field")
        if not _is_number(value) or not math.isfinite(value) or value < 0:
            raise self.refuse(field, f"{value!r}; allowed: finite numbers of at least 0")
        return float(value)

    def positive(self, field: str) -> float:
        value = self.number(field)
        if value == 0:
            raise self.refuse(field, "is 0; must be positive")
        return value

    def lengths(self, field: str) -> list[float]:
        """The positive numbers of a list of lengths, none where there are too few to tell how lengths vary."""
        values = self.find(field)
        known = (
            [float(value) for value in values if _is_number(value) and value > 0] if isinstance(values, list) else []
        )
        return known if len(known) >= LEAST_LENGTHS else []

    def list_cv(self, field: str) -> float | None:
        """Coefficient of variation of a list of lengths, None where there is none."""
        known = self.lengths(field)
        return stdev(known) / mean(known) if known else None

    def word(self, field: str) -> str | None:
        """A text that is not empty."""
        value = self.find(field)
        return value if isinstance(value, str) and value else None

    def block_cv(self, block: str, *, deviation: str, center: str) -> float | None:
        """The same from a block of statistics."""
        return (
            None
            if self.find(f"{block}.{deviation}") is None
            else (self.number(f"{block}.{deviation}") / self.positive(f"{block}.{center}"))
        )


def _checked(run: ServingRun, *, failed: float, answered: float) -> ServingRun:
    reader = _Reader(data={}, path=run.path)
    if failed > FAILED_SHARE_AT_MOST * (failed + answered):
        raise reader.refuse("failed", f"{failed:g} of {failed + answered:g} requests failed", code="not_identifiable")
    if run.osl_tokens < 2:
        raise reader.refuse(
            "output tokens",
            f"{run.osl_tokens:g} a request: one token has no time per further token",
            code="not_identifiable",
            hint="run with longer outputs",
        )
    return run


def _in_flight(*, answered_per_s: float, ttft_s: float, tpot_s: float, osl_tokens: float) -> float:
    """Little's law: rate times mean time in the system."""
    return answered_per_s * (ttft_s + tpot_s * (osl_tokens - 1))


def _vllm(reader: _Reader) -> ServingRun:
    if any(key.startswith("spec_decode") and value for key, value in reader.data.items()):
        raise reader.refuse("spec_decode", "speculative decoding hides the step", code="not_identifiable")
    answered = reader.positive("completed")
    isl, osl = reader.positive("total_input_tokens") / answered, reader.positive("total_output_tokens") / answered
    ttft_s, tpot_s = reader.positive("mean_ttft_ms") * MILLI, reader.positive("mean_tpot_ms") * MILLI
    answered_per_s = answered / reader.positive("duration")
    rate = reader.find("request_rate")
    is_open = _is_number(rate) and math.isfinite(rate)
    limit = reader.find("max_concurrency")
    if not is_open and limit is None:
        raise reader.refuse(
            "request_rate",
            f"{rate!r} without max_concurrency: all requests at once, so that TTFT is waiting and no overhead",
            code="not_identifiable",
            hint="run with --max-concurrency or a finite --request-rate",
        )
    estimated = _in_flight(answered_per_s=answered_per_s, ttft_s=ttft_s, tpot_s=tpot_s, osl_tokens=osl)
    # Gaps are gamma, and burstiness is their shape: 1 over the square of their coefficient of variation.
    shape = reader.positive("burstiness") if reader.find("burstiness") is not None else 1.0
    run = ServingRun(
        tool="vllm bench serve",
        path=reader.path,
        isl_tokens=isl,
        osl_tokens=osl,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        requests=max(1, round(answered)),
        answered_per_s=answered_per_s,
        request_rate_per_s=float(rate) if is_open and limit is None else None,
        concurrency=reader.positive("max_concurrency") if limit is not None else estimated,
        isl_cv=reader.list_cv("input_lens"),
        osl_cv=reader.list_cv("output_lens"),
        gap_cv=shape**-0.5,
        longest_osl_tokens=max(reader.lengths("output_lens"), default=None),
        has_requests=all(isinstance(reader.find(field), list) for field in VLLM_REQUEST_FIELDS),
        model=reader.word("model_id"),
    )
    failed = reader.number("failed") if reader.find("failed") is not None else 0.0
    return _checked(run, failed=failed, answered=answered)


def _guidellm(reader: _Reader) -> ServingRun:
    metrics, answered = "metrics.{}.successful.mean", reader.positive("metrics.request_totals.successful")
    tokens, per_s = reader.positive(metrics.format("output_token_count")), metrics.format("requests_per_second")
    # GuideLLM's time_per_output_token_ms counts the first token in; inter_token_latency_ms is the project's TPOT.
    run = ServingRun(
        tool="GuideLLM",
        path=reader.path,
        isl_tokens=reader.positive(metrics.format("prompt_token_count")),
        osl_tokens=tokens,
        ttft_s=reader.positive(metrics.format("time_to_first_token_ms")) * MILLI,
        tpot_s=reader.positive(metrics.format("inter_token_latency_ms")) * MILLI,
        requests=max(1, round(answered)),
        answered_per_s=reader.positive(per_s),
        request_rate_per_s=_guidellm_rate(reader),
        concurrency=reader.positive(metrics.format("request_concurrency")),
        isl_cv=reader.block_cv("metrics.prompt_token_count.successful", deviation="std_dev", center="mean"),
        osl_cv=reader.block_cv("metrics.output_token_count.successful", deviation="std_dev", center="mean"),
    )
    failed = reader.find("metrics.request_totals.errored") or 0.0
    return _checked(run, failed=float(failed), answered=answered)


def _guidellm_rate(reader: _Reader) -> float | None:
    """The rate of a constant or Poisson strategy; None where clients wait for answers."""
    strategy = reader.find("config.strategy.type_")
    if strategy == "throughput":
        raise reader.refuse(
            "config.strategy",
            "throughput: all requests at once, so that TTFT is waiting and no overhead",
            code="not_identifiable",
            hint="use a concurrent, constant or poisson benchmark",
        )
    return reader.positive("config.strategy.rate") if strategy in ("constant", "poisson") else None


def _aiperf_s(reader: _Reader, field: str) -> float:
    """A latency block's mean; its unit is authoritative."""
    unit = reader.find(f"{field}.unit")
    if not isinstance(unit, str) or unit not in UNITS_S:
        raise reader.refuse(f"{field}.unit", f"{unit!r}; allowed: {', '.join(UNITS_S)}")
    return reader.positive(f"{field}.avg") * UNITS_S[unit]


def _aiperf(reader: _Reader) -> ServingRun:
    osl, answered = reader.positive("output_sequence_length.avg"), reader.positive("request_count.avg")
    ttft_s, tpot_s = _aiperf_s(reader, "time_to_first_token"), _aiperf_s(reader, "inter_token_latency")
    answered_per_s = reader.positive("request_throughput.avg")
    rate, limit = reader.find("input_config.loadgen.request_rate"), reader.find("input_config.loadgen.concurrency")
    run = ServingRun(
        tool="AIPerf",
        path=reader.path,
        isl_tokens=reader.positive("input_sequence_length.avg"),
        osl_tokens=osl,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        requests=max(1, round(answered)),
        answered_per_s=answered_per_s,
        request_rate_per_s=reader.positive("input_config.loadgen.request_rate") if rate and not limit else None,
        concurrency=reader.positive("input_config.loadgen.concurrency")
        if limit
        else _in_flight(answered_per_s=answered_per_s, ttft_s=ttft_s, tpot_s=tpot_s, osl_tokens=osl),
        isl_cv=reader.block_cv("input_sequence_length", deviation="std", center="avg"),
        osl_cv=reader.block_cv("output_sequence_length", deviation="std", center="avg"),
    )
    failed = reader.find("error_request_count.avg") or 0.0
    return _checked(run, failed=float(failed), answered=answered)


def _inferencex(reader: _Reader) -> ServingRun:
    """A result as InferenceX's process_result.py writes it: latencies in seconds, throughput of one accelerator (field
    names from memory, verify)."""
    isl, osl, clients = reader.positive("isl"), reader.positive("osl"), reader.positive("conc")
    share = (1 + INFERENCEX_RANGE_RATIO) / 2
    devices = 1.0
    for field in ("tp", "pp"):
        devices *= reader.positive(field) if reader.find(field) is not None else 1.0
    total_per_s = reader.positive("tput_per_gpu") * devices
    run = ServingRun(
        tool="InferenceX",
        path=reader.path,
        isl_tokens=isl,
        osl_tokens=osl,
        ttft_s=reader.positive("mean_ttft"),
        tpot_s=reader.positive("mean_tpot"),
        requests=round(INFERENCEX_REQUESTS_PER_CLIENT * clients),
        answered_per_s=total_per_s / (share * (isl + osl)),
        request_rate_per_s=None,
        concurrency=clients,
        range_ratio=INFERENCEX_RANGE_RATIO,
    )
    return _checked(run, failed=0.0, answered=float(run.requests))


def load_serving_runs(path: str | Path) -> tuple[ServingRun, ...]:
    """The runs of one result file, one for each benchmark in it.

    Raises
    ------
    FileError, ProfileError
        The file cannot be read or is not JSON.
    RoofcastError
        It is of no known tool, a field is missing or impossible, or the run cannot tell an engine's overheads.
    """
    data, name = read_json(path), str(path)
    if "benchmarks" in data and isinstance(data["benchmarks"], list) and data["benchmarks"]:
        return tuple(
            _guidellm(_Reader(data=benchmark, path=name, prefix=f"benchmarks[{index}]."))
            for index, benchmark in enumerate(data["benchmarks"])
        )
    if "time_to_first_token" in data and "request_throughput" in data:
        return (_aiperf(_Reader(data=data, path=name)),)
    if "tput_per_gpu" in data or "conc" in data:
        return (_inferencex(_Reader(data=data, path=name)),)
    if "mean_ttft_ms" in data or "total_input_tokens" in data:
        return (_vllm(_Reader(data=data, path=name)),)
    raise RoofcastError(f"{name} is of no known benchmark", field=Option("from"), code="unknown_format", hint=FORMATS)
