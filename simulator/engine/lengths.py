"""How long prompts and answers are, and evenly spread points at which to sample what varies between requests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_HAMMERSLEY_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthDistribution:
    """Token counts with a mean and a coefficient of variation, log-normal where they vary.

    mean_tokens : at least 1; cv : standard deviation over mean, 0 for a fixed length
    """

    mean_tokens: float
    cv: float = 0.0

    def moment(self, order: int) -> float:
        """E[X^order] of the log-normal, m^k (1 + cv^2)^(k (k - 1) / 2) [tokens^order]."""
        return float(self.mean_tokens**order * (1 + self.cv**2) ** (order * (order - 1) / 2))

    def at(self, normal: Array) -> Array:
        """Lengths at standard normal deviates, at least one token [tokens]."""
        log_variance = np.log1p(self.cv**2)
        lengths: Array = self.mean_tokens * np.exp(np.sqrt(log_variance) * normal - log_variance / 2)
        return np.maximum(lengths, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMix:
    """What requests look like to one replica.

    isl, osl : prompt and answer lengths; osl counts the first token
    prefix_hit_fraction : share of prompt tokens that are found in the prefix cache
    arrival_cv : coefficient of variation of the gaps between arrivals (1 for Poisson)
    """

    isl: LengthDistribution
    osl: LengthDistribution
    prefix_hit_fraction: float = 0.0
    arrival_cv: float = 1.0

    @property
    def new_prompt_tokens(self) -> float:
        """Mean prompt tokens that have to be computed, at least one because logits need it [tokens]."""
        return max(1.0, self.isl.mean_tokens * (1 - self.prefix_hit_fraction))

    @property
    def decode_steps(self) -> float:
        """Mean steps a request takes after its first token."""
        return max(0.0, self.osl.mean_tokens - 1)

    @property
    def decode_context_tokens(self) -> float:
        """Mean tokens a decoding sequence attends to: E[O I + O^2 / 2] / E[O], lengths independent [tokens]."""
        return self.isl.mean_tokens + self.osl.moment(2) / (2 * self.osl.mean_tokens)

    @property
    def decode_context_variance(self) -> float:
        """Variance of the cached tokens of a running sequence: of its prompt and of its age [tokens^2].

        The age of a sequence seen at a random step has the moments E[O^2] / 2 E[O] and E[O^3] / 3 E[O].
        """
        age_mean = self.osl.moment(2) / (2 * self.osl.mean_tokens)
        age_square = self.osl.moment(3) / ((2 + 1) * self.osl.mean_tokens)
        prompt = (self.isl.cv * self.isl.mean_tokens) ** 2
        return prompt + max(0.0, age_square - age_mean**2)


def _radical_inverse(count: int, base: int) -> Array:
    """Digits of 1..count in ``base`` mirrored at the point: evenly spread in (0, 1)."""
    index = np.arange(1, count + 1)
    value, scale = np.zeros(count), 1.0 / base
    while index.any():
        value += scale * (index % base)
        index, scale = index // base, scale / base
    return value


@cache
def uniform_points(count: int) -> Array:
    """Hammersley set: [11, count] numbers in (0, 1), each row evenly spread and the rows unrelated.

    References
    ----------
    [Hammersley1960]
    """
    first = (np.arange(count) + 1 / 2) / count
    return np.stack([first, *(_radical_inverse(count, base) for base in _HAMMERSLEY_BASES)])


@cache
def normal_points(count: int) -> Array:
    """The same points as standard normal deviates, [11, count]."""
    inverse = NormalDist().inv_cdf
    return np.array([[inverse(float(value)) for value in row] for row in uniform_points(count)])
