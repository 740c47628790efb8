"""What the attention models share: the cases of a shape as arrays, the machine's facts, and how keys are split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from math import inf
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.errors import ProfileError, did_you_mean
from simulator.operators.work import Array, AttentionShape
from simulator.records import dataclass
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import KernelFit
from simulator.specs.model.precision import BITS, Dtype
from simulator.units import BITS_PER_BYTE

KEY_BLOCK = 128.0
"""Keys that a tile advances by [Dao2023]."""

ACTIVATION_BYTES = 2.0
"""Queries, new keys and values and the output are 16-bit numbers."""

EXPONENTIALS_PER_CLOCK = 16.0
"""Results per clock and SM of the special function units, compute capabilities 8.0 to 10.0 [CudaGuide2025]."""

DOUBLED_EXPONENTIALS = ("blackwell-ultra",)
"""Architectures with twice those units: 10.7 against 5 tera-exponentials/s (NVIDIA, "Inside NVIDIA Blackwell Ultra",
2025-08; from memory, verify)."""

FULL_SHARE = 0.8
"""A grid that fills this share of the slots does not split its keys [Dao2023]."""

EFFICIENT_SHARE = 0.85
"""The fewest splits within this share of the best wave efficiency are taken [Dao2023]."""

SHARE_MARGIN = 1.1
FEW_BLOCKS = 4.0
"""Tiles of at most this many key blocks are never divided by flash-attention 3."""

MOST_SPLITS = 128
_SPLITS: NDArray[np.float64] = np.arange(1.0, MOST_SPLITS + 1.0)[:, None]


class SplitRule(IntEnum):
    """How a kernel divides keys among compute units: never or freely, as flash-attention 2, as flash-attention 3."""

    OWN = 0
    EFFICIENT = 1
    BALANCED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCases:
    """Attention calls as arrays of equal length; ``group`` is query heads per KV head, ``window`` inf without one."""

    sequences: Array
    query_tokens: Array
    context_tokens: Array
    num_kv_heads: Array
    group: Array
    head_dim: Array
    v_head_dim: Array
    window: Array
    kv_element_bytes: Array
    causal: bool = True
    shared_kv: bool = False

    @property
    def key_tokens(self) -> Array:
        """Keys of one sequence, cached and new."""
        return self.context_tokens + self.query_tokens

    @property
    def kv_width(self) -> Array:
        """Stored numbers per key and KV head."""
        return self.head_dim if self.shared_kv else self.head_dim + self.v_head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMachine:
    """Datasheet rates that the physics needs; cap_flops_per_s as a `GemmMachine` has it."""

    peak_flops_per_s: float
    exponentials_per_s: float
    memory_bytes_per_s: float
    l2_bytes: float
    compute_units: float
    clock_hz: float
    cap_flops_per_s: float = inf

    def unit_flops_per_s(self, fraction: float) -> float:
        """Rate of one compute unit of a kernel that reaches ``fraction`` of the peak [FLOP/s]."""
        return min(fraction * self.peak_flops_per_s, self.cap_flops_per_s) / self.compute_units


def attention_machine(hardware: AcceleratorSpec, compute_dtype: Dtype) -> AttentionMachine:
    """Facts of ``hardware``; refuses a number format that its matrix units lack."""
    peak = hardware.peak_flops_per_s.get(compute_dtype)
    if peak is None:
        raise ProfileError(
            f"{hardware.name} has no {compute_dtype.value} matrix rate for attention",
            field="precision",
            code="unsupported_dtype",
            hint=did_you_mean(compute_dtype.value, [dtype.value for dtype in hardware.peak_flops_per_s]),
        )
    per_clock = EXPONENTIALS_PER_CLOCK * (2.0 if hardware.architecture in DOUBLED_EXPONENTIALS else 1.0)
    return AttentionMachine(
        peak_flops_per_s=hardware.uncapped_flops_per_s.get(compute_dtype, peak),
        cap_flops_per_s=peak if compute_dtype in hardware.uncapped_flops_per_s else inf,
        exponentials_per_s=per_clock * hardware.parallel_units * hardware.boost_clock_hz,
        memory_bytes_per_s=hardware.memory_bytes_per_s,
        l2_bytes=hardware.l2_bytes,
        compute_units=float(hardware.parallel_units),
        clock_hz=hardware.boost_clock_hz,
    )


def kernel_dtype(fit: KernelFit, hardware: AcceleratorSpec) -> Dtype:
    """Number format in which the kernel of a fit multiplies: what the fit says, whatever the GEMMs beside it use."""
    if fit.format == "fp8" or MULTIPLIES_FP8 in fit.parameters:
        return Dtype.FP8
    return Dtype.BF16 if Dtype.BF16 in hardware.peak_flops_per_s else Dtype.FP16


MULTIPLIES_FP8 = "multiplies_fp8"
"""Trait of kernels that narrow 16-bit queries to the format of their 8-bit cache."""


def attention_cases(shape: AttentionShape) -> AttentionCases:
    """The cases of one operator row, its scalars broadcast over its arrays. A case without sequences or queries takes
    no time, which its caller knows; here it stands for one of each."""
    sequences, query, context = np.broadcast_arrays(shape.sequences, shape.query_tokens, shape.context_tokens)
    ones = np.ones(len(sequences))
    return AttentionCases(
        sequences=np.where(sequences > 0, sequences, 1.0),
        query_tokens=np.where(query > 0, query, 1.0),
        context_tokens=np.asarray(context, dtype=np.float64),
        num_kv_heads=ones * shape.num_kv_heads,
        group=ones * (shape.num_heads / shape.num_kv_heads),
        head_dim=ones * shape.head_dim,
        v_head_dim=ones * shape.v_head_dim,
        window=ones * (np.inf if shape.window is None else shape.window),
        kv_element_bytes=ones * (BITS[shape.kv_dtype] / BITS_PER_BYTE),
        causal=shape.causal,
        shared_kv=shape.shared_kv,
    )


def efficient_splits(tiles: Array, blocks: Array, *, slots: float) -> Array:
    """Parts into which flash-attention divides the keys of each tile when tiles alone leave slots idle [-].

    The fewest of up to 128 parts whose last wave is within EFFICIENT_SHARE of the fullest [Dao2023]; 1 where
    the tiles already fill FULL_SHARE of the slots. tiles, blocks : arrays of tiles in the grid, key blocks a tile.
    """
    splits = np.ones(len(tiles))
    idle = np.flatnonzero((tiles < FULL_SHARE * slots) & (blocks > 1))
    if len(idle) == 0:
        return splits
    few, keys = tiles[idle], blocks[idle]
    per_part = np.ceil(keys / _SPLITS)
    fewer = np.ceil(keys / np.maximum(_SPLITS - 1.0, 1.0))
    useful = (_SPLITS == 1.0) | ((per_part != fewer) & (np.minimum(keys, slots) >= _SPLITS))
    waves = few * _SPLITS / slots
    efficiency = np.where(useful, waves / np.ceil(waves), 0.0)
    enough = efficiency >= EFFICIENT_SHARE * efficiency.max(axis=0)
    splits[idle] = 1.0 + np.argmax(enough, axis=0)
    return splits


def balanced_splits(tiles: Array, blocks: Array, *, tiles_of_one: Array, slots: float) -> Array:
    """Parts into which flash-attention 3 divides the keys of calls with sequences of any length [-].

    Equation
    --------
    splits = ceil(blocks / ceil(1.1 tiles blocks / slots)), at most MOST_SPLITS

    Parameters
    ----------
    tiles, blocks : tiles of the grid and key blocks of a tile [-]
    tiles_of_one : tiles of one sequence [-]
    slots : thread blocks that run at once [-]

    Range of validity
    -----------------
    1 where the tiles of one sequence nearly fill the device, or where keys are few. Leaves out other kernels' rules.

    References
    ----------
    [Shah2024]

    Examples
    --------
    Parts of ceil(1.1 x 8 x 64 / 132) = 5 blocks.

    >>> eight = np.array([8.0])
    >>> float(balanced_splits(eight, np.array([64.0]), tiles_of_one=eight, slots=132.0)[0])
    13.0
    """
    share = np.ceil(SHARE_MARGIN * tiles * blocks / slots)
    splits = np.clip(np.ceil(blocks / share), 1.0, MOST_SPLITS)
    allowed: Array = np.where((tiles_of_one < FULL_SHARE * slots) & (blocks > FEW_BLOCKS), splits, 1.0)
    return allowed


def append_seconds(
    cases: AttentionCases, *, machine: AttentionMachine, token_cycles: float, bytes_per_s: Array | float
) -> Array:
    """Writing the new keys and values into the paged cache [s].

    One thread block per token, as wide as its keys but at most THREADS_PER_TOKEN numbers, costs ``token_cycles`` of
    one compute unit at full width; never faster than reading and writing the bytes.
    """
    tokens = cases.sequences * cases.query_tokens
    width = cases.num_kv_heads * cases.head_dim
    issue = (
        tokens * np.minimum(width / THREADS_PER_TOKEN, 1.0) * token_cycles / (machine.clock_hz * machine.compute_units)
    )
    numbers = tokens * cases.num_kv_heads * cases.kv_width
    moved = numbers * (ACTIVATION_BYTES + cases.kv_element_bytes) / bytes_per_s
    seconds: Array = np.hypot(issue, moved)
    return seconds


THREADS_PER_TOKEN = 512.0
"""Widest thread block of the cache-append kernel, one number a thread (vLLM csrc/cache_kernels.cu)."""


# vLLM's decode tables stop at this many KV heads. SGLang runs the same kernel on some architectures and was measured on
# more, so that multi-head attention need not be extrapolated.
MEASURED_KV_HEADS = 8


_OF_A_KERNEL = attrgetter(
    *("is_decode", "head_dim", "v_head_dim", "window", "causal", "shared_kv", "splits_keys"),
    *("compute_dtype", "kv_dtype", "expanded_widths"),
)


def attention_kernel(shape: AttentionShape) -> tuple[object, ...]:
    """What of a call its company has to share: its kernel, and whether another library's tables may price it."""
    return (*_OF_A_KERNEL(shape), shape.num_kv_heads > MEASURED_KV_HEADS)


def join_attention(shapes: Sequence[AttentionShape]) -> AttentionShape:
    """The cases of calls of one kernel, end to end."""
    sizes = [np.size(shape.sequences) for shape in shapes]

    def over_cases(values: Sequence[ArrayLike]) -> Array:
        return np.concatenate([np.broadcast_to(value, (size,)) for value, size in zip(values, sizes, strict=True)])

    # Prices broadcast heads just as sizes, although a row of the operator list has one number of them.
    heads: Any = over_cases([shape.num_heads for shape in shapes])
    kv_heads: Any = over_cases([shape.num_kv_heads for shape in shapes])
    return replace(
        shapes[0],
        sequences=over_cases([shape.sequences for shape in shapes]),
        query_tokens=over_cases([shape.query_tokens for shape in shapes]),
        context_tokens=over_cases([shape.context_tokens for shape in shapes]),
        num_heads=heads,
        num_kv_heads=kv_heads,
    )
