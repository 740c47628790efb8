"""Technique options of ``roofcast step`` and the command ``roofcast crossover``."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from simulator import step
from simulator.cli.roofcast import app
from simulator.errors import RoofcastError
from simulator.units import percent_text
from tests.for_every import for_every

MODEL = ["--model", "llama-3.1-8b"]


def document(*arguments: str) -> dict[str, object]:
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    parsed: dict[str, object] = json.loads(result.stdout)
    return parsed


def step_s(*arguments: str) -> float:
    value = document("step", *MODEL, *arguments)["step_s"]
    assert isinstance(value, float)
    return value


@for_every(
    [
        ["--scheme", "gptq-g128"],
        ["--sparsity", "2:4"],
        ["--contextual-sparsity", "attention=0.5,mlp=0.2"],
        ["--kv-cache", "int4"],
        ["--mixed", "lm_head=gptq-8bit"],
        ["--kv-policy", "streaming:256"],
        ["--structure", "num_key_value_heads=1"],
        ["--scheme", "gptq-g128", "--sparsity", "2:4"],
    ]
)
def test_each_option_makes_one_sequence_faster(arguments: list[str]) -> None:
    assert step_s(*arguments, "--context", "4096") < step_s("--context", "4096")


def test_the_kernel_family_matters() -> None:
    plain = step_s("--scheme", "gptq-g128", "--batch", "16")
    assert step_s("--scheme", "gptq-g128", "--batch", "16", "--kernel", "gptq") > plain


def test_techniques_stand_in_the_document() -> None:
    found = document("step", *MODEL, "--sparsity", "2:4:method=wanda")
    assert found["techniques"] == {"sparsity": {"pattern": "2:4", "method": "wanda", "compressed": False}}
    assert any("dense: lm_head" in str(note) for note in found["notes"])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["step", *MODEL, "--sparsity", "4:8"], "change nothing on h100"),
        (["step", *MODEL, "--phase", "prefill", "--speculation", "eagle:k=4"], "prompt pass"),
        (["step", *MODEL, "--mixed", "experts=fp8"], "no layers of the role"),
        (["crossover", *MODEL, "--formats", "bf16"], "two or more"),
        (["crossover", *MODEL, "--formats", "bf16,gptqq"], "--formats: unknown scheme 'gptqq' .did you mean"),
        (["crossover", *MODEL, "--formats", "bf17"], "--formats: unknown scheme 'bf17' .did you mean bf16"),
        (["published", "--topic", "formts"], "`topic`: no figure is of 'formts'; allowed: [^()]* .did you"),
        (["published", "--topic", "xyz"], "`topic`: no figure is of 'xyz'; allowed: [^()]* .all of them without it"),
        (["crossover", *MODEL, "--hardware", "a100", "--formats", "bf16,fp8"], "no fp8 matrix units"),
    ],
)
def test_bad_input_is_one_refusal(arguments: list[str], match: str) -> None:
    with pytest.raises(RoofcastError, match=match):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_crossover_says_who_wins_where() -> None:
    found = document("crossover", *MODEL, "--hardware", "a100", "--formats", "bf16,w8a8,gptq-g128")
    fastest = found["fastest"]
    assert isinstance(fastest, list)
    assert fastest[0] == "gptq-g128"
    assert fastest[-1] == "w8a8"
    pairs = {(pair["earlier"], pair["later"]): pair["batch"] for pair in found["crossovers"]}  # type: ignore[attr-defined]
    assert 16 < pairs["gptq-g128", "w8a8"] < pairs["gptq-g128", "bf16"]
    shown = CliRunner().invoke(app, ["crossover", *MODEL, "--hardware", "a100"], catch_exceptions=False).stdout
    assert "fp8 left out" in shown
    assert "gptq-g128 beats w8a8 up to" in shown


def test_crossover_says_up_to_which_batch_speculation_pays() -> None:
    guesses = ("--speculation", "ngram:k=6,acceptance=0.5")
    arguments = ("crossover", *MODEL, "--hardware", "h100", "--formats", "bf16,fp8", *guesses)
    for entry in document(*arguments)["formats"]:  # type: ignore[attr-defined]
        gain, batches = entry["speculation"], [1, 4, 16, 32, 64, 128, 256, 512, 1024]
        assert gain["speedup"][0] > 1.5
        assert min(gain["best_speedup"]) >= 1
        pays = [batch < gain["break_even_batch"] for batch in batches]
        assert [speedup > 1 for speedup in gain["speedup"]] == pays
    shown = CliRunner().invoke(app, arguments, catch_exceptions=False).stdout
    assert "speculation pays with fp8 up to" in shown


def test_crossover_without_speculation_says_nothing_of_it() -> None:
    assert all("speculation" not in entry for entry in document("crossover", *MODEL)["formats"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("batch", [1, 3, 24])
def test_notes_on_a_batch_are_those_of_the_batch_that_was_asked_for(batch: int) -> None:
    exit_note, *_ = document("step", *MODEL, "--early-exit", "mean_fraction=0.6", "--batch", str(batch))["notes"]  # type: ignore[misc]
    assert (f"a batch of {batch} runs" in exit_note) == (batch > 1)
    flags = ("--contextual-sparsity", "attention=0.5,mlp=0.2,correlation=0", "--batch", str(batch))
    chosen, *_ = document("step", "--model", "opt-6.7b", *flags)["notes"]  # type: ignore[misc]
    shares = [1 - (1 - share) ** batch for share in (0.5, 0.2)]
    assert f"{percent_text(shares[0])} of the heads and {percent_text(shares[1])} of the" in chosen
    assert (f"a batch of {batch} tokens" in chosen) == (batch > 1)


def test_a_model_that_does_not_fit_says_so_first() -> None:
    large = ["--model", "opt-175b", "--hardware", "a6000"]
    found = document("step", *large)
    assert found["fits"] is False
    first = CliRunner().invoke(app, ["step", *large]).stdout.splitlines()[0]
    assert first.startswith("opt-175b does not fit a6000 at tp 1: a device is ")
    assert document("step", *MODEL)["fits"] is True


@pytest.mark.parametrize(
    ("arguments", "field", "words"),
    [
        (["--weights", "int1"], "precision.weights", "no kernel"),
        (["--weights", "fp8_e5m2"], "precision.weights", "E4M3"),
        (["--activations", "e5m2"], "precision.activations", "E4M3"),
    ],
)
def test_formats_that_nothing_multiplies_are_refused(arguments: list[str], field: str, words: str) -> None:
    with pytest.raises(RoofcastError) as caught:
        document("step", *MODEL, *arguments)
    assert caught.value.field == field
    assert words in str(caught.value)
    assert "None" not in str(caught.value)


def test_a_cache_is_kept_in_either_eight_bit_float() -> None:
    assert step_s("--kv-cache", "fp8_e5m2") == step_s("--kv-cache", "fp8")


def test_a_scheme_says_which_kernels_its_paper_ran() -> None:
    large = ("step", "--model", "opt-13b", "--hardware", "a100", "--phase", "prefill")
    told = [text for text in document(*large, "--scheme", "smoothquant")["assumptions"] if "torch-int" in text]  # type: ignore[attr-defined]
    assert len(told) == 1
    asked = document(*large, "--scheme", "smoothquant", "--kernel", "torch-int")
    assert not any("its paper's" in text for text in asked["assumptions"])  # type: ignore[attr-defined]


def test_sequences_that_the_cache_does_not_hold_are_said_before_their_times() -> None:
    """1,024 contexts of 2,048 tokens of Llama-3.1-8B are 275 GB: 128 KiB a token by hand."""
    asked = {"model": "llama-3.1-8b", "hardware": "h100", "context_tokens": 2048}
    many, few = step(**asked, batch_size=1024), step(**asked, batch_size=128)  # type: ignore[arg-type]
    assert many.to_text().startswith(
        "1,024 sequences of 2,048 tokens do not fit h100-sxm-80gb at tp 1: the KV cache holds"
    )
    most = many.to_dict()["most_sequences"]
    assert most == few.to_dict()["most_sequences"]
    left = many.step.memory.kv_capacity_bytes
    assert most == left // (2048 * 131072)
    assert few.to_text().startswith("decode step of")
    encoder = step(model="bert-base", hardware="h100", phase="prefill", batch_size=64, context_tokens=128)
    assert encoder.to_dict()["most_sequences"] is None
