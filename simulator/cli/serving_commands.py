"""The commands about requests under load: ``roofcast serve`` and ``roofcast capacity``."""

from __future__ import annotations

from typing import Annotated

import typer

Scenario = Annotated[str, typer.Argument(metavar="SCENARIO.yaml", help='Kind serve, YAML or JSON; "-" is stdin.')]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Seed of arrivals and lengths.")]
Model = Annotated[str | None, typer.Option("--model", "-m", help="Another model.")]
Hardware = Annotated[str | None, typer.Option("--hardware", help="Another accelerator.")]
Tp = Annotated[int | None, typer.Option("--tp", min=1, help="Another tensor-parallel size.")]
Replicas = Annotated[int | None, typer.Option("--replicas", min=1, help="Another number of replicas.")]
Routing = Annotated[
    str | None,
    typer.Option("--routing", help="How requests find a replica: round_robin, least_outstanding or prefix_aware."),
]
Slo = Annotated[
    list[str] | None, typer.Option("--slo", metavar="METRIC-pNN=TIME", help="Bound to hold: ttft-p95=2s; repeatable.")
]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="FIELD=VALUE",
        help="What if: weights=fp8, sparsity=2:4, speculation=eagle:k=4, max_num_seqs=64; repeatable.",
    ),
]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help='"-" is stdout.')]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files.")]
Profiles = Annotated[
    str | None, typer.Option("--profiles", metavar="DIR", help="Your profile directory; overrides and extends.")
]


def serve(
    scenario: Scenario,
    rate: Annotated[float | None, typer.Option("--rate", help="Requests/s, instead of the scenario's.")] = None,
    duration: Annotated[float | None, typer.Option("--duration", help="Seconds of load.")] = None,
    seed: Seed = None,
    model: Model = None,
    hardware: Hardware = None,
    tp: Tp = None,
    replicas: Replicas = None,
    routing: Routing = None,
    what_if: With = None,
    slo: Slo = None,
    requests: Annotated[
        str | None, typer.Option("--requests", metavar="FILE", help="Per-request table, .csv or .parquet.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option("--trace", metavar="FILE.json", help="Steps for chrome://tracing or Perfetto.")
    ] = None,
    assumptions: Annotated[bool, typer.Option("--assumptions", help="List what was assumed.")] = False,
    output: Output = "-",
    as_json: AsJson = False,
    force: Force = False,
    profiles: Profiles = None,
) -> None:
    """Serve a workload step by step: percentiles under load, queue and KV pressure, goodput, intervals.

    Example: roofcast serve scenario.yaml --slo ttft-p95=2s --slo tpot-p95=50ms --requests requests.csv
    """
    from simulator.cli.serve import ServeQuestion, run_serve
    from simulator.specs.question.scenario_file import ScenarioChanges

    changes = ScenarioChanges(
        model=model,
        hardware=hardware,
        tp_size=tp,
        replicas=replicas,
        rate_per_s=rate,
        duration_s=duration,
        seed=seed,
        routing=routing,
        what_if=tuple(what_if or ()),
    )
    question = ServeQuestion(
        source=scenario,
        changes=changes,
        objectives=tuple(slo or ()),
        requests=requests,
        trace=trace,
        output=output,
        as_json=as_json,
        assumptions=assumptions,
        force=force,
        profiles=profiles,
    )
    run_serve(question)


def capacity(
    scenario: Scenario,
    slo: Slo = None,
    seeds: Annotated[int, typer.Option("--seeds", min=2, max=50, help="Independent runs at every rate.")] = 5,
    requests: Annotated[
        int | None,
        typer.Option("--requests", min=200, help="Requests of one run; by default enough for the batch at capacity."),
    ] = None,
    seed: Seed = None,
    model: Model = None,
    hardware: Hardware = None,
    tp: Tp = None,
    replicas: Replicas = None,
    routing: Routing = None,
    what_if: With = None,
    assumptions: Annotated[bool, typer.Option("--assumptions", help="List what was assumed.")] = False,
    output: Output = "-",
    as_json: AsJson = False,
    force: Force = False,
    profiles: Profiles = None,
) -> None:
    """Find the highest request rate that a deployment serves within objectives, by simulation.

    Stages of the scenario keep their proportions; their rates are what is searched.

    Example: roofcast capacity scenario.yaml --slo ttft-p95=2s --slo tpot-p95=50ms
    """
    from simulator.cli.capacity import CapacityQuestion, run_capacity
    from simulator.specs.question.scenario_file import ScenarioChanges

    changes = ScenarioChanges(
        model=model,
        hardware=hardware,
        tp_size=tp,
        replicas=replicas,
        seed=seed,
        routing=routing,
        what_if=tuple(what_if or ()),
    )
    question = CapacityQuestion(
        source=scenario,
        changes=changes,
        objectives=tuple(slo or ()),
        seeds=seeds,
        requests=requests,
        output=output,
        as_json=as_json,
        assumptions=assumptions,
        force=force,
        profiles=profiles,
    )
    run_capacity(question)
