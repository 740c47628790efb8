"""What was fitted to measured runs of a serving engine: overheads and spreads, by release and vendor."""

from math import hypot
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from simulator.specs.base import LogSpread, Source, Spec
from simulator.specs.engine.releases import came_before
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.units import SECONDS_PER_HOUR

Overhead = Annotated[float, Field(ge=0, le=SECONDS_PER_HOUR)]
"""A time that software adds [s]."""


class EngineOverheads(Spec):
    """Global host-side costs of one engine; one handful for all models.

    step_s : host time per step that the GPU does not hide [s]
    step_per_sequence_s : the same per running sequence [s]
    step_per_prompt_s : the same per prompt, or part of one, that a step takes in: whoever decodes waits for it too [s]
    sampled_logit_s : time of a step per logit of a token that is drawn from a nucleus, which takes a sort of the
        vocabulary, while the rows of a step are sorted one after the other [s]
    sampled_bytes_per_logit : traffic per logit where they are sorted together
    request_s : from a request's arrival to its entry into the scheduler's queue, plus first-token return, for which
        nobody else waits [s]
    prompt_token_s : tokenisation and similar per prompt token, of longer ones per token of `host_tokens` [s]
    eager_launch_s : host time to issue one kernel in eager execution [s]
    collective_lag_s : mean lag of a host that issues a collective; its devices wait for the slowest of them [s]
    reserve_bytes : memory of the runtime outside the tensors, per device
    collective_reserve_bytes : communication buffers, per device of a replica with several
    sampler_bytes_per_logit : temporaries of sampling per logit (float copies, sort keys and indices)
    speculation_chain_s, speculation_tree_s : host time of a round of speculation around its forward passes: compare and
        cut a chain of guesses; build a tree with its mask, walk it, compact the cache [s]
    speculation_sequence_s : the same per sequence that guesses [s]
    vector_elements_per_clock : numbers of the cache that the vector units of a compute unit take in per clock, where
        decode attention has no matrix kernel
    launch_gap_s : device time between a kernel of a step and the next, beyond what kernels cost back to back in a
        benchmark's loop [s]
    tuned_share : share of the rate of tuned kernels that products and experts reach in the engine, with the kernels
        that it finds for shapes which nobody tuned
    host_speed : speed of one thread of the hosts on which these times were taken; that of an H100 server is 1
    """

    step_s: Overhead
    step_per_sequence_s: Overhead
    step_per_prompt_s: Overhead = 0.0
    sampled_logit_s: Overhead = 0.0
    sampled_bytes_per_logit: NonNegativeFloat = 0.0
    request_s: Overhead
    prompt_token_s: Overhead
    eager_launch_s: Overhead
    collective_lag_s: Overhead = 0.0
    reserve_bytes: NonNegativeFloat
    collective_reserve_bytes: NonNegativeFloat
    sampler_bytes_per_logit: NonNegativeFloat
    speculation_chain_s: Overhead = 0.0
    speculation_tree_s: Overhead = 0.0
    speculation_sequence_s: Overhead = 0.0
    vector_elements_per_clock: NonNegativeFloat = 0.0
    launch_gap_s: Overhead = 0.0
    tuned_share: float = Field(default=1.0, gt=0, le=1)
    host_speed: PositiveFloat = 1.0

    def on_host(self, host_speed: float) -> Self:
        """These overheads on a host whose threads run at ``host_speed``: its times are inverse to it."""
        if host_speed == self.host_speed:
            return self
        slower = self.host_speed / host_speed
        times = {name: getattr(self, name) * slower for name in type(self).model_fields if name in HOST_TIMES}
        return self.model_copy(update={**times, "host_speed": host_speed})


DEVICE_TIMES = ("launch_gap_s", "sampled_logit_s")
HOST_TIMES = tuple(name for name in EngineOverheads.model_fields if name.endswith("_s") and name not in DEVICE_TIMES)
"""Overheads that a faster host shortens."""


LONGEST_FITTED_PROMPT_TOKENS = 1034
"""Of the serving runs that gave ``prompt_token_s`` its value."""
BEYOND_FITTED = 0.5
"""Of ``prompt_token_s`` that a token beyond them takes: 5.7 us, halfway (in log) between a tokenizer's 2.2 to 3.5 us a
token of random text (tokenizers 0.23 with Mistral's vocabulary of 131,072, 500 to 30,000 tokens, one thread,
2026-11-27) and the fitted 11.6, whose rest is mostly of a request: first tokens of vLLM 0.25.1 on an H200 take some
20 ms beyond their kernels at 1,052 tokens, 10 at 2,726, none at 8,469; closed loops at 8k imply 6.5 us a token."""
PROMPT_TOKEN_SPREAD = 0.5
"""Of the time beyond them, as a share: an 80 % interval around 5.7 us alone is 3.0 to 10.8, nearly from end to end."""


def host_tokens(prompt_tokens: ArrayLike) -> NDArray[np.float64]:
    """Tokens of a prompt, or of each of several, of which a host takes ``prompt_token_s``: those of longer prompts than
    any that it was fitted to count as BEYOND_FITTED of one."""
    tokens = np.asarray(prompt_tokens, dtype=np.float64)
    counted: NDArray[np.float64] = tokens - (1 - BEYOND_FITTED) * np.maximum(tokens - LONGEST_FITTED_PROMPT_TOKENS, 0.0)
    return counted


def class_on(model_class: str, architecture: str) -> str:
    """How ``EngineSpread.loops_of`` names a class on an architecture; the parts of one generation are one."""
    return f"{model_class} on {architecture.removesuffix('-ultra')}"


class EngineSpread(Spec):
    """Spread of log(measured / predicted) of whole requests beyond that of the kernels, from end-to-end errors.

    ttft_tail : the same of the slowest first tokens (p99), upwards only: a busy host delays requests now and then, and
        never makes one early
    loops : of time per token and throughput of closed loops on others' machines, releases and recipes, in place of
        ``tpot`` and ``e2e``; None where none were measured
    loops_of : the same by class of the model (`ModelSpec.model_class`), where runs of that class were measured, and by
        class and architecture (``dense on hopper``), as releases and kernels err alike on one
    pools : the same of closed loops over a prefill and a decode pool
    steps : share of the spread of calibrated step times that is left in whole runs, because the overheads were fitted
        on whole runs and take up part of what the kernels' errors have in common
    """

    ttft: LogSpread
    tpot: LogSpread
    e2e: LogSpread
    ttft_tail: LogSpread = 0.0
    loops: LogSpread | None = None
    loops_of: dict[str, LogSpread] = Field(default_factory=dict)
    pools: LogSpread | None = None
    steps: float = Field(default=1.0, gt=0, le=1)

    def of_loop(self, model_class: str, *, architecture: str, pools: bool) -> Self:
        """The spread of a closed loop of a model of this class, over two pools or not."""
        of_class = self.loops_of.get(model_class, self.loops)
        own = self.loops_of.get(class_on(model_class, architecture), of_class)
        found = own if not pools or self.pools is None else self.pools
        return self if found is None else self.model_copy(update={"tpot": found, "e2e": found})

    def of_prompts(self, isl_tokens: float, *, prompt_token_s: float, ttft_s: float) -> Self:
        """The spread of first tokens of prompts that may be longer than any whose host time was fitted."""
        beyond_s = prompt_token_s * BEYOND_FITTED * max(isl_tokens - LONGEST_FITTED_PROMPT_TOKENS, 0.0)
        if beyond_s == 0:
            return self
        return self.model_copy(update={"ttft": hypot(self.ttft, PROMPT_TOKEN_SPREAD * beyond_s / ttft_s)})


class EngineFit(Spec):
    """What was fitted to measured runs of one release of an engine.

    whole_runs : kinds of operator rows in the steps of those runs, by architecture
    """

    overheads: EngineOverheads
    spread: EngineSpread
    sources: dict[str, Source]
    whole_runs: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class VendorFit(EngineFit):
    """Fits on accelerators of one vendor; ``releases`` as of `EngineFits`."""

    releases: dict[str, EngineFit] = Field(default_factory=dict)

    def until(self, version: str) -> str | None:
        """The release that ended the fit which ``version`` has; None for the last."""
        return next((before for before in self.releases if came_before(version, before)), None)

    def at(self, version: str) -> EngineFit:
        """The fit of the release that ``version`` belongs to."""
        return self.releases.get(self.until(version) or "", self)


class EngineFits(EngineFit):
    """An engine's fits (YAML under hardware_profiles/calibration/engines/), written by validation/fit.

    cache_logged_on : accelerators on which the memory plan was compared with the engine's own logs
    releases : those of earlier releases, by the version that ended them
    vendors : those on the accelerators of a vendor whose kernels the engine takes from elsewhere
    """

    engine: str
    date: str
    cache_logged_on: tuple[str, ...] = ()
    releases: dict[str, EngineFit] = Field(default_factory=dict)
    vendors: dict[str, VendorFit] = Field(default_factory=dict)


class SparseDecode(Spec):
    """Small kernels around the choice of keys in a layer of sparse latent attention, alike on all of ``architectures``.

    layer_s : of a decode step, sequence_s : of each of its sequences [s]
    """

    architectures: tuple[str, ...]
    layer_s: Overhead
    sequence_s: Overhead


class HostProducts(Spec):
    """Products of few rows whose weights are in the host's memory run on its processor.

    rows_below : more have the weights copied to the device; memory_bytes_per_s : of one socket, by the form of the
        device or the link that its generation brings; what names neither shares the device's memory [bytes/s]
    """

    rows_below: PositiveInt
    memory_bytes_per_s: dict[str, PositiveFloat]

    def reads_bytes_per_s(self, hardware: AcceleratorSpec) -> float:
        """The rate at which the host of ``hardware`` reads weights [bytes/s]."""
        rates, link = self.memory_bytes_per_s, hardware.host_link.kind.split("-x")[0]
        return rates.get(hardware.form_factor, rates.get(link, hardware.memory_bytes_per_s))
