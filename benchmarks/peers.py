"""The same questions to roofcast and to the tools that people use today, in turn: what each takes and answers.

Run with ``python -m benchmarks.peers --aiconfigurator BIN --genz PYTHON [--runs 3] --json benchmarks/peers.json``:
BIN is ``aiconfigurator`` of an environment with ``aiconfigurator==0.12.0``, PYTHON that of one with
``genz-llm==0.0.16``; a peer that is not named is left out. `python -m benchmarks.peers --readme benchmarks/peers.json`
writes the README's table from that file. Whole processes run A B A B; processor times are compared, and the ratio is
the median over the pairs, so that a machine that slows down slows both. Nothing is looked up from an earlier run.
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
_LENGTHS = ("--isl", str(ISL_TOKENS), "--osl", str(OSL_TOKENS))
_AIC = ("--model-path", "meta-llama/Meta-Llama-3.1-70B", "--system", "h200_sxm", "--backend", "vllm", *_LENGTHS)
_GENZ = f"""
from GenZ import decode_moddeling
found = decode_moddeling(model="meta-llama/Llama-3.1-70B", batch_size={BATCH}, input_tokens={ISL_TOKENS},
    output_tokens={OSL_TOKENS}, system_name="H100_GPU", bits="bf16", tensor_parallel=4)
print("TPOT ms:", float(found["Latency"]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question to one tool: its command, and where its answer stands in what it prints."""

    command: tuple[str, ...]
    answer: str


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


def pairs(*, scenario: str, aiconfigurator: str | None, genz: str | None) -> list[Pair]:
    """What is asked of whom."""
    estimate = Asked(command=(*ROOFCAST, "simulate", scenario), answer=r'"tpot_s": ([0-9.e-]+)')
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
                theirs=Asked(command=(genz, "-P", "-c", _GENZ), answer=r"TPOT ms: ([0-9.]+)"),
            )
        )
    return found


def answered(asked: Asked, *, environment: Mapping[str, str]) -> str:
    """What the tool says."""
    printed = subprocess.run(asked.command, env=environment, capture_output=True, text=True, check=True).stdout
    found = re.search(asked.answer, printed)
    if found is None:
        raise SystemExit(f"{' '.join(asked.command)}: no answer like {asked.answer}")
    return found[1]


def compared(pair: Pair, *, runs: int, environment: Mapping[str, str]) -> Compared:
    """Both in turn, after one run of each that is not counted."""
    ours_answer, theirs_answer = (answered(asked, environment=environment) for asked in (pair.ours, pair.theirs))
    if pair.unit == "TPOT":
        ours_answer, theirs_answer = f"{1000 * float(ours_answer):.1f} ms", f"{float(theirs_answer):.1f} ms"
    else:
        ours_answer, theirs_answer = f"{ours_answer} {pair.unit}", f"{theirs_answer} {pair.unit}"
    costs = [
        tuple(cost_of(asked.command, environment=environment).cpu_s for asked in (pair.ours, pair.theirs))
        for _ in range(runs)
    ]
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
        times = f"{row.ours_cpu_s:.2f} s, {row.theirs_cpu_s:.2f} s"
        answers = f"{row.ours_answer}, {row.theirs_answer}"
        lines.append(f"| {row.question} | {row.peer} | {times} | {row.ratio:.1f}x | {answers} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aiconfigurator", help="its command, in an environment of its own")
    parser.add_argument("--genz", help="the Python of an environment with genz-llm")
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
        scenario = Path(folder) / "scenario.jsonl"
        scenario.write_text(json.dumps(SCENARIO) + "\n", encoding="utf-8")
        asked = pairs(scenario=str(scenario), aiconfigurator=chosen.aiconfigurator, genz=chosen.genz)
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
