"""Which kernels a release of an engine runs where its library's tables were measured on others."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat

from simulator.specs.base import Spec

KernelLibraryName = Literal["vllm", "sglang", "trtllm", "aiter", "torch"]


class TableKernel(Spec):
    """Matrix products or routed experts of weights in the format ``weights``, on accelerators of ``architectures``, run
    the kernel that the table of ``library`` measured under the format ``kernel``.

    slower, slower_share : a library that measured a slower kernel of the same products, and how far the release's own
        lies from the first to it
    """

    architectures: tuple[str, ...]
    family: Literal["gemm", "moe"]
    weights: str
    library: KernelLibraryName
    kernel: str
    slower: KernelLibraryName | None = None
    slower_share: float = Field(default=0.0, ge=0, le=1)


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
