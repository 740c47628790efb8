"""Why a candidate cannot serve: each refusal with its amount."""

from __future__ import annotations

from simulator.engine.lanes.load_curve import LoadCurve, SlotLimit, kv_tokens_for_one
from simulator.phases.memory import MemoryPlan
from simulator.planner.records import Rejection
from simulator.planner.search.candidates import Candidate
from simulator.planner.serving.replica_capacity import Missed
from simulator.specs.model.architecture import ModelSpec
from simulator.units import GIGA, percent_text


def refuse(candidate: Candidate, *, code: str, message: str, excess: float) -> Rejection:
    """A candidate that cannot serve: why, and by how much."""
    return Rejection(
        hardware=candidate.platform.hardware.name, label=candidate.label, code=code, message=message, excess=excess
    )


def quality_refusal(candidate: Candidate, *, model: ModelSpec, allowed: float) -> Rejection | None:
    """Answers that lose more than is allowed, as far as is published."""
    # Published figures are read only where a floor asks for them.
    from simulator.planner.search.format_quality import answer_quality

    quality = answer_quality(model, candidate.precision, candidate.techniques)
    if quality.within(allowed):
        return None
    lost = "an unknown part" if quality.loss is None else percent_text(quality.loss, digits=3)
    message = f"answers lose {lost}, above {percent_text(allowed, digits=3)}: {quality.note}"
    excess = float("inf") if quality.loss is None else quality.loss - allowed
    return refuse(candidate, code="quality", message=message, excess=excess)


def memory_refusal(candidate: Candidate, memory: MemoryPlan) -> Rejection | None:
    """Weights that do not fit."""
    if memory.shortfall_bytes > 0:
        message = (
            f"does not fit by {memory.shortfall_bytes / GIGA:.1f} GB per device: weights "
            f"{memory.weights_bytes / GIGA:.1f} GB of a budget of {memory.budget_bytes / GIGA:.1f} GB"
        )
        excess = memory.shortfall_bytes / memory.budget_bytes
        return refuse(candidate, code="memory", message=message, excess=excess)
    return None


def slot_refusal(candidate: Candidate, memory: MemoryPlan, *, curve: LoadCurve) -> Rejection | None:
    """A lane that cannot run one sequence: its token budget or its share of the cache is too small."""
    if curve.slots > 0:
        return None
    limits, stages = curve.limits, candidate.parallelism.pp_size
    if curve.limit is SlotLimit.TOKEN_BUDGET:
        message = (
            f"a token budget of {limits.batched_tokens} per step is 1 too small: 2 are the least, "
            "one for a decoding sequence and one for a prompt"
        )
        return refuse(candidate, code="token_budget", message=message, excess=1 / limits.batched_tokens)
    needed = kv_tokens_for_one(curve.mix, limits=limits)
    short_bytes = (needed - limits.kv_tokens) * stages * memory.kv_bytes_per_token
    share = f"KV cache of {memory.kv_capacity_tokens} tokens"
    if stages > 1:
        share += f" leaves {limits.kv_tokens:.0f} to each of {stages} pipeline lanes, which"
    message = (
        f"{share} does not hold one request: {curve.mix.decode_context_tokens:.0f} tokens on average, "
        f"{needed:.0f} with two standard deviations ({short_bytes / GIGA:.3g} GB per device short)"
    )
    return refuse(candidate, code="slots", message=message, excess=short_bytes / memory.budget_bytes)


def missed_objective(candidate: Candidate, missed: Missed) -> Rejection:
    """The refusal of a candidate that misses an objective even without load."""
    item, excess = missed.objective, missed.excess
    reached = f"{item.name} of an idle replica is {excess * item.bound_s:.4g} s"
    message = f"{reached}, above {item.bound_s:g} s by a factor of {excess:.3g}"
    return refuse(candidate, code="objective", message=message, excess=excess - 1)
