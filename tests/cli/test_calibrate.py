"""``roofcast calibrate``: known overheads and parameters come back, refusals write nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulator.cli.roofcast import app
from simulator.cli.shared import run
from simulator.engine.uniform.loop_requests import LoopLengths
from simulator.engine.uniform.loops import closed_loop
from simulator.fitting.measured_work import measured_work
from simulator.kernels.library import kernel_library
from simulator.phases.deployment import deploy
from simulator.specs.engine.engine import load_engine
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.measured.kernel_times import REQUIRED_COLUMNS, MeasuredKernel, load_measurements
from simulator.specs.model.loading import load_model

DATA = Path(__file__).resolve().parents[1] / "data" / "serving_results"
STEP_S, REQUEST_S = 1.4e-3, 9e-3
MACHINE = "graph,GPU A,555.1,2.13.0,2026-12-01"


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(app, name="roofcast", arguments=words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def measured_csv(path: Path, *, shapes: int = 40) -> Path:
    """Products whose times follow launch 6 us, 50 % of the peak and 70 % of the bandwidth of an H100."""
    hardware = load_hardware("h100")
    lines = [",".join(REQUIRED_COLUMNS)]
    for index in range(shapes):
        m, n, k = 2 ** (index % 14), 512 * (1 + index % 7), 1024 * (1 + index % 5)
        zeros = dict.fromkeys(REQUIRED_COLUMNS[6:15], 0.0)
        row = MeasuredKernel(
            line=0, family="gemm", kernel="linear", format="bf16", seconds=1.0, mode="", m=m, n=n, k=k, **zeros
        )
        work = measured_work(row)
        assert work is not None
        compute_s = float(work.flops[0]) / (0.5 * hardware.peak_flops_per_s["bf16"])  # type: ignore[index]
        seconds = 6e-6 + max(compute_s, float(work.bytes[0]) / (0.7 * hardware.memory_bytes_per_s))
        lines.append(f"gemm,linear,bf16,{m},{n},{k},,,,,,,,,,{seconds:.6g},{MACHINE}")
    path.write_text("\n".join(lines) + "\n")
    return path


def bench_json(path: Path, *, concurrency: int = 8, **updates: Any) -> Path:
    """What vllm bench would have measured had the engine's overheads been STEP_S and REQUEST_S."""
    deployment = deploy(model=load_model("llama-3.1-8b"), hardware=load_hardware("h100"))
    overheads = deployment.engine.overheads.model_copy(update={"step_s": STEP_S, "request_s": REQUEST_S})
    slower = replace(deployment, engine=replace(deployment.engine, overheads=overheads))
    data = json.loads((DATA / "vllm_bench.json").read_text("utf-8"))
    lengths = LoopLengths(isl_tokens=512, osl_tokens=128)
    result = closed_loop(slower, concurrency=concurrency, lengths=lengths, num_requests=data["completed"])
    data |= {"max_concurrency": concurrency, "duration": data["completed"] / result.requests_per_s}
    data |= {"mean_ttft_ms": result.ttft_s * 1e3, "mean_tpot_ms": result.tpot_s * 1e3, **updates}
    path.write_text(json.dumps(data))
    return path


def test_kernels_come_back_and_the_profile_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    csv = measured_csv(tmp_path / "m.csv")
    out = tmp_path / "mine"
    words = ("calibrate", str(csv), "--hardware", "h100", "--out", str(out))
    code, printed, errors = call(capsys, *words)
    assert code == 0, errors
    assert "before, 0." in printed
    assert "launch 6 us, compute 50 %, memory 70 %" in printed
    written = (out / "calibration" / "h100-sxm-80gb--torch.roofline.yaml").read_text("utf-8")
    assert "GPU A, driver 555.1, torch 2.13.0" in written
    assert "'2026-12-01'" in written
    question = ("step", "--model", "llama-3.1-8b", "--engine", "torch", "--batch", "4", "--json")
    before = json.loads(call(capsys, *question)[1])["breakdown_s"]["gemm"]
    after = json.loads(call(capsys, *question, "--profiles", str(out))[1])["breakdown_s"]["gemm"]
    assert after != before
    code, _, errors = call(capsys, *words)
    assert code == 5
    assert "--force" in errors
    assert call(capsys, *words, "--force")[0] == 0


def test_whole_layers_and_models_are_checked_and_not_fitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    csv = measured_csv(tmp_path / "m.csv")
    words = ("--hardware", "h100", "--out")
    call(capsys, "calibrate", str(csv), *words, str(tmp_path / "plain"))
    steps = [
        f"{family},{phase},bf16,,,,,32,{tokens},{context},,,,,{layers},0.002,{mode}{MACHINE.removeprefix('graph')}"
        for family, layers in (("whole_layer", 1), ("whole_model", 32))
        for phase, tokens, context in (("prefill", 512, ""), ("decode", 1, 1024))
        for mode in ("graph", "eager")
    ]
    csv.write_text(csv.read_text("utf-8") + "\n".join(steps) + "\n")
    code, printed, errors = call(capsys, "calibrate", str(csv), *words, str(tmp_path / "whole"))
    assert code == 0, errors
    checked = [line for line in printed.splitlines() if "not fitted: error" in line]
    assert [line.split(":")[0] for line in checked] == [
        f"whole {what} {phase} of llama-3.1-8b bf16" for what in ("layer", "model") for phase in ("prefill", "decode")
    ]
    for line in checked:
        before, after = line.split("error ")[1].split(" before, ")
        assert before != after.split(" after")[0]
    name = "calibration/h100-sxm-80gb--torch.roofline.yaml"
    assert (tmp_path / "whole" / name).read_text("utf-8") == (tmp_path / "plain" / name).read_text("utf-8")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("seconds", "time", ("seconds", "row 1")),
        ("", "nan", ("seconds", "row 2")),
        ("GPU A,", "GPU B,", ("device", "row 3", "mixed")),
        ("2026-12-01", "2020-01-01", ("date", "bandwidth")),
    ],
)
def test_bad_files_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, words: tuple[str, ...]
) -> None:
    csv = measured_csv(tmp_path / "m.csv")
    text = csv.read_text("utf-8")
    if new == "nan":
        lines = text.splitlines()
        cells = lines[1].split(",")
        cells[REQUIRED_COLUMNS.index("seconds")] = new
        text = "\n".join([lines[0], ",".join(cells), *lines[2:]])
    else:
        text = text.replace(old, new, 1 if old != "2026-12-01" else -1)
    csv.write_text(text)
    code, printed, errors = call(capsys, "calibrate", str(csv), "--hardware", "h100", "--out", str(tmp_path / "o"))
    assert code == 2
    assert printed == ""
    for word in words:
        assert word in errors
    assert not (tmp_path / "o").exists()


def test_too_few_points_and_wrong_hardware_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "o"
    few = measured_csv(tmp_path / "few.csv", shapes=9)
    code, _, errors = call(capsys, "calibrate", str(few), "--hardware", "h100", "--out", str(out))
    assert code == 2
    assert "family: row 2: 9 points of gemm bf16" in errors
    csv = measured_csv(tmp_path / "m.csv")
    code, _, errors = call(capsys, "calibrate", str(csv), "--hardware", "l4", "--out", str(out))
    assert code == 2
    assert "times the bf16 peak of l4" in errors
    assert call(capsys, "calibrate", str(csv), "--hardware", "h1000", "--out", str(out))[0] == 4
    code, _, errors = call(capsys, "calibrate", str(csv), "--hardware", "h100", "--only", "moe", "--out", str(out))
    assert code == 2
    assert "gemm/bf16" in errors
    assert not out.exists()


def test_a_family_with_too_few_points_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv = measured_csv(tmp_path / "m.csv")
    lines = csv.read_text("utf-8").splitlines()
    csv.write_text("\n".join([*lines, *(line.replace(",bf16,", ",fp8,") for line in lines[1:6])]) + "\n")
    code, printed, errors = call(capsys, "calibrate", str(csv), "--hardware", "h100", "--out", str(tmp_path / "o"))
    assert code == 0, errors
    assert "not fitted: " in printed
    assert "5 points of gemm fp8" in printed
    assert "wrote " in printed


def test_a_fit_that_is_worse_than_the_one_in_force_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times made by the fits in force themselves: three parameters cannot come closer to them."""
    found = load_measurements(measured_csv(tmp_path / "shapes.csv"))
    kernels = kernel_library(load_hardware("h100"), library="torch")
    header = ",".join(REQUIRED_COLUMNS)
    lines = []
    for item in found.rows:
        work = measured_work(item)
        assert work is not None
        seconds = float(kernels.price(work).seconds[0])
        lines.append(f"gemm,linear,bf16,{item.m:g},{item.n:g},{item.k:g},,,,,,,,,,{seconds!r},{MACHINE}")
    csv = tmp_path / "own.csv"
    csv.write_text("\n".join([header, *lines]) + "\n")
    out = tmp_path / "o"
    code, printed, errors = call(capsys, "calibrate", str(csv), "--hardware", "h100", "--out", str(out))
    assert code == 0, errors
    assert "not used: the fits in force are closer" in printed
    assert "wrote" not in printed
    assert not out.exists()


def test_known_overheads_come_back_from_a_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = bench_json(tmp_path / "b.json")
    words = ("--model", "llama-3.1-8b", "--hardware", "h100", "--out", str(tmp_path / "mine"))
    code, printed, errors = call(capsys, "calibrate", "--from", str(bench), *words)
    assert code == 0, errors
    overheads = load_engine("vllm", profiles=str(tmp_path / "mine")).overheads
    assert overheads.step_s == pytest.approx(STEP_S, rel=0.02)
    assert overheads.request_s == pytest.approx(REQUEST_S, rel=0.02)
    assert "+0.0 % after" in printed or "-0.0 % after" in printed
    kept = load_engine("vllm").overheads.model_copy(update={"step_s": 0.0, "request_s": 0.0})
    assert overheads.model_copy(update={"step_s": 0.0, "request_s": 0.0}) == kept


def test_several_runs_make_one_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [bench_json(tmp_path / f"{size}.json", concurrency=size) for size in (1, 4)]
    words = [word for path in files for word in ("--from", str(path))]
    options = ("--model", "llama-3.1-8b", "--hardware", "h100", "--out", str(tmp_path / "mine"))
    assert call(capsys, "calibrate", *words, *options)[0] == 0
    assert load_engine("vllm", profiles=str(tmp_path / "mine")).overheads.step_s == pytest.approx(STEP_S, rel=0.02)


@pytest.mark.parametrize(
    ("updates", "field"),
    [
        ({"mean_tpot_ms": 1.0}, "tpot"),
        ({"mean_ttft_ms": 0.1}, "ttft"),
        ({"request_rate": 1000.0, "max_concurrency": None}, "request_rate"),
    ],
)
def test_what_no_overhead_explains_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], updates: dict[str, Any], field: str
) -> None:
    bench = bench_json(tmp_path / "b.json", **updates)
    words = ("--model", "llama-3.1-8b", "--hardware", "h100", "--out", str(tmp_path / "o"))
    code, _, errors = call(capsys, "calibrate", "--from", str(bench), *words)
    assert code == 2
    assert errors.startswith(f"roofcast: {field}:")
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ((), "measured.csv"),
        (("m.csv",), "--hardware"),
        (("m.csv", "--hardware", "h100", "--model", "llama-3.1-8b"), "--model"),
        (("--from", "b.json", "--hardware", "h100", "--model", "llama-3.1-8b", "--only", "gemm"), "--only"),
        (("m.csv", "--from", "b.json", "--hardware", "h100", "--model", "llama-3.1-8b"), "measured.csv"),
    ],
)
def test_options_that_do_nothing_are_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], field: str
) -> None:
    code, _, errors = call(capsys, "calibrate", *words)
    assert code == 2
    assert errors.startswith(f"roofcast: {field}:")
