"""Memory to fine-tune: what is trained, what it takes, and what each method leaves out."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.operators.model_counts import parameter_counts
from simulator.specs.model.loading import load_model
from simulator.techniques.fine_tuning import NF4_DOUBLE_BITS, fine_tuning_memory

MODEL = load_model("llama-2-7b")
TOTAL = parameter_counts(MODEL).total


def test_sixteen_bytes_a_parameter_train_everything() -> None:
    whole = fine_tuning_memory(MODEL)
    assert whole.total_bytes == 16 * TOTAL
    assert fine_tuning_memory(MODEL, optimizer="no_master").total_bytes == 12 * TOTAL
    assert fine_tuning_memory(MODEL, optimizer="half").total_bytes == 8 * TOTAL
    assert fine_tuning_memory(MODEL, optimizer="eight_bit").total_bytes == (6 + 8 / 2048) * TOTAL
    assert whole.trained_parameters == TOTAL


def test_adapters_train_themselves_only() -> None:
    tuned = fine_tuning_memory(MODEL, method="lora", rank=16)
    assert tuned.trained_parameters == 16 * (8 * 4096 + 3 * (4096 + 11008)) * 32
    assert tuned.total_bytes == 2 * TOTAL + 16 * tuned.trained_parameters
    assert tuned.trained_parameters == fine_tuning_memory(MODEL, method="lora", rank=8).trained_parameters * 2
    attention = fine_tuning_memory(MODEL, method="lora", rank=16, targets="attention")
    assert attention.trained_parameters == 16 * 8 * 4096 * 32


def test_a_narrow_base_takes_four_bits_and_its_scales() -> None:
    assert abs(NF4_DOUBLE_BITS - 4.127) < 0.001
    narrow = fine_tuning_memory(MODEL, method="qlora", rank=16)
    blocks = TOTAL - 2 * 32000 * 4096 - 65 * 4096
    assert narrow.weights_bytes == pytest.approx(blocks * NF4_DOUBLE_BITS / 8 + (TOTAL - blocks) * 2)
    order = [
        fine_tuning_memory(MODEL, method=m, rank=r).total_bytes
        for m, r in (("qlora", 16), ("lora", 16), ("full", None))
    ]  # type: ignore[arg-type]
    assert order == sorted(order)


def test_activations_grow_with_tokens_and_biases_are_few() -> None:
    none, some, more = (
        fine_tuning_memory(MODEL, method="bitfit", sequences=count, tokens=512).activation_bytes for count in (0, 1, 2)
    )
    assert none == 0
    assert more == 2 * some > 0
    assert fine_tuning_memory(MODEL, method="bitfit").trained_parameters < 0.001 * TOTAL


def test_a_tuned_prompt_trains_its_vectors_and_lengthens_every_sequence() -> None:
    tuned = fine_tuning_memory(MODEL, method="prompt_tuning", prompt_tokens=20, sequences=4, tokens=492)
    assert tuned.trained_parameters == 20 * 4096
    plain = fine_tuning_memory(MODEL, sequences=4, tokens=512)
    assert tuned.activation_bytes == plain.activation_bytes
    assert fine_tuning_memory(MODEL, method="prompt_tuning", prompt_tokens=20).activation_bytes == 0


def test_what_has_no_effect_is_refused() -> None:
    with pytest.raises(RoofcastError, match="prompt_tokens: has no effect with full"):
        fine_tuning_memory(MODEL, prompt_tokens=8)
    with pytest.raises(RoofcastError, match="prompt_tokens: prompt_tuning needs it"):
        fine_tuning_memory(MODEL, method="prompt_tuning")
    with pytest.raises(RoofcastError, match="rank: has no effect with full"):
        fine_tuning_memory(MODEL, rank=8)
    with pytest.raises(RoofcastError, match="rank: lora needs it"):
        fine_tuning_memory(MODEL, method="lora")
