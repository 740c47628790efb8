"""The last section: how to reproduce, where the figures come from, what to run."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.kernels.fits import FitSet, fit_set
from simulator.reports.charts.scales import number_text
from simulator.reports.content import document as doc
from simulator.reports.studies import Studies
from simulator.specs.base import ASSUMED
from simulator.specs.engine.engine import load_engine
from simulator.specs.hardware.accelerator import AcceleratorSpec, LinkSpec, ServerSpec
from simulator.specs.hardware.calibration import CalibrationGroup, load_calibration

_UNITS = {"flops_per_s": "FLOP/s", "bytes_per_s": "B/s", "bytes": "B", "_hz": "Hz", "_w": "W"}
"""Unit by the ending of a field's name, longest first."""
_GROUPS: dict[str, CalibrationGroup] = {
    "gemm": "gemm",
    "lm_head": "gemm",
    "prefill_attention": "attention",
    "decode_attention": "attention",
    "moe": "moe",
    "recurrent": "recurrent",
    "elementwise": "elementwise",
    "embedding": "elementwise",
}
"""Calibration group of each operator family; collectives are fitted by link, not by accelerator."""
_ENDS = 45
"""Lines of a script that are printed from either end: longer ones list what nobody reads on paper."""


_NAMES = {
    "boost_clock_hz": "boost clock",
    "idle_w": "power, idle",
    "l2_bytes": "L2 cache",
    "library_flops_per_s": "rate that libraries reach",
    "memory_bytes": "memory",
    "memory_bytes_per_s": "memory bandwidth",
    "memory_visible_bytes": "memory that software sees",
    "nic": "network card",
    "nics_per_server": "network cards",
    "peak_flops_per_s": "peak, matrix",
    "scale_up": "link in the server",
    "sparse_peak_flops_per_s": "peak, 2:4 sparse",
    "system_power_max_w": "power, nameplate",
    "system_power_typical_w": "power, expected",
    "tdp_w": "power of the accelerator (TDP)",
    "vector_flops_per_s": "peak, vector",
    "weight_kg": "weight, kg",
    "host_memory_bytes": "host memory",
    "rack_units": "height, U",
}
"""Fields in the report's words; others read as they are."""


def hardware_tables(studies: Studies) -> tuple[doc.Table, ...]:
    """Every sourced figure of the accelerators and of their servers: value, date, source."""
    found = []
    for place, (accelerator, server) in enumerate(studies.plan.best.kinds):
        suffix = "" if place == 0 else f"_{place + 1}"
        found.append(_facts(f"hardware_sources{suffix}", accelerator))
        if server is not None:
            found.append(_facts(f"server_sources{suffix}", server))
    return tuple(found)


def _facts(key: str, profile: AcceleratorSpec | ServerSpec) -> doc.Table:
    return doc.table(
        key,
        f"Figures of {profile.name}",
        "Figure: | Value: | Date: | Source::",
        [
            (
                *figure_words(profile, name),
                source.date,
                doc.sourced(source.source, source.note, assumed=source.source == ASSUMED),
            )
            for name, source in sorted(profile.sources.items())
        ],
        note="Peaks are dense unless they are named sparse; links per device and direction.",
    )


def figure_words(profile: AcceleratorSpec | ServerSpec, name: str) -> tuple[str, str]:
    """The name and the value that a source is about, a field or one entry of it, in the unit of its name."""
    held: object = profile
    for part in name.split("."):
        held = held.get(part) if isinstance(held, Mapping) else getattr(held, part, None)
    field, _, entry = name.partition(".")
    unit = next((unit for ending, unit in _UNITS.items() if field.endswith(ending)), "")
    shown = _NAMES.get(field, field.replace("_", " "))
    return f"{shown}, {entry}" if entry else shown, _words(held, unit)


def _words(held: object, unit: str) -> str:
    if isinstance(held, LinkSpec):
        reach = f", {held.domain_size} devices" if held.domain_size > 1 else ""
        return f"{held.kind}, {_scaled(held.bytes_per_s_per_direction, 'B/s')}{reach}"
    if isinstance(held, Mapping):
        return ", ".join(f"{name} {_words(value, unit)}" for name, value in held.items())
    if isinstance(held, int | float):
        return _scaled(held, unit) if unit else f"{held:,g}"
    return str(held or "")


def _scaled(value: float, unit: str) -> str:
    """``3.35 TB/s``: the prefix of the number goes to the unit."""
    shown = number_text(value)
    figure = shown.rstrip("kMGTP")
    return f"{figure} {shown.removeprefix(figure)}{unit}"


def calibration_table(studies: Studies) -> doc.Table:
    """The fits that priced the steps: whose measurements, of which version and day, and how far off unseen shapes."""
    return doc.table(
        "calibration_sources",
        "Calibration files",
        "Kernels: | Measured on: | Date: | Off unseen shapes | Source::",
        [_fitted(group, found) for group, found in _used(studies)],
        note="Mean absolute error over shapes that the fit did not see, mean of the file's fits. Collectives: by link.",
    )


def _used(studies: Studies) -> list[tuple[CalibrationGroup, FitSet]]:
    deployment, profiles = studies.plan.best.replica.deployment, studies.spec.profiles
    families = {row.work.family.value for _, step in studies.steps for row in step.rows}
    groups = sorted({_GROUPS[family] for family in families if family in _GROUPS})
    library = load_engine(deployment.engine.name, profiles=profiles).kernel_library
    found = [
        (group, fit_set(hardware, library=library, group=group, profiles=profiles))
        for hardware, _ in studies.plan.best.kinds
        for group in groups
    ]
    return [(group, fits) for group, fits in found if fits is not None]


def _fitted(group: CalibrationGroup, found: FitSet) -> doc.Row:
    file = load_calibration(found.relative.name, library=found.library, group=group, profiles=found.profiles)
    assert file is not None, "a set is made for a file that exists"
    measured = f"{found.relative.name}, {found.library} {file.library_version}"
    return doc.row(group, measured, file.date, doc.fraction(file.score_mape), file.source)


def reproduce_table(*lines: tuple[str, str], command: str, created: str, version: str, question: str) -> doc.Table:
    """What it takes to make the same answer again, and further ``lines``; ``question`` is the hash of the question."""
    made = ("roofcast", version), ("created", created), ("hash of the question (SHA-256)", question)
    return doc.table("reproduce", "Reproduce", "What: | Value::", (("command", command), *made, *lines))


def _profiles(studies: Studies) -> doc.Table:
    fleet = studies.plan.best
    engine, model = fleet.replica.deployment.engine, fleet.replica.deployment.model
    own = model.profile in ("", model.name)
    configuration = "the published configuration" if own else f"the configuration of {model.profile}, which it shares"
    rows = [
        *(("accelerator", hardware.name, hardware.facts_date) for hardware, _ in fleet.kinds),
        *(
            ("server", server.name, max(source.date for source in server.sources.values()))
            for _, server in fleet.kinds
            if server is not None
        ),
        ("price list", studies.prices.name, studies.prices.date),
        ("ownership", studies.ownership.name, studies.ownership.date),
        ("engine", f"{engine.name} {engine.version}", "overheads fitted on measured runs"),
        ("model", f"{model.name} ({studies.model_id})", configuration),
    ]
    note = "roofcast profiles show NAME prints every figure with its source and date."
    return doc.table("profiles", "Profiles", "Profile: | Name: | Newest figure:", rows, note=note)


def _printed(script: str) -> str:
    """A script, of which a long one, such as the addresses of hundreds of replicas, is cut in the middle."""
    lines = script.splitlines(keepends=True)
    middle = lines[_ENDS:-_ENDS]
    said = [f"... {len(middle)} lines more, which stand in the file ...\n"]
    return "".join([*lines[:_ENDS], *said, *lines[-_ENDS:]]) if middle else script


def appendix_content(studies: Studies) -> tuple[doc.Block, ...]:
    """Provenance and launch commands."""
    schema = ("report schema", f"{doc.REPORT_SCHEMA_VERSION}; roofcast report --schema prints it")
    reproduce = reproduce_table(
        schema, command=studies.command, created=studies.created, version=studies.version, question=studies.input_hash
    )
    blocks: list[doc.Block] = [reproduce, _profiles(studies), calibration_table(studies)]
    blocks.append(doc.Paragraph(text="Run it", tone=doc.Tone.HEAD))
    scripts = (file for file in studies.handoff.files if file.printed)
    blocks += [doc.Code(title=f"{file.title} ({file.name})", text=_printed(file.text)) for file in scripts]
    blocks += [doc.Bullets(items=studies.handoff.notes), *hardware_tables(studies)]
    log = "Change log: first version of this report; later versions are compared by their hash."
    return (*blocks, doc.Paragraph(text=log))
