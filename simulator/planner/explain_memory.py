"""Where the memory of a device goes, in one sentence."""

from __future__ import annotations

from simulator.phases.memory import MemoryPlan
from simulator.units import GIGA


def memory_text(memory: MemoryPlan) -> str:
    """``memory per device: 72.0 GB budget = 16.1 weights + ...``."""
    return (
        f"memory per device: {memory.budget_bytes / GIGA:.1f} GB budget = {memory.weights_bytes / GIGA:.1f} weights + "
        f"{memory.activation_bytes / GIGA:.1f} activations + {memory.reserve_bytes / GIGA:.1f} reserve + "
        f"{memory.kv_capacity_bytes / GIGA:.1f} for the KV cache"
    )
