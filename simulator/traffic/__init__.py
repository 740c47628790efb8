"""Requests: when they arrive, how long they are, what their prompts share."""
