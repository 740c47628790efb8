"""The options of plan-capacity, by themselves because there are many."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from simulator.cli.entry import print_version
from simulator.errors import RoofcastError, did_you_mean

METRICS = ("ttft", "tpot", "e2e", "latency")
_PERCENTILE_FLAG = re.compile(r"--([a-z0-9]+)-p([0-9]+(?:\.[0-9]+)?)(?:=(.*))?")


class PlanOutput(StrEnum):
    """Forms of the answer."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"


DEMAND, LATENCY, REPLICA, FLEET, PRICES, OUTPUT = "Demand", "Latency", "Replica", "Fleet", "Prices", "Output"


def option(*names: str, text: str, panel: str, metavar: str | None = None) -> object:
    """An option of ``plan-capacity`` in its panel of the help."""
    return typer.Option(*names, help=text, rich_help_panel=panel, metavar=metavar)


Rps = Annotated[
    float | None, option("--rps", text="Requests/s at the peak; their mean with --peak-to-mean.", panel=DEMAND)
]
Model = Annotated[
    str | None, option("--model", "-m", text="Name, Hugging Face id, config.json or its folder.", panel=DEMAND)
]
Isl = Annotated[float | None, option("--isl", text="Mean prompt tokens.", panel=DEMAND)]
Osl = Annotated[float | None, option("--osl", text="Mean answer tokens, the first included.", panel=DEMAND)]
IslCv = Annotated[float | None, option("--isl-cv", text="Spread of prompt lengths (std / mean).", panel=DEMAND)]
OslCv = Annotated[float | None, option("--osl-cv", text="Spread of answer lengths (std / mean).", panel=DEMAND)]
Trace = Annotated[
    str | None,
    option("--trace", text="Lengths and peak from an Azure CSV or Mooncake JSONL.", panel=DEMAND, metavar="FILE"),
]
Workload = Annotated[
    str | None,
    option(
        "--workload",
        text="chat, code, rag, long-context, batch, agents or reasoning; or a YAML file with any of these options.",
        panel=DEMAND,
        metavar="KIND|FILE",
    ),
]
PeakToMean = Annotated[float | None, option("--peak-to-mean", text="Busiest over mean rate.", panel=DEMAND)]
CacheHit = Annotated[
    float | None, option("--cache-hit", text="Share of requests answered without a GPU.", panel=DEMAND)
]
PrefixHit = Annotated[
    float | None, option("--prefix-hit", text="Share of prompt tokens in the prefix cache.", panel=DEMAND)
]
ArrivalCv = Annotated[
    float | None,
    option(
        "--arrival-cv",
        text="Burstiness of arrivals at a replica, 1 for Poisson; 1 / sqrt(replicas) behind one router in turns.",
        panel=DEMAND,
    ),
]
Images = Annotated[
    float | None,
    option("--images-per-request", text="Pictures in a prompt; --isl counts their tokens too.", panel=DEMAND),
]
ImagePixels = Annotated[
    int | None, option("--image-pixels", text="Width x height of a picture (1024 x 1024).", panel=DEMAND)
]
Headroom = Annotated[float | None, option("--headroom", text="Growth to keep free, such as 0.2.", panel=DEMAND)]
Objective = Annotated[
    list[str] | None,
    option(
        "--objective",
        text="A bound to hold, also written --ttft-p95 2s, --tpot-p99 50ms, --e2e-p90 8s, --latency-p95 3s.",
        panel=LATENCY,
        metavar="METRIC-pNN=TIME",
    ),
]
Hardware = Annotated[
    list[str] | None, option("--hardware", text="Accelerators to compare; repeatable. Default: all.", panel=REPLICA)
]
Weights = Annotated[list[str] | None, option("--weights", text="Weight formats to compare; repeatable.", panel=REPLICA)]
Activations = Annotated[str | None, option("--activations", text="Format of the products.", panel=REPLICA)]
KvCache = Annotated[list[str] | None, option("--kv-cache", text="KV-cache formats; repeatable.", panel=REPLICA)]
Scheme = Annotated[str | None, option("--scheme", text="Quantization method, such as gptq-g128.", panel=REPLICA)]
Tp = Annotated[list[int] | None, option("--tp", text="Tensor-parallel sizes; repeatable.", panel=REPLICA)]
Pp = Annotated[list[int] | None, option("--pp", text="Pipeline-parallel sizes; repeatable.", panel=REPLICA)]
Engine = Annotated[str | None, option("--engine", text="Engine profile (vllm).", panel=REPLICA)]
MaxNumSeqs = Annotated[
    list[int] | None, option("--max-num-seqs", text="Batch limits to compare; repeatable.", panel=REPLICA)
]
MaxBatchedTokens = Annotated[
    int | None, option("--max-num-batched-tokens", text="Token budget of a step.", panel=REPLICA)
]
MaxModelLen = Annotated[int | None, option("--max-model-len", text="Longest request in tokens.", panel=REPLICA)]
MemoryShare = Annotated[
    float | None, option("--gpu-memory-utilization", text="Share of memory the engine may use.", panel=REPLICA)
]
Confidence = Annotated[
    int | None,
    option(
        "--confidence",
        text="50, 80 or 90: percent of draws of the step times in which the fleet holds (80).",
        panel=FLEET,
    ),
]
Utilization = Annotated[
    float | None,
    option(
        "--utilization", text="Highest share of the saturation rate (what objectives allow, up to 0.9).", panel=FLEET
    ),
]
Spares = Annotated[int | None, option("--spares", text="Spare replicas (1).", panel=FLEET)]
MaxGpus = Annotated[int | None, option("--max-gpus", text="GPUs that may be used in all.", panel=FLEET)]
RoundTo = Annotated[
    str | None, option("--round-to", text="server (whole servers, the default) or device.", panel=FLEET)
]
Profiles = Annotated[
    str | None, option("--profiles", text="Your profiles; they override and extend.", panel=OUTPUT, metavar="DIR")
]
Output = Annotated[PlanOutput, option("--output", text="Form of the answer.", panel=OUTPUT)]
AsJson = Annotated[bool, typer.Option("--json", help="Same as --output json.", rich_help_panel=OUTPUT)]
Explain = Annotated[
    bool, typer.Option("--explain", help="Add the derivation and the refusals.", rich_help_panel=OUTPUT)
]
Out = Annotated[str, option("--out", text='Write to a new file; "-" is stdout.', panel=OUTPUT, metavar="FILE")]
Report = Annotated[
    str | None, option("--report", text="Write the whole report into a folder.", panel=OUTPUT, metavar="DIR")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files of --out and --report.", rich_help_panel=OUTPUT)]
Version = Annotated[
    bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and stop.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback on errors.", rich_help_panel=OUTPUT)]


def price_options(
    prices: Annotated[
        str | None,
        option("--prices", text="Price list: a name or a YAML file (roofcast prices import writes one).", panel=PRICES),
    ] = None,
    price_kind: Annotated[
        str | None,
        option(
            "--price-kind",
            text="Term: on_demand, reserved_1y, reserved_3y, spot or capacity_block (cheapest of on demand and the "
            "commitments within --horizon).",
            panel=PRICES,
        ),
    ] = None,
    price_of: Annotated[
        str | None,
        option("--price-of", text="low, median or high of the providers' prices (median).", panel=PRICES),
    ] = None,
    provider: Annotated[
        str | None,
        option(
            "--provider",
            text="Only the prices of one provider, or of hyperscaler, specialist or marketplace ones.",
            panel=PRICES,
        ),
    ] = None,
) -> None:
    """Which prices the plan takes."""


def spell_objectives(words: Sequence[str]) -> list[str]:
    """Rewrite ``--ttft-p95 2s`` as ``--objective ttft-p95=2s``, so that every percentile is allowed.

    Raises
    ------
    RoofcastError
        The metric is unknown, or the time is missing.
    """
    spelled: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        bare = word.removeprefix("--").partition("=")[0]
        if word.startswith("--") and bare in METRICS:
            raise RoofcastError(f"unknown option --{bare}", code="usage", hint=f"did you mean --{bare}-p95?")
        match = _PERCENTILE_FLAG.fullmatch(word)
        if match is None:
            spelled.append(word)
            continue
        if match[1] not in METRICS:
            known = [f"--{metric}-p{match[2]}" for metric in METRICS]
            raise RoofcastError(f"unknown option {word}", code="usage", hint=did_you_mean(word, known))
        if match[3] is None and not rest:
            raise RoofcastError("a time such as 2s or 500ms is needed", field=word, code="usage")
        value = rest.pop(0) if match[3] is None else match[3]
        spelled += ["--objective", f"{match[1]}-p{match[2]}={value}"]
    return spelled
