"""Techniques of a planned replica that no flag can say."""

from __future__ import annotations

from simulator.phases.deployment import Deployment
from simulator.planner.handoff.engines import (
    DRAFT_PLACEHOLDER,
    NGRAM_METHODS,
    SGLANG_METHODS,
    TENSORRT_METHODS,
    VLLM_METHODS,
    drafter,
)
from simulator.units import percent_text


def _speculation_notes(deployment: Deployment) -> list[str]:
    found = deployment.speculation
    if found is None:
        return []
    method = found.plan.method
    notes = [
        f"The plan counts on {found.plan.mean_tokens:.2f} tokens per verify step of {method}: measure that on your own "
        "requests; of random tokens, as the benchmark sends them, almost no guess is accepted."
    ]
    engines = (("vLLM", VLLM_METHODS), ("SGLang", SGLANG_METHODS), ("TensorRT-LLM", TENSORRT_METHODS))
    without = [name for name, known in engines if method not in known]
    if without:
        notes.append(f"No flag of {' or '.join(without)} speculates by {method}: their commands leave it out.")
    if len(without) < len(engines) and method not in NGRAM_METHODS and drafter(found) == DRAFT_PLACEHOLDER:
        notes.append(f"{DRAFT_PLACEHOLDER} stands for a drafter trained for this model; without one, train it first.")
    return notes


def technique_notes(deployment: Deployment) -> tuple[str, ...]:
    """What has to be there before the commands give what was planned."""
    spec, notes = deployment.techniques.spec, _speculation_notes(deployment)
    if spec.sparsity is not None:
        notes.append(
            f"The checkpoint has to be pruned to {spec.sparsity.pattern} and stored compressed: no flag prunes it."
        )
    if spec.weight_offload is not None:
        notes.append(
            f"The plan keeps {percent_text(spec.weight_offload.fraction)} of the layers' weights in host memory: add "
            "--cpu-offload-gb (vLLM, SGLang) with that share of a device's weights; the commands leave it out."
        )
    if spec.kv_policy is not None:
        notes.append(f"No flag of these engines bounds the cache by {spec.kv_policy.method}: it needs their source.")
    return tuple(notes)
