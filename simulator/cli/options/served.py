"""Options that say what served a benchmark: ``roofcast calibrate --from`` and ``roofcast validate --from``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from simulator.api.questions import ServedFields

_PANEL = "What served (with --from)"


def served_group(
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="The model; without it the one that the file names.", rich_help_panel=_PANEL
        ),
    ] = None,
    tp_size: Annotated[
        int | None, typer.Option("--tp", min=1, help="Tensor-parallel size.", rich_help_panel=_PANEL)
    ] = None,
    pp_size: Annotated[int | None, typer.Option("--pp", min=1, help="Pipeline stages.", rich_help_panel=_PANEL)] = None,
    dp_size: Annotated[
        int | None, typer.Option("--dp", min=1, help="Ranks of data-parallel attention.", rich_help_panel=_PANEL)
    ] = None,
    ep_size: Annotated[
        int | None, typer.Option("--ep", min=1, help="Devices that share the experts.", rich_help_panel=_PANEL)
    ] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", help="Engine profile (vllm).", rich_help_panel=_PANEL)
    ] = None,
    weights: Annotated[
        str | None, typer.Option("--weights", help="Number format of the weights.", rich_help_panel=_PANEL)
    ] = None,
    kv_cache: Annotated[
        str | None, typer.Option("--kv-cache", help="Number format of the KV cache.", rich_help_panel=_PANEL)
    ] = None,
    scheme: Annotated[
        str | None, typer.Option("--scheme", help="Quantization method, such as gptq-g128.", rich_help_panel=_PANEL)
    ] = None,
    max_num_seqs: Annotated[
        int | None, typer.Option("--max-num-seqs", min=1, help="Batch limit of the engine.", rich_help_panel=_PANEL)
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option("--max-num-batched-tokens", min=1, help="Token budget of a step.", rich_help_panel=_PANEL),
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option("--max-model-len", min=1, help="Longest request in tokens.", rich_help_panel=_PANEL)
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None,
        typer.Option("--gpu-memory-utilization", help="Share of memory the engine uses.", rich_help_panel=_PANEL),
    ] = None,
    system_prompt_tokens: Annotated[
        int | None,
        typer.Option("--system-prompt-tokens", min=1, help="That all prompts begin with.", rich_help_panel=_PANEL),
    ] = None,
) -> None:
    """What answered the benchmark."""


def served_of(values: Mapping[str, Any]) -> ServedFields:
    """The options that were given."""
    names = (*served_group.__annotations__,)
    given: ServedFields = {name: values[name] for name in names if values.get(name) is not None}  # type: ignore[assignment]
    return given
