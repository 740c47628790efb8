"""Which kernels a release of an engine runs where its library's tables were measured on others."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat

from simulator.specs.base import Spec
from simulator.specs.engine.limits import came_before

KernelLibraryName = Literal["vllm", "sglang", "trtllm", "aiter", "torch"]


class TableKernel(Spec):
    """Matrix products or routed experts of weights in the format ``weights``, on accelerators of ``architectures``, run
    the kernel that the table of ``library`` measured under the format ``kernel``.

    slower, slower_share : a library that measured a slower kernel of the same products, and how far the release's own
        lies from the first to it; slower_until : the release that runs the first alone
    """

    architectures: tuple[str, ...]
    family: Literal["gemm", "moe"]
    weights: str
    library: KernelLibraryName
    kernel: str
    slower: KernelLibraryName | None = None
    slower_share: float = Field(default=0.0, ge=0, le=1)
    slower_until: str | None = None

    def at(self, version: str) -> TableKernel:
        """The kernel as ``version`` runs it."""
        if self.slower_until is None or came_before(version, self.slower_until):
            return self
        return self.model_copy(update={"slower": None, "slower_share": 0.0})


class FusedAllReduce(Spec):
    """All-reduces of a step that add the residual and take the norm in the same kernel, on ``architectures``.

    library : whose table measured the all-reduce of that kernel
    largest_bytes : by number of devices the message up to which it runs; a number that is not listed never does
    """

    architectures: tuple[str, ...]
    library: KernelLibraryName
    largest_bytes: dict[int, PositiveFloat]


class KernelRecipe(Spec):
    """What a release of an engine does with the kernels of its library.

    fused_quantisation : formats whose activations are narrowed inside the kernel that made them, by scales that the
        checkpoint brings: the tables' pass before the product is not run
    """

    fused_quantisation: tuple[str, ...] = ()
    fused_all_reduce: FusedAllReduce | None = None
    kernels: tuple[TableKernel, ...] = ()

    def at(self, version: str) -> KernelRecipe:
        """The recipe as ``version`` runs it."""
        return self.model_copy(update={"kernels": tuple(kernel.at(version) for kernel in self.kernels)})
