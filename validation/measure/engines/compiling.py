"""``python -m validation.measure.engines.compiling --processes 12``: engines' kernels, compiled beforehand.

Compiling a kernel for its first call takes a second or two, which would be most of a short visit. Here every case is
built without memory (``meta`` tensors) and compiled into Triton's cache by several processes, without a GPU, while that
measures something else.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

from validation.measure.bench import Bench, Group
from validation.measure.engines import engine_is_installed
from validation.measure.engines.decode import engine_decode_groups
from validation.measure.engines.experts import expert_groups
from validation.measure.engines.extend import extend_groups
from validation.measure.engines.products import engine_product_groups

MEMORY_BYTES = 80 * 10**9
WARP_THREADS = 32
USAGE = 2


def engine_groups(bench: Bench) -> list[Group]:
    """Every group of engines' kernels."""
    return [*expert_groups(bench), *engine_decode_groups(bench), *extend_groups(bench), *engine_product_groups(bench)]


class _Driver:
    """Says for which GPU to compile, and has none."""

    def __init__(self, capability: int) -> None:
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget("cuda", capability, WARP_THREADS)

    def get_current_target(self) -> object:
        """The GPU that is compiled for."""
        return self._target

    def get_current_device(self) -> int:
        """Its number."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """None is there."""
        return 0


def _build_launcher(kernel: Any) -> list[str]:
    """The C function that hands a kernel its arguments, which Triton builds at the first launch; or why it is not."""
    from triton.backends.nvidia.driver import CudaLauncher

    try:
        CudaLauncher(kernel.src, kernel.metadata)
    except Exception as error:
        # A machine without a driver has nothing to link it with; it is then built at the first launch, as usual.
        return [f"launchers are not built: {type(error).__name__}: {str(error).splitlines()[0][:160]}"]
    return []


def compile_share(index: int, processes: int, capability: int) -> tuple[int, list[str]]:
    """Compile every ``processes``-th kernel, from ``index`` on; returns how many, and what did not compile."""
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    driver.set_active(_Driver(capability))
    compile_one, run = JITFunction._do_compile, JITFunction.run
    made: list[str] = []

    refused = []

    def mine(function: object, key: str, *words: object) -> object:
        name = f"{function.__name__} {key}"
        if int(hashlib.sha256(name.encode()).hexdigest(), 16) % processes != index or name in made:
            return None
        made.append(name)
        kernel = compile_one(function, key, *words)
        refused.extend(_build_launcher(kernel))
        return kernel

    def prepared(function: object, *words: object, grid: object, warmup: bool, **named: object) -> object:
        return run(function, *words, grid=grid, warmup=True, **named)

    JITFunction._do_compile, JITFunction.run = mine, prepared
    bench = Bench(device=torch.device("meta"), cache_bytes=1, memory_bytes=MEMORY_BYTES)
    for group in engine_groups(bench):
        for case in group.cases:
            try:
                for call in case.build(1):
                    call()
            except Exception as error:
                # What does not compile is told, and the others still are.
                refused.append(f"{group.name} {case.shape}: {type(error).__name__}: {str(error)[:200]}")
    return len(made), refused


def main(words: Sequence[str] | None = None) -> int:
    """Compile; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m validation.measure.engines.compiling", description=__doc__)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--capability", type=int, default=90, help="compute capability times ten (default: 90)")
    arguments = parser.parse_args(words)
    if not engine_is_installed():
        print("no vllm and triton are installed here", file=sys.stderr)
        return USAGE
    start_s = time.perf_counter()
    shares = [(index, arguments.processes, arguments.capability) for index in range(arguments.processes)]
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        found = pool.starmap(compile_share, shares)
    for line in sorted({line for _, refused in found for line in refused}):
        print(line, file=sys.stderr)
    count = sum(made for made, _ in found)
    print(f"{count} kernels compiled in {time.perf_counter() - start_s:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
