"""Objectives as options of their own: ``--ttft-p95 2s`` for every metric and percentile."""

from __future__ import annotations

import re
from collections.abc import Sequence

from simulator.errors import RoofcastError, did_you_mean

METRICS = ("ttft", "tpot", "e2e", "latency")
_PERCENTILE_FLAG = re.compile(r"--([a-z0-9]+)-p([0-9]+(?:\.[0-9]+)?)(?:=(.*))?")


def spell_objectives(words: Sequence[str]) -> list[str]:
    """Rewrite ``--ttft-p95 2s`` as ``--objective ttft-p95=2s``, so that every percentile is allowed.

    Raises
    ------
    RoofcastError
        The metric is unknown, or the time is missing.
    """
    spelled: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        bare = word.removeprefix("--").partition("=")[0]
        if word.startswith("--") and bare in METRICS:
            raise RoofcastError(f"unknown option --{bare}", code="usage", hint=f"did you mean --{bare}-p95?")
        match = _PERCENTILE_FLAG.fullmatch(word)
        if match is None:
            spelled.append(word)
            continue
        if match[1] not in METRICS:
            known = [f"--{metric}-p{match[2]}" for metric in METRICS]
            raise RoofcastError(f"unknown option {word}", code="usage", hint=did_you_mean(word, known))
        if match[3] is None and not rest:
            raise RoofcastError("a time such as 2s or 500ms is needed", field=word, code="usage")
        value = rest.pop(0) if match[3] is None else match[3]
        spelled += ["--objective", f"{match[1]}-p{match[2]}={value}"]
    return spelled
