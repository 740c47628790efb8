"""From a trunk and its layers to a ModelSpec, whose name, dtype and quantization the registry fills in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import Trunk, distinct
from simulator.specs.model import EncoderSpec, LayerSpec, ModelSpec

Norm = Literal["rms", "layer", "layer_no_bias", "none_affine"]


def decoder(
    fields: Fields,
    *,
    trunk: Trunk,
    layers: Sequence[LayerSpec],
    norm: Norm = "rms",
    tie_default: bool = False,
    tie_word_embeddings: bool | None = None,
    lm_head_bias: bool = False,
    position_embeddings: int = 0,
    embedding_norm: bool = False,
    embedding_size: int | None = None,
    final_norm: bool = True,
    per_layer_embedding_size: int = 0,
    extra_parameters: int = 0,
    notes: tuple[str, ...] = (),
) -> ModelSpec:
    """A decoder-only model; ``tie_default`` is what the configuration class documents."""
    tied = fields.flag("tie_word_embeddings", default=tie_default)
    known, order = distinct(layers)
    return ModelSpec(
        name="unnamed",
        model_type="unnamed",
        hidden_size=trunk.hidden_size,
        vocab_size=trunk.vocab_size,
        max_position_embeddings=trunk.max_position_embeddings,
        layers=known,
        layer_order=order,
        tie_word_embeddings=tied if tie_word_embeddings is None else tie_word_embeddings,
        norm=norm,
        lm_head_bias=lm_head_bias,
        position_embeddings=position_embeddings,
        embedding_norm=embedding_norm,
        embedding_size=embedding_size,
        final_norm=final_norm,
        per_layer_embedding_size=per_layer_embedding_size,
        extra_parameters=extra_parameters,
        notes=notes,
    )


def encoder(layers: Sequence[LayerSpec], *, final_norm: bool) -> EncoderSpec:
    """The encoder of an encoder-decoder model."""
    known, order = distinct(layers)
    return EncoderSpec(layers=known, layer_order=order, final_norm=final_norm)
