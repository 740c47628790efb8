"""Records of traffic that come from outside: traces, metrics, results of benchmarks."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from simulator.api.measurements import demand
from simulator.reports.answer import dump
from simulator.specs.measured.serving_results import load_serving_runs
from tests.fuzz import samples
from tests.fuzz.mutation import odd_json, odd_text
from tests.fuzz.samples import Answer, Case
from tests.golden.questions import HERE as GOLDEN


@cache
def _folder() -> TemporaryDirectory[str]:
    """One for the process, so that a case has the same path twice."""
    return TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)


def file_of(case: Case, name: str) -> Path:
    """A case as a file of that name."""
    path = Path(_folder().name) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(str(case).encode("utf-8", "surrogatepass"))
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
