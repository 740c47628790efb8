"""Machine code for the event loop, kept on disk between runs.

The compiler's own cache looks only at the file of the function that it compiles, so a change in a function that was
inlined from another file would go unseen. Here the cache folder is named after a digest of all files of the loop.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config
from numba.extending import register_jitable

import simulator.engine
from simulator.phases import compiled as tables

Function = TypeVar("Function", bound=Callable[..., Any])


def _source_digest() -> str:
    sources = sorted(Path(simulator.engine.__path__[0]).glob("*.py"))
    digest = hashlib.sha256(numba.__version__.encode())
    for source in [*sources, Path(tables.__file__)]:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> str | None:
    """A folder that can be written, or None: then every process compiles for itself."""
    root = os.environ.get("ROOFCAST_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    for parent in (Path(root), Path(tempfile.gettempdir())):
        folder = parent / "roofcast" / f"compiled-{_source_digest()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return str(folder)
    return None


_FOLDER = _cache_folder()


def _compile(function: Function, *, entry: bool) -> Function:
    before = config.CACHE_DIR
    config.CACHE_DIR = _FOLDER or before
    try:
        # Nothing here allocates: without reference counting the loop is six times as fast.
        made: Function = numba.njit(
            cache=_FOLDER is not None and entry,
            error_model="numpy",
            _nrt=False,
            no_cpython_wrapper=not entry,
            no_cfunc_wrapper=True,
        )(function)
    finally:
        config.CACHE_DIR = before
    return made


def compiled(function: Function) -> Function:
    """Decorate a function that other functions of the loop call."""
    return _compile(function, entry=False)


def entry(function: Function) -> Function:
    """Decorate a function that Python calls: compiled at its first call, and found again by later processes."""
    return _compile(function, entry=True)


# These stay plain functions for numpy arrays, and become callable from the loop.
for _function in tables.SCALAR_FUNCTIONS:
    register_jitable(_function)
