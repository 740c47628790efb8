"""The contract's ``techniques`` object."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import field_validator

from simulator.specs.adapters import AdaptersSpec
from simulator.specs.base import Spec
from simulator.specs.contextual_sparsity import ContextualSparsitySpec
from simulator.specs.early_exit import EarlyExitSpec
from simulator.specs.kv_policy import KvPolicySpec
from simulator.specs.sparsity import SparsitySpec
from simulator.specs.speculation import SpeculationSpec
from simulator.specs.structure import StructureSpec
from simulator.specs.weight_offload import WeightOffloadSpec

AttentionKernel = Literal["flash", "standard", "flash_decoding"]


class TechniquesSpec(Spec):
    """What-if changes to one deployment; an absent one changes nothing."""

    sparsity: SparsitySpec | None = None
    contextual_sparsity: ContextualSparsitySpec | None = None
    speculation: SpeculationSpec | None = None
    attention: AttentionKernel | None = None
    kv_policy: KvPolicySpec | None = None
    adapters: AdaptersSpec | None = None
    structure: StructureSpec | None = None
    early_exit: EarlyExitSpec | None = None
    fusion: bool | None = None
    weight_offload: WeightOffloadSpec | None = None
    sequence_parallel: bool | None = None

    @field_validator("sparsity", mode="before")
    @classmethod
    def _pattern_alone(cls, value: Any) -> Any:
        """``"2:4"`` is short for ``{"pattern": "2:4"}``."""
        return {"pattern": value} if isinstance(value, str) else value
