"""Audio parts, whose weights are stored beside a language model and not run here."""

from __future__ import annotations

from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.vision.shapes import text_width

MEL_BINS = 128  # Gemma4AudioConfig: features of a frame, of which two strided convolutions leave a quarter


def gemma4_audio(fields: Fields) -> int:
    """Weights of Gemma4AudioModel, a Conformer, or of Gemma4Unified's plain projection of samples."""
    width, audio = text_width(fields), fields.section("audio_config")
    if audio.has("audio_embed_dim"):
        samples = audio.size("audio_embed_dim")
        audio.costless_rest()
        return samples * width
    hidden, outputs = audio.size("hidden_size"), audio.size("output_proj_dims")
    first, second = audio.integers("subsampling_conv_channels") or (128, 32)
    kernel, heads = audio.size("conv_kernel_size", default=5), audio.size("num_attention_heads")
    # Two feed-forward blocks of four times the width, attention with relative keys, a convolution, nine norms.
    layer = (16 + 5 + 3) * hidden**2 + (9 + kernel) * hidden + hidden // heads
    front = 9 * first + first + 9 * first * second + second + second * (MEL_BINS // 4) * hidden
    depth = audio.depth("num_hidden_layers")
    audio.costless_rest()
    return depth * layer + front + (hidden + 1) * outputs + outputs * width
