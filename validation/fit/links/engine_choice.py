"""Which all-reduce algorithm an engine runs for which message: thresholds from the engines' sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.units import KIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Per number of devices the message [bytes] from which each variant runs, ascending.

    variants : law names of each variant, the fastest of which applies
    """

    name: str
    starts: Mapping[int, Mapping[str, float]]
    variants: Mapping[str, tuple[str, ...]]


CUSTOM = {"one_shot": ("one_shot",), "two_shot": ("two_shot",), "multimem": ("multimem",)}
RING = ("ring_ll", "ring_ll128", "ring_simple")

# vLLM's custom all-reduce kernel adds in one shot between 2 devices, below 512 KiB between 4 and below 256 KiB
# between 8, and serves messages below 8 MiB [VLLM2026]. With symmetric memory (multimem) the limits of
# all_reduce_utils.py apply, per compute capability. PCIe groups above 2 devices go to NCCL.
PLAIN = Choice(
    name="custom to 8 MiB",
    starts={
        2: {"one_shot": 0.0, "nccl_large": 8 * MIB},
        4: {"one_shot": 0.0, "two_shot": 512 * KIB, "nccl_large": 8 * MIB},
        8: {"one_shot": 0.0, "two_shot": 256 * KIB, "nccl_large": 8 * MIB},
        16: {"nccl_large": 0.0},
    },
    variants={**CUSTOM, "nccl_large": ("ring_simple",)},
)
HOPPER = Choice(
    name="symmetric memory, limits of compute capability 9.0",
    starts={
        2: {"one_shot": 0.0, "multimem": 8 * MIB, "nccl_large": 64 * MIB},
        4: {"one_shot": 0.0, "two_shot": 512 * KIB, "multimem": 8 * MIB, "nccl_large": 32 * MIB},
        8: {"one_shot": 0.0, "multimem": 256 * KIB, "nccl_large": 64 * MIB},
    },
    variants={**CUSTOM, "nccl_large": ("ring_simple",)},
)
BLACKWELL = Choice(
    name="symmetric memory, limits of compute capability 10.0",
    starts={
        2: {"one_shot": 0.0, "multimem": 2 * MIB, "nccl_large": 8 * MIB},
        4: {"one_shot": 0.0, "two_shot": 512 * KIB, "multimem": 2 * MIB, "nccl_large": 32 * MIB},
        8: {"one_shot": 0.0, "two_shot": 256 * KIB, "multimem": MIB, "nccl_large": 128 * MIB},
    },
    variants={**CUSTOM, "nccl_large": ("ring_simple",)},
)
PCIE = Choice(
    name="custom between 2 devices only",
    starts={2: {"one_shot": 0.0, "nccl_large": 8 * MIB}, 4: {"nccl_all": 0.0}, 8: {"nccl_all": 0.0}},
    variants={**CUSTOM, "nccl_large": ("ring_simple",), "nccl_all": RING},
)
TUNED = Choice(
    name="library's own tuning",
    starts={devices: {"tuned": 0.0} for devices in (2, 4, 8, 16)},
    variants={"tuned": ("one_shot", "two_shot", "ring_ll", "ring_simple")},
)
NCCL = Choice(name="NCCL", starts={}, variants={"nccl": RING})

ENGINE_CHOICES = {
    "vllm": (PLAIN, HOPPER, BLACKWELL, PCIE, TUNED),
    "sglang": (PLAIN, PCIE, TUNED),
    "trtllm": (PLAIN, TUNED),
}
"""Candidates per engine; the fit keeps the one whose laws describe the fit points best."""
