"""The techniques in the order of their application: structure first, formats next, rows last. A new technique is one
file beside this one, its field in ``TechniquesSpec``, and its place in ``TECHNIQUES``."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from simulator.errors import no_effect
from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.question.techniques import TechniquesSpec
from simulator.techniques.applied import AppliedTechniques, Technique

# Module and function. Early exit builds rows anew, so that rules on single rows come after it.
TECHNIQUES: tuple[str, ...] = (
    "structure.structure",
    "sparsity.structured_sparsity",
    "kv_compression.bounded_cache",
    "sparsity.sparse_weights",
    "early_exit.early_exit",
    "contextual_sparsity.contextual_sparsity",
    "attention_kernel.attention_kernel",
    "adapters.adapters",
    "weight_offload.weight_offload",
    "sequence_parallel.sequence_parallel",
)


@cache
def technique_of(place: str) -> Technique:
    """The function at ``module.function`` of this folder, imported only where techniques are asked for."""
    module, _, function = place.partition(".")
    found: Technique = getattr(import_module(f"simulator.techniques.{module}"), function)
    return found


_NO_TECHNIQUES = TechniquesSpec()


def apply_techniques(
    spec: TechniquesSpec, *, model: ModelSpec, plan: PrecisionPlan, hardware: AcceleratorSpec
) -> AppliedTechniques:
    """Resolve a scenario's techniques, or refuse what the hardware, the model or another technique rules out."""
    applied = AppliedTechniques(spec=spec, model=model, plan=plan)
    if spec == _NO_TECHNIQUES:
        return applied
    for place in TECHNIQUES:
        applied = technique_of(place)(applied, hardware)
    return applied


def check_on_engine(spec: TechniquesSpec, *, engine: str, fused: bool, max_model_len: int, ep_size: int) -> None:
    """Refuse what this engine does anyway, or cannot show."""
    if spec.kv_policy is not None:
        from simulator.techniques.kv_compression import check_budget

        check_budget(spec.kv_policy, longest_tokens=max_model_len)
    if spec.fusion is not None and spec.fusion == fused:
        raise no_effect(
            f"{str(spec.fusion).lower()} is what {engine} does: its elementwise passes are "
            f"{'fused' if fused else 'separate kernels'} already",
            field="techniques.fusion",
            hint="leave it out, or ask for the other",
        )
    if spec.structure is not None and spec.structure.expert_imbalance is not None and ep_size == 1:
        raise no_effect(
            "one rank holds all experts under ep_size 1: there is no busiest one",
            field="techniques.structure.expert_imbalance",
            hint="ep_size above 1, or leave it out",
        )


def shares_prefixes(spec: TechniquesSpec) -> bool:
    """Whether prompts may share cached blocks: not where each sequence keeps a choice of tokens of its own."""
    return spec.kv_policy is None or spec.kv_policy.method == "window"
