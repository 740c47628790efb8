"""What has to be there before the handed-over files give what was planned, and what they cannot say."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.phases.deployment import Deployment
from simulator.planner.fleet.records import Fleet
from simulator.planner.handoff.benchmark import RESULT
from simulator.planner.handoff.commands import speculation_items
from simulator.planner.handoff.kubernetes import image, start_s
from simulator.planner.handoff.settings import DRAFT_PLACEHOLDER, LaunchSettings
from simulator.planner.records import Demand
from simulator.specs.hardware.accelerator import OWN_LABEL, cluster
from simulator.specs.model.precision import Dtype
from simulator.units import percent_text

_CHECKED = {
    "parser": "held against its argument parser",
    "documentation": "those of its documentation, not held against its parser",
    "memory": "written from memory: hold them against its --help",
}


def handoff_notes(items: Sequence[LaunchSettings], fleet: Fleet, *, demand: Demand) -> tuple[str, ...]:
    """The notes of a fleet, most needed first."""
    if not items:
        engine = fleet.replica.deployment.engine
        return (f"Nobody described how {engine.name} {engine.version} is started: no launch files.",)
    last = items[-1]
    notes = [
        _release_note(last),
        *_checkpoint_notes(last),
        *_limit_notes(last),
        *dict.fromkeys(note for item in items for note in (*_power_notes(item), *_halves_notes(item))),
        *_cache_notes(last),
        *tier_notes(last),
        *untuned_notes(last),
    ]
    notes += [*technique_notes(last), *_transfer_notes(fleet), *_cluster_notes(items), *_routing_notes(items, demand)]
    return (*notes, _benchmark_note(last, fleet))


def _release_note(item: LaunchSettings) -> str:
    launch = item.launch
    known = launch.sources.get("images")
    tagged = f" ({known.source})" if known is not None else ""
    newer = ""
    if item.release != launch.release:
        newer = f" The plan runs {item.release}: hold the flags against its --help."
    return (
        f"Commands are those of {launch.title} {launch.release}, the image {image(item)}{tagged}; none was run here. "
        f"Its flags are {_CHECKED[launch.checked]}.{newer} A plan for another engine is another plan: --engine."
    )


def _checkpoint_notes(item: LaunchSettings) -> list[str]:
    checkpoint, weights = item.checkpoint, item.deployment.plan.weights.value
    match checkpoint.origin:
        case "own":
            return []
        case "published":
            return [
                f"{checkpoint.path} is served: a published checkpoint of {checkpoint.base} with {weights} weights "
                f"({'read from its configuration' if checkpoint.source == 'profile' else 'from memory, verify'}); "
                "the planned quality is not measured on it."
            ]
        case "quantized_at_load":
            return [
                f"{item.launch.title} quantizes {checkpoint.base} while it loads (--quantization "
                f"{checkpoint.quantization}): the 16-bit weights fit first, and every start reads them."
            ]
        case "made":
            return [
                f"No published checkpoint of {checkpoint.base} with {weights} weights is known that "
                f"{item.launch.title} loads: checkpoint.sh makes {checkpoint.path}; on Kubernetes it belongs onto the "
                "volume of weights. Measure the quality of what it makes."
            ]


def _limit_notes(item: LaunchSettings) -> list[str]:
    planned = item.deployment.engine
    if item.max_model_len >= planned.max_model_len:
        return []
    return [
        f"The longest request is {item.max_model_len} tokens, not the model's {planned.max_model_len}: the KV cache of "
        "a replica holds no more, and an engine refuses to start otherwise."
    ]


def _power_notes(item: LaunchSettings) -> list[str]:
    watts = item.deployment.hardware.power_cap_w
    if watts is None:
        return []
    return [
        f"The plan counts on a limit of {watts:g} W on every accelerator: set it on each server before the "
        f"engine starts (nvidia-smi -pl {watts:g}, amd-smi set --power-cap {watts:g}) and again after a reboot."
    ]


def tier_notes(item: LaunchSettings) -> list[str]:
    """Tiers of the plan for which the engine has no flag, and what those that it has ask for."""
    asked = [tier.medium for tier in item.deployment.engine.kv_tiers]
    missing = [medium for medium in asked if not item.tier_bytes(medium)]
    notes = []
    if missing:
        notes.append(
            f"The commands leave the plan's {' and '.join(missing)} tier out: {item.launch.title} has no flag for it"
            + (" without host memory above it." if all(name in item.launch.tiers for name in missing) else ".")
        )
    if len(missing) < len(asked):
        notes.append(
            "The plan counts on prompts that begin alike reaching one replica: keep the router's cache policy."
        )
    return notes


def untuned_notes(item: LaunchSettings) -> list[str]:
    """Experts in 16 bits for whose number and width the release has no tuned tiles on this accelerator."""
    deployment, traits = item.deployment, item.deployment.kernels.traits
    if traits.untuned is None:
        return []
    name = deployment.plan.format_for("experts").name
    hardware, title = deployment.hardware.name, item.launch.title
    return [
        f"{title} {deployment.engine.version} has no tuned tiles for {count} experts of width {width} in 16 bits on "
        f"{hardware}, and the plan counts on the slower ones that it falls back to. Your own are faster (vLLM's "
        f"benchmarks/kernels/benchmark_moe.py --tune, read from VLLM_TUNED_CONFIG_FOLDER), and so is release "
        f"{traits.untuned.until} or later."
        for count, width in traits.without_tiles(deployment.model, deployment.parallelism, format_name=name)
    ]


def _cache_notes(item: LaunchSettings) -> list[str]:
    cached = item.deployment.plan.kv_dtype
    if cached is Dtype.FP8:
        return ["An 8-bit cache takes its scales from the checkpoint; without any they are 1."]
    if cached in (Dtype.FP4, Dtype.INT4):
        return [f"The commands leave the 4-bit cache of the plan out: {item.launch.title} has no flag for it."]
    return []


def _speculation_notes(item: LaunchSettings) -> list[str]:
    found = item.deployment.speculation
    if found is None:
        return []
    method = found.plan.method
    notes = [
        f"The plan counts on {found.plan.mean_tokens:.2f} tokens per verify step of {method}: measure that on your own "
        "requests; of the benchmark's random words almost no guess is accepted, so that calibrate is left out."
    ]
    entries = speculation_items(item)
    if not entries:
        return [*notes, f"No flag of {item.launch.title} speculates by {method} here: its command leaves it out."]
    is_named = any("draft_model" in entry.flag + entry.value for entry in entries)
    if is_named and item.draft_model == DRAFT_PLACEHOLDER:
        notes.append(f"{DRAFT_PLACEHOLDER} stands for a drafter trained for this model; without one, train it first.")
    return notes


def _halves_notes(item: LaunchSettings) -> list[str]:
    asked = item.conditions()["two_batches"]
    if not asked or any("two_batches" in flag.when for flag in item.launch.flags):
        return []
    return [f"No flag of {item.launch.title} computes one half of a step beside the other's exchange, as planned."]


def technique_notes(item: LaunchSettings) -> list[str]:
    """What techniques of the plan need beyond flags."""
    deployment: Deployment = item.deployment
    spec, notes = deployment.techniques.spec, _speculation_notes(item)
    if spec.sparsity is not None:
        notes.append(
            f"The checkpoint has to be pruned to {spec.sparsity.pattern} and stored compressed: no flag prunes it."
        )
    if spec.weight_offload is not None:
        notes.append(
            f"The plan keeps {percent_text(spec.weight_offload.fraction)} of the layers' weights in host memory: add "
            "the engine's flag for that (--cpu-offload-gb of vLLM and SGLang) with that share of a device's weights; "
            "the command leaves it out."
        )
    if spec.kv_policy is not None:
        notes.append(f"No flag bounds the cache by {spec.kv_policy.method}: it needs the engine's source.")
    return notes


def _transfer_notes(fleet: Fleet) -> list[str]:
    """What has to be there before caches move between pools as planned."""
    if fleet.transfer is None:
        return []
    degrees = [pool.replica.deployment.parallelism.tp_size for pool in fleet.pools]
    unlike = [
        f"Prompts are computed on {fleet.pools[0].hardware} and answers on {fleet.pools[-1].hardware}: one release of "
        "the engine, one checkpoint, cache format and block size on both; try one replica of each before the rest."
    ]
    notes = [
        f"KV caches move over {fleet.transfer.link}: the pools need RDMA between all their servers (NIXL over UCX), "
        f"{fleet.transfer.prompt_s:.3g} s for a mean prompt; check it before anything else.",
        *(unlike if fleet.is_unlike else ()),
    ]
    if degrees[0] > degrees[1]:
        notes.append(
            f"Prefill runs TP{degrees[0]} and decode TP{degrees[1]}: not every release of the KV connectors moves a "
            "cache to fewer devices than it was computed on."
        )
    return notes


def _cluster_notes(items: Sequence[LaunchSettings]) -> list[str]:
    last = items[-1]
    notes = [
        f"A replica is given {2 * start_s(last):.0f} s to start, twice what {last.weights_bytes / last.servers:.2g} "
        "bytes from a network volume and 60 s of start and graph capture take (assumed)."
    ]
    if image(last).startswith("your-"):
        notes.append(f"{image(last)} stands for an image that you build or choose: none with a tag is known.")
    named = {item.deployment.hardware.name: item.deployment.hardware for item in items}
    for name, hardware in named.items():
        if OWN_LABEL in cluster().node_selector(hardware):
            notes.append(f"Label the nodes yourself: kubectl label node NODE {OWN_LABEL}={name}.")
    if any(item.servers > 1 and item.launch.join for item in items):
        notes.append(
            f"A replica spans {last.servers} servers, which {last.launch.title} joins by a launcher of processes: "
            "there is no Kubernetes manifest; use its MPI operator or Slurm."
        )
    elif any(item.servers > 1 for item in items):
        notes.append(
            f"A replica spans {max(item.servers for item in items)} servers: the LeaderWorkerSet needs its controller "
            "in the cluster, and a network that the servers share."
        )
    return notes


def _routing_notes(items: Sequence[LaunchSettings], demand: Demand) -> list[str]:
    hits = demand.mix.prefix_hit_fraction
    if len(items) > 1 or not hits:
        return []
    return [
        f"The plan counts on {percent_text(hits)} of prompt tokens in the prefix cache of the replica that a request "
        "goes to: route by prefix, by the engine's router or by gateway.yaml (Gateway API inference extension, as "
        "llm-d uses it; its objects are written from memory, verify). Requests in turn would find fewer."
    ]


def _benchmark_note(item: LaunchSettings, fleet: Fleet) -> str:
    if len(fleet.pools) > 1:
        return "The benchmark goes to the router and loads both pools; one replica alone shows nothing."
    if item.deployment.speculation is not None:
        return "verify.sh compares latencies with the plan's by hand: the simulation of a result knows no acceptance."
    return (
        f"verify.sh ends with roofcast validate and roofcast calibrate on {RESULT}: the plan's own model beside the "
        "measurement, and an engine profile for the next plan where they differ."
    )
