"""Machine code for the event loop where there is enough to simulate; Python runs the same functions until then.

Numba compiles the loop once for a machine and keeps it on disk. Without numba, or for a few requests before anything
was compiled, the functions run as they stand: slower by a factor that benchmarks/serve_speed.py prints, with the same
bytes. So nobody waits for a compiler whose work would not be repaid, and an installation without it answers as well.

The compiler's own cache looks at place and time of the file of the function that it compiles: a change in a function
inlined from another file would go unseen, and a copy of the same files would be compiled again. Here the cache folder
is named after a digest of all files of the loop, and nothing else is asked.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from simulator.files import machine_code_roots

Function = TypeVar("Function", bound=Callable[..., Any])

WORTH_COMPILING_REQUESTS = 10_000
"""Requests of one process that Python serves in less time than the compiler takes, sequence by sequence."""
WORTH_LOADING_REQUESTS = 300
"""The same of the time in which machine code is loaded that an earlier process left."""
TALLIED_REQUESTS = 100
"""Requests to a byte of the file that adds up what Python served: who asks again and again gets machine code."""

_READY = ".ready"

FASTER = "pip install '.[fast]' makes long simulations some hundred times as fast"

# Nothing in the loop allocates: without reference counting (_nrt) it is six times as fast, without entry points for
# Python (wrappers) its inner functions compile in two thirds of the time.
_INNER: dict[str, Any] = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
# Runs share nothing, so that threads may make several at once (nogil).
_ENTRY: dict[str, Any] = {**_INNER, "no_cpython_wrapper": False, "nogil": True}

_PARTS: list[tuple[Callable[..., Any], Callable[..., Any], Any]] = []
"""Functions that the loop calls, what is compiled for each, and how; to Python they stay what they are."""


def compiled(function: Function) -> Function:
    """Decorate a function that other functions of the loop call."""
    _PARTS.append((function, function, _INNER))
    return function


def inlined(function: Function) -> Function:
    """Decorate a function with one caller in the loop: machine code for it stands there, and no argument is copied."""
    _PARTS.append((function, function, {"forceinline": True, **_INNER}))
    return function


def in_place_of(called: Callable[..., Any], *, inline: bool = False) -> Callable[[Function], Function]:
    """Let machine code run the decorated function where Python runs ``called``, which suits Python better."""

    def decorated(function: Function) -> Function:
        _PARTS.append((called, function, {"forceinline": True, **_INNER} if inline else _INNER))
        return function

    return decorated


@lru_cache(maxsize=1)
def compiler_version() -> str | None:
    """Version of numba; None where it is not installed, or told to compile nothing."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
        return None
    try:
        return version("numba")
    except PackageNotFoundError:
        return None


@lru_cache(maxsize=1)
def _cache_folder() -> Path | None:
    """A folder of this user's that can be written, or None: then every process compiles for itself."""
    digest = hashlib.sha256(str(compiler_version()).encode())
    # All files of this folder: which of them end up in the loop is the compiler's business.
    here = Path(__file__).parent
    for source in [*sorted(here.glob("*.py")), here.parents[1] / "phases" / "compiled.py"]:
        digest.update(source.read_bytes())
    for parent in machine_code_roots():
        folder = parent / f"compiled-{digest.hexdigest()[:16]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        # What another user put into a folder that all may write would be run.
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.geteuid():
            return folder
    return None


def can_keep() -> bool:
    """Whether other processes find the machine code that one has made."""
    return compiler_version() is not None and _cache_folder() is not None


def is_on_disk() -> bool:
    """Whether an earlier process left machine code of the event loop."""
    folder = _cache_folder() if can_keep() else None
    return folder is not None and any(folder.glob(f"*{_READY}"))


@dataclass(slots=True, kw_only=True)
class Loop:
    """An event loop that runs as machine code where that is worth it.

    function : the loop, whose parts are decorated here; name : a file name, unlike that of any other loop
    worth_compiling : requests that Python serves in less time than the compiler takes
    interpreted_requests : that Python has served in this process; machine : the compiled loop, once there is one
    """

    function: Callable[..., None]
    name: str
    worth_compiling: int = WORTH_COMPILING_REQUESTS
    interpreted_requests: int = 0
    machine: Callable[..., None] | None = None

    def for_requests(self, requests: int) -> Callable[..., None]:
        """The loop as it is to be called for work with that many requests."""
        if self.machine is None and self._is_worth_it(requests):
            self.compile()
        if self.machine is not None:
            return self.machine
        self.interpreted_requests += requests
        if compiler_version() is None and self.interpreted_requests > self.worth_compiling:
            _say_that_python_is_slow()
        if self.tally is not None and requests > WORTH_LOADING_REQUESTS:
            with suppress(OSError), self.tally.open("ab") as kept:
                kept.write(b"." * (requests // TALLIED_REQUESTS))
        return self._interpreted

    def _interpreted(self, *arguments: Any) -> None:
        # Machine code knows no errors of arithmetic.
        with np.errstate(all="ignore"):
            self.function(*arguments)

    def compile(self) -> None:
        """Make machine code, or find it on disk, when it is called next; nothing without a compiler, or where there is
        some: a second copy would stay in memory beside the first (9 MB)."""
        if self.machine is None and compiler_version() is not None:
            self.machine = _machine_code(self)

    @property
    def mark(self) -> Path | None:
        """The file that says that machine code of this loop lies in the folder beside it, and its digest."""
        folder = _cache_folder()
        return None if folder is None else folder / f"{self.name}{_READY}"

    @property
    def tally(self) -> Path | None:
        """The file whose size says what Python has served in all processes; None where nothing can be compiled."""
        return None if self.mark is None or compiler_version() is None else self.mark.with_suffix(".interpreted")

    def _is_worth_it(self, requests: int) -> bool:
        if compiler_version() is None:
            return False
        ready = self.mark is not None and self.mark.exists()
        least, served = WORTH_LOADING_REQUESTS if ready else self.worth_compiling, self.interpreted_requests
        if requests > WORTH_LOADING_REQUESTS and self.tally is not None and self.tally.exists():
            served = max(served, self.tally.stat().st_size * TALLIED_REQUESTS)
        return served + requests > least


@lru_cache(maxsize=1)
def _say_that_python_is_slow() -> None:
    logging.getLogger(__name__).warning("roofcast: the event simulation runs in Python; %s", FASTER)


def _machine_code(loop: Loop) -> Callable[..., None]:
    """The compiled loop; it announces itself before it compiles, as nobody waits in silence, and leaves its mark."""
    import numba
    from numba.core import config as numba_config
    from numba.core import event

    _register_parts()
    folder = _whole_folder(loop)
    settings: Any = numba_config
    before = settings.CACHE_DIR
    # The compiler reads its cache folder when a function is decorated.
    settings.CACHE_DIR = str(folder) if folder else before
    try:
        made: Any = numba.njit(**_ENTRY, cache=folder is not None)(loop.function)
    finally:
        settings.CACHE_DIR = before
    if folder is not None and loop.mark is not None:
        cache = made._cache
        cache._impl.locator._cache_path = place = str(folder / "loop")
        cache._cache_file = type(cache._cache_file)(place, cache._impl.filename_base, folder.parent.name)
        save = _kept_where_there_is_room(cache.save_overload, folder=folder, mark=loop.mark)
        cache.save_overload = save

    class Announcement(event.Listener):  # type: ignore[misc, unused-ignore]
        """Says when the loop is compiled, which takes seconds; what is found on the disk is not."""

        def on_start(self, event: Any) -> None:
            if event.data["dispatcher"] is made:
                kept = "kept for later runs" if folder else "and again in every process: no folder can be written"
                logging.getLogger(__name__).warning(
                    "roofcast: compiling the event simulation for this machine, up to a minute, %s (roofcast warm-up)",
                    kept,
                )

        def on_end(self, event: Any) -> None:
            """Nothing: the answer follows."""

    event.register("numba:compile", Announcement())  # type: ignore[no-untyped-call, unused-ignore]
    ran: Callable[..., None] = made
    return ran


def _digest(folder: Path) -> bytes:
    """Of all that lies in the folder of a loop."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*/*")))).digest()


def _whole_folder(loop: Loop) -> Path | None:
    """Where the machine code of a loop lies or will lie. The compiler believes whatever it finds there, so that what is
    not as its mark says is removed, and where that cannot be, nothing is kept."""
    if loop.mark is None:
        return None
    folder = loop.mark.with_suffix("")
    try:
        if folder.exists() and not (loop.mark.exists() and loop.mark.read_bytes() == _digest(folder)):
            shutil.rmtree(folder)
    except OSError:
        return None
    return folder


def _kept_where_there_is_room(save: Callable[..., None], *, folder: Path, mark: Path) -> Callable[..., None]:
    """Keep machine code, and then leave the mark; on a full disk it lasts as long as its process."""

    def kept(*arguments: Any) -> None:
        with suppress(OSError):
            save(*arguments)
            mark.write_bytes(_digest(folder))

    return kept


@lru_cache(maxsize=1)
def _register_parts() -> None:
    """Let compiled code call the parts of the loop, plain functions: compiled ones would keep it out of the cache."""
    from numba.extending import overload

    from simulator.phases.compiled import SCALAR_FUNCTIONS

    tables = [(function, function, _INNER) for function in SCALAR_FUNCTIONS]
    for called, function, options in tables + _PARTS:
        overload(called, jit_options=options, strict=False)(lambda *_, made=function: made)
