"""Many requests: uniform runs in closed form, queueing, steady state, event simulation."""
