"""Deployments whose plans are replayed: those that the planner's margins were set on, and those written down before."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """A model on an accelerator, with rates [1/s] by trace that need some ten replicas, and tight and loose bounds [s].

    Bounds of TTFT and E2E are for the traces of Azure; Mooncake's prompts are ten times as long.
    """

    model: str
    hardware: str
    tp: int
    rates: tuple[float, float, float]
    ttft: tuple[float, float]
    tpot: tuple[float, float]
    e2e: tuple[float, float]


LONGER_PROMPTS = 16
DEPLOYED = (
    Deployed(
        model="llama-3.1-8b", hardware="a100", tp=1, rates=(30, 15, 3), ttft=(0.8, 3), tpot=(0.04, 0.12), e2e=(12, 30)
    ),
    Deployed(
        model="llama-3.1-70b", hardware="h100", tp=4, rates=(20, 10, 3), ttft=(1, 4), tpot=(0.05, 0.15), e2e=(18, 40)
    ),
    Deployed(
        model="mixtral-8x7b", hardware="h200", tp=2, rates=(60, 30, 8), ttft=(0.6, 3), tpot=(0.04, 0.12), e2e=(12, 30)
    ),
    Deployed(
        model="qwen3-32b", hardware="b200", tp=1, rates=(25, 15, 8), ttft=(0.8, 3), tpot=(0.05, 0.12), e2e=(15, 35)
    ),
)

BLIND = (
    Deployed(
        model="qwen2.5-7b", hardware="l40s", tp=1, rates=(20, 8, 1.5), ttft=(1, 4), tpot=(0.06, 0.15), e2e=(18, 40)
    ),
    Deployed(
        model="llama-3.1-8b", hardware="l40s", tp=1, rates=(20, 8, 1.5), ttft=(1, 4), tpot=(0.06, 0.15), e2e=(18, 40)
    ),
    Deployed(
        model="mistral-small-24b",
        hardware="h100",
        tp=1,
        rates=(30, 15, 3),
        ttft=(1, 4),
        tpot=(0.05, 0.12),
        e2e=(15, 35),
    ),
    Deployed(
        model="deepseek-v2-lite",
        hardware="a100",
        tp=1,
        rates=(50, 30, 8),
        ttft=(0.8, 3),
        tpot=(0.05, 0.12),
        e2e=(15, 35),
    ),
)
