"""The one error type that users meet: a sentence that names the field, the value, what is allowed and what to try."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """Exit codes of both commands (contract, README)."""

    OK = 0
    USAGE = 2
    INFEASIBLE = 3
    PROFILE = 4
    IO = 5


class Option(str):
    """The name of a field that a command line spells as a flag (``max_gpus``, ``--max-gpus``)."""

    __slots__ = ()


LONGEST_VALUE = 80
"""Characters of what was given that a message repeats."""
_LONGEST_MESSAGE = 1000
_QUOTED = re.compile(rf"'[^']{{{LONGEST_VALUE + 1},}}'")
_PATH = re.compile(r"(?!\w+://).*/")
_LONGEST_PATH = 4096
"""Characters that Linux takes for a path."""
_LONGEST_NAME = 3 * LONGEST_VALUE
_UNBROKEN = re.compile(rf"[^\s'\"]{{{_LONGEST_NAME + 1},}}")
"""A file that is named outside quotes is copied from the message: only a very long name is cut."""
_MARK = "..."


def shown(value: object) -> str:
    """``value`` as Python writes it, cut to 80 characters; text that is as long as a file is not written out first."""
    if isinstance(value, str | bytes):
        value = value[:_LONGEST_PATH]
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or an integer of too many digits
        text = f"a {type(value).__name__}"
    return _cut_value(text)


def one_line(text: str) -> str:
    """A sentence without line ends and control characters, which a terminal would obey, and with no long values."""
    if len(text) > LONGEST_VALUE:
        text = _QUOTED.sub(lambda found: f"'{_cut_value(found[0][1:-1])}'", text)
        text = _UNBROKEN.sub(_path_cut, text)
        text = _cut(text, _LONGEST_MESSAGE)
    if text.isprintable():
        return text
    words = " ".join(text.split("\n"))
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in words)


def _path_cut(found: re.Match[str]) -> str:
    return _cut_value(found[0], _LONGEST_NAME) if _PATH.match(found[0]) else found[0]


def _cut_value(text: str, longest: int = LONGEST_VALUE) -> str:
    """What was given, cut: a path in the middle, so that the file's name stays."""
    if len(text) <= longest or "/" not in text or any(letter.isspace() for letter in text):
        return _cut(text, longest)
    kept = longest - len(_MARK)
    return f"{text[: kept // 3]}{_MARK}{text[kept // 3 - kept :]}"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - len(_MARK)]}{_MARK}"


def _cut_name(field: str) -> str:
    """A dotted name, of which whoever wrote the file chose the parts."""
    if len(field) > LONGEST_VALUE:
        field = _cut(".".join(_cut(part, LONGEST_VALUE) for part in field.split(".")), _LONGEST_NAME)
    return one_line(field)


def _again(kind: type[RoofcastError], said: tuple[object, ...], held: Mapping[str, object]) -> RoofcastError:
    """A refusal as it was before it was pickled."""
    found = kind.__new__(kind, *said)
    found.args = said
    found.__dict__.update(held)
    return found


class RoofcastError(Exception):
    """A refusal. ``str()`` is one line, which names options between backquotes.

    ``code`` is a short stable identifier for programs, ``field`` the dotted name of what was wrong,
    ``message`` says what is wrong and what is allowed, ``hint`` what to try next, ``offers`` the values of fields that
    the hint names.
    """

    usual_code, exit_code = "invalid_input", ExitCode.USAGE

    def __init__(self, message: str, *, field: str = "", code: str = "", hint: str = "") -> None:
        self.message = one_line(message)
        super().__init__(self.message)
        self.field = field if isinstance(field, Option) else _cut_name(field)
        self.code = code or self.usual_code
        self.hint = one_line(hint)
        self.offers: Mapping[str, object] = {}

    def offering(self, offers: Mapping[str, object]) -> Self:
        """This error with values that would be taken, by their fields."""
        self.offers = offers
        return self

    def __reduce__(self) -> tuple[Callable[..., RoofcastError], tuple[object, ...]]:
        # Refusals cross processes; their constructors differ.
        return _again, (type(self), self.args, dict(self.__dict__))

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.place}{self.message}{hint}"

    @property
    def place(self) -> str:
        """The field as a sentence begins with it, between backquotes where it is an option; empty without one."""
        named = f"`{self.field}`" if isinstance(self.field, Option) else self.field
        return f"{named}: " if named else ""


def no_effect(message: str, *, field: str, hint: str = "leave it out") -> RoofcastError:
    """Something was given that changes nothing here."""
    return RoofcastError(message, field=field, code="no_effect", hint=hint)


def ignored_option(message: str, *, field: str, hint: str = "leave it out") -> RoofcastError:
    """An option was given that this kind of question does not look at."""
    return RoofcastError(message, field=field, code="ignored_option", hint=hint)


def contradiction(message: str, *, field: str, hint: str = "") -> RoofcastError:
    """Two things were given that cannot both hold."""
    return RoofcastError(message, field=field, code="contradiction", hint=hint)


def missing_field(message: str, *, field: str, hint: str = "") -> RoofcastError:
    """Something that is needed was not given."""
    return RoofcastError(message, field=field, code="missing_field", hint=hint)


class ProfileError(RoofcastError):
    """A hardware, model, price or calibration profile that is unknown or invalid (exit code 4)."""

    usual_code, exit_code = "unknown_profile", ExitCode.PROFILE


class MissingPackageError(RoofcastError):
    """Something optional needs a package that is not installed; ``hint`` says how to get it."""

    usual_code = "missing_package"


class FileError(RoofcastError):
    """A file that cannot be read or written (exit code 5)."""

    usual_code, exit_code = "io", ExitCode.IO


class InfeasibleError(RoofcastError):
    """Nothing satisfies the request (exit code 3)."""

    usual_code, exit_code = "infeasible", ExitCode.INFEASIBLE


# Engines, benchmark clients and users call one thing by several names; fields and flags here are among them.
_SAME = (
    ("tp_size", "tp", "tensor_parallel_size"),
    ("pp_size", "pp", "pipeline_parallel_size"),
    ("dp_size", "dp", "data_parallel_size"),
    ("ep_size", "ep", "expert_parallel_size"),
    ("cp_size", "cp", "context_parallel_size", "prefill_context_parallel_size"),
    ("precision", "quantization", "dtype", "weights"),
    ("kv_cache", "kv_cache_dtype", "kv_dtype"),
    ("isl_tokens", "isl", "input_len", "input_tokens", "prompt_tokens", "random_input_len"),
    ("osl_tokens", "osl", "output_len", "output_tokens", "max_tokens", "random_output_len"),
    ("hardware", "gpu", "accelerator", "device"),
    ("engine", "backend", "framework"),
    ("batch_size", "batch"),
    ("concurrency", "max_concurrency", "users"),
    ("num_requests", "num_prompts", "requests"),
    ("rate_per_s", "rps", "rate", "qps", "request_rate"),
    ("slo", "objective", "sla"),
)


def same_words(word: str) -> frozenset[str]:
    """Names of fields and flags for what ``word`` means, in any case and with dashes or underscores."""
    plain = _plain(word)
    return frozenset(name for names in _SAME if plain in names for name in names)


def _plain(word: str) -> str:
    return word.lower().lstrip("-").replace("-", "_")


def closest_names(value: str, known: Iterable[str], *, limit: int = 3) -> list[str]:
    """What else ``value`` is called, else what begins so or is spelled alike, the likeliest first."""
    names = sorted(set(known))
    found = [name for name in names if _plain(name) in same_words(value)][:limit]
    if found:
        return found
    spelled = {name.lower(): name for name in names}
    begun = [name for name in spelled if len(value) > 1 and name.startswith(value.lower())]
    close = difflib.get_close_matches(value.lower(), spelled, n=limit, cutoff=0.5)
    return [spelled[name] for name in dict.fromkeys(sorted(begun, key=len) + close)][:limit]


def closest_number(value: float, known: Iterable[float]) -> float:
    """The number that is nearest to ``value``, of two the smaller."""
    numbers = sorted(known)
    # Beyond both ends all are as far in floating point.
    inside = min(max(value, numbers[0]), numbers[-1])
    return min(numbers, key=lambda number: abs(number - inside))


def closest(value: str, known: Iterable[str], *, limit: int = 3) -> str:
    """:func:`closest_names` as a hint; empty where nothing is like it."""
    found = closest_names(value, known, limit=limit)
    return f"did you mean {' or '.join(found)}?" if found else ""


def did_you_mean(value: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """The closest names, else ``otherwise``, else a few of all."""
    names = sorted(set(known))
    shown = ", ".join(names[:12])
    return closest(value, names) or otherwise or f"known: {shown}{', ...' if len(names) > 12 else ''}"


@contextmanager
def said_of(fields: Mapping[str, str]) -> Iterator[None]:
    """What is refused of a field, a key, is said of another, its value: what the reader wrote."""
    try:
        yield
    except RoofcastError as error:
        error.field = fields.get(error.field, error.field)
        raise


def plain_word(text: str) -> str:
    """Lower case, spaces and underscores as hyphens: ``TensorRT LLM`` is ``tensorrt-llm``."""
    return "-".join(text.strip().lower().replace("_", " ").split())
