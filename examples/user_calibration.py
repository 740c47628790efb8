"""An engine's overheads from a benchmark (here one that is made up): fit, errors before and after, the new forecast."""

import tempfile
from pathlib import Path

from simulator import calibrate, simulate

measured = str(Path(__file__).parent / "data" / "vllm_bench.json")
question = {"model": "llama-3.1-8b", "hardware": "h100", "concurrency": 16, "isl_tokens": 512, "osl_tokens": 128}
question |= {"num_requests": 200, "range_ratio": 1}  # as the file says: all requests alike, which come in waves

with tempfile.TemporaryDirectory() as folder:
    answer = calibrate(results=[measured], model="llama-3.1-8b", hardware="h100", out=folder)
    print(answer)
    before, after = simulate(question), simulate(question, profiles=folder)
    print(f"TTFT {1000 * before['ttft_s']:.0f} ms before, {1000 * after['ttft_s']:.0f} ms after; measured 245 ms")
