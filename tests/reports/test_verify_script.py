"""``simulator.reports.handoff.benchmark``: verify.sh does what it says, its client answers as the simulation does.

The script's own Python writes the requests, the stand-in for the client serves exactly those on the planned replica in
the simulation, and the commands at its end are roofcast's own.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.handoff import sent_rate_per_s, sent_requests, shared_tokens
from simulator.planner.plan import plan_capacity
from simulator.reports.handoff.launch import launch_handoff
from simulator.specs.question.plan import plan_spec

ROOT = Path(__file__).resolve().parents[2]
TOKENIZER = '''
class AutoTokenizer:
    """A token a word."""
    @classmethod
    def from_pretrained(cls, name): return cls()
    def encode(self, text, add_special_tokens=True): return text.split()
    def decode(self, tokens): return " ".join(tokens)
'''
CLIENT = """#!{python}
import json, pickle, sys
sys.path.insert(0, "{root}")
words = sys.argv[1:]
value = lambda name: words[words.index(name) + 1]
assert words[:2] == ["bench", "serve"], words
sent = [json.loads(line) for line in open(value("--dataset-path"))]
assert len(sent) == int(value("--num-prompts"))
if "--save-result" in words:
    from tests.bench_results import served_requests
    deployment = pickle.load(open("{folder}/replica.pickle", "rb"))
    result = served_requests(
        deployment,
        isl_tokens=[len(item["prompt"].split()) for item in sent],
        osl_tokens=[item["output_tokens"] for item in sent],
        rate_per_s=float(value("--request-rate")),
        gap_cv=float(value("--burstiness")) ** -0.5,
        shared_tokens={shared},
    )
    result["model_id"] = value("--model")
    json.dump(result, open(value("--result-filename"), "w"))
"""
COMMAND = '#!/bin/sh\nPYTHONPATH={root} exec {python} -m simulator.cli.roofcast "$@"\n'
QUESTIONS: dict[str, dict[str, Any]] = {
    "dense": {"model": "llama-3.1-8b", "tp": (1,), "isl": 600, "osl": 80},
    "ranks": {
        "model": "mixtral-8x7b", "tp": (1,), "dp": (4,), "ep": (4,), "isl": 500, "osl": 60,
        "max_num_seqs": (64,), "max_num_batched_tokens": 2048,
    },
    "shared prefix": {"model": "llama-3.1-8b", "tp": (1,), "isl": 800, "osl": 60, "prefix_hit": 0.5},
    "long answers": {"model": "llama-3.1-8b", "tp": (1,), "isl": 300, "osl": 3000, "osl_cv": 0.3, "rps": 1.0},
}  # fmt: skip


@cache
def planned(name: str) -> CapacityPlan:
    return plan_capacity(plan_spec({"rps": 12.0, "hardware": ("h100",), "ttft_p95": "5s", **QUESTIONS[name]}))


def script(plan: CapacityPlan) -> str:
    model = plan.best.replica.deployment.model
    found = launch_handoff(
        plan.best,
        model_id=model.checkpoint or model.name,
        scheme=plan.best.scheme,
        demand=plan.demand,
        objectives=plan.objectives,
    )
    return next(file.text for file in found.files if file.name == "verify.sh")


def executable(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def run(plan: CapacityPlan, folder: Path) -> str:
    """Run the script with stand-ins for the client and the tokenizer; what it printed."""
    import pickle

    (folder / "transformers.py").write_text(TOKENIZER, encoding="utf-8")
    (folder / "verify.sh").write_text(script(plan), encoding="utf-8")
    deployment = plan.best.replica.deployment
    # What runs holds no more than a request of the longest that is served.
    capacity = plan.best.replica.memory.kv_capacity_tokens
    engine = replace(deployment.engine, max_model_len=min(deployment.engine.max_model_len, capacity))
    (folder / "replica.pickle").write_bytes(pickle.dumps(replace(deployment, engine=engine)))
    binaries = folder / "bin"
    binaries.mkdir()
    names = {"python": sys.executable, "root": str(ROOT), "folder": str(folder)}
    executable(binaries / "vllm", CLIENT.format(**names, shared=shared_tokens(plan.demand.mix)))
    executable(binaries / "roofcast", COMMAND.format(**names))
    executable(binaries / "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    path = f"{binaries}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "verify.sh", "http://replica:8000"],
        cwd=folder,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_result_of_the_planned_replica_agrees_with_the_plan(name: str, tmp_path: Path) -> None:
    plan = planned(name)
    printed = run(plan, tmp_path)
    assert "no change needed" in printed
    assert not (tmp_path / "my-profiles").exists()
    errors = [float(value) for value in re.findall(r"\(([-+]\d+\.\d) %", printed)]
    assert len(errors) == 3
    assert max(map(abs, errors)) < 0.5
    result = json.loads((tmp_path / "replica.json").read_text("utf-8"))
    mix, count = plan.demand.mix, len(result["input_lens"])
    assert np.mean(result["input_lens"]) == pytest.approx(mix.isl.mean_tokens, rel=0.15)
    assert np.mean(result["output_lens"]) == pytest.approx(mix.osl.mean_tokens, rel=0.15)
    assert max(result["output_lens"]) > 1.3 * mix.osl.mean_tokens
    sent_s = count / sent_rate_per_s(plan.best, plan.demand)
    assert sent_s >= 5 * plan.best.degraded.e2e_p95_s


def test_the_measured_load_is_one_replicas_share_of_the_peak() -> None:
    plan = planned("dense")
    rate = sent_rate_per_s(plan.best, plan.demand)
    assert rate * plan.best.replicas == pytest.approx(plan.demand.planned_rate_per_s)
    warm_up, count = sent_requests(plan.best, plan.demand)
    assert warm_up >= rate * plan.best.degraded.e2e_p95_s
    assert count >= max(200, 5 * rate * plan.best.degraded.e2e_p95_s)


def test_answers_to_one_prompt_are_sent_with_one_prompt(tmp_path: Path) -> None:
    asked = {"rps": 12.0, "hardware": ("h100",), "tp": (1,), "model": "llama-3.1-8b", "isl": 600, "osl": 80}
    written = script(plan_capacity(plan_spec({**asked, "ttft_p95": "5s", "answers_per_request": 4})))
    assert "roofcast validate" not in written, "a replay of the result knows no shared prompts"
    (tmp_path / "transformers.py").write_text(TOKENIZER, encoding="utf-8")
    code = written.partition("<<'PYTHON'\n")[2].partition("\nPYTHON\n")[0]
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env={"PYTHONPATH": str(tmp_path)})
    prompts = [json.loads(line)["prompt"] for line in (tmp_path / "requests.jsonl").read_text("utf-8").splitlines()]
    sent = int(re.findall(r"--num-prompts (\d+)", written)[1])
    assert (len(prompts), len(set(prompts))) == (sent, sent / 4)
    assert prompts[0] == prompts[3] != prompts[4]
    assert np.mean([len(text.split()) for text in prompts]) == pytest.approx(600, rel=0.2)
