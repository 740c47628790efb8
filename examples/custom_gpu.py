"""A GPU that is not built in: its datasheet as a YAML file (my-profiles/my-gpu.yaml), and no code."""

from pathlib import Path

from simulator import plan, step

mine = str(Path(__file__).parent / "my-profiles")

for hardware in ("my-gpu", "h100-pcie-80gb"):
    answer = step(model="llama-3.1-8b", hardware=hardware, batch_size=32, profiles=mine)
    print(f"{hardware}: {1000 * answer['step_s']:.2f} ms a step, known as {answer['provenance']}")

print(plan(model="llama-3.1-8b", rate_per_s=50, hardware="my-gpu", profiles=mine))
