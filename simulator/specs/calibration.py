"""Fits: dated, bounded, with their error and the box of shapes they were made on. Written by validation only."""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveFloat

from simulator.specs.base import Spec


class FitError(Spec):
    """Errors over shapes that the fit did not see (``score``) and those it did (``fit``); fractions, not percent.

    score_mape, fit_mape : mean absolute percentage error; score_bias : mean signed error
    log_sigma : robust standard deviation of log(measured / predicted) over the score shapes
    coverage_80 : share of score points inside the 80 % interval; score_points, fit_points : how many
    """

    score_mape: float
    fit_mape: float
    score_bias: float
    log_sigma: PositiveFloat
    coverage_80: float
    score_points: NonNegativeInt
    fit_points: NonNegativeInt


class LatticeSpec(Spec):
    """A correction on the residual log(measured / physics), kept in the .npz beside the YAML.

    ``axes`` name the log2 coordinates in order; values decay to 0 away from data, outside the box within
    ``reach`` octaves. The file holds ``key`` (values) and ``key.axis`` (sizes at the nodes) for each axis.
    """

    file: str
    key: str
    axes: tuple[str, ...]
    reach: PositiveFloat = 1.0


class RegimeSigma(Spec):
    """Interval by regime: log_sigma applies where ``axis`` (a named coordinate) is at most ``upper``."""

    axis: str
    upper: float
    log_sigma: PositiveFloat


class KernelFit(Spec):
    """One kernel model with its parameters for one family and number format.

    family : gemm, prefill_attention, decode_attention, moe, recurrent, quantise, all_reduce, ...
    format : the MatmulFormat name or dtype it holds for; ``variant`` tells kernels of one family apart
        ("mla", "d64", "nccl", "custom", "kda")
    parameters : of the physics, bounded and meaningful; box : fitted range of each coordinate
    physics_log_sigma : spread of log(measured / physics) without the correction, which is what is left far from data
    """

    family: str
    format: str
    variant: str = ""
    model: str
    parameters: dict[str, float]
    correction: LatticeSpec | None = None
    box: dict[str, tuple[float, float]]
    error: FitError
    physics_log_sigma: PositiveFloat | None = None
    regimes: tuple[RegimeSigma, ...] = ()
    note: str = ""


class CalibrationSpec(Spec):
    """All fits of one accelerator under one kernel library (vllm, sglang, trtllm, torch)."""

    hardware: str
    library: str
    library_version: str
    date: str
    source: str
    fits: tuple[KernelFit, ...]
