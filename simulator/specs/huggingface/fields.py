"""Strict reading of one Hugging Face configuration: every field is used, known to be free of cost, or refused.

Fields of Hugging Face configurations that change neither weights, FLOPs nor bytes of inference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from simulator.errors import RoofcastError, did_you_mean, shown
from simulator.units import GIGA

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
    "image_start_token_id image_end_token_id video_start_token_id video_end_token_id "
    "image_placeholder video_placeholder pad_token bos_token eos_token use_unified_vision_chunk image_token "
    "video_token audio_start_token_id audio_end_token_id audio_token_index user_token_id position_id_per_seconds "
    "seconds_per_chunk"
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
    "attention_softmax_in_fp32 scale_attention_softmax_in_fp32 unsloth_fixed "
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


MAX_LAYERS = 1_000
LARGEST_SIZE = int(GIGA)
"""Far above every width, vocabulary and number of positions."""


class Fields:
    """A configuration whose fields are read once each; ``finish`` refuses fields that no reader used.

    ``config_class`` names the transformers class whose documented defaults the readers may fill in.
    A null value counts as absent, as it does there.
    """

    def __init__(self, config: Mapping[str, object], *, config_class: str, path: str = "") -> None:
        self._config = config
        self._path = path
        self._read: set[str] = set()
        self._filled: dict[str, int] = {}
        self._sections: list[Fields] = []
        self.config_class = config_class

    def _name(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def refusal(self, name: str, message: str, *, hint: str = "") -> RoofcastError:
        """An error about ``name`` that a reader may raise."""
        return RoofcastError(message, field=self._name(name), code="invalid_model_config", hint=hint)

    def _take(self, name: str) -> object:
        self._read.add(name)
        return self._config.get(name)

    def has(self, name: str) -> bool:
        """Whether ``name`` is given and not null."""
        return self._config.get(name) is not None

    def either(self, *names: str) -> str:
        """The first of ``names`` that is given, otherwise the first; two given with different values are refused."""
        given = [name for name in names if self.has(name)]
        for name in given[1:]:
            if self._take(name) != self._config[given[0]]:
                raise self.refusal(name, f"is {self._config[name]!r} but {given[0]} is {self._config[given[0]]!r}")
        return given[0] if given else names[0]

    def size(self, name: str, *, default: int | None = None) -> int:
        """A positive integer; without ``default`` it must be given."""
        value = self.optional_size(name)
        if value is not None:
            return value
        if default is None:
            raise self.refusal(
                name,
                "is missing, and the shape of the model cannot be known without it",
                hint=f"{self.config_class} needs it; take the complete config.json of the checkpoint",
            )
        self._filled[name] = default
        return default

    def depth(self, name: str, *, default: int | None = None) -> int:
        """A number of layers; bounded, because one entry per layer is made of it."""
        value = self.size(name, default=default)
        if value > MAX_LAYERS:
            raise self.refusal(name, f"is {value}, allowed are 1 to {MAX_LAYERS} layers")
        return value

    def optional_size(self, name: str) -> int | None:
        """A positive integer or None."""
        value = self.optional_count(name)
        if value == 0:
            raise self.refusal(name, "is 0, allowed are integers of at least 1")
        return value

    def optional_count(self, name: str) -> int | None:
        """An integer of at least 0, or None."""
        value = self._take(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refusal(name, f"is {shown(value)}, allowed are integers")
        if not 0 <= value <= LARGEST_SIZE:
            raise self.refusal(name, f"is {shown(value)}, allowed are integers of 0 to {LARGEST_SIZE:,}")
        return value

    def count(self, name: str, *, default: int = 0) -> int:
        """An integer of at least 0."""
        value = self.optional_count(name)
        return default if value is None else value

    def number(self, name: str, *, default: float) -> float:
        """A positive finite number."""
        value = self._take(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self.refusal(name, f"is {shown(value)}, allowed are positive finite numbers")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """A boolean."""
        value = self._take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refusal(name, f"is {shown(value)}, allowed are true and false")
        return value

    def text(self, name: str, *, allowed: Iterable[str], default: str | None = None) -> str:
        """One of the ``allowed`` words; without ``default`` it must be given."""
        value = self._take(name)
        choices = tuple(allowed)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or value not in choices:
            hint = did_you_mean(str(value), choices)
            raise self.refusal(name, f"is {shown(value)}, understood are {', '.join(choices)}", hint=hint)
        return value

    def words(self, name: str, *, length: int, allowed: Iterable[str]) -> tuple[str, ...] | None:
        """A list of one allowed word per layer, or None."""
        value = self._take(name)
        if value is None:
            return None
        choices = frozenset(allowed)
        if not isinstance(value, list | tuple) or len(value) != length:
            raise self.refusal(name, f"must be a list of {length} entries, one per layer")
        for word in value:
            if not isinstance(word, str) or word not in choices:
                raise self.refusal(name, f"holds {shown(word)}, understood are {', '.join(sorted(choices))}")
        return tuple(value)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A list of integers of at least 0, or None."""
        value = self._take(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or any(
            type(item) is not int or not 0 <= item <= LARGEST_SIZE for item in value
        ):
            raise self.refusal(name, f"must be a list of integers of 0 to {LARGEST_SIZE:,}")
        return tuple(value)

    def expect(self, name: str, *, value: object, why: str) -> None:
        """Accept ``name`` only where it is absent, null or equal to ``value``."""
        given = self._take(name)
        if given is not None and given != value:
            raise self.refusal(name, f"is {shown(given)}, understood is only {shown(value)}: {why}")

    def raw(self, name: str) -> object:
        """The unchecked value, for a reader that checks it itself."""
        return self._take(name)

    def peek(self, section: str, name: str) -> object:
        """A value inside a nested object, without counting it as read."""
        nested = self._config.get(section)
        return nested.get(name) if isinstance(nested, Mapping) else None

    def section(self, name: str) -> Fields:
        """A nested object, as fields of their own that must be used up too."""
        value = self._take(name)
        if not isinstance(value, Mapping):
            raise self.refusal(name, f"must be an object, got {type(value).__name__}")
        nested = Fields(value, config_class=self.config_class, path=self._name(name))
        self._sections.append(nested)
        return nested

    def all_sections(self) -> tuple[Fields, ...]:
        """Every field as a nested object, for objects keyed by layer."""
        return tuple(self.section(name) for name in self._config)

    def sections(self, name: str, *, length: int) -> tuple[Fields, ...]:
        """A list of nested objects, one per layer."""
        value = self._take(name)
        if not isinstance(value, list) or len(value) != length or not all(isinstance(item, Mapping) for item in value):
            raise self.refusal(name, f"must be a list of {length} objects, one per layer")
        nested = tuple(
            Fields(item, config_class=self.config_class, path=f"{self._name(name)}[{index}]")
            for index, item in enumerate(value)
        )
        self._sections.extend(nested)
        return nested

    def costless(self, *names: str) -> None:
        """Declare family fields that change neither weights, FLOPs nor bytes."""
        self._read.update(names)

    def costless_rest(self) -> None:
        """Declare everything not read so far free of cost (towers that are stored and never run)."""
        self._read.update(self._config)

    def filled(self) -> tuple[str, ...]:
        """Sizes that were taken from the configuration class, as "name=value"."""
        own = tuple(f"{name}={value}" for name, value in self._filled.items())
        return own + tuple(item for nested in self._sections for item in nested.filled())

    def finish(self) -> None:
        """Refuse the first field that no reader used and that is not known to be free of cost."""
        for given, value in self._config.items():
            name = str(given)
            if value is not None and name not in self._read and name not in COSTLESS:
                raise self.refusal(
                    name,
                    f"is {shown(value)}, a field that {self.config_class} is not known "
                    "to have and that could change the cost",
                    hint=did_you_mean(name, self._read) + " Remove it if it changes neither weights nor FLOPs",
                )
        for nested in self._sections:
            nested.finish()
