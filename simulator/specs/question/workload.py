"""Demand: arrivals, lengths and how prompts repeat."""

from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from simulator.specs.base import Seed, Spec
from simulator.specs.question.plan_values import LARGEST_CV, MOST_ANSWERS
from simulator.units import GIGA, MILLI

LEAST_CV = 10 * MILLI
"""Least coefficient of variation of arrivals: below it they are evenly spaced, which has a name of its own."""

LARGEST_TURNS = 100
"""Most turns of a conversation that are taken."""


class StageSpec(Spec):
    """A stretch of constant mean rate."""

    rate_per_s: PositiveFloat
    duration_s: float = Field(ge=MILLI)


LONGEST_THINK_S = GIGA
"""Thirty years: beyond it a clock in seconds no longer tells steps apart."""


class ConversationSpec(Spec):
    """Multi-turn chat. Stages then say how many conversations begin per second.

    The number of turns is geometric around ``turns_mean``, cut at ``max_turns``; ``question_tokens`` and ``osl_tokens``
    are those of a turn. The next turn is sent ``think_s`` after the answer before has come (exponential around it).
    """

    turns_mean: float = Field(ge=1, le=LARGEST_TURNS)
    think_s: float = Field(default=0.0, ge=0, le=LONGEST_THINK_S)
    max_turns: PositiveInt = LARGEST_TURNS


class WorkloadSpec(Spec):
    """The contract's ``workload`` object.

    Requests cycle through prompt_groups x prompts_per_group distinct prompts (a prompt is its group's system
    prompt plus its own question); where these are None every question is new and only the system prompt repeats.
    ``spacing`` says what ``constant`` means: exactly rate x duration requests in a stage, at random moments of it (the
    default: E2E percentiles of the public vLLM runs have that spread), or with equal gaps.
    ``burstiness`` is the coefficient of variation of gamma inter-arrival times; ``isl_cv`` and ``osl_cv`` are those of
    question and answer lengths (log-normal; 0 for equal lengths). A client gives a request up ``timeout_s`` after
    sending it; 300 s is what Python's common HTTP client, and so most load generators, waits. None waits for ever.
    ``trace`` replays a recorded file (Azure, BurstGPT, Mooncake, vLLM benchmark), as recorded or, with stages, scaled
    to their rates; prompts share what its hashes say, and turns of agents are sent when the answer before has come and
    their tools are done. ``lengths_trace`` draws prompt and answer lengths together
    from the requests of such a file (the empirical distribution) and leaves arrivals to ``arrival``. ``conversation``
    makes multi-turn chats. ``answers_per_request`` answers are sampled for every prompt, which is computed and cached
    once (n, best of n): rates of stages are of requests, all figures are of answers.
    """

    arrival: Literal["constant", "poisson", "gamma", "trace"] = "poisson"
    stages: tuple[StageSpec, ...] = ()
    system_prompt_tokens: NonNegativeInt = 0
    question_tokens: PositiveInt | None = None
    isl_tokens: PositiveInt | None = None
    osl_tokens: PositiveInt | None = None
    prompt_groups: PositiveInt | None = None
    prompts_per_group: PositiveInt | None = None
    ignore_eos: bool = True
    burstiness: float = Field(default=1.0, ge=LEAST_CV, le=LARGEST_CV)
    isl_cv: float = Field(default=0.0, ge=0, le=LARGEST_CV)
    osl_cv: float = Field(default=0.0, ge=0, le=LARGEST_CV)
    timeout_s: PositiveFloat | None = 300.0
    spacing: Literal["even", "random"] = "random"
    trace: str | None = None
    lengths_trace: str | None = None
    conversation: ConversationSpec | None = None
    answers_per_request: int = Field(default=1, ge=1, le=MOST_ANSWERS)
    seed: Seed = 0

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        """Null for "not given", except for ``timeout_s``, where it says "waits for ever"; a trace is replayed."""
        if not isinstance(data, dict):
            return data
        given = cls.given(data, but=("timeout_s",))
        return {"arrival": "trace", **given} if "trace" in given else given
