"""Encoders and encoder-decoders: BERT, ModernBERT, Nomic's BERT and T5; stored audio towers."""

from __future__ import annotations

from simulator.specs.base import Note
from simulator.specs.huggingface import layers as usual
from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.vision.shapes import text_width
from simulator.specs.huggingface.windows import FULL, SLIDING, windows_of_types
from simulator.specs.model.architecture import AttentionSpec, EncoderSpec, LayerSpec, MlpSpec, ModelSpec

NOTE = Note("encoder_only")


def read_bert(fields: Fields) -> ModelSpec:
    """BertConfig, RobertaConfig: norms behind the sublayers; a masked-LM head leaves the pooler out, as there."""
    trunk = usual.read_trunk(fields)
    attention = _seeing(fields, hidden_size=trunk.hidden_size, bias=True).model_copy(update={"rotary": False})
    mlp = MlpSpec(intermediate_size=fields.size("intermediate_size"), gated=False, bias=True)
    layer = LayerSpec(mixer=attention, feed_forward=(mlp,))
    has_head = _has_masked_head(fields)
    spec = usual.decoder(
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
            "notes": (NOTE,),
        }
    )


def read_modernbert(fields: Fields) -> ModelSpec:
    """ModernBertConfig: norms before the sublayers, gated blocks, every third layer sees the whole text."""
    trunk = usual.read_trunk(fields)
    attention = _seeing(fields, hidden_size=trunk.hidden_size, bias=fields.flag("attention_bias", default=False))
    mlp = usual.read_mlp(fields, bias="mlp_bias")
    period, local = fields.size("global_attn_every_n_layers", default=3), fields.size("local_attention", default=128)
    default = tuple(SLIDING if index % period else FULL for index in range(trunk.num_hidden_layers))
    windows = windows_of_types(fields, window=local, default=default)
    layers = tuple(
        LayerSpec(mixer=usual.with_window(attention, window), feed_forward=(mlp,), norms=2 if index else 1)
        for index, window in enumerate(windows)
    )
    has_head, biased = _has_masked_head(fields), fields.flag("decoder_bias", default=True)
    spec = usual.decoder(
        fields,
        trunk=trunk,
        layers=layers,
        norm="layer_no_bias",
        tie_default=True,
        embedding_norm=True,
        lm_head_bias=has_head and biased,
        notes=(NOTE,),
    )
    head = trunk.hidden_size**2 + trunk.hidden_size if has_head else 0
    return spec.model_copy(update={"has_lm_head": has_head, "head_hidden_parameters": head})


def read_nomic_bert(fields: Fields) -> ModelSpec:
    """NomicBertConfig (of the checkpoint): BERT with rotary positions, gated blocks and no biases in its products."""
    trunk = usual.read_trunk(fields)
    for name, value in (("n_embd", trunk.hidden_size), ("n_layer", trunk.num_hidden_layers), ("prenorm", False)):
        fields.expect(name, value=value, why="it repeats what every published checkpoint has")
    bias = fields.flag("qkv_proj_bias", default=False)
    attention = _seeing(fields, hidden_size=trunk.hidden_size, bias=bias)
    biased = fields.flag("mlp_fc1_bias", default=False)
    fields.expect("mlp_fc2_bias", value=biased, why="one flag for the biases of a block")
    mlp = MlpSpec(intermediate_size=fields.size("intermediate_size"), bias=biased)
    if _has_masked_head(fields):
        raise fields.refusal("architectures", "names a head; its encoder, NomicBertModel, is what is published")
    spec = usual.decoder(
        fields,
        trunk=trunk,
        layers=(LayerSpec(mixer=attention, feed_forward=(mlp,)),) * trunk.num_hidden_layers,
        norm="layer",
        embedding_norm=True,
        final_norm=False,
        notes=(NOTE,),
    )
    return spec.model_copy(update={"token_types": fields.size("type_vocab_size", default=2), "has_lm_head": False})


def _seeing(fields: Fields, *, hidden_size: int, bias: bool) -> AttentionSpec:
    """Attention in both directions with as many keys as queries."""
    heads = fields.size("num_attention_heads")
    width = usual.split_heads(fields, hidden_size, heads)
    plain = usual.grouped_attention(fields, heads=heads, kv_heads=heads, head_dim=width)
    return plain.model_copy(update={"causal": False, "qkv_bias": bias, "o_bias": bias})


def _has_masked_head(fields: Fields) -> bool:
    """The head that ``architectures`` names; the bare encoder where it names none."""
    family = fields.config_class.removesuffix("Config")
    bare, masked = f"{family}Model", f"{family}ForMaskedLM"
    named = fields.raw("architectures") or [bare]
    if named not in ([bare], [masked]):
        raise fields.refusal("architectures", f"is {named!r}, understood is one of {masked}, {bare}")
    return named == [masked]


def read_t5(fields: Fields) -> ModelSpec:
    """T5Config: one table of relative positions per stack, held by its first layer; no biases."""
    trunk = usual.Trunk(
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
    causal = _stack(plain, mlp, depth=trunk.num_hidden_layers, table=table, causal=True)
    seeing = _stack(plain, mlp, depth=fields.depth("num_layers"), table=table, causal=False)
    spec = usual.decoder(fields, trunk=trunk, layers=causal, tie_default=True)
    known, order = usual.distinct(seeing)
    return spec.model_copy(update={"encoder": EncoderSpec(layers=known, layer_order=order)})


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


MEL_BINS = 128  # Gemma4AudioConfig: features of a frame, of which two strided convolutions leave a quarter


def gemma4_audio(fields: Fields) -> int:
    """Weights of Gemma4AudioModel, a Conformer, or of Gemma4Unified's plain projection of samples."""
    width, audio = text_width(fields), fields.section("audio_config")
    if audio.has("audio_embed_dim"):
        return audio.size("audio_embed_dim") * width
    hidden, outputs = audio.size("hidden_size"), audio.size("output_proj_dims")
    channels = audio.integers("subsampling_conv_channels", least=1) or (128, 32)
    if len(channels) != 2:
        raise audio.refusal("subsampling_conv_channels", f"has {len(channels)} entries, allowed are two")
    first, second = channels
    kernel, heads = audio.size("conv_kernel_size", default=5), audio.size("num_attention_heads")
    # Two feed-forward blocks of four times the width, attention with relative keys, a convolution, nine norms.
    layer = (16 + 5 + 3) * hidden**2 + (9 + kernel) * hidden + hidden // heads
    front = 9 * first + first + 9 * first * second + second + second * (MEL_BINS // 4) * hidden
    return audio.depth("num_hidden_layers") * layer + front + (hidden + 1) * outputs + outputs * width


def qwen25_audio(fields: Fields) -> int:
    """Weights of Qwen2_5OmniAudioEncoder: Whisper's encoder, one projection and two rows that begin and end a sound."""
    audio = fields.section("audio_config")
    width, bins, outputs = audio.size("d_model"), audio.size("num_mel_bins"), audio.size("output_dim")
    front = 3 * bins * width + 3 * width**2 + 2 * width
    return front + _whisper_blocks(audio, width=width, biased=3) + (width + 1) * outputs + 2 * outputs


def qwen3_audio(fields: Fields) -> int:
    """Weights of Qwen3OmniMoeAudioEncoder: three convolutions, Whisper's blocks, two projections."""
    audio = fields.section("audio_config")
    width, bins, outputs = audio.size("d_model"), audio.size("num_mel_bins"), audio.size("output_dim")
    inner = audio.size("downsample_hidden_size", default=480)
    front = 9 * inner + 2 * 9 * inner**2 + 3 * inner + inner * (bins // 8) * width
    return front + _whisper_blocks(audio, width=width, biased=4) + (width + 1) * (width + outputs)


def _whisper_blocks(audio: Fields, *, width: int, biased: int) -> int:
    """Blocks with ``biased`` of four biases in attention, and the norm behind them."""
    inner = audio.size("encoder_ffn_dim")
    block = 4 * width**2 + biased * width + 2 * width * inner + inner + width + 4 * width
    return audio.depth("encoder_layers") * block + 2 * width
