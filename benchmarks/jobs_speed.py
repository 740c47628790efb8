"""What a second process saves on a thousand mixed lines: ``simulate --jobs 1`` and ``--jobs 2`` in turn, wall time.

Run on idle cores, of which two are needed, with ``python -m benchmarks.jobs_speed [--runs 3] [--lines 1000]``. Whole
processes run A B A B, and the ratio is the median over the pairs. Both must write the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.plan_speed import cost_of

SIMULATE = (sys.executable, "-m", "simulator.cli.roofcast", "simulate")
MODELS = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "qwen3-30b-a3b", "gpt-oss-20b")
GPUS = ("h100", "h200", "b200", "mi300x")
BAR = 1.7


def mixed_line(number: int) -> dict[str, object]:
    """One scenario: models and accelerators in turn, every kind, light and heavy lengths."""
    model, gpu = MODELS[number % len(MODELS)], GPUS[number // len(MODELS) % len(GPUS)]
    isl, osl = 512 + 128 * (number % 13), 64 + 32 * (number % 5)
    at_once = 1 + 4 * (number % 9)
    kinds: tuple[dict[str, object], ...] = (
        {"kind": "batch", "batch_size": at_once, "isl_tokens": isl, "osl_tokens": osl},
        {"kind": "closed_loop", "concurrency": at_once, "isl_tokens": isl, "osl_tokens": osl},
        {"kind": "offline", "num_requests": 200, "isl_tokens": isl, "osl_tokens": osl},
        {
            "kind": "serve",
            "workload": {
                "stages": [{"rate_per_s": 1 + number % 3, "duration_s": 30}],
                "isl_tokens": isl,
                "osl_tokens": osl,
            },
        },
    )
    return {"id": str(number), "model": model, "hardware": gpu, "tp_size": 4, **kinds[number % len(kinds)]}


def main() -> None:
    """Print the wall times of both and how many times as long one process takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--lines", type=int, default=1000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines, environment = Path(folder) / "lines.jsonl", {**os.environ, "ROOFCAST_CACHE": "off"}
        lines.write_text("".join(json.dumps(mixed_line(number)) + "\n" for number in range(chosen.lines)))
        subprocess.run((*SIMULATE[:-1], "warm-up"), check=True, stdout=subprocess.DEVNULL)
        out = {jobs: Path(folder) / f"{jobs}.jsonl" for jobs in (1, 2)}
        commands = [(*SIMULATE, str(lines), "--jobs", str(jobs), "--output", str(file)) for jobs, file in out.items()]
        walls_s = []
        for _ in range(chosen.runs):
            walls_s.append([cost_of((*command, "--force"), environment=environment).wall_s for command in commands])
            assert out[1].read_bytes() == out[2].read_bytes()
    one_s, two_s = (statistics.median(walls) for walls in zip(*walls_s, strict=True))
    ratio = statistics.median(one / two for one, two in walls_s)
    print(f"{chosen.lines:,} lines: {one_s:.1f} s, {two_s:.1f} s by two processes, {ratio:.2f} x (bar {BAR})")


if __name__ == "__main__":
    main()
