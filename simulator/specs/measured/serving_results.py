"""Measured serving runs from benchmark tools: InferenceX, vllm bench serve, GuideLLM, AIPerf, told apart by fields."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import mean, stdev

from pydantic import NonNegativeInt, PositiveInt

from simulator.errors import Option, RoofcastError
from simulator.records import dataclass
from simulator.specs.base import Spec, found_at, json_value, validate
from simulator.specs.engine.deployment import DisaggregationSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.measured.result_file import ResultFile, is_number
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

    ttft_p50_s, ttft_p99_s : median and 99th percentile, None where the file does not tell
    tpot_s : (E2E - TTFT) / (OSL - 1), the definition of all three tools; requests : how many were answered
    request_rate_per_s : what the client sent, where arrivals did not wait for answers; else None
    concurrency : requests in flight, as set by the client or by Little's law from rate and latency
    isl_cv, osl_cv : coefficients of variation of the lengths, None where the file does not tell
    range_ratio : where lengths are nominal ones of which shorter ones are drawn, down to that share; else None
    gap_cv : coefficient of variation of the gaps between open arrivals, 1 for Poisson, 0 for equal ones
    longest_osl_tokens : of one answer, None where the file does not tell
    has_requests : whether the file holds the starts and lengths of several requests, to be replayed as a trace
    at_once : whether nothing held requests back, so that TTFT is how long they waited in the queue
    guesses : whether the replica guessed tokens
    model, engine, tp_size, ep_size, dp_size, disaggregation : as the file says what ran, None where it does not tell
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
    ttft_p99_s: float | None = None
    isl_cv: float | None = None
    osl_cv: float | None = None
    range_ratio: float | None = None
    gap_cv: float = 1.0
    longest_osl_tokens: float | None = None
    has_requests: bool = False
    at_once: bool = False
    guesses: bool = False
    model: str | None = None
    engine: str | None = None
    tp_size: int | None = None
    ep_size: int | None = None
    dp_size: int | None = None
    disaggregation: DisaggregationSpec | None = None

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


def _checked(file: ResultFile, run: ServingRun, *, failed: float, answered: float) -> ServingRun:
    if failed > FAILED_SHARE_AT_MOST * (failed + answered):
        raise file.refuse("failed", f"{failed:g} of {failed + answered:g} requests failed", code="not_identifiable")
    if run.osl_tokens < 2:
        raise file.refuse(
            "output tokens",
            f"{run.osl_tokens:g} a request: one token has no time per further token",
            code="not_identifiable",
            hint="run with longer outputs",
        )
    if run.ttft_p50_s is not None and run.ttft_p99_s is not None and run.ttft_p50_s > run.ttft_p99_s:
        raise file.refuse(
            "first tokens",
            f"a median of {run.ttft_p50_s:g} s above the 99th percentile of {run.ttft_p99_s:g} s",
            hint="correct the file",
        )
    return run


def _told_s(file: ResultFile, field: str, *, unit_s: float = MILLI) -> float | None:
    return file.positive(field) * unit_s if file.find(field) is not None else None


def _in_flight(*, answered_per_s: float, ttft_s: float, tpot_s: float, osl_tokens: float) -> float:
    """Little's law: rate times mean time in the system."""
    return answered_per_s * (ttft_s + tpot_s * (osl_tokens - 1))


def _vllm(file: ResultFile) -> ServingRun:
    answered = file.positive("completed")
    isl, osl = file.positive("total_input_tokens") / answered, file.positive("total_output_tokens") / answered
    ttft_s, tpot_s = file.positive("mean_ttft_ms") * MILLI, file.positive("mean_tpot_ms") * MILLI
    answered_per_s = answered / file.positive("duration")
    rate, limit = file.find("request_rate"), file.optional("max_concurrency")
    is_open = is_number(rate) and math.isfinite(rate)
    sent_at_once = not is_open and limit is None
    estimated = _in_flight(answered_per_s=answered_per_s, ttft_s=ttft_s, tpot_s=tpot_s, osl_tokens=osl)
    # Gaps are gamma, and burstiness is their shape: 1 over the square of their coefficient of variation.
    shape = file.positive("burstiness") if file.find("burstiness") is not None else 1.0
    run = ServingRun(
        tool="vllm bench serve",
        path=file.path,
        isl_tokens=isl,
        osl_tokens=osl,
        ttft_s=ttft_s,
        ttft_p50_s=_told_s(file, "median_ttft_ms"),
        ttft_p99_s=_told_s(file, "p99_ttft_ms"),
        tpot_s=tpot_s,
        requests=max(1, round(answered)),
        answered_per_s=answered_per_s,
        request_rate_per_s=float(rate) if is_open and limit is None else None,
        concurrency=limit or (answered if sent_at_once else estimated),
        isl_cv=_list_cv(file, "input_lens"),
        osl_cv=_list_cv(file, "output_lens"),
        gap_cv=shape**-0.5,
        longest_osl_tokens=max(_lengths(file, "output_lens"), default=None),
        has_requests=answered > 1 and all(isinstance(file.find(field), list) for field in VLLM_REQUEST_FIELDS),
        at_once=sent_at_once,
        guesses=any(key.startswith("spec_decode") and value for key, value in file.data.items()),
        model=file.word("model_id"),
    )
    return _checked(file, run, failed=file.optional("failed") or 0.0, answered=answered)


def guidellm_answered(file: ResultFile) -> float:
    """Requests that were answered; before GuideLLM 0.4 the totals stood beside the metrics."""
    return file.positive(file.first("metrics.request_totals.successful", "request_totals.successful"))


def guidellm_model(file: ResultFile) -> str | None:
    """The model that clients asked for."""
    return file.word(file.first("config.backend.model", "worker.backend_model"))


def _guidellm(file: ResultFile) -> ServingRun:
    block, answered = "metrics.{}.successful", guidellm_answered(file)
    means = f"{block}.mean"
    strategy = file.first("config.strategy", "args.strategy")
    kind, limit = file.find(f"{strategy}.type_"), file.optional(f"{strategy}.streams")
    # GuideLLM's time_per_output_token_ms counts the first token in; inter_token_latency_ms is the project's TPOT.
    run = ServingRun(
        tool="GuideLLM",
        path=file.path,
        isl_tokens=file.positive(means.format("prompt_token_count")),
        osl_tokens=file.positive(means.format("output_token_count")),
        ttft_s=file.positive(means.format("time_to_first_token_ms")) * MILLI,
        ttft_p50_s=_told_s(file, f"{block.format('time_to_first_token_ms')}.median"),
        ttft_p99_s=_told_s(file, f"{block.format('time_to_first_token_ms')}.percentiles.p99"),
        tpot_s=file.positive(means.format("inter_token_latency_ms")) * MILLI,
        requests=max(1, round(answered)),
        answered_per_s=file.positive(means.format("requests_per_second")),
        request_rate_per_s=file.positive(f"{strategy}.rate") if kind in ("constant", "poisson") else None,
        concurrency=limit or file.positive(means.format("request_concurrency")),
        isl_cv=_block_cv(file, block.format("prompt_token_count"), deviation="std_dev", center="mean"),
        osl_cv=_block_cv(file, block.format("output_token_count"), deviation="std_dev", center="mean"),
        gap_cv=0.0 if kind == "constant" else 1.0,
        at_once=kind == "throughput",
        model=guidellm_model(file),
    )
    failed = file.optional(file.first("metrics.request_totals.errored", "request_totals.errored"))
    return _checked(file, run, failed=failed or 0.0, answered=answered)


def _aiperf_s(file: ResultFile, field: str) -> float:
    """Seconds of the unit of a latency block, which is authoritative."""
    if file.find(field) is None:
        raise file.refuse(field, "is missing", code="missing_field", hint="run with --streaming")
    unit = file.find(f"{field}.unit")
    if not isinstance(unit, str) or unit not in UNITS_S:
        raise file.refuse(f"{field}.unit", f"{unit!r}; allowed: {', '.join(UNITS_S)}")
    return UNITS_S[unit]


def aiperf_answered(file: ResultFile) -> float:
    """Requests that were answered: AIPerf's count; of GenAI-Perf, which writes none, those that were asked for, or what
    its rate answers in one of its windows."""
    if file.find("request_count.avg") is not None:
        return file.positive("request_count.avg")
    window_s = (file.optional("input_config.measurement_interval") or 0) * MILLI or GENAI_PERF_WINDOW_S
    return file.optional("input_config.request_count") or file.positive("request_throughput.avg") * window_s


def aiperf_model(file: ResultFile) -> str | None:
    """The model that clients asked for: a list of names before AIPerf 0.9."""
    return file.word(file.first("input_config.models.items.0.name", "input_config.endpoint.model_names.0"))


def _aiperf_clients(file: ResultFile) -> ResultFile:
    """The part that says what clients sent: the last phase that counts, since AIPerf 0.9; ``loadgen`` before; of
    GenAI-Perf the stimulus, or the fields at the top."""
    phases = file.find("input_config.phases")
    if isinstance(phases, list):
        counted = [place for place, item in enumerate(phases) if not found_at(item, "exclude_from_results")]
        return file.part(f"input_config.phases.{counted[-1] if counted else 0}")
    return file.part(file.first("input_config.loadgen", "input_config.perf_analyzer.stimulus", "input_config"))


def _aiperf(file: ResultFile) -> ServingRun:
    for field, fine in (("was_cancelled", False), ("is_complete", True)):
        if file.find(field) is (not fine):
            raise file.refuse(field, f"{not fine}: the run did not end", code="not_identifiable")
    osl, answered = file.positive("output_sequence_length.avg"), aiperf_answered(file)
    first_unit_s = _aiperf_s(file, "time_to_first_token")
    clients = _aiperf_clients(file)
    rate, limit = clients.optional(clients.first("rate", "request_rate")), clients.optional("concurrency")
    if clients.find("type") == "concurrency":
        limit = limit or 1.0  # AIPerf leaves its default out
    if not rate and not limit:
        raise clients.refuse("concurrency", "is missing, and so is a request rate", code="missing_field")
    ttft_s = file.positive("time_to_first_token.avg") * first_unit_s
    tpot_s = file.positive("inter_token_latency.avg") * _aiperf_s(file, "inter_token_latency")
    answered_per_s = file.positive("request_throughput.avg")
    shape = clients.optional(clients.first("smoothness", "arrival_smoothness")) or 1.0
    is_even = "constant" in (clients.find("type"), clients.find("arrival_pattern"))
    run = ServingRun(
        tool="AIPerf" if file.find("request_count.avg") is not None else "GenAI-Perf",
        path=file.path,
        isl_tokens=file.positive("input_sequence_length.avg"),
        osl_tokens=osl,
        ttft_s=ttft_s,
        ttft_p50_s=_told_s(file, "time_to_first_token.p50", unit_s=first_unit_s),
        ttft_p99_s=_told_s(file, "time_to_first_token.p99", unit_s=first_unit_s),
        tpot_s=tpot_s,
        requests=max(1, round(answered)),
        answered_per_s=answered_per_s,
        request_rate_per_s=rate if rate and not limit else None,
        concurrency=limit or _in_flight(answered_per_s=answered_per_s, ttft_s=ttft_s, tpot_s=tpot_s, osl_tokens=osl),
        isl_cv=_block_cv(file, "input_sequence_length", deviation="std", center="avg"),
        osl_cv=_block_cv(file, "output_sequence_length", deviation="std", center="avg"),
        gap_cv=0.0 if is_even else shape**-0.5,
        guesses=file.find("pooled_spec_decode_acceptance_histogram") is not None,
        model=aiperf_model(file),
    )
    return _checked(file, run, failed=file.optional("error_request_count.avg") or 0.0, answered=answered)


def _inferencex_degrees(file: ResultFile, pool: str = "") -> dict[str, int]:
    """Degrees of a replica, or of one of a ``pool``, by the scenario's names. With attention split by requests ``tp``
    counts its ranks, over which experts spread."""
    tp, ep = (file.optional(f"{pool}{field}") for field in ("tp", "ep"))
    if tp and str(file.find(f"{pool}dp_attention")).lower() == "true":
        return {"tp_size": 1, "ep_size": round(tp), "dp_size": round(tp)}
    return {name: round(size) for name, size in (("tp_size", tp), ("ep_size", ep)) if size}


def _inferencex_pools(file: ResultFile) -> DisaggregationSpec | None:
    """Its prefill and decode workers, None where replicas do both."""
    if str(file.find("disagg")).lower() != "true":
        return None
    fields = {f"{pool}_replicas": round(file.positive(f"{pool}_num_workers")) for pool in ("prefill", "decode")}
    for pool in ("prefill_", "decode_"):
        fields |= {pool + name: size for name, size in _inferencex_degrees(file, pool).items()}
    return validate(DisaggregationSpec, fields, where=file.path)


def _inferencex(file: ResultFile) -> ServingRun:
    """A result as InferenceX's process_result.py writes it: latencies in seconds, throughput of one accelerator (field
    names from memory, verify)."""
    isl, osl, clients = file.positive("isl"), file.positive("osl"), file.positive("conc")
    share = (1 + INFERENCEX_RANGE_RATIO) / 2
    degrees, pools = _inferencex_degrees(file), _inferencex_pools(file)
    if pools is None:
        devices = (file.optional("tp") or 1.0) * (file.optional("pp") or 1.0)
    else:
        devices = file.positive("num_prefill_gpu") + file.positive("num_decode_gpu")
    run = ServingRun(
        tool="InferenceX",
        path=file.path,
        isl_tokens=isl,
        osl_tokens=osl,
        ttft_s=file.positive("mean_ttft"),
        ttft_p50_s=_told_s(file, "median_ttft", unit_s=1.0),
        ttft_p99_s=_told_s(file, "p99_ttft", unit_s=1.0),
        tpot_s=file.positive("mean_tpot"),
        requests=round(INFERENCEX_REQUESTS_PER_CLIENT * clients),
        answered_per_s=file.positive("tput_per_gpu") * devices / (share * (isl + osl)),
        request_rate_per_s=None,
        concurrency=clients,
        range_ratio=INFERENCEX_RANGE_RATIO,
        guesses=file.word("spec_decoding") not in (None, "none"),
        model=file.word("model"),
        engine=file.word("framework"),
        disaggregation=pools,
        tp_size=degrees.get("tp_size"),
        ep_size=degrees.get("ep_size"),
        dp_size=degrees.get("dp_size"),
    )
    return _checked(file, run, failed=0.0, answered=run.requests)


def load_serving_runs(path: str | Path) -> tuple[ServingRun, ...]:
    """The runs of one result file, one for each benchmark in it.

    Raises FileError, ProfileError: the file cannot be read or is not JSON.
    Raises RoofcastError: it is of no known tool, a field is missing or impossible, or the run cannot tell an engine's
    overheads.
    """
    data, name = json_value(path), str(path)
    if isinstance(data, list) and data:
        return tuple(_run_of(ResultFile(data=item, path=name, prefix=f"[{place}].")) for place, item in enumerate(data))
    benchmarks = found_at(data, "benchmarks")
    if isinstance(benchmarks, list) and benchmarks:
        return tuple(
            _guidellm(ResultFile(data=benchmark, path=name, prefix=f"benchmarks[{index}]."))
            for index, benchmark in enumerate(benchmarks)
        )
    return (_run_of(ResultFile(data=data, path=name)),)


def _run_of(file: ResultFile) -> ServingRun:
    """The run of a file that holds one, by the fields that its tool alone writes."""
    readers = (
        (("time_to_first_token", "request_throughput.avg"), _aiperf),
        (("tput_per_gpu", "conc"), _inferencex),
        (("mean_ttft_ms", "total_input_tokens"), _vllm),
    )
    for fields, reader in readers:
        if any(file.find(field) is not None for field in fields):
            return reader(file)
    raise RoofcastError(
        f"{file.path} is of no known benchmark", field=Option("from"), code="unknown_format", hint=FORMATS
    )


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
