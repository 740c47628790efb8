"""What accelerators are called in a Kubernetes cluster, and what pods take there beside them."""

from __future__ import annotations

from functools import lru_cache

from pydantic import PositiveFloat, PositiveInt

from simulator.specs.base import Source, Spec
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.profiles import load_file, profile_root

OWN_LABEL = "roofcast/accelerator"
"""Selects nodes of accelerators that no plugin labels; the operator sets it."""


class GatewaySpec(Spec):
    """The endpoint picker of the Gateway API inference extension."""

    picker_image: str
    picker_port: PositiveInt
    picker_config: str


class ClusterSpec(Spec):
    """Names of device plugins by vendor and accelerator, and what a pod asks for.

    volume_bytes_per_s : at which a replica reads its weights, where nothing is known of the volume
    """

    resources: dict[str, str]
    product_labels: dict[str, str]
    products: dict[str, str]
    volume_bytes_per_s: PositiveFloat
    cores_per_accelerator: PositiveInt
    host_memory_gib_per_accelerator: PositiveInt
    shared_memory_gib: PositiveInt
    router_image: str
    gateway: GatewaySpec
    sources: dict[str, Source]

    def resource(self, hardware: AcceleratorSpec) -> str:
        """What a container asks for, and what its nodes are tainted with; a name to replace where none is known."""
        return self.resources.get(hardware.vendor, f"{hardware.vendor}.example/accelerator")

    def node_selector(self, hardware: AcceleratorSpec) -> dict[str, str]:
        """The label of nodes with this accelerator."""
        label, product = self.product_labels.get(hardware.vendor), self.products.get(hardware.name)
        return {label: product} if label and product else {OWN_LABEL: hardware.name}


@lru_cache(maxsize=1)
def cluster() -> ClusterSpec:
    """The built-in facts."""
    return load_file(ClusterSpec, profile_root("hardware_profiles") / "cluster" / "kubernetes.yaml")
