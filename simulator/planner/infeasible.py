"""When nothing serves: which bound, by how much, and which single change would be enough (each one tried)."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.errors import InfeasibleError
from simulator.planner.candidates import platforms
from simulator.planner.fleet import Sized, pack, size
from simulator.planner.records import Objective, Rejection
from simulator.planner.search import Question, Trial, join, try_platform
from simulator.specs.plan import PlanSpec
from simulator.specs.precision import Dtype
from simulator.units import MILLI

SMALLER_FORMATS = (Dtype.FP8, Dtype.INT4)
_SUGGESTIONS = 3
_FIELDS = {
    "objective": "objectives",
    "memory": "memory",
    "slots": "memory",
    "token_budget": "--max-num-batched-tokens",
    "quality": "--max-quality-loss",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A question that differs in one thing, and what to write for it."""

    flags: str
    spec: PlanSpec


def single_changes(question: Question) -> tuple[Change, ...]:
    """One step away from the question: smaller formats, free tensor parallelism, other hardware."""
    spec = question.spec
    changes = [
        Change(flags=f"--weights {dtype}", spec=spec.model_copy(update={"weights": (dtype,), "scheme": None}))
        for dtype in SMALLER_FORMATS
        if dtype not in spec.weights
    ]
    if spec.tp:
        changes.append(Change(flags="no --tp", spec=spec.model_copy(update={"tp": ()})))
    if spec.hardware:
        changes.append(Change(flags="--hardware", spec=spec.model_copy(update={"hardware": ()})))
    return tuple(changes)


def _asked(question: Question, spec: PlanSpec) -> Question:
    return Question(
        spec=spec,
        model=question.model,
        demand=question.demand,
        objectives=question.objectives,
        policy=question.policy,
        prices=question.prices,
        assumptions=question.assumptions,
    )


def trial_of(question: Question, spec: PlanSpec) -> Trial:
    """Try every platform of a changed question, demand and objectives unchanged."""
    changed = _asked(question, spec)
    trial = Trial(sized=(), rejections=())
    for platform in platforms(spec):
        trial = join(trial, try_platform(changed, platform))
    return trial


def _sentence(change: Change, best: Sized) -> str:
    flags = change.flags
    hardware = best.evaluated.candidate.platform.hardware.name
    if flags == "--hardware":
        flags = f"--hardware {hardware}"
    return f"{flags} ({best.devices} x {hardware} {best.evaluated.candidate.label})"


def _enough(question: Question, *, within: int | None) -> list[str]:
    found = []
    for change in single_changes(question):
        ranked = sorted(trial_of(question, change.spec).sized, key=lambda item: item.rank)
        fitting = [item for item in ranked if within is None or item.devices <= within]
        if fitting:
            found.append(_sentence(change, fitting[0]))
    return found[:_SUGGESTIONS]


def _relaxed(closest: Rejection, objectives: tuple[Objective, ...]) -> str:
    """The flag with a bound that the closest candidate would hold, rounded up to two digits."""
    objective = next(item for item in objectives if closest.message.startswith(item.name))
    needed_ms = objective.bound_s * (1 + closest.excess) / MILLI
    # Two digits resolve ten percent at worst; half of that more, and rounding to the nearest cannot fall short.
    rounded_ms = float(f"{needed_ms * (1 + 1 / 20):.2g}")
    bound = f"{rounded_ms:g}ms" if rounded_ms < 1 / MILLI else f"{rounded_ms * MILLI:g}s"
    return f"--{objective.metric}-p{objective.percentile:g} {bound} ({closest.hardware} {closest.label})"


def nothing_fits(question: Question, trial: Trial) -> InfeasibleError:
    """No candidate can serve even one request within its bounds."""
    closest = min(trial.rejections, key=lambda item: item.distance)
    enough = _enough(question, within=question.spec.max_gpus)
    if closest.code == "objective":
        enough.insert(0, _relaxed(closest, question.objectives))
    count = len(trial.rejections)
    message = f"no feasible plan for {question.model.name} among {count} candidates; closest is {closest.hardware} "
    return InfeasibleError(
        f"{message}{closest.label}: {closest.message}",
        field=_FIELDS.get(closest.code, closest.code),
        hint=f"enough would be {' or '.join(enough)}" if enough else "no single change of format or hardware is enough",
    )


def _served_within(item: Sized, *, devices: int, question: Question) -> float:
    """Requests/s of the whole demand that ``devices`` accelerators carry, spares kept [1/s]."""
    replica = item.evaluated.replica
    total = devices // replica.devices
    while total > 0 and item.server is not None and item.packing.servers is not None:
        packing = pack(
            replicas=total,
            devices_per_replica=replica.devices,
            devices_per_server=item.server.accelerators_per_server,
        )
        if total * replica.devices + packing.idle_devices <= devices:
            break
        total -= 1
    demand = question.demand
    share = max(0, total - item.spares) * replica.capacity_per_s / demand.planned_rate_per_s
    return share * demand.mean_rate_per_s


def _smaller_fleets(question: Question, ranked: list[Sized], *, within: int) -> list[str]:
    """Spares and whole servers that may be given up to stay within a budget: one of them, else both."""

    def fitting(flags: str, changed: PlanSpec) -> list[str]:
        sized = [size(item.evaluated, demand=question.demand, spec=changed, prices=question.prices) for item in ranked]
        allowed = sorted((item for item in sized if item.devices <= within), key=lambda item: item.rank)
        return [_sentence(Change(flags=flags, spec=changed), item) for item in allowed[:1]]

    loose = question.spec.model_copy(update={"round_to": "device"})
    bare = question.spec.model_copy(update={"spares": 0})
    both = loose.model_copy(update={"spares": 0})
    single = [*fitting("--round-to device", loose), *fitting("--spares 0", bare)]
    return single or fitting("--round-to device --spares 0", both)


def over_budget(question: Question, ranked: list[Sized]) -> InfeasibleError:
    """Candidates can serve, but none with ``max_gpus`` accelerators: what is missing, and what would close the gap."""
    budget = question.spec.max_gpus or 0
    smallest = min(ranked, key=lambda item: (item.devices, item.rank))
    served = {id(item): _served_within(item, devices=budget, question=question) for item in ranked}
    most = max(ranked, key=lambda item: served[id(item)])
    rate = question.demand.mean_rate_per_s
    hardware = smallest.evaluated.candidate.platform.hardware.name
    carriers = f"{budget} GPUs carry" if budget > 1 else f"{budget} GPU carries"
    message = (
        f"{rate:g} requests/s need at least {smallest.devices} GPUs ({hardware} {smallest.evaluated.candidate.label}), "
        f"{smallest.devices - budget} more than the {budget} allowed; {carriers} at most "
        f"{served[id(most)]:.4g} requests/s ({served[id(most)] / rate:.0%}, "
        f"{most.evaluated.candidate.platform.hardware.name} {most.evaluated.candidate.label})"
    )
    enough = [*_smaller_fleets(question, ranked, within=budget), *_enough(question, within=budget)][:_SUGGESTIONS]
    nothing = "no single change of format, hardware, spares or rounding closes the gap"
    hint = f"enough would be {' or '.join(enough)}" if enough else nothing
    return InfeasibleError(message, field="--max-gpus", code="over_budget", hint=hint)
