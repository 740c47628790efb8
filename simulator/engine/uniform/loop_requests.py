"""What the clients of a closed loop send: how long prompts and answers are, how many, and from when on.

Benchmark tools draw lengths uniformly between a share of the nominal ones and the nominal ones, so that requests which
started together drift apart and a new prompt meets a running batch; identical lengths keep whole waves together. How
long the last ones of few clients run alone hangs on the very lengths, so they are drawn as vLLM's client draws them.
"""

from __future__ import annotations

from math import inf
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from simulator.errors import RoofcastError
from simulator.records import dataclass
from simulator.specs.question.scenario import ScenarioSpec
from simulator.traffic.lengths import LengthDistribution

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

MAX_REQUESTS = 500_000
"""Of a loop, every answer to a prompt counted: more would only take longer to draw and to simulate."""

CLIENT_SEEDS = int(np.iinfo(np.uint32).max) + 1
"""How many seeds numpy's legacy generator tells apart; larger ones of a scenario begin again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLengths:
    """How long the requests of a loop are.

    isl_tokens, osl_tokens : nominal lengths; osl counts the first token
    range_ratio : lengths are uniform between that share of the nominal ones and the nominal ones, 1 for equal lengths
    isl_cv, osl_cv : in place of the range, coefficients of variation of log-normal lengths around the nominal ones
    seed : of the lengths within a range, as the client of vLLM's benchmarks takes it, or of the order of log-normal
        ones; context_tokens : log-normal lengths end there
    answers : to each prompt, one after the other in the order of requests; every answer counts as a request
    isl_given, osl_given : lengths of the requests in their order, in place of drawn ones; more requests begin again
    """

    isl_tokens: int
    osl_tokens: int
    range_ratio: float = 1.0
    isl_cv: float = 0.0
    osl_cv: float = 0.0
    seed: int = 0
    context_tokens: float = inf
    answers: int = 1
    isl_given: tuple[int, ...] = ()
    osl_given: tuple[int, ...] = ()

    @property
    def mean_isl_tokens(self) -> int:
        """Mean prompt length, whole [tokens]."""
        return max(1, round(_mean(self.isl_given) or self.isl_tokens * self._mean_share))

    @property
    def mean_osl_tokens(self) -> int:
        """Mean answer length, whole [tokens]."""
        return max(1, round(_mean(self.osl_given) or self.osl_tokens * self._mean_share))

    def longest_tokens(self, *, prompts_only: bool = False) -> int:
        """Tokens of the longest request of a file, of nominal lengths otherwise; prompts_only : and one generated."""
        if not self.isl_given:
            return self.isl_tokens + (1 if prompts_only else self.osl_tokens)
        if prompts_only:
            return max(self.isl_given) + 1
        return max(map(sum, zip(self.isl_given, self.osl_given, strict=True)))

    @property
    def _mean_share(self) -> float:
        return 1.0 if self.isl_cv or self.osl_cv else (1 + self.range_ratio) / 2

    def drawn(self, requests: int) -> tuple[Counts, Counts]:
        """Prompt and answer lengths of ``requests`` requests [tokens].

        Within a range they are the client's own: numpy's legacy generator, all prompts before all answers. Log-normal
        ones are spread evenly over their distribution and come in a random order, so that a run of a few hundred
        requests has the mean lengths of an endless one.

        Raises RoofcastError: more than ``MAX_REQUESTS``.
        """
        if requests > MAX_REQUESTS:
            raise RoofcastError(
                f"{requests:,} requests; allowed: up to {MAX_REQUESTS:,}",
                field="num_requests",
                hint="requests of one kind repeat themselves: fewer give the same rate",
            )
        prompts = -(-requests // self.answers)
        if self.isl_given:
            isl, osl = np.resize(self.isl_given, prompts), np.resize(self.osl_given, requests)
        elif self.isl_cv or self.osl_cv:
            rng = np.random.default_rng(self.seed)
            isl = self._varied(self.isl_tokens, cv=self.isl_cv, beside=self.osl_tokens, order=rng.permutation(prompts))
            osl = self._varied(self.osl_tokens, cv=self.osl_cv, beside=self.isl_tokens, order=rng.permutation(requests))
        else:
            client = np.random.RandomState(self.seed % CLIENT_SEEDS)
            isl, osl = (
                client.randint(max(1, int(nominal * self.range_ratio)), nominal + 1, size=many).astype(np.int64)
                for nominal, many in ((self.isl_tokens, prompts), (self.osl_tokens, requests))
            )
        return np.repeat(isl, self.answers)[:requests], osl

    def cached(self, isl_tokens: Counts, *, block_size_tokens: int) -> Counts:
        """Tokens of each prompt that are there already: all full blocks for every answer but the first [tokens]."""
        blocks = (isl_tokens - 1) // block_size_tokens * block_size_tokens
        return np.where(np.arange(len(isl_tokens)) % self.answers == 0, 0, blocks)

    def _varied(self, nominal: int, *, cv: float, beside: int, order: Counts) -> Counts:
        inverse = NormalDist().inv_cdf
        normal = np.array([inverse((place + 0.5) / len(order)) for place in order.tolist()])
        lengths = LengthDistribution(mean_tokens=nominal, cv=cv).within(self.context_tokens - beside).at(normal)
        return np.maximum(np.rint(lengths), 1).astype(np.int64)


def _mean(lengths: tuple[int, ...]) -> float:
    return sum(lengths) / max(1, len(lengths))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDemand:
    """Requests in the order in which they are sent, ``at_once`` of them at the start, each later one upon an answer.

    isl_tokens, osl_tokens : of each request; cached_tokens : of its prompt, those that an earlier answer left
    answers : to each prompt, which go out together, the next ones when the last of them is there
    delay_s, prompt_token_delay_s : from sending a request to its place in the queue, fixed and per prompt token [s]
    ramp_s : over which the first ones are sent, evenly [s]
    """

    isl_tokens: Counts
    osl_tokens: Counts
    at_once: int
    answers: int = 1
    cached_tokens: Counts | None = None
    delay_s: float = 0.0
    prompt_token_delay_s: float = 0.0
    ramp_s: float = 0.0

    @property
    def computed_tokens(self) -> Counts:
        """Prompt tokens of each request that an engine computes."""
        return self.isl_tokens if self.cached_tokens is None else self.isl_tokens - self.cached_tokens

    @property
    def requests(self) -> int:
        """How many there are."""
        return len(self.isl_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRecords:
    """Times of every request [s]: sent, first token, last token; steps : of all engines."""

    sent_s: Array
    first_token_s: Array
    finish_s: Array
    steps: int


def longest_of(scenario: ScenarioSpec) -> tuple[int, int]:
    """The longest prompt and the longest request, of nominal lengths or of a file [tokens]; 0 where a workload says.

    Raises FileError: the file of lengths cannot be read.
    """
    if scenario.lengths_trace is None:
        prompt = scenario.isl_tokens or 0
        return prompt, prompt and prompt + (scenario.osl_tokens or 0)
    from simulator.traffic.recorded.traces import read_trace

    trace = read_trace(scenario.lengths_trace, field="lengths_trace")
    return int(trace.isl_tokens.max()), int((trace.isl_tokens + trace.osl_tokens).max())
