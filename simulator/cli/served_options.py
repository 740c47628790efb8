"""Options that say what answered a benchmark, of every command that reads one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from simulator.cli.shared import own_options

if TYPE_CHECKING:
    from simulator.api.questions import ServedFields


SERVED = own_options(
    ("model", str, "The model."),
    ("tp_size", int, "Tensor-parallel size."),
    ("pp_size", int, "Pipeline stages."),
    ("dp_size", int, "Ranks of data-parallel attention."),
    ("ep_size", int, "Devices that share the experts."),
    ("cp_size", int, "Ranks that share a prompt's tokens."),
    ("engine", str, "Engine profile."),
    ("weights", str, "Number format of the weights."),
    ("kv_cache", str, "Number format of the KV cache."),
    ("scheme", str, "Quantization method, such as gptq-g128."),
    ("max_num_seqs", int, "Batch limit of the engine."),
    ("max_num_batched_tokens", int, "Token budget of a step."),
    ("max_model_len", int, "Longest request in tokens."),
    ("gpu_memory_utilization", float, "Share of memory the engine uses."),
    ("system_prompt_tokens", int, "That all prompts begin with."),
    panel="What served (with --from)",
)


def served_of(values: Mapping[str, Any]) -> ServedFields:
    """The options that were given."""
    given = {item.name: values[item.name] for item in SERVED if values.get(item.name) is not None}
    return given  # type: ignore[return-value]
