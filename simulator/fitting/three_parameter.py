"""The three-parameter roofline and its fit by search: for a user's measurements and for the published tables alike. t =
launch_s + max(FLOPs / (compute_fraction peak), bytes / (memory_fraction bandwidth)) [Williams2009]"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from simulator.operators.work import Array
from simulator.records import dataclass

PARAMETERS = ("launch_s", "compute_fraction", "memory_fraction")
GRID_POINTS, ZOOM_POINTS, ZOOM_ROUNDS = 13, 5, 16
LOSS_SCALE = 0.1
"""Residuals of log time beyond which an outlier counts linearly (soft L1)."""
PROBE = 0.3
"""Change of log parameter that must be felt, or else the data does not identify it."""
FELT_LOSS = 1e-3
"""Mean loss that counts as felt: a shift by ``PROBE`` of 3 % of the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Measured times [s], and their FLOPs and bytes as seconds at the datasheet's peaks."""

    peak_s: Array
    bandwidth_s: Array
    seconds: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRange:
    """Natural logarithms of the least and the largest value of each of ``PARAMETERS``."""

    lower: Array
    upper: Array


def roofline_seconds(logs: Array, *, peak_s: Array, bandwidth_s: Array) -> Array:
    """Times [candidates, rows] for parameters ``logs`` [candidates, 3] (natural logarithms) [s].

    Reference: [Williams2009]
    """
    launch_s, compute, memory = np.exp(np.atleast_2d(logs)).T[:, :, None]
    seconds: Array = launch_s + np.maximum(peak_s / compute, bandwidth_s / memory)
    return seconds


def loss(logs: Array, points: Points) -> Array:
    """Mean soft-L1 loss of log(predicted / measured) of each candidate."""
    times = roofline_seconds(logs, peak_s=points.peak_s, bandwidth_s=points.bandwidth_s)
    residual = np.log(times / points.seconds) / LOSS_SCALE
    found: Array = (2 * LOSS_SCALE**2 * (np.sqrt(1 + residual**2) - 1)).mean(axis=1)
    return found


def search(points: Points, *, within: ParameterRange) -> Array:
    """Logs of the parameters with the least loss: a grid over the range, then grids about the best, ever finer."""
    axes = [np.linspace(low, high, GRID_POINTS) for low, high in zip(within.lower, within.upper, strict=True)]
    span = (within.upper - within.lower) / (GRID_POINTS - 1)
    best = np.array(within.lower)
    for _ in range(ZOOM_ROUNDS + 1):
        candidates = np.array(list(product(*axes)))
        best = candidates[int(np.argmin(loss(candidates, points)))]
        axes = [
            np.clip(np.linspace(at - step, at + step, ZOOM_POINTS), low, high)
            for at, step, low, high in zip(best, span, within.lower, within.upper, strict=True)
        ]
        span = span * 2 / (ZOOM_POINTS - 1)
    return best


def identified(logs: Array, points: Points, *, within: ParameterRange) -> NDArray[np.bool_]:
    """Which parameters the points determine: a change either way within the range, the others held, must be felt."""
    probes = np.concatenate([logs + PROBE * np.eye(3), logs - PROBE * np.eye(3)])
    rise = loss(probes, points) - loss(logs, points)
    # Beyond a bound there is nothing to tell apart: a parameter that rests on it is known from the inside.
    up = np.where(logs + PROBE > within.upper, np.inf, rise[:3])
    down = np.where(logs - PROBE < within.lower, np.inf, rise[3:])
    return np.minimum(up, down) > FELT_LOSS


def settled(logs: Array, points: Points, *, within: ParameterRange, otherwise: Array) -> Array:
    """``logs`` with the parameters that the points do not determine set to ``otherwise``, unless the loss rises."""
    found = logs
    for index in np.flatnonzero(~identified(logs, points, within=within)):
        trial = found.copy()
        trial[index] = np.clip(otherwise[index], within.lower[index], within.upper[index])
        if loss(trial, points)[0] <= loss(found, points)[0] + FELT_LOSS:
            found = trial
    return found
