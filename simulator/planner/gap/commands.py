"""The question that gives exactly one fleet: everything that was searched is pinned, so that it can be asked again."""

from __future__ import annotations

from typing import Any

from simulator.planner.candidate import Candidate
from simulator.planner.search.candidates import USUAL_SPARSITY, USUAL_SPECULATION
from simulator.planner.search.question import Question
from simulator.specs.question.plan import NONE, TEXTS, PlanSpec
from simulator.specs.question.techniques import TechniquesSpec
from simulator.specs.question.techniques_text import techniques_spec

# Studies beside the plan and what only they read, and the floor that chose between answers: the fleet is chosen.
_STUDIES: dict[str, Any] = {
    **dict.fromkeys(("explain_gap", "pareto", "pools", "resilience", "rental", "uncertainty"), False),
    **dict.fromkeys(("growth", "horizon", "start", "lead_time", "draws", "seed", "demand_sigma", "ramp")),
    **dict.fromkeys(("weekend", "startup", "autoscaler_lag", "ownership", "verify")),
    "load_profile": (),
    "max_quality_loss": None,
}
_LIMITS: dict[str, Any] = dict.fromkeys(("max_gpus", "max_cost_per_hour", "max_power_kw", "max_racks"))


def _technique_texts(techniques: TechniquesSpec, *, texts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The texts that the techniques of a set-up were read from, by option."""
    found: dict[str, tuple[str, ...]] = {}
    for name in TEXTS:
        wanted = getattr(techniques, name)
        found[name] = () if wanted is None else tuple(text for text in texts if _reads_as(name, text, wanted))[:1]
    return found


def _reads_as(name: str, text: str, wanted: object) -> bool:
    from simulator.errors import RoofcastError

    given: dict[str, Any] = {name: text}
    try:
        return bool(getattr(techniques_spec(given), name) == wanted)
    except RoofcastError:
        return False


def pinned_spec(question: Question, candidate: Candidate, *, texts: tuple[str, ...], keeps_limits: bool) -> PlanSpec:
    """The question with every choice of a set-up given; without its limits where the fleet does not hold them.

    texts : of techniques beyond those of the question
    """
    spec, parallelism = question.spec, candidate.parallelism
    precision, engine = candidate.precision, candidate.engine
    asked = tuple(text for name in TEXTS for text in getattr(spec, name) if text != NONE)
    pinned: dict[str, Any] = {
        "hardware": (candidate.platform.hardware.name,),
        "tp_size": (parallelism.tp_size,),
        "pp_size": (parallelism.pp_size,) if parallelism.pp_size > 1 else (),
        "dp_size": (parallelism.dp_size,) if parallelism.dp_size > 1 else (),
        "ep_size": (parallelism.ep_size,) if parallelism.ep_size > 1 else (),
        "weights": () if precision.weights is None else (precision.weights,),
        "kv_cache": () if precision.kv_cache is None else (precision.kv_cache,),
        "activations": precision.activations,
        "scheme": precision.scheme,
        "max_num_seqs": () if engine.max_num_seqs is None else (engine.max_num_seqs,),
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "search": "usual",
        **dict.fromkeys(("any_precision", "any_technique"), False),
        **_technique_texts(candidate.techniques, texts=(*texts, *asked, *USUAL_SPECULATION, *USUAL_SPARSITY)),
        **_STUDIES,
        **({} if keeps_limits else _LIMITS),
    }
    return spec.model_copy(update=_changed(spec, pinned))


def _changed(spec: PlanSpec, values: dict[str, Any]) -> dict[str, Any]:
    """Only what differs, so that a field that was never given is not given now."""
    return {name: value for name, value in values.items() if getattr(spec, name) != value}
