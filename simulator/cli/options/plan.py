"""The options of plan-capacity: one for each field of a plan, in panels, and those of its output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from inspect import Parameter
from typing import Annotated

import typer

from simulator.cli.entry import print_version
from simulator.cli.options.shared import HELP_ALL, field_option, print_whole_help
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import WrittenField, written_fields


class PlanOutput(StrEnum):
    """Forms of the answer."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"


_PANELS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "Demand": (
        (
            "rate_per_s",
            "model",
            "isl_tokens",
            "osl_tokens",
            "trace",
            "workload",
            "peak_to_mean",
            "prefix_hit",
            "headroom",
        ),
        (
            *("isl_cv", "osl_cv", "cache_hit", "images_per_request", "image_pixels", "arrival_cv"),
            *("answers_per_request", "measured_rps_per_gpu", "measured_at"),
        ),
    ),
    "Latency": (("objective",), ()),
    "Replica": (
        ("hardware", "weights", "tp_size", "engine"),
        (
            *("activations", "kv_cache", "scheme", "pp_size", "max_num_seqs", "max_num_batched_tokens"),
            *("max_model_len", "gpu_memory_utilization", "power_cap_w"),
        ),
    ),
    "Fleet": (("spares", "max_gpus"), ("confidence", "utilization", "round_to", "ownership")),
    "Prices": ((), ("prices", "price_kind", "price_of", "provider")),
    "Search": (
        (),
        (
            *("search", "serving", "prefill_hardware", "any_precision", "pareto", "pools", "any_technique"),
            *(
                "speculation",
                "sparsity",
                "kv_policy",
                "weight_offload",
                "kv_allocation",
                "dp_size",
                "ep_size",
                "cp_size",
            ),
        ),
    ),
    "Limits of the fleet": ((), ("max_cost_per_hour", "max_power_kw", "max_racks", "stock", "max_quality_loss")),
    "Gap": ((), ("explain_gap",)),
    "Resilience": (
        (),
        (
            *("resilience", "server_spares", "availability", "mtbf_hours", "mttr_hours"),
            *("ramp", "startup", "autoscaler_lag"),
        ),
    ),
    "Uncertainty": (("uncertainty", "verify"), ("demand_sigma", "draws", "seed")),
    "Growth and rental": (("growth",), ("horizon", "start", "lead_time", "rental", "load_profile", "weekend")),
    "Output": ((), ("profiles",)),
}
"""Fields by panel of the help: those of its short form, and the rest."""
_METAVARS = {
    "trace": "FILE",
    "workload": "KIND|FILE",
    "objective": "METRIC-pNN=TIME",
    "measured_at": "METRIC-pNN=TIME",
    "stock": "KIND=COUNT",
    "start": "DATE",
    "load_profile": "H0,H1,...",
    "profiles": "DIR",
}
_ALSO = {"model": "-m", "max_cost_per_hour": "--budget"}
_OBJECTIVE = WrittenField(
    name="objective",
    text="A bound to hold, also written --ttft-p95 2s, --tpot-p99 50ms, --latency-p95 3s, --tpot-p95 reading.",
    several=True,
)
_MODELS = (
    "Name, Hugging Face id, config.json or its folder; several: what each step down saves and loses, or with "
    "NAME=SHARE a mix behind one router."
)


def plan_options() -> list[Parameter]:
    """An option for every field of a plan; objectives are texts, and models may be several."""
    fields = {**written_fields(PlanSpec), "objective": _OBJECTIVE}
    fields["model"] = replace(fields["model"], text=_MODELS, several=True)
    return [
        field_option(
            fields[name], also=_ALSO.get(name), panel=panel, metavar=_METAVARS.get(name), hidden=name not in usual
        )
        for panel, (usual, others) in _PANELS.items()
        for name in (*usual, *others)
    ]


_OUTPUT = "Output"
Output = Annotated[PlanOutput, typer.Option("--output", help="Form of the answer.", rich_help_panel=_OUTPUT)]
AsJson = Annotated[bool, typer.Option("--json", help="Same as --output json.", rich_help_panel=_OUTPUT)]
Explain = Annotated[
    bool, typer.Option("--explain", help="Add the derivation and the refusals.", rich_help_panel=_OUTPUT)
]
Out = Annotated[
    str, typer.Option("--out", metavar="FILE", help='Write to a new file; "-" is stdout.', rich_help_panel=_OUTPUT)
]
Report = Annotated[
    str | None,
    typer.Option("--report", metavar="DIR", help="Write the whole report into a folder.", rich_help_panel=_OUTPUT),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files of --out and --report.", rich_help_panel=_OUTPUT)]
HelpAll = Annotated[
    bool, typer.Option(HELP_ALL, callback=print_whole_help, is_eager=True, help="Every option, each with its default.")
]
Version = Annotated[
    bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and stop.")
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show a traceback on errors.", rich_help_panel=_OUTPUT, hidden=True)
]
