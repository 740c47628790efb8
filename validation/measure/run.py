"""Goes through the families within the budget; what cannot run is skipped with its reason."""

from __future__ import annotations

import gc
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import torch

from validation.measure.attention import decode_groups, prefill_groups
from validation.measure.bench import Bench, Group, GroupsOf
from validation.measure.gemm import dense_groups, grouped_groups
from validation.measure.launch import launch_groups
from validation.measure.passes import end_groups, host_link_groups, pass_groups
from validation.measure.power import Meter, meter_for
from validation.measure.table import Machine, Measured, Row
from validation.measure.timing import Case, measure_cuda, measure_host
from validation.measure.whole_model import whole_groups

FAMILIES: tuple[GroupsOf, ...] = (
    dense_groups,
    grouped_groups,
    prefill_groups,
    decode_groups,
    pass_groups,
    end_groups,
    host_link_groups,
    launch_groups,
    whole_groups,
)
REFUSALS_BEFORE_SKIP = 3
"""Cases of a group in a row that raise before the group is given up: not every shape suits every kernel."""
SAMPLING_SHARE = 0.3
"""Of a case's share of its group's time that goes to samples; the rest builds operands and warms up."""
SAMPLING_S_AT_MOST = 0.05
EXPECTED_CASES = 60
Unsupported = (RuntimeError, NotImplementedError, AttributeError, ValueError, TypeError, ImportError)


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
        torch.cuda.empty_cache()


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
        except torch.OutOfMemoryError:
            say(f"  {group.name}: {case.shape} does not fit the memory")
            _release(bench)
            continue
        except Unsupported as error:
            meter.stop()
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


def run_families(bench: Bench, *, budget_s: float, only: Sequence[str] = (), points_at_least: int = 1) -> Iterator[Row]:
    """All groups; what one leaves of its share goes to those after it."""
    groups = [group for family in FAMILIES for group in family(bench)]
    if only:
        groups = [group for group in groups if any(word in group.name for word in only)]
    meter = meter_for(_uuid(bench))
    deadline_s = time.perf_counter() + budget_s
    left = sum(group.weight for group in groups)
    for group in groups:
        share_s = max(0.0, deadline_s - time.perf_counter()) * group.weight / left
        left -= group.weight
        yield from run_group(group, bench=bench, budget_s=share_s, meter=meter, points_at_least=points_at_least)
        _release(bench)


def _uuid(bench: Bench) -> str | None:
    if not bench.is_cuda:
        return None
    return str(getattr(torch.cuda.get_device_properties(bench.device), "uuid", "")) or None


def _processor() -> str:
    """The CPU's name as the system tells it, with the threads that torch uses."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name} ({torch.get_num_threads()} threads)"


def machine_of(bench: Bench) -> Machine:
    """Device, driver, torch version and today's date."""
    if bench.is_cuda:
        device = torch.cuda.get_device_name(bench.device)
        meter = meter_for(_uuid(bench))
        version = meter.nvml.driver() if meter.nvml is not None else "unknown"
        driver = f"{version} (CUDA {torch.version.cuda or torch.version.hip})"
    else:
        device, driver = _processor(), platform.release()
    return Machine(
        device=device,
        driver=driver,
        torch_version=torch.__version__,
        date=datetime.now(UTC).date().isoformat(),
    )
