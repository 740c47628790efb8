"""What stands in front of a fleet in a cluster: the engine's router where prompts share prefixes or pools share work,
and the Gateway API inference extension, which llm-d builds on, as the other way to route by prefix.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.planner.handoff.commands import filled
from simulator.planner.handoff.kubernetes import Json, manifest, pool_name, service, service_name
from simulator.planner.handoff.settings import LaunchSettings
from simulator.specs.engine.launch import RouterSpec
from simulator.specs.hardware.accelerator import cluster


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
