"""Checkpoints as lists of tensor shapes, written from the modules of the papers and of transformers.

The readers turn a configuration into layers, and the operator list counts what those hold. Here the same checkpoint is
written down tensor by tensor, which is an independent count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from simulator.operators.model_counts import parameter_counts
from simulator.specs.huggingface.registry import read_config
from simulator.specs.model.architecture import ModelSpec

Shape = tuple[int, ...]


def elements(*shapes: Shape) -> int:
    """Numbers in all tensors."""
    return sum(prod(shape) for shape in shapes)


def linear(inputs: int, outputs: int, *, bias: bool = False) -> int:
    """A projection with or without its bias."""
    return inputs * outputs + (outputs if bias else 0)


def layer_norm(width: int) -> int:
    """Scale and shift."""
    return 2 * width


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Shape of a small model; heads divide hidden, KV heads divide heads."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


SIZES = (
    Sizes(hidden=64, layers=1, heads=4, kv_heads=4, intermediate=256, vocab=100),
    Sizes(hidden=96, layers=3, heads=6, kv_heads=2, intermediate=160, vocab=331),
    Sizes(hidden=256, layers=7, heads=8, kv_heads=1, intermediate=704, vocab=1024),
    Sizes(hidden=320, layers=12, heads=10, kv_heads=5, intermediate=1024, vocab=5000),
)
"""From one layer with as many KV heads as heads to multi-query attention and odd ratios."""


def plain_config(model_type: str, size: Sizes) -> dict[str, object]:
    """The fields that most families share."""
    return {
        "model_type": model_type,
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "intermediate_size": size.intermediate,
        "vocab_size": size.vocab,
        "max_position_embeddings": 2048,
        "torch_dtype": "bfloat16",
    }


def read(config: Mapping[str, object]) -> ModelSpec:
    return read_config(config, name="test")


def total(config: Mapping[str, object]) -> float:
    """Parameters of a configuration as the operator list counts them."""
    return parameter_counts(read(config)).total


def active(config: Mapping[str, object]) -> float:
    """Parameters that one token uses."""
    return parameter_counts(read(config)).active
