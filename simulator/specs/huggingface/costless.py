"""Fields of Hugging Face configurations that change neither weights, FLOPs nor bytes of inference."""

from __future__ import annotations

_IDENTITY = (
    "_name_or_path architectures auto_map model_type transformers_version finetuning_task task_specific_params "
    "problem_type id2label label2id tokenizer_class prefix torchscript return_dict use_bfloat16 tf_legacy_loss "
    "is_decoder is_encoder_decoder name_or_path for_llm_compressor language base_model_tp_plan base_model_pp_plan"
)
_TOKENS = (
    "bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id cls_token_id mask_token_id "
    "decoder_start_token_id "
    "forced_bos_token_id forced_eos_token_id image_token_id video_token_id audio_token_id boi_token_id eoi_token_id "
    "boa_token_id eoa_token_id eoa_token_index boi_token_index eoi_token_index image_token_index video_token_index "
    "vision_start_token_id vision_end_token_id vision_token_id ignore_index media_placeholder_token_id "
    "image_placeholder video_placeholder pad_token bos_token eos_token mm_tokens_per_image "
    "vision_soft_tokens_per_image use_unified_vision_chunk image_token video_token"
)
_GENERATION = (
    "max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k "
    "top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids "
    "num_return_sequences output_scores return_dict_in_generate suppress_tokens begin_suppress_tokens "
    "exponential_decay_length_penalty remove_invalid_values use_cache num_logits_to_keep output_attentions "
    "output_hidden_states output_past output_router_logits chunk_size_feed_forward cross_attention_hidden_size "
    "cache_implementation gradient_checkpointing _attn_implementation attn_implementation "
    "_attn_implementation_autoset keys_to_ignore_at_inference use_flash_attn"
)
_TRAINING = (
    "initializer_range initializer_factor init_std init_method dropout attention_dropout activation_dropout "
    "hidden_dropout hidden_dropout_prob attention_probs_dropout_prob classifier_dropout classifier_dropout_prob "
    "resid_pdrop embd_pdrop attn_pdrop residual_dropout embedding_dropout dropout_rate layerdrop summary_type "
    "summary_use_proj summary_activation summary_first_dropout summary_proj_to_labels pretraining_tp "
    "router_aux_loss_coef aux_loss_alpha seq_aux router_z_loss_coef router_jitter_noise input_jitter_noise "
    "slow_but_exact skip_bias_add skip_bias_add_qkv masked_softmax_fusion bias_dropout_fusion "
    "attention_softmax_in_fp32 "
    "softmax_type unk_id n_positions_ids pruned_heads gradient_checkpointing_kwargs moe_dropout output_dropout"
)
_NUMERICS = (
    "rms_norm_eps layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_eps norm_epsilon hidden_act "
    "hidden_activation activation_function rope_theta rope_scaling rope_parameters rope_interleave rotary_pct "
    "rotary_emb_base partial_rotary_factor rotary_dim rope_local_base_freq original_max_position_embeddings "
    "original_seq_len initial_context_length attn_factor scale_attn_weights scale_attn_by_inverse_layer_idx "
    "reorder_and_upcast_attn query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping logit_scale "
    "logits_scaling residual_multiplier embedding_multiplier attention_multiplier routed_scaling_factor scoring_func "
    "norm_topk_prob n_group topk_group ep_size swiglu_limit swiglu_alpha residual_in_fp32 "
    "rescale_prenorm_residual time_step_min time_step_max time_step_floor time_step_limit time_step_scale "
    "time_step_init_scheme tie_encoder_decoder mrope_section rope_type apply_residual_connection_post_layernorm "
    "torch_dtype dtype"
)

COSTLESS = frozenset(f"{_IDENTITY} {_TOKENS} {_GENERATION} {_TRAINING} {_NUMERICS}".split())
"""Identity, token ids, generation defaults, training settings and scalars inside an elementwise pass."""
