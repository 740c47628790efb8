"""How unevenly experts load the ranks that hold them."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from simulator.operators.step_shape import Array


def expected_imbalance(*, tokens: Array, num_experts_per_tok: float, ranks: int) -> Array:
    """Tokens of the busiest rank over the mean when routing is uniform and independent (array over ``tokens``) [-].

    1 + z sqrt((R - 1) / (k t)), z the mean of the largest of R standard normals by Blom's approximation [Blom1958]; at
    most R. Valid for several tokens per rank; learned routing is more uneven, balanced placement less.
    """
    if ranks < 2:
        return np.ones_like(tokens)
    blom = 3.0 / 8.0
    z = NormalDist().inv_cdf((ranks - blom) / (ranks - 2.0 * blom + 1.0))
    assignments = np.maximum(tokens * num_experts_per_tok, 1.0)
    excess: Array = np.minimum(1.0 + z * np.sqrt((ranks - 1.0) / assignments), float(ranks))
    return excess
