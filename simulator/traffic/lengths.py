"""How long prompts and answers are, and evenly spread points at which to sample what varies between requests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DIMENSIONS = 11
# Of all generators this one has the least squared worst-case error P_2 for 256 points in 11 dimensions (weights 1/10).
_GENERATOR = 13


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


def whole_lengths(mean_tokens: float, *, cv: float, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Whole token counts, log-normal around the mean where they vary [tokens]."""
    if cv == 0:
        return np.full(count, mean_tokens, dtype=np.int64)
    drawn = LengthDistribution(mean_tokens=mean_tokens, cv=cv).at(rng.standard_normal(count))
    return np.rint(drawn).astype(np.int64)


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


@cache
def uniform_points(count: int) -> Array:
    """Korobov lattice: [11, count] numbers in (0, 1), each row evenly spread and the rows unrelated.

    References
    ----------
    [Korobov1959]; [Sloan1994] section 4.4, choice of the generator.
    """
    generators = np.array([pow(_GENERATOR, power, count) for power in range(DIMENSIONS)])
    points: Array = ((generators[:, None] * np.arange(count)) % count + 1 / 2) / count
    return points


@cache
def normal_points(count: int) -> Array:
    """The same points as standard normal deviates, [11, count]."""
    inverse = NormalDist().inv_cdf
    return np.array([[inverse(float(value)) for value in row] for row in uniform_points(count)])
