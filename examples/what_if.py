"""What each change to a deployment is worth, on top of those before it and alone."""

from simulator import compare

answer = compare(
    model="llama-3.1-70b",
    hardware="h100",
    tp_size=4,
    engine="vllm",
    concurrency=32,
    isl_tokens=1000,
    osl_tokens=200,
    changes=["weights=fp8", "kv_cache=fp8", "speculation=eagle:k=4"],
)
print(answer)
