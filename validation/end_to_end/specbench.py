"""``python -m validation.end_to_end.specbench --data DIR``: Spec-Bench speedups from their accepted lengths.

Vicuna-7B, one sequence, eager PyTorch, on an A100 and on an RTX 3090: speedup over plain decoding and mean accepted
tokens per method. Two numbers are fitted, on the A100's rows alone: the host time of a round around its forward passes,
for chains and for trees (median over the methods; ``speculation_chain_s`` and ``speculation_tree_s`` of the engine
torch-eager). The rows of the RTX 3090 did not enter the fit; both are scored. It is no blind test: that there are two
such times, and how long the guesses of each method are, was settled with the residuals of both devices in view.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from statistics import mean, median

from simulator.engine.uniform.loops import static_batch
from simulator.engine.uniform.steps import PhaseEstimate
from simulator.phases.deployment import Deployment
from simulator.published.figures import deployed
from simulator.records import dataclass
from simulator.specs.model.fitted import Bookkeeping, speculation_table
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.techniques import SpeculationMethod, SpeculationSpec, TechniquesSpec
from simulator.units import MILLI
from validation.commands import exit_code_of
from validation.end_to_end.measured.runs import read_rows

FILE = "specbench_vicuna7b.csv"
MODEL = "lmsys/vicuna-7b-v1.3"
FITTED_ON = "a100-sxm-80gb"
"""The host times of a round around its forward passes are those of this accelerator's rows."""
HARDWARE = {"A100 80GB": "a100-sxm-80gb", "RTX 3090 24GB": "rtx-3090"}
NAMES: dict[str, SpeculationMethod] = {
    "EAGLE": "eagle",
    "EAGLE2": "eagle2",
    "SpS": "draft",
    "Hydra": "hydra",
    "PLD": "lookup",
    "Medusa": "medusa",
    "REST": "rest",
    "Lookahead": "lookahead",
}
# Spec-Bench gives no lengths: its prompts are of one to several hundred tokens. Speedups hardly depend on them.
ISL_TOKENS, OSL_TOKENS = 400, 300


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupRow:
    """One method on one accelerator: mean tokens per verify step and the overall speedup."""

    hardware: str
    method: SpeculationMethod
    tokens: float
    speedup: float


def replica(hardware: str, speculation: SpeculationSpec | None) -> Deployment:
    """What Spec-Bench ran: Vicuna-7B in fp16 under eager PyTorch."""
    plain = PrecisionSpec(weights=Dtype.FP16, activations=Dtype.FP16)
    return deployed(MODEL, hardware, precision=plain, techniques=TechniquesSpec(speculation=speculation))


def decoding(deployment: Deployment) -> PhaseEstimate:
    """The decode phase of one of its requests."""
    run = static_batch(deployment, batch_size=1, isl_tokens=ISL_TOKENS, osl_tokens=OSL_TOKENS, limit_tokens=None)
    assert run.decode is not None
    return run.decode


def speculating(row: SpeedupRow) -> Deployment:
    """The replica of a row with its method and accepted tokens."""
    return replica(row.hardware, SpeculationSpec(method=row.method, accepted_tokens=row.tokens))


def predicted_speedup(row: SpeedupRow) -> float:
    """Time per token without speculation over the time with it."""
    return decoding(replica(row.hardware, None)).total_s / decoding(speculating(row)).total_s


def load_rows(data: Path) -> tuple[SpeedupRow, ...]:
    """The methods of the table in the contract's names; task rows are left out, they come without accepted lengths."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in read_rows(data / "e2e" / FILE):
        match = re.search(r"method=(\S+) task=(\S+)", row["notes"])
        assert match is not None, f"{FILE}: {row['notes']}"
        if match[2] in ("all", "Overall"):
            found.setdefault((row["hardware"], match[1]), {})[row["metric"]] = float(row["value"])
    return tuple(
        SpeedupRow(
            hardware=HARDWARE[hardware],
            method=NAMES[method],
            tokens=values["mean_accepted_tokens"],
            speedup=values["speedup"],
        )
        for (hardware, method), values in found.items()
    )


def fit_bookkeeping(rows: tuple[SpeedupRow, ...]) -> dict[Bookkeeping, float]:
    """Median over the rows of the time of a round that forward passes do not explain, by kind of bookkeeping [s]."""
    excess: dict[Bookkeeping, list[float]] = {kind: [] for kind in Bookkeeping}
    for row in rows:
        plain = decoding(replica(row.hardware, None))
        deployment = speculating(row)
        overheads = deployment.engine.overheads.model_copy(
            update={"speculation_chain_s": 0.0, "speculation_tree_s": 0.0}
        )
        bare = decoding(replace(deployment, engine=replace(deployment.engine, overheads=overheads)))
        # Speedup = tokens x plain step / round; the round's mean is its total over its number.
        measured_s = row.tokens * (plain.total_s / plain.steps) / row.speedup
        excess[speculation_table().methods[row.method].bookkeeping].append(measured_s - bare.total_s / bare.steps)
    return {kind: median(values) for kind, values in excess.items() if values}


def main() -> int:
    """Print the fit and the score."""
    parser = argparse.ArgumentParser(prog="python -m validation.end_to_end.specbench", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds e2e/")
    rows = load_rows(parser.parse_args().data)
    for kind, seconds in fit_bookkeeping(tuple(row for row in rows if row.hardware == FITTED_ON)).items():
        print(f"speculation_{kind.value}_s on {FITTED_ON}: {seconds / MILLI:.2f} ms")
    print("| hardware | method | tokens per step | measured | predicted | error |\n|---|---|---|---|---|---|")
    errors: dict[str, list[float]] = {}
    for row in rows:
        predicted = predicted_speedup(row)
        error = predicted / row.speedup - 1
        errors.setdefault(row.hardware, []).append(abs(error))
        print(
            f"| {row.hardware} | {row.method} | {row.tokens} | {row.speedup} | {predicted:.2f} | {100 * error:+.1f} % |"
        )
    for hardware, values in errors.items():
        seen = "fitted on" if hardware == FITTED_ON else "not in the fit"
        print(f"{hardware} ({seen}): mean error {100 * mean(values):.1f} %")
    return 0


if __name__ == "__main__":
    raise SystemExit(exit_code_of(main))
