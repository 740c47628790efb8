"""A prefill pool and a decode pool as commands: each role's engines, the router in front of them, the check.

Flags and the proxy as in vLLM's pages on disaggregated prefill [VllmTeam2026], SGLang's on PD disaggregation
[SglangTeam2025] and TensorRT-LLM's on disaggregated serving [TrtllmTeam2025]; none of them was run.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.planner.handoff.engines import sglang_launch, tensorrt_launch, vllm_launch
from simulator.planner.handoff.kubernetes import kubernetes
from simulator.planner.handoff.settings import LaunchSettings, launch_settings
from simulator.planner.records import Fleet

_PROXY = "tests/v1/kv_connector/nixl_integration/toy_proxy_server.py"


def pool_fleets(fleet: Fleet) -> tuple[Fleet, Fleet]:
    """Each pool as a fleet of its own replicas, in the order of a request's way."""
    pool = fleet.prefill
    if pool is None:
        raise ValueError("a fleet with two pools is needed")
    prefill = replace(
        fleet, replica=pool.replica, label=pool.label, replicas=pool.replicas, spares=pool.spares, prefill=None
    )
    return prefill, replace(fleet, prefill=None)


def pool_settings(fleet: Fleet, *, model_id: str, scheme: str | None) -> tuple[LaunchSettings, LaunchSettings]:
    """What the engines of each pool are told."""
    prefill, decode = (launch_settings(part, model_id=model_id, scheme=scheme) for part in pool_fleets(fleet))
    return replace(prefill, role="prefill"), replace(decode, role="decode")


def _both(texts: tuple[str, str], fleet: Fleet) -> str:
    pools = pool_fleets(fleet)
    return "\n".join(
        f"# {pool.replicas + pool.spares} {role} replicas ({pool.spares} of them spare)\n{text}"
        for role, pool, text in zip(("prefill", "decode"), pools, texts, strict=True)
    )


def _instances(host: str, pool: Fleet) -> str:
    """Every replica of a pool, its spares among them: as many addresses as instances."""
    count = pool.replicas + pool.spares
    urls = "".join(f'    - "{host}-{place}:8000"\n' for place in range(1, count + 1))
    return f"  num_instances: {count}\n  urls:\n{urls}"


def pools_launch(fleet: Fleet, items: tuple[LaunchSettings, LaunchSettings]) -> tuple[tuple[str, str, str, str], ...]:
    """(engine, file name, title, text) of one replica of each role and of what spreads requests over them."""
    first, second = items
    vllm = _both((vllm_launch(first), vllm_launch(second)), fleet)
    sglang = _both((sglang_launch(first), sglang_launch(second)), fleet)
    tensorrt = _both((tensorrt_launch(first), tensorrt_launch(second)), fleet)
    return (
        (
            "vllm",
            "launch-vllm.sh",
            "One replica of each pool, vLLM",
            f"{vllm}\n# In front of them; name all hosts of each pool. vLLM's example; in production use a router.\n"
            f"python {_PROXY} --port 8000 \\\n  --prefiller-hosts PREFILL --prefiller-ports 8000 \\\n"
            "  --decoder-hosts DECODE --decoder-ports 8000\n",
        ),
        (
            "sglang",
            "launch-sglang.sh",
            "One replica of each pool, SGLang",
            f"{sglang}\n# In front of them; one --prefill and one --decode for each replica.\n"
            "python -m sglang_router.launch_router --pd-disaggregation \\\n"
            "  --prefill http://PREFILL:30000 --decode http://DECODE:30000\n",
        ),
        (
            "tensorrt-llm",
            "launch-tensorrt-llm.sh",
            "One replica of each pool, TensorRT-LLM",
            f"{tensorrt}\n# In front of them: prefill replicas are context servers, the others generation servers.\n"
            "cat > disaggregated.yaml <<'YAML'\nport: 8000\nbackend: pytorch\n"
            f"context_servers:\n{_instances('PREFILL', pool_fleets(fleet)[0])}"
            f"generation_servers:\n{_instances('DECODE', pool_fleets(fleet)[1])}YAML\n"
            "trtllm-serve disaggregated -c disaggregated.yaml\n",
        ),
    )


def pools_kubernetes(fleet: Fleet, items: tuple[LaunchSettings, LaunchSettings]) -> str:
    """The objects of both pools, each with a service of its own."""
    return "---\n".join(kubernetes(item, pool) for item, pool in zip(items, pool_fleets(fleet), strict=True))


def pools_notes(fleet: Fleet) -> tuple[str, ...]:
    """What has to be there before the pools do what was planned."""
    pool = fleet.prefill
    if pool is None:
        return ()
    degrees = [part.deployment.parallelism.tp_size for part in (pool.replica, fleet.replica)]
    notes = [
        f"KV caches move over {pool.link}: the pools need RDMA between all their servers (NIXL over UCX), "
        f"{pool.transfer_s:.3g} s for a mean prompt; check it before anything else.",
        "The benchmark goes to the router and loads both pools; one replica alone shows nothing.",
    ]
    if degrees[0] > degrees[1]:
        notes.append(
            f"Prefill runs TP{degrees[0]} and decode TP{degrees[1]}: not every release of the KV connectors moves a "
            "cache to fewer devices than it was computed on."
        )
    return tuple(notes)
