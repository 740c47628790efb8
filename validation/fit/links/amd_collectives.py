"""Fit collectives of AMD's full mesh: ``python -m validation.fit.links.amd_collectives --data DIR [--every N]``.

Eight MI300X were measured, all-reduce alone. On a mesh every peer is one step away, so that the latency is that of a
kernel with its flags, the same for any group; smaller groups have fewer links (LinkSpec.mesh). The other operations
take the laws of all-reduce with the bytes that they move, as extrapolated. Tests launch one call after another on a
stream: their small sizes hold what a launch costs beyond a kernel's run. What is left inside a step's graph, where the
engines run an all-reduce of their own up to LARGEST_OWN_BYTES, is read from InferenceX's runs of a dense model under
vLLM on one to eight devices: the launch with the smallest error of TPOT, on both accelerators and on each alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from simulator.errors import FileError
from simulator.kernels.collectives.laws import model_seconds, read_model
from simulator.operators.work import Collective
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import CalibrationSpec, KernelFit
from simulator.units import KIB, MIB, MICRO
from validation.fit.files import calibration_directory, write_calibration
from validation.fit.links.collectives import fit_error, log_sigma_of
from validation.fit.physics import Array, Bound, fit_parameters
from validation.fit.runs.vendor_engines import Case, cases_of, own_errors
from validation.silicon.split import is_score

TABLE = Path("today") / "collectives.csv"
HARDWARE = "mi300x"
PARTICIPANTS = 8
SMALLEST_BYTES = 1024
"""Below, RCCL takes another protocol for messages that no step sends."""
NO_HOPS_S = 1e-9
BOUNDS = {
    "ring_ll.launch_s": Bound(low=1e-6, high=1e-4, start=1.2e-5),
    "ring_ll.fraction": Bound(low=0.01, high=1.0, start=0.2),
    "ring_simple.launch_s": Bound(low=1e-6, high=2e-4, start=2e-5),
    "ring_simple.fraction": Bound(low=0.05, high=1.0, start=0.7),
}
LARGEST_OWN_BYTES = 8 * MIB
"""vLLM's own all-reduce takes messages up to this (vllm/distributed/device_communicators/custom_all_reduce.py)."""
SMALLEST_STREAMED_BYTES = 256 * KIB
LAUNCHES_S = (4e-6, 6e-6, 8e-6, 10e-6, 12e-6, 14e-6)
DENSE = "meta-llama/Llama-3.3-70B-Instruct"
GROUPS = (2, 4, 8)
OWN_LIBRARY = "aiter"
UNMEASURED_LOG_SIGMA = 0.3
"""Added for operations of which nothing was measured: an assumption."""


def all_reduce_rows(data: Path) -> pd.DataFrame:
    """message_bytes, seconds (median over sources and directions) of eight MI300X, and which are held out."""
    try:
        table = pd.read_csv(data / TABLE)
    except OSError as error:
        raise FileError(f"cannot read {data / TABLE}: {error.strerror}", field="--data") from error
    chosen = (table["hardware"] == "MI300X") & (table["n_gpus"] == PARTICIPANTS) & (table["collective"] == "all_reduce")
    rows = table[chosen & (table["size_bytes"] >= SMALLEST_BYTES)].rename(columns={"size_bytes": "message_bytes"})
    rows = rows.assign(seconds=rows["us"] * MICRO).groupby("message_bytes", as_index=False)["seconds"].median()
    rows["participants"] = PARTICIPANTS
    rows["is_score"] = is_score(rows, family="all_reduce", columns=("participants", "message_bytes"))
    return rows


def predicted(rows: pd.DataFrame, parameters: dict[str, float], *, bytes_per_s: float) -> Array:
    """Seconds of every row under the laws."""
    return model_seconds(
        read_model(parameters),
        operation=Collective.ALL_REDUCE,
        message_bytes=rows["message_bytes"].to_numpy(dtype=float),
        participants=PARTICIPANTS,
        bytes_per_s=bytes_per_s,
    )


def calibrate(data: Path) -> CalibrationSpec:
    """RCCL's laws on the mesh."""
    rows = all_reduce_rows(data)
    bytes_per_s = load_hardware(HARDWARE).scale_up.bytes_per_s_per_direction
    seen, score = rows[~rows["is_score"]], rows[rows["is_score"]]
    hops = {"ring_ll.hop_s": NO_HOPS_S, "ring_simple.hop_s": NO_HOPS_S}
    found = fit_parameters(
        lambda trial: predicted(seen, {**trial, **hops}, bytes_per_s=bytes_per_s),
        seen["seconds"].to_numpy(),
        bounds=BOUNDS,
    )
    parameters = {**found, **hops}
    ratios = [
        np.log(part["seconds"].to_numpy() / predicted(part, parameters, bytes_per_s=bytes_per_s))
        for part in (score, seen)
    ]
    error = fit_error(score=ratios[0], fit=ratios[1], log_sigma=log_sigma_of(ratios[1]))
    sizes = (float(rows["message_bytes"].min()), float(rows["message_bytes"].max()))
    fits = tuple(
        KernelFit(
            family=operation.value,
            format="bf16",
            variant="nccl",
            model="alpha_beta",
            parameters=parameters,
            box={"participants": (PARTICIPANTS, PARTICIPANTS), "message_bytes": sizes},
            error=error
            if operation is Collective.ALL_REDUCE
            else error.model_copy(update={"log_sigma": float(np.hypot(error.log_sigma, UNMEASURED_LOG_SIGMA))}),
            note="RCCL, eight devices on a full mesh"
            if operation is Collective.ALL_REDUCE
            else "the laws of all-reduce: nothing measured of this operation",
        )
        for operation in Collective
        if operation is not Collective.P2P
    )
    return CalibrationSpec(
        hardware=HARDWARE,
        library="nccl",
        library_version="rccl-tests a7809b3",
        date=datetime.now(UTC).date().isoformat(),
        source="hisohara/ai-scripts, RCCL tests of 2026-03-31 on MI300X; one size in five held out",
        fits=fits,
    )


def own_all_reduce(fits: Sequence[KernelFit], *, launch_s: float, fraction: float) -> tuple[KernelFit, ...]:
    """The engines' all-reduce inside a graph, and RCCL's from the size on where theirs ends."""
    (rccl,) = (fit for fit in fits if fit.family == Collective.ALL_REDUCE.value)
    law = {"two_shot.launch_s": launch_s, "two_shot.hop_s": NO_HOPS_S, "two_shot.fraction": fraction}
    starts = [{f"from_bytes.p{devices}": start for devices in GROUPS} for start in (0.0, LARGEST_OWN_BYTES)]
    own = rccl.model_copy(
        update={
            "variant": "two_shot",
            "parameters": {**law, **starts[0]},
            "box": {**rccl.box, "participants": (float(GROUPS[0]), float(GROUPS[-1]))},
            "note": "the launch fitted on closed loops, the share of the links on RCCL's tests of 256 KiB to 8 MiB",
        }
    )
    large = rccl.model_copy(update={"variant": "nccl_large", "parameters": {**rccl.parameters, **starts[1]}})
    return own, large


def streamed_fraction(data: Path) -> float:
    """Share of the links' rate in all-reduces of the sizes that engines send in prompts, from RCCL's tests."""
    rows = all_reduce_rows(data)
    chosen = rows["message_bytes"].between(SMALLEST_STREAMED_BYTES, LARGEST_OWN_BYTES)
    sizes, seconds = rows["message_bytes"][chosen].to_numpy(dtype=float), rows["seconds"][chosen].to_numpy()
    slope_s_per_byte = float(np.polyfit(sizes, seconds, 1, w=1.0 / seconds)[0])
    wire = 2 * (PARTICIPANTS - 1) / PARTICIPANTS
    return round(wire / slope_s_per_byte / load_hardware(HARDWARE).scale_up.bytes_per_s_per_direction, 3)


def _with_fits(case: Case, fits: tuple[KernelFit, ...]) -> Case:
    """The case under these all-reduces before its library's."""
    kernels = case.deployment.kernels
    others = tuple(fit for fit in kernels.collectives.fits if fit.variant not in {own.variant for own in fits})
    chosen = replace(kernels.collectives, fits=(*fits, *others))
    return replace(case, deployment=replace(case.deployment, kernels=replace(kernels, collectives=chosen)))


def graph_launch_s(data: Path, *, rccl: Sequence[KernelFit], fraction: float, every: int) -> tuple[float, float]:
    """The launch that explains the dense model's runs best [s], and their mean error in TPOT under it."""
    cases = [case for case in cases_of(data, vendor="amd", every=every)["vllm"] if case.today.model == DENSE]
    chips = np.array([case.today.hardware for case in cases])
    errors = []
    for launch_s in LAUNCHES_S:
        fits = own_all_reduce(rccl, launch_s=launch_s, fraction=fraction)
        errors.append(np.abs(own_errors([_with_fits(case, fits) for case in cases])[:, 0]))
    for chip in sorted(set(chips)):
        best = int(np.argmin([error[chips == chip].mean() for error in errors]))
        unseen = errors[best][chips != chip].mean()
        print(f"{chip} alone: {LAUNCHES_S[best] / MICRO:.0f} us; error of the other under it {unseen:.1%}")
    best = int(np.argmin([error.mean() for error in errors]))
    return LAUNCHES_S[best], float(errors[best].mean())


def main() -> None:
    """Fit, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds today/")
    parser.add_argument("--every", type=int, default=1, help="every n-th closed loop")
    parser.add_argument("--output", type=Path, default=calibration_directory())
    arguments = parser.parse_args()
    spec = calibrate(arguments.data)
    write_calibration(spec, group="collective", directory=arguments.output)
    fit = spec.fits[0]
    print(f"{fit.parameters}: score {fit.error.score_mape:.1%} fit {fit.error.fit_mape:.1%}")
    fraction = streamed_fraction(arguments.data)
    launch_s, error = graph_launch_s(arguments.data, rccl=spec.fits, fraction=fraction, every=arguments.every)
    print(f"inside graphs: {launch_s / MICRO:.0f} us, {fraction} of the links; TPOT of the dense model {error:.1%}")
    own = spec.model_copy(
        update={
            "library": OWN_LIBRARY,
            "library_version": "InferenceX, 2025-09 to 2026-07",
            "source": "InferenceX (database dump of 2026-07-20), Llama-3.3-70B under vLLM; RCCL tests for the rate",
            "fits": own_all_reduce(spec.fits, launch_s=launch_s, fraction=fraction),
        }
    )
    write_calibration(own, group="collective", directory=arguments.output)


if __name__ == "__main__":
    main()
