"""What to check before a plan is used, each with its figures; ``reports`` words them. Data only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldValue:
    """A field of the question and what to give for it; a value of None leaves open which, () leaves the field out."""

    field: str
    value: object = None

    def __str__(self) -> str:
        if self.value == ():
            return f"no `{self.field}`"
        return f"`{self.field}`" if self.value is None else f"`{self.field}` {self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FewerDevices:
    """A way to need at most half the accelerators: other hardware that was compared, or ``change`` of the question."""

    devices: int
    hardware: str = ""
    change: FieldValue | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyDevices:
    """More accelerators than one model usually takes."""

    devices: int
    hardware: str
    ways_out: tuple[FewerDevices, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersMayDiffer:
    """The number format or technique changes answers; ``quality`` quotes what is published about it."""

    model: str
    quality: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceAssumed:
    """Nobody gave how many guesses of speculation are accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSpareReplica:
    """The first failure already loads the rest above plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HighUtilization:
    """Replicas are planned so near saturation that a small error overloads them."""

    utilization: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceUnknown:
    """The chosen fleet has no price."""

    hardware: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallerUnpriced:
    """Accelerators of which fewer would do, ranked last because nobody's price of them is known."""

    hardware: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StalePrice:
    """The price of the chosen fleet is older than its list allows: all of its offers are.

    newest : date of the newest of them (ISO); days : since then; allowed_days : of the list
    """

    hardware: str
    price_list: str
    newest: str
    days: int
    allowed_days: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptsNotChunked:
    """Mixed steps of the plan are those of an engine that chunks prompts; this one does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRepaired:
    """What was put right on reading a trace, in the reader's words."""

    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLeftOut:
    """Bursts that a trace shows and the plan does not count: ``dispersion`` of all its arrivals, 1 for Poisson."""

    dispersion: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailabilityMissed:
    """The spares of the plan do not reach the availability that was asked for.

    spares_needed : the value of the field ``spares`` that does; of each pool where ``of_each_pool``
    """

    spares: int
    achieved: float
    target: float
    spares_needed: int
    of_each_pool: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NotConfirmed:
    """The event simulation finds an objective missed, or could not tell for ``reason``."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BusiestMinute:
    """Objectives hold over all of a replayed trace; its busiest minute would take ``replicas``."""

    peak_to_mean: float
    replicas: int


PlanWarning = (
    ManyDevices
    | AnswersMayDiffer
    | AcceptanceAssumed
    | NoSpareReplica
    | HighUtilization
    | PriceUnknown
    | SmallerUnpriced
    | StalePrice
    | PromptsNotChunked
    | TraceRepaired
    | TraceLeftOut
    | AvailabilityMissed
    | NotConfirmed
    | BusiestMinute
)
