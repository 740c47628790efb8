"""Pipeline stages: what the prompts of some steps cost the sequences of all others.

As many steps are under way as there are stages, each with sequences of its own. One that carries prompts holds every
stage for longer: those behind it wait, and until it has passed all stages nobody can join a new step, so that whoever
arrives meanwhile is in the next one. Steps that are longer than others are joined by more sequences, too.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

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


@lru_cache(maxsize=16)
def _draws(steps: int) -> tuple[Array, Array]:
    """Numbers in (0, 1) and standard normal deviates, evenly spread, in random order [steps, _RUNS, 1]."""
    order = np.random.default_rng(0)
    even = (np.arange(steps * _RUNS) + 1 / 2) / (steps * _RUNS)
    normal = np.array([NormalDist().inv_cdf(float(value)) for value in even])
    mixed, deviates = (order.permutation(each).reshape(steps, _RUNS, 1) for each in (even, normal))
    return mixed, deviates


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRounds:
    """Steps of a pipeline at several batches; times are a step's through all stages, and of one stage for it [s].

    sequences : that decode in ``stages`` steps; times_s : at shares of them, from none to all [shares, batches, 2], and
    ``times_rise_s`` from each to the next; tokens : of a step's prompts, from none to as many as it takes [points,
    batches], with ``pieces`` between them; rises_s : what each token of a piece adds, or takes of a step of its own
    where prompts are ``apart`` [pieces, batches, 2]
    """

    mix: RequestMix
    stages: int
    sequences: Array
    times_s: Array
    times_rise_s: Array
    tokens: Array
    pieces: Array
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
        usual_s, gaps_s = plain_s, np.tile(plain_s / stages, (stages, 1, 1))
        share = np.full((stages, *runs), 1 / stages)
        waiting, brought, counted_s, decoding = (np.zeros(runs) for _ in range(2 + 2))
        for step, (evenly, normal) in enumerate(zip(*_draws(_ROUNDS * stages), strict=True)):
            own = step % stages
            part = np.minimum(gaps_s[own] / usual_s, 1.0)
            waiting = waiting + self._coming(part, evenly=evenly, normal=normal)
            taken = np.minimum(waiting, self.tokens[-1])
            waiting = waiting - taken
            alone_s, stage_s = self._step_s(np.maximum(share[own] + noise[own], 0.0), taken)
            others_s = gaps_s.sum(axis=0) - gaps_s[own]
            gaps_s[own] = np.maximum(stage_s, alone_s - others_s)
            share[own] += _MEMORY * (part - share[own])
            usual_s = usual_s + _MEMORY / stages * (others_s + gaps_s[own] - usual_s)
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

    def _coming(self, part: Array, *, evenly: Array, normal: Array) -> Array:
        """Tokens of the prompts that come in a part of a round, as many as sequences end: Poisson arrivals, of which
        what some bring is log-normal."""
        arrivals = np.maximum(self.sequences * part / self.mix.decode_steps, _TINY)
        some = np.maximum(-np.expm1(-arrivals), _TINY)
        variance = np.maximum(np.log((1 + self.mix.isl.cv**2 + arrivals) * some / arrivals), 0.0)
        size = np.exp(np.sqrt(variance) * normal - variance / 2)
        return np.where(evenly < some, self.mix.new_prompt_tokens * arrivals / some * size, 0.0)

    def _step_s(self, share: Array, tokens: Array) -> tuple[Array, Array]:
        """A step with a share of all sequences and so many tokens of prompts: alone, and of one stage [s]."""
        place = share * (len(self.times_s) - 1)
        low = np.minimum(place.astype(np.intp), len(self.times_s) - 2)
        at, between = low * share.shape[1] + np.arange(share.shape[1]), (place - low)[:, :, None]
        times_s, rises_s = (each.reshape(-1, 2).take(at, axis=0) for each in (self.times_s, self.times_rise_s))
        step_s = times_s + between * rises_s
        if self.apart:
            step_s = step_s * (tokens == 0)[:, :, None]
        held = np.minimum(np.maximum(tokens[:, None] - self.tokens[:-1], 0.0), self.pieces)
        step_s += np.einsum("rpb,pbk->rbk", held, self.rises_s)
        return step_s[..., 0], step_s[..., 1]


def pipeline(
    *,
    mix: RequestMix,
    stages: int,
    sequences: Array,
    plain_s: tuple[Array, Array],
    tokens: Array,
    added_s: tuple[Array, Array],
    apart: bool,
) -> PipelineRounds:
    """The pipeline of steps that were priced with a share of the sequences each; times are pairs: through all stages,
    and until a stage takes the next step. Beyond the largest batch they grow as before."""
    together = np.maximum(sequences / stages, 1.0)
    shares = 2 * stages
    held = np.arange(shares + 1)[:, None] / shares * sequences

    def at(values: Array) -> Array:
        more = (values[-1] - values[-2]) / max(together[-1] - together[-2], 1.0) if len(values) > 1 else 0.0
        found: Array = np.interp(held, together, values) + more * np.maximum(held - together[-1], 0.0)
        return found

    pieces, times_s = np.diff(tokens, axis=0), np.stack(tuple(map(at, plain_s)), axis=-1)
    return PipelineRounds(
        mix=mix,
        stages=stages,
        sequences=sequences,
        times_s=times_s,
        times_rise_s=np.diff(times_s, axis=0),
        tokens=tokens,
        pieces=pieces,
        rises_s=np.diff(np.stack(added_s, axis=-1), axis=0) / np.maximum(pieces, 1.0)[:, :, None],
        apart=apart,
    )


def prompt_delays(mix: RequestMix, *, stages: int, sequences: Array, room: Array, own_s: Array, apart: bool) -> Array:
    """Share of its own time that a prompt adds to the time between two steps of every sequence, from ``PipelineRounds``
    of steps of equal length.

    sequences, room : of one of the ``stages`` steps, and tokens that it has for prompts; own_s : of a prompt through
    all stages, over a plain step [-]; arrays of one shape
    """
    shape, held, own = own_s.shape, stages * sequences.ravel(), own_s.ravel()
    tokens = np.stack((np.zeros_like(held), room.ravel()))
    each = np.array([1.0, 1 / stages])
    times_s = np.broadcast_to(each, (2, len(held), 2))
    rounds = PipelineRounds(
        mix=mix,
        stages=stages,
        sequences=held,
        times_s=times_s,
        times_rise_s=np.zeros((1, len(held), 2)),
        tokens=tokens,
        pieces=np.diff(tokens, axis=0),
        rises_s=(own / mix.new_prompt_tokens)[:, None] * each + np.zeros((1, 1, 1)),
        apart=apart,
    )
    # Who comes to a lane where hardly anybody does delays all others by all of its time.
    seldom = held / stages / mix.decode_steps < _SELDOM
    return np.where(seldom, 1.0, np.minimum(rounds.delay_s() / own, 1.0)).reshape(shape)
