"""Techniques and ranks of a planned replica in the words of each engine, and what no flag can say."""

from __future__ import annotations

import json
import shlex

from simulator.phases.deployment import Deployment
from simulator.phases.speculation import Speculation

DRAFT_PLACEHOLDER = "PATH_OF_THE_DRAFTER"
"""Where nobody named the drafter's weights."""
_VLLM_METHODS = {"eagle": "eagle", "eagle2": "eagle", "medusa": "medusa", "ngram": "ngram", "lookup": "ngram"}
_SGLANG_METHODS = {"eagle": "EAGLE", "eagle2": "EAGLE", "draft": "STANDALONE", "ngram": "NGRAM", "lookup": "NGRAM"}


def _drafter(found: Speculation) -> str:
    return found.spec.draft_model or (found.draft.model.name if found.plan.method == "draft" and found.draft else "")


def _vllm_speculation(found: Speculation) -> list[str]:
    method, guesses = found.plan.method, found.plan.k
    if method == "draft":
        config: dict[str, object] = {"model": _drafter(found), "num_speculative_tokens": guesses}
    elif method in _VLLM_METHODS:
        config = {"method": _VLLM_METHODS[method], "num_speculative_tokens": guesses}
        if _VLLM_METHODS[method] == "ngram":
            config["prompt_lookup_max"] = guesses
        else:
            config["model"] = _drafter(found) or DRAFT_PLACEHOLDER
    else:
        return []
    return [f"--speculative-config {shlex.quote(json.dumps(config, separators=(',', ':')))}"]


def vllm_flags(deployment: Deployment) -> list[str]:
    """Of data-parallel attention, spread experts and speculation [VllmTeam2025]."""
    parallelism, flags = deployment.parallelism, []
    if parallelism.dp_size > 1:
        flags.append(f"--data-parallel-size {parallelism.dp_size}")
    if parallelism.ep_size > 1:
        flags.append("--enable-expert-parallel")
    return flags + (_vllm_speculation(deployment.speculation) if deployment.speculation else [])


def sglang_flags(deployment: Deployment) -> list[str]:
    """The same for SGLang, which counts the ranks of attention among its tensor-parallel ones."""
    parallelism, found, flags = deployment.parallelism, deployment.speculation, []
    if parallelism.dp_size > 1:
        flags.append(f"--dp-size {parallelism.dp_size} --enable-dp-attention")
    if parallelism.ep_size > 1:
        flags.append(f"--ep-size {parallelism.ep_size}")
    if found is not None and found.plan.method in _SGLANG_METHODS:
        method = _SGLANG_METHODS[found.plan.method]
        flags.append(f"--speculative-algorithm {method} --speculative-num-steps {found.plan.k}")
        if method != "NGRAM":
            flags.append(f"--speculative-draft-model-path {_drafter(found) or DRAFT_PLACEHOLDER}")
    return flags


def technique_notes(deployment: Deployment) -> tuple[str, ...]:
    """What has to be there before the commands give what was planned."""
    spec, found, notes = deployment.techniques.spec, deployment.speculation, []
    if found is not None:
        notes.append(
            f"The plan counts on {found.plan.mean_tokens:.2f} tokens per verify step of {found.plan.method}: measure "
            "that on your own requests; of random tokens, as the benchmark sends them, almost no guess is accepted."
        )
        if found.plan.method not in {*_VLLM_METHODS, "draft"}:
            notes.append(f"vLLM has no {found.plan.method}: the launch commands leave it out.")
        elif not _drafter(found) and _VLLM_METHODS[found.plan.method] != "ngram":
            notes.append(
                f"{DRAFT_PLACEHOLDER} stands for a drafter trained for this model; without one, train it first."
            )
    if spec.sparsity is not None:
        notes.append(
            f"The checkpoint has to be pruned to {spec.sparsity.pattern} and stored compressed: no flag prunes it."
        )
    if spec.kv_policy is not None:
        notes.append(f"No flag of these engines bounds the cache by {spec.kv_policy.method}: it needs their source.")
    return tuple(notes)
