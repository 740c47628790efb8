"""``roofcast validate``: the stored scores, filtered, as text and JSON, and refusals that say what stands in."""

from __future__ import annotations

import json

import pytest

from simulator.cli import roofcast
from simulator.cli.entry import run
from simulator.reports.scorecard import kernel_scores
from simulator.specs.transfer import load_transfer_table


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
    ],
)
def test_refusals_are_one_line_and_name_the_way_out(capsys, words, code, parts):
    found, out, err = answered(capsys, *words)
    assert (found, out) == (code, "")
    assert len(err.strip().splitlines()) == 1
    for part in parts:
        assert part in err


def test_help_names_the_end_to_end_command(capsys):
    code, out, _ = answered(capsys, "--help")
    assert code == 0
    assert "validation.end_to_end" in out
