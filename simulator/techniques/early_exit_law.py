"""How deep tokens go under early exit, and how deep a batch of them has to go."""

from __future__ import annotations

import numpy as np

from simulator.operators.step_shape import Array
from simulator.specs.early_exit import EarlyExitSpec

HALVINGS = 60
"""Bisection steps: beyond double precision."""


def staying(spec: EarlyExitSpec, *, layers: int) -> Array:
    """Share of the tokens that pass each layer (array over ``layers``, the first is 1) [-]."""
    if spec.mean_fraction is not None:
        return _geometric(spec.mean_fraction, layers=layers)
    depth = np.arange(layers)
    left = np.zeros(layers)
    for exit_ in spec.exits:
        left = left + exit_.probability * (depth >= exit_.layer)
    return 1.0 - left


def executed_fraction(shares: Array, sequences: Array) -> Array:
    """Expected share of the layers that run when a batch leaves with its last member (array over ``sequences``) [-].

    mean over layers of 1 - (1 - S)^b, S the share of tokens that pass the layer, tokens independent [Schuster2022].
    The mean of S for one sequence, 1 for many.
    """
    running: Array = 1.0 - (1.0 - shares[:, None]) ** sequences[None, :]
    fraction: Array = running.mean(axis=0)
    return fraction


def _geometric(mean: float, *, layers: int) -> Array:
    """Tokens that leave after each layer with the same chance, so that they pass ``mean`` of the layers on average.

    The least mean possible is one layer of all; below it every token leaves after the first.
    """
    low, high = 0.0, 1.0
    depth = np.arange(layers)
    for _ in range(HALVINGS):
        stay = (low + high) / 2
        if float(np.mean(stay**depth)) < mean:
            low = stay
        else:
            high = stay
    return np.asarray(((low + high) / 2) ** depth, dtype=np.float64)
