"""Every built-in accelerator, server and price: complete, sourced, plausible, and in agreement with the fact table."""

from __future__ import annotations

import csv
import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pytest

from simulator.specs.base import read_yaml
from simulator.specs.hardware.accelerator import (
    DESKTOP,
    AcceleratorSpec,
    LinkSpec,
    ServerSpec,
    default_server_for,
    list_hardware,
    list_offered_hardware,
    load_hardware,
    load_server,
    nearest_hardware,
)
from simulator.specs.model.precision import BITS, Dtype
from simulator.specs.money.prices import load_prices
from simulator.specs.profiles import find_profile, list_profiles, profile_root
from simulator.units import GIB, GIGA, KILO, MEGA, MIB, TERA
from tests.for_every import for_every

ROOT = profile_root("hardware_profiles")
FACTS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "hardware_facts.csv"
READ_ON = "2026-11-26"

CONTRACT_NAMES = [
    "a100-sxm-80gb", "a100-sxm-40gb", "a100-pcie-80gb", "h100-sxm-80gb", "h100-pcie-80gb", "h100-nvl-94gb",
    "h200-sxm-141gb", "h20-96gb", "h800-sxm-80gb", "l40s", "l4", "a10", "a10g", "a40", "t4", "v100-sxm-32gb",
    "rtx-4090", "rtx-5090", "rtx-6000-ada", "rtx-pro-6000", "b200-sxm", "b300-sxm", "gb200", "gb300", "mi250x",
    "mi300x", "mi325x", "mi355x", "gaudi2", "gaudi3", "tpu-v5e", "tpu-v5p", "tpu-v6e", "trainium2",
]  # fmt: skip
CONTRACT_ALIASES = {"a100": "a100-sxm-80gb", "h100": "h100-sxm-80gb", "h200": "h200-sxm-141gb", "b200": "b200-sxm"}
HARDWARE = list_hardware()
SERVERS = list_profiles("servers")

# Dense bf16 (fp16 where there is none) matrix FLOP per clock and SM with FP32 accumulation, from the architecture
# white papers; GeForce boards and A10G run at half of their silicon's rate.
FLOP_PER_CLOCK = {"volta": 1024, "turing": 1024, "ampere": 1024, "ada": 1024, "hopper": 4096, "blackwell-rtx": 1024}
FLOP_PER_CLOCK |= {"blackwell": 8192, "blackwell-ultra": 8192}
CAPPED_FOR_EXPORT = ("h20-96gb", "h20-141gb", "l20")  # far below their silicon
NUMERIC_FIELDS = [
    "peak_flops_per_s", "sparse_peak_flops_per_s", "vector_flops_per_s", "library_flops_per_s",
    "memory_bytes", "memory_visible_bytes",
    "memory_bytes_per_s", "l2_bytes", "compute_units", "boost_clock_hz", "scale_up", "host_link", "tdp_w",
    "idle_w", "host_speed",
]  # fmt: skip
SERVER_FIELDS = [
    "accelerators_per_server", "system_power_max_w", "system_power_typical_w", "rack_units",
    "scale_up_domain_size", "peer_link", "nic", "nics_per_server", "host_memory_bytes", "weight_kg", "cooling",
]  # fmt: skip


def _profile_files() -> list[Path]:
    return [*sorted(ROOT.glob("*.yaml")), *sorted(ROOT.glob("servers/*.yaml")), *sorted(ROOT.glob("prices/*.yaml"))]


@pytest.fixture(autouse=True)
def _no_profiles_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROOFCAST_PROFILES", raising=False)


def _main_peak(spec: AcceleratorSpec) -> float:
    peaks = spec.peak_flops_per_s
    return peaks[Dtype.BF16] if Dtype.BF16 in peaks else peaks[Dtype.FP16]


def test_every_name_of_the_contract_loads() -> None:
    assert set(CONTRACT_NAMES) <= set(HARDWARE)
    assert {"rtx-3090", "a6000"} <= set(HARDWARE)
    for alias, name in CONTRACT_ALIASES.items():
        assert load_hardware(alias).name == name


def test_the_alias_index_is_what_the_profiles_say() -> None:
    index = read_yaml(ROOT / "aliases.yaml")
    hardware = {alias: name for name in HARDWARE for alias in load_hardware(name).aliases}
    servers = {alias: name for name in SERVERS for alias in load_server(name).aliases}
    assert index["hardware"] == hardware
    assert index["servers"] == servers
    listed = [alias for name in HARDWARE for alias in load_hardware(name).aliases]
    assert max(Counter(listed).values()) == 1, "an alias stands for one accelerator"
    assert not set(listed) & set(HARDWARE)


def test_the_index_names_what_a_search_leaves_out() -> None:
    reasons = {name: load_hardware(name).only_when_named for name in HARDWARE}
    assert read_yaml(ROOT / "aliases.yaml")["only_when_named"] == {name: why for name, why in reasons.items() if why}
    assert {"vr200", "mi455x", "ascend-950pr"} <= {name for name, why in reasons.items() if why == "announced"}
    assert set(list_offered_hardware()) == {name for name, why in reasons.items() if not why}


def test_a_search_keeps_what_the_user_brought(tmp_path: Path) -> None:
    """A profile of one's own is one's own to buy, whatever the built-in one of that name says."""
    (tmp_path / "vr200.yaml").write_text((ROOT / "vr200.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    assert "vr200" in list_offered_hardware(profiles=tmp_path)


@for_every(_profile_files)
def test_numbers_are_numbers_in_the_raw_yaml(path: Path) -> None:
    """PyYAML reads ``3.35e12`` as text, which pydantic would quietly accept."""
    numeric = re.compile(r"^[-+]?[0-9.]+(e[-+]?[0-9]+)?$", re.IGNORECASE)

    def texts(value: object) -> list[str]:
        if isinstance(value, dict):
            return [text for key, inner in value.items() if key not in ("aliases", "date") for text in texts(inner)]
        if isinstance(value, list):
            return [text for inner in value for text in texts(inner)]
        return [value] if isinstance(value, str) else []

    assert [text for text in texts(read_yaml(path)) if numeric.match(text)] == []
    for field, value in read_yaml(path).items():
        if field.endswith(("_w", "_bytes", "_per_s", "_hz", "_units")) and field != "compute_units":
            values = value.values() if isinstance(value, dict) else [value]
            assert all(isinstance(number, float) for number in values), field


@for_every(HARDWARE)
def test_every_figure_of_an_accelerator_has_a_dated_source(name: str) -> None:
    spec = load_hardware(name)
    empty = {field for field in ("sparse_peak_flops_per_s", "library_flops_per_s") if not getattr(spec, field)}
    empty |= {"host_speed"} - spec.model_fields_set
    wanted = {field for field in NUMERIC_FIELDS if field not in empty}
    assert wanted <= set(spec.sources)
    for field, source in spec.sources.items():
        head, _, part = field.partition(".")
        assert head in NUMERIC_FIELDS
        assert not part or part in getattr(spec, head), f"{field} names a figure that is not there"
        _check_source(source.source, source.date, source.note)
    assert spec.facts_date == max(source.date for source in spec.sources.values())


@for_every(SERVERS)
def test_every_figure_of_a_server_has_a_dated_source(name: str) -> None:
    spec = load_server(name)
    for field in SERVER_FIELDS:
        if getattr(spec, field) is not None:
            source = spec.sources[field]
            _check_source(source.source, source.date, source.note)
    assert set(spec.sources) <= set(SERVER_FIELDS)


def _check_source(source: str, day: str, note: str) -> None:
    assert len(source) > 5
    assert "2015-01-01" < date.fromisoformat(day).isoformat() <= READ_ON
    if source == "assumed":
        assert len(note) > 7, "an assumption says what it rests on"


@for_every(HARDWARE)
def test_narrower_formats_are_never_slower(name: str) -> None:
    """A peak at fewer bits is at least the peak at more bits; the sourced exceptions are named."""
    peaks = load_hardware(name).peak_flops_per_s
    floats = [Dtype.FP32, Dtype.TF32, Dtype.BF16, Dtype.FP8, Dtype.FP6, Dtype.FP4]
    rates = [peaks[dtype] for dtype in floats if dtype in peaks]
    assert rates == sorted(rates)
    if name not in ("b300-sxm", "gb300"):  # int8 was cut on Blackwell Ultra
        integers = [peaks[dtype] for dtype in (Dtype.INT8, Dtype.INT4, Dtype.INT1) if dtype in peaks]
        assert integers == sorted(integers)
        assert all(rate >= _main_peak(load_hardware(name)) for rate in integers)
    if Dtype.BF16 in peaks and Dtype.FP16 in peaks:
        assert peaks[Dtype.BF16] == peaks[Dtype.FP16]
    assert all(bits <= 64 for bits in BITS.values())


@for_every(HARDWARE)
def test_sparse_peaks_are_twice_the_dense_ones(name: str) -> None:
    """2:4 doubles the rate everywhere but in fp4 of Blackwell Ultra, where vendor figures give 4/3."""
    spec = load_hardware(name)
    assert bool(spec.sparse_peak_flops_per_s) == (
        spec.architecture in {"ampere", "ada", "hopper", "blackwell", "blackwell-ultra", "blackwell-rtx"}
        or spec.architecture in {"cdna3", "cdna4"}
    )
    for dtype, sparse in spec.sparse_peak_flops_per_s.items():
        ratio = sparse / spec.peak_flops_per_s[dtype]
        expected = 4 / 3 if spec.architecture == "blackwell-ultra" and dtype is Dtype.FP4 else 2.0
        assert ratio == pytest.approx(expected, rel=0.015), dtype  # datasheets round each figure


@for_every(HARDWARE)
def test_ridge_point_is_plausible(name: str) -> None:
    spec = load_hardware(name)
    assert 20 < _main_peak(spec) / spec.memory_bytes_per_s < 1500


def test_ridge_point_of_a100() -> None:
    """312 TFLOP/s over 2.039 TB/s is 153 FLOP/byte."""
    spec = load_hardware("a100")
    assert _main_peak(spec) / spec.memory_bytes_per_s == pytest.approx(153.0, abs=0.05)


@for_every(HARDWARE)
def test_memory_that_software_sees_fits_what_is_sold(name: str) -> None:
    """An "80 GB" part holds 80 GiB less a reserve: at most 1.074 of the decimal figure; ECC on GDDR takes 1/16."""
    spec = load_hardware(name)
    least = 0.7 if spec.form_factor == DESKTOP else 0.9  # the system keeps a share of a memory that it shares
    assert least < spec.memory_visible_bytes / spec.memory_bytes <= 1.08


@for_every(lambda: [name for name in HARDWARE if load_hardware(name).architecture in FLOP_PER_CLOCK])
def test_peak_follows_from_units_and_clock(name: str) -> None:
    """units x clock x FLOP per clock bounds the rated peak, and rated clocks are at most a fifth below boost."""
    spec = load_hardware(name)
    per_clock = FLOP_PER_CLOCK[spec.architecture]
    if spec.name.startswith(("a100", "a30", "a800")):
        per_clock *= 2
    if spec.name in ("rtx-3090", "rtx-4090", "rtx-5090", "a10g"):
        per_clock //= 2
    share = _main_peak(spec) / (spec.compute_units * spec.boost_clock_hz * per_clock)
    if name in CAPPED_FOR_EXPORT:
        assert share < 0.6
    else:
        assert 0.8 < share < 1.002


@for_every(HARDWARE)
def test_powers_links_and_vector_rates_are_plausible(name: str) -> None:
    spec = load_hardware(name)
    assert 0.02 < spec.idle_w / spec.tdp_w < 0.5
    assert spec.scale_up.bytes_per_s_per_direction < spec.memory_bytes_per_s, "memory is faster than any link"
    if spec.form_factor != DESKTOP:  # where memory is shared with the host, that link is the memory itself
        assert spec.scale_up.bytes_per_s_per_direction >= spec.host_link.bytes_per_s_per_direction
        assert spec.scale_up.domain_size >= 2
    assert max(spec.vector_flops_per_s.values()) <= max(spec.peak_flops_per_s.values())
    assert Dtype.FP32 in spec.vector_flops_per_s
    date.fromisoformat(spec.release_date)


@pytest.mark.parametrize(
    ("name", "domain", "gigabytes_per_s"),
    [
        ("a100", 8, 300),
        ("h100", 8, 450),
        ("h200", 8, 450),
        ("h800", 8, 200),
        ("b200", 8, 900),
        ("gb200", 72, 900),
        ("gb300", 72, 900),
        ("mi300x", 8, 448),
        ("h100-nvl", 2, 300),
        ("l40s", 8, 32),
        ("rtx-5090", 8, 64),
        ("tpu-v5e", 256, 200),
        ("trainium2", 16, 640),
    ],
)
def test_scale_up_links_are_per_direction(name: str, domain: int, gigabytes_per_s: float) -> None:
    """Vendors print the sum of both directions (NVLink 4: 900 GB/s); profiles hold one."""
    link = load_hardware(name).scale_up
    assert (link.domain_size, link.bytes_per_s_per_direction) == (domain, gigabytes_per_s * GIGA)


@for_every(HARDWARE)
def test_every_accelerator_has_a_server(name: str) -> None:
    server = default_server_for(name)
    assert server.accelerator == name
    assert server.name == read_yaml(ROOT / "aliases.yaml")["default_servers"][name]


@for_every(SERVERS)
def test_servers_agree_with_their_accelerator(name: str) -> None:
    server = load_server(name)
    spec = load_hardware(server.accelerator)
    assert spec.name == server.accelerator
    board_w = server.accelerators_per_server * spec.tdp_w
    assert board_w < server.system_power_max_w <= 4 * board_w, "the host adds power, but not three times the boards"
    floor_w = server.accelerators_per_server * spec.idle_w
    assert floor_w < server.system_power_typical_w <= server.system_power_max_w
    assert server.scale_up_domain_size == spec.scale_up.domain_size
    assert isinstance(server.nic, LinkSpec)
    assert server.nic.bytes_per_s_per_direction < spec.memory_bytes_per_s


def test_the_shipped_prices_prefer_nobody_and_say_who_sells() -> None:
    prices = load_prices()
    assert prices.stale_after_days is not None
    for offer in prices.offers:
        assert not offer.default, "a mark is for contracts of one's own"
        assert (offer.provider_kind is None) == (offer.kind == "purchase")
        assert (offer.provider_kind == "index") == ("index" in offer.provider)
    same = [(o.hardware, o.kind, o.provider, o.provider_kind, o.region, o.per_hour, o.note) for o in prices.offers]
    assert len(set(same)) == len(same)


def test_offers_name_known_accelerators_one_amount_and_a_day() -> None:
    prices = load_prices()
    for offer in prices.offers:
        path = find_profile("hardware", offer.hardware)
        assert path is not None
        assert path.stem == offer.hardware, "offers use names, not aliases"
        assert (offer.per_hour is None) != (offer.per_device is None)
        assert (offer.per_device is not None) == (offer.kind == "purchase")
        assert "2015-01-01" < date.fromisoformat(offer.date).isoformat() <= READ_ON
    assert (prices.currency, prices.pue) == ("USD", 1.54)


class Fact(NamedTuple):
    """One row of the fact table."""

    hardware: str
    quantity: str
    value: str
    unit: str


FACT_NAMES = {
    "A100 PCIe 40GB": "a100-pcie-40gb",
    "A100 PCIe 80GB": "a100-pcie-80gb",
    "A100 SXM4 40GB": "a100-sxm-40gb",
    "A100 SXM4 80GB": "a100-sxm-80gb",
    "H100 SXM5 80GB": "h100-sxm-80gb",
    "H100 PCIe 80GB": "h100-pcie-80gb",
    "H100 NVL 94GB": "h100-nvl-94gb",
    "H200 SXM 141GB": "h200-sxm-141gb",
    "H20 96GB": "h20-96gb",
    "H800 SXM5 80GB": "h800-sxm-80gb",
    "A10 24GB": "a10",
    "A10G 24GB": "a10g",
    "L4 24GB": "l4",
    "L40S 48GB": "l40s",
    "RTX 4090 24GB": "rtx-4090",
    "RTX 5090 32GB": "rtx-5090",
    "RTX 6000 Ada 48GB": "rtx-6000-ada",
    "RTX PRO 6000 Blackwell 96GB": "rtx-pro-6000",
    "RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000",
    "V100 SXM2 32GB": "v100-sxm-32gb",
    "T4 16GB": "t4",
    "B200 SXM": "b200-sxm",
    "B300 SXM": "b300-sxm",
    "GB200 (per GPU, NVL72)": "gb200",
    "GB300 (per GPU, NVL72)": "gb300",
    "MI250X 128GB": "mi250x",
    "MI300X 192GB": "mi300x",
    "MI325X 256GB": "mi325x",
    "MI355X 288GB": "mi355x",
    "Gaudi 2": "gaudi2",
    "Gaudi 3 OAM": "gaudi3",
    "TPU v5e": "tpu-v5e",
    "TPU v5p": "tpu-v5p",
    "TPU v6e": "tpu-v6e",
    "Trainium2": "trainium2",
}
RATE = re.compile(
    r"^(fp64|fp32|tf32|bf16|fp16|fp8|fp6|fp4|int8|int4)(_tensor|_matrix)?(_computed|_fp32acc|_fp16acc)?"
    r"(_sparse|_SPARSE)?$"
)


def _facts() -> list[Fact]:
    if not FACTS.is_file():
        pytest.skip(f"the fact table is not beside this checkout ({FACTS.parent.name}/{FACTS.name})")
    with FACTS.open(encoding="utf-8", newline="") as file:
        rows = [Fact(row["hardware"], row["quantity"], row["value"], row["unit"]) for row in csv.DictReader(file)]
    return [row for row in rows if row.hardware in FACT_NAMES]


def _profile_value(fact: Fact, spec: AcceleratorSpec) -> float | None:
    """The profile's figure for a row, in the row's own unit; None where the row has no counterpart."""
    quantity = re.sub("(_conflict|_WRONG[?]?|_older_doc|_newer_doc|_nominal|_gpuhunt)$", "", fact.quantity)
    rate = RATE.match(quantity)
    if rate is not None:
        peaks = spec.sparse_peak_flops_per_s if rate[4] else spec.peak_flops_per_s
        return peaks.get(Dtype(rate[1]), 0.0) / TERA
    if "MiB" in fact.value:
        return spec.memory_visible_bytes / MIB
    simple = {
        "memory_bandwidth": spec.memory_bytes_per_s / GIGA,
        "memory_capacity": spec.memory_bytes / (GIB if fact.unit == "GiB" else GIGA),
        "memory_capacity_nvidia_smi": spec.memory_visible_bytes / MIB,
        "tdp": spec.tdp_w,
        "fp32_vector": spec.vector_flops_per_s[Dtype.FP32] / TERA,
        "bf16_vector": spec.vector_flops_per_s.get(Dtype.BF16, 0.0) / TERA,
        "boost_clock": spec.boost_clock_hz / MEGA,
        "boost_clock_max": spec.boost_clock_hz / MEGA,
        "sm_count": float(spec.compute_units),
        "cu_count": float(spec.compute_units),
        "l2_cache": spec.l2_bytes / (GIGA / KILO if "MiB" in fact.unit else MIB),
        "pcie_bw_per_direction": spec.host_link.bytes_per_s_per_direction / GIGA,
        "pcie_bidirectional": 2 * spec.host_link.bytes_per_s_per_direction / GIGA,
    }
    link = spec.scale_up.bytes_per_s_per_direction / GIGA
    simple |= dict.fromkeys(("nvlink_bw_per_direction", "infinity_fabric_per_direction"), link)
    simple |= dict.fromkeys(
        ("nvlink_bw_bidirectional", "nvlink_bridge_bidirectional", "infinity_fabric_bidirectional"), 2 * link
    )
    simple["ici_bw"] = 8 * link
    simple |= dict.fromkeys(("nvlink_domain", "scale_up_domain", "pod", "gpus_per_rack"), spec.scale_up.domain_size)
    return simple.get(quantity)


def _number(text: str) -> float | None:
    """The leading number of a value such as "900 air / 1200 liquid" or "32 (8 XCD x 4 MB)"."""
    found = re.match(r"[0-9.]+(?![0-9.]* x\d)", text)
    return float(found[0]) if found else None


def _explained(fact: Fact, spec: AcceleratorSpec) -> bool:
    said = " ".join([*spec.notes, *(source.note for source in spec.sources.values())]).replace(",", "")
    return re.search(rf"(?<![0-9.]){re.escape(str(fact.value))}(?![0-9])(?!\.[0-9])", said) is not None


def test_profiles_agree_with_the_fact_table_or_explain_why_not() -> None:
    """Within 3 %, or the deviating value is named in the profile's notes; flagged rows count like all others."""
    compared = 0
    unexplained: list[str] = []
    for fact in _facts():
        spec = load_hardware(FACT_NAMES[fact.hardware])
        ours, theirs = _profile_value(fact, spec), _number(fact.value)
        if ours is None or theirs is None:
            continue
        compared += 1
        if abs(ours / theirs - 1) > 0.03 and not _explained(fact, spec):
            unexplained.append(f"{spec.name} {fact.quantity}: profile {ours:.5g}, table {fact.value} {fact.unit}")
    assert unexplained == []
    assert compared > 300, "the comparison must cover the table"


def test_the_explanation_check_can_fail() -> None:
    spec = load_hardware("b300-sxm")
    assert _explained(Fact("B300 SXM", "fp4_tensor", "13125", "TFLOPS dense"), spec)
    assert not _explained(Fact("B300 SXM", "fp4_tensor", "13", "TFLOPS dense"), spec)
    assert not _explained(Fact("B300 SXM", "fp4_tensor", "17000", "TFLOPS dense"), spec)


def test_specs_are_shared_and_typed() -> None:
    assert isinstance(load_hardware("h100"), AcceleratorSpec)
    assert isinstance(load_server("dgx-h100"), ServerSpec)


@pytest.mark.parametrize("name", HARDWARE)
def test_an_accelerator_under_another_name_is_nearest_to_what_it_is(name: str) -> None:
    known = load_hardware(name)
    found = load_hardware(nearest_hardware(known.model_copy(update={"name": "mine"})))
    for field in ("memory_bytes", "memory_bytes_per_s", "vendor"):
        assert getattr(found, field) == getattr(known, field)
    assert max(found.peak_flops_per_s.values()) == max(known.peak_flops_per_s.values())
