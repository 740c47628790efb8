"""How device memory divides (weights, activations, reserve, KV cache), and how sure the room for the cache is."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.kernels.timing import Provenance
from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.operators.parallelism import (
    KvLayers,
    kv_bytes_per_sequence,
    kv_bytes_per_token,
    largest_kv_stage,
    state_bytes_per_sequence,
)
from simulator.operators.transformer import stored_bytes
from simulator.operators.work import prefill_step
from simulator.phases.deployment import Deployment, without_speculation
from simulator.records import dataclass
from simulator.specs.base import Same
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import MemoryRule
from simulator.specs.model.architecture import MlpSpec, ModelSpec, MoeSpec
from simulator.specs.model.precision import BITS
from simulator.specs.question.techniques import TechniquesSpec
from simulator.techniques.applied import AppliedTechniques, device_rows
from simulator.units import BITS_PER_BYTE

Array = NDArray[np.float64]

STATES_SHARE = 0.9 / 1.9
"""Of the cache that recurrent states take at most beside a growing KV cache: SGLang 0.5.6 gives them 0.9 of what the KV
cache gets (mamba_full_memory_ratio). vLLM keeps both in the same blocks, which short requests divide about so too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Memory of the fullest device of a replica [bytes, tokens].

    weights_bytes : of the largest pipeline stage's share
    kv_bytes_per_token : that one cached token takes on this device
    state_bytes_per_sequence : recurrent states, per sequence
    activation_bytes : peak while a full batch of max_num_batched_tokens runs, and of sampling
    reserve_bytes : what the runtime takes outside the tensors
    kv_capacity_bytes, kv_capacity_tokens, kv_blocks : what is left for the cache
    running_sequences : that may run at once: the engine's limit, or fewer where their recurrent states take too much
    shortfall_bytes : by how much weights, activations and reserve exceed the budget; 0 when they fit
    draft_weights_bytes, draft_kv_bytes_per_token : how much of the two is a drafter's (speculation)
    """

    budget_bytes: float
    weights_bytes: float
    kv_bytes_per_token: float
    state_bytes_per_sequence: float
    activation_bytes: float
    reserve_bytes: float
    kv_capacity_bytes: float
    kv_capacity_tokens: int
    kv_blocks: int
    running_sequences: int
    shortfall_bytes: float
    draft_weights_bytes: float = 0.0
    draft_kv_bytes_per_token: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether the model leaves room for at least one block of cache."""
        return self.shortfall_bytes == 0 and (self.kv_blocks > 0 or self.kv_bytes_per_token == 0)


def stage_weights_bytes(deployment: Deployment) -> tuple[float, ...]:
    """Weight bytes of one device in each pipeline stage, from the same operator list that is timed [bytes]."""
    techniques, parallelism = deployment.techniques, deployment.parallelism
    if techniques.rules or techniques.prefix_tokens:
        return _stage_weights_bytes(techniques, parallelism)
    return _plain_weights_bytes(Same(techniques.model), techniques.plan, parallelism)


@lru_cache(maxsize=256)
def _plain_weights_bytes(
    model: Same[ModelSpec], plan: PrecisionPlan, parallelism: ParallelismSpec
) -> tuple[float, ...]:
    """Without rules nothing depends on the hardware or on a technique that left model and formats as they were."""
    applied = AppliedTechniques(spec=TechniquesSpec(), model=model.held, plan=plan)
    return _stage_weights_bytes(applied, parallelism)


def _stage_weights_bytes(techniques: AppliedTechniques, parallelism: ParallelismSpec) -> tuple[float, ...]:
    step = prefill_step(sequences=1, tokens=1)
    return tuple(
        stored_bytes(device_rows(techniques, parallelism=parallelism, step=step, stage=stage))
        for stage in range(parallelism.pp_size)
    )


def _target_weights_bytes(deployment: Deployment) -> float:
    """Weights of the fullest device without what speculation adds [bytes]."""
    if deployment.speculation is None:
        return max(stage_weights_bytes(deployment))
    return max(stage_weights_bytes(without_speculation(deployment)))


def drafter_weights_bytes(deployment: Deployment) -> float:
    """Weights that speculation adds to the fullest device [bytes]; heads stand on the last pipeline stage."""
    speculation = deployment.speculation
    if speculation is None:
        return 0.0
    plain = _target_weights_bytes(deployment)
    return max(stage_weights_bytes(deployment)) - plain + speculation.weights_bytes


def _widest_activation_elements(deployment: Deployment) -> float:
    """Elements per token that are alive at the widest point of a layer: residual, input and the widest product."""
    tp_size = deployment.parallelism.tp_size
    widest = 0.0
    for layer in deployment.model.layers:
        for block in layer.feed_forward:
            match block:
                case MlpSpec(intermediate_size=size, gated=gated):
                    widest = max(widest, size * (2 + 1 if gated else 2) / tp_size)
                case MoeSpec(moe_intermediate_size=size, num_experts_per_tok=topk, gated=gated):
                    widest = max(
                        widest, topk * (size * (2 + 1 if gated else 2) / tp_size + deployment.model.hidden_size)
                    )
    return 2 * deployment.model.hidden_size + widest


def activation_bytes(deployment: Deployment, *, tokens: Array | float, sequences: Array | float) -> Array:
    """Peak of the engine's profiling run: a full batch in the widest layer, and sampling of every sequence [bytes].

    Equation
    --------
    A = T x widest x e + min(S, T[, G]) x V x sampler bytes [+ attention scores]

    Parameters
    ----------
    deployment : limit G of the engine's CUDA graphs [-], elements per token at the widest point of a layer [-],
        element size e [bytes], vocabulary V [-], sampler_bytes_per_logit [bytes]
    tokens, sequences : token budget T and sequence limit S [-], broadcast

    Range of validity
    -----------------
    Engines that profile a full batch at start; one that sets a fixed share aside provides for the sequences of its
    largest CUDA graph. The scores count where attention keeps them in memory (standard
    attention). Leaves out fragmentation and the allocator's caches.

    References
    ----------
    [Kwon2023]

    Examples
    --------
    Twice the tokens, the sequences and the bytes.

    >>> from simulator import deploy, load_hardware, load_model
    >>> replica = deploy(model=load_model("llama-3.1-8b"), hardware=load_hardware("h100"))
    >>> once = activation_bytes(replica, tokens=4096, sequences=512)
    >>> float(activation_bytes(replica, tokens=8192, sequences=1024) / once)
    2.0
    """
    engine = deployment.engine
    element_bytes = BITS[deployment.plan.activation_dtype] / BITS_PER_BYTE
    layer_bytes = tokens / deployment.parallelism.cp_size * _widest_activation_elements(deployment) * element_bytes
    sampled = np.minimum(sequences, tokens)
    if engine.memory_rule == "static":
        sampled = np.minimum(sampled, engine.cuda_graph_max_sequences)
    if deployment.techniques.spec.attention == "standard":
        from simulator.techniques.attention_kernel import score_bytes

        layer_bytes += score_bytes(
            deployment.model,
            tokens=tokens,
            keys=tokens,
            tp_size=deployment.parallelism.tp_size,
            element_bytes=element_bytes,
        )
    logit_bytes = engine.overheads.sampler_bytes_per_logit if deployment.model.has_lm_head else 0.0
    return layer_bytes + sampled * deployment.model.vocab_size * logit_bytes


def rest_for_cache(
    rule: MemoryRule, *, share: float | Array, visible: float, weights: float, beside: float | Array
) -> Array:
    """What the engine's share of ``visible`` leaves after ``weights`` and ``beside``, below 0 without fit [bytes]."""
    free: Array = np.asarray(visible - weights - beside)
    match rule:
        case "of_total":
            rest: Array = free - visible * (1 - np.asarray(share))
        case "static":
            rest = np.minimum(visible * share - weights, free)
        case "of_free":
            rest = np.where(free > 0, free * share, free)
    return rest


def token_cache_bytes(deployment: Deployment) -> float:
    """What the model keeps of each cached token on a device, while no window is full [bytes]."""
    tp_size, pp_size, cp_size = _cache_degrees(deployment)
    return kv_bytes_per_token(deployment.model, plan=deployment.plan, tp_size=tp_size, pp_size=pp_size, cp_size=cp_size)


def cached_layers(deployment: Deployment) -> tuple[KvLayers, ...]:
    """The layers whose bytes `token_cache_bytes` adds up, before ranks that share a sequence's tokens divide them."""
    tp_size, pp_size, _ = _cache_degrees(deployment)
    return largest_kv_stage(deployment.model, plan=deployment.plan, tp_size=tp_size, pp_size=pp_size)


def kept_bytes(deployment: Deployment, *, tokens: ArrayLike) -> Array:
    """What the model keeps of sequences of so many cached tokens on a device, recurrent states included [bytes]."""
    tp_size, pp_size, cp_size = _cache_degrees(deployment)
    return kv_bytes_per_sequence(
        deployment.model, plan=deployment.plan, tp_size=tp_size, pp_size=pp_size, cp_size=cp_size, context_tokens=tokens
    )


def _cache_degrees(deployment: Deployment) -> tuple[int, int, int]:
    degrees = deployment.parallelism
    return degrees.tp_size, degrees.pp_size, degrees.cp_size


def _reserve_bytes(deployment: Deployment) -> float:
    """What the runtime takes outside the tensors [bytes]."""
    overheads = deployment.engine.overheads
    collective = overheads.collective_reserve_bytes if deployment.parallelism.devices > 1 else 0.0
    return overheads.reserve_bytes + collective


def memory_plan(deployment: Deployment) -> MemoryPlan:
    """How the memory of the fullest device divides [bytes].

    Equation
    --------
    cache = budget - weights - activations - reserve
    blocks = floor((cache - running x state) / (KV bytes per token x block size))
    running = min(S, floor(share x cache / state)), share = 1 where nothing grows

    Parameters
    ----------
    deployment : its engine's share of the memory and what that is a share of, its limit S of sequences [-], its model's
        weights, KV bytes per token and recurrent state per sequence [bytes]

    Range of validity
    -----------------
    Any deployment; one that is too large is not refused, its ``shortfall_bytes`` says by how much. Leaves out
    fragmentation.

    References
    ----------
    [Kwon2023]

    Examples
    --------
    (0.9 x 85.04 - 16.06 - 7.14 - 0.32) GB in blocks of 16 tokens with 131,072 bytes.

    >>> from simulator import deploy, load_hardware, load_model
    >>> replica = deploy(model=load_model("llama-3.1-8b"), hardware=load_hardware("h100"))
    >>> memory_plan(replica).kv_blocks
    25278
    """
    engine = deployment.engine
    drafter = drafter_weights_bytes(deployment)
    weights = _target_weights_bytes(deployment) + drafter
    drafted = deployment.speculation.kv_bytes_per_token if deployment.speculation else 0.0
    per_token, (tp_size, pp_size, _) = token_cache_bytes(deployment) + drafted, _cache_degrees(deployment)
    state = state_bytes_per_sequence(deployment.model, plan=deployment.plan, tp_size=tp_size, pp_size=pp_size)
    tokens, sequences = engine.max_num_batched_tokens, engine.max_num_seqs
    activations = float(activation_bytes(deployment, tokens=tokens, sequences=sequences))
    reserve = _reserve_bytes(deployment)
    visible = deployment.hardware.memory_visible_bytes
    share, rule = engine.gpu_memory_utilization, engine.memory_rule
    left = float(rest_for_cache(rule, share=share, visible=visible, weights=weights, beside=activations + reserve))
    capacity = max(0.0, left)
    running = engine.max_num_seqs
    if state:
        running = max(1, min(running, int(capacity * (STATES_SHARE if per_token else 1.0) // state)))
    # Recurrent states are set aside for every sequence that may run at once.
    for_tokens = max(0.0, capacity - running * state)
    blocks = int(for_tokens // (per_token * engine.block_size_tokens)) if per_token else 0
    return MemoryPlan(
        budget_bytes=visible if rule == "of_free" else visible * share,
        weights_bytes=weights,
        kv_bytes_per_token=per_token,
        state_bytes_per_sequence=state,
        activation_bytes=activations,
        reserve_bytes=reserve,
        kv_capacity_bytes=capacity,
        kv_capacity_tokens=blocks * engine.block_size_tokens,
        kv_blocks=blocks,
        running_sequences=running,
        shortfall_bytes=max(0.0, -left),
        draft_weights_bytes=drafter,
        draft_kv_bytes_per_token=drafted,
    )


def sequence_cache_bytes(deployment: Deployment, memory: MemoryPlan, *, tokens: float) -> float:
    """What a sequence of ``tokens`` cached tokens takes of the cache of a device [bytes]. Layers with a window keep no
    more than it, recurrent states count once per sequence, drafters keep a cache too."""
    engine = deployment.engine
    # What the last block of a sequence wastes is little, unless one piece holds the longest request.
    if engine.block_size_tokens >= engine.max_model_len:
        tokens = max(tokens, float(engine.block_size_tokens))
    each = kept_bytes(deployment, tokens=tokens)[0]
    return float(each + memory.draft_kv_bytes_per_token * tokens)


def sequences_that_fit(deployment: Deployment, memory: MemoryPlan, *, tokens: float) -> float:
    """How many sequences of ``tokens`` cached tokens the cache holds; infinite when they keep nothing."""
    each = sequence_cache_bytes(deployment, memory, tokens=tokens)
    return float(memory.kv_capacity_bytes // each) if each else float("inf")


MOST_UTILIZATION = 0.95
"""The largest share of the memory that launch scripts set (SGLang's --mem-fraction-static, DeepSeek-R1 in FP8 on four
B200 of InferenceX); beyond it fragmentation and the driver decide."""


def utilization_that_holds(deployment: Deployment, memory: MemoryPlan, *, tokens: float) -> float | None:
    """Smallest larger gpu_memory_utilization, in hundredths up to ``MOST_UTILIZATION``, whose cache holds a sequence of
    ``tokens`` tokens; None where none does."""
    engine = deployment.engine
    first = int(100 * engine.gpu_memory_utilization) + 1
    shares = np.arange(first, int(100 * MOST_UTILIZATION) + 1) / 100
    left = rest_for_cache(
        engine.memory_rule,
        share=shares,
        visible=deployment.hardware.memory_visible_bytes,
        weights=memory.weights_bytes,
        beside=memory.activation_bytes + memory.reserve_bytes,
    )
    enough = shares[left > sequence_cache_bytes(deployment, memory, tokens=tokens)]
    return float(enough[0]) if enough.size else None


LEAST_SHARE, LARGEST_SHARE = -0.0442, 0.0058
"""The smallest and the largest of nine differences between the cache that vLLM 0.15.1 logged on H100 (2026-02) and the
plan's, as a share of the memory budget. A further case lies between the extremes of nine with a probability of
(9 - 1) / (9 + 1) = 80 %, whatever their distribution. The smallest is Llama-4-Scout, whose runtime takes 3.4 GB a
device that the plan does not explain; the other eight lie within 0.6 % of the budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheInterval:
    """80 % interval of the tokens that the cache of a replica holds."""

    low_tokens: int
    high_tokens: int


def cache_room(plan: MemoryPlan, *, block_size_tokens: int) -> CacheInterval:
    """The 80 % interval of the tokens that the cache holds [tokens].

    Equation
    --------
    blocks + floor(share x budget / block bytes), share from LEAST_SHARE to LARGEST_SHARE

    Parameters
    ----------
    plan : blocks [-], budget and KV bytes per token [bytes]
    block_size_tokens : tokens of a block [-]

    Range of validity
    -----------------
    What the runtime takes beside the plan is known to a share of the budget, measured on one engine and one
    accelerator; elsewhere the differences are taken to be alike. Zero tokens where nothing is kept per token. Leaves
    out fragmentation.

    References
    ----------
    [Vovk2005]

    Examples
    --------
    >>> from types import SimpleNamespace as Record
    >>> plan = Record(kv_blocks=10_000, budget_bytes=1e9, kv_bytes_per_token=1e4)
    >>> cache_room(plan, block_size_tokens=10)  # -4.42 and +0.58 % of 1 GB in blocks of 0.1 MB
    CacheInterval(low_tokens=95580, high_tokens=100580)
    """
    block_bytes = plan.kv_bytes_per_token * block_size_tokens
    if not block_bytes:
        return CacheInterval(low_tokens=0, high_tokens=0)
    ends = (plan.kv_blocks + int(share * plan.budget_bytes // block_bytes) for share in (LEAST_SHARE, LARGEST_SHARE))
    low, high = (max(0, blocks) * block_size_tokens for blocks in ends)
    return CacheInterval(low_tokens=low, high_tokens=high)


def memory_provenance(deployment: Deployment) -> Provenance:
    """How the memory plan is known: checked against logs, or carried over to another engine or accelerator."""
    checked = deployment.hardware.name in deployment.engine.cache_logged_on
    return Provenance.CALIBRATED if checked else Provenance.EXTRAPOLATED


def cache_use(deployment: Deployment, plan: MemoryPlan, *, sequences: float, tokens: float) -> float:
    """Share of the cache that ``sequences`` of ``tokens`` tokens each take, at most 1; 0 where they keep nothing."""
    taken = sequences * sequence_cache_bytes(deployment, plan, tokens=tokens)
    return min(1.0, taken / plan.kv_capacity_bytes) if plan.kv_capacity_bytes else 0.0
