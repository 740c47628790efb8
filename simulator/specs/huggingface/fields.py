"""Strict reading of one Hugging Face configuration: every field is used, known to be free of cost, or refused."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from simulator.errors import RoofcastError, did_you_mean, shown
from simulator.units import GIGA

MAX_LAYERS = 1_000
LARGEST_SIZE = int(GIGA)
"""Far above every width, vocabulary and number of positions."""
LARGEST_RATIO = 1_000.0
"""Far above what any width is of another."""


class Fields:
    """A configuration whose fields are read once each; ``finish`` refuses fields that no reader used.

    ``config_class`` names the transformers class whose documented defaults the readers may fill in.
    A null value counts as absent, as it does there.
    """

    def __init__(self, config: Mapping[str, object], *, config_class: str, path: str = "") -> None:
        self._config = config
        self._path = path
        self._read: set[str] = set()
        self._filled: dict[str, int] = {}
        self._sections: list[Fields] = []
        self._spelled: dict[str, str] = {}
        self.config_class = config_class

    def rename(self, names: Mapping[str, Sequence[str]]) -> None:
        """Read each usual name under the first of its family's names that is given."""
        for usual, others in names.items():
            self._spelled[usual] = self.either(*others)

    def _key(self, name: str) -> str:
        return self._spelled.get(name, name)

    def _name(self, name: str) -> str:
        return f"{self._path}.{self._key(name)}" if self._path else self._key(name)

    def refusal(self, name: str, message: str, *, hint: str = "") -> RoofcastError:
        """An error about ``name`` that a reader may raise."""
        return RoofcastError(message, field=self._name(name), code="invalid_model_config", hint=hint)

    def _take(self, name: str) -> object:
        self._read.add(self._key(name))
        return self._config.get(self._key(name))

    def has(self, name: str) -> bool:
        """Whether ``name`` is given and not null."""
        return self._config.get(self._key(name)) is not None

    def either(self, *names: str) -> str:
        """The first of ``names`` that is given, otherwise the first; two given with different values are refused."""
        given = [name for name in names if self.has(name)]
        for name in given[1:]:
            value, first = self._take(name), self._take(given[0])
            if value != first:
                raise self.refusal(name, f"is {value!r} but {given[0]} is {first!r}")
        return given[0] if given else names[0]

    def size(self, name: str, *, default: int | None = None) -> int:
        """A positive integer; without ``default`` it must be given."""
        value = self.optional_size(name)
        if value is not None:
            return value
        if default is None:
            raise self.refusal(
                name,
                "is missing, and the shape of the model cannot be known without it",
                hint=f"{self.config_class} needs it; take the complete config.json of the checkpoint",
            )
        self._filled[self._key(name)] = default
        return default

    def depth(self, name: str, *, default: int | None = None) -> int:
        """A number of layers; bounded, because one entry per layer is made of it."""
        value = self.size(name, default=default)
        if value > MAX_LAYERS:
            raise self.refusal(name, f"is {value}, allowed are 1 to {MAX_LAYERS} layers")
        return value

    def optional_size(self, name: str) -> int | None:
        """A positive integer or None."""
        value = self.optional_count(name)
        if value == 0:
            raise self.refusal(name, "is 0, allowed are integers of at least 1")
        return value

    def optional_count(self, name: str) -> int | None:
        """An integer of at least 0, or None."""
        value = self._take(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refusal(name, f"is {shown(value)}, allowed are integers")
        if not 0 <= value <= LARGEST_SIZE:
            raise self.refusal(name, f"is {shown(value)}, allowed are integers of 0 to {LARGEST_SIZE:,}")
        return value

    def count(self, name: str, *, default: int = 0) -> int:
        """An integer of at least 0."""
        value = self.optional_count(name)
        return default if value is None else value

    def ratio(self, name: str, *, default: float) -> float:
        """A ratio of widths."""
        value = self._take(name)
        if value is None:
            return default
        least = 1 / LARGEST_RATIO
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= LARGEST_RATIO:
            raise self.refusal(name, f"is {shown(value)}, allowed are numbers of {least:g} to {LARGEST_RATIO:,.0f}")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """A boolean."""
        value = self._take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refusal(name, f"is {shown(value)}, allowed are true and false")
        return value

    def text(self, name: str, *, allowed: Iterable[str], default: str | None = None) -> str:
        """One of the ``allowed`` words; without ``default`` it must be given."""
        value = self._take(name)
        choices = tuple(allowed)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or value not in choices:
            hint = did_you_mean(str(value), choices)
            raise self.refusal(name, f"is {shown(value)}, understood are {', '.join(choices)}", hint=hint)
        return value

    def words(self, name: str, *, length: int, allowed: Iterable[str]) -> tuple[str, ...] | None:
        """A list of one allowed word per layer, or None."""
        value = self._take(name)
        if value is None:
            return None
        choices = frozenset(allowed)
        if not isinstance(value, list | tuple) or len(value) != length:
            raise self.refusal(name, f"must be a list of {length} entries, one per layer")
        for word in value:
            if not isinstance(word, str) or word not in choices:
                raise self.refusal(name, f"holds {shown(word)}, understood are {', '.join(sorted(choices))}")
        return tuple(value)

    def integers(self, name: str, *, least: int = 0) -> tuple[int, ...] | None:
        """A list of integers of at least ``least``, or None."""
        value = self._take(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or any(
            type(item) is not int or not least <= item <= LARGEST_SIZE for item in value
        ):
            raise self.refusal(name, f"must be a list of integers of {least} to {LARGEST_SIZE:,}")
        return tuple(value)

    def expect(self, name: str, *, value: object, why: str) -> None:
        """Accept ``name`` only where it is absent, null or equal to ``value``."""
        given = self._take(name)
        if given is not None and given != value:
            raise self.refusal(name, f"is {shown(given)}, understood is only {shown(value)}: {why}")

    def raw(self, name: str) -> object:
        """The unchecked value, for a reader that checks it itself."""
        return self._take(name)

    def peek(self, section: str, name: str) -> object:
        """A value inside a nested object, without counting it as read."""
        nested = self._config.get(section)
        return nested.get(name) if isinstance(nested, Mapping) else None

    def section(self, name: str) -> Fields:
        """A nested object, as fields of their own that must be used up too."""
        value = self._take(name)
        if not isinstance(value, Mapping):
            raise self.refusal(name, f"must be an object, got {type(value).__name__}")
        nested = Fields(value, config_class=self.config_class, path=self._name(name))
        self._sections.append(nested)
        return nested

    def all_sections(self) -> tuple[Fields, ...]:
        """Every field as a nested object, for objects keyed by layer."""
        return tuple(self.section(name) for name in self._config)

    def sections(self, name: str, *, length: int) -> tuple[Fields, ...]:
        """A list of nested objects, one per layer."""
        value = self._take(name)
        if not isinstance(value, list) or len(value) != length or not all(isinstance(item, Mapping) for item in value):
            raise self.refusal(name, f"must be a list of {length} objects, one per layer")
        nested = tuple(
            Fields(item, config_class=self.config_class, path=f"{self._name(name)}[{index}]")
            for index, item in enumerate(value)
        )
        self._sections.extend(nested)
        return nested

    def costless(self, *names: str) -> None:
        """Declare family fields that change neither weights, FLOPs nor bytes."""
        self._read.update(map(self._key, names))

    def costless_rest(self, name: str) -> None:
        """Declare what nobody read of the nested object ``name`` free of cost (a tower has many settings)."""
        for nested in self._sections:
            if nested._path == self._name(name):
                nested.costless(*nested._config)

    def filled(self) -> tuple[str, ...]:
        """Sizes that were taken from the configuration class, as "name=value"."""
        own = tuple(f"{name}={value}" for name, value in self._filled.items())
        return own + tuple(item for nested in self._sections for item in nested.filled())

    def finish(self, known: Container[str] = ()) -> None:
        """Refuse the first field that no reader used and that is not ``known`` to be free of cost in every family."""
        for given, value in self._config.items():
            name = str(given)
            if value is not None and name not in self._read and name not in known:
                raise self.refusal(
                    name,
                    f"is {shown(value)}, a field that {self.config_class} is not known "
                    "to have and that could change the cost",
                    hint=did_you_mean(name, self._read) + " Remove it if it changes neither weights nor FLOPs",
                )
        for nested in self._sections:
            nested.finish(known)
