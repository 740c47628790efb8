"""What each method of speculation runs when a scenario says no more than its name.

References
----------
[Leviathan2023], [Chen2023b] draft model; [Li2024], [Li2024b] EAGLE and EAGLE-2; [Cai2024] Medusa; [Ankner2024] Hydra;
[Saxena2023] prompt lookup; [Yang2023] LLMA; [He2024] REST; [Fu2024] lookahead; [Stern2018] blockwise; [Xia2024]
Spec-Bench.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from simulator.specs.question.techniques import SpeculationMethod
from simulator.units import MILLI


class Drafter(StrEnum):
    """What drafts: a small model, one layer over the target's features, prediction layers of the checkpoint itself,
    heads on the target, or a lookup."""

    MODEL = "model"
    LAYER = "layer"
    PREDICTION = "prediction"
    HEADS = "heads"
    HOST = "host"
    FORWARD = "forward"


class Bookkeeping(StrEnum):
    """What has to be done around the forward passes: compare a chain, or build, check and compact a tree."""

    CHAIN = "chain"
    TREE = "tree"


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodTraits:
    """One method as its reference implementation runs it.

    k : longest run of guesses
    tree : guesses per depth, or their number, under the reference implementation; None verifies a chain of k
    tokens : mean tokens per verify step where the scenario gives no acceptance (Vicuna-7B, Spec-Bench, greedy), None
        where acceptance was fitted by position (hardware_profiles/calibration/acceptance.yaml)
    usual, measured : where ``k`` and ``tree``, and where ``tokens`` come from
    """

    drafter: Drafter
    bookkeeping: Bookkeeping
    k: int
    tokens: float | None = None
    usual: str
    measured: str
    tree: int | tuple[int, ...] | None = None


# The 63 paths of Medusa's mc_sim_7b_63: 10 guesses for the first position, 23, 23 and 7 for the next.
MEDUSA_TREE = (10, 23, 23, 7)
LOOKAHEAD_WINDOW = 7
LOOKAHEAD_GUESSES = 7

_MEASURED = "mean accepted tokens of Spec-Bench, Vicuna-7B"
METHODS: Mapping[SpeculationMethod, MethodTraits] = MappingProxyType(
    {
        "draft": MethodTraits(
            drafter=Drafter.MODEL,
            bookkeeping=Bookkeeping.CHAIN,
            k=5,
            tokens=2.28,
            usual="5 draft tokens, where assisted generation of transformers starts",
            measured=f"{_MEASURED} SpS, A100",
        ),
        "mtp": MethodTraits(
            drafter=Drafter.PREDICTION,
            bookkeeping=Bookkeeping.CHAIN,
            k=3,
            usual="3 guesses of one prediction layer, run once for each, as recipes of DeepSeek-R1 do",
            measured="closed loops of DeepSeek-R1 with and without it (InferenceX)",
        ),
        "eagle": MethodTraits(
            drafter=Drafter.LAYER,
            bookkeeping=Bookkeeping.TREE,
            k=5,
            tree=25,
            tokens=3.61,
            usual="EAGLE's static tree of 25 guesses, depth 5",
            measured=f"{_MEASURED} EAGLE, A100",
        ),
        "eagle2": MethodTraits(
            drafter=Drafter.LAYER,
            bookkeeping=Bookkeeping.TREE,
            k=6,
            tree=59,
            tokens=4.36,
            usual="EAGLE-2's dynamic tree of 60 tokens, depth 6, with its root",
            measured=f"{_MEASURED} EAGLE2, RTX 3090",
        ),
        "eagle3": MethodTraits(
            drafter=Drafter.LAYER,
            bookkeeping=Bookkeeping.TREE,
            k=3,
            usual="3 steps of one guess each, the first set-up of SpecForge's table",
            measured="accepted lengths of three models on SGLang (SpecForge)",
        ),
        "medusa": MethodTraits(
            drafter=Drafter.HEADS,
            bookkeeping=Bookkeeping.TREE,
            k=4,
            tree=MEDUSA_TREE,
            tokens=2.32,
            usual="Medusa's mc_sim_7b_63: 63 guesses, depth 4",
            measured=f"{_MEASURED} Medusa, A100",
        ),
        "hydra": MethodTraits(
            drafter=Drafter.HEADS,
            bookkeeping=Bookkeeping.TREE,
            k=4,
            tree=MEDUSA_TREE,
            tokens=3.24,
            usual="Medusa's tree, heads that see the guesses before theirs",
            measured=f"{_MEASURED} Hydra, A100",
        ),
        "ngram": MethodTraits(
            drafter=Drafter.HOST,
            bookkeeping=Bookkeeping.CHAIN,
            k=10,
            tokens=1.73,
            usual="10 tokens copied after a match, as prompt lookup decoding",
            measured=f"{_MEASURED} PLD, A100",
        ),
        "lookup": MethodTraits(
            drafter=Drafter.HOST,
            bookkeeping=Bookkeeping.CHAIN,
            k=10,
            tokens=1.73,
            usual="prompt lookup decoding, 10 tokens copied after a match",
            measured=f"{_MEASURED} PLD, A100",
        ),
        "llma": MethodTraits(
            drafter=Drafter.HOST,
            bookkeeping=Bookkeeping.CHAIN,
            k=10,
            tokens=1.73,
            usual="10 tokens copied from a reference, assumed as for prompt lookup",
            measured=f"{_MEASURED} PLD, A100",
        ),
        "rest": MethodTraits(
            drafter=Drafter.HOST,
            bookkeeping=Bookkeeping.TREE,
            k=10,
            tree=63,
            tokens=1.82,
            usual="REST: up to 64 draft tokens from the data store, runs of 10",
            measured=f"{_MEASURED} REST, A100",
        ),
        "lookahead": MethodTraits(
            drafter=Drafter.FORWARD,
            bookkeeping=Bookkeeping.TREE,
            k=4,
            tokens=1.66,
            usual="lookahead decoding's N = 5, W = 7, G = 7",
            measured=f"{_MEASURED} Lookahead, A100",
        ),
        "blockwise": MethodTraits(
            drafter=Drafter.HEADS,
            bookkeeping=Bookkeeping.CHAIN,
            k=7,
            tokens=2.32,
            usual="blocks of 8 (7 heads beside the model's own)",
            measured="tokens per step assumed as for Medusa's heads",
        ),
    }
)

# Draft models that people pair with a target: start of the target's profile name -> profile of the draft.
USUAL_DRAFTS: tuple[tuple[str, str], ...] = (
    ("llama-3", "llama-3.2-1b"),
    ("llama-4", "llama-3.2-1b"),
    ("llama-", "vicuna-68m"),
    ("qwen2.5", "qwen2.5-0.5b"),
    ("qwen3", "qwen3-0.6b"),
    ("opt-", "opt-125m"),
    ("gpt2", "gpt2"),
    ("gemma-3", "gemma-3-1b"),
    ("gemma-2-", "gemma-2-2b"),
    ("chinchilla", "chinchilla-4b"),
)

# Look-up of a continuation in REST's data store on the host, assumed: its authors report times around 1 ms [s].
RETRIEVAL_S = MILLI
TOKEN_BYTES = 4
