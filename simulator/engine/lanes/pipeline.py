"""Pipeline stages: what the prompts of some steps cost the sequences of all others.

As many steps are under way as there are stages, each with sequences of its own. One that carries prompts holds every
stage for longer: those behind it wait, and until it has passed all stages nobody can join a new step, so that whoever
arrives meanwhile is in the next one. Steps that are longer than others are joined by more sequences, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

from simulator.records import dataclass
from simulator.traffic.lengths import Array, RequestMix

_RUNS, _ROUNDS, _FIRST = 16, 48, 24
"""Runs side by side, rounds of each, and those before anything is counted."""
_MEMORY = 1 / 16
"""What the last round counts in the usual one, and in the sequences of a step."""
_TINY = float(np.finfo(np.float64).tiny)
_SELDOM = 1 / (_RUNS * _ROUNDS)
"""Arrivals a step that so few draws tell nothing of."""
_OF_BATCHES = ("sequences", "times_s", "times_rise_s", "tokens", "bases_s", "rises_s")
"""Fields of ``PipelineRounds`` whose last axis are its batches."""


@lru_cache(maxsize=16)
def _draws(steps: int) -> tuple[Array, Array]:
    """Exponential and standard normal deviates, evenly spread, in random order [steps, _RUNS, 1]."""
    order = np.random.default_rng(0)
    even = (np.arange(steps * _RUNS) + 1 / 2) / (steps * _RUNS)
    normal = np.array([NormalDist().inv_cdf(float(value)) for value in even])
    mixed, deviates = (order.permutation(each).reshape(steps, _RUNS, 1) for each in (even, normal))
    return -np.log1p(-mixed), deviates


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRounds:
    """Steps of a pipeline at several batches; times are a step's through all stages, and of one stage for it [s].

    sequences : that decode in ``stages`` steps; times_s : at shares of them, from none to all [2, shares, batches], and
    ``times_rise_s`` from each to the next; tokens : of a step's prompts, from none to as many as it takes [points,
    batches]; bases_s, rises_s : what prompts add up to each point but the last, and each token from there, or take of a
    step of their own where they are ``apart`` [2, points - 1, batches]
    """

    mix: RequestMix
    stages: int
    sequences: Array
    times_s: Array
    times_rise_s: Array
    tokens: Array
    bases_s: Array
    rises_s: Array
    apart: bool

    def delay_s(self) -> Array:
        """What a prompt adds to the time between two steps of every sequence, from going through rounds [s].

        A step leaves the last stage as long after it began as it takes alone, or after the one before it as long as a
        stage takes for it, whichever is later. What came since the one before left goes into it, as far as it has room;
        sequences stay with it.

        Range: equal stages; over 30 random deployments an engine (2, 4 and 8 stages, dense and experts, up to 0.8 of
        saturation) TPOT with it is within 1 to 3 % of the event simulation in the median.

        Reference: [Agrawal2024] pipeline bubbles of unequal micro-batches; [Narayanan2021] schedules without bubbles.
        """
        stages, runs = self.stages, (_RUNS, len(self.sequences))
        noise, plain_s = self._noise(), self.plain_s()
        usual_s, round_s, gaps_s = plain_s, plain_s, np.tile(plain_s / stages, (stages, 1, 1))
        share = np.full((stages, *runs), 1 / stages)
        waiting, brought, counted_s, decoding = (np.zeros(runs) for _ in range(2 + 2))
        for step, (first, normal) in enumerate(zip(*_draws(_ROUNDS * stages), strict=True)):
            own = step % stages
            part = np.minimum(gaps_s[own] / usual_s, 1.0)
            self._let_in(waiting, part, first=first, normal=normal)
            taken = np.minimum(waiting, self.tokens[-1])
            waiting = waiting - taken
            alone_s, stage_s = self._step_s(np.maximum(share[own] + noise[own], 0.0), taken)
            others_s = round_s - gaps_s[own]
            gaps_s[own] = np.maximum(stage_s, alone_s - others_s)
            round_s = others_s + gaps_s[own]
            share[own] += _MEMORY * (part - share[own])
            usual_s = usual_s + _MEMORY / stages * (round_s - usual_s)
            if step >= _FIRST * stages:
                counted_s += gaps_s[own]
                decoding += (taken == 0) if self.apart else 1.0
                brought += taken
        delayed_s = np.maximum((counted_s - decoding / stages * plain_s).sum(axis=0), 0.0)
        found: Array = delayed_s / np.maximum(brought.sum(axis=0), 1.0) * self.mix.new_prompt_tokens
        return found

    def _noise(self) -> Array:
        """What steps have of all sequences beyond an even share [stages, runs, batches]: they come to one or the other
        by chance, but for the first of each, which spread over the stages."""
        _, normal = _draws(_ROUNDS * self.stages)
        beyond = np.maximum(self.sequences - self.stages, 0.0) / self.stages
        deviates = normal[: self.stages] - normal[: self.stages].mean(axis=0)
        noise: Array = deviates * np.sqrt(beyond) / np.maximum(self.sequences, 1.0)
        return noise

    def plain_s(self) -> Array:
        """A round in which nobody has a prompt, [runs, batches] [s]: until the longest step has passed all stages, or
        each stage has served all."""
        nothing = np.zeros((_RUNS, len(self.sequences)))
        shares = np.maximum(1 / self.stages + self._noise(), 0.0)
        alone_s, stage_s = zip(*(self._step_s(share, nothing) for share in shares), strict=True)
        plain_s: Array = np.maximum(np.max(alone_s, axis=0), np.sum(stage_s, axis=0))
        return plain_s

    def _let_in(self, waiting: Array, part: Array, *, first: Array, normal: Array) -> None:
        """Add to ``waiting`` the tokens of prompts that come in a part of a round, as many as sequences end: Poisson
        arrivals, of which what some bring is log-normal. ``first`` is how many are expected before the first comes."""
        expected = self.sequences * part / self.mix.decode_steps
        come = np.flatnonzero(expected > first)
        arrivals = expected.take(come)
        some = -np.expm1(-arrivals)
        variance = np.maximum(np.log((1 + self.mix.isl.cv**2 + arrivals) * some / arrivals), 0.0)
        size = np.exp(np.sqrt(variance) * normal.take(come // len(self.sequences)) - variance / 2)
        waiting.ravel()[come] += self.mix.new_prompt_tokens * arrivals / some * size

    def _step_s(self, share: Array, tokens: Array) -> tuple[Array, Array]:
        """A step with a share of all sequences and so many tokens of prompts: alone, and of one stage [s]."""
        batches, shares = len(self.sequences), self.times_s.shape[1] - 1
        place = share * shares
        low = np.minimum(place.astype(np.intp), shares - 1)
        at, between = low * batches + np.arange(batches), place - low
        alone_s, stage_s = (
            known.take(at) + between * rise.take(at)
            for known, rise in zip(self.times_s, self.times_rise_s, strict=True)
        )
        busy = np.flatnonzero(tokens)
        taken, batch = tokens.take(busy), busy % batches
        piece = (self.tokens[1:-1].take(batch, axis=1) <= taken).sum(axis=0) * batches + batch
        beyond = taken - self.tokens.take(piece)
        for step_s, base, rise in zip((alone_s.ravel(), stage_s.ravel()), self.bases_s, self.rises_s, strict=True):
            added_s = base.take(piece) + rise.take(piece) * beyond
            step_s[busy] = added_s if self.apart else step_s.take(busy) + added_s
        return alone_s, stage_s


def rounds_of(pipelines: Sequence[PipelineRounds]) -> list[tuple[Array, Array]]:
    """``plain_s`` and ``delay_s`` of each: those of as many stages go through their rounds side by side."""
    alike: dict[tuple[RequestMix, int, bool], list[int]] = {}
    for place, item in enumerate(pipelines):
        alike.setdefault((item.mix, item.stages, item.apart), []).append(place)
    found: dict[int, tuple[Array, Array]] = {}
    for places in alike.values():
        same = [pipelines[place] for place in places]
        joined: Any = {name: np.concatenate([getattr(item, name) for item in same], axis=-1) for name in _OF_BATCHES}
        together = replace(same[0], **joined)
        ends = np.cumsum([len(item.sequences) for item in same])[:-1]
        plain_s, delay_s = np.split(together.plain_s(), ends, axis=1), np.split(together.delay_s(), ends)
        found.update(zip(places, zip(plain_s, delay_s, strict=True), strict=True))
    return [found[place] for place in range(len(pipelines))]


def pipeline(mix: RequestMix, alone: Any, stage: Any, own: Any, ahead: Any, *, stages: int) -> PipelineRounds:
    """The pipeline of a lane's steps: their ``PricedNodes`` through all stages and until a stage takes the next step,
    and the ``PromptCosts`` of either. Beyond the largest batch they grow as before."""
    sequences, tokens = alone.steps.nodes, own.tokens
    together = np.maximum(sequences / stages, 1.0)
    shares = 2 * stages
    held = np.arange(shares + 1)[:, None] / shares * sequences

    def at(values: Array) -> Array:
        more = (values[-1] - values[-2]) / max(together[-1] - together[-2], 1.0) if len(values) > 1 else 0.0
        found: Array = np.interp(held, together, values) + more * np.maximum(held - together[-1], 0.0)
        return found

    times_s, pieces = np.stack((at(alone.plain_s), at(stage.plain_s))), np.diff(tokens, axis=0)
    rises_s = np.diff(np.stack((own.together_s, ahead.together_s)), axis=1) / np.maximum(pieces, 1.0)
    up_to_s = np.cumsum(rises_s * pieces, axis=1)
    return PipelineRounds(
        mix=mix,
        stages=stages,
        sequences=sequences,
        times_s=times_s,
        times_rise_s=np.diff(times_s, axis=1),
        tokens=tokens,
        bases_s=np.concatenate((np.zeros_like(up_to_s[:, :1]), up_to_s[:, :-1]), axis=1),
        rises_s=rises_s,
        apart=alone.steps.apart,
    )


def prompt_delays(mix: RequestMix, *, stages: int, sequences: Array, room: Array, own_s: Array, apart: bool) -> Array:
    """Share of its own time that a prompt adds to the time between two steps of every sequence, from ``PipelineRounds``
    of steps of equal length.

    sequences, room : of one of the ``stages`` steps, and tokens that it has for prompts; own_s : of a prompt through
    all stages, over a plain step [-]; arrays of one shape
    """
    shape, held, own = own_s.shape, stages * sequences.ravel(), own_s.ravel()
    tokens = np.stack((np.zeros_like(held), room.ravel()))
    each, nothing = np.array([1.0, 1 / stages])[:, None, None], np.zeros((2, 1, len(held)))
    rounds = PipelineRounds(
        mix=mix,
        stages=stages,
        sequences=held,
        times_s=each + np.zeros((2, 2, len(held))),
        times_rise_s=nothing,
        tokens=tokens,
        bases_s=nothing,
        rises_s=own / mix.new_prompt_tokens * each,
        apart=apart,
    )
    # Who comes to a lane where hardly anybody does delays all others by all of its time.
    seldom = held / stages / mix.decode_steps < _SELDOM
    return np.where(seldom, 1.0, np.minimum(rounds.delay_s() / own, 1.0)).reshape(shape)
