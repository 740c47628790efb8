"""Measured power of attention kernels on B200: shares of the range between idle and TDP beside FLOPs and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.precision import Dtype
from validation.silicon.split import is_score
from validation.silicon.tables import load_table

Array = NDArray[np.float64]
VERSION = "0.22.0"
"""Of vLLM's tables; later ones carry no power."""
KV_BYTES = {"bfloat16": 2.0, "fp8": 1.0}
SHORTEST_S = 2e-5
"""Shorter kernels leave the counter showing what ran before them."""
HEADS = ("num_heads", "num_key_value_heads", "head_dim")


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRows:
    """Kernels of one phase: share of the power range, MFU and MBU of each; ``held_out`` by head layout."""

    share: Array
    mfu: Array
    mbu: Array
    held_out: NDArray[np.bool_]

    @property
    def features(self) -> Array:
        """[rows, 3]: busy, MFU, MBU."""
        return np.stack((np.ones_like(self.mfu), self.mfu, self.mbu), axis=1)


def _rows(table: pd.DataFrame, *, hardware: AcceleratorSpec, flops: Array, moved: Array) -> PowerRows:
    seconds = table["seconds"].to_numpy(np.float64)
    power_w = table["power"].to_numpy(np.float64)
    return PowerRows(
        share=np.minimum(1.0, (power_w - hardware.idle_w) / (hardware.tdp_w - hardware.idle_w)),
        mfu=flops / seconds / hardware.peak_flops_per_s[Dtype.BF16],
        mbu=moved / seconds / hardware.memory_bytes_per_s,
        held_out=is_score(table, family="power", columns=HEADS),
    )


def _table(root: Path, *, hardware: AcceleratorSpec, name: str) -> pd.DataFrame:
    found = load_table(root, hardware=hardware.name, family="attention", library="vllm", table=name, version=VERSION)
    assert found is not None, "the tables hold attention on B200"
    rows = found.rows
    return rows[(rows["window_size"] == 0) & (rows["seconds"] > SHORTEST_S)].reset_index(drop=True)


def prefill_power(root: Path, *, hardware: AcceleratorSpec) -> PowerRows:
    """Prompt attention without earlier context: 4 b h d FLOPs for each of s (s + 1) / 2 pairs."""
    table = _table(root, hardware=hardware, name="context_attention")
    table = table[table["step"] == 0].reset_index(drop=True)
    tokens, lanes = table["batch_size"] * table["isl"], table["num_heads"] * table["head_dim"]
    kv = table["num_key_value_heads"] * table["head_dim"] * table["kv_cache_dtype"].map(KV_BYTES)
    flops = 4 * tokens * lanes * (table["isl"] + 1) / 2
    moved = tokens * (2 * kv + 2 * lanes * KV_BYTES["bfloat16"])
    return _rows(table, hardware=hardware, flops=flops.to_numpy(), moved=moved.to_numpy())


def decode_power(root: Path, *, hardware: AcceleratorSpec) -> PowerRows:
    """One new token per sequence over ``step`` cached ones."""
    table = _table(root, hardware=hardware, name="generation_attention")
    lanes = table["num_heads"] * table["head_dim"]
    kv = table["num_key_value_heads"] * table["head_dim"] * table["kv_cache_dtype"].map(KV_BYTES)
    flops = 4 * table["batch_size"] * lanes * (table["step"] + 1)
    moved = table["batch_size"] * (2 * kv * (table["step"] + 1) + 2 * lanes * KV_BYTES["bfloat16"])
    return _rows(table, hardware=hardware, flops=flops.to_numpy(), moved=moved.to_numpy())
