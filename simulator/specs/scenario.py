"""The contract's scenario: one question about one deployment."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, PositiveInt, model_validator

from simulator.specs.base import Spec
from simulator.specs.disaggregation import DisaggregationSpec
from simulator.specs.engine import EngineSpec
from simulator.specs.precision import PrecisionSpec
from simulator.specs.techniques import TechniquesSpec
from simulator.specs.workload import WorkloadSpec

Kind = Literal["batch", "serve", "closed_loop", "offline"]

REQUIRED_FIELDS: dict[str, tuple[str, ...]] = {
    "batch": ("batch_size", "isl_tokens", "osl_tokens"),
    "closed_loop": ("concurrency", "isl_tokens", "osl_tokens"),
    "offline": ("isl_tokens", "osl_tokens"),
    "serve": ("workload",),
}
# Fields that would silently change nothing under a kind are refused there.
IDLE_FIELDS: dict[str, tuple[str, ...]] = {
    "batch": ("concurrency", "workload", "num_requests", "disaggregation"),
    "closed_loop": ("batch_size", "workload", "disaggregation"),
    "offline": ("batch_size", "concurrency", "workload", "disaggregation"),
    "serve": ("batch_size", "concurrency", "num_requests"),
}
# The same of the engine: only kind serve simulates a scheduler.
IDLE_ENGINE_FIELDS = ("scheduler", "queue_order", "cpu_kv_offload", "cpu_kv_offload_bytes")


class ScenarioSpec(Spec):
    """One line of the input of ``roofcast simulate`` (DESIGN section 4 gives the meaning of each field)."""

    id: str | int
    kind: Kind
    model: str
    hardware: str
    interconnect: str | None = None
    tp_size: PositiveInt = 1
    pp_size: PositiveInt = 1
    ep_size: PositiveInt = 1
    dp_size: PositiveInt = 1
    replicas: PositiveInt = 1
    precision: PrecisionSpec = PrecisionSpec()
    techniques: TechniquesSpec = TechniquesSpec()
    engine: EngineSpec = EngineSpec()
    batch_size: PositiveInt | None = None
    concurrency: PositiveInt | None = None
    num_requests: PositiveInt | None = None
    isl_tokens: PositiveInt | None = None
    osl_tokens: PositiveInt | None = None
    workload: WorkloadSpec | None = Field(default=None)
    disaggregation: DisaggregationSpec | None = None

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        """JSON programs write null for "not given"; that is the same as leaving the field out."""
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None}
