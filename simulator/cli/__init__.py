"""The commands: what a person types and a program reads."""

import os

from simulator.allocation import collect_seldom

collect_seldom()

# Products of matrices are small here; threads that wait for large ones take a twelfth of an estimate's processor time
# on two cores, more on more.
os.environ.setdefault("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
