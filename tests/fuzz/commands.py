"""Whole commands, plans among them: after a recorded workload too, and documents of plans that others read."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from typer.main import get_command

from simulator.api.scenarios import simulate_line
from simulator.cli.plan_capacity import app as plan_capacity
from simulator.cli.roofcast import app as roofcast
from simulator.errors import RoofcastError
from simulator.specs.engine.engine import EngineProfile
from simulator.specs.engine.fits import EngineFits
from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec
from simulator.specs.hardware.calibration import CalibrationSpec, PowerFits
from simulator.specs.money.ownership import OwnershipProfile
from simulator.specs.money.prices import PriceProfile
from simulator.specs.profiles import profile_root
from simulator.specs.question.plan import PlanSpec
from tests.fuzz import samples
from tests.fuzz.allowed import allowed_words, allowing
from tests.fuzz.laws import BrokenError
from tests.fuzz.mutation import TEXTS, mutated_yaml, near_tree, odd_json, odd_text, odd_tree, words_of
from tests.fuzz.records import ARRAYS, arrays_text, file_of, mutated_arrays, mutated_record
from tests.fuzz.samples import EXAMPLES, Answer, Case
from tests.golden.entry_points import Printed, run


@cache
def _options(*names: str) -> tuple[Any, ...]:
    """What the command of these words takes."""
    if names[0] == "plan-capacity":
        return tuple(get_command(plan_capacity).params)
    command: Any = get_command(roofcast)
    for name in names[1:]:
        found = command.get_command(None, name) if hasattr(command, "get_command") else None
        if found is None:
            break
        command = found
    return tuple(command.params)


_WRITING = (
    *("out", "output", "requests", "chart", "plot", "report", "trace", "force", "debug", "help_all", "version", "help"),
    *("profiles", "workload", "jobs", "timeout", "backend", "resume"),
)
"""Options that write, that start processes, or that a case gives itself."""


def mutated_words(rng: random.Random, case: Case) -> Case:
    """Options that the command takes; or words left out, doubled, in odd places or exchanged."""
    words = list(case)
    if rng.random() < 0.6:
        names = [word for word in words[:3] if not word.startswith("-")]
        more = allowed_words(rng, _options(*names), but=_WRITING)
        return [*words, *(word for word in more if word not in words or not word.startswith("--"))]
    for _ in range(rng.choice((1, 1, 2))):
        place = rng.randrange(1, len(words))
        draw = rng.random()
        if draw < 0.1:
            del words[place]
        elif draw < 0.2:
            words.insert(place, rng.choice(words))
        elif draw < 0.6 and not words[place].startswith("--"):
            words[place] = rng.choice((*TEXTS, "0", "-1", "1e9", "1e-9", "1e300", "nan", "9" * 400, "1000000", "0.001"))
        else:
            words[place] = odd_text(rng, words[place], most=1)
    return [word.replace("\x00", "0") for word in words if "report" not in word and "out" not in word]


def command(case: Case) -> Answer:
    """What a command prints."""
    assert isinstance(case, list)
    printed = run(case)
    if printed.code == 0 or (printed.code == 3 and "verify" in case[:2] and printed.out):
        if printed.out.startswith("{") and "--json" in case:
            return {"hardware": _hardware_of(case), **json.loads(printed.out)}
        return {"text": printed.out}
    _refused(printed)


def scenario(case: Case) -> Answer:
    """What a line of ``simulate`` is answered with."""
    assert isinstance(case, str)
    document = simulate_line(case, number=1)
    error = document.get("error")
    if error is None:
        # A law needs to know whose memory it is.
        return {**document, "hardware": json.loads(case).get("hardware")}
    if error["code"] == "internal_error":
        raise BrokenError(error["message"])
    raise RoofcastError(error["message"], field=error["field"], code=error["code"], hint=error["hint"])


def _hardware_of(words: list[str]) -> str | None:
    """Whose memory an answer is about."""
    return words[words.index("--hardware") + 1] if "--hardware" in words[:-1] else None


def _refused(printed: Printed) -> NoReturn:
    # Notes on what was assumed may stand before it.
    last = printed.err.strip().splitlines()[-1:]
    if printed.code not in (2, 3, 4, 5) or len(last) != 1 or "Traceback" in printed.err:
        raise BrokenError(f"exit code {printed.code}: {printed.err.strip()[:400]}")
    if not all(line.isprintable() for line in printed.err.splitlines()) or len(last[0]) > 1500:
        raise BrokenError(f"a refusal of {len(last[0])} characters: {printed.err[:100]!r}")
    raise RoofcastError(last[0])


@cache
def documents() -> list[Case]:
    """Documents with a command that reads them: plans, the report of one, a refusal."""
    printed = [run(words).out for words in samples.signed_plans()]
    # Sections are a hundred kilobytes that nothing reads back.
    reported = {**_reported("report", file_of(printed[0], "plan.json")), "sections": []}
    # A report takes seconds, a replay a part of one: of plans that differ little the first two are reported.
    replayed = [["verify", text] for text in (*printed, json.dumps(reported))]
    return [*replayed, *(["report", text] for text in (*printed[:2], json.dumps(reported)))]


_DOCUMENT_PARTS = ("inputs", "inputs", "plan", "totals", "error")
"""What is read of a document; the question most."""


def mutated_document(rng: random.Random, case: Case) -> Case:
    """Another question, plan, total or error of a document, or any other change of it."""
    name, text = case
    tree = json.loads(text)
    part = rng.choice(_DOCUMENT_PARTS)
    if isinstance(tree.get(part), dict) and rng.random() < 0.8:
        tree[part] = odd_tree(rng, tree[part], words=words_of(PlanSpec))
        return [name, json.dumps(tree)]
    return [name, odd_json(rng, tree, words=tuple(tree))]


def document(case: Case) -> Answer:
    """What a command makes of a document."""
    name, text = case
    return _reported(name, file_of(text, "plan.json"))


def _reported(name: str, plan: Path) -> Answer:
    """The document that a command makes of a plan's; a refused report leaves no file."""
    folder = plan.parent / "report"
    shutil.rmtree(folder, ignore_errors=True)
    words = ["--seeds", "2", "--json"] if name == "verify" else ["--format", "json,md,csv", "--out", str(folder)]
    printed = run(["roofcast", name, str(plan), *words])
    if name == "verify" and printed.code in (0, 3) and printed.out.startswith("{"):
        return dict(json.loads(printed.out))
    if printed.code == 0:
        return dict(json.loads((folder / "report.json").read_text(encoding="utf-8")))
    if folder.exists():
        raise BrokenError("a refused report leaves files")
    _refused(printed)


_TRACED = "plan-capacity --json --model llama-3.1-8b --hardware h100 --tp 1"


def mutated_replay(rng: random.Random, case: Case) -> Case:
    """The record, or the words of the plan: a file's name, its text, and what is asked beside it."""
    name, text, *words = case
    if not words or rng.random() < 0.6:
        return [name, str(mutated_record(rng, text)), *words]
    return [name, text, *mutated_words(rng, ["", *words])[1:]]


def replay(case: Case) -> Answer:
    """A plan for the workload of a record."""
    name, text, *words = case
    return command([*_TRACED.split(), "--trace", str(file_of(text, name)), *words])


# A folder of profiles of one's own, and a command that counts with what is in it.
@cache
def own_profiles() -> list[Case]:
    """One file of every part by its path in the folder, its text, and the command."""
    root = profile_root("hardware_profiles")
    step = "roofcast step --model llama-3.1-8b --json --hardware"
    planned = "plan-capacity --json --no-verify --model llama-3.1-8b --tp 1 --rps 500 --hardware"
    gpu = (EXAMPLES / "my-profiles" / "my-gpu.yaml").read_text(encoding="utf-8")
    return [
        ["my-gpu.yaml", gpu, *f"{step} my-gpu --batch 8".split()],
        ["my-gpu.yaml", gpu, *f"{planned} my-gpu".split()],
        ["models/mine.yaml", samples.MODEL, *["roofcast", "step", "--json", "--model", "mine", "--hardware", "h100"]],
        ["prices/mine.yaml", samples.PRICES, *f"{planned} h100 --prices mine --rental".split()],
        *(
            [path, (root / path).read_text(encoding="utf-8"), *words.split()]
            for path, words in (
                ("servers/dgx-h100.yaml", f"{planned} h100 --max-racks 90"),
                ("engines/vllm.yaml", f"{step} h100 --engine vllm --weights fp8"),
                ("engines/tgi.yaml", f"{planned} h100 --engine tgi"),
                ("ownership/default.yaml", f"{planned} h100 --ownership default"),
                ("calibration/engines/vllm.yaml", f"{planned} h100"),
                ("calibration/h100-sxm-80gb--vllm.roofline.yaml", f"{step} h100 --batch 16"),
                ("calibration/h100-sxm-80gb--trtllm.collective.yaml", f"{step} h100 --tp 2 --engine tensorrt-llm"),
                ("calibration/h100-sxm-80gb--vllm.elementwise.yaml", f"{step} h100"),
                ("calibration/acceptance.yaml", f"{step} h100 --speculation eagle3:k=4"),
                ("calibration/power.yaml", f"{planned} h100"),
            )
        ),
        *(
            [f"calibration/{name}{ARRAYS}", arrays_text(root / "calibration" / f"{name}{ARRAYS}"), *words.split()]
            for name, words in (
                (
                    "h100-sxm-80gb--trtllm.recurrent",
                    f"{step.replace('llama-3.1-8b', 'mamba2-2.7b')} h100 --engine trtllm",
                ),
                ("h100-sxm-80gb--vllm.moe", f"{step.replace('llama-3.1-8b', 'mixtral-8x7b')} h100 --tp 2 --batch 64"),
            )
        ),
    ]


_OWN_SPECS = {
    "my-gpu": AcceleratorSpec,
    "prices": PriceProfile,
    "servers": ServerSpec,
    "engines": EngineProfile,
    "ownership": OwnershipProfile,
    "calibration/engines": EngineFits,
    "calibration/power": PowerFits,
    "calibration/h100": CalibrationSpec,
}


def mutated_own(rng: random.Random, case: Case) -> Case:
    """Another file; the command stays."""
    path, text, *words = case
    if path.endswith(ARRAYS):
        return [path, mutated_arrays(rng, text), *words]
    spec = next((spec for start, spec in _OWN_SPECS.items() if path.startswith(start)), None)
    return [path, mutated_yaml(rng, text, allowed=allowing(spec) if spec else near_tree), *words]


def owned(case: Case) -> Answer:
    """What the command answers with that file. Profiles are read once a process: each case has a folder of its own."""
    path, text, *words = case
    folder = hashlib.sha256(json.dumps(case).encode()).hexdigest()[:16]
    given = file_of(text, f"{folder}/{path}")
    root = given.parents[path.count("/")]
    if path.endswith(ARRAYS):
        # They are read beside the file that names them.
        fits = given.with_suffix(".yaml")
        shutil.copy(profile_root("hardware_profiles") / fits.relative_to(root), fits)
    try:
        return command([*words, "--profiles", str(root)])
    finally:
        shutil.rmtree(root, ignore_errors=True)
