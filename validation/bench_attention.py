"""Scorecard of the shipped attention fits on unseen head layouts: ``python -m validation.bench_attention``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulator.fitting.kernel_fits import NORMAL_80
from simulator.kernels.attention.cases import AttentionCases, attention_machine
from simulator.kernels.fits import lattice_of
from simulator.kernels.timing import log_correction, shape_confidence
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.hardware.calibration import KernelFit, load_arrays, load_calibration
from validation.fit.kernels.attention import groups_of
from validation.fit.kernels.attention_models import MODELS, prepared
from validation.silicon.attention_tables import FORMATS, KernelRows
from validation.silicon.tables import SYSTEMS, tables_root

Array = NDArray[np.float64]

BARS = {"prefill": 0.06, "decode": 0.06}


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of one group on the layouts held out; ``relative`` and ``covered`` have one entry per point."""

    phase: str
    format: str
    variant: str
    relative: Array
    covered: NDArray[np.bool_]
    physics_mape: float
    roofline_mape: float


def roofline_seconds(group: KernelRows, hardware: AcceleratorSpec) -> Array:
    """max(FLOPs / peak, bytes / bandwidth) of every row, nothing fitted [s]."""
    cases: AttentionCases = group.cases()
    keys = np.minimum(cases.key_tokens, cases.window)
    seen = np.where(cases.query_tokens > 1, np.minimum((cases.query_tokens + 1.0) / 2.0, cases.window), keys)
    heads = cases.num_kv_heads * cases.group
    pairs = cases.sequences * heads * cases.query_tokens * seen
    flops = 2.0 * pairs * (cases.head_dim + cases.v_head_dim)
    moved = cases.sequences * (
        keys * cases.num_kv_heads * cases.kv_width * cases.kv_element_bytes
        + 2.0 * cases.query_tokens * heads * (cases.head_dim + cases.v_head_dim)
    )
    peak = hardware.peak_flops_per_s[FORMATS[group.format][0]]
    seconds: Array = np.maximum(flops / peak, moved / hardware.memory_bytes_per_s)
    return seconds


def score_group(group: KernelRows, *, hardware: AcceleratorSpec, fit: KernelFit, arrays: dict[str, Array]) -> Score:
    """The shipped fit on the layouts that it did not see."""
    held = group.rows["is_score"].to_numpy()
    measured = group.rows["seconds"].to_numpy()
    body = prepared(group, machine=attention_machine(hardware, FORMATS[group.format][0]), traits=fit.parameters)
    physics = body.seconds_of(fit.parameters)
    predicted = physics * np.exp(log_correction(lattice_of(fit.correction, arrays), body.points))
    log_sigma, _ = shape_confidence(fit, body.points, axes=MODELS[group.phase].axes)
    floor = roofline_seconds(group, hardware)
    return Score(
        phase=group.phase,
        format=group.format,
        variant=group.variant,
        relative=(predicted / measured - 1.0)[held],
        covered=(np.abs(np.log(measured / predicted)) <= NORMAL_80 * log_sigma)[held],
        physics_mape=float(np.mean(np.abs(physics / measured - 1.0)[held])) if held.any() else float("nan"),
        roofline_mape=float(np.mean(np.abs(floor / measured - 1.0)[held])) if held.any() else float("nan"),
    )


def scores_of(root: Path, *, hardware_name: str, library: str) -> list[Score]:
    """Scores of every shipped fit of one accelerator and library."""
    calibration = load_calibration(hardware_name, library=library, group="attention")
    if calibration is None:
        return []
    arrays = dict(load_arrays(hardware_name, library=library, group="attention"))
    hardware = load_hardware(hardware_name)
    fits = {(fit.family, fit.format, fit.variant): fit for fit in calibration.fits}
    scores = []
    for group in groups_of(root, hardware=hardware_name, library=library):
        fit = fits.get((MODELS[group.phase].family, group.format, group.variant))
        if fit is not None and group.rows["is_score"].any():
            scores.append(score_group(group, hardware=hardware, fit=fit, arrays=arrays))
    return scores


def not_shipped(groups: Sequence[KernelRows], *, fits: Sequence[KernelFit]) -> list[str]:
    """Groups of rows without a fit, removed for their cross-validated error in the fit part: not in any average."""
    known = {(fit.family, fit.format, fit.variant) for fit in fits}
    return [
        f"{group.phase} {group.format} {group.variant} ({int(group.rows['is_score'].sum())} score points)"
        for group in groups
        if (MODELS[group.phase].family, group.format, group.variant) not in known
    ]


def print_counts(root: Path, *, hardware_name: str, library: str) -> None:
    """What the averages leave out: groups removed, and groups too small to hold a layout out of."""
    calibration = load_calibration(hardware_name, library=library, group="attention")
    if calibration is None:
        return
    groups = groups_of(root, hardware=hardware_name, library=library)
    removed = not_shipped(groups, fits=calibration.fits)
    whole = [group for group in groups if not group.rows["is_score"].any()]
    print(
        f"{hardware_name} {library}: {len(groups)} groups of rows, {len(removed)} removed by cross-validation, "
        f"{len(whole)} without a held-out layout; neither is in the averages",
        flush=True,
    )
    for missing in removed:
        print(f"  no fit: {missing}")


def line(scores: list[Score], *, label: str) -> str:
    """One row of the scorecard over all points of ``scores``."""
    relative = np.concatenate([score.relative for score in scores])
    covered = np.concatenate([score.covered for score in scores])
    weights = [len(score.relative) for score in scores]
    physics = float(np.average([score.physics_mape for score in scores], weights=weights))
    roofline = float(np.average([score.roofline_mape for score in scores], weights=weights))
    return (
        f"{label:44} {len(relative):6d} points  roofline {roofline:5.1%}  physics {physics:5.1%}  "
        f"model {np.mean(np.abs(relative)):5.1%}  median {np.median(np.abs(relative)):5.1%}  "
        f"bias {np.mean(relative):+5.1%}  80 % interval covers {np.mean(covered):5.1%}"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, help="folder that holds h100_sxm/ ...; default: aiconfigurator_core")
    parser.add_argument("--hardware", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--library", nargs="*", default=["vllm", "sglang", "trtllm"])
    parser.add_argument("--variants", action="store_true", help="one line per head width and mask as well")
    arguments = parser.parse_args()
    root = tables_root(arguments.tables)
    for library in arguments.library:
        for hardware_name in arguments.hardware:
            scores = scores_of(root, hardware_name=hardware_name, library=library)
            print_counts(root, hardware_name=hardware_name, library=library)
            for phase, bar in BARS.items():
                for format in FORMATS:
                    mine = [score for score in scores if score.phase == phase and score.format == format]
                    if not mine:
                        continue
                    if arguments.variants:
                        for score in mine:
                            print("  " + line([score], label=f"{phase} {format} {score.variant}"))
                    error = np.mean(np.abs(np.concatenate([score.relative for score in mine])))
                    verdict = "" if format != "bf16" else "  meets the bar" if error <= bar else "  MISSES the bar"
                    print(line(mine, label=f"{hardware_name} {library} {phase} {format}") + verdict, flush=True)


if __name__ == "__main__":
    main()
