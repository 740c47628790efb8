"""The techniques in the order of their application: structure first, formats next, rows last."""

from __future__ import annotations

from simulator.techniques.adapters import adapters
from simulator.techniques.applied import Technique
from simulator.techniques.attention_kernel import attention_kernel
from simulator.techniques.contextual_sparsity import contextual_sparsity
from simulator.techniques.early_exit import early_exit
from simulator.techniques.kv_compression import bounded_cache
from simulator.techniques.sequence_parallel import sequence_parallel
from simulator.techniques.sparsity import sparse_weights, structured_sparsity
from simulator.techniques.structure import structure
from simulator.techniques.weight_offload import weight_offload

# Early exit builds rows anew, so that rules on single rows come after it.
TECHNIQUES: tuple[Technique, ...] = (
    structure,
    structured_sparsity,
    bounded_cache,
    sparse_weights,
    early_exit,
    contextual_sparsity,
    attention_kernel,
    adapters,
    weight_offload,
    sequence_parallel,
)
