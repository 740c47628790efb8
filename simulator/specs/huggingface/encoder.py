"""Encoders and encoder-decoders: BERT and T5."""

from __future__ import annotations

from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import Trunk, decoder, encoder, grouped_attention, read_trunk, split_heads
from simulator.specs.model.architecture import AttentionSpec, LayerSpec, MlpSpec, ModelSpec

MASKED_LM = ("BertForMaskedLM", "XLMRobertaForMaskedLM")
BARE_ENCODER = ("BertModel", "XLMRobertaModel")


def read_bert(fields: Fields) -> ModelSpec:
    """BertConfig, XLMRobertaConfig: norms behind the sublayers; a masked-LM head leaves the pooler out, as there."""
    trunk = read_trunk(fields)
    fields.expect("is_decoder", value=False, why="a causal BERT is not a published model")
    fields.expect("position_embedding_type", value="absolute", why="positions are learned rows")
    heads = fields.size("num_attention_heads")
    attention = grouped_attention(
        fields, heads=heads, kv_heads=heads, head_dim=split_heads(fields, trunk.hidden_size, heads)
    ).model_copy(update={"causal": False, "rotary": False, "qkv_bias": True, "o_bias": True})
    mlp = MlpSpec(intermediate_size=fields.size("intermediate_size"), gated=False, bias=True)
    layer = LayerSpec(mixer=attention, feed_forward=(mlp,))
    has_head = _has_masked_head(fields)
    spec = decoder(
        fields,
        trunk=trunk,
        layers=(layer,) * trunk.num_hidden_layers,
        norm="layer",
        tie_default=True,
        position_embeddings=fields.size("max_position_embeddings", default=512),
        embedding_norm=True,
        final_norm=False,
        lm_head_bias=has_head,
    )
    width = trunk.hidden_size
    return spec.model_copy(
        update={
            "token_types": fields.size("type_vocab_size", default=2),
            "has_lm_head": has_head,
            "pooler": not has_head,
            "head_hidden_parameters": width * width + width + 2 * width if has_head else 0,
            "notes": ("an encoder: one pass over the whole text, nothing is generated",),
        }
    )


def _has_masked_head(fields: Fields) -> bool:
    """The head that ``architectures`` names; BertModel where it names none."""
    named = fields.raw("architectures") or [BARE_ENCODER[0]]
    understood = (*MASKED_LM, *BARE_ENCODER)
    if not isinstance(named, list) or len(named) != 1 or named[0] not in understood:
        raise fields.refusal("architectures", f"is {named!r}, understood is one of {', '.join(understood)}")
    return named[0] in MASKED_LM


def read_t5(fields: Fields) -> ModelSpec:
    """T5Config: one table of relative positions per stack, held by its first layer; no biases."""
    trunk = Trunk(
        hidden_size=fields.size("d_model"),
        num_hidden_layers=fields.depth("num_decoder_layers" if fields.has("num_decoder_layers") else "num_layers"),
        vocab_size=fields.size("vocab_size"),
        max_position_embeddings=None,
    )
    heads, width = fields.size("num_heads"), fields.size("d_kv")
    plain = AttentionSpec(num_attention_heads=heads, num_key_value_heads=heads, head_dim=width, rotary=False)
    table = fields.size("relative_attention_num_buckets", default=32) * heads
    kind = fields.text("feed_forward_proj", allowed=("relu", "gated-gelu", "gated-silu"), default="relu")
    mlp = MlpSpec(intermediate_size=fields.size("d_ff"), gated=kind.startswith("gated"))
    fields.costless("num_decoder_layers", "relative_attention_max_distance", "n_positions")
    fields.costless("is_gated_act", "dense_act_fn", "scale_decoder_outputs")
    causal = _stack(plain, mlp, depth=trunk.num_hidden_layers, table=table, causal=True)
    seeing = _stack(plain, mlp, depth=fields.depth("num_layers"), table=table, causal=False)
    spec = decoder(fields, trunk=trunk, layers=causal, tie_default=True)
    return spec.model_copy(update={"encoder": encoder(seeing, final_norm=True)})


def _stack(plain: AttentionSpec, mlp: MlpSpec, *, depth: int, table: int, causal: bool) -> tuple[LayerSpec, ...]:
    cross = plain.model_copy(update={"is_cross": True, "causal": False}) if causal else None
    return tuple(
        LayerSpec(
            mixer=plain.model_copy(update={"causal": causal, "position_bias_parameters": table if index == 0 else 0}),
            cross_attention=cross,
            feed_forward=(mlp,),
            norms=3 if causal else 2,
        )
        for index in range(depth)
    )
