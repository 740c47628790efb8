"""Kernels of an engine that is installed beside this harness: vLLM's Triton kernels, as its own code launches them."""

from __future__ import annotations

from importlib.util import find_spec

ENGINE = "vllm"


def engine_is_installed() -> bool:
    """Whether the engine's package, or the part of it that holds these kernels, and Triton can be imported."""
    return find_spec(ENGINE) is not None and find_spec("triton") is not None
