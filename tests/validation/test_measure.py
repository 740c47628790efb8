"""The measuring harness: shapes that fill their box, rows that survive a kill, and a run on this CPU."""

from __future__ import annotations

import csv
import gc
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend

from simulator.specs.measured.kernel_times import REQUIRED_COLUMNS, load_measurements
from validation.measure.__main__ import main
from validation.measure.attention import BACKENDS, _calls
from validation.measure.bench import COPIES_AT_MOST, Bench, Group, bench_of
from validation.measure.design import Axis, Choice, halton, radical_inverse, shapes
from validation.measure.gemm import rows_of_experts
from validation.measure.power import Meter, Reading, _Sample, meter_for, reading_of
from validation.measure.run import FAMILIES, chosen_groups, groups_in_order, run_group
from validation.measure.table import COLUMNS, Machine, Measured, Row, Shape, Table
from validation.measure.timing import Case, DeviceBrokenError, _captured, measure_cuda

pytestmark = pytest.mark.oracle  # needs torch

MACHINE = Machine(device="d", driver="1", torch_version="2.13", date="2026-11-21")
CPU = bench_of("cpu")
GPU = Bench(device=torch.device("cuda"), cache_bytes=50 * 2**20, memory_bytes=80 * 10**9)


@pytest.fixture(autouse=True, scope="module")
def kept_by_other_tests() -> None:
    """The harness collects garbage before each group, and need not look through what thousands of tests keep."""
    gc.collect()
    gc.freeze()


def row(seconds: float = 1e-5) -> Row:
    measured = Measured(seconds=seconds, spread=0.1, repeats=7, mode="host")
    return Row(family="gemm", kernel="linear", format="fp32", shape=Shape(m=1, n=2, k=3), measured=measured)


def test_radical_inverse_by_hand() -> None:
    assert [radical_inverse(index, base=2) for index in (0, 1, 2, 3, 6)] == [0, 0.5, 0.25, 0.75, 0.375]
    assert radical_inverse(5, base=3) == pytest.approx(2 / 3 + 1 / 9)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 5])
def test_every_beginning_of_the_design_fills_the_box(dimensions: int) -> None:
    """Each half of each axis, and each quadrant of each pair, holds its share of the first 64 points."""
    points = halton(64, dimensions=dimensions)
    assert ((points >= 0) & (points < 1)).all()
    upper = points > 0.5
    assert (np.abs(upper.mean(axis=0) - 0.5) <= 0.06).all()
    for first in range(dimensions):
        for second in range(first):
            assert abs((upper[:, first] & upper[:, second]).mean() - 0.25) <= 0.08


def test_the_design_leaves_smaller_gaps_than_chance() -> None:
    grid = np.stack(np.meshgrid(*[np.linspace(0.05, 0.95, 10)] * 2), axis=-1).reshape(-1, 1, 2)

    def largest_gap(points: np.ndarray) -> float:
        return float(np.sqrt(((grid - points[None]) ** 2).sum(axis=-1)).min(axis=1).max())

    drawn = [largest_gap(np.random.default_rng(seed).random((64, 2))) for seed in range(20)]
    assert largest_gap(halton(64, dimensions=2)) < np.median(drawn)


def test_shapes_keep_to_bounds_and_steps_and_never_repeat() -> None:
    axes = (Axis(low=1, high=16384), Axis(low=256, high=28672, step=128), Choice(values=(64, 128, 256)))
    found = shapes(300, axes=axes)
    assert len(set(found)) == len(found) > 290
    assert all(1 <= m <= 16384 and 256 <= n <= 28672 and n % 128 == 0 for m, n, _ in found)
    assert {dim for *_, dim in found} == {64, 128, 256}
    # Log-uniform: half of the points below the geometric mean.
    assert abs(np.mean([m < 128 for m, *_ in found]) - 0.5) < 0.05


def test_a_device_without_a_number_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """``cuda`` is what people type; torch 2.11 sets no device that has no number."""
    chosen = []

    class Properties:
        L2_cache_size = 60 * 2**20

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties())
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**9, 2 * 10**9))
    assert bench_of("cuda").device == torch.device("cuda", 0)
    assert bench_of("cuda:1").device == torch.device("cuda", 1)
    assert [device.index for device in chosen] == [0, 1]


def test_skewed_experts_share_the_same_rows() -> None:
    for rows, experts in ((1, 8), (128, 8), (4096, 128)):
        even, skewed = (rows_of_experts(rows, experts, skewed=skewed) for skewed in (False, True))
        assert sum(even) == sum(skewed) == rows
        assert max(even) - min(even) <= 1
        assert max(skewed) >= max(even)
        assert min(skewed) >= 0
    assert rows_of_experts(4096, 128, skewed=True)[0] == round(4096 / sum(1 / rank for rank in range(1, 129)))


def test_dimensions_beyond_the_primes_are_refused() -> None:
    with pytest.raises(ValueError, match="dimensions = 7"):
        halton(4, dimensions=7)


@pytest.mark.parametrize("bench", [CPU, GPU], ids=["cpu", "cuda"])
def test_designs_of_every_family_are_sound(bench: Bench) -> None:
    """Building the cases touches no device: the GPU's designs are checked here too."""
    groups = [group for family in FAMILIES for group in family(bench)]
    names = [group.name for group in groups]
    assert len(set(names)) == len(names)
    for group in groups:
        assert group.cases, group.name
        assert all(case.footprint_bytes > 0 for case in group.cases)
        fitting = [case for case in group.cases if bench.fits(case)]
        assert len(fitting) >= 0.5 * len(group.cases), group.name
        assert all(1 <= bench.copies(case) <= COPIES_AT_MOST for case in fitting)
    if bench.is_cuda:
        formats = {case.format for group in groups for case in group.cases}
        assert {"fp32", "tf32", "bf16", "fp16", "int8", "fp8", "bf16_2_4", "w4a16"} <= formats
        families = {case.family for group in groups for case in group.cases}
        assert {"whole_layer", "whole_model", "host_link", "grouped_gemm", "sampling", "launch"} <= families
        small = min(groups[0].cases, key=lambda case: case.footprint_bytes)
        assert bench.copies(small) * small.footprint_bytes > bench.cache_bytes
        products = [case for group in groups for case in group.cases if case.family == "gemm"]
        assert min(case.shape.m for case in products if case.format == "fp8") == 1
        assert max(case.shape.m for case in products if case.format == "w4a16") <= 256


def test_the_table_reads_back_and_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    with Table(path, machine=MACHINE) as table:
        table.write(row())
        # On the disk before the next one is measured.
        assert len(load_measurements(path).rows) == 1
        table.write(row(2e-5))
    assert set(REQUIRED_COLUMNS) <= set(COLUMNS)
    assert [item.seconds for item in load_measurements(path).rows] == [1e-5, 2e-5]
    with pytest.raises(FileExistsError, match="--force"):
        Table(path, machine=MACHINE)
    with Table(path, machine=MACHINE, append=True) as table:
        table.write(row(3e-5))
    assert [item.seconds for item in load_measurements(path).rows] == [1e-5, 2e-5, 3e-5]
    with Table(path, machine=MACHINE, force=True) as table:
        table.write(row())
    assert len(load_measurements(path).rows) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from validation.measure.table import Machine, Measured, Row, Shape, Table
machine = Machine(device="d", driver="1", torch_version="2.13", date="2026-11-21")
measured = Measured(seconds=1e-5, spread=0.1, repeats=7, mode="host")
row = Row(family="gemm", kernel="linear", format="fp32", shape=Shape(m=1, n=2, k=3), measured=measured)
table = Table(Path(sys.argv[1]), machine=machine)
for _ in range(3):
    table.write(row)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_in_the_middle_loses_nothing_that_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    found = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert found.returncode == -signal.SIGKILL
    assert len(load_measurements(path).rows) == 3


def test_a_kernel_that_cannot_run_ends_its_group_with_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(copies: int) -> list[object]:
        raise RuntimeError("no such kernel\nlong story")

    case = Case(family="f", kernel="k", format="bf16", shape=Shape(), footprint_bytes=8, build=refuse)  # type: ignore[arg-type]
    group = Group(name="odd", cases=[case] * 10)
    assert list(run_group(group, bench=CPU, budget_s=1.0, meter=Meter())) == []
    assert "skipped after 0 points: odd: RuntimeError: no such kernel\n" in capsys.readouterr().err


def test_without_nvml_there_is_no_power() -> None:
    meter = meter_for("GPU-00000000-0000-0000-0000-000000000000")
    meter.start()
    assert meter.stop() == Reading()


def sampled(seconds: float, *, energy: bool = True) -> list[_Sample]:
    """A board that draws 100 W for two seconds and 300 W from then on, while its own mean still says 200 W."""
    samples = []
    for tick in range(int(seconds * 10) + 1):
        at_s = tick / 10
        joules = 100.0 * min(at_s, 2.0) + 300.0 * max(at_s - 2.0, 0.0)
        samples.append(_Sample(at_s, 200.0, 1.4e9, joules if energy else None, 4 if at_s > 3 else 1))
    return samples


def test_power_comes_from_the_energy_counter_of_a_settled_window() -> None:
    assert reading_of(sampled(6.0)).power_w == pytest.approx(300.0)
    assert reading_of(sampled(6.0, energy=False)).power_w == pytest.approx(200.0)
    assert reading_of(sampled(6.0)).throttle == 5
    assert reading_of(sampled(1.0)) == Reading(power_w=None, clock_hz=1.4e9, throttle=1)


def test_an_error_stops_the_meter() -> None:
    class Fake:
        def power_w(self) -> float:
            return 250.0

        def clock_hz(self) -> float:
            return 1.4e9

        def energy_j(self) -> float:
            raise OSError("no counter")

        def throttle(self) -> int:
            return 0

    meter = Meter(nvml=Fake())  # type: ignore[arg-type]

    def fail(copies: int) -> list[object]:
        meter.start()
        raise KeyError("an error of any kind")

    case = Case(family="f", kernel="k", format="bf16", shape=Shape(), footprint_bytes=8, build=fail)  # type: ignore[arg-type]
    assert list(run_group(Group(name="odd", cases=[case] * 3), bench=CPU, budget_s=1.0, meter=meter)) == []
    assert meter._thread is None


def test_after_a_failed_capture_a_device_that_answers_nothing_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch before 2.12 believes that it still captures (pytorch issue 180395): empty_cache raises from then on."""

    class Nothing:
        def __init__(self, *arguments: object) -> None: ...

        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None: ...

        def wait_stream(self, other: object) -> None: ...

    def still_captures() -> None:
        raise RuntimeError("captures_underway.empty() INTERNAL ASSERT FAILED")

    def refuses() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    for name in ("Stream", "CUDAGraph", "stream"):
        monkeypatch.setattr(torch.cuda, name, Nothing)
    monkeypatch.setattr(torch.cuda, "current_stream", Nothing)
    monkeypatch.setattr(torch.cuda, "graph", Nothing)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    calls = iter(range(100))

    def kernel() -> None:
        if next(calls) >= 2:
            refuses()

    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    assert _captured([kernel], rounds=1) is None
    calls = iter(range(100))
    monkeypatch.setattr(torch.cuda, "empty_cache", still_captures)
    with pytest.raises(DeviceBrokenError, match="captures_underway"):
        _captured([kernel], rounds=1)


def test_the_device_sleeps_while_a_graph_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launch time would lie between the two events otherwise."""
    done: list[str] = []

    class Event:
        def __init__(self, **options: object) -> None: ...

        def record(self) -> None:
            done.append("event")

        def synchronize(self) -> None: ...

        def elapsed_time(self, other: object) -> float:
            return 1.0

    class Graph:
        def replay(self) -> None:
            done.append("replay")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: done.append("sleep"))
    monkeypatch.setattr("validation.measure.timing._captured", lambda calls, rounds: Graph())
    case = Case(
        family="f", kernel="k", format="bf16", shape=Shape(), footprint_bytes=8, build=lambda copies: [lambda: None]
    )
    measured = measure_cuda(case, copies=1, budget_s=0.01, meter=Meter(nvml=None))
    assert measured.mode == "graph"
    samples = done[done.index("sleep") :]
    assert samples == ["sleep", "event", "replay", "event"] * (len(samples) // 4)


def test_attention_runs_the_kernel_that_its_row_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch takes another by default than the one that is timed (pytorch issue 142132)."""
    taken: list[SDPBackend] = []

    def pinned(backend: SDPBackend) -> nullcontext[None]:
        taken.append(backend)
        return nullcontext()

    monkeypatch.setattr("validation.measure.attention.sdpa_kernel", pinned)
    for kernel in BACKENDS:
        shape = Shape(sequences=1, query_tokens=2, context_tokens=2, num_heads=2, num_kv_heads=1, head_dim=8)
        for call in _calls(CPU, shape, kernel, torch.float32, 1):
            call()
    assert taken == list(BACKENDS.values())


def test_groups_are_chosen_by_their_whole_names() -> None:
    chosen = chosen_groups(GPU, seed=0, only=["gemm bf16"])
    assert [group.name for group in chosen] == ["gemm bf16"]
    assert {"gemm bf16_2_4", "grouped gemm bf16"} <= {group.name for group in chosen_groups(GPU, seed=0)}
    with pytest.raises(ValueError, match="no such group"):
        chosen_groups(GPU, seed=0, only=["gemm"])


def test_anchors_stand_at_both_ends_and_in_the_middle() -> None:
    names = [group.name for group in groups_in_order(GPU, seed=1)]
    places = [names.index(f"anchors {visit}") for visit in (1, 2, 3)]
    assert (places[0], places[2]) == (0, len(names) - 1)
    assert abs(places[1] - len(names) / 2) <= 2
    assert names[-2] == "sustained"
    assert sorted(names) == sorted(group.name for group in groups_in_order(GPU, seed=2))
    assert names != [group.name for group in groups_in_order(GPU, seed=2)]


def test_a_thin_run_takes_every_nth_case_of_a_group(tmp_path: Path) -> None:
    shapes_of = {}
    for every in ("1", "3"):
        path = tmp_path / f"{every}.csv"
        words = ["--device", "cpu", "--out", str(path), "--budget-s", "0.001", "--only", "launch", "--points", "9"]
        assert main([*words, "--every", every]) == 0
        shapes_of[every] = [row.groups for row in load_measurements(path).rows]
    assert shapes_of["3"] == shapes_of["1"][::3]
    assert len(shapes_of["1"]) == 4


def test_usage_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "m.csv")
    assert main(["--device", "cpu", "--out", out, "--budget-s", "0"]) == 2
    assert main(["--device", "cpu", "--out", str(tmp_path / "no" / "m.csv")]) == 5
    assert main(["--device", "cpu", "--out", out, "--budget-s", "1", "--only", "nothing"]) == 2
    assert main(["--device", "cpu", "--out", out, "--budget-s", "1", "--every", "0"]) == 2
    assert main(["--device", "gpu0", "--out", out]) == 2
    with pytest.raises(SystemExit):
        main(["--device", "cpu"])
    assert "required: --out" in capsys.readouterr().err
    assert main(["--device", "cpu", "--list"]) == 0
    assert "gemm bf16" in capsys.readouterr().out
    if not torch.cuda.is_available():
        assert main(["--device", "cuda", "--out", out]) == 2
        assert "--device cpu" in capsys.readouterr().err
    assert not Path(out).exists()


@pytest.mark.slow
def test_this_cpu_is_measured_over_all_its_families(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    assert main(["--device", "cpu", "--out", str(path), "--budget-s", "2"]) == 0
    with path.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert {"gemm", "prefill_attention", "decode_attention", "elementwise", "launch"} <= {
        item["family"] for item in rows
    }
    assert all(float(item["seconds"]) > 0 and int(item["repeats"]) >= 5 for item in rows)
    assert main(["--device", "cpu", "--out", str(path), "--budget-s", "2"]) == 5
