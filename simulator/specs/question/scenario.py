"""The contract's scenario: one question about one deployment."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from simulator.errors import contradiction
from simulator.specs.base import Seed, Spec
from simulator.specs.engine.deployment import Degree, DisaggregationSpec, EncoderPoolSpec, ParallelismSpec
from simulator.specs.engine.engine import AtOnce, EngineSpec
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.plan_values import FEWEST_PICTURES, LARGEST_CV, MOST_ANSWERS, MOST_PICTURES
from simulator.specs.question.techniques import TechniquesSpec
from simulator.specs.question.workload import WorkloadSpec
from simulator.units import MEGA

Kind = Literal["batch", "serve", "closed_loop", "offline"]
RoutingName = Literal["round_robin", "least_outstanding", "prefix_aware"]

REQUIRED_FIELDS: dict[str, tuple[str, ...]] = {
    "batch": ("batch_size", "isl_tokens", "osl_tokens"),
    "closed_loop": ("concurrency", "isl_tokens", "osl_tokens"),
    "offline": ("isl_tokens", "osl_tokens"),
    "serve": ("workload",),
}
DEFAULT_RANGE_RATIO = 0.8
"""Shortest requests of a closed loop over the nominal ones where nothing is said: InferenceX's random-range-ratio."""
NOMINAL_LENGTHS = ("isl_tokens", "osl_tokens")
DRAWN_LENGTHS = ("range_ratio", "isl_cv", "osl_cv", "seed")
"""What says how the lengths of a closed loop are drawn around the nominal ones, where they are not those of a file."""
_LOOP_FIELDS = (*DRAWN_LENGTHS, "lengths_trace", "ramp_s")
_SERVE_FIELDS = ("encoder_pool", "routing", "slo")
# Fields that would silently change nothing under a kind are refused there.
_IN_BATCHES = (*_LOOP_FIELDS, "disaggregation", *_SERVE_FIELDS)
IDLE_FIELDS: dict[str, tuple[str, ...]] = {
    "batch": ("concurrency", "workload", "num_requests", "answers_per_request", *_IN_BATCHES),
    "closed_loop": ("batch_size", "workload", *_SERVE_FIELDS),
    "offline": ("batch_size", "concurrency", "workload", *_IN_BATCHES),
    "serve": ("batch_size", "concurrency", "num_requests", "answers_per_request", *_LOOP_FIELDS),
}
# The same of the engine: a static batch has no scheduler, and only kind serve has a cache of many prompts.
_SERVED = ("queue_order", "cpu_kv_offload", "cpu_kv_offload_bytes", "kv_tiers")
IDLE_ENGINE_FIELDS: dict[str, tuple[str, ...]] = {
    "batch": ("scheduler", *_SERVED),
    "closed_loop": _SERVED,
    "offline": _SERVED,
    "serve": (),
}


def kind_of(fields: Mapping[str, object]) -> Kind:
    """What is asked, by what is given of it, where nobody says: a batch, a closed loop of clients, a served load, or
    the throughput offline."""
    if "batch_size" in fields:
        return "batch"
    if "concurrency" in fields:
        return "closed_loop"
    return "serve" if "workload" in fields or "rate_per_s" in fields else "offline"


class ScenarioSpec(Spec):
    """One line of the input of ``roofcast simulate`` (DESIGN section 4 gives the meaning of each field).

    ``power_cap_w`` limits every accelerator: its units clock lower, its memory does not.
    ``routing`` spreads the requests of kind serve over replicas: in turn (the default), to the one with fewest requests
    in it, or to the one that has most of the prompt in its prefix cache. ``slo`` lists objectives such as
    "ttft-p95=2s", whose percentiles and goodput the result then reports. ``images_per_request`` pictures of
    ``image_pixels`` (width x height) are in a prompt, whose length counts their tokens too;
    ``encoder_pool`` encodes them on accelerators of its own.
    Of kinds closed_loop and offline: ``answers_per_request`` answers to every prompt, of which the first computes it;
    kind serve has them in its workload.
    Of kind closed_loop: lengths are uniform between ``range_ratio`` times the nominal ones and those (1: identical
    requests, which run in waves), log-normal around them with ``isl_cv`` and ``osl_cv``, or those of the requests of
    a file, in their order (``lengths_trace``, without ``isl_tokens`` and ``osl_tokens``); clients start evenly over
    ``ramp_s``; ``seed`` is that of the lengths (0, the benchmark client's own).
    """

    id: str | int
    kind: Kind
    model: str
    hardware: str
    interconnect: str | None = None
    power_cap_w: PositiveFloat | None = None
    tp_size: Degree = 1
    pp_size: Degree = 1
    ep_size: Degree = 1
    dp_size: Degree = 1
    cp_size: Degree = 1
    replicas: PositiveInt = 1
    precision: PrecisionSpec = PrecisionSpec()
    techniques: TechniquesSpec = TechniquesSpec()
    engine: EngineSpec = EngineSpec()
    batch_size: AtOnce | None = None
    concurrency: AtOnce | None = None
    num_requests: int | None = Field(default=None, gt=0, le=MEGA)
    answers_per_request: int | None = Field(default=None, gt=1, le=MOST_ANSWERS)
    isl_tokens: PositiveInt | None = None
    osl_tokens: PositiveInt | None = None
    range_ratio: float | None = Field(default=None, gt=0, le=1)
    isl_cv: float | None = Field(default=None, ge=0, le=LARGEST_CV)
    osl_cv: float | None = Field(default=None, ge=0, le=LARGEST_CV)
    lengths_trace: str | None = None
    ramp_s: NonNegativeFloat | None = None
    seed: Seed | None = None
    images_per_request: float | None = Field(default=None, ge=FEWEST_PICTURES, le=MOST_PICTURES)
    image_pixels: PositiveInt | None = None
    workload: WorkloadSpec | None = Field(default=None)
    disaggregation: DisaggregationSpec | None = None
    encoder_pool: EncoderPoolSpec | None = None
    routing: RoutingName | None = None
    slo: tuple[str, ...] | None = None

    @property
    def parallelism(self) -> ParallelismSpec:
        """Degrees of one replica."""
        return ParallelismSpec(**{degree: getattr(self, degree) for degree in ParallelismSpec.model_fields})

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        """JSON programs write null for "not given"; that is the same as leaving the field out."""
        if not isinstance(data, dict):
            return data
        given = cls.given(data)
        if isinstance(given.get("slo"), str):
            given["slo"] = (given["slo"],)
        return _lengths_in_workload(given) if given.get("kind") == "serve" else given


def _lengths_in_workload(given: dict[str, Any]) -> dict[str, Any]:
    """``isl_tokens`` and ``osl_tokens`` of a served scenario as its workload's, which may not say otherwise."""
    workload = given.get("workload")
    if not isinstance(workload, dict) or workload.get("trace") or workload.get("lengths_trace"):
        return given
    filled = WorkloadSpec.given(workload, but=("timeout_s",))
    said = {"isl_tokens": filled.get("isl_tokens"), "osl_tokens": filled.get("osl_tokens")}
    question, system = filled.get("question_tokens"), filled.get("system_prompt_tokens", 0)
    if isinstance(question, int) and isinstance(system, int):
        said["isl_tokens"] = question + system
    for field, inside in said.items():
        outside = given.pop(field, None)
        if outside is None:
            continue
        if inside is None:
            filled[field] = outside
        elif inside != outside:
            raise contradiction(
                f"{outside} contradicts the workload, whose requests have {inside}",
                field=field,
                hint="give the lengths once",
            )
    return {**given, "workload": filled}
