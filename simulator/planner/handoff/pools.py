"""What spreads requests over the two pools of a fleet, engine by engine, and what has to be there first."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.planner.fleet.records import Fleet
from simulator.planner.handoff.settings import LaunchSettings

_PROXY = "tests/v1/kv_connector/nixl_integration/toy_proxy_server.py"


def _instances(host: str, item: LaunchSettings) -> str:
    """Every replica of a pool, its spares among them: as many addresses as instances."""
    count = item.replicas + item.spares
    urls = "".join(f'    - "{host}-{place}:8000"\n' for place in range(1, count + 1))
    return f"  num_instances: {count}\n  urls:\n{urls}"


def router(engine: str, items: Sequence[LaunchSettings]) -> str:
    """What stands in front of both pools in an engine's words."""
    match engine:
        case "vllm":
            return (
                "# In front of them; name all hosts of each pool. vLLM's example; in production use a router.\n"
                f"python {_PROXY} --port 8000 \\\n  --prefiller-hosts PREFILL --prefiller-ports 8000 \\\n"
                "  --decoder-hosts DECODE --decoder-ports 8000\n"
            )
        case "sglang":
            return (
                "# In front of them; one --prefill and one --decode for each replica.\n"
                "python -m sglang_router.launch_router --pd-disaggregation \\\n"
                "  --prefill http://PREFILL:30000 --decode http://DECODE:30000\n"
            )
        case _:
            return (
                "# In front of them: prefill replicas are context servers, the others generation servers.\n"
                "cat > disaggregated.yaml <<'YAML'\nport: 8000\nbackend: pytorch\n"
                f"context_servers:\n{_instances('PREFILL', items[0])}"
                f"generation_servers:\n{_instances('DECODE', items[1])}YAML\n"
                "trtllm-serve disaggregated -c disaggregated.yaml\n"
            )


def transfer_notes(fleet: Fleet) -> tuple[str, ...]:
    """What has to be there before caches move between pools as planned."""
    if fleet.transfer is None:
        return ()
    degrees = [pool.replica.deployment.parallelism.tp_size for pool in fleet.pools]
    notes = [
        f"KV caches move over {fleet.transfer.link}: the pools need RDMA between all their servers (NIXL over UCX), "
        f"{fleet.transfer.prompt_s:.3g} s for a mean prompt; check it before anything else.",
        "The benchmark goes to the router and loads both pools; one replica alone shows nothing.",
    ]
    if degrees[0] > degrees[1]:
        notes.append(
            f"Prefill runs TP{degrees[0]} and decode TP{degrees[1]}: not every release of the KV connectors moves a "
            "cache to fewer devices than it was computed on."
        )
    return tuple(notes)
