"""``roofcast model --fine-tune``: the memory of training as a table and as JSON."""

from __future__ import annotations

import json

import pytest

from simulator.cli.roofcast import app
from simulator.cli.shared import run
from simulator.specs.model.loading import load_model
from simulator.techniques.fine_tuning import fine_tuning_memory

METHODS = ("--fine-tune", "full", "--fine-tune", "lora:16", "--fine-tune", "qlora:16")


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(app, name="roofcast", arguments=("model", "llama-2-7b", *words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_json_is_what_the_library_says_and_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, *METHODS, "--context", "512", "--train-batch", "4", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)["fine_tuning"]
    assert [item["text"] for item in document["methods"]] == ["full", "lora:16", "qlora:16"]
    model = load_model("llama-2-7b")
    for item in document["methods"]:
        rank = None if item["method"] == "full" else 16
        expected = fine_tuning_memory(model, method=item["method"], rank=rank, sequences=4, tokens=512)
        parts = ("weights", "adapter", "gradient", "optimizer", "activation")
        assert item["total_bytes"] == expected.total_bytes == sum(item[f"{part}_bytes"] for part in parts)
    totals = [item["total_bytes"] for item in document["methods"]]
    assert totals == sorted(totals, reverse=True)
    assert document["methods"][0]["trained_share"] == 1


def test_the_table_follows_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, *METHODS)
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line}
    assert "parameters" in rows
    assert rows["full"].split()[1:3] == ["6.74", "B"]
    assert "total" in out
    assert "without runtime" in out


def test_without_it_nothing_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert "fine_tuning" not in json.loads(call(capsys, "--json")[1])


def test_less_state_takes_less_memory(capsys: pytest.CaptureFixture[str]) -> None:
    totals = [
        json.loads(call(capsys, "--fine-tune", "full", "--optimizer", name, "--json")[1])["fine_tuning"]["methods"][0][
            "optimizer_bytes"
        ]
        for name in ("mixed", "no_master", "half")
    ]
    assert totals[0] == 1.5 * totals[1] == 3 * totals[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fine-tune", "lora"), "rank: lora needs it"),
        (("--fine-tune", "lora:9999"), "not below the hidden size 4096"),
        (("--fine-tune", "full:3"), "full takes no sizes"),
        (("--train-batch", "3"), "--train-batch: has no effect without --fine-tune"),
        (("--optimizer", "half"), "--optimizer: has no effect without --fine-tune"),
        (("--fine-tune", "full", "--optimizer", "sgd"), "no_master"),
    ],
)
def test_refusals_are_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert said in err
