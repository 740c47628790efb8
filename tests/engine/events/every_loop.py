"""Machine code for every loop: those of ``warm-up``, and those of ranks that step together, which it leaves out."""

from __future__ import annotations

import numpy as np

from simulator.engine.events.loop import loop_of, together
from simulator.engine.events.simulation import simulate_requests
from simulator.engine.events.warm_up import SCHEDULERS
from simulator.engine.settings import SchedulerSettings
from simulator.phases.compiled import uniform_tables
from simulator.traffic.requests import make_requests

KINDS = tuple(SCHEDULERS.values())
LOOPS = [loop_of(kind) for _, scheduler in KINDS for kind in (scheduler, together(scheduler))]


def compile_every_loop() -> None:
    """Serve one request by each loop, of one rank and of two."""
    tables = uniform_tables(step_s=1.0, max_tokens=64, max_sequences=1, max_context=64)
    one = make_requests(arrival_s=np.zeros(1), prompt_tokens=np.ones(1, int), output_tokens=np.ones(1, int))
    for loop in LOOPS:
        loop.compile()
    for policy, _ in KINDS:
        for ranks in (1, 2):
            chosen = SchedulerSettings(
                max_num_batched_tokens=64,
                max_num_seqs=1,
                max_model_len=64,
                kv_blocks=64,
                policy=policy,
                replicas=ranks,
                ranks=ranks,
            )
            simulate_requests(tables, requests=one, settings=chosen)


if __name__ == "__main__":
    compile_every_loop()
