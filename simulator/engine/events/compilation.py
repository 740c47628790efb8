"""Machine code for the event loop, kept on disk between runs.

The compiler's own cache looks only at the file of the function that it compiles, so a change in a function that was
inlined from another file would go unseen. Here the cache folder is named after a digest of all files of the loop.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config as numba_config
from numba.core import event
from numba.extending import register_jitable

from simulator.files import cache_root
from simulator.phases import compiled as tables

Function = TypeVar("Function", bound=Callable[..., Any])


def _source_digest() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    # All files of this folder: which of them end up in the loop is the compiler's business.
    for source in [*sorted(Path(__file__).parent.glob("*.py")), Path(tables.__file__)]:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> str | None:
    """A folder that can be written, or None: then every process compiles for itself."""
    for parent in (cache_root(), Path(tempfile.gettempdir()) / "roofcast"):
        folder = parent / f"compiled-{_source_digest()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return str(folder)
    return None


_FOLDER = _cache_folder()


# Nothing in the loop allocates: without reference counting (_nrt) it is six times as fast, without entry points for
# Python (wrappers) its inner functions compile in two thirds of the time.
_INNER: dict[str, Any] = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
# Runs share nothing, so that threads may make several at once (nogil).
_ENTRY: dict[str, Any] = {**_INNER, "no_cpython_wrapper": False, "nogil": True, "cache": _FOLDER is not None}


def _in_cache_folder(compile_function: Callable[[], Any]) -> Any:
    """The compiler reads its cache folder when a function is decorated."""
    settings: Any = numba_config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = _FOLDER or before
    try:
        return compile_function()
    finally:
        settings.CACHE_DIR = before


def compiled(function: Function) -> Function:
    """Decorate a function that other functions of the loop call."""
    made: Function = numba.njit(**_INNER)(function)
    return made


def inlined(function: Function) -> Function:
    """Decorate a function with one caller in the loop: machine code for it stands there, and no argument is copied."""
    made: Function = numba.njit(forceinline=True, **_INNER)(function)
    return made


def plugged(function: Function) -> Function:
    """Decorate a function that is handed to the loop as an argument.

    Given as it is, not as a compiled object, whose address would keep the loop out of the cache on disk.
    """
    made: Function = register_jitable(forceinline=True, **_INNER)(function)
    return made


def entry(function: Function) -> Function:
    """Decorate a function that Python calls: compiled at its first call, and found again by later processes."""
    made: Function = _in_cache_folder(lambda: numba.njit(**_ENTRY)(function))
    _announced.append(made)
    return made


_announced: list[Any] = []
"""Functions whose compilation is said before it begins: nobody waits in silence."""


class _Announcement(event.Listener):  # type: ignore[misc, unused-ignore]
    """Says when the loop is compiled, which takes seconds; what is found on the disk is not."""

    def on_start(self, event: Any) -> None:
        if any(event.data["dispatcher"] is function for function in _announced):
            kept = "kept for later runs" if _FOLDER else "and again in every process: no folder can be written"
            logging.getLogger(__name__).warning(
                "roofcast: compiling the event simulation for this machine, up to a minute, %s (roofcast warm-up)", kept
            )

    def on_end(self, event: Any) -> None:
        """Nothing: the answer follows."""


event.register("numba:compile", _Announcement())  # type: ignore[no-untyped-call, unused-ignore]


# These stay plain functions for numpy arrays, and become callable from the loop.
for _function in tables.SCALAR_FUNCTIONS:
    register_jitable(_function)
