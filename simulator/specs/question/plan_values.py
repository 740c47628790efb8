"""How people write durations, objectives (``ttft-p95=2s``), growth, ramps, stock and load profiles, and what is asked
where nothing is said."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import isclose
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from simulator.errors import RoofcastError, did_you_mean, plain_word
from simulator.records import dataclass
from simulator.specs.base import LARGEST_NUMBER, Spec, validate
from simulator.units import GIGA, KILO, MICRO, MILLI, SECONDS_PER_HOUR, SECONDS_PER_MINUTE, percent_text


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenField:
    """A field, its description, and what it is written as: bool, int, float or str.

    several : it may be given more than once; three_ways : a truth value that may also be left open
    """

    name: str
    text: str
    kind: type = str
    several: bool = False
    three_ways: bool = False


def written_fields(spec: type[Spec]) -> Mapping[str, WrittenField]:
    """The fields of ``spec`` by their names; what a function of the specification reads is written as text."""
    return {
        name: WrittenField(
            name=name,
            text=field.description or "",
            kind=str if _reads(field.metadata) else _kind(field.annotation),
            several=get_origin(_present(field.annotation)) is tuple and not _reads(field.metadata),
            three_ways=field.default is None,
        )
        for name, field in spec.model_fields.items()
    }


def _reads(metadata: list[Any]) -> bool:
    return any(isinstance(item, BeforeValidator) for item in metadata)


def _present(annotation: Any) -> Any:
    """What stands where something is given."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    return next(item for item in get_args(annotation) if item is not NoneType)


def _kind(annotation: Any) -> type:
    """The number or truth value inside bounds, lists and options; everything else is text."""
    given = _present(annotation)
    match get_origin(given):
        case None:
            return given if given in (bool, int, float) else str
        case origin if origin is Literal:
            return type(get_args(given)[0])
    return _kind(get_args(given)[0])


MONTHS_PER_YEAR = 12
DEFAULT_HORIZON_MONTHS = 24
"""How far a plan looks ahead: growth is forecast and a rental committed to for no longer [months]. Chosen."""
HOURS_PER_DAY = 24
DAYS_PER_WEEK = 7
WEEKDAYS = 5
HOURS_PER_WEEK = DAYS_PER_WEEK * HOURS_PER_DAY
_RATE = re.compile(r"\s*([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(%?)\s*(?:(?:/|per)\s*([a-z]+))?\s*")
_COUNT = re.compile(r"0*[1-9][0-9]{0,8}")
_HORIZON = re.compile(r"\s*([0-9]{1,9})\s*(?:m|mo|month|months)?\s*")
_LARGEST_GROWTH = 10.0
_DURATION = re.compile(r"\s*([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(us|ms|s|sec|min|h)?\s*")
_SECONDS = {None: 1.0, "us": MICRO, "ms": MILLI, "s": 1.0, "sec": 1.0, "min": SECONDS_PER_MINUTE, "h": SECONDS_PER_HOUR}


def duration_s(value: object) -> float:
    """``2s``, ``500ms``, ``1.5 min`` or a plain number of seconds [s]. Raises ValueError: not a duration above zero."""
    match = _DURATION.fullmatch(str(value))
    try:
        seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    except ValueError:
        seconds = 0.0
    if isinstance(value, bool) or not seconds > 0:
        raise ValueError("a duration above zero such as 2s or 500ms is needed")
    return seconds


READING = "reading"
WORDS_PER_MINUTE, TOKENS_PER_WORD = 250.0, 4 / 3
"""Adults read 240 to 250 words a minute (Brysbaert 2019), an English word is about 4/3 tokens: from memory, verify."""
READING_TOKENS_PER_S = WORDS_PER_MINUTE * TOKENS_PER_WORD / SECONDS_PER_MINUTE


def objective_s(value: object) -> float:
    """`duration_s` of an objective, or ``reading``: the time in which a person reads a token [s]."""
    return 1 / READING_TOKENS_PER_S if value == READING else duration_s(value)


def given_duration_s(value: object) -> float | None:
    """``duration_s`` of what may be left out [s]."""
    return None if value is None else duration_s(value)


def _fraction_per(value: object, *, periods: tuple[str, ...], example: str) -> tuple[float, str]:
    match = _RATE.fullmatch(str(value))
    try:
        number = float(match[1]) if match else -1.0
    except ValueError:
        number = -1.0
    if match is None or isinstance(value, bool) or not number > 0:
        raise ValueError(f"a rate above zero such as {example} is needed")
    period = match[3] or periods[0]
    if period not in periods:
        raise ValueError(f"{period!r} is not a period; allowed: {', '.join(periods)}")
    return number / 100 if match[2] else number, period


def growth_per_month(value: object) -> float | None:
    """``5%/month``, ``80%/year`` or a fraction a month; a year's growth compounds over twelve months [1/month].

    Raises ValueError: not a rate above zero, or more than tenfold a month.
    """
    if value is None:
        return None
    fraction, period = _fraction_per(value, periods=("month", "year"), example="5%/month")
    monthly = fraction if period == "month" else (1 + fraction) ** (1 / MONTHS_PER_YEAR) - 1
    if monthly > _LARGEST_GROWTH:
        most = percent_text(_LARGEST_GROWTH)
        raise ValueError(f"growth of {percent_text(monthly)} a month is not planned for; at most {most}")
    return monthly


def ramp_per_s(value: object) -> float | None:
    """``10%/min`` or a fraction of the planned rate a minute [1/s]. Raises ValueError: not a rate above zero."""
    if value is None:
        return None
    fraction, period = _fraction_per(value, periods=("min", "minute", "s", "second"), example="10%/min")
    return fraction if period in ("s", "second") else fraction / SECONDS_PER_MINUTE


def horizon_months(value: object) -> object:
    """``24 months``, ``24m`` or 24 [months]; anything else is left for the field's own check."""
    match = _HORIZON.fullmatch(str(value)) if isinstance(value, str) else None
    return int(match[1]) if match else value


WORKLOADS = ("chat", "code", "rag", "long-context", "batch", "agents", "reasoning")
"""Kinds of demand with lengths of their own."""
SUM_TOLERANCE = 0.005
"""How far from 1 shares may sum to: they are written with two digits."""


def stock_entry(text: str) -> tuple[str, int]:
    """``h100=64`` as a hardware name and a number of accelerators. Raises ValueError: not of that form, or none."""
    name, equals, count = text.partition("=")
    if not equals or not name.strip() or not _COUNT.fullmatch(count.strip()):
        raise ValueError(f"an entry HARDWARE=COUNT such as h100=64 (1 to 999999999) is needed, got {text!r}")
    return name.strip(), int(count)


def model_share(text: str) -> tuple[str, float | None]:
    """``llama-3.1-8b=0.7`` as a model and its share; a name alone has none. Raises ValueError: a share not above 0."""
    name, equals, written = text.rpartition("=")
    if not equals or _hour(written) == written:
        return text, None
    share = float(written)
    if not 0 < share <= 1:
        raise ValueError(f"{text!r} has no share of the requests above 0 and up to 1")
    return name, share


def is_workload_kind(text: str) -> bool:
    """Whether kinds of demand are meant, and no file: of a list by a name that is known or a share that is a number."""
    parts = [part.rpartition("=") for part in text.split(",")]
    known = any(plain_word(name or last) in WORKLOADS for name, _, last in parts)
    return known or any(equals and _hour(last) != last for _, equals, last in parts)


def workload_shares(text: str) -> tuple[tuple[str, float], ...]:
    """``chat=0.7,rag=0.3`` as kinds of demand, each with its share of the requests; of a name alone all.

    Raises ValueError: a kind is unknown or comes twice, or the shares do not sum to 1.
    """
    found = [(plain_word(name), share) for name, share in map(model_share, text.split(","))]
    names, alone = [name for name, _ in found], len(found) == 1
    shares = [1.0 if share is None and alone else share or 0.0 for _, share in found]
    for name in names:
        if name not in WORKLOADS:
            raise ValueError(f"{name!r} is no kind of demand ({did_you_mean(name, WORKLOADS)})")
    if len({*names}) < len(names) or 0.0 in shares or not isclose(sum(shares), 1, abs_tol=SUM_TOLERANCE):
        raise ValueError("each kind once, with shares that sum to 1 (chat=0.7,rag=0.3), is needed")
    return tuple(zip(names, shares, strict=True))


def _hour(text: str) -> object:
    try:
        return float(text) if "_" not in text else text
    except ValueError:
        return text


def hourly_profile(value: object) -> object:
    """24 or 168 numbers as relative demand by hour; a list stays. Raises ValueError: other counts, below 0, all 0."""
    if isinstance(value, str):
        value = tuple(_hour(part) for part in value.replace(";", ",").split(",") if part.strip())
    if not isinstance(value, list | tuple):
        return value
    if len(value) == 0:
        return ()
    needed = f"{HOURS_PER_DAY} numbers (a day) or {HOURS_PER_WEEK} (a week from Monday) are needed, one for each hour"
    if len(value) not in (HOURS_PER_DAY, HOURS_PER_WEEK):
        raise ValueError(f"{needed}; there are {len(value)}")
    hours = []
    for place, item in enumerate(value):
        if isinstance(item, bool) or not isinstance(item, int | float):
            raise ValueError(f"{needed}; hour {place} is no number")
        hours.append(float(min(item, LARGEST_NUMBER)))
        if not 0 <= item <= LARGEST_NUMBER:
            raise ValueError(f"hour {place} must be a number of at least 0, it is {item}")
    if not max(hours) > 0:
        raise ValueError("some hour has to be above 0")
    return tuple(hours)


PLANNED_MODEL = "llama-3.1-70b"
PLANNED_RATE_PER_S = KILO

MODEL = "llama-3.1-8b"
HARDWARE = "h100"
COMPARED_HARDWARE = ("h100", "h200", "b200", "mi300x")
"""Beside each other in a comparison that names none."""
SERVED_RATE_PER_S = 8.0
SERVED_DURATION_S = 600.0
PROMISE_SEEDS = 10
"""Replays of each case of a planned fleet."""
EXPLAINED_BATCH = 16
STEP_CONTEXT_TOKENS = 1024
"""Tokens that a decode step attends to, or of the prompt; or all that the model takes where that is less."""


SHORT_FIELDS: Mapping[str, str] = {
    "rps": "rate_per_s",
    "isl": "isl_tokens",
    "osl": "osl_tokens",
    "tp": "tp_size",
    "pp": "pp_size",
    "dp": "dp_size",
    "ep": "ep_size",
    "cp": "cp_size",
    "batch": "batch_size",
    "power_cap": "power_cap_w",
}
"""Short words of the command line, and the fields of plans and scenarios that they stand for. Files take both."""


LARGEST_CV = 10.0
"""Largest coefficient of variation that is taken: beyond it a log-normal's moments say nothing about requests."""

FEWEST_PICTURES, MOST_PICTURES = 1 / GIGA, KILO
"""Of a request, on average, where some have them."""

MOST_ANSWERS = 128
"""To one request: the most that vLLM and the APIs of its kind take as n."""


class LatencyMetric(StrEnum):
    """What an objective bounds. TTFT includes queueing; TPOT = (E2E - TTFT) / (OSL - 1)."""

    TTFT = "ttft"
    TPOT = "tpot"
    E2E = "e2e"


class ObjectiveSpec(Spec):
    """A percentile of a latency that must stay at or under a bound [s]. ``latency`` is another word for E2E. Of TPOT
    the bound may be ``reading``: no slower than people read."""

    metric: LatencyMetric
    percentile: float = Field(gt=0, lt=100)
    bound_s: Annotated[float, BeforeValidator(objective_s)]

    @field_validator("bound_s", mode="before")
    @classmethod
    def _reading_is_of_tokens(cls, value: object, info: ValidationInfo) -> object:
        if value == READING and info.data.get("metric") != "tpot":
            raise ValueError("reading is a bound of tpot, the time per token")
        return value

    @property
    def name(self) -> str:
        """``TTFT p95``."""
        return f"{self.metric.upper()} p{self.percentile:g}"

    @property
    def key(self) -> str:
        """``ttft_p95``, as in workload files and results."""
        return f"{self.metric}_p{self.percentile:g}"

    def within(self, bound_s: float) -> "ObjectiveSpec":
        """This percentile under another bound."""
        return self.model_copy(update={"bound_s": bound_s})

    def margin(self, value_s: float) -> float:
        """What a value leaves of the bound, as a share of it; below zero beyond it."""
        return 1 - value_s / self.bound_s


def watched(found: Any, objectives: Sequence[ObjectiveSpec], *, free: str = "ttft tpot") -> dict[str, Any]:
    """What tables show of latencies, by ``TTFT p99``: the values of the objectives, and the p95 of ``free`` metrics
    that none bounds.

    found : has ``objectives_s``, in the order of ``objectives``, and ``ttft_p95_s`` and the like
    """
    values = {(item.metric, item.percentile): value for item, value in zip(objectives, found.objectives_s, strict=True)}
    bounded = {metric for metric, _ in values}
    unbounded = (metric for metric in map(LatencyMetric, free.split()) if metric not in bounded)
    values |= {(metric, 95.0): getattr(found, f"{metric}_p95_s") for metric in unbounded}
    order = list(LatencyMetric)
    by_metric = sorted(values, key=lambda item: (order.index(item[0]), item[1]))
    return {f"{metric.upper()} p{percentile:g}": values[metric, percentile] for metric, percentile in by_metric}


_WRITTEN = re.compile(r"(ttft|tpot|e2e|latency)[-_]p([0-9]+(?:\.[0-9]+)?)\s*=\s*(.+)")


def parse_objectives(texts: Sequence[str], *, flag: str) -> tuple[ObjectiveSpec, ...]:
    """One spec per text; the same percentile of the same metric twice is refused, because one of them would be idle.

    Raises RoofcastError: not METRIC-pNN=TIME, an unknown metric, a percentile outside (0, 100) or a time not above
    zero.
    """
    found: dict[tuple[str, float], ObjectiveSpec] = {}
    for text in texts:
        match = _WRITTEN.fullmatch(text.strip().lower())
        if match is None:
            raise RoofcastError(
                f"METRIC-pNN=TIME is needed with ttft, tpot or e2e, got {text!r}",
                field=flag,
                hint="such as ttft-p95=2s or tpot-p95=50ms",
            )
        fields = {"metric": match[1].replace("latency", "e2e"), "percentile": float(match[2]), "bound_s": match[3]}
        try:
            spec = validate(ObjectiveSpec, fields, where="")
        except RoofcastError as error:
            raise RoofcastError(f"{error.message}, in {text!r}", field=flag, hint=error.hint) from None
        key = (spec.metric, spec.percentile)
        if key in found:
            raise RoofcastError(f"{text!r} bounds what another objective bounds already", field=flag)
        found[key] = spec
    return tuple(found.values())
