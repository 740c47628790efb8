"""What stands in front of a fleet in a cluster: the engine's router where prompts share prefixes or pools share work,
and the Gateway API inference extension, which llm-d builds on, as the other way to route by prefix.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.planner.handoff.commands import filled
from simulator.planner.handoff.kubernetes import Json, pool_name, service, service_name
from simulator.planner.handoff.settings import LaunchSettings
from simulator.specs.engine.launch import RouterSpec
from simulator.specs.hardware.accelerator import cluster


def _account(name: str, *, rules: list[Json]) -> list[Json]:
    """A service account that may do ``rules`` in its namespace."""
    api = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
        {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name}],
            "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
        },
    ]


_READ = ["get", "list", "watch"]
_PODS: Json = {"apiGroups": [""], "resources": ["pods"], "verbs": _READ}


def _stateless(name: str, container: Json, *, volumes: Sequence[Json] = ()) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "serviceAccountName": name,
                    "containers": [container],
                    **({"volumes": list(volumes)} if volumes else {}),
                },
            },
        },
    }


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
    container: Json = {
        "name": "router",
        "image": cluster().router_image,
        "command": ["sh", "-c", command],
        "env": [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "ports": [{"name": "http", "containerPort": router.port}],
        "readinessProbe": {"tcpSocket": {"port": "http"}},
    }
    return [*_account(name, rules=[_PODS]), _stateless(name, container), service(name, selector=name, port=router.port)]


def gateway_objects(item: LaunchSettings) -> list[Json]:
    """An inference pool behind a gateway, whose endpoint picker weighs cached prefixes, queues and cache use."""
    name, picker, gateway = pool_name(item), f"{pool_name(item)}-picker", cluster().gateway
    inference = "inference.networking.k8s.io"
    pool: Json = {
        "apiVersion": f"{inference}/v1",
        "kind": "InferencePool",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "targetPorts": [{"number": item.launch.port}],
            "endpointPickerRef": {"name": picker, "port": {"number": gateway.picker_port}},
        },
    }
    route: Json = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name},
        "spec": {
            "parentRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "inference-gateway"}],
            "rules": [{"backendRefs": [{"group": inference, "kind": "InferencePool", "name": name}]}],
        },
    }
    config: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": picker},
        "data": {"config.yaml": gateway.picker_config},
    }
    container: Json = {
        "name": "picker",
        "image": gateway.picker_image,
        "args": ["--pool-name", name, "--pool-namespace", "$(POD_NAMESPACE)", "--config-file", "/config/config.yaml"],
        "env": [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "ports": [{"name": "grpc", "containerPort": gateway.picker_port}],
        "volumeMounts": [{"name": "config", "mountPath": "/config"}],
    }
    pools: Json = {"apiGroups": [inference], "resources": ["inferencepools"], "verbs": _READ}
    return [
        pool,
        route,
        config,
        *_account(picker, rules=[_PODS, pools]),
        _stateless(picker, container, volumes=[{"name": "config", "configMap": {"name": picker}}]),
        service(picker, selector=picker, port=gateway.picker_port),
    ]
