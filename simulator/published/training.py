"""FLOPs of training, as papers count them."""

from __future__ import annotations

CHINCHILLA_TOKENS_PER_PARAMETER = 20.0
"""Training tokens a parameter where compute is spent best [Hoffmann2022] (70B on 1.4T tokens)."""


def training_flops(*, parameters: float, tokens: float) -> float:
    """FLOPs to train a dense model [FLOPs].

    Equation
    --------
    C = 6 N D

    Parameters
    ----------
    parameters : N, those that a token passes [-]
    tokens : D of the training data [tokens]

    Range of validity
    -----------------
    Short sequences: leaves out attention over the context, 12 layers d tokens a token. 2 N forward, 4 N backward;
    recomputed activations come on top.

    References
    ----------
    [Kaplan2020], [Hoffmann2022], [Brown2020] table D.1

    Examples
    --------
    >>> training_flops(parameters=2.0, tokens=3.0)
    36.0
    """
    return 6.0 * parameters * tokens
