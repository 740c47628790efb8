"""Speedups of speculation from accepted lengths: Spec-Bench (Vicuna-7B, one sequence, eager PyTorch) and Chinchilla."""

from __future__ import annotations

import json

from simulator.engine.uniform.loops import static_batch
from simulator.engine.uniform.steps import PhaseEstimate
from simulator.phases.deployment import Deployment
from simulator.published import chinchilla
from simulator.published.figures import AskedBy, PublishedFigure, by_library, deployed, rows_of
from simulator.records import dataclass
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.techniques import SpeculationMethod, SpeculationSpec, TechniquesSpec

TOPIC = "speculation"
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
    tolerance: float = 0.0

    @property
    def label(self) -> str:
        """For tables and test names."""
        return f"{self.method}-{self.hardware}"


def published_rows() -> tuple[SpeedupRow, ...]:
    """The transcribed rows of speculation.csv, with what the prediction may be off."""
    return tuple(
        SpeedupRow(
            hardware=HARDWARE[row["hardware"]],
            method=NAMES[row["method"]],
            tokens=float(row["tokens"]),
            speedup=float(row["speedup"]),
            tolerance=float(row["tolerance"]),
        )
        for row in rows_of("speculation.csv")
    )


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


def figures() -> list[PublishedFigure]:
    """Spec-Bench's rows and the tasks of speculative sampling on Chinchilla."""
    table = zip(rows_of("speculation.csv"), published_rows(), strict=True)
    return [*(_spec_bench(row, texts) for texts, row in table), *(_chinchilla(task) for task in chinchilla.TASKS)]


def _spec_bench(row: SpeedupRow, texts: dict[str, str]) -> PublishedFigure:
    return PublishedFigure(
        name=f"spec-bench-{row.label}",
        topic=TOPIC,
        published=row.speedup,
        unit="ratio",
        tolerance=row.tolerance,
        source=f"{texts['source']} ({texts['commit_or_version'][:12]})",
        statement=f"{row.tokens:g} tokens a round accepted" + (f"; {texts['notes']}" if texts["notes"] else ""),
        predict=lambda: predicted_speedup(row),
        is_fitted=row.hardware == FITTED_ON,
        asked_by=AskedBy(commands=tuple(_command(row, speculates=on) for on in (False, True)), field="tpot_s"),
    )


def _command(row: SpeedupRow, *, speculates: bool) -> str:
    """The batch of one request that Spec-Bench's answers are."""
    guesses = {"method": row.method, "accepted_tokens": row.tokens}
    scenario = {
        "id": row.label,
        "kind": "batch",
        "model": MODEL,
        "hardware": row.hardware,
        "precision": {"weights": "fp16", "activations": "fp16"},
        "engine": {"name": "torch-eager"},
        **({"techniques": {"speculation": guesses}} if speculates else {}),
        "batch_size": 1,
        "isl_tokens": ISL_TOKENS,
        "osl_tokens": OSL_TOKENS,
    }
    return f"echo '{json.dumps(scenario)}' | roofcast simulate -"


CHINCHILLA_TOLERANCE = 0.12
"""Kernels of the TPU v6e stand for the v4's, which were never measured: how the two models' steps compare is
extrapolated."""


_CHINCHILLA_MISS = (
    "11 % with a GPU's fits, before the v6e's own were known: "
    "they price the draft at 1.4 ms a step where the paper has 1.8"
)


def _chinchilla(task: chinchilla.Task) -> PublishedFigure:
    name = f"chinchilla-{task.name.replace(' ', '-').lower()}"
    return PublishedFigure(
        name=name,
        topic=TOPIC,
        published=task.speedup,
        unit="ratio",
        tolerance=task.missed_by or CHINCHILLA_TOLERANCE,
        source="Chen et al., Accelerating large language model decoding with speculative sampling (2023), table 1",
        statement="accepted tokens from the paper's own times of its parts, which are from memory (verify)",
        predict=lambda: chinchilla.predicted_speedup(task),
        asked_by=by_library(name),
        reason=_CHINCHILLA_MISS if task.missed_by else "",
    )
