"""``python -m validation.measure.whole.serving --rate 8 --out served.json``: continuous batching on this machine.

A loop as engines have one, on a decoder with random weights: requests arrive at random, or (``--in-flight``) each of a
number of clients sends its next one when its last is answered. Each request's times are kept in the file that
``vllm bench serve --save-result --save-detailed`` writes, so that what reads those reads this.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from validation.measure.anchors import preheat
from validation.measure.bench import bench_of
from validation.measure.table import check_target
from validation.measure.whole.decoder import LLAMA_8B, Architecture, decoder_of
from validation.measure.whole.loop import BATCHES, Loop, Request, serve

USAGE, IO = 2, 5
LOWEST_LENGTH_SHARE = 0.8
"""Lengths are uniform between this share of the nominal ones and the nominal ones, as InferenceX draws them."""


def drawn_requests(count: int, *, isl_tokens: int, osl_tokens: int, rate_per_s: float, seed: int) -> list[Request]:
    """Requests of a Poisson stream; all at once at an infinite rate."""
    draw = random.Random(seed)
    at_s, found = 0.0, []
    for _ in range(count):
        at_s += draw.expovariate(1.0) / rate_per_s
        isl, osl = (round(draw.uniform(LOWEST_LENGTH_SHARE, 1.0) * length) for length in (isl_tokens, osl_tokens))
        found.append(Request(isl_tokens=max(1, isl), osl_tokens=max(1, osl), arrival_s=at_s))
    return found


def _statistics(name: str, values_s: Sequence[float]) -> dict[str, float]:
    milliseconds = 1e3 * np.asarray(values_s)
    return {
        f"mean_{name}_ms": float(milliseconds.mean()),
        f"median_{name}_ms": float(np.median(milliseconds)),
        f"std_{name}_ms": float(milliseconds.std()),
        f"p99_{name}_ms": float(np.quantile(milliseconds, 0.99)),
    }


def result_of(
    requests: Sequence[Request], *, model: str, rate_per_s: float, in_flight: int | None = None
) -> dict[str, object]:
    """What ``vllm bench serve --save-result --save-detailed`` would have written of these requests."""
    duration_s = max(request.token_s[-1] for request in requests)
    ttfts = [request.token_s[0] - request.arrival_s for request in requests]
    itls = [np.diff(request.token_s).tolist() for request in requests]
    tpots = [
        (request.token_s[-1] - request.token_s[0]) / (request.osl_tokens - 1)
        for request in requests
        if request.osl_tokens > 1
    ]
    read, written = (sum(getattr(request, name) for request in requests) for name in ("isl_tokens", "osl_tokens"))
    return {
        "date": datetime.now(UTC).strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": "loop",
        "backend": "torch",
        "model_id": model,
        "num_prompts": len(requests),
        "request_rate": rate_per_s if math.isfinite(rate_per_s) else "inf",
        "burstiness": 1.0,
        "max_concurrency": in_flight,
        "duration": duration_s,
        "completed": len(requests),
        "failed": 0,
        "total_input_tokens": read,
        "total_output_tokens": written,
        "request_throughput": len(requests) / duration_s,
        "output_throughput": written / duration_s,
        "total_token_throughput": (read + written) / duration_s,
        **_statistics("ttft", ttfts),
        **_statistics("tpot", tpots),
        **_statistics("itl", [gap for gaps in itls for gap in gaps]),
        "start_times": [request.arrival_s for request in requests],
        "input_lens": [request.isl_tokens for request in requests],
        "output_lens": [request.osl_tokens for request in requests],
        "ttfts": ttfts,
        "itls": itls,
        "errors": [""] * len(requests),
    }


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m validation.measure.whole.serving", description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (default: cuda)")
    load = parser.add_mutually_exclusive_group(required=True)
    load.add_argument("--rate", type=float, action="append", help="requests/s at random; may be given again")
    load.add_argument("--in-flight", type=int, action="append", help="clients of a closed loop; may be given again")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE.json", help="{load} in it is the rate or clients"
    )
    parser.add_argument("--requests", type=int, default=150, help="of each load (default: 150)")
    parser.add_argument("--rounds", type=int, help="requests of each client of a closed loop, in place of --requests")
    parser.add_argument("--isl-tokens", type=int, default=1024)
    parser.add_argument("--osl-tokens", type=int, default=128)
    parser.add_argument("--slots", type=int, default=64, help="requests that run at once (default: 64)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--force", action="store_true", help="overwrite files")
    return parser.parse_args(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One run: requests/s at random, or clients that wait for their answers; and where its result goes."""

    requests: int
    path: Path
    rate_per_s: float = math.inf
    in_flight: int | None = None


def _loads(arguments: argparse.Namespace) -> list[Load]:
    """A run and a file for each load; refuses, before any time is spent, what cannot run or would overwrite a result.

    Raises
    ------
    ValueError
        Two loads have one file, or more clients than slots are asked for.
    OSError
        A file exists, or its folder does not.
    """
    values = arguments.rate or arguments.in_flight
    paths = [Path(str(arguments.out).replace("{load}", f"{value:g}")) for value in values]
    if len(set(paths)) < len(values):
        raise ValueError(f"--out {arguments.out}: one file for {len(values)} loads; put {{load}} into its name")
    if min(values) <= 0:
        raise ValueError(f"{min(values):g} as a load: must be positive")
    for path in paths:
        check_target(path, force=arguments.force)
    if arguments.rate:
        return [
            Load(requests=arguments.requests, path=path, rate_per_s=rate)
            for rate, path in zip(values, paths, strict=True)
        ]
    if max(values) > arguments.slots:
        raise ValueError(f"--in-flight {max(values)}: more than --slots {arguments.slots}")
    return [
        Load(
            requests=arguments.rounds * clients if arguments.rounds else arguments.requests,
            path=path,
            in_flight=clients,
        )
        for clients, path in zip(values, paths, strict=True)
    ]


def _run(loop: Loop, load: Load, arguments: argparse.Namespace) -> None:
    """Serve one load, write its file, and say how it went."""
    requests = drawn_requests(
        load.requests,
        isl_tokens=arguments.isl_tokens,
        osl_tokens=arguments.osl_tokens,
        rate_per_s=load.rate_per_s,
        seed=arguments.seed,
    )
    serve(loop, requests, in_flight=load.in_flight)
    name = loop.decoder.architecture.name
    result = result_of(requests, model=name, rate_per_s=load.rate_per_s, in_flight=load.in_flight)
    load.path.write_text(json.dumps(result), encoding="utf-8")
    print(
        f"{load.path}: {result['duration']:.1f} s, TTFT {result['mean_ttft_ms']:.1f} ms, "
        f"TPOT {result['mean_tpot_ms']:.2f} ms",
        file=sys.stderr,
        flush=True,
    )


def main(words: Sequence[str] | None = None, *, architecture: Architecture = LLAMA_8B) -> int:
    """Serve each load and write its file; returns the exit code."""
    arguments = _arguments(words)
    try:
        loads = _loads(arguments)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return USAGE if isinstance(error, ValueError) else IO
    bench = bench_of(arguments.device)
    torch.manual_seed(arguments.seed)
    with torch.inference_mode():
        decoder = decoder_of(
            architecture,
            bench=bench,
            weights="bf16",
            layers=architecture.num_hidden_layers,
            ends=True,
            tokens=arguments.isl_tokens,
        )
        longest = arguments.isl_tokens + arguments.osl_tokens
        loop = Loop(decoder, bench=bench, slots=arguments.slots, tokens=longest)
        # What is loaded and chosen at the first call is no part of a server's day.
        warm_up = drawn_requests(len(BATCHES), isl_tokens=arguments.isl_tokens, osl_tokens=2, rate_per_s=1e6, seed=1)
        serve(loop, warm_up)
        preheat(bench)
        for load in loads:
            _run(loop, load, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
