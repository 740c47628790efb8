"""From a planned fleet to what runs it: launch commands, a Kubernetes manifest, the benchmark that would verify it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from math import ceil, sqrt

from simulator.engine.lanes.steady_state import LatencyMetric
from simulator.planner.fleet.records import Fleet
from simulator.planner.handoff.engines import sglang_launch, technique_notes, tensorrt_launch, vllm_launch
from simulator.planner.handoff.kubernetes import kubernetes
from simulator.planner.handoff.kubernetes import service_name as service_name
from simulator.planner.handoff.pools import router, transfer_notes
from simulator.planner.handoff.settings import LaunchSettings, fleet_settings
from simulator.planner.records import Demand, Objective
from simulator.specs.model.precision import Dtype
from simulator.traffic.lengths import RequestMix
from simulator.units import KILO

_BENCH_SECONDS = 300.0
_LEAST_PROMPTS = 200
# Lengths spread evenly over mean x (1 - r) to mean x (1 + r) have a coefficient of variation of r / sqrt(3), r below 1.
_RATIO_PER_CV = sqrt(3)
_LARGEST_RATIO = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffFile:
    """One text to hand over. ``name`` is a file name, ``planned`` whether the plan was made for this engine."""

    name: str
    title: str
    text: str
    planned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """Everything to start the fleet, to check it, and what the commands cannot say."""

    files: tuple[HandoffFile, ...]
    notes: tuple[str, ...]


def _goodput(objectives: tuple[Objective, ...]) -> list[str]:
    names = {LatencyMetric.TTFT: "ttft", LatencyMetric.TPOT: "tpot", LatencyMetric.E2E: "e2el"}
    bounds = [f"{names[item.metric]}:{item.bound_s * KILO:g}" for item in objectives]
    return [f"--goodput {' '.join(bounds)}"] if bounds else []


def range_ratio(mix: RequestMix) -> float:
    """Spread of the benchmark's lengths, one for prompts and answers: the smaller of theirs, as far as it goes."""
    return min(_LARGEST_RATIO, _RATIO_PER_CV * min(mix.isl.cv, mix.osl.cv))


def _lengths(mix: RequestMix) -> list[str]:
    """Prompts of the planned mean, of which the planned share is one prefix that all requests have."""
    prompt = max(1, round(mix.isl.mean_tokens))
    shared = min(prompt - 1, round(mix.prefix_hit_fraction * mix.isl.mean_tokens))
    spread = range_ratio(mix)
    return [
        f"--random-input-len {prompt - shared} --random-output-len {max(1, round(mix.osl.mean_tokens))}",
        *([f"--random-prefix-len {shared}"] if shared else []),
        *([f"--random-range-ratio {spread:.2f}"] if spread else []),
    ]


def _benchmark(item: LaunchSettings, fleet: Fleet, *, demand: Demand, objectives: tuple[Objective, ...]) -> str:
    """One replica at its planned share of the peak, long enough for a p95 to settle."""
    # Two pools are loaded together, through their router.
    alone = len(fleet.pools) == 1
    rate = demand.planned_rate_per_s / (fleet.replicas if alone else 1)
    percentiles = sorted({f"{objective.percentile:g}" for objective in objectives} | {"50", "95", "99"}, key=float)
    flags = [
        f"--backend vllm --base-url http://{'REPLICA' if alone else 'ROUTER'}:8000",
        f"--model {shlex.quote(item.model_id)}",
        "--dataset-name random",
        *_lengths(demand.mix),
        f"--request-rate {rate:.4g} --burstiness {1 / demand.mix.arrival_cv**2:.3g}",
        f"--num-prompts {max(_LEAST_PROMPTS, ceil(rate * _BENCH_SECONDS))}",
        "--ignore-eos",
        f"--percentile-metrics ttft,tpot,itl,e2el --metric-percentiles {','.join(percentiles)}",
        *_goodput(objectives),
        "--save-result --result-filename replica.json",
    ]
    return " \\\n  ".join(["vllm bench serve", *flags]) + "\n"


def _launch_files(items: tuple[LaunchSettings, ...], *, before: str) -> list[HandoffFile]:
    """Launch commands of every engine that runs there: of one replica of each pool, and of what stands before them."""
    last = items[-1].deployment
    files = []
    for engine, name, launch in (
        ("vllm", "vLLM", vllm_launch),
        ("sglang", "SGLang", sglang_launch),
        ("tensorrt-llm", "TensorRT-LLM", tensorrt_launch),
    ):
        if engine == "tensorrt-llm" and last.hardware.vendor != "nvidia":
            continue
        texts, title = [launch(item) for item in items], f"One replica, {name}"
        if len(items) > 1:
            heads = (
                f"# {item.replicas + item.spares} {item.role} replicas ({item.spares} of them spare)" for item in items
            )
            texts = [f"{head}\n{text}" for head, text in zip(heads, texts, strict=True)] + [router(engine, items)]
            title = f"One replica of each pool, {name}"
        text = before + "\n".join(texts)
        files.append(
            HandoffFile(name=f"launch-{engine}.sh", title=title, text=text, planned=engine == last.engine.name)
        )
    return sorted(files, key=lambda file: not file.planned)


def launch_handoff(
    fleet: Fleet, *, model_id: str, scheme: str | None, demand: Demand, objectives: tuple[Objective, ...]
) -> Handoff:
    """Launch commands of the engines that run there, the fleet on Kubernetes and a benchmark for one replica of it.

    ``model_id`` : what the engines load; ``scheme`` : the plan's quantization method, if one was asked for
    """
    items = fleet_settings(fleet, model_id=model_id, scheme=scheme)
    item = items[-1]
    before = f"# {_checkpoint_note(item, fleet)}\n" if item.needs_checkpoint else ""
    objects = HandoffFile(
        name="kubernetes.yaml",
        title="The fleet on Kubernetes (vLLM)",
        text=before + "---\n".join(map(kubernetes, items)),
        planned=item.deployment.engine.name == "vllm",
    )
    bench = HandoffFile(
        name="verify.sh",
        title=f"Benchmark that would verify {'a replica' if len(items) == 1 else 'the fleet'}",
        text=_benchmark(item, fleet, demand=demand, objectives=objectives),
        planned=True,
    )
    files = (*_launch_files(items, before=before), objects, bench)
    return Handoff(files=files, notes=_notes(item, fleet, demand=demand))


def _checkpoint_note(item: LaunchSettings, fleet: Fleet) -> str:
    """What takes the place of the published model, whose weights are of another format."""
    way = f" by {fleet.scheme}" if fleet.scheme else ""
    weights = item.deployment.plan.weights.value
    return f"Name a checkpoint whose weights are {weights}{way} in place of {item.model_id}: no flag makes them so."


def _notes(item: LaunchSettings, fleet: Fleet, *, demand: Demand) -> tuple[str, ...]:
    planned, mix = item.deployment.engine, demand.mix
    notes = [
        f"The plan was made for {planned.name} {planned.version}; the other commands say the same in another engine's "
        "words, and its latencies differ. None was run here: vLLM's and SGLang's flags are those of their parsers, "
        "TensorRT-LLM's those of its documentation.",
        "roofcast calibrate --from replica.json fits the engine's overheads to the benchmark, so that the next plan "
        "rests on your own measurement.",
    ]
    if max(mix.isl.cv, mix.osl.cv) > range_ratio(mix) / _RATIO_PER_CV:
        notes.append(
            f"The benchmark spreads lengths evenly (cv {range_ratio(mix) / _RATIO_PER_CV:.2f}); the plan's "
            f"(cv {mix.isl.cv:.2f} of prompts, {mix.osl.cv:.2f} of answers) have longer tails, which make percentiles "
            "worse. For acceptance use a data set of your own."
        )
    if item.needs_checkpoint:
        notes.append(_checkpoint_note(item, fleet))
    elif item.quantization:
        notes.append(
            f"vLLM and SGLang quantize at load time (--quantization {item.quantization}); TensorRT-LLM needs a "
            "checkpoint that is quantized already."
        )
    if item.has_fp8_cache:
        notes.append("An 8-bit cache takes its scales from the checkpoint; without any they are 1.")
    if item.deployment.plan.kv_dtype in (Dtype.FP4, Dtype.INT4):
        notes.append("The commands leave the 4-bit cache of the plan out: vLLM and SGLang have no flag for it.")
    if item.max_model_len < planned.max_model_len:
        notes.append(
            f"--max-model-len is {item.max_model_len}, not the model's {planned.max_model_len}: the KV cache of a "
            "replica holds no more, and an engine refuses to start otherwise."
        )
    notes += [*technique_notes(item.deployment), *transfer_notes(fleet)]
    if item.servers > 1:
        notes.append(
            f"A replica spans {item.servers} servers: the LeaderWorkerSet needs its controller in the cluster, and a "
            "network that the servers share."
        )
    return tuple(notes)
