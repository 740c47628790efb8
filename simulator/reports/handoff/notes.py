"""What has to be there before the handed-over files give what was planned, and what they cannot say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulator.planner.fleet.records import Fleet
from simulator.planner.handoff import DRAFT_PLACEHOLDER, LaunchSettings
from simulator.planner.records import Demand
from simulator.reports.handoff.benchmark import RESULT
from simulator.reports.handoff.commands import note, speculation_items
from simulator.reports.handoff.kubernetes import image
from simulator.specs.hardware.accelerator import OWN_LABEL, cluster
from simulator.specs.model.precision import Dtype


def handoff_notes(items: Sequence[LaunchSettings], fleet: Fleet, *, demand: Demand) -> tuple[str, ...]:
    """The notes of a fleet, most needed first."""
    if not items:
        return (note("undescribed", {"engine": fleet.replica.deployment.engine}),)
    last, hits = items[-1], demand.mix.prefix_hit_fraction
    return (
        *_release_notes(last),
        *dict.fromkeys(said for item in items for said in _each_notes(item)),
        *_cache_notes(last),
        *tier_notes(last),
        *untuned_notes(last),
        *technique_notes(last),
        *_transfer_notes(fleet),
        *_cluster_notes(items),
        *([note("routing", {"hits": hits})] if hits and len(items) == 1 else []),
        _benchmark_note(last, fleet, answers=demand.answers_per_request),
    )


def _release_notes(item: LaunchSettings) -> Iterator[str]:
    """What the commands, the checkpoint and the longest request rest on."""
    launch, values = item.launch, {"item": item}
    source = launch.sources.get("images")
    said = {
        "image": image(item),
        "source": f" ({source.source})" if source is not None else "",
        "checked": note(launch.checked),
        "newer": note("newer", values) if item.release != launch.release else "",
    }
    yield note("release", {**values, **said})
    if item.checkpoint.origin != "own":
        known = "read from its configuration" if item.checkpoint.source == "profile" else "from memory, verify"
        yield note(f"checkpoint_{item.checkpoint.origin}", {**values, "known": known})
    if item.max_model_len < item.deployment.engine.max_model_len:
        yield note("longest", values)


def _each_notes(item: LaunchSettings) -> Iterator[str]:
    """What may be asked of the accelerators of one pool and not of the other."""
    watts = item.deployment.hardware.power_cap_w
    if watts is not None:
        yield note("power", {"watts": watts})
    if item.conditions()["two_batches"] and not any("two_batches" in flag.when for flag in item.launch.flags):
        yield note("halves", {"item": item})


def tier_notes(item: LaunchSettings) -> Iterator[str]:
    """Tiers of the plan for which the engine has no flag, and what those that it has ask for."""
    asked = [tier.medium for tier in item.deployment.engine.kv_tiers]
    missing = [medium for medium in asked if not item.tier_bytes(medium)]
    if missing:
        without = " without host memory above it." if all(name in item.launch.tiers for name in missing) else "."
        yield note("tiers_left_out", {"item": item, "tiers": missing, "without": without})
    if len(missing) < len(asked):
        yield note("tiers_kept")


def untuned_notes(item: LaunchSettings) -> list[str]:
    """Experts in 16 bits for whose number and width the release has no tuned tiles on this accelerator."""
    deployment, traits = item.deployment, item.deployment.kernels.traits
    if traits.untuned is None:
        return []
    name = deployment.plan.format_for("experts").name
    found = traits.without_tiles(deployment.model, deployment.parallelism, format_name=name)
    return [note("untuned", {"item": item, "count": count, "width": width}) for count, width in found]


def _cache_notes(item: LaunchSettings) -> list[str]:
    cached = item.deployment.plan.kv_dtype
    if cached is Dtype.FP8:
        return [note("cache_fp8")]
    return [note("cache_4bit", {"item": item})] if cached in (Dtype.FP4, Dtype.INT4) else []


def _speculation_notes(item: LaunchSettings) -> Iterator[str]:
    if item.deployment.speculation is None:
        return
    values, entries = {"item": item, "plan": item.deployment.speculation.plan}, speculation_items(item)
    yield note("speculation", values)
    if not entries:
        yield note("speculation_unflagged", values)
    elif item.draft_model == DRAFT_PLACEHOLDER and any("draft_model" in entry.flag + entry.value for entry in entries):
        yield note("drafter", {"drafter": DRAFT_PLACEHOLDER})


def technique_notes(item: LaunchSettings) -> Iterator[str]:
    """What techniques of the plan need beyond flags."""
    spec = item.deployment.techniques.spec
    yield from _speculation_notes(item)
    if spec.sparsity is not None:
        yield note("sparsity", {"spec": spec})
    if spec.weight_offload is not None:
        yield note("offload", {"spec": spec})
    if spec.kv_policy is not None:
        yield note("kv_policy", {"spec": spec})


def _transfer_notes(fleet: Fleet) -> Iterator[str]:
    """What has to be there before caches move between pools as planned."""
    if fleet.transfer is None:
        return
    yield note("transfer", {"fleet": fleet})
    if fleet.is_unlike:
        yield note("unlike", {"fleet": fleet})
    prefill, decode = (pool.replica.deployment.parallelism.tp_size for pool in fleet.pools)
    if prefill > decode:
        yield note("narrower", {"prefill": prefill, "decode": decode})


def _cluster_notes(items: Sequence[LaunchSettings]) -> Iterator[str]:
    last = items[-1]
    yield note("start", {"item": last, "twice_s": 2 * last.start_s})
    if image(last).startswith("your-"):
        yield note("image", {"image": image(last)})
    named = {item.deployment.hardware.name: item.deployment.hardware for item in items}
    for name, hardware in named.items():
        if OWN_LABEL in cluster().node_selector(hardware):
            yield note("label", {"label": OWN_LABEL, "hardware": name})
    if any(item.servers > 1 and item.launch.join for item in items):
        yield note("joined", {"item": last})
    elif any(item.servers > 1 for item in items):
        yield note("spanning", {"servers": max(item.servers for item in items)})


def _benchmark_note(item: LaunchSettings, fleet: Fleet, *, answers: int) -> str:
    if len(fleet.pools) > 1:
        return note("benchmark_of_pools")
    if item.deployment.speculation is not None:
        return note("benchmark_by_hand", {"unknown": "acceptance"})
    if answers > 1:
        return note("benchmark_by_hand", {"unknown": "prompts that several answers share"})
    return note("benchmark", {"result": RESULT})
