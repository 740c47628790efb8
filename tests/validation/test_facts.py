"""Facts of the profiles: origins are recognised, ages count, and figures that cannot both be right are found."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest

from simulator.specs.hardware.accelerator import load_hardware, load_server
from simulator.specs.model.precision import Dtype
from simulator.specs.money.prices import load_prices
from simulator.units import GIGA
from validation.facts import contradictions as rules
from validation.facts.__main__ import main
from validation.facts.origins import Fact, Origin, all_facts, day_of, facts_of
from validation.facts.summary import counted, headline, readme_line

TODAY = date(2026, 11, 22)
ANSWERS = Path(rules.__file__).with_name("corrections.csv")
CORRECTIONS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "fact_corrections.csv"


def fact(
    source: str, *, note: str = "", folder: str = "hardware", day: str = "2026-01-01", announced: bool = False
) -> Fact:
    return Fact(
        folder=folder, profile="x", field="f", source=source, dated=day, note=note, assumed=False, announced=announced
    )


@pytest.mark.parametrize(
    ("source", "note", "origin"),
    [
        ("docs.cloud.google.com/tpu/docs/tpu7x", "", Origin.SOURCED),
        ("moto 5.2.5, instance_types.json", "", Origin.SOURCED),
        ("NVIDIA A40 datasheet", "", Origin.NAMED),
        ("NVIDIA A40 datasheet", "from memory of the datasheet, verify", Origin.MEMORY),
        ("assumed", "usual build", Origin.ASSUMED),
        ("assumed", "press figure, from memory", Origin.MEMORY),
    ],
)
def test_an_origin_is_read_off_its_source(source: str, note: str, origin: Origin) -> None:
    assert fact(source, note=note).origin is origin


def test_offers_and_announced_parts_age_and_datasheets_do_not() -> None:
    assert fact("page", folder="prices").is_stale(TODAY)
    assert not fact("page", folder="prices", day="2026-10-01").is_stale(TODAY)
    assert fact("page", announced=True).is_stale(TODAY)
    assert not fact("page", day="2020-05-14").is_stale(TODAY)


def test_a_month_is_a_date_and_a_quarter_is_none() -> None:
    assert day_of("2023-02") == date(2023, 2, 1)
    with pytest.raises(ValueError, match="2023-Q1"):
        day_of("2023-Q1")


def test_every_file_is_counted_once() -> None:
    facts = all_facts()
    found = counted(facts, today=TODAY)
    assert found.total == len(facts) == sum(found.by_origin.values()) > 1800
    assert {"hardware", "servers", "engines", "prices", "ownership", "models"} == {item.folder for item in facts}
    assert f"{found.total:,}" in headline(found)
    assert "`python -m validation.facts`" in readme_line()


def test_built_in_profiles_hold_no_contradiction(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "from memory"]) == 0
    assert "contradictions: none" in capsys.readouterr().out


def test_a_broken_accelerator_is_named_by_field() -> None:
    spec = load_hardware("h100")
    bf16 = spec.peak_flops_per_s[Dtype.BF16]
    broken: dict[str, dict[str, object]] = {
        "fp8 is 1 times bf16": {"peak_flops_per_s": {**spec.peak_flops_per_s, Dtype.FP8: bf16}},
        "3 times the dense rate": {"sparse_peak_flops_per_s": {Dtype.BF16: 3 * bf16}},
        "neither GB nor GiB": {"memory_bytes": 82.3 * GIGA},
        "exceeds 80 GiB": {"memory_visible_bytes": 90 * GIGA},
        "is outside": {"memory_bytes_per_s": 3.35 * GIGA},
    }
    assert list(rules.of_accelerator(spec)) == []
    for said, change in broken.items():
        assert any(said in line for line in rules.of_accelerator(spec.model_copy(update=change))), said


@pytest.mark.parametrize(("field", "value"), [("system_power_max_w", 700.0), ("scale_up_domain_size", 4)])
def test_a_broken_server_is_named_by_field(field: str, value: float) -> None:
    server = load_server("dgx-h100")
    assert list(rules.of_server(server)) == []
    assert any(field in line for line in rules.of_server(server.model_copy(update={field: value})))


def test_exceptions_are_still_needed() -> None:
    """An exception that nothing breaks any more would hide the next error."""
    keys = {key for key, _ in rules.EXCEPTIONS} | {key for key, _ in rules.SPARSE_EXCEPTIONS}
    specs = [load_hardware(item.profile) for item in all_facts() if item.folder == "hardware"]
    assert keys <= {spec.name for spec in specs} | {spec.architecture for spec in specs}


def test_a_future_date_and_a_missing_one_are_contradictions(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("sources:\n  a: {source: s/x, date: '2031-01-01'}\n  b: {source: s/x}\n", encoding="utf-8")
    found = rules.contradictions(tuple(facts_of(path, folder="hardware")), today=TODAY)
    assert [line for line in found if line.startswith("hardware/x")] == [
        "hardware/x: a: dated 2031-01-01, after 2026-11-22",
        "hardware/x: b: no date",
    ]


def offered(row: Mapping[str, str]) -> bool:
    """Whether a price of the row, or one of several, stands in the price list for its hardware."""
    hardware = re.match(r"offers\[\+?([a-z0-9-]+)", row["field"])
    prices = [
        price
        for offer in load_prices("default").offers
        if hardware and offer.hardware == hardware[1]
        for price in (offer.per_hour, offer.per_device)
        if price is not None
    ]
    said = [float(text.replace(",", "")) for text in re.findall(r"(?<![\w.])\d[\d,]*\.?\d*(?!\w)", row["correct"])]
    return any(abs(price / amount - 1) < 0.01 for price in prices for amount in said if amount)


def test_every_correction_is_applied_or_says_why_not() -> None:
    """Of prices each row is looked for among the offers, of all others the answers say it."""
    with ANSWERS.open(encoding="utf-8", newline="") as file:
        answers = list(csv.DictReader(file))
    assert all(row["answer"] == "applied" or (row["answer"] == "kept" and row["reason"]) for row in answers)
    if not CORRECTIONS.is_file():
        pytest.skip("the corrections are not beside this checkout")
    with CORRECTIONS.open(encoding="utf-8", newline="") as file:
        asked = list(csv.DictReader(file))
    open_rows = {(row["file"], row["field"]) for row in asked if "/prices/" not in row["file"] or not offered(row)}
    assert open_rows == {(row["file"], row["field"]) for row in answers}
