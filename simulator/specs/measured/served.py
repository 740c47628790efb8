"""What served a benchmark: what its result file does not say."""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveInt

from simulator.specs.base import Spec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.model.precision import PrecisionSpec


class ServedSpec(Spec):
    """One replica behind a benchmark, in the fields of a scenario; ``None`` takes what the engine or checkpoint has.

    model : None takes the one that the file names
    system_prompt_tokens : that all prompts of the benchmark begin with
    """

    model: str | None = None
    hardware: str
    tp_size: PositiveInt = 1
    pp_size: PositiveInt = 1
    ep_size: PositiveInt = 1
    dp_size: PositiveInt = 1
    precision: PrecisionSpec = PrecisionSpec()
    engine: EngineSpec = EngineSpec()
    system_prompt_tokens: NonNegativeInt = 0
