"""Fine-tuning methods as text."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.specs.question.techniques import AdaptersSpec
from simulator.specs.question.techniques_text import parse_fine_tune


@pytest.mark.parametrize(
    ("text", "adapters"),
    [
        ("full", None),
        ("lora:16", AdaptersSpec(method="lora", rank=16)),
        (" qlora:rank=64,targets=attention ", AdaptersSpec(method="qlora", rank=64, targets="attention")),
        ("bitfit", AdaptersSpec(method="bitfit")),
        ("prompt_tuning:20", AdaptersSpec(method="prompt_tuning", prompt_tokens=20)),
    ],
)
def test_a_word_and_its_sizes(text: str, adapters: AdaptersSpec | None) -> None:
    found = parse_fine_tune(text)
    assert found.adapters == adapters
    assert found.method == (adapters.method if adapters else "full")
    assert found.text == text.strip()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is empty"),
        ("full:16", "full takes no sizes"),
        ("lorra:16", "'lorra' is not allowed"),
        ("lora:16,count=3", "count has no effect"),
        ("lora:rank=0", "rank"),
        ("lora:16,16", "not key=value"),
    ],
)
def test_refusals_name_the_option(text: str, part: str) -> None:
    with pytest.raises(RoofcastError, match=part) as refusal:
        parse_fine_tune(text)
    assert refusal.value.field == "fine_tune"
