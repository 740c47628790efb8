"""Audio parts, whose weights are stored beside a language model and not run here: Gemma 4's and Qwen Omni's."""

from __future__ import annotations

from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.vision.shapes import text_width

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
