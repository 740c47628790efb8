"""Speculation where prompts and answers have pools of their own: the decode pool guesses, the prefill pool does not."""

from __future__ import annotations

from dataclasses import replace

from simulator.phases.deployment import Deployment
from simulator.planner.candidates import Candidate


def without_guesses(candidate: Candidate) -> Candidate:
    """The candidate as a prefill replica: prompts give nothing to guess."""
    if candidate.techniques.speculation is None:
        return candidate
    return replace(candidate, techniques=candidate.techniques.model_copy(update={"speculation": None}))


def drafter_refusal(deployment: Deployment) -> str:
    """Why a decode pool cannot guess as ``deployment`` does; empty where it can.

    A drafter with a cache of its own needs the prompt in it. Either the prefill pool computes and sends that too, or
    the decode pool computes every prompt once more with the drafter; neither is priced.
    """
    speculation = deployment.speculation
    if speculation is None or (speculation.draft is None and speculation.kv_bytes_per_token == 0):
        return ""
    return (
        f"{speculation.plan.method} drafts with a cache of its own, which would need every prompt in the decode pool; "
        "allowed in a disaggregated fleet: methods without one, such as ngram"
    )
