"""What accelerators are called in a cluster: resources, taints and labels of device plugins."""

from __future__ import annotations

from functools import lru_cache

from simulator.specs.base import Source, Spec
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.profiles import load_file, profile_root

OWN_LABEL = "roofcast/accelerator"
"""Selects nodes of accelerators that no plugin labels; the operator sets it."""


class ClusterNames(Spec):
    """Names by vendor, and the value of the product's label by accelerator."""

    resources: dict[str, str]
    product_labels: dict[str, str]
    products: dict[str, str]
    sources: dict[str, Source]

    def resource(self, hardware: AcceleratorSpec) -> str:
        """What a container asks for, and what its nodes are tainted with; a name to replace where none is known."""
        return self.resources.get(hardware.vendor, f"{hardware.vendor}.example/accelerator")

    def node_selector(self, hardware: AcceleratorSpec) -> dict[str, str]:
        """The label of nodes with this accelerator."""
        label, product = self.product_labels.get(hardware.vendor), self.products.get(hardware.name)
        return {label: product} if label and product else {OWN_LABEL: hardware.name}


@lru_cache(maxsize=1)
def cluster_names() -> ClusterNames:
    """The built-in names."""
    return load_file(ClusterNames, profile_root("hardware_profiles") / "cluster" / "kubernetes.yaml")
