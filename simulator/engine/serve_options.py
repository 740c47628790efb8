"""What a run under load is asked for beside its workload: objectives, routing, intervals, traces."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.engine.settings import Routing
from simulator.engine.simulation import Progress
from simulator.errors import RoofcastError
from simulator.specs.objectives_text import parse_objectives
from simulator.specs.plan import ObjectiveSpec
from simulator.specs.scenario import RoutingName, ScenarioSpec

_ROUTINGS: dict[RoutingName, Routing] = {
    "round_robin": Routing.ROUND_ROBIN,
    "least_outstanding": Routing.LEAST_OUTSTANDING,
    "prefix_aware": Routing.PREFIX_AWARE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What else to find out about a served workload.

    objectives : bounds whose percentiles and goodput are reported; intervals : whether to work them out
    trace_steps : steps of each replica to keep; progress : called with (requests brought in, of how many)
    routing : how requests are spread over replicas
    """

    objectives: tuple[ObjectiveSpec, ...] = ()
    intervals: bool = True
    trace_steps: int = 0
    progress: Progress | None = None
    routing: Routing = Routing.ROUND_ROBIN


def routing_of(scenario: ScenarioSpec) -> Routing:
    """The scenario's routing; refused where there is nothing to choose between."""
    if scenario.routing is None:
        return Routing.ROUND_ROBIN
    pools = scenario.disaggregation
    most = scenario.replicas if pools is None else max(pools.prefill_replicas, pools.decode_replicas)
    if most * scenario.dp_size == 1:
        raise RoofcastError(
            f"{scenario.routing!r} has nothing to choose from: there is one replica",
            field="routing",
            code="ignored_option",
            hint="leave it out or add replicas",
        )
    return _ROUTINGS[scenario.routing]


def scenario_options(scenario: ScenarioSpec, options: ServeOptions) -> ServeOptions:
    """``options`` with what the scenario itself asks for; objectives of the caller go before the scenario's."""
    if scenario.kind != "serve":
        return options
    return replace(
        options,
        routing=routing_of(scenario),
        objectives=options.objectives or parse_objectives(scenario.slo or (), flag="slo"),
    )
