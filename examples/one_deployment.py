"""What one deployment does with a closed loop of users: latency, throughput, memory and energy, with intervals."""

from simulator import simulate

answer = simulate(
    model="qwen3-32b", hardware="h200", tp_size=2, concurrency=64, isl_tokens=2000, osl_tokens=300, weights="fp8"
)
print(answer)
low, high = answer["interval"]["tpot_s"]
print(f"TPOT {1000 * answer['tpot_s']:.1f} ms, in four of five cases between {1000 * low:.1f} and {1000 * high:.1f}")
