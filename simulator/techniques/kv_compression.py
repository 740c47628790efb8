"""Bounded KV caches as a what-if: H2O, StreamingLLM, a sliding window ([Zhang2023], [Xiao2023b], [Beltagy2020])."""

from __future__ import annotations

from dataclasses import replace

from simulator.errors import contradiction, no_effect
from simulator.specs.base import Note
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import AttentionSpec, KeptTokensSpec, LayerSpec, ModelSpec
from simulator.specs.question.techniques import KvPolicySpec
from simulator.techniques.applied import AppliedTechniques

SINK_TOKENS = 4
"""First tokens that StreamingLLM keeps, part of the budget where nothing is said of them [Xiao2023b]."""


def bounded_cache(applied: AppliedTechniques, hardware: AcceleratorSpec) -> AppliedTechniques:
    """The scenario's ``kv_policy``: every layer with full attention keeps at most its budget of a sequence.

    Layers with a window of at most that many tokens, recurrent layers and latents stay as they are. A window also
    bounds what prompts attend to, as does streaming; H2O sees the prompt in full and drops tokens after it.
    """
    policy = applied.spec.kv_policy
    if policy is None:
        return applied
    tokens = policy.kept_tokens
    if policy.method == "streaming" and policy.sinks is None and tokens is not None and tokens <= SINK_TOKENS:
        raise contradiction(
            f"streaming keeps the first {SINK_TOKENS} tokens within its budget of {tokens}",
            field="techniques.kv_policy.budget_tokens",
            hint=f"more than {SINK_TOKENS}",
        )
    model = applied.model
    layers = tuple(_bounded_layer(layer, policy) for layer in model.layers)
    if layers == model.layers:
        raise no_effect(
            f"{policy} changes nothing in {model.name}: {_why(model)}",
            field="techniques.kv_policy",
            hint="leave it out, or choose a model whose attention keeps more tokens",
        )
    notes = applied.notes
    if policy.method != "window":
        notes = (*notes, Note("own_blocks", {"method": policy.method}))
    return replace(applied, model=model.model_copy(update={"layers": layers}), notes=notes)


def _bounded_layer(layer: LayerSpec, policy: KvPolicySpec) -> LayerSpec:
    mixer = layer.mixer
    if not isinstance(mixer, AttentionSpec) or not mixer.causal or mixer.indexer is not None:
        return layer
    tokens = policy.kept_tokens
    if mixer.sliding_window is not None and (tokens is None or mixer.sliding_window <= tokens):
        return layer
    if policy.method == "window":
        changed = mixer.model_copy(update={"sliding_window": tokens})
    else:
        kept = KeptTokensSpec(method=policy.method, budget_tokens=tokens, budget_fraction=policy.budget_fraction)
        changed = mixer.model_copy(update={"kept": kept, "sliding_window": None})
    return layer.model_copy(update={"mixer": changed})


def _why(model: ModelSpec) -> str:
    kinds = {layer.mixer.kind for layer in model.layers if layer.mixer is not None}
    if "mla" in kinds:
        return "it caches one latent a token, from which no method here is known to drop tokens"
    if "compressed" in kinds:
        return "it caches pooled entries, from which no method here is known to drop any"
    if "attention" not in kinds:
        return "it has no attention layers"
    mixers = [layer.mixer for layer in model.layers if isinstance(layer.mixer, AttentionSpec)]
    if not any(mixer.causal for mixer in mixers):
        return "its attention sees both directions and caches nothing"
    if all(mixer.indexer is not None for mixer in mixers):
        return "its indexer chooses keys already"
    windows = sorted({mixer.sliding_window for mixer in mixers if mixer.sliding_window})
    return f"its layers keep no more than that (windows of {', '.join(str(size) for size in windows)} tokens)"
