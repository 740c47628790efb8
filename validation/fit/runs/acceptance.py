"""Fit how often guesses of trained drafters are accepted, by position and kind of text.

``python -m validation.fit.runs.acceptance --data DIR [--write]``: EAGLE-3 from the accepted lengths that SpecForge
measured with 3, 5 and 7 steps of one guess; multi-token prediction from the time per token of every third closed loop
of InferenceX that runs it. A round takes the same time whatever it accepts, so that one prediction scores all rates;
the fit is the median of the rates of accelerators and engines, each scored under the median of the others. ``--write``
puts both into hardware_profiles/calibration/acceptance.yaml.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import mean, median, pstdev

import numpy as np
from numpy.typing import NDArray

from simulator.specs.base import Source
from simulator.specs.model.fitted import AcceptanceFit, MethodAcceptance
from simulator.specs.question.techniques import Task
from simulator.specs.writing import yaml_text
from simulator.techniques.speculation.acceptance import mean_tokens, rate_of_mean
from validation.end_to_end.measured.inferencex import TodayRun, load_inferencex
from validation.end_to_end.measured.runs import Row, read_rows
from validation.end_to_end.score import predict
from validation.end_to_end.today import thinned
from validation.fit.files import HEADING, calibration_directory
from validation.writing import write_whole

TABLE = Path("today") / "specforge_eagle3.csv"
TASKS: Mapping[str, Task] = {
    "mtbench": "chat",
    "humaneval": "code",
    "livecodebench": "code",
    "gsm8k": "math",
    "math500": "math",
    "gpqa": "science",
    "financeqa": "finance",
}
STEPS = (3, 5, 7)
EVERY = 3
TRIED = 0.7
"""Acceptance at which closed loops are predicted once."""
GRID = tuple(round(0.01 * step, 2) for step in range(40, 91))
TPOT = "tpot_p50_s"

Lengths = dict[int, list[float]]
Array = NDArray[np.float64]


def accepted_lengths(rows: Iterable[Row]) -> dict[Task, Lengths]:
    """Mean tokens of a verify step of chains, by kind of text and steps, one value a model and drafter."""
    found: dict[Task, Lengths] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        said = re.search(r"dataset=(\w+); draft=(.+?); num_steps=(\d+) topk=(\d+)", row["notes"])
        if said is None or row["metric"] != "accept_length" or said[4] != "1" or float(row["value"]) <= 1:
            continue
        found[TASKS[said[1]]][int(said[3])].append(float(row["value"]))
    return found


def rates_of(lengths: Sequence[float]) -> tuple[float, ...]:
    """Acceptance of each position from the mean tokens of chains of 3, 5 and 7: one rate up to each length."""
    first = rate_of_mean(lengths[0], k=STEPS[0])
    rates, reached = [first] * STEPS[0], first ** STEPS[0]
    for shorter, longer in pairwise(lengths):
        # Two more positions yield reached * (b + b^2) tokens.
        rate = min((np.sqrt(1 + 4 * (longer - shorter) / reached) - 1) / 2, 1.0)
        rates += [rate, rate]
        reached *= rate**2
    return tuple(round(float(rate), 3) for rate in rates)


def eagle3(rows: Iterable[Row]) -> MethodAcceptance:
    """EAGLE-3 by kind of text, and the mean of all kinds."""
    found = accepted_lengths(rows)
    means = {task: [mean(found[task][steps]) for steps in STEPS] for task in sorted(found)}
    return MethodAcceptance(
        rates=rates_of([mean(lengths[place] for lengths in means.values()) for place in range(len(STEPS))]),
        tasks={task: rates_of(lengths) for task, lengths in means.items()},
        log_sigma=round(pstdev(float(np.log(lengths[0])) for lengths in means.values()), 3),
    )


def measured_over_tried(items: Iterable[TodayRun]) -> dict[str, list[tuple[int, float]]]:
    """By accelerator and engine: guesses of a round, and measured over predicted time per token at TRIED."""
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for item in items:
        speculation = item.run.scenario["techniques"]["speculation"]
        tried = {"techniques": {"speculation": {**speculation, "acceptance": TRIED}}}
        run = replace(item.run, scenario={**item.run.scenario, **tried}, measured={TPOT: item.run.measured[TPOT]})
        predictions, _ = predict((run,))
        for one in predictions:
            key = f"{item.hardware} {item.engine}"
            found[key].append((int(speculation["k"]), one.measured / one.predicted))
    return found


def errors_at(rate: float, ratios: Sequence[tuple[int, float]]) -> Array:
    """Errors of time per token under another rate: a round yields other tokens in the same time."""
    return np.array([mean_tokens(np.full(k, TRIED)) / mean_tokens(np.full(k, rate)) / ratio - 1 for k, ratio in ratios])


def own_rate(ratios: Sequence[tuple[int, float]]) -> float:
    """The rate of GRID with the least mean error."""
    return min(GRID, key=lambda rate: float(np.mean(np.abs(errors_at(rate, ratios)))))


def mtp(items: Iterable[TodayRun]) -> tuple[MethodAcceptance, Source]:
    """Multi-token prediction: one rate for every position."""
    groups = measured_over_tried(items)
    own = {key: own_rate(ratios) for key, ratios in groups.items()}
    unseen = []
    for key, ratios in groups.items():
        others = median(rate for name, rate in own.items() if name != key)
        unseen.append(errors_at(others, ratios))
        bias, error = 100 * float(np.median(unseen[-1])), 100 * float(np.mean(np.abs(unseen[-1])))
        said = f"own {own[key]:.2f}, others' {others:.2f}, TPOT {bias:+.0f} / {error:.0f} %"
        print(f"{key:28s} {len(ratios):3d} runs: {said}")
    rate = round(median(own.values()), 2)
    tokens = [float(np.log(mean_tokens(np.full(3, value)))) for value in own.values()]
    error = 100 * float(np.mean(np.abs(np.concatenate(unseen))))
    count = sum(len(ratios) for ratios in groups.values())
    print(f"rate {rate:.2f}; leave one accelerator and engine out: TPOT {error:.1f} % over {count} runs")
    source = Source(
        source="InferenceX closed loops of DeepSeek-R1-0528 with multi-token prediction (database of 2026-07-20), "
        "every third run, TPOT; validation/fit/runs/acceptance.py",
        date=datetime.now(UTC).date().isoformat(),
        note=f"One number: the median of {len(own)} accelerators and engines. Leave one of them out: TPOT "
        f"{error:.1f} % over {count} runs, which holds the error of the steps too. Prompts are random tokens in a "
        "chat template; guesses of a round as the recipes set them.",
    )
    return MethodAcceptance(rates=(rate,), log_sigma=round(pstdev(tokens), 3)), source


def main() -> None:
    """Fit, score on what was left out, print and optionally write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds today/")
    parser.add_argument("--write", action="store_true", help="update the fit")
    arguments = parser.parse_args()
    date = datetime.now(UTC).date().isoformat()
    drafted = eagle3(read_rows(arguments.data / TABLE))
    for task, rates in (("all", drafted.rates), *drafted.tasks.items()):
        print(f"eagle3 {task:8s} {' '.join(f'{rate:.2f}' for rate in rates)}")
    speculating = [item for item in load_inferencex(arguments.data) if item.mode == "mtp"]
    predicted, source = mtp(thinned(speculating, every=EVERY))
    if not arguments.write:
        return
    lengths = Source(
        source="SpecForge docs/spec_bundle raw_data/data.json (commit a6b6b023, 2025-12-23): accept_length of chains "
        "with 3, 5 and 7 steps, Llama-3.1-8B, Qwen3-30B-A3B, Qwen3-235B-A22B, five drafters; "
        "validation/fit/runs/acceptance.py",
        date=date,
        note="chat mtbench; code humaneval and livecodebench; math gsm8k and math500; science gpqa; finance financeqa.",
    )
    fit = AcceptanceFit(
        date=date, methods={"mtp": predicted, "eagle3": drafted}, sources={"mtp": source, "eagle3": lengths}
    )
    write_whole(calibration_directory() / "acceptance.yaml", yaml_text(fit, heading=HEADING))


if __name__ == "__main__":
    main()
