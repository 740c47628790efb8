"""A planned fleet as Kubernetes objects that run vLLM: a Deployment, or a LeaderWorkerSet where replicas span servers.

Objects as vLLM's deployment pages write them [VllmTeam2026].
"""

from __future__ import annotations

import json
import re
import shlex

from simulator.planner.handoff.engines import vllm_flags
from simulator.planner.handoff.settings import LaunchSettings

_RESOURCES = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "intel": "habana.ai/gaudi",
    "google": "google.com/tpu",
    "aws": "aws.amazon.com/neuron",
}
_PORT = 8000
_LONGEST_NAME = 50


def service_name(model_id: str) -> str:
    """A Kubernetes name of the model: lower case, digits and hyphens, starting with a letter, at most 50 characters."""
    bare = re.sub(r"[^a-z0-9]+", "-", model_id.rsplit("/", 1)[-1].lower()).strip("-")
    named = bare if bare[:1].isalpha() else f"model-{bare}"
    return named[:_LONGEST_NAME].strip("-")


def _image(item: LaunchSettings) -> str:
    """vLLM's own image exists for NVIDIA, AMD's for its accelerators; others are built."""
    vendor = item.deployment.hardware.vendor
    if vendor == "nvidia":
        return f"vllm/vllm-openai:v{item.deployment.engine.version}"
    return "rocm/vllm:latest" if vendor == "amd" else f"YOUR_VLLM_IMAGE_FOR_{vendor.upper()}"


def _container(item: LaunchSettings, *, extra: tuple[str, ...] = (), serves: bool = True) -> list[str]:
    resource = _RESOURCES.get(item.deployment.hardware.vendor, _RESOURCES["nvidia"])
    words = [word for flag in vllm_flags(item) for word in shlex.split(flag)]
    ready = (
        f"ports: [{{containerPort: {_PORT}}}]",
        "readinessProbe:",
        f"  httpGet: {{path: /health, port: {_PORT}}}",
        "  periodSeconds: 5",
    )
    return [
        "containers:",
        "  - name: engine",
        f"    image: {_image(item)}",
        f"    command: [vllm, serve, {json.dumps(item.model_id)}]",
        "    args:",
        *(f"      - {json.dumps(word)}" for word in (*words, *extra)),
        *(f"    {line}" for line in (ready if serves else ())),
        f'    resources: {{limits: {{"{resource}": {item.devices_per_server}}}}}',
        "    volumeMounts: [{name: shm, mountPath: /dev/shm}]",
        "volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}]",
    ]


def _indented(lines: list[str], *, by: int) -> str:
    return "\n".join(" " * by + line for line in lines)


def _head(kind: str, api: str, name: str, item: LaunchSettings) -> str:
    server = f"\n    roofcast/server: {item.server.name}" if item.server else ""
    return f"""apiVersion: {api}
kind: {kind}
metadata:
  name: {name}
  labels:
    roofcast/hardware: {item.deployment.hardware.name}{server}
spec:
  replicas: {item.replicas + item.spares}  # {item.replicas} for the load, {item.spares} spare
"""


def _deployment(item: LaunchSettings, *, name: str) -> str:
    return f"""{_head("Deployment", "apps/v1", name, item)}  selector:
    matchLabels: {{app: {name}}}
  strategy:
    rollingUpdate: {{maxUnavailable: {max(1, item.spares)}, maxSurge: 0}}
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
{_indented(_container(item), by=6)}
"""


def _leader_worker_set(item: LaunchSettings, *, name: str) -> str:
    join = ("--nnodes", str(item.servers), "--master-addr", "$(LWS_LEADER_ADDRESS)", "--node-rank")
    leader = _container(item, extra=(*join, "0"))
    worker = _container(item, extra=(*join, "$(LWS_WORKER_INDEX)", "--headless"), serves=False)
    return f"""{_head("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", name, item)}  rolloutStrategy:
    type: RollingUpdate
    rollingUpdateConfiguration: {{maxUnavailable: {max(1, item.spares)}, maxSurge: 0}}
  leaderWorkerTemplate:
    size: {item.servers}
    restartPolicy: RecreateGroupOnPodRestart
    leaderTemplate:
      metadata:
        labels: {{app: {name}}}
      spec:
{_indented(leader, by=8)}
    workerTemplate:
      spec:
{_indented(worker, by=8)}
"""


def kubernetes(item: LaunchSettings) -> str:
    """The replicas, a service in front of them, and a budget that keeps the needed ones up while nodes are drained."""
    name = service_name(item.model_id) + (f"-{item.role}" if item.role else "")
    replicas = _deployment(item, name=name)
    if item.servers > 1:
        replicas = _leader_worker_set(item, name=name)
    return f"""{replicas}---
apiVersion: v1
kind: Service
metadata:
  name: {name}
spec:
  selector: {{app: {name}}}
  ports: [{{port: {_PORT}, targetPort: {_PORT}}}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {name}
spec:
  minAvailable: {item.replicas}
  selector:
    matchLabels: {{app: {name}}}
"""
