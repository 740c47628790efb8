"""Commands with a file of their own, each where a person gives it one: what they read, and what they leave behind."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from simulator.api.sweeps import MANIFEST, read_table
from simulator.errors import RoofcastError
from simulator.reports.answers.sweep import part_bytes
from simulator.specs.money.ownership import OwnershipProfile
from simulator.specs.money.prices import PriceProfile
from simulator.specs.profiles import profile_root
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.sweep import SweepSpec
from tests.fuzz import samples
from tests.fuzz.allowed import allowed_tree, allowing
from tests.fuzz.commands import command, mutated_words, scenario
from tests.fuzz.laws import BrokenError
from tests.fuzz.mutation import mutated_yaml, near_tree, odd_json, words_of
from tests.fuzz.records import file_of, mutated_record
from tests.fuzz.samples import EXAMPLES, Answer, Case
from tests.fuzz.visitors import KERNELS, QUOTES
from tests.golden.questions import HERE as GOLDEN

_FILE, _FOLDER, _OUT = "@file", "@folder", "@out"
"""In the words of a command: the case's file, the folder that holds it, and where it may write."""
_LINE = "line"
"""In place of a command: the scenario after it."""
_OWNED = "--ownership"
_CHANGED_WORDS = 0.3

_SCENARIO = {"id": "a", "kind": "serve", "model": "llama-3.1-8b", "hardware": "h100"}
_SERVED = {
    **_SCENARIO,
    "workload": {"stages": [{"rate_per_s": 4, "duration_s": 5}], "isl_tokens": 300, "osl_tokens": 20},
}
_LOOP = {**_SCENARIO, "kind": "closed_loop", "concurrency": 4, "num_requests": 40}
_BATCH = {**_SCENARIO, "kind": "batch", "batch_size": 4, "isl_tokens": 300, "osl_tokens": 20}
_SWEEP = {
    "ask": "scenario",
    "base": {"kind": "batch", "model": "llama-3.1-8b", "isl_tokens": 300, "osl_tokens": 20},
    "grid": {"hardware": ["l40s", "h100"], "batch_size": {"low": 1, "high": 8, "number": 2}},
}
_PLANS = {
    "ask": "plan",
    "base": {"model": "llama-3.1-8b", "hardware": ["h100"], "tp": 1},
    "sample": {"points": 3, "fields": {"rps": {"low": 1, "high": 50, "log": True}, "isl": [100, 2000]}},
}
_LISTED = {**_SWEEP, "grid": {}, "entries": [{"hardware": "h100", "batch_size": 4}, {"hardware": "l4", "tp_size": 2}]}


def _bench() -> str:
    """A benchmark's result with its requests."""
    result = json.loads((EXAMPLES / "data" / "vllm_bench.json").read_text(encoding="utf-8"))
    count = 32
    listed = {
        "start_times": [0.1 * place for place in range(count)],
        "input_lens": [300 + 5 * place for place in range(count)],
    }
    return json.dumps({**result, **listed, "output_lens": [20] * count, "completed": count, "max_concurrency": 4})


def _measured() -> str:
    """Kernels as many as a fit needs."""
    header, row = KERNELS.replace("2026-11-02", "2026-11-26").splitlines()
    sizes = [(2**place, 512 * (1 + place % 3)) for place in range(4, 13)] * 2
    rows = [
        row.replace(",16,512,1024,", f",{m},{n},{1024 * (1 + place)},").replace(
            "1e-5", f"{1e-5 + m * n * (1 + place) * 2e-11:.6g}"
        )
        for place, (m, n) in enumerate(sizes)
    ]
    return "\n".join([header, *rows]) + "\n"


@cache
def file_cases() -> list[Case]:
    """A file's name, its text, and the words of the command."""
    work = (GOLDEN / "questions" / "chat.yaml").read_text(encoding="utf-8")
    owned = (profile_root("hardware_profiles") / "ownership" / "default.yaml").read_text(encoding="utf-8")
    config = json.dumps(samples.CONFIG)
    replayed = "--model llama-3.1-8b --hardware h100"
    planned = "plan-capacity --json --no-verify --model llama-3.1-8b --hardware h100 --tp 1 --rps 20"
    found = [
        ("azure.csv", samples.AZURE, f"roofcast demand {_FILE} --json"),
        ("metrics.prom", samples.METRICS, f"roofcast demand {_FILE} --over 6h --out {_OUT}"),
        ("bench.json", _bench(), f"roofcast demand {_FILE} --json --out {_OUT}"),
        ("lines.jsonl", "\n".join(map(json.dumps, (_SERVED, _BATCH))), f"roofcast simulate {_FILE} --output {_OUT}"),
        ("grid.yaml", json.dumps(_SWEEP), f"roofcast sweep {_FILE} --out {_OUT} --json"),
        ("plans.yaml", json.dumps(_PLANS), f"roofcast sweep {_FILE} --out {_OUT} --summary"),
        ("list.yaml", json.dumps(_LISTED), f"roofcast sweep {_FILE} --out {_OUT} --json"),
        ("measured.csv", _measured(), f"roofcast calibrate {_FILE} --hardware h100 --out {_OUT}"),
        ("bench.json", _bench(), f"roofcast calibrate --from {_FILE} {replayed} --out {_OUT}"),
        ("bench.json", _bench(), f"roofcast validate --from {_FILE} {replayed} --json"),
        ("quotes.csv", QUOTES, f"roofcast prices import {_FILE} --out {_OUT}"),
        ("quotes.csv", QUOTES, f"roofcast prices compare {_FILE} --json"),
        ("mine.yaml", samples.PRICES, f"roofcast prices list --prices {_FILE} --json"),
        ("served.yaml", json.dumps(_SERVED), f"roofcast serve {_FILE} --json"),
        ("served.yaml", json.dumps(_SERVED), f"roofcast serve {_FILE} --requests {_OUT}.csv"),
        (
            "served.yaml",
            json.dumps(_SERVED),
            f"roofcast capacity {_FILE} --slo ttft-p95=2s --requests 300 --seeds 2 --json",
        ),
        ("batch.yaml", json.dumps(_BATCH), f"roofcast compare {_FILE} --with weights=fp8 --with batch_size=8 --json"),
        ("config.json", config, f"roofcast model {_FILE} --json --fine-tune qlora:rank=16"),
        ("config.json", config, f"roofcast crossover --model {_FILE} --hardware h100 --json"),
        ("config.json", config, f"roofcast explain kv-cache --model {_FILE} --hardware h100 --json"),
        ("config.json", config, f"roofcast serve --model {_FILE} --hardware h100 --rate 2 --duration 5 --json"),
        ("work.yaml", work, f"roofcast report {_FILE} --format json,md,csv,xlsx --out {_OUT}"),
        ("work.yaml", work, f"roofcast verify {_FILE} --seeds 2 --json"),
        ("mine.yaml", samples.PRICES, f"{planned} --prices {_FILE} --rental"),
        ("mine.yaml", owned, f"{planned} {_OWNED} {_FILE}"),
    ]
    lines = [
        {**_LOOP, "lengths_trace": _FILE},
        {**_SCENARIO, "workload": {"arrival": "trace", "trace": _FILE}},
        {**_SERVED, "workload": {"stages": _SERVED["workload"]["stages"], "lengths_trace": _FILE}},
    ]
    records = (("azure.csv", samples.AZURE), ("mooncake.jsonl", samples.MOONCAKE), ("bench.json", _bench()))
    asked = [[name, text, *words.split()] for name, text, words in found]
    return [*_swept(), *asked, *([*record, _LINE, json.dumps(line)] for record in records for line in lines)]


@cache
def _swept() -> list[Case]:
    """A folder that a sweep has written, and the command that reads it: its manifest, its part."""
    folder = file_of(json.dumps(_LISTED), "swept/list.yaml").parent
    command(["roofcast", "sweep", str(folder / "list.yaml"), "--out", str(folder / "parts")])
    table = read_table(str(folder / "parts"))
    rows = part_bytes(list(table.rows()), columns=table.columns, form="jsonl").decode()
    texts = {MANIFEST: json.dumps({**table.manifest(), "format": "jsonl"}), "part-00000.jsonl": rows}
    return [[name, text, "roofcast", "sweep", _FOLDER, "--json"] for name, text in texts.items()]


def _lines(rng: random.Random, text: str) -> str:
    lines = text.splitlines()
    place = rng.randrange(len(lines))
    tree = json.loads(lines[place])
    changed = allowed_tree(rng, tree, spec=ScenarioSpec) if rng.random() < 0.5 else None
    lines[place] = json.dumps(changed) if changed is not None else odd_json(rng, tree, words=words_of(ScenarioSpec))
    return "\n".join(lines)


def _yaml(spec: type) -> Callable[[random.Random, str], str]:
    return lambda rng, text: mutated_yaml(rng, text, allowed=allowing(spec))


_MAKERS: dict[str, Callable[[random.Random, str], str]] = {
    "lines.jsonl": _lines,
    "served.yaml": _yaml(ScenarioSpec),
    "batch.yaml": _yaml(ScenarioSpec),
    "work.yaml": _yaml(PlanSpec),
    "grid.yaml": _yaml(SweepSpec),
    "plans.yaml": _yaml(SweepSpec),
    "list.yaml": lambda rng, text: mutated_yaml(rng, text, allowed=near_tree),
}


def mutated_file(rng: random.Random, case: Case) -> Case:
    """Another file, or other words that the command takes beside it."""
    name, text, *words = case
    if rng.random() < _CHANGED_WORDS:
        if words[0] == _LINE:
            return [name, text, _LINE, json.dumps(allowed_tree(rng, json.loads(words[1]), spec=ScenarioSpec))]
        return [name, text, *_with_file(mutated_words(rng, words), words)]
    usual = mutated_record if name != "mine.yaml" else _yaml(OwnershipProfile if _OWNED in words else PriceProfile)
    return [name, _MAKERS.get(name, usual)(rng, text), *words]


def _with_file(changed: Case, words: list[str]) -> list[str]:
    """Words whose places of files are left alone: what they would name else lies anywhere."""
    kept = [word for word in changed if not word.startswith("@") or word in (_FILE, _FOLDER, _OUT)]
    return kept if _OUT not in words or _OUT in kept else words


def filed(case: Case) -> Answer:
    """What the command answers with that file; a refusal leaves nothing behind, and no part of a file is left."""
    name, text, *words = case
    beside = _swept() if _FOLDER in words else []
    given = [file_of(held, f"filed/{held_name}") for held_name, held, *_ in beside]
    given.append(file_of(text, f"filed/{name}"))
    out = given[-1].parent / "out"
    places = {_FILE: given[-1], _FOLDER: given[-1].parent, _OUT: out}
    for mark, path in places.items():
        words = [word.replace(mark, str(path)) for word in words]
    try:
        answer = scenario(words[1]) if words[0] == _LINE else command(words)
    except RoofcastError:
        _check_left(given, out, refused=True)
        raise
    else:
        _check_left(given, out, refused=False)
        return answer
    finally:
        shutil.rmtree(out.parent, ignore_errors=True)


def _check_left(given: list[Path], out: Path, *, refused: bool) -> None:
    left = sorted(path.name for path in out.parent.iterdir() if path not in given)
    if [name for name in left if Path(name).stem != out.name]:
        raise BrokenError(f"files are left beside it: {', '.join(left)[:200]}")
    if refused and any((out.parent / name).is_file() for name in left):
        raise BrokenError("a refusal leaves a file")
