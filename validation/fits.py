"""``python -m validation.fits``: every fitted kernel with its parameters, their physical ranges and its errors.

One line a fit: errors on unseen shapes, fitted parameters, those at a bound of the search (*) or outside the physical
range (!). Then by model: fits, parameters fitted, share at a bound, error on unseen shapes and on a left-out GPU.
The exit code is 1 where something lies outside its range.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import fmean, median
from typing import get_args

from simulator.specs.hardware.calibration import CalibrationGroup, KernelFit, load_calibration, load_transfer_table
from simulator.specs.profiles import list_profiles
from validation.commands import exit_code_of
from validation.fit.ranges import BOUNDS, at_bounds, outside, range_of

_NAME = re.compile(r"(?P<hardware>.+)--(?P<library>[a-z]+)\.(?P<group>[a-z]+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFit:
    """A fit and where it stands."""

    hardware: str
    library: str
    fit: KernelFit

    @property
    def name(self) -> str:
        """``hardware--library family.format.variant``."""
        parts = (self.fit.family, self.fit.format, self.fit.variant)
        return f"{self.hardware}--{self.library} " + ".".join(part for part in parts if part)


def shipped_fits() -> tuple[NamedFit, ...]:
    """All fits that ship, by file."""
    groups = get_args(CalibrationGroup)
    found: list[NamedFit] = []
    for file in sorted(list_profiles("calibration")):
        name = _NAME.match(file)
        if name is None or name["group"] not in groups:
            continue
        calibration = load_calibration(name["hardware"], library=name["library"], group=name["group"])  # type: ignore[arg-type]
        assert calibration is not None
        found += [NamedFit(hardware=name["hardware"], library=name["library"], fit=fit) for fit in calibration.fits]
    return tuple(found)


def violations(fits: Sequence[NamedFit]) -> tuple[str, ...]:
    """One text a parameter outside its range: fit and parameter, without the value."""
    return tuple(f"{item.name} {parameter}" for item in fits for parameter in outside(item.fit))


def fit_line(item: NamedFit) -> str:
    """A fit on one line."""
    fit, wrong, stuck = item.fit, outside(item.fit), at_bounds(item.fit)
    fitted = BOUNDS.get(fit.model, fit.parameters)
    parts = []
    for name, value in fit.parameters.items():
        if name not in fitted or (range_of(name) is None and name not in BOUNDS.get(fit.model, {})):
            continue
        parts.append(f"{name} {value:.4g}{'!' if name in wrong else '*' if name in stuck else ''}")
    return f"{item.name}: unseen {fit.error.score_mape:.1%}; {', '.join(parts)}"


def summary_lines(fits: Sequence[NamedFit]) -> Iterator[str]:
    """By model: how many, what sits at a bound, and the errors on unseen shapes."""
    by_model: dict[str, list[NamedFit]] = defaultdict(list)
    for item in fits:
        by_model[item.fit.model].append(item)
    for model, items in sorted(by_model.items()):
        free = round(fmean(len(BOUNDS.get(model, {}).keys() & item.fit.parameters) for item in items)) or "-"
        errors = [item.fit.error.score_mape for item in items]
        stuck = Counter(name for item in items for name in at_bounds(item.fit))
        wrong = sum(len(outside(item.fit)) for item in items)
        often = ", ".join(f"{name} {count}" for name, count in stuck.most_common(6))
        yield (
            f"{model}: {len(items)} fits, {free} free parameters, {wrong} outside; unseen shapes median "
            f"{median(errors):.1%}, worst {max(errors):.1%}; at a bound: {often or 'none'}"
        )


def left_out_lines() -> Iterator[str]:
    """Error on an accelerator that a family's fit never saw, with the relative that the simulator takes: one of its
    own architecture (another is at least one generation away), and the nearest where its whole generation is left out.
    """
    table = load_transfer_table()
    kinds = {
        "a known architecture": [row for row in table.nearest if row.distance < 1],
        "an unknown architecture": table.other_generation,
    }
    for family in sorted({row.family for row in table.other_generation}):
        for kind, rows in kinds.items():
            errors = {row.target: row.mape for row in rows if row.family == family}
            worst = max(errors, key=errors.__getitem__)
            yield (
                f"{family} on a left-out GPU of {kind}: mean "
                f"{fmean(errors.values()):.1%} of {len(errors)}, worst {worst} {errors[worst]:.1%}"
            )


def main() -> int:
    """Print the fits, and refuse what lies outside its range."""
    parser = argparse.ArgumentParser(prog="python -m validation.fits", description=__doc__)
    parser.add_argument("--only", default="*", help="names such as 'h100*--vllm *decode*'; default: all")
    parser.add_argument("--summary", action="store_true", help="no line for each fit")
    arguments = parser.parse_args()
    fits = tuple(item for item in shipped_fits() if fnmatchcase(item.name, arguments.only))
    if not arguments.summary:
        for item in fits:
            print(fit_line(item))
    for line in (*summary_lines(fits), *left_out_lines()):
        print(line)
    found = violations(fits)
    for text in found:
        print(f"outside its physical range: {text}")
    print(f"{len(found)} parameters outside their range")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(exit_code_of(main))
