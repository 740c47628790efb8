"""From a planned fleet to what runs it: launch commands, manifests, checkpoints to make, the benchmark to verify it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace

from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.planner.fleet.records import Fleet
from simulator.planner.handoff import Checkpoint, LaunchSettings, fleet_settings
from simulator.planner.records import Demand
from simulator.records import dataclass
from simulator.reports.handoff.benchmark import verification
from simulator.reports.handoff.commands import note, script, shell_launch, shell_router
from simulator.reports.handoff.kubernetes import (
    SECRET,
    SECRET_KEY,
    Json,
    gateway_objects,
    pool_objects,
    router_objects,
    weights_claim,
)
from simulator.reports.handoff.kubernetes import service_name as service_name
from simulator.reports.handoff.notes import handoff_notes
from simulator.specs.model.precision import Dtype
from simulator.specs.profiles import list_profiles
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.specs.writing import documents_text

# Presets of llm-compressor and formats of ModelOpt's hf_ptq.py, by the format of the weights.
_COMPRESSED = {Dtype.FP8: "FP8_DYNAMIC", Dtype.FP4: "NVFP4", Dtype.INT4: "W4A16", Dtype.INT8: "W8A8"}
_MODELOPT = {Dtype.FP8: "fp8", Dtype.FP4: "nvfp4", Dtype.INT4: "int4_awq", Dtype.INT8: "int8_sq"}


def checkpoint_script(made: Checkpoint, plan: PrecisionPlan) -> str:
    """The commands, for a model that is served as ``plan`` says; empty where no tool makes it."""
    weights, path, model = plan.weights, made.path.removeprefix("./"), shlex.quote(made.base)
    match made.tool:
        case "compressed-tensors":
            # Formats with scales of their own for activations or groups are calibrated on text; dynamic FP8 is not.
            text = ', dataset="ultrachat_200k", splits="train_sft[:512]", num_calibration_samples=512'
            data, preset = "" if weights is Dtype.FP8 else text, _COMPRESSED.get(weights, weights.value)
            values = {"base": json.dumps(made.base), "made": json.dumps(path), "preset": preset, "data": data}
            return script("compressed-tensors", values)
        case "modelopt":
            cached = "fp8" if plan.kv_dtype is Dtype.FP8 else "none"
            values = {"model": model, "folder": shlex.quote(path), "cache": cached}
            return script("modelopt", {**values, "format": _MODELOPT.get(weights, weights.value)})
        case "gguf":
            name = made.base.rsplit("/", 1)[-1]
            wide = shlex.quote(f"{name}-BF16.gguf")
            commands = script("gguf", {"model": model, "folder": shlex.quote(name), "wide": wide})
            return commands + (f"llama-quantize {wide} {shlex.quote(path)} {made.kind}\n" if made.kind else "")
    return ""


_SHEBANG = "#!/usr/bin/env bash\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffFile:
    """One text to hand over; ``name`` is a file name, ``printed`` whether a report shows it too."""

    name: str
    title: str
    text: str
    printed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """Everything to start the fleet, to check it, and what the commands cannot say."""

    files: tuple[HandoffFile, ...]
    notes: tuple[str, ...]


def handoff_names() -> tuple[str, ...]:
    """Names of all files that some plan is handed over with."""
    pools, engines = ("", "-prefill", "-decode"), list_profiles("engines/launch")
    launches = [f"launch-{engine}{pool}.sh" for engine in engines for pool in pools]
    own = (*launches, "checkpoint.sh", "router.sh", "kubernetes.yaml", "gateway.yaml", "verify.sh")
    return (*own, *(_fleet_name(place, name) for place in _LISTED_FLEETS for name in own))


_LISTED_FLEETS = range(4)
"""Fleets side by side whose files an older answer may have left."""


def _fleet_name(place: int, name: str) -> str:
    return f"fleet-{place + 1}-{name}"


def side_by_side(names: Sequence[str], found: Sequence[Handoff]) -> Handoff:
    """What starts each of several fleets, whose objects in a cluster have the same names."""
    files = (
        replace(file, name=_fleet_name(place, file.name), title=f"{name}: {file.title}")
        for place, (name, item) in enumerate(zip(names, found, strict=True))
        for file in item.files
    )
    notes = dict.fromkeys(said for item in found for said in item.notes)
    return Handoff(files=tuple(files), notes=(note("several_fleets"), *notes))


def _shares_prefixes(items: Sequence[LaunchSettings], demand: Demand) -> bool:
    """Whether which replica a prompt goes to decides on the planned hits."""
    return demand.mix.prefix_hit_fraction > 0 and (len(items) > 1 or items[0].replicas + items[0].spares > 1)


def _launch_files(items: Sequence[LaunchSettings], *, routed: bool) -> list[HandoffFile]:
    """The command of one replica of each pool, and of what stands before them."""
    launch, files = items[0].launch, []
    for item in items:
        pool = f"-{item.role}" if item.role else ""
        text = f"{_SHEBANG}# On each of {item.replicas + item.spares} replicas ({item.spares} of them spare).\n"
        title = f"One {item.role} replica, {launch.title}" if item.role else f"One replica, {launch.title}"
        name = f"launch-{item.deployment.engine.name}{pool}.sh"
        files.append(HandoffFile(name=name, title=title, text=text + shell_launch(item)))
    if routed and launch.router is not None and launch.router.serves(pools=len(items) > 1):
        text = _SHEBANG + "set -euo pipefail\n" + shell_router(launch.router, items)
        files.append(HandoffFile(name="router.sh", title="What stands in front of the replicas", text=text))
    return files


def _checkpoint_file(items: Sequence[LaunchSettings]) -> list[HandoffFile]:
    scripts = "".join(dict.fromkeys(checkpoint_script(item.checkpoint, item.deployment.plan) for item in items))
    if not scripts:
        return []
    text = f"{_SHEBANG}set -euo pipefail\n{scripts}"
    return [HandoffFile(name="checkpoint.sh", title="The checkpoint, made before anything starts", text=text)]


def _manifest(items: Sequence[LaunchSettings], fleet: Fleet, *, routed: bool) -> HandoffFile:
    launch = items[0].launch
    secret = f"kubectl create secret generic {SECRET} --from-literal={SECRET_KEY}=..."
    objects: list[Json] = [weights_claim(items)]
    for item in items:
        objects += pool_objects(item, drain_s=fleet.degraded.e2e_p95_s)
    if routed and launch.router is not None and not launch.router.config and launch.router.serves(pools=len(items) > 1):
        objects += router_objects(launch.router, items)
    return HandoffFile(
        name="kubernetes.yaml",
        title=f"The fleet on Kubernetes ({launch.title})",
        text=f"# Before it: {secret}\n{documents_text(objects)}",
        printed=False,
    )


def launch_handoff(
    fleet: Fleet,
    *,
    model_id: str,
    scheme: str | None,
    demand: Demand,
    objectives: tuple[ObjectiveSpec, ...],
    profiles: str | None = None,
) -> Handoff:
    """Launch commands of the planned engine, the fleet on Kubernetes and a benchmark for one replica of it.

    ``model_id`` : what the engines load; ``scheme`` : the plan's quantization method, if one was asked for
    """
    items = fleet_settings(fleet, model_id=model_id, scheme=scheme, profiles=profiles)
    notes = handoff_notes(items, fleet, demand=demand)
    if not items:
        return Handoff(files=(), notes=notes)
    last, shared = items[-1], _shares_prefixes(items, demand)
    routed = len(items) > 1 or shared
    files = [*_checkpoint_file(items), *_launch_files(items, routed=routed)]
    # Replicas that a launcher of processes joins over servers cannot be started pod by pod.
    if not any(item.servers > 1 and item.launch.join for item in items):
        files.append(_manifest(items, fleet, routed=routed))
    if shared and len(items) == 1:
        text = documents_text(gateway_objects(last))
        title = "Routing by prefix through the Gateway API"
        files.append(HandoffFile(name="gateway.yaml", title=title, text=text, printed=False))
    bench = verification(last, fleet, demand=demand, objectives=objectives)
    title = f"Benchmark that would verify {'a replica' if len(items) == 1 else 'the fleet'}"
    files.append(HandoffFile(name="verify.sh", title=title, text=bench))
    return Handoff(files=tuple(files), notes=notes)
