"""What a topic is, the example that it is worked with, and the card of an equation read from its own docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any, Literal

from numpy.typing import ArrayLike

from simulator.kernels.timing import Provenance
from simulator.operators.formats.tensor_formats import PrecisionPlan, precision_plan
from simulator.operators.transformer import is_encoder_only
from simulator.operators.work import decode_step, prefill_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import memory_plan
from simulator.phases.step import StepEstimate, estimate_step
from simulator.published.facts import load_facts
from simulator.published.kv_waste import RESERVED_TOKENS
from simulator.records import dataclass
from simulator.reports.charts.chart import bars_chart, lines_chart
from simulator.reports.content import document as doc
from simulator.specs.base import Spec
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import AttentionSpec, FeedForward, MlpSpec, ModelSpec, MoeSpec
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.plan_values import MODEL
from simulator.specs.question.techniques import TechniquesSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """The user's model on the user's accelerator: ``batch_size`` sequences at ``context_tokens`` each.

    asked_tokens : the context before the model's last position cut it
    tpot_s : time per output token that the user measured [s]
    """

    model: ModelSpec
    hardware: AcceleratorSpec
    batch_size: int
    context_tokens: int
    asked_tokens: int = 0
    tpot_s: float | None = None
    profiles: str | None = None

    def of(self, model: str) -> Example:
        """This example with another model."""
        return replace(self, model=load_model(model, profiles=self.profiles))

    def deployed(
        self, *, scheme: str | None = None, techniques: TechniquesSpec | None = None, engine: str | None = None,
        tp_size: int = 1,
    ) -> Deployment:  # fmt: skip
        """One replica, changed as asked."""
        return deploy(
            model=self.model,
            hardware=self.hardware,
            parallelism=ParallelismSpec(tp_size=tp_size),
            precision=PrecisionSpec(scheme=scheme) if scheme else None,
            engine=EngineSpec(name=engine) if engine else None,
            techniques=techniques,
            profiles=self.profiles,
        )

    def decode(self, replica: Deployment, *, batch: ArrayLike | None = None) -> StepEstimate:
        """A decode step of the example's batch, or of others."""
        sequences = self.batch_size if batch is None else batch
        return estimate_step(replica, decode_step(sequences=sequences, context=float(self.context_tokens)))

    def prefill(self, replica: Deployment, *, tokens: ArrayLike | None = None) -> StepEstimate:
        """A pass of one prompt of the example's context, or of others."""
        length = self.context_tokens if tokens is None else tokens
        return estimate_step(replica, prefill_step(sequences=1, tokens=length))

    def phases(self, replica: Deployment) -> list[tuple[str, StepEstimate]]:
        """A prompt's pass, and a decode step where the model generates."""
        passes = [("prefill", self.prefill(replica))]
        return passes if is_encoder_only(self.model) else [*passes, ("decode", self.decode(replica))]

    @staticmethod
    def known(estimate: StepEstimate) -> doc.Origin:
        """How a step's time is known, for the badge beside it."""
        return doc.known_as(Provenance(int(estimate.provenance[0])).label)

    @property
    def half(self) -> Dtype:
        """The 16-bit format of its matrix units."""
        return Dtype.BF16 if Dtype.BF16 in self.hardware.peak_flops_per_s else Dtype.FP16

    @property
    def half_peak_flops_per_s(self) -> float:
        """Datasheet rate of its matrix units in 16 bits [FLOP/s]."""
        return self.hardware.peak_flops_per_s[self.half]

    @property
    def plan(self) -> PrecisionPlan:
        """The model's formats in 16 bits."""
        return precision_plan(self.model, PrecisionSpec(weights=Dtype.BF16))

    @property
    def attention(self) -> AttentionSpec:
        """The attention of its first layer that has heads of its own; topics that ask need `has_heads`."""
        return next(layer.mixer for layer in self.model.layers if isinstance(layer.mixer, AttentionSpec))


Need = Literal["generation", "heads", "feed_forward", "dense_mlp", "encoding", "known_chip", "reservation"]


class Topic(Spec):
    """One topic, as `topics.yaml` describes it; ``key`` and ``group`` are those that it stands under."""

    key: str
    group: str
    title: str
    question: str
    worked: str
    equations: tuple[str, ...] = ()
    formula: tuple[str, ...] = ()
    published: tuple[str, ...] = ()
    leaves_out: str = ""
    references: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    takes_tpot: bool = False
    needs: tuple[Need, ...] = ()
    suits: str = MODEL

    def why_not(self, example: Example) -> str:
        """Why it says nothing of the example, or ""."""
        return next((reason for need in self.needs if (reason := NEEDS[need](example))), "")

    @property
    def stated(self) -> tuple[Equation, ...]:
        """Its equations, as their functions state them."""
        return tuple(equation_of(resolve_name(f"simulator.{place}")) for place in self.equations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    """What a function with an ``Equation`` section says of itself; symbols are (name, meaning, unit)."""

    result: str
    formula: tuple[str, ...]
    symbols: tuple[tuple[str, str, str], ...]
    validity: str
    references: tuple[str, ...]


_SECTION = r"(?ms)^{}\n-+\n(.*?)(?=^[A-Z][A-Za-z ]+\n-+\n|\Z)"
_SYMBOL = re.compile(r"^([\w, ]+) : (.*?)(?:\s*\[([^\]]+)\])?$")
_KEY = re.compile(r"\[([A-Z][A-Za-z]+\d{4}[a-z]?)\]")


def _section(text: str, title: str) -> str:
    found = re.search(_SECTION.format(title), text)
    return found[1].strip() if found else ""


def _symbol(found: re.Match[str]) -> tuple[str, str, str]:
    """Name, meaning and unit; where several quantities stand in one meaning, each keeps its unit there."""
    name, meaning, unit = found[1], found[2], found[3] or ""
    return (name, f"{meaning} [{unit}]", "") if unit and "[" in meaning else (name, meaning, unit)


def equation_of(function: Callable[..., Any] | property) -> Equation:
    """The equation that ``function`` states in its docstring."""
    stated = inspect.getdoc(function) or ""
    # A line that is indented goes on with the one before.
    listed = re.sub(r"\n\s+", " ", _section(stated, "Parameters"))
    # The one symbol of a property is the record that it is of.
    symbols = [_SYMBOL.match(line.replace("self : ", "step : ")) for line in listed.splitlines()]
    return Equation(
        result=stated.partition("\n")[0],
        formula=tuple(_section(stated, "Equation").splitlines()),
        symbols=tuple(_symbol(found) for found in symbols if found),
        validity=" ".join(_section(stated, "Range of validity").split()),
        references=tuple(_KEY.findall(_section(stated, "References"))),
    )


def generates(example: Example) -> str:
    """Why a topic about decoding says nothing of an encoder, or ""."""
    return f"{example.model.name} is an encoder and generates nothing" if is_encoder_only(example.model) else ""


def _encodes(example: Example) -> str:
    name = example.model.name
    return "" if is_encoder_only(example.model) else f"{name} generates; documents are encoded by an encoder"


def _has_heads(example: Example) -> str:
    if any(isinstance(layer.mixer, AttentionSpec) for layer in example.model.layers):
        return ""
    return f"{example.model.name} has no layer with key and value heads"


def _has_blocks(example: Example, *kinds: type[FeedForward], what: str) -> str:
    blocks = (block for layer in example.model.layers for block in layer.feed_forward)
    return "" if any(isinstance(block, kinds) for block in blocks) else f"{example.model.name} has no {what} block"


def _on_known_chip(example: Example) -> str:
    if load_facts().on_chip_of(example.hardware) is not None:
        return ""
    return f"the on-chip memory of {example.hardware.architecture} is not known; that of h100 and mi300x is"


def _holds_a_reservation(example: Example) -> str:
    """Why no request can be given its longest length, or ""."""
    capacity = memory_plan(example.deployed()).kv_capacity_tokens
    if capacity >= RESERVED_TOKENS:
        return ""
    return f"{example.model.name} leaves {capacity:,} tokens of cache on {example.hardware.name}, of {RESERVED_TOKENS}"


NEEDS: dict[Need, Callable[[Example], str]] = {
    "generation": generates,
    "encoding": _encodes,
    "heads": _has_heads,
    "feed_forward": lambda example: _has_blocks(example, MlpSpec, MoeSpec, what="feed-forward"),
    "dense_mlp": lambda example: _has_blocks(example, MlpSpec, what="dense feed-forward"),
    "known_chip": _on_known_chip,
    "reservation": _holds_a_reservation,
}
"""What a topic says nothing without -> why an example lacks it, or ""."""


def columns_table(key: str, title: str, of: Mapping[str, Iterable[doc.Value]]) -> doc.Table:
    """A table by columns: what stands under each heading, row by row."""
    return doc.table(key, title, " | ".join(of), zip(*of.values(), strict=True))


def whole(values: Iterable[float]) -> list[doc.Value]:
    """Numbers of things."""
    return [doc.number(value, digits=0) for value in values]


def shares(values: Iterable[float]) -> list[doc.Value]:
    """Shares of one."""
    return [doc.fraction(float(value)) for value in values]


def times(values_s: Iterable[float]) -> list[doc.Value]:
    """Times [s]."""
    return [doc.seconds(float(value_s)) for value_s in values_s]


def facts(*named: tuple[str, str, doc.Value]) -> doc.Facts:
    """Headline numbers, each with its key and its label."""
    return doc.Facts(facts=tuple(doc.fact(key, label, doc.as_cell(value)) for key, label, value in named))


def lines(
    key: str, title: str, *, x: str, y: str, at: Sequence[float], of: Mapping[str, Sequence[float | None]]
) -> doc.Figure:
    """One line per name."""
    return doc.Figure(chart=lines_chart(key, title, x=x, y=y, at=at, of=of))


def bars(key: str, title: str, *, y: str, names: Sequence[str], of: Mapping[str, Sequence[float]]) -> doc.Figure:
    """Bars over names, one series per name of ``of``."""
    return doc.Figure(chart=bars_chart(key, title, y=y, names=names, of=of))
