"""Options of plan-capacity that widen its search, limit its fleet, or ask for studies beside the plan."""

from __future__ import annotations

from typing import Annotated

from simulator.cli.options.plan import DEMAND, FLEET, option

SEARCH, LIMITS, GAP, RESILIENCE, GROWTH, RISK = (
    "Search",
    "Limits of the fleet",
    "Gap",
    "Resilience",
    "Growth and rental",
    "Uncertainty",
)


def search_options(
    search: Annotated[
        str | None,
        option(
            "--search",
            text="usual, or wide: pipeline depths and engine limits too, over 100,000 set-ups.",
            panel=SEARCH,
        ),
    ] = None,
    serving: Annotated[
        list[str] | None,
        option(
            "--serving",
            text="aggregated, or disaggregated: prompts and answers in pools of their own; repeatable.",
            panel=SEARCH,
        ),
    ] = None,
    any_precision: Annotated[
        bool, option("--any-precision", text="Compare number formats; answers change with them.", panel=SEARCH)
    ] = False,
    pareto: Annotated[
        bool,
        option("--pareto", text="Add what no other fleet beats in cost, latency, energy and quality.", panel=SEARCH),
    ] = False,
    pools: Annotated[
        bool, option("--pools", text="Add a split of short and long prompts into two fleets.", panel=SEARCH)
    ] = False,
    max_cost_per_hour: Annotated[
        float | None,
        option("--max-cost-per-hour", "--budget", text="Money an hour, in the price list's currency.", panel=LIMITS),
    ] = None,
    max_power_kw: Annotated[
        float | None, option("--max-power-kw", text="Nameplate power of the fleet in kW.", panel=LIMITS)
    ] = None,
    max_racks: Annotated[
        int | None, option("--max-racks", text="Racks that may be filled; needs whole servers.", panel=LIMITS)
    ] = None,
    stock: Annotated[
        list[str] | None,
        option(
            "--stock",
            text="Accelerators that exist and serve first, such as h100=64; repeatable.",
            panel=LIMITS,
            metavar="KIND=COUNT",
        ),
    ] = None,
    explain_gap: Annotated[
        bool,
        option("--explain-gap", text="What would need fewer GPUs, each step with its price in quality.", panel=GAP),
    ] = False,
) -> None:
    """How far to search, and within which limits."""


def technique_axes(
    any_technique: Annotated[
        bool,
        option(
            "--any-technique",
            text="Compare speculation, 2:4 sparsity and, with experts, data-parallel attention.",
            panel=SEARCH,
        ),
    ] = False,
    speculation: Annotated[
        list[str] | None,
        option(
            "--speculation",
            text="Guesses to compare: mtp, eagle3:task=code, ngram:k=4, draft:acceptance=0.7, none; repeatable.",
            panel=SEARCH,
        ),
    ] = None,
    sparsity: Annotated[
        list[str] | None, option("--sparsity", text="Zeros in the weights to compare: 2:4, none.", panel=SEARCH)
    ] = None,
    kv_policy: Annotated[
        list[str] | None,
        option("--kv-policy", text="Bounded caches to compare: h2o:1024, streaming:2048, none.", panel=SEARCH),
    ] = None,
    weight_offload: Annotated[
        list[str] | None,
        option("--weight-offload", text="Shares of weights in host memory to compare: 0.25, none.", panel=SEARCH),
    ] = None,
    kv_allocation: Annotated[
        list[str] | None,
        option(
            "--kv-allocation",
            text="paged, or max_length: room for the longest request at once, as before PagedAttention.",
            panel=SEARCH,
        ),
    ] = None,
    dp_size: Annotated[
        list[int] | None,
        option("--dp", text="Ranks of data-parallel attention to compare, for models with experts.", panel=SEARCH),
    ] = None,
    ep_size: Annotated[
        list[int] | None,
        option("--ep", text="Devices that share the experts to compare: 1, or tp x dp; repeatable.", panel=SEARCH),
    ] = None,
    max_quality_loss: Annotated[
        float | None,
        option(
            "--max-quality-loss",
            text="Largest published loss of answer quality, such as 0.02; refuses what is unknown.",
            panel=LIMITS,
        ),
    ] = None,
) -> None:
    """Techniques to compare, and what they may cost in answers."""


def measured_options(
    answers_per_request: Annotated[
        int | None, option("--answers-per-request", text="Answers to every prompt: n, or best of n.", panel=DEMAND)
    ] = None,
    measured_rps_per_gpu: Annotated[
        float | None,
        option("--measured-rps-per-gpu", text="Size the fleet by what you measured on one GPU.", panel=DEMAND),
    ] = None,
    measured_at: Annotated[
        list[str] | None,
        option(
            "--measured-at",
            text="A percentile at that rate: latency-p95=2.8s; repeatable.",
            panel=DEMAND,
            metavar="METRIC-pNN=TIME",
        ),
    ] = None,
) -> None:
    """What a request asks for, and a rate of your own."""


def growth_options(
    growth: Annotated[
        str | None, option("--growth", text="Growth of demand, such as 5%/month or 80%/year.", panel=GROWTH, usual=True)
    ] = None,
    ownership: Annotated[
        str | None,
        option("--ownership", text="Figures of owning for the report: a name or a YAML file.", panel=FLEET),
    ] = None,
    horizon: Annotated[
        str | None, option("--horizon", text="Months to look ahead and to commit for.", panel=GROWTH)
    ] = None,
    start: Annotated[
        str | None, option("--start", text="First day of the forecast.", panel=GROWTH, metavar="DATE")
    ] = None,
    lead_time: Annotated[int | None, option("--lead-time", text="Days from order to use.", panel=GROWTH)] = None,
    rental: Annotated[
        bool,
        option("--rental", text="Cheapest mix of kept, on-demand and spot over day or week.", panel=GROWTH),
    ] = False,
    load_profile: Annotated[
        str | None,
        option("--load-profile", text="Relative demand of 24 or 168 hours.", panel=GROWTH, metavar="H0,H1,..."),
    ] = None,
    weekend: Annotated[
        float | None, option("--weekend", text="Demand of a weekend's day over a weekday's.", panel=GROWTH)
    ] = None,
) -> None:
    """Demand to come, and how to pay for it."""


def study_options(
    resilience: Annotated[
        bool, option("--resilience", text="Loss of replicas and servers, restarts, ramps.", panel=RESILIENCE)
    ] = False,
    server_spares: Annotated[
        int | None, option("--server-spares", text="Spares for the loss of whole servers (N+1: 1).", panel=RESILIENCE)
    ] = None,
    availability: Annotated[
        float | None,
        option("--availability", text="Percent of time with enough replicas up; sets the spares.", panel=RESILIENCE),
    ] = None,
    mtbf_hours: Annotated[
        float | None, option("--mtbf-hours", text="Hours between failures of one accelerator.", panel=RESILIENCE)
    ] = None,
    mttr_hours: Annotated[
        float | None, option("--mttr-hours", text="Hours to repair a replica.", panel=RESILIENCE)
    ] = None,
    ramp: Annotated[
        str | None, option("--ramp", text="Fastest growth of the rate, such as 10%/min of the peak.", panel=RESILIENCE)
    ] = None,
    startup: Annotated[
        str | None, option("--startup", text="Start of a replica to its first answer, such as 4min.", panel=RESILIENCE)
    ] = None,
    autoscaler_lag: Annotated[
        str | None, option("--autoscaler-lag", text="Ramp to the start of a replica.", panel=RESILIENCE)
    ] = None,
    uncertainty: Annotated[
        bool,
        option(
            "--uncertainty", text="P10/P50/P90, what moves the plan, what breaks first, regret.", panel=RISK, usual=True
        ),
    ] = False,
    demand_sigma: Annotated[
        float | None, option("--demand-sigma", text="Spread of log(demand / forecast).", panel=RISK)
    ] = None,
    draws: Annotated[int | None, option("--draws", text="Draws of the Monte Carlo.", panel=RISK)] = None,
    seed: Annotated[int | None, option("--seed", text="Seed of the Monte Carlo.", panel=RISK)] = None,
    verify: Annotated[
        bool | None,
        option(
            "--verify/--no-verify",
            text="Simulate the best fleets before one is recommended; --no-verify: none.",
            panel=RISK,
            usual=True,
        ),
    ] = None,
) -> None:
    """Studies beside the plan."""
