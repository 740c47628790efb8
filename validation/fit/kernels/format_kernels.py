"""Fit the families of format kernels: ``python -m validation.fit.kernels.format_kernels --data DIR [--tables DIR]``.

Families fitted on measured products have three or four free parameters, those fitted on published figures one. They are
fitted on part of the rows and tested on the rest: products by the hash of their shape, published speedups by every
second row of a source, published tables by model. What has no rows keeps an assumption that says where it comes from.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import yaml
from scipy.optimize import minimize

from simulator.kernels.engine_traits import pass_shape, passes_of
from simulator.kernels.fits import FitSet, fit_set
from simulator.kernels.format_choice import derived_gemm_timing
from simulator.kernels.roofline import elementwise_timing
from simulator.operators.work import GemmShape
from simulator.published.figures import ComparedFigure
from simulator.published.techniques import figures
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.precision import FormatKernelSpec, FormatKernelTable, load_format_kernels
from validation.end_to_end.measured.runs import MeasuredRun
from validation.end_to_end.measured.sources import load_source
from validation.end_to_end.speedups import deployment_key, is_plain, speedups
from validation.fit.files import HEADER, calibration_directory
from validation.silicon.formats import GEMM_FORMATS
from validation.silicon.split import is_score
from validation.silicon.tables import load_table, tables_root
from validation.writing import write_whole

TABLE_HARDWARE, TABLE_LIBRARY = "a100-sxm-80gb", "trtllm"
COLD = 3.0
"""Rows count whose weights, all six copies, exceed the L2 so many times: smaller ones stayed in it."""
SAMPLE = 400
LEAST_SIGMA = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Absolute relative errors on the rows that were fitted and on the others."""

    fitted: tuple[float, ...]
    scored: tuple[float, ...]


@contextmanager
def table_of(families: FormatKernelTable) -> Iterator[None]:
    """Price with ``families`` in place of the shipped table."""
    with patch("simulator.kernels.format_choice.load_format_kernels", lambda: families):
        yield


def replaced(table: FormatKernelTable, family: FormatKernelSpec) -> FormatKernelTable:
    """The table with one family changed."""
    others = tuple(family if other.name == family.name else other for other in table.families)
    return table.model_copy(update={"families": others})


def fitted(
    family: FormatKernelSpec, parameters: Sequence[str], *, loss: Callable[[FormatKernelSpec], float]
) -> FormatKernelSpec:
    """The family with ``parameters`` (positive) at the least loss."""
    start = np.log([getattr(family, name) for name in parameters])

    def changed(point: np.ndarray) -> FormatKernelSpec:
        values = {name: float(f"{value:.3g}") for name, value in zip(parameters, np.exp(point), strict=True)}
        return family.model_copy(update=values)

    found = minimize(
        lambda point: loss(changed(point)),
        start,
        method="Nelder-Mead",
        options={"maxiter": 40 * len(parameters), "xatol": 0.01, "fatol": 1e-4},
    )
    return changed(found.x)


def with_errors(family: FormatKernelSpec, errors: Errors) -> FormatKernelSpec:
    """The family with its spread and the mean errors in words."""
    every = [*errors.scored] or [*errors.fitted]
    said = [
        f"{text.split(':')[0]}: {len(part)} rows, {100 * np.mean(part):.1f} %" if part else ""
        for text, part in ((family.fitted_on, errors.fitted), (family.scored_on, errors.scored))
    ]
    return family.model_copy(
        update={
            "log_sigma": float(f"{max(LEAST_SIGMA, 1.25 * float(np.mean(every))):.2g}"),
            "known_as": "fitted",
            "fitted_on": said[0],
            "scored_on": said[1],
        }
    )


def measured_products(family: FormatKernelSpec, dtypes: Sequence[str], *, tables: Path) -> FormatKernelSpec:
    """Fit a family on measured products of one accelerator."""
    table = load_table(tables, hardware=TABLE_HARDWARE, family="gemm", library=TABLE_LIBRARY, table="gemm")
    hardware = load_hardware(TABLE_HARDWARE)
    fits = fit_set(hardware, library=TABLE_LIBRARY, group="gemm")
    assert table is not None
    assert fits is not None
    fit = fits.find(family="gemm", fmt="bf16")
    passes = fit_set(hardware, library=TABLE_LIBRARY, group="elementwise")
    assert fit is not None
    assert passes is not None
    rows = table.rows[table.rows["gemm_dtype"].isin(dtypes)]
    bytes_each = rows["gemm_dtype"].map(lambda name: GEMM_FORMATS[name].weight_bits / 8)
    rows = rows[6 * rows["n"] * rows["k"] * bytes_each > COLD * hardware.l2_bytes]
    held = is_score(rows, family="gemm", columns=("n", "k"))

    def errors(candidate: FormatKernelSpec, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chosen = rows[part].sample(min(SAMPLE, int(part.sum())), random_state=0)
        logs = []
        for dtype, group in chosen.groupby("gemm_dtype"):
            shape = GemmShape(
                m=group["m"].to_numpy(float),
                n=group["n"].to_numpy(float),
                k=group["k"].to_numpy(float),
                format=GEMM_FORMATS[str(dtype)],
            )
            timing = derived_gemm_timing(shape, hardware=hardware, fit=fit, lattice=fits.lattice(fit), family=candidate)
            seconds = timing.seconds + _quantising_seconds(shape, passes=passes)
            logs.append(np.log(seconds / group["seconds"].to_numpy(float)))
        together = np.concatenate(logs)
        return np.abs(together), np.abs(np.expm1(together))

    parameters = ["memory_share", "compute_share", "launch_s", *(["dequantise_ops"] if family.dequantise_ops else [])]
    best = fitted(family, parameters, loss=lambda candidate: float(np.mean(errors(candidate, ~held)[0])))
    return with_errors(best, Errors(fitted=tuple(errors(best, ~held)[1]), scored=tuple(errors(best, held)[1])))


def _quantising_seconds(shape: GemmShape, *, passes: FitSet) -> np.ndarray:
    """The pass over the activations that the tables of quantising formats contain [s]."""
    around = passes_of(shape.format, contained=False)
    if around is None:
        return np.zeros(np.size(shape.m))
    fit = passes.find(family="elementwise", fmt="bf16", variant="pass")
    timing = elementwise_timing(pass_shape(shape, around), hardware=load_hardware(TABLE_HARDWARE), fit=fit)
    return timing.seconds


def published_speedups(
    family: FormatKernelSpec, parameters: Sequence[str], *, runs: Sequence[MeasuredRun], table: FormatKernelTable
) -> FormatKernelSpec:
    """Fit on every second run that the family's kernels took part in, in the order of the source."""
    base = {deployment_key(run) for run in runs if is_plain(run)}
    plain = [run for run in runs if is_plain(run)]
    narrow = [run for run in runs if not is_plain(run) and deployment_key(run) in base]

    def errors(candidate: FormatKernelSpec, chosen: Sequence[MeasuredRun]) -> list[float]:
        with table_of(replaced(table, candidate)):
            return [row.error for row in speedups([*plain, *chosen])]

    best = fitted(
        family, parameters, loss=lambda candidate: float(np.mean(np.abs(np.log1p(errors(candidate, narrow[::2])))))
    )
    return with_errors(
        best,
        Errors(fitted=tuple(map(abs, errors(best, narrow[::2]))), scored=tuple(map(abs, errors(best, narrow[1::2])))),
    )


def published_table(
    family: FormatKernelSpec, parameters: Sequence[str], *, prefix: tuple[str, ...], table: FormatKernelTable
) -> FormatKernelSpec:
    """Fit on the ratios of techniques.yaml whose name starts with one of ``prefix`` and that are marked for it."""

    def errors(candidate: FormatKernelSpec, part: str) -> list[float]:
        with table_of(replaced(table, candidate)):
            wanted = [
                figure
                for figure in figures()
                if figure.name.startswith(prefix) and figure.is_fitted == (part == "fit") and figure.unit == "ratio"
            ]
            return [ComparedFigure(figure=figure, predicted=figure.predict()).error for figure in wanted]

    best = fitted(family, parameters, loss=lambda candidate: float(np.mean(np.abs(np.log1p(errors(candidate, "fit"))))))
    return with_errors(
        best, Errors(fitted=tuple(map(abs, errors(best, "fit"))), scored=tuple(map(abs, errors(best, "score"))))
    )


def _uses(run: MeasuredRun, *schemes: str) -> bool:
    precision = run.scenario["precision"]
    kept = run.scenario["model"] != "mistralai/Mixtral-8x7B-v0.1" and "techniques" not in run.scenario
    return is_plain(run) or (kept and str(precision.get("scheme", "")).startswith(schemes))


def main() -> int:
    """Fit every family that has rows and write the table."""
    parser = argparse.ArgumentParser(prog="python -m validation.fit.kernels.format_kernels", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds e2e/")
    parser.add_argument("--tables", type=Path, help="folder that holds a100_sxm/; default: the installed package")
    arguments = parser.parse_args()
    table = load_format_kernels()
    runs = [run for name in ("gpt-fast", "torchao") for run in load_source(name, arguments.data)]
    tables = tables_root(arguments.tables)
    for name, dtypes in (("trtllm", ("int4_wo", "int8_wo")), ("cutlass", ("sq",))):
        table = replaced(table, measured_products(table.family(name), dtypes, tables=tables))
    for name, parameter, schemes in (
        ("tinygemm", "memory_share", ("tinygemm",)),
        ("inductor", "memory_share", ("gptq-8bit",)),
        ("torchao-int8dq", "memory_share", ("w8a8",)),
    ):
        chosen = [run for run in runs if _uses(run, *schemes)]
        table = replaced(table, published_speedups(table.family(name), [parameter], runs=chosen, table=table))
    for name, parameter, prefix in (
        (
            "torch-int",
            "compute_share",
            tuple(f"smoothquant-opt-{size}-{length}-o" for size in ("13b", "30b") for length in (256, 512)),
        ),
        (
            "bitsandbytes-int8",
            "launch_s",
            tuple(f"smoothquant-opt-{size}-{length}-llm" for size in ("13b", "30b") for length in (256, 512)),
        ),
        ("gptq", "memory_share", ("gptq-",)),
        ("cusparselt", "compute_share", ("sparsegpt", "wanda")),
    ):
        table = replaced(table, published_table(table.family(name), [parameter], prefix=prefix, table=table))
    # Measured once, so that nothing would be left to test a fit on: loads as tinygemm does in the same program.
    like = table.family("tinygemm").memory_share
    table = replaced(table, table.family("sparse-marlin").model_copy(update={"memory_share": like}))
    path = calibration_directory() / "format_kernels.yaml"
    document = table.model_dump(mode="json", exclude_defaults=True)
    write_whole(path, HEADER + yaml.safe_dump(document, sort_keys=False, width=120))
    for family in table.families:
        print(f"{family.name}: {family.fitted_on or 'assumed'} | {family.scored_on}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
