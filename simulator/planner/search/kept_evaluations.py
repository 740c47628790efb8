"""Evaluated replicas in a file, from which a later process starts when it plans another rate or price.

A file holds what ``usual_search`` remembers of one model. It names profiles instead of storing them; reading it loads
them anew, so that evaluations refer to the very objects of the next question. The caller derives the file's name from
everything that an evaluation depends on. Files that are damaged, truncated or owned by another user are not read.
"""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum, IntEnum, StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from simulator.errors import FileError, RoofcastError
from simulator.files import write_new_files
from simulator.planner.search.usual_search import Remembered, remember, remembered
from simulator.specs.base import Spec
from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec, load_hardware, load_server
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.loading import load_model
from simulator.traffic.lengths import Array

KEPT_FILES = 8
"""Files that stay, the newest: some 4 MB each."""
_CHECK_BYTES = 4
_READERS: Mapping[type[Spec], Callable[..., Spec]] = {
    AcceleratorSpec: load_hardware,
    ServerSpec: load_server,
    ModelSpec: load_model,
}
_PACKAGES = frozenset({"simulator", "numpy"})
_BUILT_IN = frozenset({("builtins", "set"), ("builtins", "frozenset"), ("copyreg", "__newobj__")})


def _read_again(kind: type[Spec], name: str, profiles: str | None, power_cap_w: float | None) -> Spec:
    found = _READERS[kind](name, profiles=profiles)
    if power_cap_w is None or not isinstance(found, AcceleratorSpec):
        return found
    from simulator.phases.power import power_capped

    return power_capped(found, power_cap_w)


def _array_of(content: bytes, kind: str, shape: tuple[int, ...]) -> Array:
    return np.frombuffer(content, kind).reshape(shape)


def _packed(array: Array) -> tuple[Any, ...]:
    return _array_of, (array.tobytes(), array.dtype.char, array.shape)


def _by_value(member: Enum) -> tuple[Any, ...]:
    """Python before 3.11.4 pickles members through ``getattr``, which no reader of files should call."""
    return type(member), (member.value,)


class _Writer(pickle.Pickler):
    """Profiles by name, arrays by their bytes. ``model`` : the name under which the question asked for it."""

    def __init__(self, file: io.BytesIO, *, model: str, profiles: str | None) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        by_name = partial(self._by_name, profiles=profiles)
        as_asked = partial(by_name, name=model)
        reduced: dict[type, Callable[[Any], tuple[Any, ...]]] = {np.ndarray: _packed}
        reduced |= {AcceleratorSpec: by_name, ServerSpec: by_name, ModelSpec: as_asked}
        reduced |= dict.fromkeys([*StrEnum.__subclasses__(), *IntEnum.__subclasses__()], _by_value)
        self.dispatch_table: dict[type, Callable[[Any], Any]] = {**copyreg.dispatch_table, **reduced}

    @staticmethod
    def _by_name(spec: Any, *, profiles: str | None, name: str | None = None) -> tuple[Any, ...]:
        again = (type(spec), name or spec.name, profiles, getattr(spec, "power_cap_w", None))
        with suppress(RoofcastError):
            if _read_again(*again) is spec:
                return _read_again, again
        # Changed since it was read: nobody who reads it back will ask for this very object, and nothing is lost.
        whole: tuple[Any, ...] = spec.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return whole


class _Reader(pickle.Unpickler):
    """Makes records of this library and arrays, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in _PACKAGES or (module, name) in _BUILT_IN:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of an evaluation")


def _own_bytes(path: Path) -> bytes:
    """The content of a file of this user; of another one's a refusal, because reading it makes objects."""
    with path.open("rb") as file:
        state = os.fstat(file.fileno())
        if hasattr(os, "getuid") and state.st_uid != os.getuid():
            raise FileError(f"{path} belongs to another user", field="")
        return file.read()


def find_evaluations(path: Path) -> int:
    """Remember what a file holds; how many outcomes that is, 0 where there is none or it is not whole."""
    # Whatever is wrong with a file, the plan evaluates anew: unpickling raises nearly anything where bytes are damaged.
    with suppress(Exception):
        content = _own_bytes(path)
        body = memoryview(content)[_CHECK_BYTES:]
        if zlib.crc32(body) == int.from_bytes(content[:_CHECK_BYTES], "big"):
            found: Remembered = _Reader(io.BytesIO(body)).load()
            remember(found)
            os.utime(path)
            return len(found[0])
    return 0


def keep_evaluations(path: Path, *, known: int, model: str, profiles: str | None) -> None:
    """Write what is remembered, where most of it is new beside the ``known`` ones of the file."""
    found = remembered(load_model(model, profiles=profiles))
    if len(found[0]) < 2 * known or not found[0]:
        return
    file = io.BytesIO()
    _Writer(file, model=model, profiles=profiles).dump(found)
    body = file.getvalue()
    with suppress(FileError, OSError):
        checked = zlib.crc32(body).to_bytes(_CHECK_BYTES, "big") + body
        write_new_files([(path, checked)], force=True, flag="")
        kept = sorted(path.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for old in kept[:-KEPT_FILES]:
            old.unlink(missing_ok=True)
