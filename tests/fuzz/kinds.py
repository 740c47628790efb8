"""The kinds of input that come from outside: real ones to start from, hostile ones made of them, and who answers.

A case is a text, or the words of a command line; the same case gives the same answer in every process.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from simulator.api.questions import plan_question, scenario_spec
from simulator.api.steps import step
from simulator.errors import RoofcastError
from simulator.operators.model_counts import model_counts
from simulator.operators.transformer import is_encoder_only
from simulator.reports.answer import dump
from simulator.specs.base import validate, yaml_mapping
from simulator.specs.engine.engine import EngineProfile
from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.money.ownership import OwnershipProfile
from simulator.specs.money.prices import PriceProfile
from simulator.specs.profiles import profile_root
from simulator.specs.question.plan import PlanSpec, plan_spec
from simulator.specs.question.plan_values import parse_objectives
from simulator.specs.question.scenario import IDLE_FIELDS, ScenarioSpec
from simulator.specs.question.scenario_file import parse_change
from simulator.specs.question.techniques import TechniquesSpec
from simulator.specs.question.techniques_text import parse_fine_tune, techniques_spec
from simulator.specs.uploads import hardware_from_upload, model_from_upload
from tests.fuzz import commands, files, records, samples, visitors
from tests.fuzz.allowed import allowed_tree, allowing, integer, text_of
from tests.fuzz.mutation import mutated_yaml, near_tree, odd_json, odd_text, odd_tree, words_of, yaml_tree
from tests.fuzz.records import file_of, mutated_record
from tests.fuzz.samples import Answer, Case
from tests.golden.questions import HERE as GOLDEN
from tests.golden.questions import questions_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """``seeds`` are answered or refused as they are; ``make`` gives a hostile variant of one; ``answer`` answers it or
    raises RoofcastError. ``weight``: its share of the cases."""

    weight: float
    seeds: Callable[[], list[Case]]
    make: Callable[[random.Random, Case], Case]
    answer: Callable[[Case], Answer]


_ODD = 0.5
"""Which share of the cases has what no gate lets pass; the others have what it does, as nobody asks it."""


# Scenarios, one a line.
def _scenarios() -> list[Case]:
    lines = [question.line for question in questions_of("scenarios") if question.available]
    return [line for line in lines if "trace" not in line]


@cache
def _scenario_trees() -> tuple[dict[str, Any], ...]:
    trees = [_tree(line) for line in _scenarios()]
    return tuple(tree for tree in trees if isinstance(tree, dict))


def _tree(text: Case) -> Any:
    """What a text holds, None where it is no JSON."""
    try:
        return json.loads(str(text))
    except ValueError:
        return None


def _mutated_scenario(rng: random.Random, case: Case) -> Case:
    tree = _tree(case)
    if tree is None:
        return odd_text(rng, str(case))
    if rng.random() < _ODD or not isinstance(tree, dict):
        return odd_json(rng, tree, words=words_of(ScenarioSpec))
    idle = {"kind", "id", *IDLE_FIELDS.get(str(tree.get("kind")), ())}
    return json.dumps(allowed_tree(rng, tree, spec=ScenarioSpec, others=_scenario_trees(), idle=idle))


# Configurations of models.
@cache
def _configs() -> list[Case]:
    files = sorted(profile_root("model_profiles").glob("*.yaml"))
    profiles = [yaml_tree(path.read_text(encoding="utf-8")) for path in files if path.stem != "aliases"]
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


def _crossed(rng: random.Random, tree: Any) -> Any:
    """``tree`` with up to three fields as other configurations have them."""
    for _ in range(rng.choice((0, 0, 1, 2, 3))):
        other = json.loads(str(rng.choice(_configs())))
        name = rng.choice(sorted(other))
        tree[name] = other[name]
    if rng.random() < 0.1:
        tree["quantization_config"] = dict(rng.choice(samples.QUANTIZED))
    return tree


def _mutated_config(rng: random.Random, case: Case) -> Case:
    tree = json.loads(str(case))
    if rng.random() < _ODD:
        return json.dumps(_crossed(rng, near_tree(rng, tree)))
    if rng.random() < 0.1:
        tree["quantization_config"] = odd_tree(rng, rng.choice(samples.QUANTIZED), words=_config_words())
    return odd_json(rng, tree, words=_config_words())


def _config(case: Case) -> Answer:
    model = model_from_upload(str(case).encode("utf-8", "surrogatepass"), filename="config.json")
    return {"counts": dump(model_counts(model, precision=PrecisionSpec(), context_tokens=1000))}


def _stepped(case: Case) -> Answer:
    """Both phases of a model, as a user prices a configuration of his own: on eight devices, or as he asks."""
    text, asked = (case, '{"hardware": "h100", "batch_size": 4, "tp_size": 8}') if isinstance(case, str) else case
    path = str(file_of(text, f"{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.json"))
    model = load_model(path)
    phases = ("prefill",) if is_encoder_only(model) else ("prefill", "decode")
    fields = json.loads(asked)
    answers = {phase: step(model=path, **fields, phase=phase).to_dict() for phase in phases}
    return {"hardware": fields["hardware"], **answers}


def _mutated_step(rng: random.Random, case: Case) -> Case:
    """Another configuration, in a deployment of any size and format."""
    asked: dict[str, Any] = {"hardware": text_of(rng, "hardware"), "batch_size": integer(rng, low=1, high=10**5)}
    if rng.random() < 0.5:
        asked["context_tokens"] = integer(rng, low=1, high=10**6)
    for name in rng.sample(("tp_size", "ep_size", "dp_size", "pp_size", "cp_size"), rng.choice((0, 0, 1, 1, 2))):
        asked[name] = rng.choice((1, 2, 3, 4, 8, 16, 64))
    formats = rng.sample(("weights", "kv_cache", "activations", "scheme"), rng.choice((0, 0, 1, 2)))
    asked["precision"] = {name: text_of(rng, name) for name in formats}
    if rng.random() < 0.3:
        asked["techniques"] = allowed_tree(rng, {}, spec=TechniquesSpec)
    if rng.random() < 0.3:
        asked["engine"] = text_of(rng, "engine")
    return [str(_mutated_config(rng, case)), json.dumps(asked)]


# Profiles and plans in YAML.
def _yaml_seeds(folder: str) -> Callable[[], list[Case]]:
    def seeds() -> list[Case]:
        files = sorted((profile_root("hardware_profiles") / folder).glob("*.yaml"))
        texts = [path.read_text(encoding="utf-8") for path in files if path.stem != "aliases"]
        return [text for text in texts if len(text) < 60_000]

    return seeds


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
    return dict(plan_spec({}, workload=file_of(case, "given.yaml")).model_dump(mode="json"))


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
    spec = PlanSpec if "rps" in str(case) else ScenarioSpec
    tree = json.loads(str(case))
    if rng.random() < _ODD:
        return json.dumps(odd_tree(rng, tree, words=words_of(spec)))
    return json.dumps(allowed_tree(rng, tree, spec=spec, others=[json.loads(str(other)) for other in samples.links()]))


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


def _mutated_upload(rng: random.Random, case: Case) -> Case:
    name, text = case
    make = mutated_yaml if name.endswith(".yaml") else mutated_record
    return [odd_text(rng, name, most=2) if rng.random() < 0.2 else name, str(make(rng, text))]


def _mutated_yaml(spec: type[Any]) -> Callable[[random.Random, Case], Case]:
    def make(rng: random.Random, case: Case) -> Case:
        return mutated_yaml(rng, str(case), allowed=allowing(spec))

    return make


def _yaml_kind(weight: float, folder: str, spec: type[Any], answer: Callable[[Case], Answer] | None = None) -> Kind:
    return Kind(weight=weight, seeds=_yaml_seeds(folder), make=_mutated_yaml(spec), answer=answer or _profile(spec))


KINDS: Mapping[str, Kind] = {
    "scenario": Kind(weight=30, seeds=_scenarios, make=_mutated_scenario, answer=commands.scenario),
    "config": Kind(weight=22, seeds=_configs, make=_mutated_config, answer=_config),
    "model": Kind(weight=4, seeds=_configs, make=_mutated_step, answer=_stepped),
    "hardware": _yaml_kind(5, "", AcceleratorSpec, _hardware),
    "server": _yaml_kind(2, "servers", ServerSpec),
    "prices": _yaml_kind(2, "prices", PriceProfile),
    "engine": _yaml_kind(3, "engines", EngineProfile),
    "ownership": _yaml_kind(3, "ownership", OwnershipProfile),
    "workload": Kind(weight=5, seeds=_workloads, make=_mutated_yaml(PlanSpec), answer=_workload),
    "link": Kind(weight=6, seeds=samples.links, make=_mutated_link, answer=_link),
    "text": Kind(weight=5, seeds=lambda: list(samples.TEXTS), make=_mutated_text, answer=_text),
    "record": Kind(weight=12, seeds=records.records, make=mutated_record, answer=records.recorded),
    "result": Kind(weight=2, seeds=lambda: records.records()[5:], make=mutated_record, answer=records.results),
    "upload": Kind(weight=3, seeds=visitors.uploads, make=_mutated_upload, answer=visitors.uploaded),
    "address": Kind(weight=0.5, seeds=visitors.addresses, make=visitors.mutated_address, answer=visitors.visited),
    "command": Kind(weight=2, seeds=samples.commands, make=commands.mutated_words, answer=commands.command),
    "plan": Kind(weight=1, seeds=samples.plans, make=commands.mutated_words, answer=commands.command),
    "replay": Kind(weight=0.3, seeds=samples.traced_plans, make=commands.mutated_replay, answer=commands.replay),
    "own": Kind(weight=4, seeds=commands.own_profiles, make=commands.mutated_own, answer=commands.owned),
    "file": Kind(weight=4, seeds=files.file_cases, make=files.mutated_file, answer=files.filed),
    "document": Kind(weight=1, seeds=commands.documents, make=commands.mutated_document, answer=commands.document),
}
