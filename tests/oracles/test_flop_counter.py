"""The operator list against torch's FLOP counter over the transformers implementations, on the meta device.

The reference is counted as it is written, so the list is adjusted term by term to what the reference really does, and
then has to agree within 0.5 % on a prefill and on a decode step with a cache:

- eager attention multiplies every query with every key it is handed, masked or not: our attention rows are recounted
  with full pairs (queries x keys) instead of causal ones;
- its latent attention caches latents and expands all of them in every step, where engines absorb the projection while
  decoding: its decode step is our prefill of one token;
- the LM head is applied to every position of a prefill;
- ``batched_mm`` experts multiply exactly the chosen experts, as ours.

What remains is the reference's rotary tables (a matrix product there) and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.model_counts import parameter_counts
from simulator.operators.transformer import operator_list
from simulator.operators.work import AttentionShape, Family, StepShape, Work, decode_step, mixed_step, prefill_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.huggingface.registry import read_config
from simulator.specs.model.architecture import MlaSpec, ModelSpec
from simulator.specs.model.precision import PrecisionSpec

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
flop_counter = pytest.importorskip("torch.utils.flop_counter")

pytestmark = pytest.mark.oracle

SEQUENCES, PROMPT, SOURCE = 2, 48, 40
SIZES = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 1024}
GATED = {**SIZES, "intermediate_size": 640, "num_key_value_heads": 4}
MLA = {**SIZES, "intermediate_size": 640, "num_key_value_heads": 8, "kv_lora_rank": 64, "q_lora_rank": 96,
       "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "n_routed_experts": 16, "n_shared_experts": 1,
       "num_experts_per_tok": 4, "moe_intermediate_size": 128, "first_k_dense_replace": 1, "n_group": 4,
       "topk_group": 2}  # fmt: skip
DECODERS: dict[str, tuple[str, dict[str, object]]] = {
    "llama": ("LlamaConfig", {**GATED, "attention_bias": True}),
    "mistral": ("MistralConfig", {**GATED, "sliding_window": None}),
    "qwen2": ("Qwen2Config", GATED),
    "qwen3": ("Qwen3Config", {**GATED, "head_dim": 64}),
    "phi3": ("Phi3Config", {**GATED, "pad_token_id": 0}),
    "gemma2": ("Gemma2Config", {**GATED, "head_dim": 64, "sliding_window": 4096}),
    "olmo2": ("Olmo2Config", GATED),
    "cohere": ("CohereConfig", GATED),
    "starcoder2": ("Starcoder2Config", {**GATED, "sliding_window": None}),
    "glm4": ("Glm4Config", {**GATED, "head_dim": 32, "pad_token_id": 0}),
    "mixtral": ("MixtralConfig", {**GATED, "num_local_experts": 8, "num_experts_per_tok": 2}),
    "qwen3_moe": (
        "Qwen3MoeConfig",
        {**GATED, "head_dim": 32, "num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 128},
    ),
    "gpt_oss": (
        "GptOssConfig",
        {**GATED, "head_dim": 32, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 128},
    ),
    "deepseek_v2": ("DeepseekV2Config", {**MLA, "topk_method": "greedy"}),
    "deepseek_v3": ("DeepseekV3Config", MLA),
    "gpt2": ("GPT2Config", {"n_embd": 256, "n_layer": 2, "n_head": 8, "vocab_size": 1024, "n_positions": 256}),
    "gpt_neox": ("GPTNeoXConfig", {**SIZES, "intermediate_size": 1024}),
    "gptj": ("GPTJConfig", {"n_embd": 256, "n_layer": 2, "n_head": 8, "vocab_size": 1024, "rotary_dim": 16}),
    "opt": ("OPTConfig", {**SIZES, "ffn_dim": 1024, "word_embed_proj_dim": 128, "max_position_embeddings": 256}),
    "bloom": ("BloomConfig", {"hidden_size": 256, "n_layer": 2, "n_head": 8, "vocab_size": 1024}),
    "falcon": ("FalconConfig", {**SIZES, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "phi": ("PhiConfig", {**SIZES, "intermediate_size": 1024}),
}
HYBRID = {**GATED, "head_dim": 32, "num_hidden_layers": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
          "linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4}  # fmt: skip
RECURRENT: dict[str, tuple[str, dict[str, object]]] = {
    "mamba": ("MambaConfig", {"hidden_size": 256, "num_hidden_layers": 2, "vocab_size": 1024, "state_size": 16}),
    "mamba2": (
        "Mamba2Config",
        {"hidden_size": 256, "num_hidden_layers": 2, "vocab_size": 1024, "num_heads": 16, "head_dim": 32,
         "state_size": 64, "n_groups": 4, "chunk_size": 16},
    ),
    "qwen3_next": (
        "Qwen3NextConfig",
        {**HYBRID, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
         "shared_expert_intermediate_size": 64},
    ),
    "qwen3_5": ("Qwen3_5TextConfig", HYBRID),
    "jamba": (
        "JambaConfig",
        {**GATED, "num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 4,
         "use_mamba_kernels": False, "mamba_dt_rank": 16},
    ),
}  # fmt: skip
LINEAR = (Family.GEMM, Family.LM_HEAD)


@dataclass(frozen=True)
class Reference:
    """A family's implementation on the meta device, and the spec read from the fields that were given to it."""

    network: object
    model: ModelSpec


def build(config_class: str, options: dict[str, object], factory: str, *, device: str = "meta") -> Reference:
    config = getattr(transformers, config_class)(**options, attn_implementation="eager")
    config._experts_implementation = "batched_mm"
    with torch.device(device):
        network = getattr(transformers, factory).from_config(config, attn_implementation="eager").eval()
    network.config._experts_implementation = "batched_mm"
    return Reference(
        network=network, model=read_config({**options, "model_type": config.model_type}, name=config.model_type)
    )


@pytest.fixture(scope="module", params=DECODERS, ids=str)
def decoder(request: pytest.FixtureRequest) -> Reference:
    config_class, options = DECODERS[request.param]
    return build(config_class, options, "AutoModelForCausalLM")


def tokens(count: int, *, device: str = "meta") -> object:
    return torch.zeros((SEQUENCES, count), dtype=torch.long, device=device)


def counted(network: object, **inputs: object) -> tuple[float, object]:
    """FLOPs of one forward pass, and what it returned."""
    with torch.no_grad(), flop_counter.FlopCounterMode(display=False) as counter:
        output = network(**inputs)
    return float(counter.get_total_flops()), output


def rows_of(model: ModelSpec, step: StepShape) -> tuple[Work, ...]:
    plan = precision_plan(model, PrecisionSpec())
    return operator_list(model, parallelism=ParallelismSpec(), plan=plan, step=step)


def full_attention(shape: AttentionShape) -> float:
    """2 FLOPs for every query and every key handed over."""
    seen = shape.context_tokens[0] + shape.query_tokens[0]
    width = shape.num_heads * (shape.head_dim + shape.v_head_dim)
    return float(2.0 * shape.sequences[0] * shape.query_tokens[0] * seen * width)


def as_written(rows: tuple[Work, ...]) -> float:
    """FLOPs of the rows with unmasked attention."""
    return sum(
        row.count * (full_attention(row.shape) if isinstance(row.shape, AttentionShape) else float(row.flops[0]))
        for row in rows
    )


def expected_decode(model: ModelSpec, context: int) -> float:
    """A decode step as the reference computes it: latent attention expands every cached latent."""
    if isinstance(model.layers[0].mixer, MlaSpec):
        expanded = prefill_step(sequences=SEQUENCES, tokens=1, context=context - 1)
        return as_written(rows_of(model, expanded))
    return as_written(rows_of(model, decode_step(sequences=SEQUENCES, context=context)))


def test_decoder_prefill_and_decode(decoder: Reference) -> None:
    prefill, output = counted(decoder.network, input_ids=tokens(PROMPT), use_cache=True)
    step = mixed_step(prefill_sequences=SEQUENCES, prefill_tokens=PROMPT, prefill_logits=SEQUENCES * PROMPT)
    assert as_written(rows_of(decoder.model, step)) == pytest.approx(prefill, rel=0.005)
    decode, _ = counted(decoder.network, input_ids=tokens(1), past_key_values=output.past_key_values, use_cache=True)
    assert expected_decode(decoder.model, PROMPT + 1) == pytest.approx(decode, rel=0.005)


def test_decoder_parameters(decoder: Reference) -> None:
    """Every weight of the reference is in some row; the router's correction is a buffer there."""
    held = sum(parameter.numel() for parameter in decoder.network.parameters())
    held += sum(
        buffer.numel() for name, buffer in decoder.network.named_buffers() if name.endswith("e_score_correction_bias")
    )
    assert parameter_counts(decoder.model).total == held


@pytest.fixture(scope="module", params=RECURRENT, ids=str)
def recurrent(request: pytest.FixtureRequest) -> Reference:
    """On the CPU, because these implementations look at values."""
    config_class, options = RECURRENT[request.param]
    return build(config_class, options, "AutoModelForCausalLM", device="cpu")


def test_recurrent_parameters(recurrent: Reference) -> None:
    held = sum(parameter.numel() for parameter in recurrent.network.parameters())
    assert parameter_counts(recurrent.model).total == held


def test_recurrent_projections(recurrent: Reference) -> None:
    """Plain products only: the reference's scans are written in other operators than any kernel's."""
    with torch.no_grad(), flop_counter.FlopCounterMode(display=False) as counter:
        recurrent.network(input_ids=tokens(PROMPT, device="cpu"), use_cache=False)
    flops = counter.get_flop_counts()["Global"]
    plain = sum(count for operator, count in flops.items() if str(operator) in ("aten.mm", "aten.addmm"))
    step = mixed_step(prefill_sequences=SEQUENCES, prefill_tokens=PROMPT, prefill_logits=SEQUENCES * PROMPT)
    rows = [row for row in rows_of(recurrent.model, step) if row.family in LINEAR]
    assert sum(row.count * row.flops[0] for row in rows) == pytest.approx(plain, rel=0.005)


@pytest.mark.parametrize(
    ("architecture", "factory", "unused"),
    [("BertForMaskedLM", "AutoModelForMaskedLM", "pooler"), ("BertModel", "AutoModel", "")],
)
def test_encoder(architecture: str, factory: str, unused: str) -> None:
    """BERT with its language-model head over every position, and with its pooler."""
    options = {**SIZES, "intermediate_size": 1024, "architectures": [architecture]}
    reference = build("BertConfig", options, factory)
    flops, _ = counted(reference.network, input_ids=tokens(PROMPT))
    step = mixed_step(prefill_sequences=SEQUENCES, prefill_tokens=PROMPT, prefill_logits=SEQUENCES * PROMPT)
    rows = tuple(row for row in rows_of(reference.model, step) if row.name != unused)
    assert as_written(rows) == pytest.approx(flops, rel=0.005)
    held = sum(parameter.numel() for parameter in reference.network.parameters())
    assert parameter_counts(reference.model).total == held


def test_encoder_decoder() -> None:
    """T5: encoder and first decoder token, then one token over a cache; source and answer are told apart."""
    options = {"d_model": 256, "d_kv": 32, "d_ff": 640, "num_layers": 2, "num_heads": 8, "vocab_size": 1024}
    reference = build("T5Config", {**options, "feed_forward_proj": "gated-gelu"}, "AutoModelForSeq2SeqLM")
    prefill, output = counted(reference.network, input_ids=tokens(SOURCE), decoder_input_ids=tokens(1), use_cache=True)
    step = mixed_step(prefill_sequences=SEQUENCES, prefill_tokens=SOURCE)
    assert as_written(rows_of(reference.model, step)) == pytest.approx(prefill, rel=0.005)
    decode, _ = counted(
        reference.network,
        encoder_outputs=(output.encoder_last_hidden_state,),
        decoder_input_ids=tokens(1),
        past_key_values=output.past_key_values,
        use_cache=True,
    )
    decoding = decode_step(sequences=SEQUENCES, context=SOURCE + 2, source_tokens=SOURCE)
    assert as_written(rows_of(reference.model, decoding)) == pytest.approx(decode, rel=0.005)


def test_causal_counts_are_half_of_the_reference_attention() -> None:
    """The one term where the list must be smaller: (T + 1) / 2T of the unmasked attention."""
    reference = build(*DECODERS["llama"], "AutoModelForCausalLM")
    rows = rows_of(reference.model, mixed_step(prefill_sequences=SEQUENCES, prefill_tokens=PROMPT))
    attention = [row for row in rows if isinstance(row.shape, AttentionShape)]
    causal = sum(row.count * row.flops for row in attention)
    full = sum(row.count * full_attention(row.shape) for row in attention)
    assert np.allclose(causal / full, (PROMPT + 1) / (2 * PROMPT))
