"""One forward pass: deployment, memory plan, step."""
