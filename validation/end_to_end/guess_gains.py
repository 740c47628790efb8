"""What multi-token prediction gains by concurrency, and from which on it no longer pays: rows with it over others.

``python -m validation.end_to_end --data DIR --today --mode mtp --gains``: a run joins where the table has the same
deployment, lengths and concurrency without guesses. Both rows pool engine releases of ten months, those with guesses
the later ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from simulator.units import percent_text
from validation.end_to_end.measured.inferencex import TodayRun
from validation.end_to_end.score import predict

TPOT = "tpot_p50_s"
NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Concurrencies of the table's columns."""

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuessGain:
    """Time per token without guesses over that with them, at one concurrency."""

    deployment: Key
    concurrency: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Signed relative error of the predicted gain."""
        return self.predicted / self.measured - 1


def _deployment(item: TodayRun) -> Key:
    """What a run shares with its counterpart but for the concurrency."""
    asked = item.run.scenario
    degrees = [f"{name[:2].upper()}{asked[name]}" for name in ("tp_size", "ep_size", "dp_size") if name in asked]
    lengths = f"{asked['isl_tokens']} / {asked['osl_tokens']}"
    return item.hardware, item.engine, item.weights, " ".join(degrees), lengths


def guess_gains(items: Iterable[TodayRun]) -> list[GuessGain]:
    """Measured and predicted gains of all runs with guesses that have a counterpart without."""
    sides: dict[str, dict[tuple[Key, int], TodayRun]] = {"aggregated": {}, "mtp": {}}
    for item in items:
        if item.mode in sides and TPOT in item.run.measured:
            sides[item.mode].setdefault((_deployment(item), int(item.run.scenario["concurrency"])), item)
    found = []
    for key in sorted(sides["mtp"].keys() & sides["aggregated"].keys()):
        pair = (sides["aggregated"][key].run, sides["mtp"][key].run)
        predictions = [one for one in predict(pair)[0] if one.metric == TPOT]
        if len(predictions) == len(pair):
            plain, guessed = predictions
            found.append(
                GuessGain(
                    deployment=key[0],
                    concurrency=key[1],
                    measured=plain.measured / guessed.measured,
                    predicted=plain.predicted / guessed.predicted,
                )
            )
    return found


def break_even(gains: Mapping[int, float]) -> float | None:
    """The concurrency at which a gain falls to 1, between two measured ones on a logarithmic scale; None where it stays
    above."""
    for lower, upper in pairwise(sorted(gains)):
        if gains[lower] >= 1.0 > gains[upper]:
            share = (gains[lower] - 1.0) / (gains[lower] - gains[upper])
            return float(lower * (upper / lower) ** share)
    return None


def _crossing(gains: Mapping[int, float]) -> str:
    found = break_even(gains)
    if found is not None:
        return f"{found:.0f}"
    return f"> {max(gains)}" if gains[max(gains)] >= 1.0 else f"< {min(gains)}"


def gains_table(gains: Sequence[GuessGain]) -> str:
    """Measured / predicted gain of each deployment by concurrency, where it breaks even, and the errors of all."""
    columns = [node for node in NODES if any(gain.concurrency == node for gain in gains)]
    titles = ("accelerator", "engine", "weights", "layout", "in / out", *map(str, columns), "break-even")
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    rows: dict[Key, dict[int, GuessGain]] = {}
    for gain in gains:
        rows.setdefault(gain.deployment, {})[gain.concurrency] = gain
    for deployment, found in rows.items():
        at = [found.get(node) for node in columns]
        cells = ["" if one is None else f"{one.measured:.2f} / {one.predicted:.2f}" for one in at]
        measured = _crossing({many: one.measured for many, one in found.items()})
        predicted = _crossing({many: one.predicted for many, one in found.items()})
        lines.append("| " + " | ".join((*deployment, *cells, f"{measured} / {predicted}")) + " |")
    errors = np.array([gain.error for gain in gains])
    middle, mean = float(np.median(errors)), float(np.abs(errors).mean())
    said = f"median {percent_text(middle)}, mean absolute {percent_text(mean)}"
    return "\n".join(lines) + f"\n\n{len(gains)} gains, measured / predicted: {said}\n"
