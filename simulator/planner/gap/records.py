"""What is said where a fleet does not fit its limits, or nothing serves at all. Data only."""

from __future__ import annotations

from typing import ClassVar

from simulator.errors import InfeasibleError
from simulator.planner.records import FieldValue, Study
from simulator.records import dataclass
from simulator.specs.base import Assumption, Note
from simulator.specs.question.plan import PlanSpec

_WORTH_SAYING = 10
"""Times the devices of the smallest way out: a larger one is none (32,360 beside 144)."""
_SUGGESTIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GapStep:
    """One change and what it does on top of the changes before it.

    given : what to give for it; devices : needed after it
    saved_devices : fewer than before (None: nothing served before)
    alone_devices : needed with this change only, None where it cannot serve alone
    quality : its price in the quality of answers, or that they stay as published
    quality_loss : the same as a published figure, a fraction; 0 where answers stay, None where nothing is published
    cost_per_hour : of the fleet after it, None where no price is known
    assumes : what is taken for granted that nobody gave, such as how many guesses are accepted
    taken : of every limit of the gap after it, in their order; None where it is unknown
    spec : asks for exactly the fleet after it
    """

    name: str
    given: tuple[FieldValue, ...]
    hardware: str
    label: str
    devices: int
    saved_devices: int | None
    alone_devices: int | None
    quality: Note
    quality_loss: float | None = None
    cost_per_hour: float | None = None
    assumes: tuple[Assumption, ...] = ()
    taken: tuple[float | None, ...] = ()
    spec: PlanSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GapLimit:
    """A limit of the fleet, in ``unit``: what is allowed, what the fleet as asked takes, and what after all steps. None
    where nothing serves, or where a fleet's share is unknown."""

    field: str
    unit: str
    allowed: float
    start: float | None
    end: float | None

    @property
    def excess(self) -> float:
        """What the fleet as asked takes beyond the limit, 0 where it holds or is unknown."""
        return 0.0 if self.start is None else max(0.0, self.start - self.allowed)

    @property
    def remaining(self) -> float | None:
        """What the last fleet takes beyond the limit, 0 where it holds."""
        return None if self.end is None else max(0.0, self.end - self.allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class GapOption:
    """One change alone, everything else as asked.

    devices : None where nothing serves with it; closes : whether every limit holds then
    reason : why it is no way out; empty where it is one
    """

    name: str
    given: tuple[FieldValue, ...]
    hardware: str = ""
    label: str = ""
    devices: int | None = None
    taken: tuple[float | None, ...]
    closes: bool = False
    reason: Note | str
    quality: Note
    quality_loss: float | None
    cost_per_hour: float | None = None
    spec: PlanSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedBound:
    """An objective, and what an idle replica of the set-up that comes nearest takes of it [s].

    made_of : what that time consists of
    """

    objective: str
    bound_s: float
    idle_s: float
    hardware: str
    label: str
    made_of: Note

    @property
    def factor(self) -> float:
        """How many times the bound that is; at most 1 where it holds."""
        return self.idle_s / self.bound_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap(Study):
    """From the fleet that the question needs to the one that its limits allow.

    budget_devices : allowed, None where no number was given; start_devices : needed as asked (None: nothing serves,
        and the first step is what makes it possible), start_cost_per_hour, start_quality : of it
    steps : changes that leave answers as they are, then the others, each in the order of what they save
    end_devices : after all of them
    remaining_devices : still above the budget, 0 where it is closed, None where nothing serves
    needed_prefix_hit : share of prompt tokens in the prefix cache that would close what remains; None where nothing
        remains or no share would
    needed_cache_hit : share of requests answered without an accelerator that would, all else as asked
    limits : every limit that was given; options : every change alone, the best first
    bounds : where nothing serves, what misses which objective
    quality, quality_loss : of all steps together; carried_rate_per_s : of requests that the limits allow after them
    spec : asks for the fleet after the last step
    """

    key: ClassVar[str] = "gap"

    budget_devices: int | None
    start_hardware: str
    start_label: str
    start_devices: int | None
    steps: tuple[GapStep, ...]
    end_devices: int | None
    remaining_devices: int | None
    needed_prefix_hit: float | None = None
    needed_cache_hit: float | None = None
    limits: tuple[GapLimit, ...] = ()
    options: tuple[GapOption, ...] = ()
    bounds: tuple[MissedBound, ...] = ()
    quality: Note | str = ""
    quality_loss: float | None = None
    carried_rate_per_s: float | None = None
    spec: PlanSpec | None = None
    start_cost_per_hour: float | None = None
    start_quality: Note | str = ""

    @property
    def closed(self) -> bool:
        """The changes fit into every limit."""
        return self.remaining_devices == 0 and all(item.remaining == 0 for item in self.limits)

    @property
    def fits_as_asked(self) -> bool:
        """Limits were given and the fleet holds them without any change."""
        return bool(self.limits) and self.closed and not self.steps

    @property
    def hint(self) -> str:
        """The best single changes, or that none is enough."""
        enough = [item for item in self.options if item.closes or (not self.limits and item.devices is not None)]
        most = _WORTH_SAYING * min((item.devices or 0 for item in enough), default=0)
        enough = [item for item in enough if (item.devices or 0) <= most]
        shown = [
            f"{' '.join(map(str, item.given))} ({item.devices} x {item.hardware} {item.label})"
            for item in enough[:_SUGGESTIONS]
        ]
        if shown:
            return f"enough would be {' or '.join(shown)}"
        if self.steps and self.closed:
            end, names = self.steps[-1], ", ".join(step.name for step in self.steps)
            return f"no single change is enough, together are {names} ({end.devices} x {end.hardware} {end.label})"
        return "no single change of format, technique, hardware, spares or rounding is enough"


class GapError(InfeasibleError):
    """No plan: ``gap`` says what is missing and what would close it, with costs in ``currency``; ``reason`` why the
    candidate that comes nearest cannot serve, where none can."""

    def __init__(self, refusal: InfeasibleError, *, gap: Gap, currency: str, reason: Note | None = None) -> None:
        super().__init__(refusal.message, field=refusal.field, code=refusal.code, hint=refusal.hint)
        self.gap = gap
        self.currency = currency
        self.reason = reason
