"""Retrieval by late interaction over an encoder: what a document and a query cost ([Khattab2020], [Gao2021])."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from simulator.errors import RoofcastError, contradiction
from simulator.operators.transformer import is_encoder_only
from simulator.operators.work import prefill_step
from simulator.phases.deployment import Deployment
from simulator.phases.step import estimate_step
from simulator.records import dataclass
from simulator.units import BITS_PER_BYTE

Interaction = Literal["single_vector", "colbert", "coil", "cross_encoder"]
INTERACTIONS: tuple[Interaction, ...] = get_args(Interaction)
VECTOR_SIZES: dict[Interaction, int] = {"colbert": 128, "coil": 32}
"""Numbers of a token's vector [Khattab2020] [Gao2021], from memory, verify; that of a passage is the hidden state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalCost:
    """Cost of an index and of a query over its candidates on one replica.

    document_s : to encode one document offline, in batches [s]; index_bytes : of all documents, in vectors of
        ``vector_size`` numbers (0 without an index)
    query_s : to encode a query, or query and candidates together (cross encoder) [s]
    scoring_flops, scoring_bytes, scoring_s : similarity of the query with its candidates, at the plain roofline
    """

    vector_size: int
    document_s: float
    index_bytes: float
    query_s: float
    scoring_flops: float
    scoring_bytes: float
    scoring_s: float

    @property
    def total_query_s(self) -> float:
        """Encoding and scoring of one query [s]."""
        return self.query_s + self.scoring_s


def retrieval_cost(
    deployment: Deployment,
    *,
    interaction: Interaction,
    documents: float,
    candidates: float,
    document_tokens: int,
    query_tokens: int = 32,
    vector_size: int | None = None,
    vector_bits: float = 16.0,
    shared_tokens: float = 3.0,
    index_batch: int = 64,
) -> RetrievalCost:
    """Documents encoded once, queries on demand; what is stored and compared depends on ``interaction``.

    single_vector : one vector a document. colbert : one vector a token, the sum over query tokens of their largest
    product [Khattab2020]. coil : the same, but only tokens that occur in both are compared, ``shared_tokens`` a
    document [Gao2021]. cross_encoder : no index, every candidate passes the model with the query.
    vector_size : numbers of a stored vector, by default those of each method
    """
    if interaction not in INTERACTIONS:
        raise RoofcastError(f"no interaction {interaction!r}; allowed: {', '.join(INTERACTIONS)}", field="interaction")
    if not is_encoder_only(deployment.model):
        raise contradiction(f"{deployment.model.name} is no encoder", field="model", hint="such as bert-base")
    if interaction == "cross_encoder":
        both = query_tokens + document_tokens
        together = _pass_s(deployment, sequences=candidates, tokens=both)
        return RetrievalCost(
            vector_size=0,
            document_s=0.0,
            index_bytes=0.0,
            query_s=together,
            scoring_flops=0.0,
            scoring_bytes=0.0,
            scoring_s=0.0,
        )
    vectors = 1.0 if interaction == "single_vector" else float(document_tokens)
    compared = {"single_vector": 1.0, "colbert": query_tokens * vectors, "coil": shared_tokens}[interaction]
    read = {"single_vector": 1.0, "colbert": vectors, "coil": shared_tokens}[interaction]
    size = vector_size or VECTOR_SIZES.get(interaction, deployment.model.hidden_size)
    vector_bytes = size * vector_bits / BITS_PER_BYTE
    flops = candidates * compared * 2.0 * size
    moved = candidates * read * vector_bytes
    hardware = deployment.hardware
    peak = hardware.peak_flops_per_s[deployment.plan.plain.math]
    return RetrievalCost(
        vector_size=size,
        document_s=_pass_s(deployment, sequences=index_batch, tokens=document_tokens) / index_batch,
        index_bytes=documents * vectors * vector_bytes,
        query_s=_pass_s(deployment, sequences=1.0, tokens=query_tokens),
        scoring_flops=flops,
        scoring_bytes=moved,
        scoring_s=max(flops / peak, moved / hardware.memory_bytes_per_s) / deployment.parallelism.devices,
    )


def _pass_s(deployment: Deployment, *, sequences: float, tokens: int) -> float:
    step = prefill_step(sequences=np.array([sequences]), tokens=float(tokens))
    return float(estimate_step(deployment, step).step_s[0])
