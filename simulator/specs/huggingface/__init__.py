"""Hugging Face config.json -> ModelSpec, strictly: a field that is not understood is refused."""

from simulator.specs.huggingface.registry import FAMILIES, read_config

__all__ = ["FAMILIES", "read_config"]
