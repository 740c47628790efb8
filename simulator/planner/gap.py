"""What closes the gap between a fleet and its budget: one change after another, what each saves and what it costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulator.engine.lengths import Array
from simulator.planner.candidates import platforms
from simulator.planner.choice_records import Gap, GapStep
from simulator.planner.fleet import Sized
from simulator.planner.format_quality import quality_note
from simulator.planner.search import Question, evaluate_all
from simulator.planner.wide_search import ScreenedSpace, screen_space
from simulator.specs.engines import load_engine
from simulator.specs.plan import PlanSpec
from simulator.specs.precision import Dtype, PrecisionSpec

# Set-ups of a state that are evaluated exactly, the best screened first.
_FINALISTS = 4
_PREFIX_STEPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """What is allowed: any accelerator or those asked for, engine limits, weights (None: as asked), cache."""

    any_hardware: bool = False
    any_limits: bool = False
    weights: PrecisionSpec | None = None
    kv_cache: Dtype | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """One step away from a state. ``kind`` is what only one change can be of."""

    kind: str
    name: str
    flags: str
    precision: PrecisionSpec
    state: _State

    def added(self, state: _State) -> _State:
        """``state`` with this change."""
        return _State(
            any_hardware=state.any_hardware or self.state.any_hardware,
            any_limits=state.any_limits or self.state.any_limits,
            weights=self.state.weights or state.weights,
            kv_cache=self.state.kv_cache or state.kv_cache,
        )


def _format_change(precision: PrecisionSpec) -> _Change:
    name = str(precision.scheme or precision.weights)
    flag = f"--scheme {precision.scheme}" if precision.scheme else f"--weights {precision.weights}"
    return _Change(
        kind="weights", name=f"{name} weights", flags=flag, precision=precision, state=_State(weights=precision)
    )


def _changes(question: Question, found: ScreenedSpace) -> list[_Change]:
    """Every single change that the question leaves open."""
    none = PrecisionSpec()
    changes = [
        _Change(
            kind="limits",
            name="better engine limits",
            flags="--search wide",
            precision=none,
            state=_State(any_limits=True),
        )
    ]
    if question.spec.hardware:
        other = _State(any_hardware=True)
        changes.append(
            _Change(kind="hardware", name="other hardware", flags="no --hardware", precision=none, state=other)
        )
    if not question.spec.kv_cache:
        cache = PrecisionSpec(kv_cache=Dtype.FP8)
        state = _State(kv_cache=Dtype.FP8)
        changes.append(_Change(kind="kv", name="fp8 KV cache", flags="--kv-cache fp8", precision=cache, state=state))
    seen = {variant.precision.model_copy(update={"kv_cache": None}) for variant in found.space.variants}
    changes += [_format_change(item) for item in sorted(seen, key=str) if item.scheme or item.weights]
    return changes


def _opened(spec: PlanSpec) -> PlanSpec:
    """The question with everything open that a change could open."""
    update: dict[str, object] = {"search": "wide", "hardware": (), "pareto": False, "pp": spec.pp or (1,)}
    if not (spec.weights or spec.scheme or spec.activations):
        update["any_precision"] = True
    return spec.model_copy(update=update)


class _Screen:
    """Devices of every screened set-up, and which of them a state allows."""

    def __init__(self, question: Question) -> None:
        opened = replace(question, spec=_opened(question.spec))
        self.question = opened
        self.found = screen_space(opened, platforms(opened.spec))
        self._asked = {item.hardware.name for item in platforms(question.spec)}
        self._default = _default_limits(question, self.found)
        capacity = self.found.screened.capacity_per_s
        with np.errstate(divide="ignore"):
            replicas = np.ceil(question.demand.planned_rate_per_s / capacity)
        each = np.array([table.parallelism.devices for table in self.found.tables], dtype=np.float64)
        self._devices: Array = (replicas + (question.spec.spares or 1)) * each.reshape(-1, 1, 1)

    def best(self, state: _State) -> list[int]:
        """Flat places of the smallest screened fleets of a state, the smallest first."""
        allowed = np.array([self._table_allowed(index, state) for index in range(len(self.found.tables))], dtype=bool)
        devices = np.where(allowed.reshape(-1, 1, 1), self._devices, np.inf)
        if not state.any_limits:
            devices = np.where(self._default, devices, np.inf)
        flat = devices.reshape(len(self.found.tables), -1)
        within = flat.argmin(axis=1)
        least = flat[np.arange(len(flat)), within]
        order = [int(index) for index in np.argsort(least, kind="stable")[:_FINALISTS] if np.isfinite(least[index])]
        return [index * flat.shape[1] + int(within[index]) for index in order]

    def _table_allowed(self, index: int, state: _State) -> bool:
        table = self.found.tables[index]
        if not state.any_hardware and table.platform.hardware.name not in self._asked:
            return False
        precision = table.variant.precision
        plain = precision.model_copy(update={"kv_cache": None})
        weights_fit = plain == (state.weights or PrecisionSpec()) or not self.question.spec.any_precision
        cache_fits = precision.kv_cache == state.kv_cache or bool(self.question.spec.kv_cache)
        return weights_fit and cache_fits

    def exact(self, state: _State) -> Sized | None:
        """The smallest fleet of a state, evaluated exactly; None where nothing serves."""
        chosen = tuple(self.found.candidate(place, self.question) for place in self.best(state))
        trial = evaluate_all(self.question, chosen)
        return min(trial.sized, key=lambda item: (item.devices, item.rank), default=None)


def _default_limits(question: Question, found: ScreenedSpace) -> NDArray[np.bool_]:
    """Which engine limits of the space are those of the question, or nearest the engine's own [sequences, budgets]."""
    profile = load_engine(question.spec.engine or "vllm", profiles=question.policy.profiles)
    wanted = question.spec.max_num_seqs or (profile.max_num_seqs,)
    budget = question.spec.max_num_batched_tokens or profile.max_num_batched_tokens
    sequences, tokens = np.array(found.space.sequences), np.array(found.space.tokens)
    near = np.isin(sequences, [sequences[np.abs(sequences - value).argmin()] for value in wanted])
    allowed: NDArray[np.bool_] = near[:, None] & (tokens == tokens[np.abs(tokens - budget).argmin()])
    return allowed


def _step(change: _Change, item: Sized, *, before: int | None, alone: Sized | None) -> GapStep:
    candidate = item.evaluated.candidate
    return GapStep(
        name=change.name,
        flags=change.flags,
        hardware=candidate.platform.hardware.name,
        label=candidate.label,
        devices=item.devices,
        saved_devices=None if before is None else before - item.devices,
        alone_devices=None if alone is None else alone.devices,
        quality=quality_note(item.evaluated.replica.deployment.model, change.precision),
    )


def _greedy(
    screen: _Screen, changes: list[_Change], *, start: Sized | None, budget: int | None
) -> tuple[list[GapStep], Sized | None]:
    """The change that leaves the fewest devices, again and again, until the budget holds or nothing helps."""
    alone = {change.name: screen.exact(change.added(_State())) for change in changes}
    state, now, steps, used = _State(), start, [], set[str]()
    while budget is None or now is None or now.devices > budget:
        open_changes = [change for change in changes if change.kind not in used]
        tried = [(screen.exact(change.added(state)), change) for change in open_changes]
        serving = [(item, change) for item, change in tried if item is not None]
        if not serving:
            break
        best, change = min(serving, key=lambda pair: (pair[0].devices, pair[0].rank))
        if now is not None and best.devices >= now.devices:
            break
        steps.append(_step(change, best, before=None if now is None else now.devices, alone=alone[change.name]))
        state, now = change.added(state), best
        used.add(change.kind)
    return steps, now


def _needed_prefix_hit(question: Question, item: Sized, *, budget: int) -> float | None:
    """Smallest share of prompt tokens in the prefix cache with which a set-up stays within the budget, by halving."""
    low, high, found = 0.0, 1 - 1 / 2**_PREFIX_STEPS, None
    for _ in range(_PREFIX_STEPS):
        middle = (low + high) / 2
        demand = replace(question.demand, mix=replace(question.demand.mix, prefix_hit_fraction=middle))
        trial = evaluate_all(replace(question, demand=demand), (item.evaluated.candidate,))
        if trial.sized and trial.sized[0].devices <= budget:
            high, found = middle, middle
        else:
            low = middle
    return found


def gap_of(question: Question, start: Sized | None) -> Gap:
    """From the smallest fleet ``start`` that the question allows (None: nothing serves) towards its ``max_gpus``.

    Every step is a fleet that was found by screening and evaluated exactly. What answers lose is said per step; what a
    change in the workload would bring (prefix hits) is given as the share that would be needed.
    """
    budget = question.spec.max_gpus
    screen = _Screen(question)
    steps, end = _greedy(screen, _changes(question, screen.found), start=start, budget=budget)
    remaining = None if end is None else max(0, end.devices - (budget or end.devices))
    needed = None
    if end is not None and budget is not None and remaining:
        needed = _needed_prefix_hit(question, end, budget=budget)
    candidate = start.evaluated.candidate if start is not None else None
    return Gap(
        budget_devices=budget,
        start_hardware=candidate.platform.hardware.name if candidate else "",
        start_label=candidate.label if candidate else "",
        start_devices=start.devices if start is not None else None,
        steps=tuple(steps),
        end_devices=end.devices if end is not None else None,
        remaining_devices=remaining,
        needed_prefix_hit=needed,
    )
