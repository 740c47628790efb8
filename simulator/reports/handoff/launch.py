"""From a planned fleet to what runs it: launch commands, Kubernetes manifests, the benchmark that would verify it."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.planner.fleet.records import Fleet
from simulator.planner.handoff.settings import LaunchSettings, fleet_settings
from simulator.planner.records import Demand
from simulator.records import dataclass
from simulator.reports.handoff.benchmark import verification
from simulator.reports.handoff.checkpoint import checkpoint_script
from simulator.reports.handoff.commands import shell_launch, shell_router
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
from simulator.specs.profiles import list_profiles
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.specs.writing import documents_text

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
    return (*launches, "checkpoint.sh", "router.sh", "kubernetes.yaml", "gateway.yaml", "verify.sh")


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
