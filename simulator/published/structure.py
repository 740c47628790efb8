"""Published figures of model structure, attention, paged memory and fine-tuning, and what the simulator says."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import log

import numpy as np

from simulator.operators.formats.sparse_formats import pattern_bits
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.model_counts import parameter_counts
from simulator.operators.parallelism import kv_bytes_per_sequence, kv_bytes_per_token
from simulator.operators.work import Family, GemmShape, Work, prefill_step
from simulator.phases.deployment import deploy
from simulator.phases.power import power_capped
from simulator.phases.step import StepEstimate, estimate_step
from simulator.published import kv_waste
from simulator.published.attention_traffic import AttentionCost, flash_attention_cost, standard_attention_cost
from simulator.published.figures import PublishedFigure, deployed, rows_of, table_figure
from simulator.published.kv_waste import RESERVED_TOKENS, Allocation, sharegpt_waste
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import BITS, Dtype, PrecisionSpec
from simulator.specs.question.techniques import MoeOverride, StructureSpec, TechniquesSpec
from simulator.techniques.fine_tuning import fine_tuning_memory
from simulator.techniques.registry import apply_techniques
from simulator.units import GIB, GIGA, KIB, MEGA, MILLI, TERA

SERVERS, SERVER_SIZE = 16, 8
MILLION = int(MEGA)
"""Tokens of the long prompt [Yang2024b]: 77 s of 128 devices at the published 502 TFLOP/s are 4.95e18 FLOPs, those of
a million tokens; 2**20 would take 5.38e18."""
PEAK_FLOPS_PER_S = 800 * TERA
"""16-bit peak of their H100, which is limited to 500 W [Yang2024b]."""


@lru_cache(maxsize=4)
def _prompt(tokens: int) -> StepEstimate:
    """One prompt through Llama 3.1 405B on sixteen servers, all its tokens in one pass."""
    full = load_hardware("h100-sxm-80gb")
    share = PEAK_FLOPS_PER_S / full.peak_flops_per_s[Dtype.BF16]
    slowed = {dtype: peak * share for dtype, peak in full.peak_flops_per_s.items()}
    replica = deploy(
        model=load_model("llama-3.1-405b"),
        hardware=full.model_copy(update={"peak_flops_per_s": slowed}),
        parallelism=ParallelismSpec(tp_size=SERVER_SIZE, cp_size=SERVERS),
    )
    return estimate_step(replica, prefill_step(sequences=1, tokens=tokens))


def million_s() -> float:
    """Time of a prompt of a million tokens [s]."""
    return float(_prompt(MILLION).step_s[0])


def shorter_s() -> float:
    """Time of a prompt of 131,072 tokens [s]."""
    return float(_prompt(128 * int(KIB)).step_s[0])


def million_mfu() -> float:
    """Model FLOPs utilisation of the long prompt [-]."""
    return float(_prompt(MILLION).mfu[0])


def million_efficiency() -> float:
    """Rate of the whole pass over that of its attention kernel alone, as the paper defines efficiency [-]."""
    rows = [row for row in _prompt(MILLION).rows if row.work.family is Family.PREFILL_ATTENTION]
    flops = sum(float(row.work.count * row.work.flops[0]) for row in rows)
    rate = flops / sum(float(row.seconds[0]) for row in rows)
    return million_mfu() * PEAK_FLOPS_PER_S / rate


FLASH_HEADS, FLASH_TOKENS, FLASH_WIDTH = 64.0 * 16.0, KIB, 64.0
A100_SRAM_BYTES = 192 * KIB
FORWARD_SHARE, BACKWARD_SHARE = 0.50, 0.35
"""Shares of the peak that the first FlashAttention reached [Dao2023]."""

MEGATRON_FLOPS_PER_S = 137 * TERA
FLASH_MS, STANDARD_MS = 7.3, 41.7


LONG_CONTEXT = 256 * int(KIB)
NF6_BITS, PLAIN_BITS = 6.0, 16.0


def figures() -> list[PublishedFigure]:
    """The rows of structure_figures.csv."""
    return [table_figure(row, COMPUTED[row["name"]]) for row in rows_of("structure_figures.csv")]


def _standard() -> AttentionCost:
    return standard_attention_cost(heads=FLASH_HEADS, tokens=FLASH_TOKENS, head_dim=FLASH_WIDTH)


def _tiled() -> AttentionCost:
    return flash_attention_cost(
        heads=FLASH_HEADS, tokens=FLASH_TOKENS, head_dim=FLASH_WIDTH, sram_bytes=A100_SRAM_BYTES
    )


def _tiled_ms() -> float:
    """Two of the seven products forward, five backward, at the kernel's own shares of the peak."""
    peak = load_hardware("a100-sxm-40gb").peak_flops_per_s[Dtype.BF16]
    one = _tiled().flops / 7.0
    return (2.0 * one / (FORWARD_SHARE * peak) + 5.0 * one / (BACKWARD_SHARE * peak)) / MILLI


def _standard_ms() -> float:
    """Six products by the GEMM model, all other traffic at the rate that this accelerator's memory passes reach."""
    replica = deployed("gpt2-medium", "a100-sxm-40gb")
    rows = estimate_step(replica, prefill_step(sequences=[64.0], tokens=FLASH_TOKENS)).rows
    row = next(row for row in rows if row.work.name == "residual_norm")
    bytes_per_s = float(row.work.bytes[0] / row.timing.seconds[0])
    scores, sums = _product(n=FLASH_TOKENS, k=FLASH_WIDTH), _product(n=FLASH_WIDTH, k=FLASH_TOKENS)
    products = (scores, scores, sums, sums, sums, sums)
    between = _standard().hbm_bytes - sum(float(work.bytes[0]) for work in products)
    products_s = sum(float(replica.kernels.price(work).seconds[0]) for work in products)
    return (between / bytes_per_s + products_s) / MILLI


def _product(*, n: float, k: float) -> Work:
    """(N, k) x (k, n) for every head."""
    one = np.ones(1)
    product = precision_plan(load_model("gpt2-medium"), PrecisionSpec(weights=Dtype.BF16)).plain
    return Work(
        name="product",
        family=Family.GEMM,
        role="attention",
        shape=GemmShape(m=one * FLASH_TOKENS, n=n, k=k, format=product, batch=FLASH_HEADS),
        flops=one * 2.0 * FLASH_TOKENS * n * k * FLASH_HEADS,
        weight_bytes=one * n * k * FLASH_HEADS * 2.0,
        kv_bytes=0.0 * one,
        activation_bytes=one * FLASH_TOKENS * (n + k) * FLASH_HEADS * 2.0,
    )


def _training_ratio(name: str, *, heads: int) -> float:
    """Attention at the published times, all else at Megatron-LM's rate; per sequence of 1,024 tokens."""
    model = load_model(name)
    rest_ms = 6.0 * parameter_counts(model).total * FLASH_TOKENS / MEGATRON_FLOPS_PER_S / MILLI
    share = model.num_hidden_layers * heads / FLASH_HEADS
    return (rest_ms + share * STANDARD_MS) / (rest_ms + share * FLASH_MS)


def _used(allocation: Allocation) -> float:
    return sharegpt_waste(allocation, max_model_len=RESERVED_TOKENS).used


def _kv_gib(name: str) -> float:
    """Cache of one sequence of 256K tokens in 16 bits [Lieber2024]."""
    model = load_model(name)
    plan = precision_plan(model, PrecisionSpec(weights=Dtype.BF16))
    return float(kv_bytes_per_sequence(model, plan=plan, tp_size=1, context_tokens=LONG_CONTEXT)[0]) / GIB


def _kv_per_token(name: str) -> float:
    model = load_model(name)
    return kv_bytes_per_token(model, plan=precision_plan(model, PrecisionSpec(weights=Dtype.BF16)), tp_size=1)


def _window_saving() -> float:
    """Full cache over a rolling buffer of the window's size, 32k tokens [Jiang2023]."""
    model = load_model("mistral-7b-v0.1")
    plan = precision_plan(model, PrecisionSpec(weights=Dtype.BF16))
    tokens = 32 * int(KIB)
    full = kv_bytes_per_token(model, plan=plan, tp_size=1) * tokens
    return full / float(kv_bytes_per_sequence(model, plan=plan, tp_size=1, context_tokens=tokens)[0])


def _latent_saving() -> float:
    latent = _kv_per_token("deepseek-v2") * NF6_BITS
    return 1.0 - latent / (_kv_per_token("deepseek-llm-67b") * PLAIN_BITS)


def _moefication_share() -> float:
    """Routed parameters that a token uses over those of the dense blocks, router left out."""
    model = load_model("llama-2-7b")
    spec = TechniquesSpec(structure=StructureSpec(moe=MoeOverride(num_experts=4, num_experts_per_tok=1)))
    changed = apply_techniques(
        spec, model=model, plan=precision_plan(model, PrecisionSpec()), hardware=load_hardware("h100")
    ).model
    counts = parameter_counts(changed)
    dense = model.num_hidden_layers * 3.0 * model.hidden_size * 11008.0
    return 1.0 - (counts.total - counts.active) / dense


def _exponent(first: int, last: int) -> float:
    """Log-log slope of the four products of an encoder layer over the hidden size."""
    times = []
    for size in (first, last):
        spec = TechniquesSpec(structure=StructureSpec(hidden_size=size))
        replica = deployed("bert-large", "a100", engine="torch", techniques=spec)
        rows = estimate_step(replica, prefill_step(sequences=[1.0], tokens=512.0)).rows
        times.append(sum(float(row.seconds[0]) for row in rows if row.work.name in _SUBLAYERS))
    return log(times[1] / times[0]) / log(last / first)


_SUBLAYERS = ("qkv_proj", "o_proj", "up_proj", "down_proj")


def _metadata_share(dtype: Dtype) -> float:
    """Bits of 2:4 positions over the bits of the kept values."""
    bits = BITS[dtype]
    return pattern_bits(bits, kept=2, of=4) / (bits / 2) - 1.0


def _colbert_gib() -> float:
    """27 GiB from the bytes per passage token that 286 GiB at 512 bytes a token imply."""
    tokens = 286 * GIB / (128 * 4)
    return tokens * 24 * 2 / GIB


COMPUTED: dict[str, Callable[[], float]] = {
    "power_cap_h100_500_w": lambda: (
        power_capped(load_hardware("h100-sxm-80gb"), 500.0).peak_flops_per_s[Dtype.BF16] / TERA
    ),
    "context_parallel_1m_s": million_s,
    "context_parallel_128k_s": shorter_s,
    "context_parallel_1m_mfu": million_mfu,
    "context_parallel_1m_efficiency": million_efficiency,
    "flash_hbm_standard": lambda: _standard().hbm_bytes / GIGA,
    "flash_hbm_tiled": lambda: _tiled().hbm_bytes / GIGA,
    "flash_hbm_ratio": lambda: _standard().hbm_bytes / _tiled().hbm_bytes,
    "flash_flops_ratio": lambda: _tiled().flops / _standard().flops,
    "flash_ms_tiled": _tiled_ms,
    "flash_ms_standard": _standard_ms,
    "flash_speedup": lambda: _standard_ms() / _tiled_ms(),
    "flash_training_small": lambda: _training_ratio("gpt2", heads=12),
    "flash_training_medium": lambda: _training_ratio("gpt2-medium", heads=16),
    "paged_used_max_length": lambda: _used("max_length"),
    "paged_used_power_of_two": lambda: _used("power_of_two"),
    "paged_used_oracle": lambda: _used("oracle"),
    "paged_used_paged": lambda: _used("paged"),
    "lora_gpt3_bytes": lambda: (
        fine_tuning_memory(load_model("gpt-3-175b"), method="lora", rank=4, targets="attention", tokens=1).total_bytes
        / GIGA
    ),
    "lora_gpt3_parameters": lambda: (
        fine_tuning_memory(load_model("gpt-3-175b"), method="lora", rank=4, targets="attention").trained_parameters
        / MEGA
    ),
    "full_gpt3_bytes": lambda: (
        fine_tuning_memory(load_model("gpt-3-175b"), optimizer="half", tokens=1).total_bytes / GIGA
    ),
    "full_65b_bytes": lambda: (
        fine_tuning_memory(load_model("llama-65b"), optimizer="no_master", tokens=1).total_bytes / GIGA
    ),
    "qlora_65b_share_of_48_gb": lambda: (
        fine_tuning_memory(
            load_model("llama-65b"), method="qlora", rank=64, optimizer="no_master", tokens=512
        ).total_bytes
        / (48 * GIGA)
    ),
    "kv_256k_llama_2_7b": lambda: _kv_gib("llama-2-7b"),
    "kv_256k_mistral": lambda: _kv_gib("mistral-7b-v0.2"),
    "kv_256k_mixtral": lambda: _kv_gib("mixtral-8x7b"),
    "kv_256k_jamba": lambda: _kv_gib("jamba-v0.1"),
    "mistral_window_saving": _window_saving,
    "deepseek_v2_kv_saving": _latent_saving,
    "mixtral_total_parameters": lambda: parameter_counts(load_model("mixtral-8x7b")).total / GIGA,
    "mixtral_active_parameters": lambda: parameter_counts(load_model("mixtral-8x7b")).active / GIGA,
    "moefication_share": _moefication_share,
    "encoder_exponent_to_512": lambda: _exponent(128, 512),
    "encoder_exponent_from_512": lambda: _exponent(512, 4096),
    "colbert_index_24": _colbert_gib,
    "gptq_devices_a6000_fp16": lambda: kv_waste.devices_needed("a6000", "fp16"),
    "gptq_devices_a6000_3bit": lambda: kv_waste.devices_needed("a6000", "gptq-3bit"),
    "gptq_devices_a100_fp16": lambda: kv_waste.devices_needed("a100-sxm-80gb", "fp16"),
    "gptq_devices_a100_3bit": lambda: kv_waste.devices_needed("a100-sxm-80gb", "gptq-3bit"),
    "bitnet_70b_batch": kv_waste.bitnet_batch_ratio,
    "bitnet_70b_throughput": kv_waste.bitnet_throughput_ratio,
    "sparse_metadata_16_bit": lambda: _metadata_share(Dtype.BF16),
    "sparse_metadata_8_bit": lambda: _metadata_share(Dtype.INT8),
}
"""Name of a row -> what the simulator computes, in the row's unit."""
