"""How large a simulated demand and its replicas may be: beyond it, memory runs out before anything is learned."""

from __future__ import annotations

from simulator.errors import RoofcastError
from simulator.specs.workload import WorkloadSpec
from simulator.units import GIB, MEGA, MIB

LARGEST_REQUESTS = int(10 * MEGA)
"""Requests of one run, and distinct prompts among them; a run of that size takes half a minute and some GB."""
LARGEST_TOKENS = int(16 * MIB)
"""Tokens of a prompt, an answer or a step: more than any model's context."""
LARGEST_STATE_BYTES = 8 * GIB
"""Memory for the state of all replicas."""


def check_tokens(value: float, *, field: str) -> None:
    """Refuse a number of tokens that no engine takes."""
    if value > LARGEST_TOKENS:
        raise RoofcastError(f"{value:.10g} tokens; at most {LARGEST_TOKENS:,}", field=field, code="out_of_range")


def check_workload_size(workload: WorkloadSpec, *, block_size_tokens: int) -> None:
    """Refuse a workload that would not fit into memory, before any of it is drawn."""
    for name in ("system_prompt_tokens", "question_tokens", "isl_tokens", "osl_tokens"):
        check_tokens(getattr(workload, name) or 0, field=f"workload.{name}")
    turns = 1.0 if workload.conversation is None else workload.conversation.turns_mean
    sent = turns * sum(stage.rate_per_s * stage.duration_s for stage in workload.stages)
    if sent > LARGEST_REQUESTS:
        raise RoofcastError(
            f"{sent:.4g} requests; at most {LARGEST_REQUESTS:,} are simulated",
            field="workload.stages",
            code="out_of_range",
            hint="shorten the stages: percentiles settle long before",
        )
    groups, each = workload.prompt_groups or 1, workload.prompts_per_group
    prompt = workload.isl_tokens or workload.system_prompt_tokens + (workload.question_tokens or 0)
    named = groups * (workload.system_prompt_tokens if each is None else each * prompt) / block_size_tokens
    if groups * (each or 1) > LARGEST_REQUESTS or named > 10 * LARGEST_REQUESTS:
        raise RoofcastError(
            f"{groups * (each or 1):,} distinct prompts of {prompt:,} tokens are more than a run remembers",
            field="workload.prompt_groups",
            code="out_of_range",
            hint="fewer or shorter ones; without prompts_per_group every question is new",
        )


def check_state_size(bytes_of_one: float, *, replicas: int) -> None:
    """Refuse more replicas, or larger ones, than memory holds the state of."""
    if bytes_of_one * replicas > LARGEST_STATE_BYTES:
        raise RoofcastError(
            f"{replicas:,} replicas of {bytes_of_one:.3g} bytes of state each; at most {LARGEST_STATE_BYTES:.3g} bytes",
            field="replicas",
            code="out_of_range",
            hint="simulate a share of the replicas under the same share of the rate",
        )
