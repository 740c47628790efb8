"""KV blocks under a policy that bounds what each sequence keeps."""

from __future__ import annotations

import numpy as np

from simulator.engine.request import Requests
from simulator.operators.kv_layout import kv_bytes_per_sequence, kv_bytes_per_token
from simulator.operators.step_shape import Array
from simulator.phases.deployment import Deployment
from simulator.techniques.kv_compression import check_budget

HISTORY_POINTS = 9
"""Points of each request's growth at which its cache is measured."""


def bounded_blocks(deployment: Deployment, requests: Requests, *, blocks: int) -> int:
    """Blocks that hold as many of these sequences in full as ``blocks`` hold of their bounded caches.

    The event loop counts a sequence's blocks by its length. Its mean share of kept bytes over a life from prompt to
    last token, weighted by length, says how many more sequences the same memory holds: exact for equal requests, a
    mean for mixed ones. A budget that no request reaches is refused.
    """
    first = requests.prompt_tokens.astype(np.float64)
    last = first + requests.output_tokens
    check_budget(deployment.techniques.spec.kv_policy, longest_tokens=int(last.max()))
    lengths = np.linspace(first, last, HISTORY_POINTS).ravel()
    parallelism = deployment.parallelism
    per_token = kv_bytes_per_token(
        deployment.model, plan=deployment.plan, tp_size=parallelism.tp_size, pp_size=parallelism.pp_size
    )
    kept = _cache_bytes(deployment, lengths) - _cache_bytes(deployment, np.zeros(1))
    return int(blocks * per_token * lengths.sum() / kept.sum())


def _cache_bytes(deployment: Deployment, lengths: Array) -> Array:
    """Bytes that sequences of these lengths keep on a device, recurrent states included [bytes]."""
    parallelism = deployment.parallelism
    return kv_bytes_per_sequence(
        deployment.model,
        plan=deployment.plan,
        tp_size=parallelism.tp_size,
        pp_size=parallelism.pp_size,
        context_tokens=lengths,
    )
