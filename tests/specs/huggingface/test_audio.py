"""``simulator.specs.huggingface.encoder``: Conformer, Whisper and a plain projection, counted tensor by tensor."""

from __future__ import annotations

from simulator.reports.words.fields import note_texts
from simulator.specs.huggingface.encoder import gemma4_audio, qwen3_audio, qwen25_audio
from simulator.specs.huggingface.fields import Fields
from simulator.specs.model.loading import load_model
from tests.specs.huggingface.tensors import layer_norm, linear, read

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


WHISPER: dict[str, object] = {
    "d_model": 32, "num_mel_bins": 16, "output_dim": 24, "encoder_layers": 2, "encoder_ffn_dim": 64,
    "encoder_attention_heads": 4,
}  # fmt: skip


def test_whisper_s_blocks_stand_between_two_front_ends() -> None:
    block = 3 * linear(32, 32, bias=True) + linear(32, 64, bias=True) + linear(64, 32, bias=True) + 2 * layer_norm(32)
    fields = Fields({"audio_config": WHISPER}, config_class="Omni")
    samples = 3 * 16 * 32 + 32 + 3 * 32 * 32 + 32
    keys_without_bias = linear(32, 32, bias=False)
    behind = layer_norm(32) + linear(32, 24, bias=True)
    assert qwen25_audio(fields) == samples + 2 * (block + keys_without_bias) + behind + 2 * 24
    inner = 8
    fields = Fields({"audio_config": {**WHISPER, "downsample_hidden_size": inner}}, config_class="Omni")
    squares = 9 * inner + inner + 2 * (9 * inner * inner + inner) + inner * (16 // 8) * 32
    with_bias = block + linear(32, 32, bias=True)
    assert qwen3_audio(fields) == squares + 2 * with_bias + behind + linear(32, 32, bias=True)


def test_of_a_model_that_listens_and_speaks_the_part_that_thinks_is_read() -> None:
    thinker = load_model("Qwen/Qwen2.5-Omni-7B")
    whole = {"model_type": "qwen2_5_omni", "talker_config": {}, "thinker_config": {"model_type": "qwen2", **PLAIN}}
    assert any("left out" in note for note in note_texts(read(whole).notes))
    assert thinker.vision is not None
    assert thinker.extra_parameters > 0


PLAIN = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 99}
