"""The benchmark that would verify a planned replica: its share of the peak, with the planned lengths, long enough."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Sequence

from simulator.planner.fleet.records import Fleet
from simulator.planner.handoff import (
    LaunchSettings,
    measured_s,
    new_tokens,
    sent_mix,
    sent_rate_per_s,
    sent_requests,
    sent_tokens,
    shared_tokens,
)
from simulator.planner.records import Demand
from simulator.reports.handoff.commands import command_text, script
from simulator.specs.question.plan_values import LatencyMetric, ObjectiveSpec
from simulator.traffic.lengths import RequestMix
from simulator.units import KILO, SECONDS_PER_MINUTE

CLIENT = "vllm==0.15.1"
"""Whose ``vllm bench serve`` sends the requests, to every engine: the release that the flags were checked against."""
RESULT = "replica.json"


def _goodput(objectives: tuple[ObjectiveSpec, ...]) -> list[str]:
    names = {LatencyMetric.TTFT: "ttft", LatencyMetric.TPOT: "tpot", LatencyMetric.E2E: "e2el"}
    bounds = [f"{names[item.metric]}:{item.bound_s * KILO:g}" for item in objectives]
    return [f"--goodput {' '.join(bounds)}"] if bounds else []


def _listed(tokens: Sequence[int]) -> str:
    text = ", ".join(map(str, tokens))
    return textwrap.fill(f"{text},", width=110, initial_indent="    ", subsequent_indent="    ")


def _requests_script(item: LaunchSettings, mix: RequestMix, *, each: int, warm_up: int, count: int) -> str:
    values = {
        "each": str(each),
        "tokenizer": json.dumps(item.checkpoint.base),
        "questions": _listed(new_tokens(mix)),
        "answers": _listed(sent_tokens(mix.osl)),
        "shared": str(shared_tokens(mix)),
        "warm_up": str(warm_up),
        "count": str(count),
        "longest": str(item.max_model_len),
    }
    return script("requests", values)


def _bench(
    item: LaunchSettings, name: str, *, rate_per_s: float, gap_cv: float, count: int, also: Sequence[str]
) -> str:
    return command_text(
        "vllm bench serve",
        [
            '--backend openai --base-url "$TARGET"',
            f"--model {shlex.quote(item.model_id)} --tokenizer {shlex.quote(item.checkpoint.base)}",
            f"--dataset-name custom --dataset-path {name}.jsonl --custom-output-len -1",
            "--skip-chat-template --disable-shuffle --ignore-eos",
            f"--request-rate {rate_per_s:.4g} --burstiness {1 / gap_cv**2:.3g} --num-prompts {count}",
            *also,
        ],
    )


def replica_options(item: LaunchSettings, *, scheme: str | None, system_prompt_tokens: int) -> list[str]:
    """What ``validate --from`` and ``calibrate --from`` have to know of the replica that answered."""
    engine, parallelism, plan = item.deployment.engine, item.deployment.parallelism, item.deployment.plan
    sizes = {name: getattr(parallelism, f"{name}_size") for name in ("tp", "pp", "dp", "ep", "cp")}
    release = [f"--engine-version {engine.version}"] if engine.version else []
    formats = [f"--scheme {scheme}"] if scheme else []
    if not scheme and item.checkpoint.origin != "own":
        formats = [f"--weights {plan.weights.value}"]
    return [
        f"--model {shlex.quote(item.model_id)} --hardware {item.deployment.hardware.name}",
        " ".join(f"--{name} {size}" for name, size in sizes.items() if size > 1 or name == "tp"),
        " ".join([f"--engine {engine.name}", *release, *formats, f"--kv-cache {plan.kv_dtype.value}"]),
        f"--max-num-seqs {engine.max_num_seqs} --max-num-batched-tokens {engine.max_num_batched_tokens}",
        f"--max-model-len {item.max_model_len} --gpu-memory-utilization {engine.gpu_memory_utilization:g}",
        *([f"--system-prompt-tokens {system_prompt_tokens}"] if system_prompt_tokens else []),
    ]


def verification(item: LaunchSettings, fleet: Fleet, *, demand: Demand, objectives: tuple[ObjectiveSpec, ...]) -> str:
    """A script that loads one replica, or the fleet through its router, and holds the result against the plan."""
    mix, alone, each = demand.mix, len(fleet.pools) == 1, demand.answers_per_request
    rate, (warm_up, count) = sent_rate_per_s(fleet, demand), sent_requests(fleet, demand)
    percentiles = sorted({f"{objective.percentile:g}" for objective in objectives} | {"50", "95", "99"}, key=float)
    also = [
        f"--percentile-metrics ttft,tpot,itl,e2el --metric-percentiles {','.join(percentiles)}",
        *_goodput(objectives),
        f"--save-result --save-detailed --result-filename {RESULT}",
    ]
    target = "one replica" if alone else "the router in front of both pools"
    minutes = measured_s(fleet) / SECONDS_PER_MINUTE
    text = script("verify", {"target": target, "client": CLIENT, "minutes": f"{minutes:.2g}"})
    text += _requests_script(item, sent_mix(demand), each=each, warm_up=warm_up, count=count)
    text += _bench(item, "warm-up", rate_per_s=rate, gap_cv=mix.arrival_cv, count=warm_up, also=())
    text += _bench(item, "requests", rate_per_s=rate, gap_cv=mix.arrival_cv, count=count, also=also)
    if not alone or item.deployment.speculation is not None or each > 1:
        return text
    known = replica_options(item, scheme=fleet.scheme, system_prompt_tokens=shared_tokens(mix))
    for command in ("validate", "calibrate"):
        folder = [] if command == "validate" else ["--out my-profiles"]
        text += command_text(f"roofcast {command} --from {RESULT}", [*known, *folder])
    return text
