"""Fit collectives of AMD's full mesh of links to RCCL's tests: ``python -m validation.fit.amd_collectives --data DIR``.

Eight MI300X were measured, all-reduce alone. On a mesh every peer is one step away, so that the latency is that of a
kernel with its flags, the same for any group; smaller groups have fewer links (LinkSpec.mesh). The other operations
take the laws of all-reduce with the bytes that they move, as extrapolated. Tests launch one call after another on a
stream: their small sizes hold what a launch costs beyond a kernel's run.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from simulator.errors import FileError
from simulator.kernels.collectives.laws import model_seconds, read_model
from simulator.operators.work import Collective
from simulator.specs.hardware.calibration import CalibrationSpec, KernelFit
from simulator.specs.loading import load_hardware
from simulator.units import MICRO
from validation.fit.collectives import fit_error, log_sigma_of
from validation.fit.files import calibration_directory, write_calibration
from validation.fit.physics import Array, Bound, fit_parameters
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


def main() -> None:
    """Fit, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds today/")
    parser.add_argument("--output", type=Path, default=calibration_directory())
    arguments = parser.parse_args()
    spec = calibrate(arguments.data)
    write_calibration(spec, group="collective", directory=arguments.output)
    error = spec.fits[0].error
    print(
        f"{spec.fits[0].parameters}: score {error.score_mape:.1%} fit {error.fit_mape:.1%} sigma {error.log_sigma:.3f}"
    )


if __name__ == "__main__":
    main()
