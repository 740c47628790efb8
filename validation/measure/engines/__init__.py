"""Engines installed beside this harness: their Triton kernels as their own code runs them, and a vLLM server."""

from __future__ import annotations

from importlib.util import find_spec


def engine_is_installed(engine: str = "vllm") -> bool:
    """Whether the engine's package, or the part of it that holds these kernels, and Triton can be imported."""
    return find_spec(engine) is not None and find_spec("triton") is not None
