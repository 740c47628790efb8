"""The kernel scorecard: ``python -m validation.kernel_scores`` prints the held-out errors stored with each fit."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import dataclass

from simulator.specs.calibrations import CalibrationGroup, calibrated_hardware, load_calibration

GROUPS: tuple[CalibrationGroup, ...] = ("gemm", "attention", "moe", "recurrent", "collective", "elementwise", "roofline")
README_FAMILIES = ("gemm", "prefill_attention", "decode_attention", "moe", "recurrent", "all_reduce")
LIBRARIES = ("vllm", "sglang", "trtllm", "nccl", "torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelScore:
    """Held-out error of one family and format, over its variants weighted by points (fractions)."""

    hardware: str
    library: str
    group: str
    family: str
    format: str
    mape: float
    coverage_80: float
    points: int


def kernel_scores(library: str, *, groups: tuple[CalibrationGroup, ...] = GROUPS) -> list[KernelScore]:
    """One row per accelerator, group, family and format of one library."""
    rows = []
    for group in groups:
        for hardware in calibrated_hardware(library, group=group):
            calibration = load_calibration(hardware, library=library, group=group)
            assert calibration is not None, "calibrated_hardware names files that exist"
            merged: dict[tuple[str, str], list[tuple[float, float, int]]] = defaultdict(list)
            for fit in calibration.fits:
                error = fit.error
                merged[(fit.family, fit.format)].append((error.score_mape, error.coverage_80, error.score_points))
            for (family, fmt), parts in merged.items():
                points = sum(count for _, _, count in parts) or 1
                rows.append(
                    KernelScore(
                        hardware=hardware,
                        library=library,
                        group=group,
                        family=family,
                        format=fmt,
                        mape=sum(mape * count for mape, _, count in parts) / points,
                        coverage_80=sum(cover * count for _, cover, count in parts) / points,
                        points=points,
                    )
                )
    return rows


def kernel_table(library: str = "vllm") -> str:
    """Families by accelerators, percent, for the README."""
    rows = [row for row in kernel_scores(library) if row.group != "roofline" and row.family in README_FAMILIES]
    names = sorted({row.hardware for row in rows})
    lines = [f"| {library} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    kinds = sorted({(README_FAMILIES.index(row.family), row.format) for row in rows})
    for index, fmt in kinds:
        cells = []
        for name in names:
            found = [row for row in rows if (row.hardware, row.family, row.format) == (name, README_FAMILIES[index], fmt)]
            cells.append(f"{100 * found[0].mape:.1f} %" if found else "-")
        lines.append(f"| {README_FAMILIES[index]} {fmt} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print every stored score."""
    parser = argparse.ArgumentParser(prog="python -m validation.kernel_scores", description=__doc__)
    parser.add_argument("--library", choices=LIBRARIES, action="append", help="only this library (repeatable)")
    for library in parser.parse_args().library or LIBRARIES:
        for row in kernel_scores(library):
            sys.stdout.write(
                f"{row.hardware:16s} {row.library:7s} {row.family:18s} {row.format:12s} {row.group:11s} "
                f"error {100 * row.mape:5.1f} %  in 80 % interval {100 * row.coverage_80:4.0f} %  points {row.points}\n"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
