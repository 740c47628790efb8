"""Options that say what answered a benchmark, of every command that reads one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from simulator.api.questions import ServedFields


_PANEL = "What served (with --from)"


def _option(*flags: str, text: str, metavar: str | None = None, least: int | None = None) -> object:
    return typer.Option(*flags, min=least, metavar=metavar, help=text, rich_help_panel=_PANEL)


def _whole(flag: str, text: str) -> object:
    """An option that takes a whole number from 1 on."""
    return _option(flag, text=text, metavar="N", least=1)


def served_group(
    model: Annotated[str | None, _option("--model", "-m", text="The model.")] = None,
    tp_size: Annotated[int | None, _whole("--tp", "Tensor-parallel size.")] = None,
    pp_size: Annotated[int | None, _whole("--pp", "Pipeline stages.")] = None,
    dp_size: Annotated[int | None, _whole("--dp", "Ranks of data-parallel attention.")] = None,
    ep_size: Annotated[int | None, _whole("--ep", "Devices that share the experts.")] = None,
    cp_size: Annotated[int | None, _whole("--cp", "Ranks that share a prompt's tokens.")] = None,
    engine: Annotated[str | None, _option("--engine", text="Engine profile.")] = None,
    weights: Annotated[str | None, _option("--weights", text="Number format of the weights.")] = None,
    kv_cache: Annotated[str | None, _option("--kv-cache", text="Number format of the KV cache.")] = None,
    scheme: Annotated[str | None, _option("--scheme", text="Quantization method, such as gptq-g128.")] = None,
    max_num_seqs: Annotated[int | None, _whole("--max-num-seqs", "Batch limit of the engine.")] = None,
    max_num_batched_tokens: Annotated[int | None, _whole("--max-num-batched-tokens", "Token budget of a step.")] = None,
    max_model_len: Annotated[int | None, _whole("--max-model-len", "Longest request in tokens.")] = None,
    gpu_memory_utilization: Annotated[
        float | None, _option("--gpu-memory-utilization", text="Share of memory the engine uses.")
    ] = None,
    system_prompt_tokens: Annotated[
        int | None, _whole("--system-prompt-tokens", "That all prompts begin with.")
    ] = None,
) -> None:
    """What answered the benchmark."""


def served_of(values: Mapping[str, Any]) -> ServedFields:
    """The options that were given."""
    names = (*served_group.__annotations__,)
    given: ServedFields = {name: values[name] for name in names if values.get(name) is not None}  # type: ignore[assignment]
    return given
