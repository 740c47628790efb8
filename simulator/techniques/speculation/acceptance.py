"""How many guesses a verify step accepts, and how many verify steps an answer then needs.

``acceptance`` is a vector a_1..a_k throughout: the probability that position i is accepted given that all before it
were. A verify step yields the accepted run and one token of the target's own, and nothing beyond the answer's end.

How far that spreads between tasks, for plans without a measurement on their own task.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from simulator.operators.work import Array
from simulator.specs.question.techniques import SpeculationMethod, SpeculationSpec

# Answers with more tokens left than this take the normal limit of the number of rounds.
EXACT_TOKENS = 2048
# Halvings of an interval of length 1 that exhaust double precision.
_HALVINGS = 53
_LIMIT_POINTS = 512


def run_distribution(acceptance: Array) -> Array:
    """Probability that exactly 0..k guesses are accepted [-], k + 1 values.

    Equation
    --------
    P(n) = a_1 ... a_n (1 - a_(n+1)) for n < k, P(k) = a_1 ... a_k

    Parameters
    ----------
    acceptance : a_1..a_k, each given that all before it were accepted [-]

    Range of validity
    -----------------
    0 <= a_i <= 1. Leaves out that acceptance differs from text to text.

    References
    ----------
    [Chen2023b]

    Examples
    --------
    >>> run_distribution(np.array([0.5, 0.5])).tolist()
    [0.5, 0.25, 0.25]
    """
    reach = np.concatenate([[1.0], np.cumprod(acceptance)])
    stop = np.append(1.0 - acceptance, 1.0)
    return np.asarray(reach * stop)


def mean_tokens(acceptance: Array) -> float:
    """Mean tokens of a verify step, the target's own included [-].

    Equation
    --------
    E = 1 + a_1 + a_1 a_2 + ... + a_1 ... a_k; for one rate a it is (1 - a^(k+1)) / (1 - a)

    Parameters
    ----------
    acceptance : a_1..a_k, each given that all before it were accepted [-]

    Range of validity
    -----------------
    0 <= a_i <= 1; between 1 and k + 1 tokens. Leaves out that an answer's end cuts the last step.

    References
    ----------
    [Leviathan2023] equation 1.

    Examples
    --------
    Four guesses at 0.8: (1 - 0.8^5) / 0.2.

    >>> round(mean_tokens(np.full(4, 0.8)), 4)
    3.3616
    """
    return float(1.0 + np.cumprod(acceptance).sum())


@lru_cache(maxsize=64)
def rate_of_mean(tokens: float, *, k: int) -> float:
    """The one acceptance rate at which ``k`` guesses yield ``tokens`` per verify step (1 to k + 1), by bisection."""
    if tokens >= k + 1.0:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_tokens(np.full(k, middle)) <= tokens else (low, middle)
    return low


def any_child_accepted(rate: Array, *, children: Array) -> Array:
    """Probability that one of several guesses for a position is accepted [-].

    Equation
    --------
    p = 1 - (1 - a)^c

    Parameters
    ----------
    rate : acceptance a of each guess [-]
    children : guesses c for the position [-]

    Range of validity
    -----------------
    Independent guesses. Leaves out that siblings compete for the same position, which flatters wide trees.

    References
    ----------
    [Miao2024]

    Examples
    --------
    >>> float(any_child_accepted(np.array(0.5), children=np.array(2.0)))
    0.75
    """
    return np.asarray(1.0 - (1.0 - rate) ** children)


def schedule_length(tokens: float) -> float:
    """Guesses per round under a schedule that adds 2 after a full success and takes 1 away otherwise [-].

    Equation
    --------
    k = ln(1/3) / ln(a), with a from tokens = (1 - a / 3) / (1 - a)

    Parameters
    ----------
    tokens : mean tokens of a round [-]

    Range of validity
    -----------------
    At least 1. The schedule settles where all guesses are accepted in one round of three, a^k = 1/3. Leaves out how
    long it takes to settle.

    References
    ----------
    [Wolf2020] the heuristic schedule of assisted generation.

    Examples
    --------
    Three tokens a round: a = 2 / (3 - 1/3) = 0.75.

    >>> round(schedule_length(3.0), 3)
    3.819
    """
    third = 1.0 / 3.0
    rate = (tokens - 1.0) / (tokens - third)
    return max(1.0, float(np.log(third) / np.log(rate))) if rate > 0 else 1.0


def unfinished(acceptance: Array, *, tokens: int) -> Array:
    """Probability that an answer still lacks some of its ``tokens`` tokens after 0, 1, 2, ... verify steps."""
    step = run_distribution(acceptance)
    missing = np.zeros(tokens + 1)
    missing[tokens] = 1.0
    left = [1.0]
    while left[-1] > np.finfo(np.float64).eps and len(left) <= tokens:
        after = np.zeros(tokens + 1)
        for run in range(min(len(step), tokens)):
            # What a round yields beyond the answer's end is cut off: it only closes the answer.
            after[: tokens - run] += step[run] * missing[run + 1 :]
        after[0] = 0.0
        missing = after
        left.append(float(missing.sum()))
    return np.array(left)


def rounds_needed(acceptance: Array, *, tokens: int, sequences: int = 1) -> float:
    """Expected verify steps until the slowest of several independent answers is complete [-].

    Equation
    --------
    R = sum over n of 1 - P(one answer is complete after n)^b

    Parameters
    ----------
    acceptance : a_1..a_k, each given that all before it were accepted [-]
    tokens : tokens of each answer [-]
    sequences : answers b of a static batch [-]

    Range of validity
    -----------------
    Exact up to 2,048 tokens; beyond that in the normal limit of renewal counts. Leaves out answers of unequal length.

    References
    ----------
    [Cox1962] section 3.3.

    Examples
    --------
    Nothing is ever accepted: a step a token.

    >>> rounds_needed(np.array([0.0]), tokens=5)
    5.0
    """
    if tokens <= 0:
        return 0.0
    if tokens > EXACT_TOKENS:
        return _rounds_in_the_limit(acceptance, tokens=tokens, sequences=sequences)
    lacking = np.minimum(unfinished(acceptance, tokens=tokens), 1.0)
    return float(np.sum(1.0 - (1.0 - lacking) ** sequences))


def rounds_at(acceptance: Array, *, tokens: int, levels: Array) -> NDArray[np.int64]:
    """Verify steps that one answer of ``tokens`` tokens needs at each quantile level in (0, 1)."""
    if tokens <= 0:
        return np.zeros(len(levels), dtype=np.int64)
    if tokens <= EXACT_TOKENS:
        lacking = unfinished(acceptance, tokens=tokens)
        # The first n with P(done after n) >= level; ``lacking`` falls with n.
        return np.asarray(np.searchsorted(-lacking, levels - 1.0), dtype=np.int64)
    mean, spread = _limit_of_rounds(acceptance, tokens=tokens)
    normal = NormalDist()
    drawn = mean + spread * np.array([normal.inv_cdf(float(level)) for level in levels])
    return np.asarray(np.clip(np.round(drawn), np.ceil(tokens / (len(acceptance) + 1)), tokens), dtype=np.int64)


def _limit_of_rounds(acceptance: Array, *, tokens: int) -> tuple[float, float]:
    """Mean (Wald's identity with the mean overshoot of a lattice walk) and standard deviation of the rounds."""
    runs = np.arange(len(acceptance) + 1.0) + 1.0
    weights = run_distribution(acceptance)
    mean = float(weights @ runs)
    variance = max(float(weights @ runs**2) - mean**2, 0.0)
    overshoot = float(weights @ (runs * (runs - 1.0))) / (2.0 * mean)
    return (tokens + overshoot) / mean, float(np.sqrt(tokens * variance / mean**3))


def _rounds_in_the_limit(acceptance: Array, *, tokens: int, sequences: int) -> float:
    """The mean of the largest of several normals."""
    mean, spread = _limit_of_rounds(acceptance, tokens=tokens)
    if sequences == 1:
        return mean
    levels = (np.arange(_LIMIT_POINTS) + 0.5) / _LIMIT_POINTS
    normal = NormalDist()
    return mean + spread * float(np.mean([normal.inv_cdf(level ** (1.0 / sequences)) for level in levels]))


def method_sigma(method: SpeculationMethod) -> float:
    """Spread of log(tokens per verify step) between tasks [-]. Reference: [Xia2024]"""
    from simulator.specs.model.fitted import load_acceptance_fit, speculation_table

    fitted = load_acceptance_fit().methods.get(method)
    return speculation_table().methods[method].task_sigma if fitted is None else fitted.log_sigma


def pace_sigma(speculation: SpeculationSpec | None) -> float:
    """Spread of log(pace) of a plan's speculation: 0 without it, and where its acceptance or kind of text was given."""
    if speculation is None:
        return 0.0
    given = (speculation.task, speculation.acceptance, speculation.accepted_tokens)
    if any(value is not None for value in given):
        return 0.0
    return method_sigma(speculation.method)
