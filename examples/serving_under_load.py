"""What clients see while a service runs: percentiles, queue and cache, and the rate that holds the objectives."""

from simulator import capacity, serve

service = {
    "model": "llama-3.1-8b",
    "hardware": "l40s",
    "rate_per_s": 4,
    "duration_s": 60,
    "isl_tokens": 600,
    "osl_tokens": 150,
}
objectives = {"ttft-p95": "1s", "tpot-p95": "60ms"}

answer = serve(service, objectives=objectives)
print(answer)
print(answer.to_frame()[["requests", "ttft_p95_s", "tpot_p95_s", "kv_utilization"]])

most = capacity(service, objectives=objectives, seeds=2, requests=200)
print(f"\nat most {most['rate_per_s']:.1f} requests/s within the objectives")
