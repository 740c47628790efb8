"""Throughput and latency of one model over accelerators and batch sizes, as one table."""

import pandas as pd

from simulator import simulate

answers = [
    simulate(
        id=f"{hardware} x {concurrency}",
        model="llama-3.1-8b",
        hardware=hardware,
        concurrency=concurrency,
        isl_tokens=1000,
        osl_tokens=100,
    )
    for hardware in ("l40s", "h100", "b200")
    for concurrency in (1, 8, 64)
]
table = pd.concat([answer.to_frame() for answer in answers])
print(table[["id", "ttft_s", "tpot_s", "output_tokens_per_s", "energy_per_output_token_j"]].to_string(index=False))
