"""The techniques in the order of their application: structure first, formats next, rows last.

A new technique is one file beside this one, its field in ``TechniquesSpec``, and its place in ``TECHNIQUES``.
"""

from __future__ import annotations

from simulator.errors import RoofcastError
from simulator.operators.formats.plan import PrecisionPlan
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.question.techniques import TechniquesSpec
from simulator.techniques.adapters import adapters
from simulator.techniques.applied import AppliedTechniques, Technique
from simulator.techniques.attention_kernel import attention_kernel
from simulator.techniques.contextual_sparsity import contextual_sparsity
from simulator.techniques.early_exit import early_exit
from simulator.techniques.kv_compression import bounded_cache, check_budget
from simulator.techniques.sequence_parallel import sequence_parallel
from simulator.techniques.sparsity import sparse_weights, structured_sparsity
from simulator.techniques.structure import structure
from simulator.techniques.weight_offload import weight_offload

# Early exit builds rows anew, so that rules on single rows come after it.
TECHNIQUES: tuple[Technique, ...] = (
    structure,
    structured_sparsity,
    bounded_cache,
    sparse_weights,
    early_exit,
    contextual_sparsity,
    attention_kernel,
    adapters,
    weight_offload,
    sequence_parallel,
)


_NO_TECHNIQUES = TechniquesSpec()


def apply_techniques(
    spec: TechniquesSpec, *, model: ModelSpec, plan: PrecisionPlan, hardware: AcceleratorSpec
) -> AppliedTechniques:
    """Resolve a scenario's techniques, or refuse what the hardware, the model or another technique rules out."""
    applied = AppliedTechniques(spec=spec, model=model, plan=plan)
    if spec == _NO_TECHNIQUES:
        return applied
    for technique in TECHNIQUES:
        applied = technique(applied, hardware)
    return applied


def check_on_engine(spec: TechniquesSpec, *, engine: str, fused: bool, max_model_len: int, ep_size: int) -> None:
    """Refuse what this engine does anyway, or cannot show."""
    check_budget(spec.kv_policy, longest_tokens=max_model_len)
    if spec.fusion is not None and spec.fusion == fused:
        raise RoofcastError(
            f"{str(spec.fusion).lower()} is what {engine} does: its elementwise passes are "
            f"{'fused' if fused else 'separate kernels'} already",
            field="techniques.fusion",
            code="no_effect",
            hint="leave it out, or ask for the other",
        )
    if spec.structure is not None and spec.structure.expert_imbalance is not None and ep_size == 1:
        raise RoofcastError(
            "one rank holds all experts under ep_size 1: there is no busiest one",
            field="techniques.structure.expert_imbalance",
            code="no_effect",
            hint="ep_size above 1, or leave it out",
        )


def shares_prefixes(spec: TechniquesSpec) -> bool:
    """Whether prompts may share cached blocks: not where each sequence keeps a choice of tokens of its own."""
    return spec.kv_policy is None or spec.kv_policy.method == "window"
