"""Tiers below the cache of a replica: their blocks, when loading them pays, and what requests found there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.engine.events.arrays import SimulationRun
from simulator.engine.events.state import TIER_BLOCKS
from simulator.engine.settings import CacheTier, SchedulerSettings
from simulator.errors import RoofcastError
from simulator.operators.work import Array
from simulator.phases.compiled import StepTables, prefill_seconds
from simulator.phases.deployment import Deployment
from simulator.phases.memory import memory_plan
from simulator.records import dataclass
from simulator.traffic.requests import Requests
from simulator.traffic.reuse import reuse_fractions

HOST_CACHE_RATIO = 2.0
"""Host memory for KV blocks over the device's, where no size is given: SGLang's --hicache-ratio by default."""


def _block_bytes(deployment: Deployment) -> float:
    """KV bytes of a block on one device [bytes]; models without a growing cache are refused."""
    block_bytes = memory_plan(deployment).kv_bytes_per_token * deployment.engine.block_size_tokens
    if block_bytes == 0:
        raise RoofcastError(
            f"{deployment.model.name} keeps no KV blocks that could be offloaded",
            field="engine.kv_tiers" if deployment.engine.kv_tiers else "engine.cpu_kv_offload",
            code="ignored_option",
            hint="leave it out",
        )
    return block_bytes


def cache_tiers(deployment: Deployment, *, kv_blocks: int) -> tuple[CacheTier, ...]:
    """What lies below the KV cache of one replica, fastest first: ``engine.kv_tiers`` or ``engine.cpu_kv_offload``.
    Every device moves its own part of a block over its own link, all at once."""
    engine, devices = deployment.engine, deployment.parallelism.devices
    if engine.kv_tiers:
        block_bytes = _block_bytes(deployment)
        return tuple(
            CacheTier(
                blocks=int(tier.capacity_bytes // (block_bytes * devices)),
                block_load_s=block_bytes / tier.device_bytes_per_s,
                latency_s=tier.latency_s,
                shared=tier.medium == "remote",
            )
            for tier in engine.kv_tiers
        )
    if not engine.cpu_kv_offload:
        return ()
    block_bytes = _block_bytes(deployment)
    blocks = int(HOST_CACHE_RATIO * kv_blocks)
    if engine.cpu_kv_offload_bytes is not None:
        blocks = int(engine.cpu_kv_offload_bytes // (block_bytes * devices))
    return (
        CacheTier(blocks=blocks, block_load_s=block_bytes / deployment.hardware.host_link.bytes_per_s_per_direction),
    )


def _piece_seconds(tables: StepTables, tokens: Array, context: Array) -> Array:
    """What prompt tokens after a context add to a step that reads the weights anyway [s]."""
    added: Array = tables.token_s[tokens.astype(np.int64)] - tables.token_s[1]
    some = np.maximum(tokens, 1.0)
    attention: Array = prefill_seconds(tables, np.ones_like(some), some, some * (2 * context + some))
    return np.maximum(added, 0.0) + np.where(tokens > 0, attention, 0.0)


def prompt_seconds(stages: tuple[StepTables, ...], settings: SchedulerSettings) -> tuple[float, ...]:
    """Time of computing the first 0, 1, 2 ... blocks of a prompt, in steps as full as they may be [s].

    Reading the weights is left out, since steps that decode others do it anyway, so that computing looks rather too
    cheap than too dear beside loading.
    """
    room = min(settings.max_num_batched_tokens, min(tables.max_tokens for tables in stages))
    tokens = np.arange(settings.max_model_len // settings.block_size_tokens + 2.0) * settings.block_size_tokens
    steps = (tokens // room).astype(np.int64)
    before: Array = np.arange(steps[-1], dtype=np.float64) * room
    seconds = np.zeros(len(tokens))
    for tables in stages:
        full_s = _piece_seconds(tables, np.full(len(before), float(room)), before)
        ends = np.append(0.0, np.cumsum(full_s))
        seconds += ends[steps] + _piece_seconds(tables, tokens - steps * room, (steps * room).astype(np.float64))
    return tuple(np.maximum.accumulate(seconds).tolist())


def break_even_tokens(tier: CacheTier, settings: SchedulerSettings) -> int | None:
    """The shortest prefix that comes sooner from a tier than it is computed [tokens]; None where none does.

    Equation
    --------
    n b with the smallest n for which l + n t <= P(n)

    Parameters
    ----------
    tier : latency l, time t of a block [s]
    settings : tokens b of a block [tokens], time P(n) of computing n blocks [s]

    Range of validity
    -----------------
    Leaves out what else is on the link: under load the event simulation compares with the queue before it.

    References
    ----------
    [Qin2024]

    Examples
    --------
    Three blocks of 16 tokens: 0.5 + 3 x 0.1 s, or 1.2 s of computing.

    >>> from types import SimpleNamespace as Record
    >>> settings = Record(prompt_s=[0.0, 0.2, 0.6, 1.2], block_size_tokens=16)
    >>> break_even_tokens(Record(latency_s=0.5, block_load_s=0.1), settings)
    48
    """
    blocks = np.arange(len(settings.prompt_s))
    sooner = tier.latency_s + blocks * tier.block_load_s <= np.array(settings.prompt_s)
    pays = np.flatnonzero(sooner[1:])
    return int(pays[0] + 1) * settings.block_size_tokens if len(pays) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierUse:
    """One level of a replica's cache.

    medium : device, host, nvme or remote; capacity_tokens : of a replica
    hit_fraction : share of prompt tokens that requests took from it
    reuse_fraction : share that an LRU stack of this level and those above has beyond those above, from the distances at
        which prompts come again alone; hits are fewer where loading is not sooner than computing or takes too long
    load_s_per_token : over a free link [s]; break_even_tokens : the shortest prefix that is worth loading, None where
        none is
    """

    medium: str
    capacity_tokens: int
    hit_fraction: float
    reuse_fraction: float
    load_s_per_token: float
    latency_s: float
    break_even_tokens: int | None


def tier_uses(
    deployment: Deployment, settings: SchedulerSettings, requests: Requests, run: SimulationRun
) -> tuple[TierUse, ...]:
    """The device and every tier below it, with what the requests of ``run`` found there; () without ``kv_tiers``."""
    engine, block = deployment.engine, settings.block_size_tokens
    if not engine.kv_tiers:
        return ()
    prompts = float(requests.prompt_tokens.sum())
    below = run.usage[:, TIER_BLOCKS : TIER_BLOCKS + len(settings.tiers)].sum(axis=0) * block
    on_device = float(run.records.cached_tokens.sum()) - float(below.sum())
    sizes = (settings.kv_blocks, *(tier.blocks for tier in settings.tiers))
    reuse = reuse_fractions(requests, run.records, block_size_tokens=block, capacities=np.cumsum(sizes))
    if settings.shared_tier >= 0:
        common = reuse_fractions(
            requests,
            replace(run.records, replica=np.minimum(run.records.replica, 0)),
            block_size_tokens=block,
            capacities=np.array([sum(sizes) * settings.replicas]),
        )
        reuse = (*reuse[:-1], max(reuse[-2], *common))
    device = TierUse(
        medium="device",
        capacity_tokens=settings.kv_blocks * block,
        hit_fraction=on_device / prompts,
        reuse_fraction=reuse[0],
        load_s_per_token=0.0,
        latency_s=0.0,
        break_even_tokens=block,
    )
    return (
        device,
        *(
            TierUse(
                medium=asked.medium,
                capacity_tokens=tier.blocks * block,
                hit_fraction=float(found) / prompts,
                reuse_fraction=more - less,
                load_s_per_token=tier.block_load_s / block,
                latency_s=tier.latency_s,
                break_even_tokens=break_even_tokens(tier, settings),
            )
            for asked, tier, found, less, more in zip(
                engine.kv_tiers, settings.tiers, below, reuse, reuse[1:], strict=False
            )
        ),
    )
