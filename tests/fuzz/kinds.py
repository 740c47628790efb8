"""The kinds of input that come from outside: real ones to start from, hostile ones made of them, and who answers.

A case is a text, or the words of a command line; the same case gives the same answer in every process.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import yaml

from simulator.api.measurements import demand
from simulator.api.questions import plan_question, scenario_spec
from simulator.api.scenarios import simulate_line
from simulator.errors import RoofcastError
from simulator.operators.transformer import model_counts
from simulator.reports.answer import dump
from simulator.specs.base import validate, yaml_mapping
from simulator.specs.engine.engine import EngineProfile
from simulator.specs.hardware.accelerator import ServerSpec
from simulator.specs.measured.serving_results import load_serving_runs
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.money.ownership import OwnershipProfile
from simulator.specs.money.prices import PriceProfile
from simulator.specs.profiles import profile_root
from simulator.specs.question.plan import PlanSpec, plan_spec
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.scenario_file import parse_change
from simulator.specs.question.techniques import TechniquesSpec
from simulator.specs.question.techniques_text import parse_fine_tune, techniques_spec
from simulator.specs.question.workload import parse_objectives
from simulator.specs.uploads import hardware_from_upload, model_from_upload
from tests.fuzz import samples, visitors
from tests.fuzz.laws import BrokenError
from tests.fuzz.mutation import TEXTS, odd_json, odd_text, odd_tree
from tests.fuzz.samples import Case
from tests.golden.entry_points import Printed, run
from tests.golden.questions import HERE as GOLDEN
from tests.golden.questions import questions_of

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """``seeds`` are answered or refused as they are; ``make`` gives a hostile variant of one; ``answer`` answers it or
    raises RoofcastError. ``weight``: its share of the cases."""

    weight: float
    seeds: Callable[[], list[Case]]
    make: Callable[[random.Random, Case], Case]
    answer: Callable[[Case], Answer]


def _fields(spec: type[Any]) -> tuple[str, ...]:
    """Names of a specification's fields and of its parts."""
    found = set(spec.model_fields)
    for part in spec.model_json_schema().get("$defs", {}).values():
        found |= set(part.get("properties", {})) | {str(word) for word in part.get("enum", ())}
    return tuple(sorted(found))


@cache
def _words(spec: type[Any]) -> tuple[str, ...]:
    return (*_fields(spec), *TEXTS[-12:])


# Scenarios, one a line.
def _scenarios() -> list[Case]:
    lines = [question.line for question in questions_of("scenarios") if question.available]
    return [line for line in lines if "trace" not in line]


def _scenario(case: Case) -> Answer:
    assert isinstance(case, str)
    document = simulate_line(case, number=1)
    error = document.get("error")
    if error is None:
        # A law needs to know whose memory it is.
        return {**document, "hardware": json.loads(case).get("hardware")}
    if error["code"] == "internal_error":
        raise BrokenError(error["message"])
    raise RoofcastError(error["message"], field=error["field"], code=error["code"], hint=error["hint"])


def _mutated_json(spec: type[Any]) -> Callable[[random.Random, Case], Case]:
    def make(rng: random.Random, case: Case) -> Case:
        assert isinstance(case, str)
        try:
            tree = json.loads(case)
        except ValueError:
            return odd_text(rng, case)
        return odd_json(rng, tree, words=_words(spec))

    return make


# Configurations of models.
@cache
def _configs() -> list[Case]:
    files = sorted(profile_root("model_profiles").glob("*.yaml"))
    profiles = [_yaml_tree(path.read_text(encoding="utf-8")) for path in files if path.stem != "aliases"]
    return [json.dumps(profile["config"]) for profile in profiles]


@cache
def _config_words() -> tuple[str, ...]:
    names: set[str] = set()
    for text in _configs():
        config = json.loads(str(text))
        names |= set(config) | {str(config.get("model_type"))}
        for part in config.values():
            names |= set(part) if isinstance(part, dict) else set()
    return tuple(sorted(names))


def _mutated_config(rng: random.Random, case: Case) -> Case:
    tree = json.loads(str(case))
    if rng.random() < 0.1:
        tree["quantization_config"] = odd_tree(rng, rng.choice(samples.QUANTIZED), words=_config_words())
    return odd_json(rng, tree, words=_config_words())


def _config(case: Case) -> Answer:
    model = model_from_upload(str(case).encode("utf-8", "surrogatepass"), filename="config.json")
    return {"counts": dump(model_counts(model, precision=PrecisionSpec(), context_tokens=1000))}


# Profiles and plans in YAML.
def _yaml_seeds(folder: str) -> Callable[[], list[Case]]:
    def seeds() -> list[Case]:
        files = sorted((profile_root("hardware_profiles") / folder).glob("*.yaml"))
        texts = [path.read_text(encoding="utf-8") for path in files if path.stem != "aliases"]
        return [text for text in texts if len(text) < 60_000]

    return seeds


def _mutated_yaml(rng: random.Random, case: Case) -> Case:
    if rng.random() < 0.4:
        return odd_text(rng, str(case))
    tree = _yaml_tree(str(case))
    words = tuple(str(word) for word in tree) if isinstance(tree, dict) and tree else ("name",)
    changed = odd_tree(rng, json.loads(json.dumps(tree, default=str)), words=words)
    if rng.random() < 0.5:
        return json.dumps(changed)
    return str(yaml.dump(changed, Dumper=_Dumper, sort_keys=False))


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@cache
def _yaml_tree(text: str) -> Any:
    return yaml.load(text, Loader=_Loader)


def _profile(spec: type[Any]) -> Callable[[Case], Answer]:
    def answer(case: Case) -> Answer:
        found = validate(spec, yaml_mapping(str(case), where="given.yaml"), where="given.yaml", profile=True)
        return dict(found.model_dump(mode="json"))

    return answer


def _hardware(case: Case) -> Answer:
    data = str(case).encode("utf-8", "surrogatepass")
    return dict(hardware_from_upload(data, filename="given.yaml").model_dump(mode="json"))


def _workloads() -> list[Case]:
    files = sorted((GOLDEN / "questions").glob("*.yaml"))
    texts = [path.read_text(encoding="utf-8") for path in files]
    return [text for text in texts if "rps" in text or "rate_per_s" in text or "isl" in text]


def _workload(case: Case) -> Answer:
    return dict(plan_spec({}, workload=_file(case, "given.yaml")).model_dump(mode="json"))


# What a link of the dashboard and a caller of the library hand over.
def _link(case: Case) -> Answer:
    fields = json.loads(str(case))
    if not isinstance(fields, dict):
        raise RoofcastError("no mapping")
    fields = {str(name): value for name, value in fields.items()}
    if "batch_size" in fields or "isl_tokens" in fields:
        return dict(scenario_spec(None, fields).model_dump(mode="json"))  # type: ignore[arg-type]
    return dict(plan_question(None, fields).model_dump(mode="json"))  # type: ignore[arg-type]


def _mutated_link(rng: random.Random, case: Case) -> Case:
    words = _words(PlanSpec) if "rps" in str(case) else _words(ScenarioSpec)
    return json.dumps(odd_tree(rng, json.loads(str(case)), words=words))


# Short texts in flags.
def _mutated_text(rng: random.Random, case: Case) -> Case:
    field, _, text = str(case).partition(" ")
    return f"{field} {odd_text(rng, text)}"


def _text(case: Case) -> Answer:
    field, _, text = str(case).partition(" ")
    if field == "objective":
        return {"objectives": [item.model_dump(mode="json") for item in parse_objectives([text], flag="--slo")]}
    if field == "change":
        return {"change": dump(parse_change(text))}
    if field == "tuning":
        return {"tuning": dump(parse_fine_tune(text))}
    assert field in TechniquesSpec.model_fields
    return techniques_spec({field: text}).model_dump(mode="json")


# Records of traffic: traces, metrics, results of benchmarks.
@cache
def _folder() -> TemporaryDirectory[str]:
    """One for the process, so that a case has the same path twice."""
    return TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)


def _file(case: Case, name: str) -> Path:
    path = Path(_folder().name) / name
    path.write_bytes(str(case).encode("utf-8", "surrogatepass"))
    return path


def _records() -> list[Case]:
    folder = GOLDEN.parent / "data" / "serving_results"
    results = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.json"))]
    return [samples.AZURE, samples.BURST, samples.MOONCAKE, samples.METRICS, samples.RANGES, *results]


def _mutated_record(rng: random.Random, case: Case) -> Case:
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


def _record(case: Case) -> Answer:
    over = "10min" if str(case).lstrip().startswith(("#", "vllm:")) else None
    return dict(demand(str(_file(case, "given")), over=over).to_dict())


def _results(case: Case) -> Answer:
    return {"runs": dump(load_serving_runs(_file(case, "given.json")))}


def _mutated_upload(rng: random.Random, case: Case) -> Case:
    name, text = case
    make = _mutated_yaml if name.endswith(".yaml") else _mutated_record
    return [odd_text(rng, name, most=2) if rng.random() < 0.2 else name, str(make(rng, text))]


# Whole commands.
def _mutated_words(rng: random.Random, case: Case) -> Case:
    words = list(case)
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


def _command(case: Case) -> Answer:
    assert isinstance(case, list)
    printed = run(case)
    if printed.code == 0:
        if printed.out.startswith("{") and "--json" in case:
            return {"hardware": _hardware_of(case), **json.loads(printed.out)}
        return {"text": printed.out}
    _refused(printed)


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


# Documents of plans, which are reported and replayed.
@cache
def _documents() -> list[Case]:
    """Documents with a command that reads them: plans, the report of one, a refusal."""
    printed = [run(words).out for words in samples.signed_plans()]
    # Sections are a hundred kilobytes that nothing reads back.
    reported = {**_reported("report", _file(printed[0], "plan.json")), "sections": []}
    # A report takes seconds, a replay a part of one: of plans that differ little the first two are reported.
    replayed = [["verify", text] for text in (*printed, json.dumps(reported))]
    return [*replayed, *(["report", text] for text in (*printed[:2], json.dumps(reported)))]


_DOCUMENT_PARTS = ("inputs", "inputs", "plan", "totals", "error")
"""What is read of a document; the question most."""


def _mutated_document(rng: random.Random, case: Case) -> Case:
    name, text = case
    tree = json.loads(text)
    part = rng.choice(_DOCUMENT_PARTS)
    if isinstance(tree.get(part), dict) and rng.random() < 0.8:
        tree[part] = odd_tree(rng, tree[part], words=_words(PlanSpec))
        return [name, json.dumps(tree)]
    return [name, odd_json(rng, tree, words=tuple(tree))]


def _document(case: Case) -> Answer:
    name, text = case
    return _reported(name, _file(text, "plan.json"))


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


def _yaml_kind(weight: float, folder: str, answer: Callable[[Case], Answer]) -> Kind:
    return Kind(weight=weight, seeds=_yaml_seeds(folder), make=_mutated_yaml, answer=answer)


KINDS: Mapping[str, Kind] = {
    "scenario": Kind(weight=30, seeds=_scenarios, make=_mutated_json(ScenarioSpec), answer=_scenario),
    "config": Kind(weight=22, seeds=_configs, make=_mutated_config, answer=_config),
    "hardware": _yaml_kind(5, "", _hardware),
    "server": _yaml_kind(2, "servers", _profile(ServerSpec)),
    "prices": _yaml_kind(2, "prices", _profile(PriceProfile)),
    "engine": _yaml_kind(3, "engines", _profile(EngineProfile)),
    "ownership": _yaml_kind(3, "ownership", _profile(OwnershipProfile)),
    "workload": Kind(weight=5, seeds=_workloads, make=_mutated_yaml, answer=_workload),
    "link": Kind(weight=6, seeds=samples.links, make=_mutated_link, answer=_link),
    "text": Kind(weight=5, seeds=lambda: list(samples.TEXTS), make=_mutated_text, answer=_text),
    "record": Kind(weight=12, seeds=_records, make=_mutated_record, answer=_record),
    "result": Kind(weight=2, seeds=lambda: _records()[5:], make=_mutated_record, answer=_results),
    "upload": Kind(weight=3, seeds=visitors.uploads, make=_mutated_upload, answer=visitors.uploaded),
    "address": Kind(weight=0.5, seeds=visitors.addresses, make=visitors.mutated_address, answer=visitors.visited),
    "command": Kind(weight=2, seeds=samples.commands, make=_mutated_words, answer=_command),
    "plan": Kind(weight=1, seeds=samples.plans, make=_mutated_words, answer=_command),
    "document": Kind(weight=1, seeds=_documents, make=_mutated_document, answer=_document),
}
