"""A planned fleet as Kubernetes objects: a Deployment a pool, or a LeaderWorkerSet where replicas span servers, with
what they need: weights, secret, probes, service, disruption budget. ``manifests.yaml`` shows each object as a whole
[VllmTeam2026].
In front of them: the engine's router where prompts share prefixes or pools share work, and the Gateway API inference
extension, which llm-d builds on, as the other way to route by prefix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil
from string import Template
from typing import Any

from simulator.planner.handoff import PROBE_PERIOD_S, LaunchSettings
from simulator.reports.handoff.commands import environment, filled, options_text, templates, words
from simulator.specs.engine.launch import RouterSpec
from simulator.specs.hardware.accelerator import cluster
from simulator.units import GIB

Json = dict[str, object]

_PLACE = re.compile(r"\$\{(\w+)\}")
LONGEST_NAME = 50
SECRET, SECRET_KEY = "hf-token", "token"
MODELS = "/models"
_OPTIONS = "/etc/engine"
# Kubernetes' own default.
_LEAST_DRAIN_S = 30


def manifest(name: str, values: Mapping[str, object]) -> Any:
    """What stands under that name in ``manifests.yaml``, filled with ``values``."""
    return _filled(templates("manifests")[name], values)


def _filled(held: Any, values: Mapping[str, object]) -> Any:
    if isinstance(held, dict):
        return {key: found for key, item in held.items() if (found := _filled(item, values)) is not None}
    if isinstance(held, list):
        return [found for item in held if (found := _filled(item, values)) is not None]
    if not isinstance(held, str) or "${" not in held:
        return held
    whole = _PLACE.fullmatch(held)
    return values[whole[1]] if whole else Template(held).substitute(values)


def service_name(model_id: str) -> str:
    """A Kubernetes name of the model: lower case, digits and hyphens, starting with a letter, at most 50 characters."""
    bare = re.sub(r"[^a-z0-9]+", "-", model_id.rsplit("/", 1)[-1].lower()).strip("-")
    named = bare if bare[:1].isalpha() else f"model-{bare}"
    return named[:LONGEST_NAME].strip("-")


def pool_name(item: LaunchSettings) -> str:
    """Name of the objects of a pool."""
    return service_name(item.model_id) + (f"-{item.role}" if item.role else "")


def image(item: LaunchSettings) -> str:
    """The engine's image, pinned to the release of the plan's flags; a name to replace where none is known."""
    hardware, images = item.deployment.hardware, item.launch.images
    found = images.get(hardware.architecture) or images.get(hardware.vendor)
    if found is None:
        return f"YOUR-{item.launch.title}-IMAGE-FOR-{hardware.vendor}:{item.release}".lower()
    name, _, tag = found.rpartition(":")
    return f"{name}:{tag.replace(item.launch.release, item.release)}"


def _is_on_hub(item: LaunchSettings) -> bool:
    return item.checkpoint.origin != "made"


def _places(item: LaunchSettings, *, leads: bool = True) -> Mapping[str, str]:
    """Where a pod finds its rank, the first pod of its replica, itself and its options."""
    return {
        "rank": "0" if leads else "$(LWS_WORKER_INDEX)",
        "head": "$(LWS_LEADER_ADDRESS)",
        "host": "$(POD_IP)",
        "options_file": f"{_OPTIONS}/{item.launch.options_file}",
    }


def _command(item: LaunchSettings, *, leads: bool) -> list[str]:
    path = item.checkpoint.path
    said = [*words(item, places=_places(item, leads=leads)), *([] if leads else item.launch.worker_flags)]
    if _is_on_hub(item):
        return said
    return [f"{MODELS}/{path.removeprefix('./')}" if word == path else word for word in said]


def _variables(item: LaunchSettings) -> list[Json]:
    said: list[Json] = manifest("variables", {"secret": SECRET, "secret_key": SECRET_KEY, "models": MODELS})
    for name, value in environment(item, places=_places(item)).items():
        said.append({"name": name, "value": value})
    return said


def _mounts(item: LaunchSettings) -> list[Json]:
    mounts: list[Json] = [{"name": "models", "mountPath": MODELS}, {"name": "shm", "mountPath": "/dev/shm"}]
    return [*mounts, {"name": "options", "mountPath": _OPTIONS}] if options_text(item) else mounts


def _container(item: LaunchSettings, *, leads: bool = True) -> Json:
    """The engine; of a replica on several servers only the first pod answers clients."""
    devices, names = item.devices_per_server, cluster()
    values = {
        "image": image(item),
        "command": _command(item, leads=leads),
        "variables": _variables(item),
        "cpu": str(item.host_cores),
        "memory_gib": item.host_memory_gib,
        "limits": {names.resource(item.deployment.hardware): devices},
        "mounts": _mounts(item),
        "port": item.launch.port,
        "path": item.launch.health_path,
        "period_s": PROBE_PERIOD_S,
        "failures": item.probes_to_start,
    }
    engine: Json = manifest("engine", values)
    return engine | manifest("answering", values) if leads else engine


def _download(item: LaunchSettings) -> Json:
    fetch = f"from huggingface_hub import snapshot_download; snapshot_download({item.checkpoint.path!r})"
    own = {"variables": _variables(item)[:2], "mounts": _mounts(item)[:1]}
    found: Json = manifest("download", {"image": image(item), "fetch": fetch, **own})
    return found


def _pod(item: LaunchSettings, container: Json, *, drain_s: float) -> Json:
    hardware, names = item.deployment.hardware, cluster()
    options = {"name": "options", "configMap": {"name": f"{pool_name(item)}-options"}} if options_text(item) else None
    values = {
        "nodes": names.node_selector(hardware),
        "resource": names.resource(hardware),
        "drain_s": max(_LEAST_DRAIN_S, ceil(drain_s)),
        "before": [_download(item)] if _is_on_hub(item) else None,
        "container": container,
        "claim": weights_claim_name(item),
        "shared_gib": names.shared_memory_gib,
        "options": options,
    }
    found: Json = manifest("pod", values)
    return found


def _metadata(item: LaunchSettings, name: str) -> Json:
    server = {"roofcast/server": item.server.name} if item.server else {}
    return {"name": name, "labels": {"roofcast/hardware": item.deployment.hardware.name, **server}}


def _pod_metadata(item: LaunchSettings) -> Json:
    router = item.launch.router
    notes = router.prefill_annotations if router is not None and item.role == "prefill" else {}
    return {"labels": {"app": pool_name(item)}, **({"annotations": notes} if notes else {})}


def _replicas(item: LaunchSettings, *, drain_s: float) -> Json:
    """A Deployment, or a LeaderWorkerSet where a replica spans servers."""
    values = {
        "name": pool_name(item),
        "metadata": _metadata(item, pool_name(item)),
        "replicas": item.replicas + item.spares,
        "unavailable": max(1, item.spares),
        "deadline_s": ceil(2 * item.start_s) + ceil(drain_s) + 600,
        "pod_metadata": _pod_metadata(item),
        "pod": _pod(item, _container(item), drain_s=drain_s),
        "servers": item.servers,
        "worker": _pod(item, _container(item, leads=False), drain_s=drain_s) if item.servers > 1 else None,
    }
    found: Json = manifest("leader_worker_set" if item.servers > 1 else "deployment", values)
    return found


def weights_claim_name(item: LaunchSettings) -> str:
    """Name of the volume that holds the weights of all pools."""
    return f"{service_name(item.model_id)}-weights"


def weights_claim(items: Sequence[LaunchSettings]) -> Json:
    """A volume that all replicas read."""
    # Beside the weights: tokenizer, a second revision while it is replaced (assumed).
    size_gib = ceil(2 * max(item.weights_bytes for item in items) / GIB)
    found: Json = manifest("claim", {"name": weights_claim_name(items[0]), "size_gib": size_gib})
    return found


def service(name: str, *, selector: str, port: int) -> Json:
    """Pods with the label ``app`` under one name."""
    found: Json = manifest("service", {"name": name, "selector": selector, "port": port})
    return found


def pool_objects(item: LaunchSettings, *, drain_s: float) -> list[Json]:
    """A pool's replicas, a service, and a budget for node drains; drain_s : for a stopped replica's requests [s]."""
    name, options = pool_name(item), options_text(item)
    config = {"name": f"{name}-options", "data": {item.launch.options_file: options}}
    return [
        *([manifest("config", config)] if options else []),
        _replicas(item, drain_s=drain_s),
        service(name, selector=name, port=item.launch.port),
        manifest("budget", {"name": name, "replicas": item.replicas}),
    ]


def router_flags(router: RouterSpec, items: Sequence[LaunchSettings]) -> list[str]:
    """Flags of the router that finds the replicas of every pool by their labels."""
    selectors = [filled(router.selector_flags[item.role], {"name": pool_name(item)}) for item in items]
    return [
        f"--host 0.0.0.0 --port {router.port}",
        *(router.pool_flags if len(items) > 1 else router.flags),
        f"--service-discovery --service-discovery-port {items[0].launch.port}",
        "--service-discovery-namespace $POD_NAMESPACE",
        *selectors,
    ]


def router_objects(router: RouterSpec, items: Sequence[LaunchSettings]) -> list[Json]:
    """The engine's router as a deployment that watches the pods, and the service that clients use."""
    name = f"{service_name(items[0].model_id)}-router"
    command = f"pip install --quiet {router.package} && exec {router.command} {' '.join(router_flags(router, items))}"
    container = manifest("router", {"image": cluster().router_image, "command": command, "port": router.port})
    return _stateless(name, container, rules=("reads_pods",), port=router.port)


def _stateless(
    name: str, container: Json, *, rules: Sequence[str], port: int, volumes: Sequence[Json] | None = None
) -> list[Json]:
    """One pod that may do what ``rules`` say, and a service for it."""
    return [
        *manifest("account", {"name": name, "rules": [manifest(rule, {}) for rule in rules]}),
        manifest("stateless", {"name": name, "container": container, "volumes": volumes}),
        service(name, selector=name, port=port),
    ]


def gateway_objects(item: LaunchSettings) -> list[Json]:
    """An inference pool behind a gateway, whose endpoint picker weighs cached prefixes, queues and cache use."""
    name, picker, gateway = pool_name(item), f"{pool_name(item)}-picker", cluster().gateway
    port, rules = gateway.picker_port, ("reads_pods", "reads_inference_pools")
    container = manifest("picker", {"name": name, "image": gateway.picker_image, "port": port})
    volumes: list[Json] = [{"name": "config", "configMap": {"name": picker}}]
    return [
        *manifest("gateway", {"name": name, "port": item.launch.port, "picker": picker, "picker_port": port}),
        manifest("config", {"name": picker, "data": {"config.yaml": gateway.picker_config}}),
        *_stateless(picker, container, rules=rules, port=port, volumes=volumes),
    ]
