"""The commands: what a person types and a program reads."""

import gc

COLLECT_EVERY = 200_000
"""Allocations between garbage collections: enough for a plan to finish before the first."""

# A command makes few cycles; looking for them takes a tenth of its time, half of that while its modules are imported.
gc.set_threshold(COLLECT_EVERY)
