"""``roofcast validate``: the stored scores, filtered, as text and JSON, and refusals that say what stands in."""

from __future__ import annotations

import json

import pytest

from simulator.cli import roofcast
from simulator.cli.shared import run
from simulator.specs.hardware.calibration import load_transfer_table
from simulator.specs.measured.scores import kernel_scores
from simulator.specs.measured.validation_rows import load_validation_table


def answered(capsys, *words: str) -> tuple[int, str, str]:
    code = run(roofcast.app, name="roofcast", arguments=("validate", *words))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_json_holds_the_same_numbers_as_the_library(capsys):
    code, out, err = answered(capsys, "--hardware", "h100", "--library", "vllm", "--json")
    document = json.loads(out)
    assert (code, err, document["schema_version"]) == (0, "", "1.0")
    rows = kernel_scores("vllm", hardware="h100-sxm-80gb")
    assert [(row["family"], row["format"], row["mape"]) for row in document["kernels"]] == [
        (row.family, row.format, row.mape) for row in rows
    ]
    assert {row["target"] for row in document["left_out"]} == {"h100-sxm-80gb"}


def test_text_lists_every_library_and_the_accelerators_left_out(capsys):
    code, out, _ = answered(capsys)
    assert code == 0
    for library in ("vllm", "sglang", "trtllm", "nccl"):
        assert f"  {library}  " in out
    for row in load_transfer_table().nearest:
        assert any(line.split()[:2] == [row.target, row.relative] for line in out.splitlines())


def test_libraries_may_be_named_more_than_once(capsys):
    _, out, _ = answered(capsys, "--library", "nccl", "--library", "trtllm", "--json")
    assert {row["library"] for row in json.loads(out)["kernels"]} == {"nccl", "trtllm"}


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        (("--library", "vlm"), 2, ("--library", "'vlm'", "vllm")),
        (("--hardware", "h1000"), 4, ("h1000", "h100")),
        (("--hardware", "l4"), 2, ("no kernel of l4", "l40s", "roofcast calibrate")),
        (("--hardware", "h100", "--library", "torch"), 2, ("h100-sxm-80gb", "torch")),
        (("--part", "end-to-end", "--library", "vllm"), 2, ("--library", "no effect on end-to-end")),
        (("--part", "end-to-end", "--hardware", "l4"), 2, ("no end-to-end run on l4", "a100-sxm-40gb")),
        (("--mode", "aggregated"), 2, ("--mode", "no effect without --today")),
        (("--anew",), 2, ("--anew", "no effect without --today")),
        (("--model", "m"), 2, ("--model", "no effect without --from")),
        (("--today", "--part", "kernels"), 2, ("--part", "no effect with --today")),
        (("--today", "--tp", "2"), 2, ("--tp", "no effect with --today")),
        (("--from", "r.json", "--today"), 2, ("--today", "no effect with --from")),
        (("--today", "--hardware", "l4"), 2, ("--hardware", "no run with 'l4'", "b200-sxm")),
        (("--today", "--mode", "aggregate"), 2, ("--mode", "did you mean aggregated")),
        (("--part", "kernels", "--hardware", "a100-sxm-40gb"), 2, ("no kernel of a100-sxm-40gb",)),
        (("--part", "fleet"), 2, ("--part", "end-to-end")),
    ],
)
def test_refusals_are_one_line_and_name_the_way_out(capsys, words, code, parts):
    found, out, err = answered(capsys, *words)
    assert (found, out) == (code, "")
    assert len(err.strip().splitlines()) == 1
    for part in parts:
        assert part in err


def test_end_to_end_scores_are_those_of_the_stored_rows(capsys):
    code, out, _ = answered(capsys, "--part", "end-to-end", "--json")
    document = json.loads(out)
    table = load_validation_table()
    assert code == 0
    assert set(document) == {"schema_version", "end_to_end"}
    found = document["end_to_end"]
    assert (found["date"], found["version"]) == (table.date, table.version)
    assert sum(row["runs"] for row in found["scores"]) == len(table.rows)
    for row in found["scores"]:
        same = [
            item
            for item in table.rows
            if (item.source, item.hardware, item.metric) == (row["source"], row["hardware"], row["metric"])
        ]
        errors = sorted(abs(item.predicted / item.measured - 1) for item in same)
        assert row["runs"] == len(same)
        assert row["mean"] == pytest.approx(sum(errors) / len(errors))
        assert row["median"] <= row["p95"] <= errors[-1] + 1e-12
        assert abs(row["bias"]) <= row["mean"] + 1e-12
        covered = [item.low <= item.measured <= item.high for item in same if item.low == item.low]
        assert row["coverage"] == (pytest.approx(sum(covered) / len(covered)) if covered else None)


def test_both_parts_say_when_and_by_what_they_were_predicted(capsys):
    code, out, _ = answered(capsys, "--hardware", "h100")
    table = load_validation_table()
    assert code == 0
    assert "Kernels: mean error" in out
    assert f"predicted on {table.date} by roofcast {table.version}" in out
    assert any(line.startswith("tensorrt-llm") and " h100-sxm-80gb " in line for line in out.splitlines())


def test_an_accelerator_measured_in_one_way_only_says_what_is_missing(capsys):
    _, whole_runs, _ = answered(capsys, "--hardware", "a100-sxm-40gb")
    assert "Kernels: none of a100-sxm-40gb was measured" in whole_runs
    assert "argonne" in whole_runs
    _, kernels_only, _ = answered(capsys, "--hardware", "b300")
    assert "End to end: no run on b300-sxm is stored" in kernels_only


def test_a_library_asks_for_kernels_alone(capsys):
    _, out, _ = answered(capsys, "--library", "nccl")
    assert "End to end" not in out


def test_help_names_the_end_to_end_command(capsys):
    code, out, _ = answered(capsys, "--help")
    assert code == 0
    assert "validation.end_to_end" in out
