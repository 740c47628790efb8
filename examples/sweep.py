"""Throughput and latency of one model over accelerators, parallelism and batch limits: one table, and what moves it."""

import tempfile
from pathlib import Path

from simulator import sweep

with tempfile.TemporaryDirectory() as folder:
    found = sweep(str(Path(__file__).with_name("sweep.yaml")), out=f"{folder}/results")
    print(found)
    table = found.to_frame()
    print(table[["hardware", "tp_size", "ttft_s", "tpot_s", "output_tokens_per_s"]].to_string(index=False))
