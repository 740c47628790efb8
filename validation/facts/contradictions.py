"""Figures of one profile that cannot both be right: ranges, ratios between number formats, GB against GiB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date

from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec, list_hardware, load_hardware, load_server
from simulator.specs.model.precision import Dtype
from simulator.specs.profiles import list_profiles
from simulator.units import GIB, GIGA, TERA
from validation.facts.origins import Fact, day_of

ROUNDING = 0.025
"""Datasheets round each format on its own: ratios of printed rates stray this far."""
WHOLE_GIGABYTES = 0.002
_RATIOS = (
    (Dtype.FP16, Dtype.BF16, 1.0),
    (Dtype.BF16, Dtype.TF32, 2.0),
    (Dtype.FP8, Dtype.BF16, 2.0),
    (Dtype.INT8, Dtype.BF16, 2.0),
    (Dtype.FP4, Dtype.FP8, 2.0),
    (Dtype.INT4, Dtype.INT8, 2.0),
)

EXCEPTIONS: Mapping[tuple[str, Dtype], str] = {
    ("blackwell-ultra", Dtype.INT8): "integers were cut to a fifteenth",
    ("blackwell-ultra", Dtype.FP4): "the dense fp4 rate was raised to three times fp8",
    ("gaudi3", Dtype.FP8): "fp8 runs at the bf16 rate",
    ("tpu-v4", Dtype.INT8): "8-bit integers run at the 16-bit rate",
    ("cdna2", Dtype.INT8): "8-bit integers run at the 16-bit rate",
    ("rdna3.5", Dtype.INT8): "8-bit integers run at the 16-bit rate",
    ("cdna5", Dtype.FP8): "8-bit formats at four times bf16 (preliminary)",
    ("cdna5", Dtype.INT8): "8-bit formats at four times bf16 (preliminary)",
    ("rubin", Dtype.FP8): "the NVFP4 pipeline raises fp8 to 4.4 times bf16 (preliminary)",
    ("rtx-3090", Dtype.INT8): "GeForce: FP32 accumulation halves the floating-point rates",
    ("rtx-4090", Dtype.INT8): "GeForce: FP32 accumulation halves the floating-point rates",
    ("rtx-5090", Dtype.INT8): "GeForce: FP32 accumulation halves the floating-point rates",
    ("rtx-5090", Dtype.FP4): "GeForce: FP32 accumulation halves fp8 and wider",
    ("trainium2", Dtype.BF16): "tf32 runs at the bf16 rate",
    ("trainium2", Dtype.FP8): "1299 against 667 TFLOP/s on the vendor's page",
    ("trainium3", Dtype.BF16): "tf32 runs at the bf16 rate",
    ("trainium3", Dtype.FP8): "MX rate, 3.75 times bf16",
    ("trainium3", Dtype.FP4): "fp4 runs at the fp8 rate",
}
"""By architecture (or profile) and the format that breaks the ratio: why it does."""

SPARSE_EXCEPTIONS: Mapping[tuple[str, Dtype], str] = {
    ("blackwell-ultra", Dtype.FP4): "vendor figures give 4/3: the dense rate was raised, the sparse one kept"
}
"""By architecture and format: where 2:4 does not double the rate."""

_LIMITS: Mapping[str, tuple[float, float]] = {
    "memory_bytes": (8 * GIGA, 1000 * GIGA),
    "memory_bytes_per_s": (0.2 * TERA, 30 * TERA),
    "l2_bytes": (1e6, 1 * GIGA),
    "boost_clock_hz": (0.5 * GIGA, 3.5 * GIGA),
    "tdp_w": (40.0, 2500.0),
}
"""From T4 and Apple's smallest to the announced parts of 2026, with room on both sides."""


def contradictions(facts: tuple[Fact, ...], *, today: date) -> tuple[str, ...]:
    """One line each, naming file and field; empty where everything holds together."""
    found = [line for fact in facts for line in _of_source(fact, today=today)]
    for name in list_hardware():
        found += [f"hardware_profiles/{name}.yaml: {text}" for text in of_accelerator(load_hardware(name))]
    for name in list_profiles("servers"):
        found += [f"hardware_profiles/servers/{name}.yaml: {text}" for text in of_server(load_server(name))]
    return tuple(found)


def _of_source(fact: Fact, *, today: date) -> Iterator[str]:
    where = f"{fact.folder}/{fact.profile}: {fact.field}"
    if not fact.source.strip():
        yield f"{where}: no source"
    try:
        future = day_of(fact.dated) > today
    except ValueError:
        yield f"{where}: no date" if not fact.dated else f"{where}: {fact.dated!r} is no date (YYYY-MM-DD or YYYY-MM)"
        return
    if future:
        yield f"{where}: dated {fact.dated}, after {today.isoformat()}"


def of_accelerator(spec: AcceleratorSpec) -> Iterator[str]:
    """What of one accelerator's figures cannot be right together."""
    for field, (least, most) in _LIMITS.items():
        value = getattr(spec, field)
        if not least <= value <= most:
            yield f"{field} {value:g} is outside {least:g} to {most:g}"
    yield from _ratios(spec)
    yield from _memory(spec)
    unknown = [field for field in spec.sources if not hasattr(spec, field.partition(".")[0])]
    yield from (f"sources.{field} names no field" for field in unknown)


def _ratios(spec: AcceleratorSpec) -> Iterator[str]:
    peaks = spec.peak_flops_per_s
    for narrow, wide, expected in _RATIOS:
        if narrow not in peaks or wide not in peaks:
            continue
        ratio = peaks[narrow] / peaks[wide]
        excused = any((key, narrow) in EXCEPTIONS for key in (spec.name, spec.architecture))
        if abs(ratio / expected - 1) > ROUNDING and not excused:
            yield f"peak_flops_per_s: {narrow.value} is {ratio:.3g} times {wide.value}, expected {expected:g}"
    for dtype, sparse in spec.sparse_peak_flops_per_s.items():
        ratio = sparse / peaks[dtype]
        excused = any((key, dtype) in SPARSE_EXCEPTIONS for key in (spec.name, spec.architecture))
        if abs(ratio / 2 - 1) > ROUNDING and not excused:
            yield f"sparse_peak_flops_per_s: {dtype.value} is {ratio:.3g} times the dense rate, expected 2"


def _memory(spec: AcceleratorSpec) -> Iterator[str]:
    """A capacity is whole in GB or in GiB; software sees at most as many GiB as the name has GB."""
    units = (spec.memory_bytes / GIGA, spec.memory_bytes / GIB)
    if all(abs(size / round(size) - 1) > WHOLE_GIGABYTES for size in units):
        yield f"memory_bytes {spec.memory_bytes:g} is a whole number of neither GB nor GiB"
    if spec.memory_visible_bytes > spec.memory_bytes / GIGA * GIB * (1 + WHOLE_GIGABYTES):
        yield f"memory_visible_bytes {spec.memory_visible_bytes:g} exceeds {spec.memory_bytes / GIGA:g} GiB"


def of_server(spec: ServerSpec) -> Iterator[str]:
    """What of one server's figures cannot be right together with its accelerators'."""
    accelerator = load_hardware(spec.accelerator)
    boards_w = spec.accelerators_per_server * accelerator.tdp_w
    if not boards_w < spec.system_power_max_w <= 4 * boards_w:
        yield f"system_power_max_w {spec.system_power_max_w:g} beside {boards_w:g} W of accelerators"
    if not spec.system_power_typical_w <= spec.system_power_max_w:
        yield f"system_power_typical_w {spec.system_power_typical_w:g} exceeds system_power_max_w"
    if spec.scale_up_domain_size != accelerator.scale_up.domain_size:
        domain = accelerator.scale_up.domain_size
        yield f"scale_up_domain_size {spec.scale_up_domain_size}, {accelerator.name} says {domain}"
