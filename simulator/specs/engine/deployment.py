"""How a model is spread over devices: degrees of parallelism, and prefill and decode on replicas of their own."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from simulator.specs.base import Spec
from simulator.units import GIGA

LARGEST_DEGREE = 4096
"""Devices that one model is spread over in one way: far more than any fabric joins."""
Degree = Annotated[int, Field(gt=0, le=LARGEST_DEGREE)]


class ParallelismSpec(Spec):
    """Degrees of tensor, pipeline, expert, data (attention) and context parallelism of one replica.

    ``ep_size`` spreads the experts over devices that tensor and data parallelism already brought
    (ep_size <= tp_size * dp_size); ``dp_size`` replicates attention; ``cp_size`` divides the tokens of each prompt and
    the cache of each sequence over ranks that all hold the weights. A replica uses tp * pp * dp * cp devices.
    """

    tp_size: Degree = 1
    pp_size: Degree = 1
    ep_size: int = Field(default=1, gt=0, le=LARGEST_DEGREE**2)
    dp_size: Degree = 1
    cp_size: Degree = 1

    @property
    def devices(self) -> int:
        """Accelerators of one replica."""
        return self.tp_size * self.pp_size * self.dp_size * self.cp_size

    @property
    def ranks_in_step(self) -> int:
        """Attention-data-parallel ranks that step together, because they share experts; 1 where none wait."""
        return self.dp_size if self.ep_size > 1 else 1

    def named(self, *degrees: str) -> tuple[str, ...]:
        """``PP2``, ``DP4``: those of ``degrees`` (pp, dp, ep, cp) that are above one."""
        return tuple(f"{name.upper()}{size}" for name in degrees if (size := getattr(self, f"{name}_size")) > 1)

    @property
    def sizes(self) -> tuple[str, ...]:
        """``tp 4``, ``pp 2``: the first always, the others where they are above one."""
        others = ((name, getattr(self, f"{name}_size")) for name in ("pp", "dp", "ep", "cp"))
        return (f"tp {self.tp_size}", *(f"{name} {size}" for name, size in others if size > 1))


PoolName = Literal["prefill", "decode"]
TransferOrder = Literal["after_prefill", "layer_wise"]


class EncoderPoolSpec(Spec):
    """Accelerators that encode the pictures of prompts and do nothing else (kind serve).

    ``replicas`` of ``tp_size`` accelerators each, of the scenario's ``hardware`` or another. Embeddings move over
    ``link``: "scale_up" or "nic" as in ``DisaggregationSpec``.
    """

    replicas: PositiveInt
    tp_size: Degree = 1
    hardware: str | None = None
    link: str | None = None


class FfnPoolSpec(Spec):
    """Devices that hold the feed-forward blocks of one decode replica, whose other devices do the attention.

    ``devices`` share the experts; the pool's tensor and data parallel degrees are those of attention. A step goes as
    ``micro_batches``. ``hardware`` is another kind of accelerator where it is given. ``link`` is "scale_up" or "nic".
    """

    devices: int = Field(ge=2, le=LARGEST_DEGREE)
    micro_batches: int = Field(default=3, ge=1, le=64)
    hardware: str | None = None
    link: Literal["scale_up", "nic"] | None = None


class DisaggregationSpec(Spec):
    """Pools of a disaggregated deployment (kinds serve and closed_loop).

    A prompt is computed by one of ``prefill_replicas``, its KV cache moves over ``link``, and one of
    ``decode_replicas`` goes on. ``link`` is "scale_up" (NVLink and the like: all pools inside one domain), "nic" (the
    server's network cards, shared evenly by its accelerators) or the name of one of the two (nvlink, infiniband, ...);
    by default the faster one that reaches. ``transfer`` says when a cache sets out: when its prompt is done, or layer
    by layer beside the prompt's computation. ``prefill_tp_size`` and the like replace the scenario's degree in that
    pool, ``prefill_max_num_batched_tokens`` its engine's limit, ``prefill_hardware`` its accelerator: caches then cross
    the slower network of both servers. ``decode_ffn`` (kind serve) gives the experts of a decode replica devices of
    their own. ``devices`` are the accelerators that there are; pools that need more would share some and are refused.
    As text: ``prefill_replicas=2,decode_replicas=1,decode_dp_size=8``.
    """

    prefill_replicas: PositiveInt
    decode_replicas: PositiveInt
    link: str | None = None
    transfer: TransferOrder = "after_prefill"
    devices: PositiveInt | None = None
    decode_ffn: FfnPoolSpec | None = None
    prefill_hardware: str | None = None
    prefill_tp_size: Degree | None = None
    prefill_pp_size: Degree | None = None
    prefill_ep_size: Degree | None = None
    prefill_dp_size: Degree | None = None
    prefill_cp_size: Degree | None = None
    prefill_max_num_batched_tokens: PositiveInt | None = None
    decode_tp_size: Degree | None = None
    decode_pp_size: Degree | None = None
    decode_ep_size: Degree | None = None
    decode_dp_size: Degree | None = None
    decode_cp_size: Degree | None = None

    @model_validator(mode="before")
    @classmethod
    def _written(cls, data: Any) -> Any:
        given: dict[str, Any] = {}
        for piece in data.split(",") if isinstance(data, str) else ():
            name, _, text = piece.replace(" ", "").partition("=")
            if name in given:
                raise ValueError(f"{name} is given twice")
            given[name] = int(text) if text.isdecimal() else text
        return given or data

    def degrees(self, pool: PoolName) -> dict[str, int]:
        """Degrees of parallelism that one pool has of its own, by the scenario's names."""
        own = {degree: getattr(self, f"{pool}_{degree}") for degree in ParallelismSpec.model_fields}
        return {degree: size for degree, size in own.items() if size is not None}


Medium = Literal["host", "nvme", "remote"]
"""Memory of the server, drives in it, a store on the network: fastest first."""


class KvTierSpec(Spec):
    """One tier of a replica; as text ``nvme:15e12,bytes_per_s=25e9,latency_s=1e-4``.

    ``capacity_bytes`` and ``bytes_per_s`` (towards the accelerators) are those of a replica, all its accelerators
    together. Without ``bytes_per_s`` host memory has the accelerators' host links, a remote store their share of the
    server's network cards; no profile knows the rate of drives. ``latency_s`` passes before the first block of a
    request comes. All replicas find what any of them still has in a remote store.
    """

    medium: Medium
    capacity_bytes: PositiveFloat
    bytes_per_s: PositiveFloat | None = None
    latency_s: NonNegativeFloat = 0.0

    @model_validator(mode="after")
    def _rate_is_known(self) -> Self:
        if self.medium == "nvme" and self.bytes_per_s is None:
            raise ValueError("nvme needs `bytes_per_s`, the rate at which its drives are read")
        return self


def tier_of_gb(medium: Medium, *, capacity_gb: float, gb_per_s: float | None = None) -> dict[str, Any]:
    """The fields of a tier from its size in GB and its rate in GB/s, 1e9 bytes each."""
    rate = {} if gb_per_s is None else {"bytes_per_s": gb_per_s * GIGA}
    return {"medium": medium, "capacity_bytes": capacity_gb * GIGA, **rate}


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _tier(text: str) -> dict[str, Any]:
    medium, _, rest = (piece.strip() for piece in text.partition(":"))
    tier: dict[str, Any] = {"medium": medium}
    for key, equals, value in (piece.partition("=") for piece in rest.split(",") if piece):
        name = key.strip() if equals else "capacity_bytes"
        if name in tier:
            raise ValueError(f"{name} of {medium} is given twice")
        tier[name] = _number(value if equals else key)
    return tier


def tiers_of_text(value: Any) -> Any:
    """Tiers with bars between them, ``host:1e12|remote:1e15``, or a list of such words; all else stays as it is."""
    tiers = value.split("|") if isinstance(value, str) else value
    if not isinstance(tiers, list | tuple):
        return tiers
    return [_tier(tier) if isinstance(tier, str) else tier for tier in tiers]


def check_order(tiers: tuple[KvTierSpec, ...]) -> tuple[KvTierSpec, ...]:
    """Each medium once, in the order in which blocks move down."""
    media = [tier.medium for tier in tiers]
    if media != [medium for medium in get_args(Medium) if medium in media]:
        raise ValueError(f"{', '.join(media)}; each of {', '.join(get_args(Medium))} at most once, in this order")
    return tiers


KvTiers = Annotated[tuple[KvTierSpec, ...] | None, BeforeValidator(tiers_of_text), AfterValidator(check_order)]
"""The tiers of a replica, fastest first."""


_DEGREES = ("TP", "PP", "EP", "DP", "CP")


def parallel_text(degrees: Sequence[int]) -> str:
    """Parallel degrees above one, in the order of ``ParallelismSpec``: ``TP4 EP4``; ``TP1`` where there are none."""
    named = zip(_DEGREES, degrees, strict=True)
    return " ".join(f"{name}{size}" for name, size in named if size > 1) or "TP1"
