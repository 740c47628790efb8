"""Models of these tests, written as specs so that the operator list is tested apart from the readers."""

from __future__ import annotations

from simulator.specs.model.architecture import (
    AttentionSpec,
    EncoderSpec,
    GatedDeltaSpec,
    IndexerSpec,
    LayerSpec,
    Mamba2Spec,
    MambaSpec,
    MlaSpec,
    MlpSpec,
    ModelSpec,
    MoeSpec,
)


def dense(
    *, hidden: int, layers: int, heads: int, kv_heads: int, intermediate: int, vocab: int, tied: bool = False
) -> ModelSpec:
    mixer = AttentionSpec(num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=hidden // heads)
    return ModelSpec(
        name="dense",
        model_type="llama",
        hidden_size=hidden,
        vocab_size=vocab,
        layers=(LayerSpec(mixer=mixer, feed_forward=(MlpSpec(intermediate_size=intermediate),)),),
        layer_order=(0,) * layers,
        tie_word_embeddings=tied,
    )


LLAMA_2_7B = dense(hidden=4096, layers=32, heads=32, kv_heads=32, intermediate=11008, vocab=32000)
LLAMA_2_13B = dense(hidden=5120, layers=40, heads=40, kv_heads=40, intermediate=13824, vocab=32000)
LLAMA_31_8B = dense(hidden=4096, layers=32, heads=32, kv_heads=8, intermediate=14336, vocab=128256)
LLAMA_31_70B = dense(hidden=8192, layers=80, heads=64, kv_heads=8, intermediate=28672, vocab=128256)


def deepseek(*, sparse: bool = False, depth: int = 61) -> ModelSpec:
    """DeepSeek-V3's sizes; V3.2's with its indexer when ``sparse``."""
    indexer = IndexerSpec(index_n_heads=64, index_head_dim=128, index_topk=2048) if sparse else None
    mla = MlaSpec(
        num_attention_heads=128,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        indexer=indexer,
    )
    experts = MoeSpec(
        num_experts=256,
        num_experts_per_tok=8,
        moe_intermediate_size=2048,
        shared_expert_intermediate_size=2048,
        correction_bias=True,
    )
    return ModelSpec(
        name="deepseek",
        model_type="deepseek_v3",
        hidden_size=7168,
        vocab_size=129280,
        layers=(
            LayerSpec(mixer=mla, feed_forward=(MlpSpec(intermediate_size=18432),)),
            LayerSpec(mixer=mla, feed_forward=(experts,)),
        ),
        layer_order=(0,) * 3 + (1,) * (depth - 3),
    )


MIXTRAL_8X7B = ModelSpec(
    name="mixtral",
    model_type="mixtral",
    hidden_size=4096,
    vocab_size=32000,
    layers=(
        LayerSpec(
            mixer=AttentionSpec(num_attention_heads=32, num_key_value_heads=8, head_dim=128),
            feed_forward=(MoeSpec(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=14336),),
        ),
    ),
    layer_order=(0,) * 32,
)

_ATTENTION = AttentionSpec(num_attention_heads=8, num_key_value_heads=4, head_dim=16)
_MLP = (MlpSpec(intermediate_size=256),)

HYBRID = ModelSpec(
    name="hybrid",
    model_type="hybrid",
    hidden_size=128,
    vocab_size=1000,
    layers=(
        LayerSpec(mixer=MambaSpec(intermediate_size=256, state_size=16, conv_kernel=4, time_step_rank=8), norms=1),
        LayerSpec(
            mixer=Mamba2Spec(num_heads=8, head_dim=32, state_size=64, n_groups=8, conv_kernel=4, chunk_size=128),
            norms=1,
        ),
        LayerSpec(
            mixer=GatedDeltaSpec(
                linear_num_key_heads=4,
                linear_num_value_heads=8,
                linear_key_head_dim=32,
                linear_value_head_dim=32,
                linear_conv_kernel_dim=4,
            ),
            feed_forward=_MLP,
        ),
        LayerSpec(mixer=_ATTENTION, feed_forward=_MLP),
        LayerSpec(mixer=_ATTENTION.model_copy(update={"sliding_window": 100}), feed_forward=_MLP),
    ),
    layer_order=(0, 1, 2, 3, 0, 1, 2, 4),
)

ENCODER_DECODER = ModelSpec(
    name="encoder-decoder",
    model_type="t5",
    hidden_size=128,
    vocab_size=1000,
    layers=(
        LayerSpec(
            mixer=_ATTENTION,
            cross_attention=_ATTENTION.model_copy(update={"is_cross": True, "causal": False}),
            feed_forward=_MLP,
            norms=3,
        ),
    ),
    layer_order=(0, 0),
    encoder=EncoderSpec(
        layers=(LayerSpec(mixer=_ATTENTION.model_copy(update={"causal": False}), feed_forward=_MLP),),
        layer_order=(0, 0),
    ),
)

ENCODER_ONLY = ModelSpec(
    name="encoder",
    model_type="bert",
    hidden_size=128,
    vocab_size=1000,
    layers=(LayerSpec(mixer=_ATTENTION.model_copy(update={"causal": False}), feed_forward=_MLP),),
    layer_order=(0, 0),
    norm="layer",
    embedding_norm=True,
    final_norm=False,
    position_embeddings=512,
    token_types=2,
    has_lm_head=False,
    pooler=True,
)

ALL = (LLAMA_2_7B, LLAMA_31_70B, deepseek(), deepseek(sparse=True), MIXTRAL_8X7B, HYBRID, ENCODER_DECODER)
