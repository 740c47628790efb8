"""What is asked where nothing is said, once for commands, scenarios and pages.

Plans start from a model that takes more than one accelerator, questions about one replica from one that fits anywhere.
Kinds of demand, objectives, spares and load have their defaults where they are explained: ``workload_presets``,
``fleet.availability``, ``search.question``; engines in ``specs.engine``.
"""

from __future__ import annotations

from simulator.units import KILO

PLANNED_MODEL = "llama-3.1-70b"
PLANNED_RATE_PER_S = KILO

MODEL = "llama-3.1-8b"
HARDWARE = "h100"
COMPARED_HARDWARE = ("h100", "h200", "b200", "mi300x")
"""Beside each other in a comparison that names none."""
SERVED_RATE_PER_S = 8.0
SERVED_DURATION_S = 600.0
PROMISE_SEEDS = 10
"""Replays of each case of a planned fleet."""
EXPLAINED_BATCH = 16
STEP_CONTEXT_TOKENS = 1024
"""Tokens that a decode step attends to, or of the prompt; or all that the model takes where that is less."""
