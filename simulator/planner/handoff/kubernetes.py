"""A planned fleet as Kubernetes objects: a Deployment a pool, or a LeaderWorkerSet where replicas span servers, with
what they need: weights, secret, probes, service, disruption budget.

Objects as vLLM's and LeaderWorkerSet's deployment pages write them [VllmTeam2026].
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil

from simulator.planner.handoff.commands import environment, options_text, words
from simulator.planner.handoff.settings import START_FIXED_S, LaunchSettings
from simulator.specs.hardware.accelerator import cluster
from simulator.units import GIB

Json = dict[str, object]

LONGEST_NAME = 50
SECRET, SECRET_KEY = "hf-token", "token"
MODELS = "/models"
_PERIOD_S = 10
# Of the volume beyond the weights: tokenizer, a second revision while it is replaced (assumed).
_VOLUME_SPARE = 2
_OPTIONS = "/etc/engine"
# Kubernetes' own default.
_LEAST_DRAIN_S = 30


def service_name(model_id: str) -> str:
    """A Kubernetes name of the model: lower case, digits and hyphens, starting with a letter, at most 50 characters."""
    bare = re.sub(r"[^a-z0-9]+", "-", model_id.rsplit("/", 1)[-1].lower()).strip("-")
    named = bare if bare[:1].isalpha() else f"model-{bare}"
    return named[:LONGEST_NAME].strip("-")


def pool_name(item: LaunchSettings) -> str:
    """Of the objects of a pool."""
    return service_name(item.model_id) + (f"-{item.role}" if item.role else "")


def image(item: LaunchSettings) -> str:
    """The engine's image, pinned to the release of the plan's flags; a name to replace where none is known."""
    hardware, images = item.deployment.hardware, item.launch.images
    found = images.get(hardware.architecture) or images.get(hardware.vendor)
    if found is None:
        return f"YOUR-{item.launch.title}-IMAGE-FOR-{hardware.vendor}:{item.release}".lower()
    name, _, tag = found.rpartition(":")
    return f"{name}:{tag.replace(item.launch.release, item.release)}"


def start_s(item: LaunchSettings) -> float:
    """Time from the start of a replica to its first answer, its weights being on the volume [s]."""
    return START_FIXED_S + item.weights_bytes / item.servers / cluster().volume_bytes_per_s


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
    said: list[Json] = [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": SECRET, "key": SECRET_KEY}}},
        {"name": "HF_HOME", "value": MODELS},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    for name, value in environment(item, places=_places(item)).items():
        said.append({"name": name, "value": value})
    return said


def _mounts(item: LaunchSettings) -> list[Json]:
    mounts: list[Json] = [{"name": "models", "mountPath": MODELS}, {"name": "shm", "mountPath": "/dev/shm"}]
    return [*mounts, {"name": "options", "mountPath": _OPTIONS}] if options_text(item) else mounts


def _probes(item: LaunchSettings) -> Json:
    """Started when it answers, within twice the planned start; ready and alive while it does."""
    answers: Json = {"httpGet": {"path": item.launch.health_path, "port": "http"}, "periodSeconds": _PERIOD_S}
    return {
        "startupProbe": {**answers, "failureThreshold": ceil(2 * start_s(item) / _PERIOD_S)},
        "readinessProbe": {**answers, "periodSeconds": 5, "failureThreshold": 2},
        "livenessProbe": {**answers, "timeoutSeconds": _PERIOD_S, "failureThreshold": 6},
    }


def _container(item: LaunchSettings, *, leads: bool = True) -> Json:
    """The engine; of a replica on several servers only the first pod answers clients."""
    devices, names = item.devices_per_server, cluster()
    requests = {
        "cpu": str(names.cores_per_accelerator * devices),
        "memory": f"{names.host_memory_gib_per_accelerator * devices}Gi",
    }
    engine: Json = {
        "name": "engine",
        "image": image(item),
        "command": _command(item, leads=leads),
        "env": _variables(item),
        "resources": {"requests": requests, "limits": {names.resource(item.deployment.hardware): devices}},
        "volumeMounts": _mounts(item),
    }
    if leads:
        engine |= {"ports": [{"name": "http", "containerPort": item.launch.port}], **_probes(item)}
    return engine


def _download(item: LaunchSettings) -> Json:
    """Brings the checkpoint onto the volume before the engine starts, so that a start does not wait for the network."""
    fetch = f"from huggingface_hub import snapshot_download; snapshot_download({item.checkpoint.path!r})"
    return {
        "name": "download",
        "image": image(item),
        "command": ["python3", "-c", fetch],
        "env": _variables(item)[:2],
        "volumeMounts": _mounts(item)[:1],
    }


def _pod(item: LaunchSettings, container: Json, *, drain_s: float) -> Json:
    hardware = item.deployment.hardware
    names = cluster()
    volumes: list[Json] = [
        {"name": "models", "persistentVolumeClaim": {"claimName": weights_claim_name(item)}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{names.shared_memory_gib}Gi"}},
    ]
    if options_text(item):
        volumes.append({"name": "options", "configMap": {"name": f"{pool_name(item)}-options"}})
    return {
        "nodeSelector": names.node_selector(hardware),
        "tolerations": [{"key": names.resource(hardware), "operator": "Exists", "effect": "NoSchedule"}],
        "terminationGracePeriodSeconds": max(_LEAST_DRAIN_S, ceil(drain_s)),
        **({"initContainers": [_download(item)]} if _is_on_hub(item) else {}),
        "containers": [container],
        "volumes": volumes,
    }


def _metadata(item: LaunchSettings, name: str) -> Json:
    server = {"roofcast/server": item.server.name} if item.server else {}
    return {"name": name, "labels": {"roofcast/hardware": item.deployment.hardware.name, **server}}


def _pod_metadata(item: LaunchSettings) -> Json:
    router = item.launch.router
    notes = router.prefill_annotations if router is not None and item.role == "prefill" else {}
    return {"labels": {"app": pool_name(item)}, **({"annotations": notes} if notes else {})}


def _deployment(item: LaunchSettings, *, drain_s: float) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(item, pool_name(item)),
        "spec": {
            "replicas": item.replicas + item.spares,
            "selector": {"matchLabels": {"app": pool_name(item)}},
            # A new pod takes the accelerators of the old one.
            "strategy": {"rollingUpdate": {"maxUnavailable": max(1, item.spares), "maxSurge": 0}},
            "progressDeadlineSeconds": ceil(2 * start_s(item)) + ceil(drain_s) + 600,
            "template": {"metadata": _pod_metadata(item), "spec": _pod(item, _container(item), drain_s=drain_s)},
        },
    }


def _leader_worker_set(item: LaunchSettings, *, drain_s: float) -> Json:
    worker = _container(item, leads=False)
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": _metadata(item, pool_name(item)),
        "spec": {
            "replicas": item.replicas + item.spares,
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": max(1, item.spares), "maxSurge": 0},
            },
            "leaderWorkerTemplate": {
                "size": item.servers,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": {
                    "metadata": _pod_metadata(item),
                    "spec": _pod(item, _container(item), drain_s=drain_s),
                },
                "workerTemplate": {"spec": _pod(item, worker, drain_s=drain_s)},
            },
        },
    }


def weights_claim_name(item: LaunchSettings) -> str:
    """Of the volume that holds the weights of all pools."""
    return f"{service_name(item.model_id)}-weights"


def weights_claim(items: Sequence[LaunchSettings]) -> Json:
    """A volume that all replicas read; the first of them fills it."""
    size_gib = ceil(_VOLUME_SPARE * max(item.weights_bytes for item in items) / GIB)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": weights_claim_name(items[0])},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": f"{size_gib}Gi"}}},
    }


def service(name: str, *, selector: str, port: int) -> Json:
    """Pods with the label ``app`` under one name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": selector}, "ports": [{"name": "http", "port": port, "targetPort": port}]},
    }


def pool_objects(item: LaunchSettings, *, drain_s: float) -> list[Json]:
    """A pool's replicas, a service, and a budget for node drains; drain_s : for a stopped replica's requests [s]."""
    name = pool_name(item)
    replicas = _leader_worker_set if item.servers > 1 else _deployment
    budget: Json = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": item.replicas, "selector": {"matchLabels": {"app": name}}},
    }
    objects = [replicas(item, drain_s=drain_s), service(name, selector=name, port=item.launch.port), budget]
    options = options_text(item)
    if not options:
        return objects
    settings: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-options"},
        "data": {item.launch.options_file: options},
    }
    return [settings, *objects]
