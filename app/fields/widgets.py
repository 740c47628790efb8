"""Widgets that live in the address. Each key is its name there; each says what it takes, for links, undo and reset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isnan
from typing import Any, Literal, TypeVar

import streamlit as st
from streamlit.errors import StreamlitAPIException

from simulator.errors import closest, closest_number

_SHOWN, _LEFT_OUT, _WAITING, _OPENED = "_shown", "_left_out", "_waiting", "_opened_with"
_CHOSEN = "_chosen_"
LONGEST_SHOWN = 40
_NUMBER = "%.6g"
T = TypeVar("T", str, int)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A widget of the page: its name, what it says until somebody changes it, and in words what it takes.

    read : a value of its kind from its text
    needs : what has to be filled in first; empty once it is
    names : everything that one of a few names can be; none for numbers
    bounds : of a number, none where it is one of a few
    beside : where an address asked for another number, those that it takes next to it
    """

    label: str
    default: object
    allowed: str
    read: Callable[[str], Any]
    needs: str = ""
    names: tuple[object, ...] = ()
    bounds: tuple[float, float] | None = None
    beside: tuple[float, ...] = ()

    def takes(self, value: object) -> bool:
        """Whether it can be set to a value of its kind."""
        if self.bounds is not None:
            return isinstance(value, int | float) and self.bounds[0] <= value <= self.bounds[1]
        chosen = value if isinstance(value, list) else [value]
        return not self.names or all(item in self.names for item in chosen)


def begin() -> None:
    """Forget the widgets of the run before."""
    st.session_state[_SHOWN] = {}


def shown() -> dict[str, Shown]:
    """The widgets of this run by their key."""
    found: dict[str, Shown] = st.session_state.setdefault(_SHOWN, {})
    return found


def leave_out(keys: set[str]) -> None:
    """Do not read what the address says of ``keys``: boxes of whole numbers end in an error over 400 digits."""
    st.session_state[_LEFT_OUT], st.session_state[_WAITING] = keys, set()
    for key in keys:
        del st.query_params[key]


def open_with(texts: Mapping[str, str]) -> None:
    """What an address says, by key: a number beyond what its widget takes is answered with the nearest that it does.

    A browser's own reading of the address would answer with the default.
    """
    st.session_state[_OPENED] = dict(texts)


def _asked_number(key: str) -> float | None:
    """The number that the address says when a page is opened, once; None where it says none."""
    try:
        found = float(st.session_state.get(_OPENED, {}).pop(key))
    except (KeyError, ValueError):
        return None
    return None if isnan(found) else found


def _answer_as(key: str, value: object, text: str | list[str]) -> None:
    """Let a widget say ``value``, and the address ``text``; one that is bound already says so itself: a run that was
    cut short, or a browser whose address is a moment old, brings the old text again.
    """
    st.session_state[key] = value
    with suppress(StreamlitAPIException):
        st.query_params[key] = text


def _nearest(key: str, names: Sequence[object], bounds: tuple[float, float] | None) -> tuple[float, ...]:
    """Answer an address that asks for a number that is not taken with the nearest that is; of a few numbers, those on
    both sides of what was asked.
    """
    numbers = [name for name in names if isinstance(name, int | float)]
    asked = _asked_number(key) if numbers or bounds else None
    if asked is None or asked in numbers:
        return ()
    if bounds is not None:
        low, high = bounds
        inside = min(max(asked, low), high)
        # Both ends have the type of the box.
        nearest = next((end for end in bounds if end == inside), round(inside) if isinstance(low, int) else inside)
        if nearest != asked:
            _answer_as(key, nearest, str(nearest))
        return ()
    found = closest_number(asked, numbers)
    _answer_as(key, found, str(found))
    below, above = ([number for number in numbers if (number > asked) is over] for over in (False, True))
    return (*sorted(below)[-1:], *sorted(above)[:1])


def _address(key: str) -> Literal["query-params"] | None:
    """Where a widget's value is read and kept; nowhere while it waits for another."""
    return None if shown()[key].needs or key in st.session_state.get(_LEFT_OUT, ()) else "query-params"


def _register(
    key: str,
    label: str,
    default: object,
    allowed: str,
    read: Callable[[str], Any],
    *,
    needs: str = "",
    names: Sequence[object] = (),
    bounds: tuple[float, float] | None = None,
) -> None:
    beside = () if needs else _nearest(key, names, bounds)
    shown()[key] = Shown(
        label=label,
        default=default,
        allowed=allowed,
        read=read,
        needs=needs,
        names=tuple(names),
        bounds=bounds,
        beside=beside,
    )
    state = st.session_state
    waiting: set[str] = state.setdefault(_WAITING, set())
    if needs:
        waiting.add(key)
        state[key] = default
        # One that was bound in the run before cannot be taken out here: it leaves the address with its binding.
        with suppress(StreamlitAPIException):
            st.query_params.pop(key, None)
    elif key in waiting:
        waiting.remove(key)
        # What the page was opened with would come back once it is bound again, unless a value is set here.
        state[key] = state.get(key, default)


def _why(help: str, needs: str) -> str:
    """A word of help that starts with what has to be filled in first."""
    return f"Fill in {needs} first. {help}" if needs else help


def is_filled(key: str) -> bool:
    """Whether a box says something, one further down the page too."""
    state = st.session_state
    return (state[key] if key in state else st.query_params.get(key)) is not None


def quoted(text: str) -> str:
    """What somebody says, as inert text."""
    return "".join(letter for letter in text[:LONGEST_SHOWN] if letter.isprintable() and letter != "`")


def _whole(text: str) -> int:
    return round(float(text))


def _names(options: Sequence[object]) -> str:
    few = 8
    listed = ", ".join(str(option) for option in options[:few])
    return listed if len(options) <= few else f"{listed} and more"


def _nothing_else(_: str) -> None:
    """An option has one name."""


def choice(
    label: str,
    options: Sequence[T],
    *,
    key: str,
    default: T,
    help: str,
    on_change: Callable[[], None] | None = None,
    spelled: Callable[[str], T | None] = _nothing_else,
    needs: str = "",
) -> T:
    """One of a few names or numbers: what a browser sends is looked up in the list.

    spelled : the option that an address, or whoever types into the box, calls by another of its names
    needs : the label of what has to be filled in first; while it is not, this is disabled and says its default
    """
    index = options.index(default) if default in options else 0
    kind = type(options[index])
    _register(
        key,
        label,
        options[index],
        _names(options),
        lambda text: spelled(text) or kind(text),
        needs=needs,
        names=options,
    )
    is_typed = spelled is not _nothing_else
    unknown = _settle(key, options, default=options[index], spelled=spelled) if is_typed else ""
    found = st.selectbox(
        label,
        options,
        index=index,
        key=key,
        bind=_address(key),
        on_change=on_change,
        help=_why(help, needs),
        disabled=bool(needs),
        accept_new_options=is_typed,
    )
    if unknown:
        like = closest(unknown, [str(name) for name in options])
        st.caption(f"`{unknown}` is not known for {label}. {like[:1].upper()}{like[1:]}")
    if found not in options:
        # What an address says of a box that takes other names stands in it for one run, whatever it was told.
        st.rerun()
    st.session_state[f"{_CHOSEN}{key}"] = found
    return found  # type: ignore[return-value] # one of the options


def _settle(key: str, options: Sequence[T], *, default: T, spelled: Callable[[str], T | None]) -> str:
    """Answer with the option that another of its names stands for, of what is typed also the shortest that begins so;
    what is typed and stands for none is handed back, and the choice stays what it was.
    """
    state = st.session_state
    said = state[key] if key in state else st.query_params.get(key)
    if said is None or said in options:
        return ""
    is_typed = key not in state.get(_OPENED, {})
    begun = [name for name in options if is_typed and str(name).startswith(said.lower())]
    meant = spelled(said) or min(begun, key=lambda name: len(str(name)), default=None)
    known = meant if meant in options else state.get(f"{_CHOSEN}{key}", default)
    _answer_as(key, known, str(known))
    return "" if meant in options or not is_typed else quoted(said)


def several(
    label: str,
    options: Sequence[str],
    *,
    key: str,
    placeholder: str,
    help: str,
    spelled: Callable[[str], str | None] = _nothing_else,
) -> tuple[str, ...]:
    """Any of a few names; spelled : as :func:`choice` has it."""
    _register(key, label, [], _names(options), lambda text: [spelled(text) or text], names=options)
    asked = st.query_params.get_all(key)
    named = [text if text in options else spelled(text) or text for text in asked]
    if named != asked:
        _answer_as(key, list(dict.fromkeys(name for name in named if name in options)), named)
    return tuple(st.multiselect(label, options, key=key, bind="query-params", placeholder=placeholder, help=help))


def whole(label: str, *, key: str, low: int, high: int, value: int, help: str, step: int = 1) -> int:
    """A slider of whole numbers."""
    _register(key, label, value, f"{low:,} to {high:,}", _whole, bounds=(low, high))
    return st.slider(label, low, high, value, step, key=key, bind=_address(key), help=help)


def share(label: str, *, key: str, low: float, high: float, value: float, step: float, help: str) -> float:
    """A slider of percents."""
    _register(key, label, value, f"{low:g} to {high:g}", float, bounds=(low, high))
    return st.slider(label, low, high, value, step, format="percent", key=key, bind=_address(key), help=help)


def count(label: str, *, key: str, low: int, high: int, value: int, help: str) -> int:
    """A box of whole numbers."""
    _register(key, label, value, f"{low:,} to {high:,}", _whole, bounds=(low, high))
    return int(st.number_input(label, low, high, value, key=key, bind=_address(key), help=help))


def optional_count(
    label: str, *, key: str, low: int, high: int, placeholder: str, help: str, needs: str = ""
) -> int | None:
    """A box of whole numbers that may stay empty; ``placeholder`` says what stands for it then.

    needs : as :func:`choice` has it
    """
    _register(key, label, None, f"{low:,} to {high:,}", _whole, needs=needs, bounds=(low, high))
    return st.number_input(
        label,
        low,
        high,
        None,
        key=key,
        bind=_address(key),
        placeholder=placeholder,
        help=_why(help, needs),
        disabled=bool(needs),
    )


def number(label: str, *, key: str, low: float, high: float, value: float, step: float, help: str) -> float:
    """A real number within bounds."""
    _register(key, label, value, f"{low:g} to {high:,g}", float, bounds=(low, high))
    return float(st.number_input(label, low, high, value, step, format=_NUMBER, key=key, bind=_address(key), help=help))


def optional_number(
    label: str, *, key: str, low: float, high: float, step: float, placeholder: str, help: str, needs: str = ""
) -> float | None:
    """A real number that may stay empty.

    needs : as :func:`choice` has it
    """
    _register(key, label, None, f"{low:g} to {high:,g}", float, needs=needs, bounds=(low, high))
    return st.number_input(
        label,
        low,
        high,
        None,
        step,
        format=_NUMBER,
        key=key,
        bind=_address(key),
        placeholder=placeholder,
        help=_why(help, needs),
        disabled=bool(needs),
    )


def text(label: str, *, key: str, placeholder: str, help: str) -> str:
    """A few words that may stay empty."""
    _register(key, label, "", placeholder, str)
    return st.text_input(label, key=key, bind="query-params", placeholder=placeholder, help=help).strip()


def switch(label: str, *, key: str, help: str) -> bool:
    """On or off."""
    _register(key, label, False, "true or false", lambda text: text == "True")
    return st.toggle(label, key=key, bind="query-params", help=help)


def view(label: str, options: Sequence[str], *, key: str, folded: bool = False, default: str = "") -> str:
    """One of a few things to look at; ``default``, or the first, until another is chosen, or nothing where all are
    ``folded`` away.
    """
    first = None if folded else default or options[0]
    _register(key, label, first, _names(options), str)
    chosen = st.segmented_control(
        label,
        options,
        default=first,
        key=key,
        bind="query-params",
        label_visibility="visible" if folded else "collapsed",
        required=not folded,
    )
    return chosen or first or ""
