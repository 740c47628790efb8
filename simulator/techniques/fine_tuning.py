"""Memory to fine-tune a model: everything, low-rank adapters, adapters beside 4-bit weights, biases, a prompt."""

from __future__ import annotations

from typing import Literal

from simulator.errors import ignored_option
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.model_counts import parameter_counts
from simulator.operators.transformer import operator_list
from simulator.operators.work import Work, prefill_step
from simulator.records import dataclass
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.techniques import AdaptersSpec, AdapterTargets, FineTuneMethod
from simulator.techniques.adapters import AdapterRows, check_adapters
from simulator.techniques.applied import RowContext
from simulator.units import BITS_PER_BYTE

OptimizerState = Literal["mixed", "no_master", "half", "eight_bit"]

STATE_BYTES: dict[OptimizerState, float] = {
    "mixed": 12.0,
    "no_master": 8.0,
    "half": 4.0,
    "eight_bit": 2.0 + 2 * 4.0 / 2048.0,
}
"""Adam per trained parameter, beside 16-bit weights and gradients: two FP32 moments and an FP32 copy of the weight
[Rajbhandari2020]; without the copy [Dettmers2023]; two 16-bit moments; two of 8 bits with an FP32 scale for every 2,048
[Dettmers2021]."""

GRADIENT_BYTES = 2.0

NF4_DOUBLE_BITS = 4.0 + 8.0 / 64.0 + 32.0 / (64.0 * 256.0)
"""NF4 in blocks of 64 whose FP32 scales are 8 bit in blocks of 256 [Dettmers2023]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuningMemory:
    """Memory of fine-tuning on one device or spread over several, all of it [bytes], and what is trained.

    trained_share : trained parameters over the model's own
    weights_bytes : frozen or trained base weights; adapter_bytes : of the added weights
    gradient_bytes, optimizer_bytes : of what is trained
    activation_bytes : inputs of every layer, kept for the way back (the rest is computed again), and one layer's own
    """

    method: str
    trained_parameters: float
    trained_share: float
    weights_bytes: float
    adapter_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    activation_bytes: float

    @property
    def total_bytes(self) -> float:
        """All of it [bytes]."""
        return (
            self.weights_bytes + self.adapter_bytes + self.gradient_bytes + self.optimizer_bytes + self.activation_bytes
        )


def fine_tuning_memory(
    model: ModelSpec,
    *,
    method: FineTuneMethod = "full",
    rank: int | None = None,
    targets: AdapterTargets | None = None,
    prompt_tokens: int | None = None,
    optimizer: OptimizerState = "mixed",
    sequences: int = 1,
    tokens: int = 0,
) -> FineTuningMemory:
    """Memory to fine-tune ``model`` with Adam in mixed precision; activations of ``sequences`` x ``tokens``.

    Frozen weights stay in 16 bits, QLoRA's linear layers in NF4 with double quantisation. A tuned prompt stands before
    every sequence. Leaves out the runtime and fragmentation, and the vocabulary's logits.

    Reference: [Rajbhandari2020], [Hu2021], [Dettmers2023], [Lester2021]
    """
    counts = parameter_counts(model)
    element_bytes = 2.0
    if method == "full":
        _refuse_ignored(method, rank=rank, targets=targets, prompt_tokens=prompt_tokens)
        trained, added = counts.total, 0.0
    else:
        spec = AdaptersSpec(method=method, rank=rank, targets=targets, prompt_tokens=prompt_tokens)
        added = adapter_parameters(model, spec=spec)
        trained = added
    length = tokens + (prompt_tokens or 0) if tokens else 0
    weights = counts.total * element_bytes
    if method == "qlora":
        narrow = _block_parameters(model)
        weights = (counts.total - narrow) * element_bytes + narrow * NF4_DOUBLE_BITS / BITS_PER_BYTE
    return FineTuningMemory(
        method=method,
        trained_parameters=trained,
        trained_share=trained / counts.total,
        weights_bytes=weights,
        adapter_bytes=added * element_bytes,
        gradient_bytes=trained * GRADIENT_BYTES,
        optimizer_bytes=trained * STATE_BYTES[optimizer],
        activation_bytes=_activation_bytes(model, tokens=float(sequences * length), element_bytes=element_bytes),
    )


def adapter_parameters(model: ModelSpec, *, spec: AdaptersSpec) -> float:
    """Parameters of one adapter, from the rows that serving prices [elements]."""
    check_adapters(spec, model=model)
    if spec.prompt_tokens is not None:
        return float(spec.prompt_tokens * model.hidden_size)
    rows, context = _rows(model)
    adapted = AdapterRows(spec=spec)(rows, context)
    return sum(row.count * row.parameters for row in adapted) - sum(row.count * row.parameters for row in rows)


def _rows(model: ModelSpec) -> tuple[tuple[Work, ...], RowContext]:
    """The rows of one token on one device in 16 bits, and what they are of."""
    plan, step = precision_plan(model, PrecisionSpec(weights=Dtype.BF16)), prefill_step(sequences=1, tokens=1)
    context = RowContext(model=model, plan=plan, parallelism=ParallelismSpec(), step=step, stage=0)
    return operator_list(model, parallelism=context.parallelism, plan=plan, step=step), context


def _block_parameters(model: ModelSpec) -> float:
    """Parameters of the linear layers inside the blocks."""
    rows, context = _rows(model)
    return sum(row.count * row.parameters for row in rows if row.role in context.plan.quantised_roles)


def _activation_bytes(model: ModelSpec, *, tokens: float, element_bytes: float) -> float:
    """Checkpoints between layers, and the 34 bytes a token and hidden number of one layer [Korthikanti2022]."""
    per_token = model.num_hidden_layers * model.hidden_size * element_bytes + 34.0 * model.hidden_size
    return tokens * per_token


def _refuse_ignored(method: str, *, rank: int | None, targets: str | None, prompt_tokens: int | None) -> None:
    for field, value in (("rank", rank), ("targets", targets), ("prompt_tokens", prompt_tokens)):
        if value is not None:
            raise ignored_option(f"has no effect with {method} fine-tuning", field=field)
