"""What has to be there before the handed-over files give what was planned, and what they cannot say."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.planner.fleet.records import Fleet
from simulator.planner.handoff import DRAFT_PLACEHOLDER, LaunchSettings
from simulator.planner.records import Demand
from simulator.reports.handoff.benchmark import RESULT
from simulator.reports.handoff.commands import note, speculation_items
from simulator.reports.handoff.kubernetes import image
from simulator.specs.hardware.accelerator import OWN_LABEL, cluster
from simulator.specs.model.precision import Dtype
from simulator.units import percent_text


def handoff_notes(items: Sequence[LaunchSettings], fleet: Fleet, *, demand: Demand) -> tuple[str, ...]:
    """The notes of a fleet, most needed first."""
    if not items:
        engine = fleet.replica.deployment.engine
        return (note("undescribed", {"engine": engine.name, "version": engine.version}),)
    last, hits = items[-1], demand.mix.prefix_hit_fraction
    return (
        _release_note(last),
        *_checkpoint_notes(last),
        *_limit_notes(last),
        *dict.fromkeys(said for item in items for said in _each_notes(item)),
        *_cache_notes(last),
        *tier_notes(last),
        *untuned_notes(last),
        *technique_notes(last),
        *_transfer_notes(fleet),
        *_cluster_notes(items),
        *([note("routing", {"hits": percent_text(hits)})] if hits and len(items) == 1 else []),
        _benchmark_note(last, fleet, answers=demand.answers_per_request),
    )


def _release_note(item: LaunchSettings) -> str:
    launch = item.launch
    known = launch.sources.get("images")
    values = {
        "title": launch.title,
        "release": launch.release,
        "image": image(item),
        "source": f" ({known.source})" if known is not None else "",
        "checked": note(launch.checked),
        "newer": note("newer", {"release": item.release}) if item.release != launch.release else "",
    }
    return note("release", values)


def _checkpoint_notes(item: LaunchSettings) -> list[str]:
    checkpoint = item.checkpoint
    if checkpoint.origin == "own":
        return []
    values = {
        "title": item.launch.title,
        "path": checkpoint.path,
        "base": checkpoint.base,
        "weights": item.deployment.plan.weights.value,
        "quantization": checkpoint.quantization,
        "known": "read from its configuration" if checkpoint.source == "profile" else "from memory, verify",
    }
    return [note(f"checkpoint_{checkpoint.origin}", values)]


def _limit_notes(item: LaunchSettings) -> list[str]:
    planned = item.deployment.engine.max_model_len
    if item.max_model_len >= planned:
        return []
    return [note("longest", {"tokens": str(item.max_model_len), "planned": str(planned)})]


def _each_notes(item: LaunchSettings) -> list[str]:
    """What may be asked of the accelerators of one pool and not of the other."""
    watts, halves = item.deployment.hardware.power_cap_w, item.conditions()["two_batches"]
    notes = [] if watts is None else [note("power", {"watts": f"{watts:g}"})]
    if halves and not any("two_batches" in flag.when for flag in item.launch.flags):
        notes.append(note("halves", {"title": item.launch.title}))
    return notes


def tier_notes(item: LaunchSettings) -> list[str]:
    """Tiers of the plan for which the engine has no flag, and what those that it has ask for."""
    asked = [tier.medium for tier in item.deployment.engine.kv_tiers]
    missing = [medium for medium in asked if not item.tier_bytes(medium)]
    notes = []
    if missing:
        without = " without host memory above it." if all(name in item.launch.tiers for name in missing) else "."
        values = {"tiers": " and ".join(missing), "title": item.launch.title, "without": without}
        notes.append(note("tiers_left_out", values))
    return [*notes, note("tiers_kept")] if len(missing) < len(asked) else notes


def untuned_notes(item: LaunchSettings) -> list[str]:
    """Experts in 16 bits for whose number and width the release has no tuned tiles on this accelerator."""
    deployment, traits = item.deployment, item.deployment.kernels.traits
    if traits.untuned is None:
        return []
    values = {
        "title": item.launch.title,
        "version": deployment.engine.version,
        "hardware": deployment.hardware.name,
        "until": traits.untuned.until,
    }
    name = deployment.plan.format_for("experts").name
    found = traits.without_tiles(deployment.model, deployment.parallelism, format_name=name)
    return [note("untuned", {**values, "count": str(count), "width": str(width)}) for count, width in found]


def _cache_notes(item: LaunchSettings) -> list[str]:
    cached = item.deployment.plan.kv_dtype
    if cached is Dtype.FP8:
        return [note("cache_fp8")]
    return [note("cache_4bit", {"title": item.launch.title})] if cached in (Dtype.FP4, Dtype.INT4) else []


def _speculation_notes(item: LaunchSettings) -> list[str]:
    found = item.deployment.speculation
    if found is None:
        return []
    values = {"title": item.launch.title, "method": found.plan.method, "tokens": f"{found.plan.mean_tokens:.2f}"}
    notes, entries = [note("speculation", values)], speculation_items(item)
    if not entries:
        return [*notes, note("speculation_unflagged", values)]
    is_named = any("draft_model" in entry.flag + entry.value for entry in entries)
    if is_named and item.draft_model == DRAFT_PLACEHOLDER:
        notes.append(note("drafter", {"drafter": DRAFT_PLACEHOLDER}))
    return notes


def technique_notes(item: LaunchSettings) -> list[str]:
    """What techniques of the plan need beyond flags."""
    spec, notes = item.deployment.techniques.spec, _speculation_notes(item)
    if spec.sparsity is not None:
        notes.append(note("sparsity", {"pattern": str(spec.sparsity.pattern)}))
    if spec.weight_offload is not None:
        notes.append(note("offload", {"share": percent_text(spec.weight_offload.fraction)}))
    if spec.kv_policy is not None:
        notes.append(note("kv_policy", {"method": spec.kv_policy.method}))
    return notes


def _transfer_notes(fleet: Fleet) -> list[str]:
    """What has to be there before caches move between pools as planned."""
    if fleet.transfer is None:
        return []
    first, last = fleet.pools
    notes = [note("transfer", {"link": fleet.transfer.link, "seconds": f"{fleet.transfer.prompt_s:.3g}"})]
    if fleet.is_unlike:
        notes.append(note("unlike", {"first": first.hardware, "last": last.hardware}))
    prefill, decode = (pool.replica.deployment.parallelism.tp_size for pool in fleet.pools)
    return [*notes, note("narrower", {"prefill": str(prefill), "decode": str(decode)})] if prefill > decode else notes


def _cluster_notes(items: Sequence[LaunchSettings]) -> list[str]:
    last = items[-1]
    bytes_text = f"{last.server_weights_bytes:.2g}"
    notes = [note("start", {"seconds": f"{2 * last.start_s:.0f}", "bytes": bytes_text})]
    if image(last).startswith("your-"):
        notes.append(note("image", {"image": image(last)}))
    named = {item.deployment.hardware.name: item.deployment.hardware for item in items}
    for name, hardware in named.items():
        if OWN_LABEL in cluster().node_selector(hardware):
            notes.append(note("label", {"label": OWN_LABEL, "hardware": name}))
    if any(item.servers > 1 and item.launch.join for item in items):
        notes.append(note("joined", {"servers": str(last.servers), "title": last.launch.title}))
    elif any(item.servers > 1 for item in items):
        notes.append(note("spanning", {"servers": str(max(item.servers for item in items))}))
    return notes


def _benchmark_note(item: LaunchSettings, fleet: Fleet, *, answers: int) -> str:
    if len(fleet.pools) > 1:
        return note("benchmark_of_pools")
    if item.deployment.speculation is not None:
        return note("benchmark_by_hand", {"unknown": "acceptance"})
    if answers > 1:
        return note("benchmark_by_hand", {"unknown": "prompts that several answers share"})
    return note("benchmark", {"result": RESULT})
