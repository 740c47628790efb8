"""The options of plan-capacity, by themselves because there are many."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from simulator.cli.entry import print_version
from simulator.cli.options.shared import HELP_ALL, print_whole_help


class PlanOutput(StrEnum):
    """Forms of the answer."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"


DEMAND, LATENCY, REPLICA, FLEET, PRICES, OUTPUT = "Demand", "Latency", "Replica", "Fleet", "Prices", "Output"


def option(*names: str, text: str, panel: str, metavar: str | None = None, usual: bool = False) -> object:
    """An option of a plan in its panel of the help; ``usual`` ones are in the short help too."""
    return typer.Option(*names, help=text, rich_help_panel=panel, metavar=metavar, hidden=not usual)


Rps = Annotated[
    float | None,
    option("--rps", text="Requests/s at the peak; their mean with --peak-to-mean.", panel=DEMAND, usual=True),
]
Model = Annotated[
    list[str] | None,
    option(
        "--model",
        "-m",
        text="Name, Hugging Face id, config.json or its folder; repeated: what each step down saves and loses, or with "
        "NAME=SHARE a mix behind one router.",
        panel=DEMAND,
        usual=True,
    ),
]
Isl = Annotated[float | None, option("--isl", text="Mean prompt tokens.", panel=DEMAND, usual=True)]
Osl = Annotated[float | None, option("--osl", text="Mean answer tokens, the first included.", panel=DEMAND, usual=True)]
IslCv = Annotated[float | None, option("--isl-cv", text="Spread of prompt lengths (std / mean).", panel=DEMAND)]
OslCv = Annotated[float | None, option("--osl-cv", text="Spread of answer lengths (std / mean).", panel=DEMAND)]
Trace = Annotated[
    str | None,
    option(
        "--trace",
        text="Lengths and peak from an Azure CSV or Mooncake JSONL.",
        panel=DEMAND,
        metavar="FILE",
        usual=True,
    ),
]
Workload = Annotated[
    str | None,
    option(
        "--workload",
        text="chat, code, rag, long-context, batch, agents or reasoning; or a YAML file with any of these options.",
        panel=DEMAND,
        metavar="KIND|FILE",
        usual=True,
    ),
]
PeakToMean = Annotated[float | None, option("--peak-to-mean", text="Busiest over mean rate.", panel=DEMAND, usual=True)]
CacheHit = Annotated[
    float | None, option("--cache-hit", text="Share of requests answered without a GPU.", panel=DEMAND)
]
PrefixHit = Annotated[
    float | None, option("--prefix-hit", text="Share of prompt tokens in the prefix cache.", panel=DEMAND, usual=True)
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
ImagePixels = Annotated[int | None, option("--image-pixels", text="Width x height of a picture.", panel=DEMAND)]
Headroom = Annotated[
    float | None, option("--headroom", text="Growth to keep free, such as 0.2.", panel=DEMAND, usual=True)
]
Objective = Annotated[
    list[str] | None,
    option(
        "--objective",
        text="A bound to hold, also written --ttft-p95 2s, --tpot-p99 50ms, --latency-p95 3s, --tpot-p95 reading.",
        panel=LATENCY,
        metavar="METRIC-pNN=TIME",
        usual=True,
    ),
]
Hardware = Annotated[
    list[str] | None, option("--hardware", text="Accelerators to compare; repeatable.", panel=REPLICA, usual=True)
]
Weights = Annotated[
    list[str] | None, option("--weights", text="Weight formats to compare; repeatable.", panel=REPLICA, usual=True)
]
Activations = Annotated[str | None, option("--activations", text="Format of the products.", panel=REPLICA)]
KvCache = Annotated[list[str] | None, option("--kv-cache", text="KV-cache formats; repeatable.", panel=REPLICA)]
Scheme = Annotated[str | None, option("--scheme", text="Quantization method, such as gptq-g128.", panel=REPLICA)]
Tp = Annotated[list[int] | None, option("--tp", text="Tensor-parallel sizes; repeatable.", panel=REPLICA, usual=True)]
Pp = Annotated[list[int] | None, option("--pp", text="Pipeline-parallel sizes; repeatable.", panel=REPLICA)]
Engine = Annotated[str | None, option("--engine", text="Engine profile.", panel=REPLICA, usual=True)]
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
    option("--utilization", text="Highest share of the saturation rate.", panel=FLEET),
]
Spares = Annotated[int | None, option("--spares", text="Spare replicas.", panel=FLEET, usual=True)]
MaxGpus = Annotated[int | None, option("--max-gpus", text="GPUs that may be used in all.", panel=FLEET, usual=True)]
RoundTo = Annotated[str | None, option("--round-to", text="server (whole servers) or device.", panel=FLEET)]
Profiles = Annotated[
    str | None, option("--profiles", text="Your profiles; they override and extend.", panel=OUTPUT, metavar="DIR")
]
Output = Annotated[PlanOutput, option("--output", text="Form of the answer.", panel=OUTPUT, usual=True)]
AsJson = Annotated[bool, typer.Option("--json", help="Same as --output json.", rich_help_panel=OUTPUT)]
Explain = Annotated[
    bool, typer.Option("--explain", help="Add the derivation and the refusals.", rich_help_panel=OUTPUT)
]
Out = Annotated[
    str, option("--out", text='Write to a new file; "-" is stdout.', panel=OUTPUT, metavar="FILE", usual=True)
]
Report = Annotated[
    str | None,
    option("--report", text="Write the whole report into a folder.", panel=OUTPUT, metavar="DIR", usual=True),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files of --out and --report.", rich_help_panel=OUTPUT)]
HelpAll = Annotated[
    bool,
    typer.Option(HELP_ALL, callback=print_whole_help, is_eager=True, help="Every option, each with its default."),
]
Version = Annotated[
    bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and stop.")
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show a traceback on errors.", rich_help_panel=OUTPUT, hidden=True)
]


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
        option("--price-of", text="low, median or high of the providers' prices.", panel=PRICES),
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
