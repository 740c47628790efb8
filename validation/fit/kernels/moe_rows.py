"""Rows of the measured MoE tables: which are used, and the load that each puts on its rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.kernels.experts import EXCHANGED, EXPERT_PARALLEL, NOT_GATED_EXPERTS
from simulator.kernels.moe import ExpertLoad
from validation.silicon.split import folds, is_score
from validation.silicon.tables import Table, load_table, versions

Array = NDArray[np.float64]

SHAPE = ("hidden_size", "inter_size", "topk", "num_experts")
"""What is held out together: one model."""

NARROW, NARROW_MULTIPLE, INTER_MULTIPLE = 256, 32, 8
"""Shares of an expert that are narrow and no multiple of 32, or no multiple of 8 at all, are padded by the kernels and
not met in serving: left out. gpt-oss at 4 and 8 ranks is met, 720 and 360 wide."""

NOT_GATED = {(2688, 1856), (1024, 2688), (4096, 2688), (2048, 5120), (8192, 5120)}
"""(hidden, inter) of the models whose experts have two matrices (squared ReLU)."""

RICH_SHARE = 0.5
"""The newest table gives way to an older one where it holds less than this share of the rows: some hold one model."""

RICH_MODELS = 0.6
"""... or less than this share of the models."""

AGREEMENT = 0.15
"""... and where both measured the same calls within this: kernels change (vLLM's Marlin gained a factor of three)."""

CALL = ("num_tokens", *SHAPE, "moe_tp_size", "moe_ep_size", "distribution")
"""What makes two rows of one format measurements of the same call."""

RANKS_NOT_DIVIDED = {("sglang", "0.5.10")}
"""Tables whose expert-parallel rows ran another load than they name: with even routing one rank of eight takes 0.6 to
0.99 of what one rank with all experts takes (4,096 tokens, ten models on A100), in 0.5.14 and elsewhere 0.13 to 0.3."""

EXCHANGED_ON = ("h100-sxm-80gb", "h200-sxm-141gb")
"""Where the kernels behind all-to-all are fitted apart: on Blackwell recipes name the table that measured them."""
EXCHANGED_TABLES = ("wideep_generation_moe", "wideep_context_moe")
LAUNCHED = 2.0
"""Rows that a host issues kernel by kernel say what a kernel takes from that multiple of the table's shortest on."""

DRAWS = 32
"""Power laws drawn for the busiest rank, as the benchmark draws one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelGroup:
    """Rows of one kernel; ``variant`` names the calls that run it where another kernel prices the rest."""

    variant: str
    rows: pd.DataFrame


def moe_tables(root: Path, *, hardware: str, library: str) -> tuple[Table, ...]:
    """Every version of the experts' table, oldest first."""
    known = versions(root, hardware=hardware, family="moe", library=library, table="moe")
    tables = (
        load_table(root, hardware=hardware, family="moe", library=library, table="moe", version=version)
        for version in known
    )
    return tuple(table for table in tables if table is not None)


def exchanged_group(root: Path, *, hardware: str, library: str, moe_dtype: str) -> tuple[str, KernelGroup] | None:
    """Version and rows of the grouped kernels that all-to-all feeds, decode from graphs and prompts issued by the host;
    None where they were not measured. ``num_tokens`` counts those of all ranks there."""
    parts, version = [], ""
    for name in EXCHANGED_TABLES if hardware in EXCHANGED_ON else ():
        table = load_table(root, hardware=hardware, family="moe", library=library, table=name)
        if table is None:
            return None
        shortest = LAUNCHED * table.rows["seconds"].min() if name == EXCHANGED_TABLES[1] else 0.0
        parts.append(table.rows[table.rows["seconds"] >= shortest])
        version = table.version
    if not parts:
        return None
    rows = pd.concat(parts, ignore_index=True).replace({"distribution": {"uniform": "balanced"}})
    found = moe_rows(rows, moe_dtype=moe_dtype)
    return (version, KernelGroup(variant=EXCHANGED, rows=found)) if len(found) else None


def table_of(tables: Sequence[Table], *, moe_dtype: str) -> Table | None:
    """Rows of a format in the newest version that measured it, in an older one that agrees and is richer, in rows or in
    models (beside the newest's, where not all of its own say their load); None without any."""
    parts = [(table, _known_loads(table, moe_dtype=moe_dtype)) for table in tables]
    measured = [(table, rows) for table, rows in parts if len(rows)]
    if not measured:
        return None
    newest, newest_rows = measured[-1]
    most = max(len(rows) for _, rows in measured)
    models = max(len(_models(rows)) for _, rows in measured)
    for table, rows in reversed(measured):
        rich = len(rows) >= RICH_SHARE * most and len(_models(rows)) >= RICH_MODELS * models
        if rich and (table is newest or _agree(newest_rows, rows)):
            return _beside_newest(table, rows=rows, newest=newest, newest_rows=newest_rows)
    return _beside_newest(newest, rows=newest_rows, newest=newest, newest_rows=newest_rows)


def _beside_newest(table: Table, *, rows: pd.DataFrame, newest: Table, newest_rows: pd.DataFrame) -> Table:
    """``table`` where all its rows say their load, else those that do, of models that the newest lacks, beside it."""
    if not _has_unknown(table):
        return table
    if table is newest:
        return replace(table, rows=rows)
    measured = pd.MultiIndex.from_frame(newest_rows[list(SHAPE)])
    others = rows[~pd.MultiIndex.from_frame(rows[list(SHAPE)]).isin(measured)]
    version = f"{newest.version} and {table.version}"
    return replace(table, version=version, rows=pd.concat([newest_rows, others], ignore_index=True))


def _has_unknown(table: Table) -> bool:
    return (table.library, table.version) in RANKS_NOT_DIVIDED


def _known_loads(table: Table, *, moe_dtype: str) -> pd.DataFrame:
    """Rows of a format whose load is what they name."""
    rows = table.rows[table.rows["moe_dtype"] == moe_dtype]
    return rows[rows["moe_ep_size"] == 1] if _has_unknown(table) else rows


def _models(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[list(SHAPE)].drop_duplicates()


def _agree(newest: pd.DataFrame, older: pd.DataFrame) -> bool:
    """Whether rows that both hold took about the same time; nothing in common is no disagreement."""
    both = newest.merge(older, on=list(CALL), suffixes=("", "_older"))
    if both.empty:
        return True
    apart = np.abs(np.log(both["seconds"].to_numpy() / both["seconds_older"].to_numpy()))
    return bool(np.median(apart) <= AGREEMENT)


@lru_cache(maxsize=65536)
def power_law_distinct(tokens: float, *, experts: float, top_k: float, exponent: float) -> float:
    """Distinct experts when loads follow a power law between 1 and 0.8 x tokens, as the benchmark draws them.

    It rounds the loads that it has drawn to whole tokens, so that an expert is reached whose load is at least a half:
    Mixtral with 16 tokens reaches all eight. Mean over DRAWS.
    """
    low, high = (1.0, 0.8 * tokens) if tokens * top_k > experts else (0.01, 2.0)
    if high <= low:
        return min(experts, tokens * top_k)
    power = 1.0 - exponent
    quantile = np.random.default_rng(0).random((DRAWS, int(experts)))
    load = ((high**power - low**power) * quantile + low**power) ** (1.0 / power)
    load = np.minimum(load / load.sum(axis=1, keepdims=True) * tokens * top_k, tokens)
    reached = float((np.round(load) > 0).sum(axis=1).mean())
    return float(np.clip(reached, min(top_k, experts), min(experts, tokens * top_k)))


@lru_cache(maxsize=65536)
def busiest_rank_load(tokens: int, *, experts: int, top_k: int, ranks: int, exponent: float) -> tuple[float, float]:
    """(pairs, distinct experts) of the busiest of ``ranks`` under the benchmark's power law, which it times.

    Mean over DRAWS of the same random numbers for every case. Valid for more pairs than experts: with fewer the
    benchmark's choice among equal experts decides.
    """
    low, high, power = 1.0, 0.8 * tokens, 1.0 - exponent
    quantile = np.random.default_rng(0).random((DRAWS, experts))
    load = ((high**power - low**power) * quantile + low**power) ** (1.0 / power)
    load = np.minimum(load / load.sum(axis=1, keepdims=True) * tokens * top_k, tokens)
    by_rank = load.reshape(DRAWS, ranks, -1)
    busiest = by_rank[np.arange(DRAWS), by_rank.sum(axis=2).argmax(axis=1)]
    reached = np.maximum((np.round(busiest) > 0).sum(axis=1), 1)
    return float(busiest.sum(axis=1).mean()), float(reached.mean())


def moe_rows(table: pd.DataFrame, *, moe_dtype: str) -> pd.DataFrame:
    """Rows of one format with the load that each puts on its rank.

    With expert parallelism the benchmark times the busiest rank; skewed routing of fewer pairs than experts is left
    out there (see ``busiest_rank_load``).
    """
    rows = table[table["moe_dtype"] == moe_dtype]
    parallel = (rows["distribution"] != "balanced") & (rows["moe_ep_size"] > 1)
    many = (rows["num_tokens"] * rows["topk"] > rows["num_experts"]) & (rows["num_experts"] % rows["moe_ep_size"] == 0)
    rows = rows[~parallel | many].copy()
    rows["intermediate"] = rows["inter_size"] / rows["moe_tp_size"]
    rows["local_experts"] = rows["num_experts"] / rows["moe_ep_size"]
    width = rows["intermediate"]
    met = (width % NARROW_MULTIPLE == 0) | ((width >= NARROW) & (width % INTER_MULTIPLE == 0))
    rows = rows[met & (rows["local_experts"] >= 1)].reset_index(drop=True)
    rows["assignments"] = rows["num_tokens"] * rows["topk"] / rows["moe_ep_size"]
    rows["distinct"] = _distinct(rows)
    _load_busiest(rows)
    rows["is_gated"] = [pair not in NOT_GATED for pair in zip(rows["hidden_size"], rows["inter_size"], strict=True)]
    rows["is_score"] = is_score(rows, family="moe", columns=SHAPE)
    rows["fold"] = folds(rows, family="moe", columns=SHAPE, count=5)
    return rows


def kernel_groups(rows: pd.DataFrame) -> tuple[KernelGroup, ...]:
    """One group per kernel that a call can be told to run: most experts, those without gate, expert-parallel ones.

    Kernels that a library picks by other properties of a model (its routing, its activation) are left out.
    """
    if "kernel_source" not in rows:
        return (KernelGroup(variant="", rows=rows),)
    gated, parallel = rows["is_gated"], rows["moe_ep_size"] > 1
    alone = rows[gated & ~parallel] if (gated & ~parallel).any() else rows
    usual = _most_run(rows[rows["kernel_source"].isin(alone["kernel_source"])])
    # Ranks of few models are fitted apart: held out with their model they would leave the fit none.
    few = len(_models(rows[parallel])) < RICH_MODELS * len(_models(rows[~parallel]))
    whole = rows[~parallel] if few else rows
    groups = [KernelGroup(variant="", rows=whole[whole["kernel_source"] == usual].reset_index(drop=True))]
    for variant, members in ((NOT_GATED_EXPERTS, rows[~gated]), (EXPERT_PARALLEL, rows[gated & parallel])):
        apart = few and variant == EXPERT_PARALLEL
        if members.empty or (usual in members["kernel_source"].to_numpy() and not apart):
            continue
        own = members[members["kernel_source"] == _most_run(members)].reset_index(drop=True)
        groups.append(KernelGroup(variant=variant, rows=own))
    return tuple(groups)


def _most_run(rows: pd.DataFrame) -> str:
    """The kernel of most rows."""
    return str(rows["kernel_source"].value_counts().index[0])


def _load_busiest(rows: pd.DataFrame) -> None:
    """Set pairs and distinct experts of the expert-parallel rows with skewed routing."""
    chosen = (rows["distribution"] != "balanced") & (rows["moe_ep_size"] > 1)
    columns = ["num_tokens", "num_experts", "topk", "moe_ep_size", "distribution"]
    loads = [
        busiest_rank_load(
            int(tokens), experts=int(experts), top_k=int(top_k), ranks=int(ranks), exponent=float(law.rsplit("_", 1)[1])
        )
        for tokens, experts, top_k, ranks, law in rows.loc[chosen, columns].itertuples(index=False, name=None)
    ]
    if loads:
        rows.loc[chosen, ["assignments", "distinct"]] = np.array(loads)


def _distinct(rows: pd.DataFrame) -> Array:
    """Distinct local experts of each row that holds all experts or shares them evenly."""
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
        even=(rows["distribution"] == "balanced").to_numpy() if "distribution" in rows else None,
    )


def model_folds(rows: pd.DataFrame) -> NDArray[np.int64]:
    """The hashed folds of whole models; with few models each is a fold; a single model is cut by its token counts."""
    models = rows.groupby(list(SHAPE)).ngroup().to_numpy()
    if models.max() == 0:
        return np.searchsorted(np.unique(rows["num_tokens"]), rows["num_tokens"]) // 3 % 4
    hashed = rows["fold"].to_numpy()
    return hashed if models.max() >= 6 else models
