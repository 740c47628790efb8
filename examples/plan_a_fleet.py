"""How many of which accelerators serve a demand within objectives, at what cost, with which alternatives."""

from simulator import plan

answer = plan(
    model="llama-3.1-70b",
    rate_per_s=200,
    isl_tokens=800,
    osl_tokens=200,
    objectives={"ttft-p95": "2s", "tpot-p95": "50ms"},
    hardware=["h100", "h200", "mi300x"],
)
print(answer)

frame = answer.to_frame()  # one row a fleet, the chosen one first
print(frame[["hardware", "tp_size", "devices", "cost_per_hour"]])
