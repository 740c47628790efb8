"""The contract's ``techniques`` object: one spec for each technique that a scenario may have."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from simulator.specs.base import Spec, open_field
from simulator.units import percent_text

AdapterMethod = Literal["lora", "adapter", "prompt_tuning", "bitfit", "qlora"]
FineTuneMethod = Literal[AdapterMethod, "full"]
AdapterTargets = Literal["all", "attention", "mlp"]
Task = Literal["chat", "code", "math", "science", "finance"]
"""Kinds of text, of which guesses are accepted more or less often."""


class AdaptersSpec(Spec):
    """``count`` adapters held at once, merged into the weights or applied beside them to each batch.

    ``rank``: of the low-rank products (lora, qlora), or the width of the bottleneck (adapter).
    ``targets``: the linear layers that low-rank products stand beside; "all" is every one in the blocks but routed
    experts. ``prompt_tokens``: virtual tokens before every prompt (prompt_tuning).
    """

    method: AdapterMethod = "lora"
    rank: PositiveInt | None = None
    count: PositiveInt = 1
    merged: bool = False
    targets: AdapterTargets | None = None
    prompt_tokens: PositiveInt | None = None


Fraction = Annotated[float, Field(gt=0, le=1)]
PREDICTOR_RANK = 1000


class ContextualSparsitySpec(Spec):
    """Small predictors choose, for each token, the heads and the feed-forward neurons that it needs.

    ``attention_fraction``, ``mlp_fraction`` : share that one token needs (1: all of them, no predictor)
    ``predictor_rank`` : width between the two layers of each predictor; 1000 as in Deja Vu
    ``correlation`` : 0 where tokens of a batch choose independently, 1 where all choose alike
    """

    attention_fraction: Fraction = 1.0
    mlp_fraction: Fraction = 1.0
    predictor_rank: PositiveInt = PREDICTOR_RANK
    correlation: Annotated[float, Field(ge=0, le=1)] = 0.0

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if self.attention_fraction == 1 and self.mlp_fraction == 1:
            raise ValueError("attention_fraction 1 and mlp_fraction 1 change nothing; give one below 1")
        return self


Probability = Annotated[float, Field(gt=0.0, lt=1.0)]


class ExitSpec(Spec):
    """A generated token leaves after ``layer`` layers with ``probability`` (of all tokens)."""

    layer: PositiveInt
    probability: Probability


class EarlyExitSpec(Spec):
    """Generated tokens leave before the last layer when a confidence test says so.

    ``exits``: how many of them leave where; or ``mean_fraction``: the mean share of the layers that a token passes,
    with an equal chance to leave after each layer. ``compacts``: the engine takes finished tokens out of the batch;
    otherwise a batch runs until its last member leaves.
    """

    exits: tuple[ExitSpec, ...] = ()
    mean_fraction: Probability | None = None
    compacts: bool = False


class KvPolicySpec(Spec):
    """Keep at most ``budget_tokens`` of each sequence: heavy hitters and recent ones (h2o), the first ones and recent
    ones (streaming), recent ones only (window). H2O may keep ``budget_fraction`` of each sequence instead.

    ``sinks`` : first tokens that streaming keeps beside that many recent ones; without it the budget holds both
    """

    method: Literal["h2o", "streaming", "window"]
    budget_tokens: PositiveInt | None = None
    sinks: PositiveInt | None = None
    budget_fraction: Annotated[float, Field(gt=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        if (self.budget_tokens is None) == (self.budget_fraction is None):
            raise ValueError("give budget_tokens or budget_fraction, one of them")
        if self.budget_fraction is not None and self.method != "h2o":
            raise ValueError(f"{self.method} keeps a number of tokens (budget_tokens); a share is h2o's")
        if self.sinks is not None and self.method != "streaming":
            raise ValueError(f"{self.method} keeps no first tokens of its own; sinks are of streaming")
        return self

    @property
    def kept_tokens(self) -> int | None:
        """Most tokens that a sequence keeps, sinks among them; None where it keeps a share."""
        return None if self.budget_tokens is None else self.budget_tokens + (self.sinks or 0)

    def __str__(self) -> str:
        """As it is written: h2o:1024, h2o:20%, streaming:1020,sinks=4."""
        share, sinks = self.budget_fraction, f",sinks={self.sinks}" if self.sinks else ""
        return f"{self.method}:{self.budget_tokens if share is None else percent_text(share)}{sinks}"


_PATTERN = re.compile(r"(\d{1,4}):(\d{1,4})", re.ASCII)
SparsityMethod = Literal["magnitude", "obs", "wanda", "sparsegpt"]
StructuredTarget = Literal["heads", "channels", "layers"]
ROUNDING = 1e-4


class SparsitySpec(Spec):
    """Zeros in the weights: ``pattern`` "2:4" or another N:M, "unstructured" or "structured"; ``fraction`` of zeros.

    ``method`` (magnitude, obs, wanda, sparsegpt) changes quality and preparation, never speed.
    ``target`` : what structured pruning takes out: heads, channels of the feed-forward blocks (default), or layers
    ``compressed`` : stored without the zeros and widened before a dense product, where no unit multiplies the pattern
    """

    pattern: str
    fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    method: SparsityMethod | None = None
    target: StructuredTarget | None = None
    compressed: bool = False

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        found = _PATTERN.fullmatch(self.pattern)
        if found is None and self.pattern not in ("unstructured", "structured"):
            raise ValueError(
                f'pattern {self.pattern!r} is not known; allowed: N:M such as "2:4", "unstructured", "structured"'
            )
        if found is not None:
            kept, of = int(found[1]), int(found[2])
            if not 0 < kept < of:
                raise ValueError(f"pattern {self.pattern!r} keeps no weight or every weight; N has to lie below M")
            if self.fraction is not None and abs(self.fraction - (1 - kept / of)) > ROUNDING:
                raise ValueError(f"fraction {self.fraction} contradicts {self.pattern}, which drops {1 - kept / of:g}")
        elif self.fraction is None:
            raise ValueError(f"pattern {self.pattern} needs a fraction between 0 and 1")
        if self.target is not None and self.pattern != "structured":
            raise ValueError("target (heads, channels, layers) belongs to pattern structured")
        if self.compressed and self.pattern == "structured":
            raise ValueError("compressed changes nothing for pattern structured, which leaves smaller dense shapes")
        return self

    @property
    def pruned(self) -> StructuredTarget:
        """What structured pruning takes out."""
        return self.target or "channels"

    @property
    def kept_of(self) -> tuple[int, int] | None:
        """(kept, of) of an N:M pattern."""
        found = _PATTERN.fullmatch(self.pattern)
        return (int(found[1]), int(found[2])) if found else None

    @property
    def kept_fraction(self) -> float:
        """Share of the weights that stay."""
        if self.kept_of is not None:
            return self.kept_of[0] / self.kept_of[1]
        assert self.fraction is not None, "checked above"
        return 1.0 - self.fraction


LARGEST_K = 100
"""Guesses in a row: published methods use up to 16, and each has to be worth a step."""
_LARGEST_TREE = 4096
SpeculationMethod = Literal[
    "draft",
    "mtp",
    "eagle",
    "eagle2",
    "eagle3",
    "medusa",
    "hydra",
    "ngram",
    "lookup",
    "llma",
    "rest",
    "lookahead",
    "blockwise",
]
_LISTED = re.compile(r"\d{1,9}(\.\d{0,30})?|\.\d{1,30}", re.ASCII)
DraftDevice = Literal["same", "other", "cpu"]
Guesses = Annotated[int, Field(gt=0, le=_LARGEST_TREE)]


def _number(text: str) -> object:
    """What ``text`` writes, which stays text where that is no number."""
    if not _LISTED.fullmatch(text):
        return text
    return int(text) if text.isdecimal() else float(text)


class SpeculationSpec(Spec):
    """Guess ``k`` tokens in a row and verify them in one step of the target model.

    ``acceptance`` is the probability that a guess is accepted given that those before it were: one number or one per
    position; ``accepted_tokens`` is instead the mean number of tokens that a verify step yields, its own included.
    ``draft_model`` names the small model of method draft, ``draft_device`` where it runs: on the target's devices,
    on others (``draft_hardware`` names them, by default of the target's kind) or on the host's CPU. Method mtp runs the
    prediction layers that the checkpoint brings (num_nextn_predict_layers) ``k`` times.
    ``tree`` is the number of guesses verified at once, or the guesses per depth, or the paths of a tree of heads as
    Medusa writes them ([[0], [0, 0], [1], ...]). ``window`` and ``guesses`` are W and G of lookahead decoding, whose N
    is k + 1. ``task`` is the kind of text that eagle3 guesses (chat, code, math, science or finance), which sets its
    acceptance where none is given. ``adaptive`` switches speculation off where it does not pay and shortens k where it
    is faster.
    """

    method: SpeculationMethod
    k: Annotated[int, Field(gt=0, le=LARGEST_K)] | None = None
    acceptance: float | tuple[float, ...] | None = None
    accepted_tokens: Annotated[float, Field(le=LARGEST_K + 1)] | None = None
    draft_model: str | None = None
    draft_device: DraftDevice | None = None
    draft_hardware: str | None = None
    tree: Guesses | Annotated[tuple[Guesses, ...], Field(max_length=LARGEST_K)] | None = None
    window: Guesses | None = None
    guesses: Guesses | None = None
    task: Task | None = None
    adaptive: bool = False

    @field_validator("acceptance", "tree", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """A text such as 0.8/0.7/0.6 lists one value per position."""
        return tuple(_number(part) for part in value.split("/")) if isinstance(value, str) and "/" in value else value

    @field_validator("acceptance")
    @classmethod
    def _probable(cls, given: float | tuple[float, ...] | None) -> float | tuple[float, ...] | None:
        if not all(0.0 <= value <= 1.0 for value in (given if isinstance(given, tuple) else (given or 0.0,))):
            raise ValueError("probabilities from 0 to 1 are allowed")
        return given

    @field_validator("tree", mode="before")
    @classmethod
    def _paths(cls, value: Any) -> Any:
        """Paths of a tree become the number of guesses at each depth."""
        if isinstance(value, bool):
            raise ValueError("a number of guesses, guesses per depth or paths are needed")
        is_sequence = isinstance(value, list | tuple) and len(value) > 0
        if not is_sequence or not all(isinstance(item, list | tuple) and item for item in value):
            return value
        depths = [len(path) for path in value]
        return tuple(depths.count(depth) for depth in range(1, max(depths) + 1))


class MlaOverride(Spec):
    """Latent attention in place of every full attention layer; widths as in the models that ship it."""

    kv_lora_rank: PositiveInt
    qk_rope_head_dim: PositiveInt = 64
    qk_nope_head_dim: PositiveInt = 128
    v_head_dim: PositiveInt = 128
    q_lora_rank: PositiveInt | None = None


class MoeOverride(Spec):
    """Experts in place of every dense feed-forward block.

    ``moe_intermediate_size``: of one expert; left out, the block's width is divided among the experts, so that all
    parameters stay (MoEfication). ``shared_expert_intermediate_size``: of an expert that every token passes.
    """

    num_experts: Annotated[int, Field(gt=1)]
    num_experts_per_tok: PositiveInt
    moe_intermediate_size: PositiveInt | None = None
    shared_expert_intermediate_size: NonNegativeInt = 0


class StructureSpec(Spec):
    """Overrides of a model's structure.

    num_key_value_heads : of every attention layer (1 is MQA, all heads MHA)
    sliding_window : keys that every full attention layer sees at most
    window_every : of so many layers in a row one keeps full attention, the others get ``sliding_window``
    layers_fraction : share of the layers that stay, the first ones and the last (depth pruning, a shallower student)
    hidden_size : with heads, dense widths and expert widths in proportion; head_dim stays
    routing_skew : coefficient of variation of how often the tokens of a step choose each expert, 0 for uniform; it
        sets the distinct experts that are read and the load of the busiest expert-parallel rank
    expert_imbalance : tokens of the busiest expert-parallel rank over the mean, in place of what the skew makes of them
    expert_placement : experts of the ranks balanced by how often they are chosen (EPLB), or in the model's order; left
        out, what the engine's recipes do with so many ranks
    """

    num_key_value_heads: PositiveInt | None = None
    mla: MlaOverride | None = None
    sliding_window: PositiveInt | None = None
    window_every: Annotated[int, Field(gt=1)] | None = None
    moe: MoeOverride | None = None
    layers_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None
    hidden_size: PositiveInt | None = None
    routing_skew: Annotated[float, Field(ge=0.0, le=3.0)] | None = None
    expert_imbalance: Annotated[float, Field(gt=1.0)] | None = None
    expert_placement: Literal["even", "as_trained"] | None = None


class WeightOffloadSpec(Spec):
    """``fraction`` of the layers' weights stays in the host's memory and is read over the host link in every pass."""

    fraction: Annotated[float, Field(gt=0, le=1)]

    @model_validator(mode="before")
    @classmethod
    def _fraction_alone(cls, data: Any) -> Any:
        """``0.5`` is short for ``{"fraction": 0.5}``."""
        is_number = isinstance(data, int | float) and not isinstance(data, bool)
        return {"fraction": data} if is_number else data


AttentionKernel = Literal["flash", "standard", "flash_decoding"]


class TechniquesSpec(Spec):
    """What-if changes to one deployment; an absent one changes nothing. Described as they are written in text."""

    sparsity: SparsitySpec | None = open_field(
        "2:4, unstructured:0.6 (with ,compressed=true) or structured:fraction=0.25 (with ,target=heads)."
    )
    contextual_sparsity: ContextualSparsitySpec | None = open_field("Share that a token needs: attention=0.5,mlp=0.2.")
    speculation: SpeculationSpec | None = open_field(
        "mtp, eagle3:task=code, eagle:k=4 or ngram:k=5, with ,acceptance=0.7 or ,accepted_tokens=2.1."
    )
    attention: AttentionKernel | None = open_field("flash, standard or flash_decoding.")
    kv_policy: KvPolicySpec | None = open_field("Bounded cache: h2o:1024, h2o:20%, streaming:2048.")
    adapters: AdaptersSpec | None = open_field("lora:rank=16,count=8 or lora:16,merged=true.")
    structure: StructureSpec | None = open_field(
        "num_key_value_heads=1, moe.num_experts=8 or expert_placement=even (EPLB), several with commas."
    )
    early_exit: EarlyExitSpec | None = open_field("mean_fraction=0.6 (with ,compacts=true).")
    fusion: bool | None = open_field("Elementwise passes fused; `no_fusion`: one kernel each.")
    weight_offload: WeightOffloadSpec | None = open_field("Share of the layers' weights in host memory: 0.5.")
    sequence_parallel: bool | None = open_field("Norms split over tensor-parallel ranks, all-reduces in two halves.")
    two_batch_overlap: bool | None = open_field("Steps in halves, one computes while the other's tokens go to experts.")

    @model_validator(mode="before")
    @classmethod
    def _texts(cls, data: Any) -> Any:
        """A technique may be what a command line takes: ``"2:4"``, ``"h2o:1024"``, ``"eagle:k=4"``."""
        if not isinstance(data, dict) or not any(isinstance(value, str) for value in data.values()):
            return data
        from simulator.specs.question.technique_words import OF_PARTS, technique_value

        return {
            name: technique_value(name, value) if isinstance(value, str) and name in OF_PARTS else value
            for name, value in data.items()
        }
