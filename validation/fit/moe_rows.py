"""Rows of the measured MoE tables: which are used, and the load that each puts on its rank."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.kernels.moe import ExpertLoad
from validation.silicon.split import folds, is_score

Array = NDArray[np.float64]

SHAPE = ("hidden_size", "inter_size", "topk", "num_experts")
"""What is held out together: one model."""

INTER_MULTIPLE = 32
"""Narrower shares of an expert are padded by the kernels and not met in serving: left out."""

NOT_GATED = {(2688, 1856), (1024, 2688), (2048, 5120)}
"""(hidden, inter) of the models whose experts have two matrices (squared ReLU)."""


def power_law_distinct(tokens: float, *, experts: float, top_k: float, exponent: float) -> float:
    """Expected distinct experts when loads follow a power law between 1 and 0.8 x tokens, as the benchmark draws them.

    Loads at the mid-quantiles of the law are scaled to tokens x top_k; an expert with mean load c is reached with
    probability 1 - exp(-c).
    """
    low, high = (1.0, 0.8 * tokens) if tokens * top_k > experts else (0.01, 2.0)
    if high <= low:
        return min(experts, tokens * top_k)
    power = 1.0 - exponent
    quantile = (np.arange(int(experts)) + 0.5) / experts
    load = ((high**power - low**power) * quantile + low**power) ** (1.0 / power)
    load = np.minimum(load / load.sum() * tokens * top_k, tokens)
    reached = float(np.sum(-np.expm1(-load)))
    return float(np.clip(reached, min(top_k, experts), min(experts, tokens * top_k)))


def moe_rows(table: pd.DataFrame, *, moe_dtype: str) -> pd.DataFrame:
    """Rows of one format and of the kernel that ran most of them, with the load on this rank.

    Skewed routing is kept only without expert parallelism: with it the benchmark times the busiest rank, whose share
    is not known. ``balanced`` rows keep every expert-parallel size.
    """
    rows = table[table["moe_dtype"] == moe_dtype]
    if "kernel_source" in rows:
        rows = rows[rows["kernel_source"] == rows["kernel_source"].value_counts().index[0]]
    is_balanced = rows["distribution"] == "balanced"
    rows = rows[is_balanced | (rows["moe_ep_size"] == 1)].copy()
    rows["intermediate"] = rows["inter_size"] / rows["moe_tp_size"]
    rows["local_experts"] = rows["num_experts"] / rows["moe_ep_size"]
    rows = rows[(rows["intermediate"] % INTER_MULTIPLE == 0) & (rows["local_experts"] >= 1)].reset_index(drop=True)
    rows["assignments"] = rows["num_tokens"] * rows["topk"] / rows["moe_ep_size"]
    rows["distinct"] = _distinct(rows)
    rows["is_gated"] = [pair not in NOT_GATED for pair in zip(rows["hidden_size"], rows["inter_size"], strict=True)]
    rows["is_score"] = is_score(rows, family="moe", columns=SHAPE)
    rows["fold"] = folds(rows, family="moe", columns=SHAPE, count=5)
    return rows


def _distinct(rows: pd.DataFrame) -> Array:
    """Distinct local experts of each row."""
    columns = ["num_tokens", "num_experts", "topk", "distribution"]
    skewed = {
        key: power_law_distinct(key[0], experts=key[1], top_k=key[2], exponent=float(key[3].rsplit("_", 1)[1]))
        for key in rows[columns].drop_duplicates().itertuples(index=False, name=None)
        if key[3] != "balanced"
    }
    even = np.minimum(rows["local_experts"], np.maximum(rows["assignments"], 1.0)).to_numpy(dtype=float)
    keys = rows[columns].itertuples(index=False, name=None)
    return np.array([skewed.get(key, value) for key, value in zip(keys, even, strict=True)])


def load_of(rows: pd.DataFrame) -> ExpertLoad:
    """The load of every row."""
    names = ("num_tokens", "hidden_size", "intermediate", "topk", "local_experts", "distinct", "assignments")
    tokens, hidden, intermediate, top_k, local, distinct, assignments = (
        rows[name].to_numpy(dtype=float) for name in names
    )
    return ExpertLoad(
        tokens=tokens,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_experts_per_tok=top_k,
        local_experts=local,
        distinct_experts=distinct,
        local_assignments=assignments,
    )


def model_folds(rows: pd.DataFrame) -> NDArray[np.int64]:
    """The hashed folds of whole models; with few models each is a fold; a single model is cut by its token counts."""
    models = rows.groupby(list(SHAPE)).ngroup().to_numpy()
    if models.max() == 0:
        return np.searchsorted(np.unique(rows["num_tokens"]), rows["num_tokens"]) // 3 % 4
    hashed = rows["fold"].to_numpy()
    return hashed if models.max() >= 6 else models
