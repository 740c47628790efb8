"""The same questions to roofcast and to the tools that people use today, in turn: what each takes and answers.

Run with ``python -m benchmarks.peers --aiconfigurator BIN --genz PYTHON --aisimulate PYTHON [--runs 3] --json
benchmarks/peers.json``: BIN is ``aiconfigurator`` of an environment with ``aiconfigurator==0.12.0``, each PYTHON that
of one with ``genz-llm==0.0.16`` and with AISimulate, of which only wheels of nightly builds install (``pip install
--only-binary :all: --pre aisimulate``); a peer that is not named is left out. `python -m benchmarks.peers --readme
benchmarks/peers.json` writes the README's table from that file. Processes run A B A B; processor times are compared,
and the ratio is the median over the pairs, so that a machine that slows down slows both. They are of whole processes,
or, where the question says so, of the second question of a process, as a service asks. Nothing is looked up from an
earlier run but machine code (``roofcast warm-up``), which AISimulate ships.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from benchmarks.plan_speed import cost_of
from validation.readme import replaced

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCK = "peers"
ISL_TOKENS, OSL_TOKENS, BATCH, RATE_PER_S = 1024, 128, 32, 100
TTFT_MS, TPOT_MS = 1000, 50
ROOFCAST = (sys.executable, "-m", "simulator.cli.roofcast")
SCENARIO = {
    "id": "peers",
    "kind": "closed_loop",
    "model": "llama-3.1-70b",
    "hardware": "h200",
    "tp_size": 4,
    "concurrency": BATCH,
    "isl_tokens": ISL_TOKENS,
    "osl_tokens": OSL_TOKENS,
}
SERVED_PER_S, SERVED_S = 8, 1250
LOAD = {
    **{field: SCENARIO[field] for field in ("id", "model", "hardware", "tp_size")},
    "kind": "serve",
    "workload": {
        "stages": [{"rate_per_s": SERVED_PER_S, "duration_s": SERVED_S}],
        "isl_tokens": ISL_TOKENS,
        "osl_tokens": OSL_TOKENS,
    },
}
PREDICTION = {
    "traffic": {
        "source": {"type": "synthetic", "input_tokens": ISL_TOKENS, "output_tokens": OSL_TOKENS},
        "load": {"type": "poisson", "requests_per_second": SERVED_PER_S, "seed": 1},
        "stop": {"requests": SERVED_PER_S * SERVED_S},
    },
    "engine": {
        "mode": "aggregated",
        "model": "meta-llama/Meta-Llama-3.1-70B",
        "hardware": "h200_sxm",
        "backend": "vllm",
        "workers": {"aggregated": {"parallelism": {"tensor": 4}}},
    },
}
_LENGTHS = ("--isl", str(ISL_TOKENS), "--osl", str(OSL_TOKENS))
_AIC = ("--model-path", "meta-llama/Meta-Llama-3.1-70B", "--system", "h200_sxm", "--backend", "vllm", *_LENGTHS)
_GENZ = f"""
from GenZ import decode_moddeling
found = decode_moddeling(model="meta-llama/Llama-3.1-70B", batch_size={BATCH}, input_tokens={ISL_TOKENS},
    output_tokens={OSL_TOKENS}, system_name="H100_GPU", bits="bf16", tensor_parallel=4)
print("TPOT:", float(found["Latency"]))
"""
_SECOND_OF = """
from time import process_time
for seed in (1, 2):
    start_s = process_time()
    tpot = tpot_of(seed)
    spent_s = process_time() - start_s
print("TPOT:", tpot)
print("processor s:", spent_s)
"""
_OURS_SECOND = f"""
import simulator.cli
from simulator.api.scenarios import simulate
load = {LOAD!r}
def tpot_of(seed):
    return simulate({{**load, "workload": {{**load["workload"], "seed": seed}}}})["tpot_s"]
{_SECOND_OF}"""
_AISIMULATE_SECOND = f"""
from aisimulate import CorePredictionConfig, EngineReplayRunnerFactory
from aisimulate.predict import run_prediction
asked = {PREDICTION!r}
def tpot_of(seed):
    asked["traffic"]["load"]["seed"] = seed
    config = CorePredictionConfig.model_validate(asked)
    return run_prediction(config, stack="engine", runner_factory=EngineReplayRunnerFactory()).summary["mean_tpot_ms"]
{_SECOND_OF}"""
_PRINTED_TPOT = r"TPOT: ([0-9.]+)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question to one tool: its command, and where its answer stands in what it prints; also where its processor
    time does, if that of the whole process is not meant."""

    command: tuple[str, ...]
    answer: str
    spent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A question that both answer."""

    question: str
    unit: str
    peer: str
    ours: Asked
    theirs: Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Median processor times [s], the median of their ratios pair by pair, and the answers."""

    question: str
    peer: str
    ours_cpu_s: float
    theirs_cpu_s: float
    ratio: float
    runs: int
    ours_answer: str
    theirs_answer: str


def write_questions(folder: Path) -> None:
    """The files that the commands read."""
    for name, question in (("loop", SCENARIO), ("load", LOAD), ("prediction", PREDICTION)):
        (folder / f"{name}.json").write_text(json.dumps(question) + "\n", encoding="utf-8")


def _simulated(file: Path) -> Asked:
    return Asked(command=(*ROOFCAST, "simulate", str(file)), answer=r'"tpot_s": ([0-9.e-]+)')


def _aisimulate_pairs(folder: Path, *, python: str) -> list[Pair]:
    said = f"{SERVED_PER_S * SERVED_S:,} requests at {SERVED_PER_S}/s"
    out = ("--config", str(folder / "prediction.json"), "--output-dir", str(folder / "prediction"), "--overwrite")
    ours, theirs = (
        Asked(command=(*tool, "-c", second), answer=_PRINTED_TPOT, spent=r"processor s: ([0-9.e-]+)")
        for tool, second in (((sys.executable,), _OURS_SECOND), ((python, "-P"), _AISIMULATE_SECOND))
    )
    return [
        Pair(
            question=f"{said}, whole process",
            unit="TPOT",
            peer="aisimulate 0.13.0.dev predict",
            ours=_simulated(folder / "load.json"),
            theirs=Asked(
                command=(python, "-P", "-m", "aisimulate", "predict", *out),
                answer=r"Inter Token Latency \(ms\)\s+\S\s+([0-9.]+)",
            ),
        ),
        Pair(
            question=f"{said}, second of a process",
            unit="TPOT",
            peer="aisimulate 0.13.0.dev run_prediction",
            ours=ours,
            theirs=theirs,
        ),
    ]


def pairs(folder: Path, *, aiconfigurator: str | None, genz: str | None, aisimulate: str | None) -> list[Pair]:
    """What is asked of whom; ``folder`` holds the files of ``write_questions``."""
    estimate = _simulated(folder / "loop.json")
    plan = Asked(
        command=(
            *(*ROOFCAST, "plan", "--rps", str(RATE_PER_S), "--model", "llama-3.1-70b", "--hardware", "h200", *_LENGTHS),
            *("--weights", "bf16", "--ttft-p95", f"{TTFT_MS}ms", "--tpot-p95", f"{TPOT_MS}ms", "--json"),
        ),
        answer=r'"devices": ([0-9]+)',
    )
    found = []
    if aiconfigurator is not None:
        cli = (aiconfigurator, "cli")
        size = ("--batch-size", str(BATCH), "--tp-size", "4", "--estimate-mode", "agg")
        bounds = ("--target-request-rate", str(RATE_PER_S), "--ttft", str(TTFT_MS), "--tpot", str(TPOT_MS))
        found += [
            Pair(
                question=f"fleet for {RATE_PER_S} requests/s",
                unit="GPUs",
                peer="aiconfigurator 0.12.0 recommend",
                ours=plan,
                theirs=Asked(
                    command=(*cli, "recommend", *_AIC, *bounds), answer=r"\|\s*1\s*\|.*?\|\s*(\d+) \(\d+=\d+x"
                ),
            ),
            Pair(
                question=f"one deployment, {BATCH} requests at once",
                unit="TPOT",
                peer="aiconfigurator 0.12.0 estimate",
                ours=estimate,
                theirs=Asked(command=(*cli, "estimate", *_AIC, *size), answer=r"TPOT:\s+([0-9.]+) ms"),
            ),
        ]
    if genz is not None:
        size = ("--tp", "4", "--batch", str(BATCH), "--context", str(ISL_TOKENS + OSL_TOKENS // 2))
        step = (*ROOFCAST, "step", "--model", "llama-3.1-70b", "--hardware", "h100", *size, "--json")
        found.append(
            Pair(
                question=f"one decode step of {BATCH} sequences, on H100",
                unit="TPOT",
                peer="genz-llm 0.0.16 decode_moddeling",
                ours=Asked(command=step, answer=r'"step_s": ([0-9.e-]+)'),
                theirs=Asked(command=(genz, "-P", "-c", _GENZ), answer=_PRINTED_TPOT),
            )
        )
    if aisimulate is not None:
        found += _aisimulate_pairs(folder, python=aisimulate)
    return found


def answered(asked: Asked, *, environment: Mapping[str, str], like: str | None = None) -> str:
    """What the tool says: its answer, or what stands where ``like`` says."""
    printed = subprocess.run(asked.command, env=environment, capture_output=True, text=True, check=True).stdout
    found = re.search(like or asked.answer, printed)
    if found is None:
        raise SystemExit(f"{' '.join(asked.command)}: no answer like {like or asked.answer}")
    return found[1]


def spent_s(asked: Asked, *, environment: Mapping[str, str]) -> float:
    """Processor time of the process, or what it says that its question took [s]."""
    if asked.spent is None:
        return cost_of(asked.command, environment=environment).cpu_s
    return float(answered(asked, environment=environment, like=asked.spent))


def compared(pair: Pair, *, runs: int, environment: Mapping[str, str]) -> Compared:
    """Both in turn, after one run of each that is not counted."""
    ours_answer, theirs_answer = (answered(asked, environment=environment) for asked in (pair.ours, pair.theirs))
    if pair.unit == "TPOT":
        ours_answer, theirs_answer = f"{1000 * float(ours_answer):.1f} ms", f"{float(theirs_answer):.1f} ms"
    else:
        ours_answer, theirs_answer = f"{ours_answer} {pair.unit}", f"{theirs_answer} {pair.unit}"
    costs = [tuple(spent_s(asked, environment=environment) for asked in (pair.ours, pair.theirs)) for _ in range(runs)]
    return Compared(
        question=pair.question,
        peer=pair.peer,
        ours_cpu_s=statistics.median(ours for ours, _ in costs),
        theirs_cpu_s=statistics.median(theirs for _, theirs in costs),
        ratio=statistics.median(theirs / ours for ours, theirs in costs),
        runs=runs,
        ours_answer=ours_answer,
        theirs_answer=theirs_answer,
    )


def table(document: Mapping[str, object]) -> str:
    """The README's table."""
    rows = [Compared(**row) for row in document["compared"]]  # type: ignore[attr-defined]
    asked = f"Llama 3.1 70B on H200, {ISL_TOKENS} + {OSL_TOKENS} tokens, BF16"
    lines = [f"| {asked} | beside | processor time | ratio | answers |", "|---|---|---|---|---|"]
    for row in rows:
        times = ", ".join(
            f"{cpu_s:.2f} s" if cpu_s >= 0.1 else f"{cpu_s:.3f} s" for cpu_s in (row.ours_cpu_s, row.theirs_cpu_s)
        )
        answers = f"{row.ours_answer}, {row.theirs_answer}"
        lines.append(f"| {row.question} | {row.peer} | {times} | {row.ratio:.1f}x | {answers} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aiconfigurator", help="its command, in an environment of its own")
    parser.add_argument("--genz", help="the Python of an environment with genz-llm")
    parser.add_argument("--aisimulate", help="the Python of an environment with AISimulate")
    parser.add_argument("--runs", type=int, default=3, help="pairs of each question")
    parser.add_argument("--json", help="file to write")
    parser.add_argument("--readme", help="file from which to write the README's table")
    chosen = parser.parse_args(arguments)
    if chosen.readme is not None:
        content = table(json.loads(Path(chosen.readme).read_text("utf-8")))
        README.write_text(replaced(README.read_text("utf-8"), block=BLOCK, content=content), encoding="utf-8")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        # Modules are compiled once, as after an installation, and no answer is one of an earlier run.
        environment = {**os.environ, "ROOFCAST_CACHE": "off", "PYTHONPYCACHEPREFIX": str(Path(folder) / "modules")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        write_questions(Path(folder))
        subprocess.run((*ROOFCAST, "warm-up"), check=True, stdout=subprocess.DEVNULL)
        tools = {"aiconfigurator": chosen.aiconfigurator, "genz": chosen.genz, "aisimulate": chosen.aisimulate}
        asked = pairs(Path(folder), **tools)
        found = [compared(pair, runs=chosen.runs, environment=environment) for pair in asked]
    document = {
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "compared": [asdict(row) for row in found],
    }
    print(table(document))
    if chosen.json is not None:
        Path(chosen.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
