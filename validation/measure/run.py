"""Goes through the families within the budget; what cannot run is skipped with its reason."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import torch

from validation.measure.anchors import anchor_groups, sustained_groups
from validation.measure.attention import chunk_groups, decode_groups, latent_prefill_groups, prefill_groups
from validation.measure.bench import Bench, Group, GroupsOf
from validation.measure.engines.compiling import engine_groups
from validation.measure.gemm import dense_groups, grouped_groups, model_groups
from validation.measure.launch import launch_groups
from validation.measure.machine import uuid_of
from validation.measure.passes import end_groups, host_link_groups, hot_groups, pass_groups
from validation.measure.power import Meter, meter_for
from validation.measure.table import Measured, Row
from validation.measure.timing import Case, DeviceBrokenError, check_device, measure_cuda, measure_host
from validation.measure.whole.steps import whole_groups

FAMILIES: tuple[GroupsOf, ...] = (
    dense_groups,
    model_groups,
    grouped_groups,
    prefill_groups,
    decode_groups,
    chunk_groups,
    latent_prefill_groups,
    engine_groups,
    pass_groups,
    hot_groups,
    end_groups,
    host_link_groups,
    launch_groups,
    whole_groups,
    sustained_groups,
    anchor_groups,
)
REFUSALS_BEFORE_SKIP = 3
"""Cases of a group in a row that raise before the group is given up: not every shape suits every kernel."""
SAMPLING_SHARE = 0.3
"""Of a case's share of its group's time that goes to samples; the rest builds operands and warms up."""
SAMPLING_S_AT_MOST = 0.05
EXPECTED_CASES = 60
IN, DONE, MEASURED = "in", "done", "measured"
Tell = Callable[[str, str], None]
"""A word of those three, and the group or family that it is of."""


def say(text: str) -> None:
    """Progress and reasons go to stderr."""
    print(text, file=sys.stderr, flush=True)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160] if lines else ''}"


def _measure(case: Case, *, bench: Bench, budget_s: float, meter: Meter) -> Measured:
    copies = bench.copies(case)
    with torch.inference_mode():
        if bench.is_cuda and not case.host:
            return measure_cuda(case, copies=copies, budget_s=budget_s, meter=meter)
        return measure_host(case, copies=copies, budget_s=budget_s, meter=meter)


def _release(bench: Bench) -> None:
    gc.collect()
    if bench.is_cuda:
        check_device()


def run_group(group: Group, *, bench: Bench, budget_s: float, meter: Meter, points_at_least: int = 1) -> Iterator[Row]:
    """Measure cases in order until the budget is spent; the first ones to fail in a row end the group.

    points_at_least : measured even when the groups before have used up the budget
    """
    deadline_s = time.perf_counter() + budget_s
    each_s = min(SAMPLING_S_AT_MOST, SAMPLING_SHARE * budget_s / min(EXPECTED_CASES, max(1, len(group.cases))))
    refused, done = 0, 0
    for case in group.cases:
        if done >= points_at_least and time.perf_counter() >= deadline_s:
            break
        if not bench.fits(case):
            continue
        try:
            measured = _measure(case, bench=bench, budget_s=each_s, meter=meter)
        except DeviceBrokenError:
            meter.stop()
            raise
        except torch.OutOfMemoryError:
            meter.stop()
            say(f"  {group.name}: {case.shape} does not fit the memory")
            _release(bench)
            continue
        except Exception as error:
            # Kernels refuse shapes and formats with errors of every kind; what matters is that the others still run.
            meter.stop()
            _release(bench)
            refused += 1
            if done == 0 and refused == 1:
                say(f"  {group.name}: {_first_line(error)}")
            if refused >= REFUSALS_BEFORE_SKIP:
                say(f"skipped after {done} points: {group.name}: {_first_line(error)}")
                return
            continue
        refused, done = 0, done + 1
        yield Row(family=case.family, kernel=case.kernel, format=case.format, shape=case.shape, measured=measured)
    say(f"{group.name}: {done} points")


def groups_in_order(bench: Bench, *, seed: int) -> list[Group]:
    """All groups in random order, so that no family is measured hotter than another, with the anchors spread over them.

    Anchors stand at the beginning, in the middle and at the end; what runs for long stands before the last ones.
    """
    groups = [group for family in FAMILIES for group in family(bench)]
    anchors = [group for group in groups if group.name.startswith("anchors")]
    last = [group for group in groups if group.name == "sustained"]
    others = [group for group in groups if group not in anchors and group not in last]
    if bench.is_cuda:
        random.Random(seed).shuffle(others)
    if not anchors:
        return [*others, *last]
    first, *between, final = anchors
    spread = len(others) // (len(between) + 1)
    ordered = [first]
    for place, group in enumerate(others, start=1):
        ordered.append(group)
        if between and place % max(1, spread) == 0:
            ordered.append(between.pop(0))
    return [*ordered, *between, *last, final]


def chosen_groups(bench: Bench, *, seed: int, only: Sequence[str] = (), without: Sequence[str] = ()) -> list[Group]:
    """The groups of exactly these names, all without names; refuses a name that no group has.

    Raises
    ------
    ValueError
        A name is unknown.
    """
    groups = groups_in_order(bench, seed=seed)
    names = [group.name for group in groups]
    unknown = [word for word in only if word not in names]
    if unknown:
        raise ValueError(f"--only {unknown[0]!r}: no such group; there are: {', '.join(sorted(names))}")
    return [group for group in groups if (not only or group.name in only) and group.name not in without]


def run_groups(
    groups: Sequence[Group], *, bench: Bench, budget_s: float, tell: Tell, points_at_least: int = 1
) -> Iterator[Row]:
    """Every row; what a group leaves of its share of the budget goes to those after it.

    tell : called with IN and the name of a group before its first case, with DONE after its last

    Raises
    ------
    DeviceBrokenError
        Nothing more can be measured in this process.
    """
    meter = meter_for(uuid_of(bench))
    deadline_s = time.perf_counter() + budget_s
    left = sum(group.weight for group in groups)
    for group in groups:
        share_s = max(0.0, deadline_s - time.perf_counter()) * group.weight / left
        left -= group.weight
        tell(IN, group.name)
        yield from run_group(group, bench=bench, budget_s=share_s, meter=meter, points_at_least=points_at_least)
        _release(bench)
        tell(DONE, group.name)
