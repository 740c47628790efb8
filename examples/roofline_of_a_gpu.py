"""What one decode step costs on a GPU, operator by operator, beside the plain roofline."""

from simulator import step

answer = step(model="llama-3.1-8b", hardware="h100", batch_size=32, context_tokens=2048)
print(answer)  # in a notebook, the name alone shows a table; answer.plot() draws the roofline

slowest = answer.to_frame().nlargest(3, "seconds")
for row in slowest.itertuples():
    print(f"{row.operator}: {1e6 * row.seconds:.0f} µs, {row.seconds / row.roofline_floor_s:.2f} times its roofline")
