"""How long prompts and answers are, and evenly spread points at which to sample them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from math import erfc, exp, inf, log, log1p, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.errors import RoofcastError
from simulator.records import dataclass
from simulator.units import MIB

Array = NDArray[np.float64]

LARGEST_TOKENS = int(16 * MIB)
"""Tokens of a prompt, an answer or a step: more than any model's context."""

DIMENSIONS = 11
# Of all generators this one has the least squared worst-case error P_2 for 256 points in 11 dimensions (weights 1/10).
_GENERATOR = 13


_NEGLIGIBLE = 1e-3
"""Share of the second moment beyond the longest length below which nothing is cut; percentiles cannot tell."""
_DEEPEST = -35.0
"""Furthest left that a cut may lie, in standard deviations: the probabilities there still are numbers."""
_BISECTIONS = 60
_DRAWN_AT_ONCE = 50_000
_BEYOND_ANY_TOKENS = 500_000_000
"""Lengths that no request may have; sums of two are still numbers of four bytes."""
_DEVIATES = np.linspace(-8.0, 8.0, 1025)
"""Standard normal deviates at which a cut distribution is tabulated; all requests lie between the ends."""


def check_tokens(value: float, *, field: str) -> None:
    """Refuse a number of tokens that no engine takes."""
    if value > LARGEST_TOKENS:
        raise RoofcastError(f"{value:.10g} tokens; at most {LARGEST_TOKENS:,}", field=field, code="out_of_range")


def _cdf(deviate: float) -> float:
    """Standard normal distribution function, with full precision in its left tail."""
    return erfc(-deviate / sqrt(2)) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthDistribution:
    """Token counts with a mean and a coefficient of variation, log-normal where they vary.

    mean_tokens : at least 1; cv : standard deviation over mean, 0 for a fixed length
    longest_tokens : no length is beyond it; uncut_cv : of the log-normal that was cut there and renormalised, with its
    mean kept, None where there is nothing to cut
    """

    mean_tokens: float
    cv: float = 0.0
    longest_tokens: float = inf
    uncut_cv: float | None = None

    def within(self, longest_tokens: float) -> LengthDistribution:
        """These lengths without those beyond ``longest_tokens``: cut and renormalised, less varied, with their mean."""
        cv = self.cv if self.uncut_cv is None else self.uncut_cv
        whole = LengthDistribution(mean_tokens=self.mean_tokens, cv=cv, longest_tokens=longest_tokens)
        if cv == 0 or 1 - whole.partial_moment(2, below=longest_tokens) / whole.moment(2) < _NEGLIGIBLE:
            return whole
        cut = replace(whole, uncut_cv=cv)
        if self.mean_tokens >= longest_tokens or cut._location is None:
            return replace(cut, cv=0.0)
        return replace(cut, cv=sqrt(max(cut.moment(2) / self.mean_tokens**2 - 1, 0.0)))

    @property
    def _location(self) -> float | None:
        """Mean of the logarithm before the cut; None where only equal lengths have so large a mean."""
        if self.uncut_cv is None:
            return log(self.mean_tokens) - log1p(self.cv**2) / 2
        return _cut_location(self.mean_tokens / self.longest_tokens, sigma=self._sigma, longest=self.longest_tokens)

    @property
    def _sigma(self) -> float:
        return sqrt(log1p((self.cv if self.uncut_cv is None else self.uncut_cv) ** 2))

    def moment(self, order: int) -> float:
        """E[X^order], of the whole log-normal m^k (1 + cv^2)^(k (k - 1) / 2) [tokens^order]."""
        if self.uncut_cv is not None and self.cv > 0:
            return self.partial_moment(order, below=self.longest_tokens)
        return float(self.mean_tokens**order * (1 + self.cv**2) ** (order * (order - 1) / 2))

    def partial_moment(self, order: int, *, below: float) -> float:
        """E[X^order; X < below], of lengths that vary [tokens^order].

        Reference: [Johnson1994] section 14.3, partial moments of the log-normal.
        """
        location, sigma = self._location, self._sigma
        assert location is not None, "the lengths vary"
        if sigma == 0:
            # So small a variation has a square of zero: all lengths are the mean.
            return self.moment(order) if self.mean_tokens < below else 0.0
        if below <= 0:
            return 0.0
        end, last = (
            inf if tokens == inf else (log(tokens) - location) / sigma
            for tokens in (min(below, self.longest_tokens), self.longest_tokens)
        )
        kept = 1.0 if self.uncut_cv is None else _cdf(last)
        return exp(order * location + (order * sigma) ** 2 / 2) * _cdf(end - order * sigma) / kept

    def at(self, normal: Array) -> Array:
        """Lengths at standard normal deviates, at least one token [tokens]."""
        if self.uncut_cv is not None and self.cv > 0:
            lengths: Array = np.interp(normal, _DEVIATES, _cut_lengths(self))
            return np.maximum(lengths, 1.0)
        log_variance = np.log1p(self.cv**2)
        lengths = self.mean_tokens * np.exp(np.sqrt(log_variance) * normal - log_variance / 2)
        return np.clip(lengths, 1.0, max(self.longest_tokens, self.mean_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOfLengths(LengthDistribution):
    """Lengths of ``whole`` that are in [low_tokens, high_tokens); mean and variation are theirs."""

    whole: LengthDistribution
    low_tokens: float
    high_tokens: float

    def within(self, longest_tokens: float) -> LengthDistribution:
        """This part: the whole was cut before it was divided."""
        return self

    def moment(self, order: int) -> float:
        """E[X^order] of the part [tokens^order]."""
        return self.partial_moment(order, below=self.high_tokens)

    def partial_moment(self, order: int, *, below: float) -> float:
        """E[X^order; X < below] of the part [tokens^order]."""
        ends = (self.low_tokens, max(min(below, self.high_tokens), self.low_tokens))
        start, end = (self.whole.partial_moment(order, below=tokens) for tokens in ends)
        return (end - start) / self._shares[1]

    @property
    def _shares(self) -> tuple[float, float]:
        """Of the whole's lengths: below the part, and in it."""
        below, up_to = (self.whole.partial_moment(0, below=tokens) for tokens in (self.low_tokens, self.high_tokens))
        return below, up_to - below

    def at(self, normal: Array) -> Array:
        """See ``LengthDistribution``."""
        return np.interp(normal, _DEVIATES, _part_lengths(self))


@lru_cache(maxsize=64)
def _part_lengths(part: PartOfLengths) -> Array:
    """Lengths of a part at the tabulated deviates [tokens]."""
    below, inside = part._shares
    shares = below + inside * np.array([_cdf(deviate) for deviate in _DEVIATES.tolist()])
    inverse, edge = NormalDist().inv_cdf, float(np.finfo(np.float64).eps)
    normal = np.array([inverse(share) for share in np.clip(shares, edge, 1 - edge).tolist()])
    return np.clip(part.whole.at(normal), part.low_tokens, part.high_tokens)


@lru_cache(maxsize=256)
def _cut_location(share: float, *, sigma: float, longest: float) -> float | None:
    """Mean of the logarithm of a log-normal that has, cut at ``longest``, a mean of that share of it."""
    low, high = log(share * longest) - sigma**2 / 2, log(longest) - _DEEPEST * sigma

    def mean_of(location: float) -> float:
        edge = (log(longest) - location) / sigma
        return exp(location + sigma**2 / 2 - log(longest)) * _cdf(edge - sigma) / _cdf(edge)

    if mean_of(high) < share:
        return None
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_of(middle) < share else (low, middle)
    return (low + high) / 2


@lru_cache(maxsize=64)
def _cut_lengths(lengths: LengthDistribution) -> Array:
    """Lengths of a cut log-normal at the tabulated deviates [tokens]."""
    location, sigma = lengths._location, lengths._sigma
    assert location is not None, "the lengths vary"
    kept, inverse = _cdf((log(lengths.longest_tokens) - location) / sigma), NormalDist().inv_cdf
    inside = np.array([inverse(_cdf(deviate) * kept) for deviate in _DEVIATES.tolist()])
    return np.minimum(np.exp(location + sigma * inside), lengths.longest_tokens)


def whole_lengths(
    mean_tokens: float, *, cv: float, count: int, rng: np.random.Generator, longest_tokens: float = inf
) -> NDArray[np.signedinteger[Any]]:
    """Whole token counts, log-normal around the mean where they vary, none beyond the longest [tokens]."""
    if cv == 0:
        return np.full(count, mean_tokens, dtype=np.int32)
    lengths = LengthDistribution(mean_tokens=mean_tokens, cv=cv).within(longest_tokens)
    tokens = np.empty(count, dtype=np.int32)
    for first in range(0, count, _DRAWN_AT_ONCE):
        drawn = lengths.at(rng.standard_normal(min(_DRAWN_AT_ONCE, count - first)))
        tokens[first : first + len(drawn)] = np.minimum(np.rint(drawn), _BEYOND_ANY_TOKENS)
    return tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMix:
    """What requests look like to one replica.

    isl, osl : prompt and answer lengths; osl counts the first token
    prefix_hit_fraction : share of prompt tokens that are found in the prefix cache
    arrival_cv : coefficient of variation of the gaps between arrivals (1 for Poisson)
    context_tokens : prompt and answer are together no longer, because the model's context ends there
    """

    isl: LengthDistribution
    osl: LengthDistribution
    prefix_hit_fraction: float = 0.0
    arrival_cv: float = 1.0
    context_tokens: float = inf

    def within(self, context_tokens: float) -> RequestMix:
        """These lengths in a context: prompts leave room for a mean answer, answers end where the context does."""
        return replace(
            self,
            isl=self.isl.within(context_tokens - self.osl.mean_tokens),
            osl=self.osl.within(context_tokens - self.isl.mean_tokens),
            context_tokens=context_tokens,
        )

    def answered(self, answers: int) -> RequestMix:
        """The mix of single answers where every request asks for so many: all but the first find the whole prompt.

        They arrive at once, which multiplies the variance of counts: gaps vary as those of batches of that size. Each
        answer is taken to hold its prompt by itself; sharing leaves more room in the cache.
        """
        return replace(
            self,
            prefix_hit_fraction=self.prefix_hit_fraction + (1 - self.prefix_hit_fraction) * (1 - 1 / answers),
            arrival_cv=self.arrival_cv * answers ** (1 / 2),
        )

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
        """Variance of the cached tokens of a running sequence: of its prompt and of its age [tokens^2]. The age of a
        sequence seen at a random step has the moments E[O^2] / 2 E[O] and E[O^3] / 3 E[O]."""
        age_mean = self.osl.moment(2) / (2 * self.osl.mean_tokens)
        age_square = self.osl.moment(3) / ((2 + 1) * self.osl.mean_tokens)
        prompt = (self.isl.cv * self.isl.mean_tokens) ** 2
        return prompt + max(0.0, age_square - age_mean**2)


@cache
def uniform_points(count: int) -> Array:
    """Korobov lattice: [11, count] numbers in (0, 1), each row evenly spread and the rows unrelated.

    Reference: [Korobov1959]; [Sloan1994] section 4.4, choice of the generator.
    """
    generators = np.array([pow(_GENERATOR, power, count) for power in range(DIMENSIONS)])
    return ((generators[:, None] * np.arange(count)) % count + 1 / 2) / count


@cache
def normal_points(count: int) -> Array:
    """The lattice of `uniform_points` as standard normal deviates, [11, count]."""
    # Every row holds the same numbers in another order.
    deviates = np.array([NormalDist().inv_cdf((place + 1 / 2) / count) for place in range(count)])
    return deviates[(uniform_points(count) * count).astype(np.intp)]
