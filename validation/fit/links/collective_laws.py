"""Fit of one collective model: laws by robust least squares on log time, then a small residual over log2(size)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression, least_squares

from simulator.kernels.collectives.laws import Law, fastest_seconds, model_seconds, read_model
from simulator.operators.work import Collective
from simulator.units import MICRO, MILLI
from validation.fit.links.engine_choice import Choice

Array = NDArray[np.float64]

LOWER = (0.1 * MICRO, 0.001 * MICRO, 0.001)
UPPER = (MILLI, 100 * MICRO, 1.0)
FRACTION_STARTS = (0.15, 0.4, 0.8)
SCALE = 0.05
"""Residuals of log time beyond 5 % count linearly: single samples have outliers (SILICON notes)."""

OCTAVE_STEP = 2
SMOOTHNESS = 0.1
SHRINKAGE = 0.02
DIGITS = 5


def _laws(names: tuple[str, ...], theta: Array) -> tuple[Law, ...]:
    values = np.exp(theta).reshape(len(names), 3)
    return tuple(
        Law(algorithm=name, launch_s=row[0], hop_s=row[1], fraction=row[2])
        for name, row in zip(names, values, strict=True)
    )


def fit_laws(
    rows: pd.DataFrame, *, names: tuple[str, ...], operation: Collective, bytes_per_s: float
) -> tuple[Law, ...]:
    """Laws whose minimum follows ``rows`` best, from three starting points."""
    count = len(names)
    low, high = np.tile(np.log(LOWER), count), np.tile(np.log(UPPER), count)
    message, devices = rows["message_bytes"].to_numpy(float), rows["participants"].to_numpy(float)
    measured = rows["seconds"].to_numpy()

    def misfit(theta: Array) -> Array:
        predicted = fastest_seconds(
            _laws(names, theta),
            operation=operation,
            message_bytes=message,
            participants=devices,
            bytes_per_s=bytes_per_s,
        )
        return np.log(predicted / measured)

    best = None
    for spread in (0, 1, 2):
        start = []
        for place in range(count):
            fraction = FRACTION_STARTS[max(0, min(2, place + 3 - count))] if count > 1 else 0.6
            start += [measured.min() * (1 + (2 + spread) * place), 0.5 * MICRO * (1 + place), fraction]
        inside = np.clip(np.log(start), low + MICRO, high - MICRO)
        found = least_squares(misfit, inside, bounds=(low, high), loss="soft_l1", f_scale=SCALE, max_nfev=300)
        best = found if best is None or found.cost < best.cost else best
    assert best is not None
    return _laws(names, best.x)


def _residual_values(octaves: Array, log_ratio: Array, nodes: Array) -> Array:
    """Ridge-smoothed values at ``nodes`` of a piecewise linear residual; outliers lose weight [Huber1964]."""
    place = np.clip(((octaves - nodes[0]) / OCTAVE_STEP).astype(int), 0, max(len(nodes) - 2, 0))
    weight = (octaves - nodes[place]) / OCTAVE_STEP
    design = np.zeros((len(octaves), len(nodes)))
    design[np.arange(len(octaves)), place] = 1 - weight
    if len(nodes) > 1:
        design[np.arange(len(octaves)), place + 1] += weight
    slope = np.diff(np.eye(len(nodes)), axis=0)
    prior = SMOOTHNESS * slope.T @ slope + SHRINKAGE * np.eye(len(nodes))
    robust = np.ones(len(octaves))
    values = np.zeros(len(nodes))
    for _ in range(5):
        values = np.linalg.solve(design.T @ (robust[:, None] * design) + prior, design.T @ (robust * log_ratio))
        robust = 1 / np.maximum(1, np.abs(log_ratio - design @ values) / SCALE)
    return values


def _monotone(values: Array, node_s: Array) -> Array:
    """The nearest residual with which more bytes take no less time: within one algorithm a dip is noise."""
    smooth: Array = isotonic_regression(np.log(node_s) + values).x - np.log(node_s)
    return smooth


def fit_parameters(
    rows: pd.DataFrame, *, names: tuple[str, ...], operation: Collective, bytes_per_s: float
) -> dict[str, float]:
    """Flat parameters of one model (see ``read_model``) from ``rows``: participants, message_bytes, seconds."""
    laws = fit_laws(rows, names=names, operation=operation, bytes_per_s=bytes_per_s)
    parameters = {}
    for law in laws:
        parameters[f"{law.algorithm}.launch_s"] = law.launch_s
        parameters[f"{law.algorithm}.hop_s"] = law.hop_s
        parameters[f"{law.algorithm}.fraction"] = law.fraction
    law_s = fastest_seconds(
        laws,
        operation=operation,
        message_bytes=rows["message_bytes"].to_numpy(float),
        participants=rows["participants"].to_numpy(float),
        bytes_per_s=bytes_per_s,
    )
    octaves = np.log2(rows["message_bytes"].to_numpy(float))
    log_ratio = np.log(rows["seconds"].to_numpy() / law_s)
    last = int(np.ceil(octaves.max()))
    nodes = np.arange(int(np.floor(octaves.min())), last + OCTAVE_STEP, OCTAVE_STEP, dtype=float)
    nodes = nodes[nodes < last + OCTAVE_STEP]
    for devices in sorted(rows["participants"].unique()):
        mine = (rows["participants"] == devices).to_numpy()
        node_s = fastest_seconds(
            laws, operation=operation, message_bytes=2.0**nodes, participants=float(devices), bytes_per_s=bytes_per_s
        )
        values = _monotone(_residual_values(octaves[mine], log_ratio[mine], nodes), node_s)
        for node, value in zip(nodes, values, strict=True):
            parameters[f"residual.p{int(devices)}.{int(node)}"] = value
    return {key: rounded(value) for key, value in parameters.items()}


def rounded(value: float) -> float:
    """Five significant digits: more than any of these fits knows."""
    return float(f"{value:.{DIGITS}g}")


def variant_of(rows: pd.DataFrame, choice: Choice) -> pd.Series:
    """Variant that ``choice`` runs for each row."""
    names = []
    for devices, message in zip(rows["participants"], rows["message_bytes"], strict=True):
        starts = choice.starts.get(int(devices))
        if starts is None:
            names.append(next(reversed(choice.variants)))
        else:
            names.append(max((start, name) for name, start in starts.items() if start <= message)[1])
    return pd.Series(names, index=rows.index)


def fit_variants(
    rows: pd.DataFrame, *, choice: Choice, operation: Collective, bytes_per_s: float
) -> dict[str, dict[str, float]]:
    """Parameters of every variant that occurs in ``rows``."""
    return {
        str(name): fit_parameters(part, names=choice.variants[str(name)], operation=operation, bytes_per_s=bytes_per_s)
        for name, part in rows.groupby(variant_of(rows, choice))
    }


def predict(
    rows: pd.DataFrame,
    variants: Mapping[str, Mapping[str, float]],
    *,
    choice: Choice,
    operation: Collective,
    bytes_per_s: float,
) -> Array:
    """Seconds of each row; a variant that was not fitted leaves NaN."""
    seconds = np.full(len(rows), np.nan)
    chosen = variant_of(rows, choice).to_numpy()
    devices = rows["participants"].to_numpy()
    message = rows["message_bytes"].to_numpy(float)
    for name, parameters in variants.items():
        model = read_model(parameters)
        for count in np.unique(devices):
            mine = (chosen == name) & (devices == count)
            if mine.any():
                seconds[mine] = model_seconds(
                    model,
                    operation=operation,
                    message_bytes=message[mine],
                    participants=int(count),
                    bytes_per_s=bytes_per_s,
                )
    return seconds
