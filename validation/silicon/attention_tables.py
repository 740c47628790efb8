"""Measured attention kernels as rows of one form, whatever table they come from.

``context_attention`` is causal prefill without a prefix, ``generation_attention`` decode of one token against
``isl + step`` keys; ``num_key_value_heads`` 0 means as many as heads, ``window_size`` 0 means none. ``context_mla``
and ``generation_mla`` are DeepSeek's: the latent of 576 in decode; in prefill expanded heads of 192 and 128 numbers, or
the latent again where the table timed the absorbed kernel (ABSORBED_PREFILL). Prefill rows of a single token are left
out: engines run them as decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from simulator.kernels.attention.cases import AttentionCases
from simulator.specs.model.precision import BITS, Dtype
from simulator.units import BITS_PER_BYTE
from validation.silicon.split import even_folds, is_score
from validation.silicon.tables import load_table

Phase = Literal["prefill", "decode"]

LAYOUT = ("num_heads", "num_key_value_heads", "head_dim", "window_size")
"""The unit of the split: all rows of a head layout fall on the same side, those with a window on that of the layout
without one where the same kernel runs both."""

FOLDS = 4
"""Folds of head layouts for the choices made inside the fit part."""

SCORE_SALT = "attention-2"
"""The second choice of held-out layouts: the scores of the first were seen while the model was still changing."""

DTYPES = {"bfloat16": Dtype.BF16, "float16": Dtype.BF16, "fp8": Dtype.FP8}
"""attn_dtype, kv_cache_dtype of the tables."""

FORMATS: dict[str, tuple[Dtype, Dtype]] = {
    "bf16": (Dtype.BF16, Dtype.BF16),
    "bf16_kvfp8": (Dtype.BF16, Dtype.FP8),
    "fp8": (Dtype.FP8, Dtype.FP8),
}
"""Format of a fit: number formats of the products and of the cache."""

TABLES: dict[Phase, str] = {"prefill": "context_attention", "decode": "generation_attention"}
MLA_TABLES: dict[Phase, str] = {"prefill": "context_mla", "decode": "generation_mla"}

MLA_ABSORBED = "mla_absorbed"
"""Variant of a prefill fit whose kernel multiplied the latents themselves."""

MLA_LATENT, MLA_ROPE, MLA_NOPE, MLA_VALUE = 512, 64, 128, 128
"""DeepSeek-V2 and V3: width of the latent, of the rotary part, of the other part of a key, of a value."""

ABSORBED_PREFILL = ("flash_attention", "triton")
"""SGLang's kernels whose prefill table ran absorbed: every head over the latents, 3.4 times the expanded work. Their
times are 0.60 (flash-attention 3 on Hopper) and 0.20 (Triton on L40S and RTX PRO 6000) of the peak as absorbed work,
0.18 and 0.06 as expanded, where the kernels that run expanded (trtllm_mla, TensorRT-LLM) reach 0.45 to 0.7."""

CONVERTED_CACHE = ("flash_attention", "triton")
"""Kernels that copy an 8-bit latent cache to 16 bit before every call: 4 to 7 times the time of the 16-bit cache, in
proportion to the tokens whatever the heads. No engine serves that way, so the rows are left out and the cache's own
kernels (FlashMLA, measured under TensorRT-LLM) price it."""

SIXTEEN_BIT_RUN = (("a100-sxm-80gb", "trtllm"), ("l40s", "trtllm"))
"""Latent tables whose rows of an 8-bit cache take the time of the 16-bit ones to 1 %, beyond the bandwidth that the
8-bit bytes would need: the format was not in force."""

NARROWING = {
    "trtllm": ("h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm", "b300-sxm", "gb200", "gb300"),
    "vllm": ("b200-sxm", "b300-sxm", "gb200", "gb300"),
}
"""Libraries and accelerators whose prefill narrows 16-bit queries to an 8-bit cache and multiplies FP8: TensorRT-LLM's
rows of the two kinds of queries agree to 5 % there (27 to 79 % apart on L40S and RTX PRO 6000), and vLLM runs
the same trtllm-gen kernels on Blackwell, at up to 1.3 times the 16-bit peak."""

NARROWING_KERNELS = ("torch_flow", "torch_flow_flashinfer", "vllm_flashinfer_trtllmprefill")

TRTLLM_GROUP = 32
"""Beyond this many query heads per KV head TensorRT-LLM decodes with a kernel that reads the keys once per query head;
no model of ours has such a layout, and the two kernels do not share one fit."""

WINDOW = "_window"
"""Suffix of the variant of a kernel that ran under a sliding window alone."""

ENCODER = "_encoder"
"""Suffix of the variant of a kernel that ran without a mask: of vision towers, whole sequences at once."""

FEWEST_ROWS = 300
FEWEST_LAYOUTS = 3
"""Smaller groups of a kernel are not fitted; one that holding out layouts would bring below keeps them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRows:
    """Rows of one kernel: one number format, head_dim and kind of mask; perhaps measured under another library."""

    hardware: str
    phase: Phase
    format: str
    variant: str
    kernel: str
    version: str
    rows: pd.DataFrame
    borrowed_from: str = ""

    def cases(self) -> AttentionCases:
        """The rows as the physics wants them."""
        cases = cases_of(self.rows, format=self.format, shared_kv=self.is_absorbed)
        return replace(cases, causal=not self.variant.endswith(ENCODER))

    @property
    def math(self) -> Dtype:
        """Number format in which the kernel multiplies."""
        return Dtype.FP8 if self.narrows_queries else FORMATS[self.format][0]

    @property
    def narrows_queries(self) -> bool:
        """16-bit queries, an 8-bit cache, and a kernel that multiplies FP8 all the same (NARROWING)."""
        if (self.phase, self.format) != ("prefill", "bf16_kvfp8") or self.kernel not in NARROWING_KERNELS:
            return False
        return self.hardware in NARROWING["vllm" if self.kernel.startswith("vllm") else "trtllm"]

    @property
    def is_absorbed(self) -> bool:
        """Latent attention over the latents themselves: values are a slice of the keys."""
        return self.variant == MLA_ABSORBED or (self.variant == "mla" and self.phase == "decode")


def cases_of(rows: pd.DataFrame, *, format: str, shared_kv: bool = False) -> AttentionCases:
    """Rows of one format as cases of the physics."""
    columns = {name: rows[name].to_numpy(dtype=np.float64) for name in rows.select_dtypes("number").columns}
    window = columns["window_size"]
    return AttentionCases(
        sequences=columns["sequences"],
        query_tokens=columns["query_tokens"],
        context_tokens=columns["context_tokens"],
        num_kv_heads=columns["num_key_value_heads"],
        group=columns["num_heads"] / columns["num_key_value_heads"],
        head_dim=columns["head_dim"],
        v_head_dim=columns["v_head_dim"],
        window=np.where(window > 0, window, np.inf),
        kv_element_bytes=np.full(len(rows), BITS[FORMATS[format][1]] / BITS_PER_BYTE),
        shared_kv=shared_kv,
    )


def attention_rows(root: Path, *, hardware: str, library: str, phase: Phase) -> tuple[KernelRows, ...]:
    """Groups of the newest attention table: per number format, head_dim and mask the kernel that serves most rows."""
    table = load_table(root, hardware=hardware, family="attention", library=library, table=TABLES[phase])
    if table is None:
        return ()
    rows = table.rows.copy()
    if "window_size" not in rows:
        rows["window_size"] = 0
    heads = rows["num_key_value_heads"]
    rows["num_key_value_heads"] = heads.where(heads > 0, rows["num_heads"])
    rows["v_head_dim"] = rows["head_dim"]
    rows = _with_tokens(rows, phase=phase)
    if library == "trtllm" and phase == "decode":
        rows = rows[rows["num_heads"] <= TRTLLM_GROUP * rows["num_key_value_heads"]]
    groups = []
    for head_dim, part in rows.groupby("head_dim"):
        groups += _by_format(
            part, hardware=hardware, phase=phase, variant=f"d{head_dim}", version=table.version, compute="attn_dtype"
        )
    return tuple(groups)


def encoder_rows(root: Path, *, hardware: str, library: str) -> tuple[KernelRows, ...]:
    """Groups of the newest table of encoders' attention by head_dim: as many KV heads as heads, no cache."""
    table = load_table(root, hardware=hardware, family="encoder_attention", library=library, table="encoder_attention")
    if table is None:
        return ()
    plain = {"num_key_value_heads": table.rows["num_heads"], "v_head_dim": table.rows["head_dim"], "window_size": 0}
    rows = _with_tokens(table.rows.assign(**plain, kv_cache_dtype=table.rows["attn_dtype"]), phase="prefill")
    grouped = partial(_by_format, hardware=hardware, phase="prefill", version=table.version, compute="attn_dtype")
    return tuple(
        group for width, part in rows.groupby("head_dim") for group in grouped(part, variant=f"d{width}{ENCODER}")
    )


def mla_rows(root: Path, *, hardware: str, library: str, phase: Phase) -> tuple[KernelRows, ...]:
    """Groups of the newest MLA kernel table: absorbed in decode, in prefill the form that its kernel ran.

    An 8-bit cache brings 8-bit queries: the trtllm-gen, XQA and FlashMLA kernels multiply in FP8.
    """
    table = load_table(root, hardware=hardware, family="mla", library=library, table=MLA_TABLES[phase])
    if table is None:
        return ()
    rows = table.rows.copy()
    rows["window_size"] = 0
    cache_8bit = rows["kv_cache_dtype"] == "fp8"
    left_out = rows["kernel_source"].isin(CONVERTED_CACHE) | ((hardware, library) in SIXTEEN_BIT_RUN)
    rows = rows[~(cache_8bit & left_out)].copy()
    rows["mla_dtype"] = rows["mla_dtype"].where(rows["kv_cache_dtype"] != "fp8", "fp8")
    absorbed = phase == "decode" or bool(rows["kernel_source"].isin(ABSORBED_PREFILL).all())
    if absorbed:
        rows["num_key_value_heads"] = 1
        rows["head_dim"], rows["v_head_dim"] = MLA_LATENT + MLA_ROPE, MLA_LATENT
    else:
        rows["num_key_value_heads"] = rows["num_heads"]
        rows["head_dim"], rows["v_head_dim"] = MLA_NOPE + MLA_ROPE, MLA_VALUE
    rows = _with_tokens(rows, phase=phase)
    variant = MLA_ABSORBED if absorbed and phase == "prefill" else "mla"
    return tuple(
        _by_format(rows, hardware=hardware, phase=phase, variant=variant, version=table.version, compute="mla_dtype")
    )


def _with_tokens(rows: pd.DataFrame, *, phase: Phase) -> pd.DataFrame:
    """Columns sequences, query_tokens and context_tokens."""
    rows["sequences"] = rows["batch_size"]
    rows["query_tokens"] = rows["isl"] if phase == "prefill" else 1
    rows["context_tokens"] = 0 if phase == "prefill" else rows["isl"] + rows["step"] - 1
    return rows[(phase == "decode") | (rows["query_tokens"] > 1)]


def _layouts(rows: pd.DataFrame) -> int:
    return len(rows[list(LAYOUT)].drop_duplicates())


def _by_format(
    rows: pd.DataFrame, *, hardware: str, phase: Phase, variant: str, version: str, compute: str
) -> list[KernelRows]:
    groups: list[KernelRows] = []
    for format, (math, cache) in FORMATS.items():
        mine = rows[(rows[compute].map(DTYPES) == math) & (rows["kv_cache_dtype"].map(DTYPES) == cache)]
        for kernel, mask, part in _kernels(mine, phase=phase):
            measured = _split_rows(part)
            if measured is not None:
                groups.append(
                    KernelRows(
                        hardware=hardware,
                        phase=phase,
                        format=format,
                        variant=variant + mask,
                        kernel=kernel,
                        version=version,
                        rows=measured,
                    )
                )
    return [group for group in groups if not _falls_back(group, groups)]


def _kernels(rows: pd.DataFrame, *, phase: Phase) -> list[tuple[str, str, pd.DataFrame]]:
    """The kernel of most rows without a window and of most with one, the suffix of its variant, and its rows.

    A prefill kernel that runs both is one group, which `by_mask` takes apart: tiles count the keys a window leaves.
    """
    found = []
    for mask, part in (("", rows[rows["window_size"] == 0]), (WINDOW, rows[rows["window_size"] > 0])):
        if len(part):
            kernel = str(part["kernel_source"].mode().iloc[0])
            found.append((kernel, mask, part[part["kernel_source"] == kernel]))
    if phase == "prefill" and len({kernel for kernel, _, _ in found}) < len(found):
        return [(found[0][0], "", pd.concat([part for _, _, part in found]))]
    return found


def by_mask(group: KernelRows) -> tuple[KernelRows, ...]:
    """A group whose kernel ran with windows and without as two, each with layouts held out; none where it is one."""
    windowed = group.rows["window_size"] > 0
    parts = [
        replace(group, variant=group.variant + mask, rows=rows)
        for mask, mine in (("", ~windowed), (WINDOW, windowed))
        if windowed.any() and (rows := _split_rows(group.rows[mine])) is not None
    ]
    return tuple(parts) if len(parts) > 1 and not windowed.all() else ()


def _split_rows(rows: pd.DataFrame) -> pd.DataFrame | None:
    """One row a shape with its side and fold; None where too little was measured."""
    if len(rows) < FEWEST_ROWS:
        return None
    keys = ["sequences", "query_tokens", "context_tokens", *LAYOUT, "v_head_dim"]
    rows = rows.groupby(keys, as_index=False)["seconds"].median()
    layouts = rows[list(LAYOUT)]
    if (layouts["window_size"] == 0).any():
        layouts = layouts.assign(window_size=0)
    if _layouts(layouts) < FEWEST_LAYOUTS:
        return None
    rows["is_score"] = is_score(layouts, family="attention", columns=LAYOUT, salt=SCORE_SALT)
    if _layouts(layouts[~rows["is_score"]]) < FEWEST_LAYOUTS:
        rows["is_score"] = False
    rows["fold"] = -1
    seen = ~rows["is_score"]
    rows.loc[seen, "fold"] = even_folds(layouts[seen], family="attention", columns=LAYOUT, count=FOLDS)
    return rows


def _falls_back(group: KernelRows, groups: Sequence[KernelRows]) -> bool:
    """Whether a narrow cache beside 16-bit queries ran another kernel than the library's own, which narrows the queries
    too: engines run that one (SGLang's trtllm_mha on Blackwell), and the other took up to six times as long."""
    kernels = {one.format: one.kernel for one in groups if one.variant == group.variant}
    own = kernels.get("bf16")
    return group.format == "bf16_kvfp8" and group.kernel != own and kernels.get("fp8") == own
