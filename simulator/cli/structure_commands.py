"""``roofcast retrieval`` and ``roofcast mixers``: questions about other structures than a decoder's."""

from __future__ import annotations

from typing import Annotated

import typer

from simulator.cli.step_command import AsJson, Profiles


def retrieval(
    model: Annotated[str, typer.Option("--model", "-m", help="An encoder: name, Hugging Face id or config.json.")],
    hardware: Annotated[str, typer.Option("--hardware", help="Accelerator name, alias or YAML file.")] = "a100",
    documents: Annotated[float, typer.Option("--documents", min=1, help="Documents in the index.")] = 100_000,
    candidates: Annotated[float, typer.Option("--candidates", min=1, help="Documents that a query scores.")] = 1000,
    document_tokens: Annotated[int, typer.Option("--document-tokens", min=1, help="Tokens of a document.")] = 128,
    query_tokens: Annotated[int, typer.Option("--query-tokens", min=1, help="Tokens of a query.")] = 32,
    vector_size: Annotated[int, typer.Option("--vector-size", min=1, help="Numbers of a stored vector.")] = 128,
    as_json: AsJson = False,
    profiles: Profiles = None,
) -> None:
    """Compare late interaction (ColBERT, COIL) with one vector a document and with a cross encoder.

    Example: roofcast retrieval --model bert-base --hardware a100 --documents 1000000 --document-tokens 180
    """
    from simulator.cli.structure import RetrievalQuestion, print_retrieval

    question = RetrievalQuestion(
        model=model,
        hardware=hardware,
        documents=documents,
        candidates=candidates,
        document_tokens=document_tokens,
        query_tokens=query_tokens,
        vector_size=vector_size,
    )
    print_retrieval(question, as_json=as_json, profiles=profiles)


def mixers(
    width: Annotated[int, typer.Option("--width", min=1, help="Channels of the layer.")] = 4096,
    tokens: Annotated[list[int] | None, typer.Option("--tokens", min=1, help="Lengths; repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare how attention, recurrence, linear attention and FFT convolution grow with the length.

    Example: roofcast mixers --width 4096 --tokens 1024 --tokens 131072
    """
    from simulator.cli.structure import print_mixers

    print_mixers(width=width, tokens=tuple(tokens or (1024, 16384, 262144)), as_json=as_json)
