"""Which number format each part of a model is stored, multiplied and cached in, once everything is resolved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from simulator.errors import RoofcastError, did_you_mean
from simulator.operators.work import MatmulFormat
from simulator.specs.model.precision import BITS, Dtype
from simulator.units import BITS_PER_BYTE

Role = Literal["attention", "mlp", "experts", "shared_expert", "lm_head", "router", "mixer", "embedding"]
ROLES: tuple[Role, ...] = get_args(Role)
# A 4-bit cache keeps a 16-bit scale and a 16-bit zero point per token and head of 128 numbers, as LMDeploy does.
# FP4 keeps an 8-bit scale per 16 numbers, as NVFP4 caches do.
KV_OVERHEAD_BITS: Mapping[Dtype, float] = {Dtype.INT4: 32 / 128, Dtype.FP4: 8 / 16}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionPlan:
    """Resolved formats of one deployment.

    weights, activations : dtypes of the quantised (or all) linear layers; activations is what enters a product
    activation_dtype : of the residual stream and of everything that is not a product
    kv_dtype : of cached keys and values
    linear, plain : formats of the layers in ``quantised_roles`` and of all others
    role_formats : of roles that have their own; they go before both
    assumptions : what was not given and how it was filled
    """

    weights: Dtype
    activations: Dtype
    activation_dtype: Dtype
    kv_dtype: Dtype
    linear: MatmulFormat
    plain: MatmulFormat
    quantised_roles: frozenset[str]
    assumptions: tuple[str, ...] = ()
    role_formats: tuple[tuple[str, MatmulFormat], ...] = ()

    def format_for(self, role: str) -> MatmulFormat:
        """Format of the products of a role; an unknown role is refused."""
        if role not in ROLES:
            raise RoofcastError(f"no role {role!r}", field="role", hint=did_you_mean(role, ROLES))
        for own, product in self.role_formats:
            if own == role:
                return product
        return self.linear if role in self.quantised_roles else self.plain

    def with_formats(self, change: Callable[[MatmulFormat], MatmulFormat], *, roles: frozenset[str]) -> PrecisionPlan:
        """The plan with ``change`` applied to the format of each of ``roles``."""
        changed = {role: change(self.format_for(role)) for role in roles}
        kept = tuple((role, product) for role, product in self.role_formats if role not in changed)
        return replace(self, role_formats=(*kept, *sorted(changed.items())))

    @property
    def activation_bytes(self) -> float:
        """Bytes of one element of the residual stream."""
        return BITS[self.activation_dtype] / BITS_PER_BYTE

    @property
    def kv_bytes(self) -> float:
        """Bytes of one cached number, with its share of scales."""
        return (BITS[self.kv_dtype] + KV_OVERHEAD_BITS.get(self.kv_dtype, 0.0)) / BITS_PER_BYTE
