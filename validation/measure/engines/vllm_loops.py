"""``python -m validation.measure.engines.vllm_loops --models DIR --out DIR``: a real vLLM under load, on this machine.

For each model a ``vllm serve`` with random weights, then vLLM's own benchmark at each load, as anybody runs both; each
load is a file as ``vllm bench serve --save-result --save-detailed`` writes it, at once. A model is a folder with
config.json and tokenizer.json: a word a token (``--make-tokenizers`` writes it), since random weights speak no
language. Only vLLM has to be installed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEPT_LISTS = ("input_lens", "output_lens", "ttfts", "start_times")
"""What is kept of each request; gaps between tokens and texts are 50 times as much."""
SIGNIFICANT = 6
USAGE, IO = 2, 5
START_LIMIT_S = 400.0
"""A mixture of experts compiles for minutes where nothing is cached."""
WEIGHT_RANGE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One run. rate_per_s : at random, or None for as soon as one of ``clients`` is answered."""

    isl_tokens: int
    osl_tokens: int
    clients: int | None
    rate_per_s: float | None
    requests: int

    @classmethod
    def of(cls, word: str) -> Load:
        """``1024/256@c8x32``: 8 clients, 32 requests; ``1024/256@r4x60``: 4 requests/s.

        Raises
        ------
        ValueError
            The word has another form.
        """
        try:
            lengths, load = word.split("@")
            isl, osl = lengths.split("/")
            value, requests = load[1:].split("x")
            kind = {"c": "clients", "r": "rate_per_s"}[load[0]]
            if not all(number > 0 for number in (int(isl), int(osl), int(requests), float(value))):
                raise ValueError("nothing is asked")
            return cls(
                isl_tokens=int(isl),
                osl_tokens=int(osl),
                requests=int(requests),
                clients=int(value) if kind == "clients" else None,
                rate_per_s=float(value) if kind == "rate_per_s" else None,
            )
        except (ValueError, KeyError, IndexError) as error:
            raise ValueError(
                f"--load {word}: ISL/OSL@cCLIENTSxREQUESTS or @rRATExREQUESTS, as 1024/256@c8x32"
            ) from error

    @property
    def name(self) -> str:
        """``1024-256-c8`` or ``1024-256-r4``."""
        load = f"r{self.rate_per_s:g}" if self.rate_per_s else f"c{self.clients}"
        return f"{self.isl_tokens}-{self.osl_tokens}-{load}"

    def words(self, *, seed: int, range_ratio: float) -> list[str]:
        """Options of ``vllm bench serve``."""
        lengths = ["--random-input-len", f"{self.isl_tokens}", "--random-output-len", f"{self.osl_tokens}"]
        load = (
            ["--request-rate", f"{self.rate_per_s:g}"] if self.rate_per_s else ["--max-concurrency", f"{self.clients}"]
        )
        drawn = ["--seed", f"{seed}", "--random-range-ratio", f"{range_ratio:g}"]
        return [*lengths, *load, "--num-prompts", f"{self.requests}", *drawn]


def draw_weights(model: Any, *_: object, **__: object) -> None:
    """Random weights whose answers are as evenly spread as a real model's: scales and norms of 1, no biases.

    vLLM's own are so small that a router's bias alone would choose, and all tokens the same experts.
    """
    import torch

    with torch.no_grad():
        for name, values in model.state_dict().items():
            if values.device.type == "meta" or not values.numel():
                continue
            if values.dtype == torch.uint8:
                values.fill_(120) if "scale" in name else values.random_(0, 256)
            elif not torch.is_floating_point(values):
                continue
            elif name.endswith("bias") or "sinks" in name:
                values.zero_()
            elif "scale" in name or ("norm" in name and values.ndim == 1):
                values.copy_(torch.ones_like(values, dtype=torch.float16).to(values.dtype))
            elif torch.finfo(values.dtype).bits < 16:
                drawn = torch.empty_like(values, dtype=torch.float16).uniform_(-WEIGHT_RANGE, WEIGHT_RANGE)
                values.copy_(drawn.to(values.dtype))
            else:
                values.uniform_(-WEIGHT_RANGE, WEIGHT_RANGE)


def serve(words: Sequence[str]) -> None:
    """``vllm serve`` with those weights. Its engine is a fork of this process, which hands them on."""
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "fork")
    from vllm.entrypoints.cli.main import main as vllm_main
    from vllm.model_executor.model_loader import dummy_loader

    if not hasattr(dummy_loader, "initialize_dummy_weights"):
        raise RuntimeError("this vLLM draws its random weights elsewhere")
    dummy_loader.initialize_dummy_weights = draw_weights
    sys.argv = ["vllm", "serve", *words]
    vllm_main()


def make_tokenizer(folder: Path) -> None:
    """A word for each token, beside the folder's config.json."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    count = config.get("vocab_size") or config["text_config"]["vocab_size"]
    tokenizer = Tokenizer(models.WordLevel({f"t{number}": number for number in range(count)}, unk_token="t0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    words = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "t0", "bos_token": "t1", "eos_token": "t2"}
    (folder / "tokenizer_config.json").write_text(json.dumps(words), encoding="utf-8")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def running(folder: Path, *, port: int, options: Sequence[str], log: Path) -> Iterator[float]:
    """A server of the folder's model; gives the seconds that it took to start.

    Raises
    ------
    TimeoutError
        It ended, or did not answer within START_LIMIT_S; the log says why.
    """
    began_s = time.monotonic()
    command = [sys.executable, "-m", "validation.measure.engines.vllm_loops", "serve", str(folder)]
    words = [*command, "--load-format", "dummy", "--port", f"{port}", *options]
    with log.open("a", encoding="utf-8") as out:
        server = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            while not _answers(f"http://127.0.0.1:{port}/health"):
                if server.poll() is not None or time.monotonic() - began_s > START_LIMIT_S:
                    raise TimeoutError(f"{folder.name}: the server ended or did not answer; see {log}")
                time.sleep(0.5)
            yield time.monotonic() - began_s
        finally:
            for word in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(server.pid, word)
                    server.wait(10)


def _joules() -> float:
    """What the first accelerator has drawn since its driver started; NaN where it does not say."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(0)) * 1e-3)
    except pynvml.NVMLError:
        return float("nan")


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT}g}")
    return [_rounded(each) for each in value] if isinstance(value, list) else value


def measured(folder: Path, load: Load, *, port: int, seed: int, range_ratio: float) -> dict[str, object]:
    """One load by ``vllm bench serve``: its result, and the accelerator's joules."""
    from vllm.benchmarks.serve import add_cli_args, main_async
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    fixed = ["--backend", "openai", "--port", f"{port}", "--endpoint", "/v1/completions", "--model", str(folder)]
    drawn = ["--dataset-name", "random", "--ignore-eos", "--temperature", "1", "--disable-tqdm", "--save-detailed"]
    arguments = parser.parse_args([*fixed, *drawn, *load.words(seed=seed, range_ratio=range_ratio)])
    joules = _joules()
    result = asyncio.run(main_async(arguments))
    kept = {
        name: _rounded(value) for name, value in result.items() if not isinstance(value, list) or name in KEPT_LISTS
    }
    return {**kept, "model_id": folder.name, "joules": _joules() - joules, "random_range_ratio": range_ratio}


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m validation.measure.engines.vllm_loops", description=__doc__)
    parser.add_argument("--models", type=Path, required=True, metavar="DIR", help="one folder a model")
    parser.add_argument("--only", action="append", metavar="NAME", help="this model, in this order (default: all)")
    parser.add_argument("--make-tokenizers", action="store_true", help="write each model's tokenizer first")
    parser.add_argument("--load", action="append", required=True, metavar="ISL/OSL@cCLIENTSxREQUESTS")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a file a model and load")
    parser.add_argument("--log", type=Path, default=Path("vllm.log"), help="of the servers (default: vllm.log)")
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--budget-s", type=float, default=540.0, help="no load begins after (default: 540)")
    parser.add_argument("--range-ratio", type=float, default=0.2, help="lengths differ by this (default: 0.2)")
    parser.add_argument("--server", default="", metavar="OPTIONS", help="options of vllm serve, in one word")
    return parser.parse_args(words)


def _measure(folder: Path, loads: Sequence[Load], *, arguments: argparse.Namespace, until_s: float) -> None:
    """Every load that begins before ``until_s``, each into its file."""
    options = arguments.server.split()
    with running(folder, port=arguments.port, options=options, log=arguments.log) as started_s:
        print(f"{folder.name}: started in {started_s:.0f} s", file=sys.stderr, flush=True)
        for number, load in enumerate(loads):
            if time.monotonic() > until_s:
                return
            result = measured(folder, load, port=arguments.port, seed=number, range_ratio=arguments.range_ratio)
            text = json.dumps({**result, "server": arguments.server})
            (arguments.out / f"{folder.name}-{load.name}.json").write_text(text, encoding="utf-8")


def main(words: Sequence[str] | None = None) -> int:
    """Measure every load of every model within the budget; returns the exit code."""
    arguments = _arguments(words)
    until_s = time.monotonic() + arguments.budget_s
    try:
        loads = [Load.of(word) for word in arguments.load]
    except ValueError as error:
        print(error, file=sys.stderr)
        return USAGE
    names = arguments.only or sorted(path.parent.name for path in arguments.models.glob("*/config.json"))
    if not names:
        print(f"--models {arguments.models}: holds no folder with a config.json", file=sys.stderr)
        return IO
    arguments.out.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in names:
        if time.monotonic() > until_s:
            break
        folder = arguments.models / name
        try:
            if arguments.make_tokenizers:
                make_tokenizer(folder)
            _measure(folder, loads, arguments=arguments, until_s=until_s)
        except OSError as error:
            failed = True
            print(error, file=sys.stderr, flush=True)
    return IO if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2:])
    else:
        sys.exit(main())
