"""AMD's tuned kernels in SI units: products and fused expert layers of CDNA3 and CDNA4, from the tuner of AITER.

A row is the best kernel that the tuner found for one shape, timed in a loop. ``data`` below is the folder that holds
``today/amd_gemm.csv`` and ``today/amd_moe.csv``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from simulator.errors import FileError
from simulator.operators.work import MatmulFormat
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.model.precision import Dtype
from simulator.units import BITS_PER_BYTE, MICRO
from validation.silicon.split import folds, is_score

SOURCE = "ROCm/aiter, tuned tables of commit e4048607 (2026-08)"
GEMM_TABLE = Path("today") / "amd_gemm.csv"
MOE_TABLE = Path("today") / "amd_moe.csv"
CHIP = "chip"
"""Column that names the chip of a row where several are fitted together."""
GEMM_SHAPE = ("n", "k")
MOE_SHAPE = ("model_dim", "inter_dim", "experts", "topk")
OUTPUT_BYTES = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A chip of the tables; ``compute_units`` of the die of ``profile`` are active on it."""

    profile: str
    gfx: str
    compute_units: int

    @property
    def active_share(self) -> float:
        """Share of the profile's compute units that are active."""
        return self.compute_units / load_hardware(self.profile).compute_units

    def facts(self) -> AcceleratorSpec:
        """The profile's facts with this chip's share of the compute units: the same clock, cache and memory."""
        hardware = load_hardware(self.profile)
        share = self.active_share
        peaks = {dtype: peak * share for dtype, peak in hardware.peak_flops_per_s.items()}
        return hardware.model_copy(update={"compute_units": self.compute_units, "peak_flops_per_s": peaks})


CHIPS = {
    "mi300x": Chip(profile="mi300x", gfx="gfx942", compute_units=304),
    "mi308x": Chip(profile="mi300x", gfx="gfx942", compute_units=80),
    "mi355x": Chip(profile="mi355x", gfx="gfx950", compute_units=256),
}
"""MI308X is MI300X with 80 of its 304 compute units: what was tuned on it alone tells about the architecture."""


def _plain(name: str, *, bits: float, math: Dtype, weight_bits: float | None = None) -> MatmulFormat:
    """The tuner times the product alone: its inputs were quantised before."""
    return MatmulFormat(name=name, weight_bits=weight_bits or bits, activation_bits=bits, math=math)


FORMATS: dict[str, MatmulFormat] = {
    "bf16": _plain("bf16", bits=16, math=Dtype.BF16),
    "fp8": _plain("fp8", bits=8, math=Dtype.FP8),
    "fp8_block": _plain("fp8_block", bits=8 + 32 / 128, weight_bits=8 + 32 / 128**2, math=Dtype.FP8),
    "int8": _plain("int8", bits=8, math=Dtype.INT8),
    "mxfp4_w4a4": _plain("mxfp4_w4a4", bits=4 + 8 / 32, math=Dtype.FP4),
    "mxfp4": _plain("mxfp4", bits=16, weight_bits=4 + 8 / 32, math=Dtype.BF16),
}
"""Format of the operators -> that of the fit."""


def read_table(path: Path) -> pd.DataFrame:
    """A table of the folder as it stands."""
    try:
        return pd.read_csv(path, low_memory=False)
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}", field="--data") from error


def _read(path: Path) -> pd.DataFrame:
    rows = read_table(path)
    rows["seconds"] = rows["us"].astype(float) * MICRO
    return rows[rows["seconds"] > 0]


def _of_chip(rows: pd.DataFrame, chip: Chip) -> pd.DataFrame:
    """Rows that name the chip in full: some state a die without its number of compute units."""
    return rows[(rows["gfx"] == chip.gfx) & (rows["cu_num"] == chip.compute_units)]


def _gemm_format(rows: pd.DataFrame) -> pd.Series:
    quant, weights = rows["quant"].fillna(""), rows["dtype_w"].fillna("")
    wide = np.select(
        [
            quant.str.startswith("blockscale"),
            quant.str.startswith("per-1x32"),
            weights.str.contains("float8|fp8"),
            weights == "int8",
            weights == "bf16",
        ],
        ["fp8_block", "mxfp4_w4a4", "fp8", "int8", "bf16"],
        default="",
    )
    return pd.Series(wide, index=rows.index)


TRITON_TILE = 64
"""Triton's kernel was timed untuned where the width fills no such tile: widths of 100, 200 and 800 on MI355X, which are
no share of a served model, take 2 to 14 times as long as others, and longer for 1,024 rows than for 16,384."""


def gemm_rows(data: Path, *, name: str, fmt: str) -> pd.DataFrame:
    """Products of one chip and format: m, n, k, b of them at once, seconds (median over kernels that were tuned apart;
    measured_s is the same), fit or score.

    Rows that would have read their operands faster than the memory delivers them are left out: the loop found them in
    the last-level cache, or nothing was computed.
    """
    chip = CHIPS[name]
    rows = _of_chip(_read(data / GEMM_TABLE), chip)
    rows = rows[(_gemm_format(rows) == fmt) & ~((rows["libtype"] == "triton") & (rows["n"] % TRITON_TILE > 0))]
    rows = rows.fillna({"b": 1.0})
    rows = rows.groupby(["b", "m", "n", "k"], as_index=False)["seconds"].median()
    format, memory = FORMATS[fmt], chip.facts().memory_bytes_per_s
    moved = rows["n"] * rows["k"] * format.weight_bits + rows["m"] * rows["k"] * format.activation_bits
    moved = rows["b"] * (moved / BITS_PER_BYTE + OUTPUT_BYTES * rows["m"] * rows["n"])
    rows = rows[moved / rows["seconds"] <= memory].reset_index(drop=True)
    rows["measured_s"], rows[CHIP] = rows["seconds"], name
    rows["is_score"] = is_score(rows, family="gemm", columns=GEMM_SHAPE)
    rows["fold"] = folds(rows, family="gemm", columns=GEMM_SHAPE, count=4)
    return rows


def _moe_format(rows: pd.DataFrame) -> pd.Series:
    quant = rows["quant"].fillna("")
    inputs, weights = (rows[name].fillna("").str.slice(0, 6) for name in ("dtype_a", "dtype_w"))
    few = rows["tokens"] <= WIDE_INPUT_TOKENS
    narrow = weights == "float4"
    found = np.select(
        [
            narrow & (inputs == "float4"),
            narrow & ((inputs == "bfloat") | ((inputs == "float8") & few)),
            (weights == "float8") & (quant == "per_1x128"),
            (weights == "float8") & quant.isin(("per_Tensor", "per_Token")),
            weights == "bfloat",
        ],
        ["mxfp4_w4a4", "mxfp4", "fp8_block", "fp8", "bf16"],
        default="",
    )
    return pd.Series(found, index=rows.index)


WIDE_INPUT_TOKENS = 64
"""Up to that many tokens experts read little but weights, so that 8-bit inputs tell about 16-bit ones too."""


CARRIED_UP_TOKENS, MOST_CARRIED_UP = 512, 1024
"""Equal times beyond that many tokens were measured with the fewest of them, below with the most; where they begin
beyond 1,024, nobody knows with how many (the row that was carried up is missing, or another model's was)."""

WHOLE_BLOCKS = 256
"""Block-scaled experts of CDNA3 whose width is no multiple of that miss the fused kernel (AITER's rule): a part of 384
takes 3.5 times as long as with one scale a tensor. Recipes price them (`UntunedExperts`)."""


def moe_rows(data: Path, *, name: str, fmt: str) -> pd.DataFrame:
    """Fused expert layers of one chip and format with the load of each, under the tuner's uniform routing.

    Some tables carry the time of one number of tokens over to others: those below the smallest that was tuned take its
    time, those above the largest too. Each such time stands for the tokens that it was measured with alone.
    """
    rows = _of_chip(_read(data / MOE_TABLE), CHIPS[name])
    rows = rows[(_moe_format(rows) == fmt) & (rows["gated"] == 1) & (rows["topk"] > 0)]
    if fmt == "fp8_block" and CHIPS[name].gfx == "gfx942":
        rows = rows[rows["inter_dim"] % WHOLE_BLOCKS == 0]
    same = rows.groupby(["dtype_a", *MOE_SHAPE, "seconds"])["tokens"]
    least, most = same.transform("min"), same.transform("max")
    known = (least == most) | (least <= MOST_CARRIED_UP)
    rows = rows[known & (rows["tokens"] == least.where(most > CARRIED_UP_TOKENS, most))]
    rows = rows.groupby(["tokens", *MOE_SHAPE], as_index=False)["seconds"].median()
    rows = rows.rename(
        columns={
            "tokens": "num_tokens",
            "model_dim": "hidden_size",
            "inter_dim": "inter_size",
            "experts": "num_experts",
        }
    )
    rows["intermediate"], rows["local_experts"] = rows["inter_size"], rows["num_experts"]
    rows["assignments"] = rows["num_tokens"] * rows["topk"]
    missed = (1.0 - rows["topk"] / rows["num_experts"]) ** rows["num_tokens"]
    rows["distinct"] = rows["num_experts"] * (1.0 - missed)
    rows["is_gated"], rows[CHIP] = True, name
    shape = ("hidden_size", "inter_size", "topk", "num_experts")
    rows["is_score"] = is_score(rows, family="moe", columns=shape)
    rows["fold"] = folds(rows, family="moe", columns=shape, count=5)
    return rows.reset_index(drop=True)
