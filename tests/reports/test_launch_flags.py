"""Every file that is handed over parses, and every flag in it is one that the engine's release has.

The lists under tests/data/engine_options are read from the releases' own parsers by ``validation.engine_options``.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.planner.plan import plan_capacity
from simulator.reports.handoff.launch import Handoff, launch_handoff
from simulator.specs.engine.engine import load_engine
from simulator.specs.engine.launch import LaunchSpec, load_launch
from simulator.specs.profiles import list_profiles
from simulator.specs.question.plan import plan_spec
from tests.for_every import for_every

LISTS = Path(__file__).resolve().parents[1] / "data" / "engine_options"
ENGINES = list_profiles("engines/launch")
PLANS: dict[str, dict[str, Any]] = {
    "tensor parallel": {"model": "llama-3.1-70b", "tp": (4,)},
    "pipeline over servers": {"model": "llama-3.1-405b", "tp": (8,), "pp": (2,), "weights": ("bf16",)},
    "attention ranks and experts": {"model": "mixtral-8x7b", "tp": (1,), "dp": (4,), "ep": (4,)},
    "ranks over servers": {"model": "deepseek-v3", "tp": (1,), "dp": (16,), "ep": (16,), "tpot_p95": "200ms"},
    "two batches": {
        **{"model": "deepseek-v3", "tp": (1,), "dp": (32,), "isl": 2000, "osl": 1000, "rps": 60.0, "ttft_p95": "3s"},
        **{"tpot_p95": "150ms", "serving": ("disaggregated",), "two_batch_overlap": True},
    },
    "published fp8, fp8 cache": {"model": "llama-3.1-70b", "tp": (2,), "weights": ("fp8",), "kv_cache": ("fp8",)},
    "fp8 to be made": {"model": "llama-2-13b", "tp": (1,), "weights": ("fp8",)},
    "fp4 experts": {"model": "gpt-oss-120b", "tp": (2,)},
    "gptq": {"model": "llama-3.1-8b", "tp": (1,), "scheme": "gptq-g128"},
    "eagle": {"model": "llama-3.1-8b", "tp": (1,), "speculation": ("eagle:k=3",)},
    "eagle3": {"model": "llama-3.1-8b", "tp": (1,), "speculation": ("eagle3:k=3",)},
    "mtp": {"model": "deepseek-v3", "hardware": "h200", "tp": (8,), "speculation": ("mtp:k=1",)},
    "draft": {"model": "llama-3.1-70b", "tp": (4,), "speculation": ("draft:k=3,draft_model=llama-3.1-8b",)},
    "ngram": {"model": "llama-3.1-8b", "tp": (1,), "speculation": ("ngram:k=4",)},
    "pools": {"model": "llama-3.1-8b", "serving": ("disaggregated",), "rps": 100.0},
    "shared prefixes": {"model": "llama-3.1-8b", "tp": (1,), "rps": 200.0, "prefix_hit": 0.5},
}
# llama.cpp serves neither pools nor experts over ranks here; ATOM is of AMD's accelerators.
HARDWARE = {"atom": "mi300x"}
ALONE = {
    "llama.cpp": ("tensor parallel", "gptq"),
    "atom": ("tensor parallel", "fp4 experts", "published fp8, fp8 cache"),
}
CASES = [(engine, name) for engine in ENGINES for name in ALONE.get(engine, tuple(PLANS))]
# Of engines whose parser nobody could read, the words of their documentation and of aiconfigurator's launch files.
DOCUMENTED = {
    "tensorrt-llm": (
        "--host --port --backend --tp_size --pp_size --ep_size --max_seq_len --max_batch_size --max_num_tokens "
        "--extra_llm_api_options"
    ),
    "atom": (
        "--model --server-port --tensor-parallel-size --enable-dp-attention --enable-expert-parallel --max-model-len "
        "--max-num-seqs --max-num-batched-tokens --gpu-memory-utilization --block-size --kv_cache_dtype "
        "--enable_prefix_caching --method --num-speculative-tokens"
    ),
}


@cache
def handed_over(engine: str, name: str) -> Handoff:
    question = {"rps": 2.0, "hardware": HARDWARE.get(engine, "h100"), "ttft_p95": "600s", "engine": engine}
    plan = plan_capacity(plan_spec(question | PLANS[name]))
    model = plan.best.replica.deployment.model
    return launch_handoff(
        plan.best,
        model_id=model.checkpoint or model.name,
        scheme=plan.best.scheme,
        demand=plan.demand,
        objectives=plan.objectives,
    )


@cache
def pinned(name: str) -> dict[str, dict[str, Any]]:
    return dict(json.loads((LISTS / f"{name}.json").read_text(encoding="utf-8")))


def options_of(engine: str) -> dict[str, dict[str, Any]] | None:
    """The list of the release that the launch profile is written for; None where it has a documentation alone."""
    launch = load_launch(engine)
    assert launch is not None
    path = LISTS / f"{engine}-{launch.release}.json"
    assert path.exists() == (launch.checked == "parser")
    return pinned(path.stem) if path.exists() else None


def flags(words: list[str]) -> list[tuple[str, list[str]]]:
    """Each flag with the words up to the next one."""
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("-") and not re.fullmatch(r"-\d.*", word):
            found.append((word, []))
        elif found:
            found[-1][1].append(word)
    return found


def check(words: list[str], options: dict[str, dict[str, Any]]) -> None:
    """Every flag is known, takes as many values as it is given, of its type and among those allowed."""
    for name, values in flags(words):
        # A key of an option that takes JSON.
        own, _, key = name.partition(".")
        assert own in options, name
        option = options[own]
        assert not key or option == {"values": "1"}
        least, most = {"0": (0, 0), "1": (1, 1), "many": (1, 10_000)}[option["values"]]
        assert least <= len(values) <= most, (name, values)
        for value in values:
            if value.startswith("$"):
                continue
            if "type" in option:
                {"int": int, "float": float}[option["type"]](value)
            assert value in option.get("choices", (value,)), (name, value)
            if value.startswith("{"):
                json.loads(value)


def commands(text: str) -> list[list[str]]:
    """The commands of a script, here-documents and what is put in at run time left out."""
    plain = re.sub(r"<<'(\w+)'\n.*?\n\1\n", "\n", text, flags=re.DOTALL)
    plain = re.sub(r"\$\(\[ .*?\|\| echo (--[\w-]+)\)", r"\1", plain)
    plain = re.sub(r'"\$\(hostname -i\)"', "HOST", plain)
    joined = plain.replace("\\\n", " ")
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


def command(text: str, *first: str) -> list[str]:
    """What stands behind the first words of a command in a script."""
    found = [words[len(first) :] for words in commands(text) if tuple(words[: len(first)]) == first]
    assert found, (first, text)
    return found[-1]


@for_every(CASES)
@pytest.mark.slow
def test_every_file_parses(tmp_path: Path, case: tuple[str, str]) -> None:
    engine, name = case
    files = handed_over(engine, name).files
    assert len({file.name for file in files}) == len(files)
    for file in files:
        assert "${" not in re.sub(r"\$\{(1|HEAD|RANK):[^}]*\}", "", file.text), file.name
        if file.name.endswith(".sh"):
            path = tmp_path / file.name
            path.write_text(file.text, encoding="utf-8")
            checked = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
            assert checked.returncode == 0, checked.stderr
            for inner in re.findall(r"<<'PYTHON'\n(.*?)\nPYTHON\n", file.text, re.DOTALL):
                compile(inner, file.name, "exec")
        else:
            for item in yaml.safe_load_all(file.text):
                assert {"apiVersion", "kind", "metadata"} <= set(item)


@pytest.mark.slow
@for_every(CASES)
def test_every_flag_of_a_launch_command_is_one_of_the_release(case: tuple[str, str]) -> None:
    engine, name = case
    launch = load_launch(engine)
    assert launch is not None
    options = options_of(engine)
    start = launch.command.split("$")[0].split()
    start = start if not start[-1].startswith("-") else start[:-1]
    for file in handed_over(engine, name).files:
        if not file.name.startswith("launch-"):
            continue
        words = next(words for words in commands(file.text) if " ".join(start) in " ".join(words))
        if options is not None:
            check(words, {**options, **({"--nodes": {"values": "1"}} if launch.join else {}), "-m": {"values": "many"}})
            continue
        allowed = {*DOCUMENTED[engine].split(), "-m", "--nodes", "--ntasks-per-node", "--mpi"}
        assert {flag for flag, _ in flags(words)} <= allowed


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine not in HARDWARE])
def test_pods_run_the_command_of_the_launch_file(engine: str) -> None:
    options = options_of(engine)
    for name in ALONE.get(engine, ("tensor parallel", "eagle", "shared prefixes")):
        files = {file.name: file.text for file in handed_over(engine, name).files}
        objects = yaml.safe_load_all(files["kubernetes.yaml"])
        pod = next(item["spec"]["template"]["spec"] for item in objects if item["kind"] == "Deployment")
        words = pod["containers"][0]["command"]
        shell = next(words for words in commands(files[f"launch-{engine}.sh"]) if len(words) > 8)
        moved = {"./": "/models/", "options.yaml": "/etc/engine/options.yaml"}
        assert [re.sub(r"^\./", moved["./"], moved.get(word, word)) for word in shell] == words
        if options is not None:
            check(words, options | {"-m": {"values": "many"}})


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("name", ["pools", "shared prefixes"])
def test_every_flag_of_a_router_is_one_of_its_release(engine: str, name: str) -> None:
    launch = load_launch(engine)
    assert launch is not None
    assert launch.router is not None
    options = pinned(launch.router.package.replace("==", "-")) | {"-m": {"values": "many"}}
    files = {file.name: file.text for file in handed_over(engine, name).files}
    first = launch.router.command.split()
    check(command(files["router.sh"], *first), options)
    pods = [item for item in yaml.safe_load_all(files["kubernetes.yaml"]) if item["kind"] == "Deployment"]
    (router,) = (item for item in pods if item["metadata"]["name"].endswith("-router"))
    started = router["spec"]["template"]["spec"]["containers"][0]["command"][-1].partition("exec ")[2]
    check(shlex.split(started)[len(first) :], options)
    selectors = {value for _, values in flags(shlex.split(started)) for value in values if value.startswith("app=")}
    labels = {f"app={item['spec']['template']['metadata']['labels']['app']}" for item in pods if item is not router}
    assert selectors == labels


@pytest.mark.parametrize("release", ["0.15.1", "0.33.0"])
@pytest.mark.parametrize("name", ["tensor parallel", "pools", "shared prefixes"])
def test_every_flag_of_the_benchmark_is_one_of_the_client(name: str, release: str) -> None:
    text = next(file.text for file in handed_over("vllm", name).files if file.name == "verify.sh")
    sent = [words for words in commands(text) if words[:3] == ["vllm", "bench", "serve"]]
    assert len(sent) == 2
    for words in sent:
        check(words[3:], pinned(f"vllm-bench-{release}"))


HOSTILE = "org/a \"b\" 'c' $(exit 9) `exit 9` #d\nexit 9\nPYTHON\nYAML: [x"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["tensor parallel", "fp8 to be made", "draft", "pools"])
def test_a_name_is_a_name_whatever_it_holds(engine: str, name: str, tmp_path: Path) -> None:
    if name not in ALONE.get(engine, (*PLANS,)):
        return
    question = {"rps": 2.0, "hardware": HARDWARE.get(engine, "h100"), "ttft_p95": "600s", "engine": engine}
    plan = plan_capacity(plan_spec(question | PLANS[name]))
    found = launch_handoff(
        plan.best, model_id=HOSTILE, scheme=plan.best.scheme, demand=plan.demand, objectives=plan.objectives
    )
    programs = ("vllm", "vllm-router", "python3", "python", "trtllm-serve", "llama-server", "llama-quantize")
    programs += ("hf", "roofcast", "pip")
    run = "".join(f"{program}() {{ :; }}\n" for program in programs) + "set -- http://x:1\n"
    for file in found.files:
        if file.name.endswith(".yaml"):
            assert list(yaml.safe_load_all(file.text))
            continue
        path = tmp_path / file.name
        path.write_text(run + file.text, encoding="utf-8")
        done = subprocess.run(["bash", str(path)], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), file.name
        for inner in re.findall(r"<<'PYTHON'\n(.*?)\nPYTHON\n", file.text, re.DOTALL):
            compile(inner, file.name, "exec")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_launch_profile_is_that_of_the_release_that_is_planned(engine: str) -> None:
    launch = load_launch(engine)
    assert launch is not None
    assert launch.release == load_engine(engine).version
    for name in launch.images.values():
        tag = name.rpartition(":")[2]
        assert launch.release in tag, "an image is pinned by the tag of its release"
    assert set(launch.sources) >= ({"flags", "images"} if launch.images else {"flags"})


def test_every_condition_and_setting_of_a_profile_is_known() -> None:
    """Else filling it in would fail on the one plan that needs it."""
    from simulator.planner.handoff import fleet_settings

    plan = plan_capacity(plan_spec({"rps": 2.0, "hardware": "h100", "model": "llama-3.1-8b"}))
    (item,) = fleet_settings(plan.best, model_id="x", scheme=None)
    known = {*item.values(), "rank", "head", "host", "url", "urls", "name"}
    known |= {f"{pool}_{what}" for pool in ("prefill", "decode") for what in ("count", "hosts")}

    def texts(launch: LaunchSpec) -> set[str]:
        return set(re.findall(r"\$\{(\w+)\}", launch.model_dump_json()))

    for engine in ENGINES:
        launch = load_launch(engine)
        assert launch is not None
        assert texts(launch) <= known, engine
