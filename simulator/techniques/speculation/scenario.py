"""A scenario's speculation with every default filled in, and its acceptance as one vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import ceil

import numpy as np

from simulator.errors import RoofcastError
from simulator.operators.transformer import is_encoder_only
from simulator.records import dataclass
from simulator.specs.base import Assumption, Note, Same, ValueOrigin
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.fitted import Bookkeeping, Drafter, MethodTraits, load_acceptance_fit, speculation_table
from simulator.specs.question.techniques import DraftDevice, SpeculationMethod, SpeculationSpec, Task
from simulator.techniques.speculation.acceptance import any_child_accepted, mean_tokens, rate_of_mean, schedule_length

FIELD = "techniques.speculation"
# Lookahead decoding's W and G [Fu2024].
LOOKAHEAD_WINDOW, LOOKAHEAD_GUESSES = 7, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationPlan:
    """What a round is: guesses, one verify step, and how many guesses survive.

    k : longest run of guesses; acceptance : P(position i accepted | those before), one per position
    verify_tokens : tokens per sequence that the target's step scores, its own last one included
    first_width, draft_width : tokens per sequence in the first of the ``k`` passes of the drafter, and in the others: a
        layer over the target's features first takes in all that the last step verified, whatever of it was accepted,
        as the engines' graphs of fixed size do
    head_widths : guesses per sequence that each of ``k`` heads extends, where one runs after another
    """

    method: str
    drafter: Drafter
    bookkeeping: Bookkeeping
    k: int
    acceptance: tuple[float, ...]
    verify_tokens: int
    first_width: float
    draft_width: float
    head_widths: tuple[float, ...]
    draft_device: DraftDevice
    assumptions: tuple[Assumption, ...]

    @property
    def mean_tokens(self) -> float:
        """Mean tokens of a verify step, its own included."""
        return mean_tokens(np.array(self.acceptance))


def _refuse(field: str, message: str, *, code: str = "contradiction", hint: str = "") -> RoofcastError:
    return RoofcastError(message, field=f"{FIELD}.{field}" if field else FIELD, code=code, hint=hint)


def check_speculation(spec: SpeculationSpec, *, model: ModelSpec) -> None:
    """Refuse fields that contradict each other, the method or the model."""
    if is_encoder_only(model) or not model.has_lm_head:
        raise _refuse(
            "method", f"{spec.method} guesses tokens to generate, and {model.name} is an encoder: it generates none",
            hint="leave speculation out",
        )  # fmt: skip
    if spec.acceptance is not None and spec.accepted_tokens is not None:
        raise _refuse(
            "accepted_tokens", f"{spec.accepted_tokens:g} is given beside acceptance {spec.acceptance}: one follows "
            "from the other", hint="give one of the two",
        )  # fmt: skip
    traits = speculation_table().methods[spec.method]
    if traits.drafter is Drafter.PREDICTION and not model.num_nextn_predict_layers:
        raise _refuse(
            "method", f"{spec.method} runs prediction layers of the checkpoint, and {model.name} has none "
            "(num_nextn_predict_layers 0)", hint="method eagle drafts with a layer trained for the model",
        )  # fmt: skip
    drafts = traits.drafter in (Drafter.MODEL, Drafter.LAYER)
    idle = {
        "draft_model": (spec.draft_model is not None and not drafts, "draft or eagle"),
        "draft_device": (spec.draft_device is not None and traits.drafter is not Drafter.MODEL, "draft"),
        "draft_hardware": (spec.draft_hardware is not None and spec.draft_device != "other", "draft on device other"),
        "tree": (spec.tree is not None and traits.tree is None, "eagle, eagle2, medusa, hydra or rest"),
        "window": (spec.window is not None and spec.method != "lookahead", "lookahead"),
        "guesses": (spec.guesses is not None and spec.method != "lookahead", "lookahead"),
        "task": (spec.task is not None and not _tasks(spec.method), "eagle3"),
    }
    for field, (is_idle, user) in idle.items():
        if is_idle:
            raise _refuse(
                field, f"{getattr(spec, field)!r} has no effect with method {spec.method}; it belongs to {user}",
                code="ignored_option", hint="leave it out",
            )  # fmt: skip
    _check_lengths(spec)


def _check_lengths(spec: SpeculationSpec) -> None:
    """``k``, a list of acceptances and a list of guesses per depth all say how long a run of guesses is."""
    lengths = {
        "k": spec.k,
        "acceptance": len(spec.acceptance) if isinstance(spec.acceptance, tuple) else None,
        "tree": len(spec.tree) if isinstance(spec.tree, tuple) else None,
    }
    said = {name: length for name, length in lengths.items() if length is not None}
    if len(set(said.values())) > 1:
        first, second = list(said.items())[:2] if len(set(list(said.values())[:2])) > 1 else list(said.items())[1:]
        raise _refuse(
            second[0], f"goes {second[1]} deep, and {first[0]} goes {first[1]}: both say how long a run of guesses is",
            hint=f"leave {first[0]} out or make them equal",
        )  # fmt: skip
    if 0 in said.values():
        raise _refuse(next(name for name, length in said.items() if length == 0), "is empty", code="out_of_range")


def speculation_plan(spec: SpeculationSpec, *, model: ModelSpec, framework: bool) -> SpeculationPlan:
    """Fill in what the scenario leaves open.

    framework : the method runs as its authors published it, in PyTorch, with its tree and its schedule; serving
        engines verify chains unless a tree is asked for
    """
    return _plan_of(spec, Same(model), framework)


@lru_cache(maxsize=64)
def _plan_of(spec: SpeculationSpec, model: Same[ModelSpec], framework: bool) -> SpeculationPlan:
    """Whatever the accelerator: searches ask again and again."""
    check_speculation(spec, model=model.held)
    traits = speculation_table().methods[spec.method]
    said: list[Assumption] = []
    tree = traits.tree if spec.tree is None and framework else spec.tree
    k = _run_length(spec, traits=traits, tree=tree, framework=framework, said=said)
    acceptance = _acceptance(spec, traits=traits, k=k, is_chain=tree is None, said=said)
    verify = _verify_tokens(spec, traits=traits, tree=tree, k=k, framework=framework, said=said)
    over_features = traits.drafter in (Drafter.LAYER, Drafter.PREDICTION)
    width = max(1.0, (verify - 1) / k) if over_features else 1.0
    return SpeculationPlan(
        method=spec.method,
        drafter=traits.drafter,
        bookkeeping=Bookkeeping.CHAIN if tree is None and spec.method != "lookahead" else traits.bookkeeping,
        k=k,
        acceptance=acceptance,
        verify_tokens=verify,
        first_width=float(verify) if over_features and tree is None else width,
        draft_width=width,
        head_widths=_extended(tree, k=k),
        draft_device=spec.draft_device or "same",
        assumptions=tuple(said),
    )


def _extended(tree: int | tuple[int, ...] | None, *, k: int) -> tuple[float, ...]:
    """Guesses at each depth that have children; those of a tree known by its size alone spread over its depths."""
    if isinstance(tree, tuple):
        return (1.0, *(float(nodes) for nodes in tree[:-1]))
    return (1.0, *(1.0 if tree is None else max(1.0, tree / k),) * (k - 1))


def _assumed(field: str, value: object = None, *, detail: str | Note) -> Assumption:
    return Assumption(key=f"speculation.{field}", value=value, origin=ValueOrigin.RULE, detail=detail)


def _run_length(
    spec: SpeculationSpec,
    *,
    traits: MethodTraits,
    tree: int | tuple[int, ...] | None,
    framework: bool,
    said: list[Assumption],
) -> int:
    if isinstance(spec.acceptance, tuple):
        return len(spec.acceptance)
    if spec.k is not None:
        return spec.k
    if isinstance(spec.tree, tuple):
        return len(spec.tree)
    k = len(tree) if isinstance(tree, tuple) else traits.k
    reason: str | Note = traits.usual
    if spec.method == "draft" and framework:
        k = round(schedule_length(_mean_at(spec, traits=traits, k=k)))
        reason = Note("schedule_settles")
    if spec.accepted_tokens is not None and spec.accepted_tokens > k + 1:
        k = ceil(spec.accepted_tokens - 1)
        reason = Note("shortest_run")
    said.append(_assumed("k", k, detail=reason))
    return k


def _mean_at(spec: SpeculationSpec, *, traits: MethodTraits, k: int) -> float:
    if spec.accepted_tokens is not None:
        return spec.accepted_tokens
    if spec.acceptance is not None:
        return mean_tokens(np.full(k, float(np.mean(spec.acceptance))))
    return mean_tokens(np.array(_fitted(spec, k=k))) if traits.tokens is None else traits.tokens


def _tasks(method: SpeculationMethod) -> Mapping[Task, tuple[float, ...]]:
    """Fitted acceptance of a method by kind of text; empty where it is not known by text."""
    fitted = load_acceptance_fit().methods.get(method)
    return {} if fitted is None else fitted.tasks


def _fitted(spec: SpeculationSpec, *, k: int) -> tuple[float, ...]:
    """Fitted acceptance of ``k`` positions; those beyond the fit are accepted like its last one."""
    fitted = load_acceptance_fit().methods[spec.method]
    rates = fitted.rates if spec.task is None else fitted.tasks[spec.task]
    return (*rates[:k], *(rates[-1],) * (k - len(rates)))


def _acceptance(
    spec: SpeculationSpec, *, traits: MethodTraits, k: int, is_chain: bool, said: list[Assumption]
) -> tuple[float, ...]:
    if spec.acceptance is None and spec.accepted_tokens is None and traits.tokens is None:
        rates = _fitted(spec, k=k)
        measured = Note("acceptance_measured", {"source": traits.measured, "task": spec.task, "tree": False})
        said.append(_assumed("acceptance", rates, detail=measured))
        return rates
    if spec.acceptance is None and spec.accepted_tokens is None:
        assert traits.tokens is not None, "else it was fitted by position"
        rate = rate_of_mean(traits.tokens, k=traits.k)
        of_tree = is_chain and traits.tree is not None
        measured = Note("acceptance_measured", {"source": traits.measured, "task": None, "tree": of_tree})
        said.append(_assumed("acceptance", (rate,), detail=measured))
        return (rate,) * k
    if spec.accepted_tokens is not None:
        if not 1.0 <= spec.accepted_tokens <= k + 1:
            raise _refuse(
                "accepted_tokens", f"{spec.accepted_tokens:g} tokens per verify step; {k} guesses and the target's own "
                f"token allow 1 to {k + 1}", code="out_of_range", hint="raise k or check the figure",
            )  # fmt: skip
        return (rate_of_mean(spec.accepted_tokens, k=k),) * k
    given = np.broadcast_to(np.asarray(spec.acceptance, dtype=np.float64), (k,))
    if isinstance(spec.tree, tuple):
        said.append(_assumed("acceptance", detail=Note("independent_guesses")))
        nodes = np.array(spec.tree, dtype=np.float64)
        given = any_child_accepted(given, children=nodes / np.append(1.0, nodes[:-1]))
    return tuple(float(rate) for rate in given)


def _verify_tokens(
    spec: SpeculationSpec,
    *,
    traits: MethodTraits,
    tree: int | tuple[int, ...] | None,
    k: int,
    framework: bool,
    said: list[Assumption],
) -> int:
    if spec.method == "lookahead":
        window, guesses = spec.window or LOOKAHEAD_WINDOW, spec.guesses or LOOKAHEAD_GUESSES
        if spec.window is None or spec.guesses is None:
            said.append(_assumed("window", f"{window}, guesses = {guesses}", detail=traits.usual))
        return 1 + (window + guesses) * k
    if tree is None:
        if traits.tree is not None and not framework:
            said.append(_assumed("tree", detail=Note("chain_verified", {"k": k})))
        return 1 + k
    guesses = sum(tree) if isinstance(tree, tuple) else tree
    if guesses < k:
        raise _refuse("tree", f"{guesses} guesses cannot hold a run of k = {k}", hint=f"at least {k}")
    if spec.tree is None:
        said.append(_assumed("tree", f"{guesses} guesses", detail=traits.usual))
    return 1 + guesses


def with_run_length(plan: SpeculationPlan, *, k: int) -> SpeculationPlan:
    """The plan with chains of ``k`` guesses; positions beyond those known are accepted like the last one."""
    known = plan.acceptance[:k]
    return replace(
        plan,
        k=k,
        acceptance=known + (plan.acceptance[-1],) * (k - len(known)),
        verify_tokens=1 + k,
        first_width=1.0 + k if plan.first_width > 1.0 else 1.0,
        draft_width=1.0,
        head_widths=(1.0,) * k,
    )
