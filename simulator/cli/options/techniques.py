"""The options of techniques and number formats, the same in every command that takes them.

A command takes them as groups, ``@grouped(precision_group, technique_group)``, and reads
``precision_of(context.params)`` and ``techniques_of(context.params)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from simulator.specs.question.techniques import TechniquesSpec


WeightsOption = Annotated[str | None, typer.Option("--weights", help="Number format of the weights.")]
ActivationsOption = Annotated[str | None, typer.Option("--activations", help="Number format of the products.")]
KvCacheOption = Annotated[str | None, typer.Option("--kv-cache", help="Number format of the KV cache.")]
SchemeOption = Annotated[
    str | None,
    typer.Option("--scheme", help="Quantization method: gptq-g128, awq, w8a8, smoothquant-o3, nf4, q4-k-m..."),
]
KernelOption = Annotated[
    str | None, typer.Option("--kernel", help="Kernels of quantized products: marlin, tinygemm, bitsandbytes...")
]
MixedOption = Annotated[
    list[str] | None,
    typer.Option("--mixed", metavar="ROLE=SCHEME", help="A role's own scheme: attention=fp8; repeatable."),
]
SparsityOption = Annotated[
    str | None,
    typer.Option(
        "--sparsity",
        help="2:4, unstructured:0.6 (with ,compressed=true) or structured:fraction=0.25 (with ,target=heads).",
    ),
]
ContextualSparsityOption = Annotated[
    str | None, typer.Option("--contextual-sparsity", help="Share that a token needs: attention=0.5,mlp=0.2.")
]
SpeculationOption = Annotated[
    str | None,
    typer.Option(
        "--speculation",
        help="mtp, eagle3:task=code, eagle:k=4 or ngram:k=5, with ,acceptance=0.7 or ,accepted_tokens=2.1.",
    ),
]
AttentionOption = Annotated[str | None, typer.Option("--attention", help="flash, standard or flash_decoding.")]
KvPolicyOption = Annotated[str | None, typer.Option("--kv-policy", help="Bounded cache: h2o:1024, streaming:2048.")]
AdaptersOption = Annotated[str | None, typer.Option("--adapters", help="lora:rank=16,count=8 or lora:16,merged=true.")]
StructureOption = Annotated[
    str | None, typer.Option("--structure", help="num_key_value_heads=1 or moe.num_experts=8, several with commas.")
]
EarlyExitOption = Annotated[str | None, typer.Option("--early-exit", help="mean_fraction=0.6 (with ,compacts=true).")]
FusionOption = Annotated[
    bool | None, typer.Option("--fusion/--no-fusion", help="Elementwise passes fused; --no-fusion: one kernel each.")
]
WeightOffloadOption = Annotated[
    str | None, typer.Option("--weight-offload", help="Share of the layers' weights in host memory: 0.5.")
]
SequenceParallelOption = Annotated[
    bool | None,
    typer.Option("--sequence-parallel", help="Norms split over tensor-parallel ranks, all-reduces in two halves."),
]


def precision_group(
    weights: WeightsOption = None,
    activations: ActivationsOption = None,
    kv_cache: KvCacheOption = None,
    scheme: SchemeOption = None,
    kernel: KernelOption = None,
    mixed: MixedOption = None,
) -> None:
    """Number formats."""


def technique_group(
    sparsity: SparsityOption = None,
    contextual_sparsity: ContextualSparsityOption = None,
    speculation: SpeculationOption = None,
    attention: AttentionOption = None,
    kv_policy: KvPolicyOption = None,
    adapters: AdaptersOption = None,
    structure: StructureOption = None,
    early_exit: EarlyExitOption = None,
    fusion: FusionOption = None,
    weight_offload: WeightOffloadOption = None,
    sequence_parallel: SequenceParallelOption = None,
) -> None:
    """What-if techniques."""


def precision_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario's ``precision`` object from the options of ``precision_group``."""
    from simulator.specs.question.techniques_text import mixed_schemes

    names = ("weights", "activations", "kv_cache", "scheme", "kernel")
    return {**{name: options[name] for name in names}, "mixed": mixed_schemes(options["mixed"] or [])}


def techniques_of(options: Mapping[str, Any]) -> TechniquesSpec:
    """The techniques that the options of ``technique_group`` ask for."""
    from simulator.specs.question.techniques import TechniquesSpec
    from simulator.specs.question.techniques_text import techniques_spec

    return techniques_spec({name: options[name] for name in TechniquesSpec.model_fields})
