"""Runs of InferenceX (closed loops of today's models and accelerators) as scenarios of the contract.

Every row of the dump is one value of one deployment at one concurrency: a median over runs of several engine releases.
What the rows do not say is filled in: equal EP and TP of TensorRT-LLM's experts, prompt tokens of a step, the 16-bit
cache of SGLang on H200 and the FP8 one of AMD's 4-bit recipes as the benchmark's launch scripts are reported to set
them; an FP8 cache
of the other recipes is assumed (from memory, verify).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.errors import RoofcastError
from simulator.units import MILLI
from validation.end_to_end.measured.layouts import decode_sequences, degrees, disaggregation, pools_of, served_by
from validation.end_to_end.measured.runs import MeasuredRun, Row, read_rows

TABLE = Path("today") / "inferencex.csv"

HARDWARE: Mapping[str, str] = {
    "H200 SXM": "h200-sxm-141gb",
    "B200 SXM": "b200-sxm",
    "GB200 NVL72": "gb200",
    "MI300X": "mi300x",
    "MI355X": "mi355x",
}
METRICS: Mapping[str, tuple[str, float]] = {
    "tpot_ms": ("tpot_p50_s", MILLI),
    "throughput_tok_s_per_gpu": ("total_tokens_per_s", 1.0),
    "energy_per_output_token_j": ("energy_per_output_token_j", 1.0),
}
"""Metric of the table -> the contract's field and the factor to SI units; throughput is of one accelerator there."""
POOLS_ENERGY = "decode_energy_per_output_token_j"
"""What joules of disaggregated runs count, inferred from 23 runs of DeepSeek-R1 in pools on MI355X. Taken for those of
all accelerators they leave a full prefill and a full decode pool at 260 to 530 W together, where one pool draws 600 to
950; taken for the decode pool's they lie within 9 % of the power fit at the measured speed, which saw none of them."""

RANGE_RATIO = 0.8
"""The client draws lengths uniformly between that share of the nominal ones and the nominal ones."""
REQUESTS_PER_SLOT = 10
HUNG = 0.2
"""Of the tokens/s that the same deployment reached with fewer requests in flight: a run below that stood still for most
of its time (three of 2,900 do, the next one lies at 0.3), so that its tokens/s and joules say nothing of the engine."""

# Chips whose 4-bit recipes multiply activations in that format too, and models that keep an FP8 cache on any chip.
_FP4_CHIPS = ("MI355X",)
_FP8_CACHE = ("meta-llama/Llama-3.3-70B-Instruct", "openai/gpt-oss-120b", "deepseek-ai/DeepSeek-R1-0528")
_PREFILL_TOKENS = {
    ("vllm", "amd", "meta-llama/Llama-3.3-70B-Instruct"): 131072,
    ("tensorrt-llm", "nvidia", "openai/gpt-oss-120b"): 20000,
}
_SGLANG_PREFILL_TOKENS = 32768
_SGLANG_STATIC_SHARE = 0.82
_SGLANG_FULL_SHARE = 0.95
"""As the DeepSeek-R1 recipes set --mem-fraction-static (from memory, verify); the second where eight-bit weights fill
four accelerators, which the first would not start on."""
_FIRST_LABELLED = 177
"""The first configuration (they are numbered as they came) that names an expert-parallel degree. Of those before, whose
rows all say 1, TensorRT-LLM's experts were spread where a later twin says so: 46 of 50 such rows ran within 2 % of it,
while of later ones labelled 1 beside such a twin 1 of 16 does. gpt-oss on B200 has no such twin among later rows."""
_SPREAD_DECODE_SEQUENCES = 256
"""As SGLang's recipes for pools on AMD set --max-running-requests of decode workers that share attention and spread
experts (from memory, verify). Rows agree: with 512 and 1,024 clients such a worker holds 192 to 240 sequences (answers
a second x time per token x tokens of an answer), and first tokens wait 30 s while prompts come at half of what the
prefill pool takes elsewhere."""
_RANK_DECODE_SEQUENCES = {"fp8": 80}
"""Of a rank of attention there, by weight format, read from rows that are not scored: with 128 or 256 clients a rank 61
to 95 run (mean 77, 9 runs of 6 configurations) while first tokens wait 28 to 536 s, and a second worker doubles the
answers a second; the recipe is not known. MXFP4's ranks go on to 470."""
_LAYOUT = re.compile(r"tp(\d+) ep(\d+) dp_attention([01])")

# Guesses of the recipes with multi-token prediction (from memory, verify): three steps of one guess each, two in
# SGLang's recipes for NVIDIA, one where TensorRT-LLM runs attention data parallelism, but in pools three up to
# _FULL_RANK clients a rank: time per token of the 34 such rows that are not scored and lie below is 19 % off with one
# guess and 10 with three, of the 25 above 15 and 26. SGLang's on H200 are read as one: what guesses gain there is 0.79
# to 0.82 of two's at every load, where one makes 1.65 tokens a round and two 2.07; the 37 rows that are not scored are
# 14 % off with one and 21 with two.
_GUESSES = 3
_FULL_RANK = 64
_GUESSES_OF_ENGINE = {("sglang", "nvidia"): 2, ("sglang", "H200 SXM"): 1}
_GUESSES_OF_RANKS = {"tensorrt-llm": 1}

MODES = ("aggregated", "mtp", "disaggregated")


@dataclass(frozen=True, slots=True, kw_only=True)
class TodayRun:
    """One deployment at one concurrency; ``pools`` is agg or disagg, ``speculation`` none or mtp."""

    run: MeasuredRun
    hardware: str
    engine: str
    model: str
    weights: str
    pools: str
    speculation: str

    @property
    def mode(self) -> str:
        """One of ``MODES``; disaggregated runs with and without speculation are one."""
        return "disaggregated" if self.pools == "disagg" else "aggregated" if self.speculation == "none" else "mtp"


def load_inferencex(data: Path) -> tuple[TodayRun, ...]:
    """All aggregated runs of the table below ``data``, with every value that was measured of each.

    Raises
    ------
    FileError
        The table cannot be read.
    RoofcastError
        A row names an accelerator, an engine or a layout that the loader does not know.
    """
    return tuple(_runs(tuple(read_rows(data / TABLE)), pools="agg"))


def load_disaggregated(data: Path) -> tuple[TodayRun, ...]:
    """All disaggregated runs whose pools the table says, otherwise as ``load_inferencex``."""
    return tuple(_runs([row for row in read_rows(data / TABLE) if pools_of(row) is not None], pools="disagg"))


def _note(row: Mapping[str, str], name: str) -> str:
    found = re.search(rf"\b{name}=([^;]+)", row["notes"])
    if found is None:
        raise RoofcastError(f"a row of {TABLE} does not say its {name}: {row['notes'][:80]}", field=name)
    return found[1].strip()


def _runs(rows: Sequence[Row], *, pools: str) -> Iterable[TodayRun]:
    spread = {_deployed(row) for row in rows if _spread(row)}
    grouped: dict[tuple[str, ...], dict[str, float]] = {}
    first: dict[tuple[str, ...], Row] = {}
    for row in rows:
        if _note(row, "mode") != pools:
            continue
        key = (_note(row, "config_id"), row["batch_or_concurrency"], row["isl"], row["osl"])
        name, factor = METRICS[row["metric"]]
        if pools == "disagg" and name == "energy_per_output_token_j":
            name = POOLS_ENERGY
        per_device = _devices(row) if name == "total_tokens_per_s" else 1
        grouped.setdefault(key, {})[name] = float(row["value"]) * factor * per_device
        first.setdefault(key, row)
    most: dict[tuple[str, ...], int] = {}
    for group in first:
        most[_recipe(group)] = max(int(group[1]), most.get(_recipe(group), 0))
    for key, measured in grouped.items():
        row = first[key]
        if _hung(key, grouped):
            measured = {"tpot_p50_s": measured["tpot_p50_s"]}
        follows = _deployed(row) in spread
        found = _scenario(row, most=most[_recipe(key)], spread=follows)
        scenario = {"id": "-".join(("inferencex", *key)), **found}
        yield TodayRun(
            run=MeasuredRun(source="inferencex", scenario=scenario, measured=measured),
            hardware=row["hardware"],
            engine=row["engine"],
            model=row["model"],
            weights=row["weight_dtype"],
            pools=pools,
            speculation=_note(row, "spec"),
        )


def _recipe(key: tuple[str, ...]) -> tuple[str, ...]:
    """Configuration and lengths, which rows of more and fewer clients share."""
    config, _, *lengths = key
    return config, *lengths


def _hung(key: tuple[str, ...], grouped: Mapping[tuple[str, ...], Mapping[str, float]]) -> bool:
    """Whether a run was slower than ``HUNG`` of the same deployment's with fewer of the same requests in flight."""
    config, concurrency, *lengths = key
    fewer = (
        measured.get("total_tokens_per_s", 0.0)
        for (other, in_flight, *others), measured in grouped.items()
        if (other, others) == (config, lengths) and int(in_flight) < int(concurrency)
    )
    return grouped[key].get("total_tokens_per_s", float("inf")) < HUNG * max(fewer, default=0.0)


def _devices(row: Row) -> int:
    """Accelerators of the run; counted from the pools, since the column takes some workers for one device."""
    pools = pools_of(row)
    return int(row["n_gpus"]) if pools is None else pools[0].devices + pools[1].devices


def _vendor(row: Row) -> str:
    return "amd" if row["hardware"].startswith("MI") else "nvidia"


def _scenario(row: Row, *, most: int, spread: bool) -> dict[str, Any]:
    """What the row ran; most : clients of the same deployment and lengths in any row; spread : a twin's label says so.

    A scenario has one ``engine.max_num_seqs``: sequences of a decode worker limit those of a prefill worker too, whose
    own limit rows do not say.
    """
    concurrency = int(row["batch_or_concurrency"])
    engine, vendor = served_by(row["engine"]), _vendor(row)
    limits: dict[str, Any] = {
        "name": engine,
        "prefix_caching": False,
        "max_num_seqs": max(concurrency, 256),
        "max_model_len": int(row["isl"]) + int(row["osl"]) + 256,
    }
    tokens = _PREFILL_TOKENS.get((engine, vendor, row["model"]))
    pools = pools_of(row)
    if engine == "sglang" and vendor == "amd" and pools is not None and pools[1].ep > 1:
        ranks = _RANK_DECODE_SEQUENCES.get(row["weight_dtype"], limits["max_num_seqs"])
        limits["max_num_seqs"] = ranks if pools[1].attention_dp else _SPREAD_DECODE_SEQUENCES
    if engine == "tensorrt-llm" and pools is not None:
        limits["max_num_seqs"] = decode_sequences(pools[1], concurrency=concurrency, most=most)
    if engine == "sglang":
        tokens = _SGLANG_PREFILL_TOKENS
        # Recipes give weights and cache a share of their own, which the engine would else derive from its step.
        fills = row["hardware"] == "B200 SXM" and row["weight_dtype"] == "fp8" and row["tp"] == "4"
        limits["gpu_memory_utilization"] = _SGLANG_FULL_SHARE if fills else _SGLANG_STATIC_SHARE
    if tokens is not None:
        limits["max_num_batched_tokens"] = tokens
    return {
        "kind": "closed_loop",
        "model": row["model"],
        "hardware": HARDWARE[row["hardware"]],
        **_layout(row, engine=engine, spread=spread),
        **_guesses(row, engine=engine),
        "precision": _precision(row, engine=engine),
        "engine": limits,
        "concurrency": concurrency,
        "num_requests": REQUESTS_PER_SLOT * concurrency,
        "isl_tokens": int(row["isl"]),
        "osl_tokens": int(row["osl"]),
        "range_ratio": RANGE_RATIO,
    }


def _deployed(row: Row) -> tuple[str, ...]:
    """What twins of different labels share: model, format, accelerator, engine and devices without attention ranks."""
    found = _LAYOUT.search(row["notes"])
    ranks = (found[1], found[3]) if found else ()
    return (row["hardware"], row["engine"], row["model"], row["weight_dtype"], *ranks)


def _spread(row: Row) -> bool:
    """Whether the row says that experts are spread over its devices."""
    found = _LAYOUT.search(row["notes"])
    return found is not None and int(found[2]) > 1


def _layout(row: Row, *, engine: str, spread: bool) -> dict[str, Any]:
    """Parallel degrees, of both pools where there are two."""
    pools = pools_of(row)
    if pools is not None:
        return {"disaggregation": disaggregation(*pools)}
    found = _LAYOUT.search(row["notes"])
    if found is None:
        raise RoofcastError(f"a row of {TABLE} does not say its layout: {row['notes'][:80]}", field="notes")
    tp, ep, attention_dp = int(found[1]), int(found[2]), found[3] == "1"
    unlabelled = engine == "tensorrt-llm" and int(_note(row, "config_id")) < _FIRST_LABELLED
    return degrees(tp, ep, attention_dp=attention_dp, experts_follow=unlabelled and spread)


def _guesses(row: Row, *, engine: str) -> dict[str, Any]:
    """Multi-token prediction as the recipes run it; how often guesses are accepted is left to the library."""
    if _note(row, "spec") == "none":
        return {}
    of_vendor = _GUESSES_OF_ENGINE.get((engine, _vendor(row)), _GUESSES)
    k = _GUESSES_OF_ENGINE.get((engine, row["hardware"]), of_vendor)
    pools = pools_of(row)
    ranks = pools[1].attention_dp if pools is not None else "dp_attention1" in row["notes"]
    full = pools is None or int(row["batch_or_concurrency"]) >= _FULL_RANK * pools[1].devices
    if ranks and full:
        k = _GUESSES_OF_RANKS.get(engine, k)
    return {"techniques": {"speculation": {"method": "mtp", "k": k}}}


def _precision(row: Row, *, engine: str) -> dict[str, str]:
    """Formats by the recipe: block formats multiply in their own format where the chip does."""
    weights = row["weight_dtype"]
    found = {"weights": weights}
    if row["model"] in _FP8_CACHE and weights != "mxfp4":
        found["kv_cache"] = "fp8"
    if "MiniMax" in row["model"] and row["hardware"] != "MI300X":
        # Time per token goes on rising to about twice as many sequences as would fit in 16 bit; MI300X ran too few.
        found["kv_cache"] = "fp8"
    if row["hardware"] == "H200 SXM" and engine == "sglang":
        found["kv_cache"] = "bf16"
    if weights == "mxfp4" and row["hardware"] in _FP4_CHIPS and "gpt-oss" not in row["model"]:
        found = {"scheme": "mxfp4-w4a4", "kv_cache": "fp8"}
    return found
