"""Tiers below an accelerator's memory that keep KV blocks for prompts that begin alike."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import NonNegativeFloat, PositiveFloat, model_validator

from simulator.specs.base import Spec

Medium = Literal["host", "nvme", "remote"]
"""Memory of the server, drives in it, a store on the network: fastest first."""


class KvTierSpec(Spec):
    """One tier of a replica; as text ``nvme:15e12,bytes_per_s=25e9,latency_s=1e-4``.

    ``capacity_bytes`` and ``bytes_per_s`` (towards the accelerators) are those of a replica, all its accelerators
    together. Without ``bytes_per_s`` host memory has the accelerators' host links, a remote store their share of the
    server's network cards; no profile knows the rate of drives. ``latency_s`` passes before the first block of a
    request comes.
    """

    medium: Medium
    capacity_bytes: PositiveFloat
    bytes_per_s: PositiveFloat | None = None
    latency_s: NonNegativeFloat = 0.0

    @model_validator(mode="after")
    def _rate_is_known(self) -> KvTierSpec:
        if self.medium == "nvme" and self.bytes_per_s is None:
            raise ValueError("nvme needs bytes_per_s, the rate at which its drives are read")
        return self


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _tier(text: str) -> dict[str, Any]:
    medium, _, rest = (piece.strip() for piece in text.partition(":"))
    pairs = [piece.partition("=") for piece in rest.split(",") if piece]
    return {
        "medium": medium,
        **{(key if equals else "capacity_bytes"): _number(value if equals else key) for key, equals, value in pairs},
    }


def tiers_of_text(value: Any) -> Any:
    """Tiers with bars between them, ``host:1e12|remote:1e15``; what is no text stays as it is."""
    return [_tier(part) for part in value.split("|")] if isinstance(value, str) else value


def check_order(tiers: tuple[KvTierSpec, ...]) -> tuple[KvTierSpec, ...]:
    """Each medium once, in the order in which blocks move down."""
    media = [tier.medium for tier in tiers]
    if media != [medium for medium in get_args(Medium) if medium in media]:
        raise ValueError(f"{', '.join(media)}; each of {', '.join(get_args(Medium))} at most once, in this order")
    return tiers
