"""Records of traffic that come from outside: traces, metrics, results of benchmarks."""

from __future__ import annotations

import io
import json
import math
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.api.measurements import demand
from simulator.reports.answer import dump
from simulator.specs.measured.serving_results import load_serving_runs
from tests.fuzz import samples
from tests.fuzz.mutation import odd_json, odd_text
from tests.fuzz.samples import Answer, Case
from tests.golden.questions import HERE as GOLDEN

Array = NDArray[Any]


ARRAYS = ".npz"
_BYTES = ("latin-1", "replace")


def arrays_text(path: Path) -> str:
    """A file of arrays as a case's text."""
    return path.read_bytes().decode(_BYTES[0])


def mutated_arrays(rng: random.Random, text: str) -> str:
    """Arrays with other values, shapes, types or names; or other bytes."""
    if rng.random() < 0.3:
        return odd_text(rng, text)
    with np.load(io.BytesIO(text.encode(_BYTES[0]))) as stored:
        arrays = dict(stored)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(sorted(arrays))
        old = arrays.pop(name)
        made = rng.choice(_ARRAYS)(rng, old) if old.dtype.kind in "fiu" else old
        arrays[rng.choice(sorted(arrays)) if arrays and rng.random() < 0.1 else name] = made
    written = io.BytesIO()
    np.savez(written, **arrays)
    return written.getvalue().decode(_BYTES[0])


_VALUES = (0.0, -1.0, 5e-324, 1e-30, 1e30, 1e308, math.nan, math.inf, -math.inf)


def _one_value(rng: random.Random, old: Array) -> Array:
    changed = np.asarray(old, dtype=np.float64).copy()
    if changed.size:
        changed.flat[rng.randrange(changed.size)] = rng.choice(_VALUES)
    return changed


_ARRAYS: tuple[Callable[[random.Random, Array], Array], ...] = (
    _one_value,
    _one_value,
    lambda rng, old: np.full(old.shape, rng.choice(_VALUES)),
    lambda rng, old: old * rng.choice((2, 0, -1, 100)),
    lambda rng, old: old[: len(old) // 2] if old.ndim else old,
    lambda rng, old: old[::-1] if old.ndim else old,
    lambda rng, old: old.reshape(-1),
    lambda rng, old: old[np.newaxis],
    lambda rng, old: old.astype(rng.choice((np.complex128, np.int8, np.bool_, "U9", "M8[s]", ">f8"))),
    lambda rng, old: np.array([]),
    lambda rng, old: np.array([None, {}], dtype=object),
)


@cache
def _folder() -> TemporaryDirectory[str]:
    """One for the process, so that a case has the same path twice."""
    return TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)


def file_of(case: Case, name: str) -> Path:
    """A case as a file of that name; of arrays, whose bytes are no text, a character is a byte."""
    path = Path(_folder().name) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(str(case).encode(*_BYTES if name.endswith(ARRAYS) else ("utf-8", "surrogatepass")))
    return path


def records() -> list[Case]:
    """Traces, counters and samples of a server, then results of benchmarks."""
    folder = GOLDEN.parent / "data" / "serving_results"
    results = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.json"))]
    return [samples.AZURE, samples.BURST, samples.MOONCAKE, samples.METRICS, samples.RANGES, *results]


def mutated_record(rng: random.Random, case: Case) -> Case:
    """Another tree of one that is JSON; other cells or bytes of any other text."""
    text = str(case)
    try:
        tree = json.loads(text)
    except ValueError:
        lines = text.splitlines()
        if not lines or rng.random() < 0.4:
            return odd_text(rng, text)
        place = rng.randrange(len(lines))
        cells = lines[place].split(",")
        cell = rng.randrange(len(cells))
        cells[cell] = odd_text(rng, cells[cell], most=1)
        lines[place] = ",".join(cells)
        return "\n".join(lines) + "\n"
    names = tuple(str(name) for name in tree) if isinstance(tree, dict) and tree else ("status",)
    return odd_json(rng, tree, words=names)


def recorded(case: Case) -> Answer:
    """The demand that a record says."""
    over = "10min" if str(case).lstrip().startswith(("#", "vllm:")) else None
    return dict(demand(str(file_of(case, "given")), over=over).to_dict())


def results(case: Case) -> Answer:
    """The runs of a benchmark."""
    return {"runs": dump(load_serving_runs(file_of(case, "given.json")))}
