"""Every technique, in the order in which they are applied: structure first, formats next, rows last.

A new technique is one file beside this one, its field in ``TechniquesSpec``, and its place in ``TECHNIQUES``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.question.techniques import TechniquesSpec
from simulator.techniques.applied import AppliedTechniques, Technique

# Module and function. Early exit builds rows anew, so that rules on single rows come after it. Adapters are held whole:
# they stand beside products before a choice of neurons narrows these.
TECHNIQUES: tuple[str, ...] = (
    "structure.structure",
    "sparsity.structured_sparsity",
    "kv_compression.bounded_cache",
    "sparsity.sparse_weights",
    "early_exit.early_exit",
    "adapters.adapters",
    "contextual_sparsity.contextual_sparsity",
    "attention_kernel.attention_kernel",
    "weight_offload.weight_offload",
    "sequence_parallel.sequence_parallel",
    "two_batch_overlap.two_batch_overlap",
)


@cache
def technique_of(place: str) -> Technique:
    """The function at ``module.function`` of this folder, imported only where techniques are asked for."""
    module, _, function = place.partition(".")
    found: Technique = getattr(import_module(f"simulator.techniques.{module}"), function)
    return found


def apply_techniques(
    spec: TechniquesSpec, *, model: ModelSpec, plan: PrecisionPlan, hardware: AcceleratorSpec
) -> AppliedTechniques:
    """Resolve a scenario's techniques, or refuse what the hardware, the model or another technique rules out."""
    applied = AppliedTechniques(spec=spec, model=model, plan=plan)
    for place in TECHNIQUES:
        applied = technique_of(place)(applied, hardware)
    return applied
