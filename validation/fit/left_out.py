"""Errors of every kernel family on what its fits never saw: ``python -m validation.fit.left_out``.

One row a family: unseen shapes of a measured accelerator, an accelerator left out whose architecture is known, and one
whose whole generation is left out. Each left-out accelerator is priced on its own datasheet with the fits of the
relative that the simulator takes among those that are left, and compared with the rows that every fit held out; means
are over accelerators, libraries, formats and kernels. ``leave_one_gpu_out`` makes the curve of the intervals alike.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.kernels.collectives.network import collective_timing
from simulator.kernels.experts import STAND_IN_EXPERTS, UNTUNED_EXPERTS
from simulator.kernels.fits import OF_EVERY_GENERATION, lattice_of
from simulator.kernels.timing import mean_timing
from simulator.kernels.transfer import (
    Relative,
    calibrated_relative,
    carried_fit,
    carries_correction,
    generation,
    kernel_distance,
    link_distance,
    link_relative,
    of_each_generation,
)
from simulator.operators.work import Collective, CollectiveShape, MatmulFormat
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.hardware.calibration import CalibrationGroup, KernelFit, load_arrays, load_calibration
from validation.fit.kernels import gemm, moe
from validation.fit.kernels.attention import PHASES
from validation.fit.kernels.attention_models import MODELS
from validation.fit.kernels.moe_rows import kernel_groups, moe_rows, moe_tables, table_of
from validation.fit.leave_one_gpu_out import attention_log_ratios
from validation.fit.links.collectives import COLUMNS, ODD_HOSTS
from validation.silicon.attention_tables import WINDOW, KernelRows, attention_rows, by_mask, mla_rows
from validation.silicon.collective_tables import engine_tables
from validation.silicon.formats import EXPERT_FORMATS, GEMM_FORMATS
from validation.silicon.split import is_score
from validation.silicon.tables import SYSTEMS, load_table, tables_root
from validation.writing import write_whole

Array = NDArray[np.float64]
Variant = tuple[str, str, str]
"""Family, format and variant of a fit."""

LIBRARIES = ("vllm", "sglang", "trtllm")
BARS: dict[str, tuple[float, float]] = {
    "products": (0.07, 0.15),
    "FP8 products": (0.12, 0.25),
    "FP8 blocks": (0.12, 0.25),
    "NVFP4 products": (0.12, 0.25),
    "prefill attention": (0.07, 0.15),
    "decode attention": (0.07, 0.15),
    "MLA prefill": (0.12, 0.25),
    "MLA decode": (0.12, 0.25),
    "experts": (0.12, 0.25),
    "all-reduce": (0.12, 0.25),
}
"""Families in the order of the table, and the error that is allowed on a left-out accelerator of a known and of an
unknown architecture."""

PRODUCTS = {"bfloat16": "products", "fp8": "FP8 products", "fp8_block": "FP8 blocks", "nvfp4": "NVFP4 products"}
SHAPES, ACCELERATOR, ARCHITECTURE = "shapes", "accelerator", "architecture"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel of a library on one accelerator.

    label : of BARS; fit : its own, of ``wanted``
    log_ratios : log(measured / predicted) of the rows that its fit held out, with a relative's fit of the same
    """

    label: str
    hardware: AcceleratorSpec
    library: str
    group: CalibrationGroup
    wanted: Variant
    fit: KernelFit
    log_ratios: Callable[[KernelFit, Relative], Array]


def shipped_fit(hardware: str, *, library: str, group: CalibrationGroup, wanted: Variant) -> KernelFit | None:
    """The shipped fit of a family, format and variant: with a window the one that holds for both where there is no
    other, of experts that nobody tuned the one that the simulator takes, of collectives any."""
    calibration = load_calibration(hardware, library=library, group=group)
    fits = () if calibration is None else calibration.fits
    family, format, variant = wanted
    if group == "collective":
        return next((fit for fit in fits if fit.family == family), None)
    if (library, hardware, format) in UNTUNED_EXPERTS and group == "moe":
        format = STAND_IN_EXPERTS[format]
    kernels = [(family, format, name) for name in (variant, variant.removesuffix(WINDOW))]
    return next((fit for kernel in kernels for fit in fits if (fit.family, fit.format, fit.variant) == kernel), None)


def products(root: Path, *, hardware: AcceleratorSpec, library: str) -> Iterator[Kernel]:
    """Matrix products by format."""
    table = load_table(root, hardware=hardware.name, family="gemm", library=library, table="gemm")
    for name, label in PRODUCTS.items():
        wanted = ("gemm", GEMM_FORMATS[name].name, "")
        own = shipped_fit(hardware.name, library=library, group="gemm", wanted=wanted)
        if table is None or own is None:
            continue
        rows = gemm.gemm_rows(table.rows, gemm_dtype=name, library=library)
        rows = rows[rows["is_score"]].reset_index(drop=True)
        yield Kernel(
            label=label,
            hardware=hardware,
            library=library,
            group="gemm",
            wanted=wanted,
            fit=own,
            log_ratios=partial(_product_ratios, rows, hardware, GEMM_FORMATS[name], library),
        )


def _product_ratios(
    rows: pd.DataFrame, hardware: AcceleratorSpec, format: MatmulFormat, library: str, fit: KernelFit, on: Relative
) -> Array:
    lattice = lattice_of(fit.correction, load_arrays(on.name, library=library, group="gemm"))
    predicted = gemm.predict(rows, fit=fit, hardware=hardware, format=format, lattice=lattice)
    return np.asarray(np.log(rows["measured_s"].to_numpy() / predicted.seconds))


def fitted_groups(group: KernelRows, *, library: str) -> tuple[KernelRows, ...]:
    """``group``, or its rows with a window and without apart where they were fitted so; none that has no fit."""
    calibration = load_calibration(group.hardware, library=library, group="attention")
    fits = () if calibration is None else calibration.fits
    variants = {
        fit.variant: fit.error.fit_points + fit.error.score_points
        for fit in fits
        if (fit.family, fit.format) == (MODELS[group.phase].family, group.format)
    }
    if variants.get(group.variant, 0) >= len(group.rows):
        return (group,)
    return tuple(part for part in by_mask(group) or (group,) if part.variant in variants)


def attention(root: Path, *, hardware: AcceleratorSpec, library: str) -> Iterator[Kernel]:
    """Prefill and decode attention and their latent forms, by format, head width and mask."""
    for phase in PHASES:
        measured = attention_rows(root, hardware=hardware.name, library=library, phase=phase)
        plain = [group for rows in measured for group in fitted_groups(rows, library=library)]
        latent = mla_rows(root, hardware=hardware.name, library=library, phase=phase)
        named = [(f"{phase} attention", plain), (f"MLA {phase}", latent)]
        for label, rows in ((label, rows) for label, groups in named for rows in groups):
            wanted = (MODELS[phase].family, rows.format, rows.variant)
            own = shipped_fit(hardware.name, library=library, group="attention", wanted=wanted)
            if own is not None:
                yield Kernel(
                    label=label,
                    hardware=hardware,
                    library=library,
                    group="attention",
                    wanted=wanted,
                    fit=own,
                    log_ratios=partial(_attention_ratios, rows, hardware, library),
                )


def _attention_ratios(
    group: KernelRows, hardware: AcceleratorSpec, library: str, fit: KernelFit, on: Relative
) -> Array:
    carried = carries_correction(fit.family, on)
    arrays = dict(load_arrays(on.name, library=library, group="attention")) if carried else None
    return attention_log_ratios(group, hardware=hardware, fit=fit, arrays=arrays)


def experts(root: Path, *, hardware: AcceleratorSpec, library: str) -> Iterator[Kernel]:
    """Routed experts by format and kernel."""
    tables = moe_tables(root, hardware=hardware.name, library=library)
    for moe_dtype, format in EXPERT_FORMATS.items():
        table = table_of(tables, moe_dtype=moe_dtype)
        if table is None or format.math not in hardware.peak_flops_per_s:
            continue
        for group in kernel_groups(moe_rows(table.rows, moe_dtype=moe_dtype)):
            wanted = ("moe", format.name, group.variant)
            own = shipped_fit(hardware.name, library=library, group="moe", wanted=wanted)
            held = group.rows["is_score"].to_numpy()
            rows = group.rows[held].reset_index(drop=True) if held.any() else group.rows
            untuned = (library, hardware.name, format.name) in UNTUNED_EXPERTS
            if own is not None and not untuned:
                yield Kernel(
                    label="experts",
                    hardware=hardware,
                    library=library,
                    group="moe",
                    wanted=wanted,
                    fit=own,
                    log_ratios=partial(_expert_ratios, rows, hardware, format, library),
                )


def _expert_ratios(
    rows: pd.DataFrame, hardware: AcceleratorSpec, format: MatmulFormat, library: str, fit: KernelFit, on: Relative
) -> Array:
    lattice = lattice_of(fit.correction, load_arrays(on.name, library=library, group="moe"))
    predicted = moe.predict(rows, fit=fit, hardware=hardware, format=format, lattice=lattice)
    return np.asarray(np.log(rows["seconds"].to_numpy() / predicted.seconds))


def all_reduces(root: Path, *, hardware: AcceleratorSpec, library: str) -> Iterator[Kernel]:
    """The engine's own all-reduce inside graphs; not of hosts whose tables are not used."""
    calibration = load_calibration(hardware.name, library=library, group="collective")
    tables = engine_tables(root, hardware=hardware.name, library=library) if hardware.name not in ODD_HOSTS else ()
    if calibration is None or not tables:
        return
    rows = tables[0].rows
    own = next(fit for fit in calibration.fits if fit.family == Collective.ALL_REDUCE.value)
    yield Kernel(
        label="all-reduce",
        hardware=hardware,
        library=library,
        group="collective",
        wanted=(own.family, own.format, ""),
        fit=own,
        log_ratios=partial(
            _all_reduce_ratios,
            rows[is_score(rows, family=Collective.ALL_REDUCE.value, columns=COLUMNS)],
            hardware,
            library,
        ),
    )


def _all_reduce_ratios(
    rows: pd.DataFrame, hardware: AcceleratorSpec, library: str, fit: KernelFit, on: Relative
) -> Array:
    """Of groups no larger than the relative's: all its fits together say which kernel runs."""
    found = [load_calibration(name, library=library, group="collective") for name in (on.name, *on.beside)]
    measured = [theirs.fits for theirs in found if theirs is not None]
    most = [max(one.box["participants"][1] for one in fits if one.family == fit.family) for fits in measured]
    ratios = []
    for devices, group in rows[rows["participants"] <= most[0]].groupby("participants"):
        message = group["message_bytes"].to_numpy(float)
        size = int(str(devices))
        shape = CollectiveShape(operation=Collective.ALL_REDUCE, message_bytes=message, participants=size)
        timings = [
            collective_timing(shape, hardware=hardware, fits=fits, relative=on)
            for fits, largest in zip(measured, most, strict=True)
            if size <= largest
        ]
        ratios.append(np.log(group["seconds"].to_numpy() / mean_timing(timings).seconds))
    together: Array = np.concatenate(ratios)
    return together[np.isfinite(together)]


FAMILIES = (products, attention, experts, all_reduces)


def relatives_of(kernel: Kernel, *, others: Sequence[AcceleratorSpec], left_out: str) -> tuple[Relative, ...]:
    """The relatives that the simulator takes among ``others``, of the architecture or of other ones, nearest first;
    none where nobody is left. A part of another memory or for workstations is of another architecture."""
    facts = kernel.hardware
    distance = link_distance if kernel.group == "collective" else kernel_distance
    same = left_out == ACCELERATOR
    left = [
        spec
        for spec in others
        if spec.name != facts.name
        and (distance(facts, relative=spec) < 1 if same else generation(spec) != generation(facts))
    ]
    if not left:
        return ()
    if kernel.group in OF_EVERY_GENERATION:
        return of_each_generation(facts, available=left)
    choose = link_relative if kernel.group == "collective" else calibrated_relative
    return (choose(facts, available=left),)


def log_ratios_of(kernel: Kernel, relatives: Sequence[Relative]) -> Array:
    """log(measured / predicted) by the fits of relatives, weighted as ``FitSet.priced`` does."""
    ratios = []
    for relative in relatives:
        fit = shipped_fit(relative.name, library=kernel.library, group=kernel.group, wanted=kernel.wanted)
        assert fit is not None, "relatives have the kernel"
        ratios.append(kernel.log_ratios(carried_fit(fit, relative, library=kernel.library), relative))
    weights = [relative.log_sigma_extra**-2 for relative in relatives] if len(relatives) > 1 else None
    mean: Array = np.average(ratios, axis=0, weights=weights)
    return mean


def kernel_name(fit: KernelFit) -> str:
    """The kernel that the table of a fit ran, where it says so."""
    named = re.match(r"kernel (\S+?)(?: of |;|$)", fit.note)
    return named[1] if named else ""


def error_rows(kernels: Sequence[Kernel]) -> Iterator[dict[str, object]]:
    """One row a kernel and what is left out: the mean absolute error and the signed one (predicted / measured - 1)."""
    alike: dict[tuple[str, str, Variant], list[AcceleratorSpec]] = {}
    for kernel in kernels:
        alike.setdefault((kernel.label, kernel.library, kernel.wanted), []).append(kernel.hardware)
    for kernel in kernels:
        facts = {
            "family": kernel.label,
            "kernel": " ".join(part for part in (kernel.library, *kernel.wanted[1:]) if part),
            "target": kernel.hardware.name,
        }
        error = kernel.fit.error
        yield facts | {"left_out": SHAPES, "mape": error.score_mape, "bias": error.score_bias}
        for left_out in (ACCELERATOR, ARCHITECTURE):
            others = alike[kernel.label, kernel.library, kernel.wanted]
            relatives = relatives_of(kernel, others=others, left_out=left_out)
            if not relatives:
                continue
            nearest = relatives[0].name
            fit = shipped_fit(nearest, library=kernel.library, group=kernel.group, wanted=kernel.wanted)
            assert fit is not None, "the relative has the kernel"
            wrong = np.expm1(-log_ratios_of(kernel, relatives))
            yield facts | {
                "left_out": left_out,
                "relative": nearest,
                "same_kernel": kernel_name(fit) == kernel_name(kernel.fit),
                "mape": round(float(np.mean(np.abs(wrong))), 4),
                "bias": round(float(np.mean(wrong)), 4),
            }


def table_lines(errors: pd.DataFrame) -> Iterator[str]:
    """The table of families; of an unknown architecture also where the library ran one kernel on both."""
    yield "| family | unseen shapes | GPU of a known architecture | of an unknown one | by the same kernel | worst |"
    yield "|---|---|---|---|---|---|"
    for family, bars in BARS.items():
        mine = errors[errors["family"] == family]
        far = mine[mine["left_out"] == ARCHITECTURE]
        parts = (mine[mine["left_out"] == SHAPES], mine[mine["left_out"] == ACCELERATOR], far)
        cells = [_cell(part, bar=bar) for part, bar in zip(parts, (None, *bars), strict=True)]
        cells.append(_cell(far[far["same_kernel"] == True], bar=bars[1]))  # noqa: E712
        worst = ""
        if len(far):
            row = far.loc[far["mape"].idxmax()]
            worst = f"{row['target']} with {row['relative']}, {row['kernel']}: {row['mape']:.0%} ({row['bias']:+.0%})"
        yield f"| {family} | {' | '.join(cells)} | {worst} |"


def _cell(part: pd.DataFrame, *, bar: float | None) -> str:
    if part.empty:
        return "-"
    mean = f"{part['mape'].mean():.1%} of {len(part)}"
    return mean if bar is None else f"{mean} ({bar:.0%})"


def main(given: Sequence[str] | None = None) -> None:
    """Print the table and write the rows of accelerators left out; those of shapes stand beside the fits."""
    parser = argparse.ArgumentParser(prog="python -m validation.fit.left_out", description=__doc__)
    parser.add_argument("--tables", type=Path, help="folder that holds h100_sxm/ ...; default: aiconfigurator_core")
    parser.add_argument("--hardware", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--output", type=Path, default=Path("validation/measured/left_out.csv"))
    arguments = parser.parse_args(given)
    root = tables_root(arguments.tables)
    specs = [load_hardware(name) for name in arguments.hardware]
    kernels = [
        kernel
        for family in FAMILIES
        for spec in specs
        for library in LIBRARIES
        for kernel in family(root, hardware=spec, library=library)
    ]
    errors = pd.DataFrame(list(error_rows(kernels)))
    for line in table_lines(errors):
        print(line)
    write_whole(arguments.output, errors[errors["left_out"] != SHAPES].to_csv(index=False))


if __name__ == "__main__":
    main()
