"""Measured serving runs from benchmark tools: InferenceX, vllm bench serve, GuideLLM, AIPerf, told apart by fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any, TypeGuard

from pydantic import NonNegativeInt, PositiveInt

from simulator.errors import Option, RoofcastError
from simulator.records import dataclass
from simulator.specs.base import Spec, found_at, read_json
from simulator.specs.engine.deployment import DisaggregationSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.techniques import TechniquesSpec
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
GENAI_PERF_WINDOW_S = 10.0
"""How long it measures where its file does not say (its default; from memory, verify)."""
LEAST_LENGTHS = 3
"""Of a list that tells how lengths vary."""
UNITS_S = {"ms": MILLI, "milliseconds": MILLI, "s": 1.0, "sec": 1.0, "seconds": 1.0, "us": MICRO}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRun:
    """Means over the answered requests of one run [s, tokens].

    ttft_p50_s : median, None where the file does not tell
    tpot_s : (E2E - TTFT) / (OSL - 1), the definition of all three tools; requests : how many were answered
    request_rate_per_s : what the client sent, where arrivals did not wait for answers; else None
    concurrency : requests in flight, as set by the client or by Little's law from rate and latency
    isl_cv, osl_cv : coefficients of variation of the lengths, None where the file does not tell
    range_ratio : where lengths are nominal ones of which shorter ones are drawn, down to that share; else None
    gap_cv : coefficient of variation of the gaps between open arrivals, 1 for Poisson
    longest_osl_tokens : of one answer, None where the file does not tell
    has_requests : whether the file holds the starts and lengths of several requests, to be replayed as a trace
    model, engine, tp_size, ep_size, dp_size : as the file says what ran, None where it does not tell
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
    ttft_p50_s: float | None = None
    isl_cv: float | None = None
    osl_cv: float | None = None
    range_ratio: float | None = None
    gap_cv: float = 1.0
    longest_osl_tokens: float | None = None
    has_requests: bool = False
    model: str | None = None
    engine: str | None = None
    tp_size: int | None = None
    ep_size: int | None = None
    dp_size: int | None = None

    @property
    def tells_lengths(self) -> bool:
        """Whether the file tells how lengths vary, and not their means alone."""
        return self.has_requests or self.range_ratio is not None or None not in (self.isl_cv, self.osl_cv)


def _lengths(file: ResultFile, field: str) -> list[float]:
    """The positive numbers of a list of lengths, none where there are too few to tell how lengths vary."""
    known = [value for value in file.numbers(field) if value > 0]
    return known if len(known) >= LEAST_LENGTHS else []


def _list_cv(file: ResultFile, field: str) -> float | None:
    """Coefficient of variation of a list of lengths, None where there is none."""
    known = _lengths(file, field)
    return stdev(known) / mean(known) if known else None


def _block_cv(file: ResultFile, block: str, *, deviation: str, center: str) -> float | None:
    """The same from a block of statistics."""
    spread = file.optional(f"{block}.{deviation}")
    return None if spread is None else spread / file.positive(f"{block}.{center}")


def _checked(run: ServingRun, *, failed: float, answered: float) -> ServingRun:
    file = ResultFile(data={}, path=run.path)
    if failed > FAILED_SHARE_AT_MOST * (failed + answered):
        raise file.refuse("failed", f"{failed:g} of {failed + answered:g} requests failed", code="not_identifiable")
    if run.osl_tokens < 2:
        raise file.refuse(
            "output tokens",
            f"{run.osl_tokens:g} a request: one token has no time per further token",
            code="not_identifiable",
            hint="run with longer outputs",
        )
    return run


def _in_flight(*, answered_per_s: float, ttft_s: float, tpot_s: float, osl_tokens: float) -> float:
    """Little's law: rate times mean time in the system."""
    return answered_per_s * (ttft_s + tpot_s * (osl_tokens - 1))


def _vllm(file: ResultFile) -> ServingRun:
    if any(key.startswith("spec_decode") and value for key, value in file.data.items()):
        raise file.refuse("spec_decode", "speculative decoding hides the step", code="not_identifiable")
    answered = file.positive("completed")
    isl, osl = file.positive("total_input_tokens") / answered, file.positive("total_output_tokens") / answered
    ttft_s, tpot_s = file.positive("mean_ttft_ms") * MILLI, file.positive("mean_tpot_ms") * MILLI
    answered_per_s = answered / file.positive("duration")
    rate = file.find("request_rate")
    is_open = is_number(rate) and math.isfinite(rate)
    limit = file.find("max_concurrency")
    if not is_open and limit is None:
        raise file.refuse(
            "request_rate",
            f"{rate!r} without max_concurrency: all requests at once, so that TTFT is waiting and no overhead",
            code="not_identifiable",
            hint="run with --max-concurrency or a finite --request-rate",
        )
    estimated = _in_flight(answered_per_s=answered_per_s, ttft_s=ttft_s, tpot_s=tpot_s, osl_tokens=osl)
    # Gaps are gamma, and burstiness is their shape: 1 over the square of their coefficient of variation.
    shape = file.positive("burstiness") if file.find("burstiness") is not None else 1.0
    run = ServingRun(
        tool="vllm bench serve",
        path=file.path,
        isl_tokens=isl,
        osl_tokens=osl,
        ttft_s=ttft_s,
        ttft_p50_s=file.positive("median_ttft_ms") * MILLI if file.find("median_ttft_ms") is not None else None,
        tpot_s=tpot_s,
        requests=max(1, round(answered)),
        answered_per_s=answered_per_s,
        request_rate_per_s=float(rate) if is_open and limit is None else None,
        concurrency=file.positive("max_concurrency") if limit is not None else estimated,
        isl_cv=_list_cv(file, "input_lens"),
        osl_cv=_list_cv(file, "output_lens"),
        gap_cv=shape**-0.5,
        longest_osl_tokens=max(_lengths(file, "output_lens"), default=None),
        has_requests=answered > 1 and all(isinstance(file.find(field), list) for field in VLLM_REQUEST_FIELDS),
        model=file.word("model_id"),
    )
    return _checked(run, failed=file.optional("failed") or 0.0, answered=answered)


def _guidellm(file: ResultFile) -> ServingRun:
    metrics, answered = "metrics.{}.successful.mean", file.positive("metrics.request_totals.successful")
    tokens, per_s = file.positive(metrics.format("output_token_count")), metrics.format("requests_per_second")
    # GuideLLM's time_per_output_token_ms counts the first token in; inter_token_latency_ms is the project's TPOT.
    run = ServingRun(
        tool="GuideLLM",
        path=file.path,
        isl_tokens=file.positive(metrics.format("prompt_token_count")),
        osl_tokens=tokens,
        ttft_s=file.positive(metrics.format("time_to_first_token_ms")) * MILLI,
        tpot_s=file.positive(metrics.format("inter_token_latency_ms")) * MILLI,
        requests=max(1, round(answered)),
        answered_per_s=file.positive(per_s),
        request_rate_per_s=_guidellm_rate(file),
        concurrency=file.positive(metrics.format("request_concurrency")),
        isl_cv=_block_cv(file, "metrics.prompt_token_count.successful", deviation="std_dev", center="mean"),
        osl_cv=_block_cv(file, "metrics.output_token_count.successful", deviation="std_dev", center="mean"),
    )
    return _checked(run, failed=file.optional("metrics.request_totals.errored") or 0.0, answered=answered)


def _guidellm_rate(file: ResultFile) -> float | None:
    """The rate of a constant or Poisson strategy; None where clients wait for answers."""
    strategy = file.find("config.strategy.type_")
    if strategy == "throughput":
        raise file.refuse(
            "config.strategy",
            "throughput: all requests at once, so that TTFT is waiting and no overhead",
            code="not_identifiable",
            hint="use a concurrent, constant or poisson benchmark",
        )
    return file.positive("config.strategy.rate") if strategy in ("constant", "poisson") else None


def _aiperf_s(file: ResultFile, field: str) -> float:
    """A latency block's mean; its unit is authoritative."""
    unit = file.find(f"{field}.unit")
    if not isinstance(unit, str) or unit not in UNITS_S:
        raise file.refuse(f"{field}.unit", f"{unit!r}; allowed: {', '.join(UNITS_S)}")
    return file.positive(f"{field}.avg") * UNITS_S[unit]


def aiperf_answered(file: ResultFile) -> float:
    """Requests that were answered: AIPerf's count; of GenAI-Perf, which writes none, those that were asked for, or what
    its rate answers in one of its windows."""
    if file.find("request_count.avg") is not None:
        return file.positive("request_count.avg")
    window_s = (file.optional("input_config.measurement_interval") or 0) * MILLI or GENAI_PERF_WINDOW_S
    return file.optional("input_config.request_count") or file.positive("request_throughput.avg") * window_s


def _aiperf(file: ResultFile) -> ServingRun:
    osl, answered = file.positive("output_sequence_length.avg"), aiperf_answered(file)
    ttft_s, tpot_s = _aiperf_s(file, "time_to_first_token"), _aiperf_s(file, "inter_token_latency")
    answered_per_s = file.positive("request_throughput.avg")
    # GenAI-Perf has the fields of its clients at the top.
    group = "input_config.loadgen" if file.find("input_config.loadgen") is not None else "input_config"
    rate, limit = file.optional(f"{group}.request_rate"), file.optional(f"{group}.concurrency")
    run = ServingRun(
        tool="AIPerf" if file.find("request_count.avg") is not None else "GenAI-Perf",
        path=file.path,
        isl_tokens=file.positive("input_sequence_length.avg"),
        osl_tokens=osl,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        requests=max(1, round(answered)),
        answered_per_s=answered_per_s,
        request_rate_per_s=rate if rate and not limit else None,
        concurrency=limit or _in_flight(answered_per_s=answered_per_s, ttft_s=ttft_s, tpot_s=tpot_s, osl_tokens=osl),
        isl_cv=_block_cv(file, "input_sequence_length", deviation="std", center="avg"),
        osl_cv=_block_cv(file, "output_sequence_length", deviation="std", center="avg"),
    )
    return _checked(run, failed=file.optional("error_request_count.avg") or 0.0, answered=answered)


def _inferencex(file: ResultFile) -> ServingRun:
    """A result as InferenceX's process_result.py writes it: latencies in seconds, throughput of one accelerator (field
    names from memory, verify). With attention split by requests ``tp`` counts its ranks, over which experts spread."""
    isl, osl, clients = file.positive("isl"), file.positive("osl"), file.positive("conc")
    share = (1 + INFERENCEX_RANGE_RATIO) / 2
    devices = 1.0
    for field in ("tp", "pp"):
        devices *= file.positive(field) if file.find(field) is not None else 1.0
    total_per_s = file.positive("tput_per_gpu") * devices
    tp, ep = (None if file.find(field) is None else round(file.positive(field)) for field in ("tp", "ep"))
    ranks = tp if str(file.find("dp_attention")).lower() == "true" else None
    run = ServingRun(
        tool="InferenceX",
        path=file.path,
        isl_tokens=isl,
        osl_tokens=osl,
        ttft_s=file.positive("mean_ttft"),
        tpot_s=file.positive("mean_tpot"),
        requests=round(INFERENCEX_REQUESTS_PER_CLIENT * clients),
        answered_per_s=total_per_s / (share * (isl + osl)),
        request_rate_per_s=None,
        concurrency=clients,
        range_ratio=INFERENCEX_RANGE_RATIO,
        model=file.word("model"),
        engine=file.word("framework"),
        tp_size=tp if ranks is None else 1,
        ep_size=ep if ranks is None else ranks,
        dp_size=ranks,
    )
    return _checked(run, failed=0.0, answered=float(run.requests))


def load_serving_runs(path: str | Path) -> tuple[ServingRun, ...]:
    """The runs of one result file, one for each benchmark in it.

    Raises FileError, ProfileError: the file cannot be read or is not JSON.
    Raises RoofcastError: it is of no known tool, a field is missing or impossible, or the run cannot tell an engine's
    overheads.
    """
    data, name = read_json(path), str(path)
    if "benchmarks" in data and isinstance(data["benchmarks"], list) and data["benchmarks"]:
        return tuple(
            _guidellm(ResultFile(data=benchmark, path=name, prefix=f"benchmarks[{index}]."))
            for index, benchmark in enumerate(data["benchmarks"])
        )
    if "time_to_first_token" in data and "request_throughput" in data:
        return (_aiperf(ResultFile(data=data, path=name)),)
    if "tput_per_gpu" in data or "conc" in data:
        return (_inferencex(ResultFile(data=data, path=name)),)
    if "mean_ttft_ms" in data or "total_input_tokens" in data:
        return (_vllm(ResultFile(data=data, path=name)),)
    raise RoofcastError(f"{name} is of no known benchmark", field=Option("from"), code="unknown_format", hint=FORMATS)


def is_number(value: object) -> TypeGuard[int | float]:
    """Truth values are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """One JSON object of a result; ``prefix`` stands before its fields where the file holds several."""

    data: Mapping[str, Any]
    path: str
    prefix: str = ""

    def refuse(self, field: str, message: str, *, code: str = "invalid_measurement", hint: str = "") -> RoofcastError:
        """The refusal of a field of this file."""
        return RoofcastError(f"{message} in {self.path}", field=self.prefix + field, code=code, hint=hint)

    def find(self, field: str) -> Any:
        """What stands under a dotted name, None where nothing does."""
        return found_at(self.data, field)

    def _checked(self, field: str, value: object) -> float:
        if not is_number(value) or not math.isfinite(value) or value < 0:
            raise self.refuse(field, f"{value!r}; allowed: finite numbers of at least 0")
        return float(value)

    def number(self, field: str) -> float:
        """A number of at least 0."""
        value = self.find(field)
        if value is None:
            raise self.refuse(field, "is missing", code="missing_field")
        return self._checked(field, value)

    def positive(self, field: str) -> float:
        """A number above 0."""
        value = self.number(field)
        if value == 0:
            raise self.refuse(field, "is 0; must be positive")
        return value

    def optional(self, field: str) -> float | None:
        """A number of at least 0, None where it is not there."""
        return None if self.find(field) is None else self.number(field)

    def numbers(self, field: str) -> list[float]:
        """A list of numbers of at least 0, empty where there is none."""
        values = self.find(field)
        if not isinstance(values, list):
            return []
        return [self._checked(f"{field}[{place}]", value) for place, value in enumerate(values)]

    def word(self, field: str) -> str | None:
        """A text that is not empty."""
        value = self.find(field)
        return value if isinstance(value, str) and value else None


class ServedSpec(Spec):
    """What served a benchmark, in the fields of a scenario; ``None`` takes what the engine or checkpoint has.

    model : None takes the one that the file names
    system_prompt_tokens : that all prompts of the benchmark begin with
    """

    model: str | None = None
    hardware: str
    tp_size: PositiveInt = 1
    pp_size: PositiveInt = 1
    ep_size: PositiveInt = 1
    cp_size: PositiveInt = 1
    dp_size: PositiveInt = 1
    precision: PrecisionSpec = PrecisionSpec()
    engine: EngineSpec = EngineSpec()
    techniques: TechniquesSpec = TechniquesSpec()
    disaggregation: DisaggregationSpec | None = None
    system_prompt_tokens: NonNegativeInt = 0
