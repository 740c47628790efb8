"""What plans leave on disk: their answers, looked up when the same question is asked again, and evaluated replicas.

An answer stands under a digest of all that it depends on: the question and its form, the day, this program's files,
every profile and each file that the question names, by place, size and time of the last change. Whatever differs makes
another digest; an answer that was damaged fails its own. Where nothing can be written, nothing is kept.

A file of evaluations holds what ``usual_search`` remembers of one model, from which a later process starts when it
plans another rate or price. It names profiles instead of storing them; reading it loads them anew, so that evaluations
refer to the very objects of the next question. Files that are damaged, truncated or of another user are not read.
Nothing of the planner is loaded before a question is planned.
"""

from __future__ import annotations

import copyreg
import hashlib
import io
import json
import os
import pickle
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date
from enum import Enum, IntEnum, StrEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from simulator.errors import FileError, RoofcastError
from simulator.files import CACHE_VARIABLE, cache_root, keeps_nothing, machine_code, write_new_files
from simulator.records import dataclass
from simulator.specs.profiles import profile_directories
from simulator.specs.question.plan import FLEET_LIMITS, PlanSpec

if TYPE_CHECKING:
    from simulator.planner.search.usual_search import Remembered
    from simulator.specs.base import Spec
    from simulator.specs.hardware.accelerator import AcceleratorSpec
    from simulator.traffic.lengths import Array

KEPT_ANSWERS = 64
"""Answers that stay, the newest: some 10 to 500 kB each."""
OF_FLEETS = frozenset(
    {"rate_per_s", "objectives", "headroom", "peak_to_mean", "spares", "server_spares", "round_to"}
    | {"prices", "price_kind", "price_of", "provider", "ownership"}
    | {*FLEET_LIMITS, "stock"}
)
"""Fields that ask little or nothing new of a replica: questions that differ in them share what was evaluated."""
_MOST_FILES = 10_000
"""A folder of more is no profile and no model: looking through it takes longer than a plan."""
_LIBRARIES = ("numpy", "pydantic", "yaml")
_SETTINGS = re.compile("[:,=]")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswer:
    """What a plan prints: ``text`` is the result, ``warnings`` go to stderr."""

    text: str
    warnings: tuple[str, ...] = ()


def _entries(path: Path) -> Iterator[str]:
    """One line for every file at or below ``path``; hidden and compiled ones are none of the program's."""
    if not path.is_dir():
        state = path.stat()
        yield f"{path} {state.st_size} {state.st_mtime_ns}"
        return
    with os.scandir(path) as found:
        inside = sorted(found, key=lambda entry: entry.name)
    for entry in inside:
        if entry.name.startswith((".", "__pycache__")):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(Path(entry.path))
        elif entry.is_dir():
            raise OSError("a link to a folder may lead in a circle")
        else:
            state = entry.stat()
            yield f"{entry.path} {state.st_size} {state.st_mtime_ns}"


def _program() -> Iterator[Path]:
    """This package and the libraries whose releases may compute another last digit."""
    yield Path(__file__).resolve().parents[1]
    for name in _LIBRARIES:
        found = find_spec(name)
        if found is not None and found.origin is not None:
            yield Path(found.origin).parent / "__init__.py"


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _named_files(question: dict[str, object]) -> Iterator[Path]:
    """Files and folders that a question names, alone or among the settings of a technique."""
    for text in _texts(question):
        for part in {text, *_SETTINGS.split(text)}:
            path = os.path.expanduser(part)
            if part and "\0" not in part and os.path.exists(path):
                yield Path(path).resolve()


def digest_of(spec: PlanSpec, *, form: Iterable[object], besides: frozenset[str] = frozenset()) -> str | None:
    """Digest of a question (``besides`` some fields), its form and all behind it; None where nothing is to be kept."""
    if keeps_nothing():
        return None
    question = spec.model_dump(mode="json", exclude=set(besides))
    given = sorted(spec.model_fields_set - besides)
    try:
        asked = [question, given, [str(part) for part in form], str(date.today()), sys.version, os.getcwd()]
        # Machine code decides whether the fleet is simulated.
        asked.append(machine_code())
        digest = hashlib.sha256(json.dumps(asked).encode())
        roots = (*profile_directories("hardware", profiles=spec.profiles), *profile_directories("models"))
        for path in (*_program(), *roots, *_named_files(question)):
            for number, line in enumerate(_entries(path)):
                if number > _MOST_FILES:
                    return None
                digest.update(line.encode(errors="surrogateescape"))
    except (OSError, FileError):
        # What cannot be looked at may have changed; the plan says what is wrong with it.
        return None
    return digest.hexdigest()


@contextmanager
def evaluations_kept(spec: PlanSpec) -> Iterator[None]:
    """Plan with the replicas that earlier plans evaluated, and keep those of this one for later plans."""
    digest = digest_of(spec, form=("evaluations",), besides=OF_FLEETS) if spec.model else None
    if digest is None or spec.model is None:
        yield
        return
    path = cache_root() / "evaluations" / digest
    known = find_evaluations(path)
    yield
    keep_evaluations(path, known=known, model=spec.model, profiles=spec.profiles)


def _folder() -> Path:
    return cache_root() / "answers"


def find_answer(digest: str | None) -> KeptAnswer | None:
    """The answer that stands under a digest; None where there is none, or what stands there is not whole."""
    if digest is None:
        return None
    path = _folder() / f"{digest}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(path.read_bytes())
        content = json.dumps(kept["answer"])
        if kept["sha256"] == hashlib.sha256(content.encode()).hexdigest():
            os.utime(path)
            return KeptAnswer(text=kept["answer"]["text"], warnings=tuple(kept["answer"]["warnings"]))
    return None


def keep_answer(digest: str | None, answer: KeptAnswer) -> None:
    """Keep an answer under a digest, in place of the oldest where there are many."""
    if digest is None:
        return
    content = {"text": answer.text, "warnings": list(answer.warnings)}
    sha256 = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    whole = json.dumps({"sha256": sha256, "answer": content}).encode()
    with suppress(FileError, OSError):
        write_new_files([(_folder() / f"{digest}.json", whole)], force=True, flag=CACHE_VARIABLE)
        kept = sorted(_folder().glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        for path in kept[:-KEPT_ANSWERS]:
            path.unlink(missing_ok=True)


KEPT_FILES = 8
"""Files that stay, the newest: some 4 MB each."""
_CHECK_BYTES = 4
_PACKAGES = frozenset({"simulator", "numpy"})
_BUILT_IN = frozenset({("builtins", "set"), ("builtins", "frozenset"), ("copyreg", "__newobj__")})


def _readers() -> Mapping[type[Spec], Callable[..., Spec]]:
    from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec, load_hardware, load_server
    from simulator.specs.model.architecture import ModelSpec
    from simulator.specs.model.loading import load_model

    return {AcceleratorSpec: load_hardware, ServerSpec: load_server, ModelSpec: load_model}


def _read_again(kind: type[Spec], name: str, profiles: str | None, power_cap_w: float | None) -> Spec:
    found = _readers()[kind](name, profiles=profiles)
    if power_cap_w is None:
        return found
    from simulator.phases.power import power_capped

    return power_capped(cast("AcceleratorSpec", found), power_cap_w)


def _array_of(content: bytes, kind: str, shape: tuple[int, ...]) -> Array:
    import numpy as np

    return np.frombuffer(content, kind).reshape(shape)


def _packed(array: Array) -> tuple[Any, ...]:
    return _array_of, (array.tobytes(), array.dtype.char, array.shape)


def _by_value(member: Enum) -> tuple[Any, ...]:
    """Python before 3.11.4 pickles members through ``getattr``, which no reader of files should call."""
    return type(member), (member.value,)


class _Writer(pickle.Pickler):
    """Profiles by name, arrays by their bytes. ``model`` : the name under which the question asked for it."""

    def __init__(self, file: io.BytesIO, *, model: str, profiles: str | None) -> None:
        import numpy as np

        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        by_name = partial(self._by_name, profiles=profiles)
        as_asked = partial(by_name, name=model)
        accelerator, server, asked = _readers()
        reduced: dict[type, Callable[[Any], tuple[Any, ...]]] = {np.ndarray: _packed}
        reduced |= {accelerator: by_name, server: by_name, asked: as_asked}
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
            from simulator.planner.search.usual_search import remember

            found: Remembered = _Reader(io.BytesIO(body)).load()
            remember(found)
            os.utime(path)
            return len(found[0])
    return 0


def keep_evaluations(path: Path, *, known: int, model: str, profiles: str | None) -> None:
    """Write what is remembered, where most of it is new beside the ``known`` ones of the file."""
    from simulator.planner.search.usual_search import remembered
    from simulator.specs.model.loading import load_model

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
