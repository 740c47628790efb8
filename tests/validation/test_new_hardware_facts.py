"""Every row of the list of new hardware stands in a profile, or is answered with why it does not."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

from simulator.errors import plain_word
from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec, list_hardware, load_hardware, load_server
from simulator.specs.model.precision import Dtype
from simulator.specs.money.prices import load_prices
from simulator.specs.profiles import list_profiles
from simulator.units import BITS_PER_BYTE, GIB, GIGA, KILO, MEGA, MIB, TERA
from validation.facts import contradictions

ANSWERS = Path(contradictions.__file__).with_name("new_hardware.csv")
ROWS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "new_hardware_facts.csv"
ROUNDING = 0.01
"""Of printed figures: 1,792 GB/s against 1.79 TB/s."""

PROFILES: Mapping[str, str] = {
    "TPU7x (Ironwood)": "tpu-v7x", "Rubin (VR200, per GPU)": "vr200", "Vera Rubin NVL72 rack": "vr200",
    "GB10 (DGX Spark)": "gb10", "RTX PRO 5000 Blackwell 48GB/72GB": "rtx-pro-5000", "B300 SXM": "b300-sxm",
    "Atlas 350 (950PR card)": "atlas-350", "RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000",
    "RTX PRO 6000 Blackwell Workstation": "rtx-pro-6000-workstation", "A800 SXM4 80GB": "a800-sxm-80gb",
    "GB300 NVL72 rack": "gb300",
}  # fmt: skip
"""Hardware whose name is not its profile's with spaces."""

UNITS: Mapping[str, float] = {
    "GB": GIGA, "GiB": GIB, "MB": MEGA, "MiB": MIB, "GB/s": GIGA, "GB/s raw": GIGA, "GB/s, 4 cards": GIGA, "TB/s": TERA,
    "TFLOPS": TERA, "TFLOPS dense": TERA, "TOPS dense": TERA, "MHz": MEGA, "GHz": GIGA, "W": 1.0, "kW": KILO,
    "bytes": 1.0, "Gbit/s": GIGA / BITS_PER_BYTE,
}  # fmt: skip

FORMATS: Mapping[str, Dtype] = {
    "bf16": Dtype.BF16, "fp16": Dtype.FP16, "fp8": Dtype.FP8, "int8": Dtype.INT8, "fp4": Dtype.FP4,
    "mxfp4": Dtype.FP4, "tf32": Dtype.TF32, "fp32": Dtype.FP32,
}  # fmt: skip

Figure = Callable[[AcceleratorSpec], float | None]
FIGURES: Mapping[str, Figure] = {
    "memory_capacity": lambda chip: chip.memory_bytes,
    "memory_visible": lambda chip: chip.memory_visible_bytes,
    "memory_bandwidth": lambda chip: chip.memory_bytes_per_s,
    "l2_cache": lambda chip: chip.l2_bytes,
    "tdp": lambda chip: chip.tdp_w,
    "boost_clock": lambda chip: chip.boost_clock_hz,
    "sm_count": lambda chip: chip.compute_units,
    "cu_count": lambda chip: chip.compute_units,
    "fp32_vector": lambda chip: chip.vector_flops_per_s.get(Dtype.FP32),
    "nvlink_bw_bidirectional": lambda chip: 2 * chip.scale_up.bytes_per_s_per_direction,
    "scale_up_bw_bidirectional": lambda chip: 2 * chip.scale_up.bytes_per_s_per_direction,
    "ici_bw_bidirectional": lambda chip: 2 * chip.scale_up.bytes_per_s_per_direction,
    "scale_up_bw_per_direction": lambda chip: chip.scale_up.bytes_per_s_per_direction,
    "pcie_bw_per_direction": lambda chip: chip.host_link.bytes_per_s_per_direction,
    "nvlink_domain": lambda chip: chip.scale_up.domain_size,
    "scale_up_domain": lambda chip: chip.scale_up.domain_size,
    "chips_per_vm": lambda chip: _server(chip).accelerators_per_server,
    "dcn_bw_per_chip": lambda chip: _network(_server(chip)),
}
"""What a row's quantity is in a profile, in SI units."""


@cache
def _servers() -> Mapping[str, ServerSpec]:
    loaded = [load_server(name) for name in list_profiles("servers")]
    return {server.accelerator: server for server in loaded}


def _server(chip: AcceleratorSpec) -> ServerSpec:
    return _servers()[chip.name]


def _network(server: ServerSpec) -> float:
    """Of one accelerator [bytes/s]."""
    return server.nic.bytes_per_s_per_direction * server.nics_per_server / server.accelerators_per_server


def _chip(row: Mapping[str, str]) -> AcceleratorSpec | None:
    name = PROFILES.get(row["hardware"], plain_word(row["hardware"]))
    return load_hardware(name) if name in list_hardware() else None


def _figure(row: Mapping[str, str], chip: AcceleratorSpec) -> float | None:
    quantity = row["quantity"]
    if quantity in FIGURES:
        return FIGURES[quantity](chip)
    dtype = FORMATS.get(re.sub("_(tensor|matrix|mx|inference|sgemm)$", "", quantity))
    return chip.peak_flops_per_s.get(dtype) if dtype is not None else None


def stands(row: Mapping[str, str]) -> bool:
    """Whether a profile, or an offer of the price list, says what the row says."""
    chip = _chip(row)
    if chip is None:
        return False
    if row["quantity"].startswith("price_"):
        offers = [offer.per_hour for offer in load_prices("default").offers if offer.hardware == chip.name]
        wanted = [float(text) for text in re.findall(r"\d+\.?\d*", row["value"])]
        return all(any(had is not None and abs(had / price - 1) < ROUNDING for had in offers) for price in wanted)
    if not re.fullmatch(r"[\d.]+", row["value"]):
        return False
    figure, said = _figure(row, chip), float(row["value"]) * UNITS.get(row["unit"], 1.0)
    return figure is not None and abs(figure / said - 1) < ROUNDING


def test_every_row_stands_in_a_profile_or_has_an_answer() -> None:
    with ANSWERS.open(encoding="utf-8", newline="") as file:
        answers = {(row["hardware"], row["quantity"], row["value"]): row["reason"] for row in csv.DictReader(file)}
    assert all(len(reason) > 10 for reason in answers.values())
    if not ROWS.is_file():
        pytest.skip("the list is not beside this checkout")
    with ROWS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    missing = {(row["hardware"], row["quantity"], row["value"]) for row in rows if not stands(row)}
    assert missing == set(answers)
    assert len(missing) < len(rows) / 3
