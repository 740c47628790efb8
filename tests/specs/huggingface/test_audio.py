"""``simulator.specs.huggingface.audio``: a Conformer and a plain projection, counted tensor by tensor."""

from __future__ import annotations

from simulator.specs.huggingface.audio import gemma4_audio
from simulator.specs.huggingface.fields import Fields

WIDTH = 48


def counted(audio: dict[str, object]) -> int:
    config = {"text_config": {"hidden_size": WIDTH}, "audio_config": audio}
    return gemma4_audio(Fields(config, config_class="Gemma4Config"))


def test_a_conformer_holds_blocks_convolutions_and_two_projections() -> None:
    hidden, outputs, layers, kernel = 64, 24, 3, 5
    feed_forward = 2 * hidden * 4 * hidden + 2 * hidden
    attention = 5 * hidden**2 + hidden // 4
    convolution = hidden * 2 * hidden + kernel * hidden + hidden**2 + 2 * hidden
    layer = 2 * feed_forward + attention + convolution + 3 * hidden
    front = (9 * 16 + 16) + (9 * 16 * 8 + 8) + 8 * 32 * hidden
    behind = hidden * outputs + outputs + outputs * WIDTH
    config: dict[str, object] = {
        "hidden_size": hidden, "output_proj_dims": outputs, "num_hidden_layers": layers, "num_attention_heads": 4,
        "conv_kernel_size": kernel, "subsampling_conv_channels": [16, 8],
    }  # fmt: skip
    assert counted(config) == layers * layer + front + behind


def test_samples_without_a_tower_are_one_product() -> None:
    assert counted({"audio_embed_dim": 640}) == 640 * WIDTH
