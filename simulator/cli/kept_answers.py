"""Answers of plans that were asked before, kept on disk: the same question again is looked up.

An answer stands under a digest of all that it depends on: the question and its form, the day, this program's files,
every profile and each file that the question names, by place, size and time of the last change. Whatever differs makes
another digest; an answer that was damaged fails its own. Where nothing can be written, nothing is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from importlib.util import find_spec
from pathlib import Path

from simulator.errors import FileError
from simulator.files import CACHE_VARIABLE, cache_root, keeps_nothing, machine_code, write_new_files
from simulator.records import dataclass
from simulator.specs.profiles import profile_directories
from simulator.specs.question.plan import FLEET_LIMITS, PlanSpec

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
    # What is switched off is not loaded.
    from simulator.planner.search.kept_evaluations import find_evaluations, keep_evaluations

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
