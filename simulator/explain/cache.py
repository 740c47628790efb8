"""Topics of attention and of what sequences keep: heads, caches, memory, traffic of attention, long contexts."""

from __future__ import annotations

import numpy as np

from simulator.explain.formats import known_schemes
from simulator.explain.topic import Example, bars, facts, lines
from simulator.operators.parallelism import kv_bytes_per_sequence, kv_bytes_per_token
from simulator.operators.work import Family
from simulator.phases.deployment import Deployment
from simulator.phases.memory import memory_plan, sequences_that_fit
from simulator.published.attention_traffic import block_keys, flash_attention_cost, key_blocks, standard_attention_cost
from simulator.published.facts import load_facts
from simulator.published.kv_waste import ALLOCATIONS, RESERVED_TOKENS, sharegpt_waste
from simulator.reports.charts.latency_breakdown import memory_stack_chart
from simulator.reports.content.document import Block, Figure, Value, fraction, number, seconds, table
from simulator.reports.content.quantities import bytes_text
from simulator.specs.question.techniques import KvPolicySpec, MlaOverride, StructureSpec, TechniquesSpec
from simulator.techniques.complexity import LAYER_KINDS, length_cost
from simulator.techniques.kv_compression import SINK_TOKENS
from simulator.units import GIGA, KIB, MEGA, MILLI

HEAVY_HITTERS_SHARE = 0.2
"""Of the cache that H2O keeps in its paper's main comparison [Zhang2023]."""

MLA_RANK = 512
"""kv_lora_rank of DeepSeek-V2 and V3 [DeepSeek2024a]."""

LENGTHS = tuple(int(KIB) * factor for factor in (1, 4, 16, 64, 128, 256, 1024))
HOST_SHARES = (0.0, 0.1, 1 / 4, 0.5, 1.0)
SCHEMES = ("w8a8", "gptq-g128")
"""Beside 16 bits."""


def _sequences(replica: Deployment, *, tokens: float) -> Value:
    memory = memory_plan(replica)
    held = sequences_that_fit(replica, memory, tokens=tokens)
    return number(held, digits=0) if np.isfinite(held) else "any"


def _lengths(example: Example) -> tuple[int, ...]:
    most = example.model.max_position_embeddings or max(LENGTHS)
    return tuple(sorted({*(length for length in LENGTHS if length <= most), example.context_tokens}))


def _kv_cache(example: Example) -> tuple[Block, ...]:
    replica, lengths = example.deployed(), _lengths(example)
    held = kv_bytes_per_sequence(example.model, plan=example.plan, tp_size=1, context_tokens=lengths) / GIGA
    each = kv_bytes_per_token(example.model, plan=example.plan, tp_size=1)
    rows = [
        (number(length, digits=0), size, size * example.batch_size, _sequences(replica, tokens=float(length)))
        for length, size in zip(lengths, held.tolist(), strict=True)
    ]
    heads, of = f"tokens | GB of a sequence | GB of {example.batch_size} | sequences that fit", example.half.value
    return (
        facts(("kv_bytes_per_token", "one token", number(each / KIB, "KiB"))),
        table("kv", "Cache by length", heads, rows),
        lines("kv", "Cache of a sequence", x="log Tokens", y="log Cache [GB]", at=lengths, of={of: held.tolist()}),
    )


def _heads(example: Example) -> tuple[Block, ...]:
    """The same model with other numbers of KV heads, and with latents."""
    heads = example.attention.num_attention_heads
    own = example.attention.num_key_value_heads
    structures = {
        "MHA": StructureSpec(num_key_value_heads=heads),
        "GQA": StructureSpec(num_key_value_heads=own if 1 < own < heads else max(1, heads // 8)),
        "MQA": StructureSpec(num_key_value_heads=1),
        "MLA": StructureSpec(mla=MlaOverride(kv_lora_rank=MLA_RANK)),
    }
    rows, sizes = [], []
    for name, structure in structures.items():
        as_it_is = structure.num_key_value_heads == own
        replica = example.deployed(techniques=None if as_it_is else TechniquesSpec(structure=structure))
        each = kv_bytes_per_token(replica.model, plan=replica.plan, tp_size=1)
        step = example.decode(replica)
        kv_heads = "latent" if structure.mla else number(structure.num_key_value_heads, digits=0)
        sizes.append(each / KIB)
        fits = _sequences(replica, tokens=float(example.context_tokens))
        rows.append((name, kv_heads, each / KIB, seconds(float(step.step_s[0]), origin=example.known(step)), fits))
    title = f"Decode step of {example.batch_size} at {example.context_tokens} tokens"
    heads_line = "attention: | KV heads | KiB a token | TPOT: | sequences that fit"
    return (
        table("heads", title, heads_line, rows),
        bars("heads", "Cache of a token", y="Cache [KiB]", names=list(structures), of={"bf16": sizes}),
    )


def _memory(example: Example) -> tuple[Block, ...]:
    found, refused = known_schemes(example, SCHEMES)
    plans = {scheme: memory_plan(replica) for scheme, replica in found.items()}
    rows: list[tuple[Value, ...]] = [
        (
            scheme,
            *(value / GIGA for value in (plan.budget_bytes, plan.weights_bytes, plan.activation_bytes)),
            plan.reserve_bytes / GIGA,
            plan.kv_capacity_bytes / GIGA,
            number(plan.kv_capacity_tokens, digits=0),
            "fits" if plan.fits else f"{bytes_text(plan.shortfall_bytes)} short",
        )
        for scheme, plan in plans.items()
    ]
    heads = "format: | budget | weights | activations | reserve | KV cache | tokens | verdict:"
    return (
        table("memory", f"One {example.hardware.name} [GB]", heads, rows),
        refused,
        Figure(chart=memory_stack_chart(list(plans.items()))),
    )


def _paged(example: Example) -> tuple[Block, ...]:
    capacity = memory_plan(example.deployed()).kv_capacity_tokens
    found = {way: sharegpt_waste(way, max_model_len=RESERVED_TOKENS, kv_slots=capacity) for way in ALLOCATIONS}
    rows: list[tuple[Value, ...]] = [
        (
            way.replace("_", " "),
            *(fraction(share) for share in (waste.used, waste.reserved, waste.internal, waste.external)),
            number(waste.requests, digits=0),
        )
        for way, waste in found.items()
    ]
    shares = ("used", "reserved", "internal", "external")
    heads = "allocation: | used | reserved | internal waste | external waste | requests at once"
    note = f"ShareGPT's mean lengths, {RESERVED_TOKENS} tokens at most, in the {capacity:,} tokens of this accelerator"
    return (
        table("paged", "Allocated cache by what it holds", heads, rows, note=note),
        bars("paged", "Allocated cache by what it holds", y="Share", names=list(found),
             of={share: [getattr(waste, share) for waste in found.values()] for share in shares}),
    )  # fmt: skip


def _eviction(example: Example) -> tuple[Block, ...]:
    budget = max(1, int(HEAVY_HITTERS_SHARE * example.context_tokens))
    policies: dict[str, TechniquesSpec | None] = {"whole cache": None}
    names = {
        "h2o": f"h2o, {budget} tokens",
        "streaming": f"streaming, {budget} tokens, {SINK_TOKENS} of them sinks",
        "window": f"window, {budget} tokens",
    }
    for method, name in names.items():
        policies[name] = TechniquesSpec.model_validate(
            {"kv_policy": KvPolicySpec.model_validate({"method": method, "budget_tokens": budget})}
        )
    rows, steps = [], []
    for name, techniques in policies.items():
        replica = example.deployed(techniques=techniques)
        step = example.decode(replica)
        held = kv_bytes_per_sequence(replica.model, plan=replica.plan, tp_size=1, context_tokens=example.context_tokens)
        fits = _sequences(replica, tokens=float(example.context_tokens))
        steps.append(float(step.step_s[0]) / MILLI)
        rows.append((name, float(held[0]) / MEGA, seconds(steps[-1] * MILLI, origin=example.known(step)), fits))
    title = f"Decode step of {example.batch_size} at {example.context_tokens} tokens"
    return (
        table("eviction", title, "policy: | MB of a sequence | TPOT: | sequences that fit", rows),
        bars("eviction", "TPOT by policy", y="TPOT [ms]", names=list(policies), of={"TPOT": steps}),
    )


def _flash(example: Example) -> tuple[Block, ...]:
    """One layer of the model, forward and backward as in training."""
    on_chip = load_facts().on_chip_of(example.hardware)
    assert on_chip is not None, "the topic applies to known chips alone"
    attention, sequences = example.attention, example.batch_size
    shape = {
        "heads": float(attention.num_attention_heads * sequences),
        "tokens": float(example.context_tokens),
        "head_dim": float(attention.head_dim),
    }
    found = {
        "standard": standard_attention_cost(**shape, masks=False, drops=False),
        "flash": flash_attention_cost(**shape, sram_bytes=on_chip.memory_bytes),
    }
    keys = block_keys(head_dim=shape["head_dim"], sram_bytes=on_chip.memory_bytes)
    blocks = key_blocks(tokens=shape["tokens"], head_dim=shape["head_dim"], sram_bytes=on_chip.memory_bytes)
    rows: list[tuple[Value, ...]] = [
        (
            name,
            cost.flops / GIGA,
            *(value / GIGA for value in (cost.forward_bytes, cost.backward_bytes, cost.hbm_bytes)),
        )
        for name, cost in found.items()
    ]
    saved = found["standard"].hbm_bytes / found["flash"].hbm_bytes
    return (
        facts(
            ("sram_bytes", "M: shared memory of one compute unit", number(on_chip.memory_bytes / KIB, "KiB")),
            ("head_dim", "d: width of a head", number(shape["head_dim"], digits=0)),
            ("block_keys", "keys of a block, B = floor(M / 4d)", number(keys, digits=0)),
            ("key_blocks", "blocks", number(blocks, digits=0)),
            ("saved", "traffic of standard over flash attention", saved),
        ),
        table("flash", f"One layer, {sequences} x {example.context_tokens} tokens, both ways",
                   "attention: | GFLOP | GB forward | GB backward | GB", rows),
        bars("flash", "HBM traffic of attention", y="log Traffic [GB]", names=list(found),
             of={part: [getattr(cost, f"{part}_bytes") / GIGA for cost in found.values()]
                 for part in ("forward", "backward")}),
    )  # fmt: skip


def _long_context(example: Example) -> tuple[Block, ...]:
    replica, lengths = example.deployed(), _lengths(example)
    prompts = example.prefill(replica, tokens=lengths)
    held = kv_bytes_per_sequence(example.model, plan=example.plan, tp_size=1, context_tokens=lengths)
    attention = prompts.breakdown_s.get(Family.PREFILL_ATTENTION, np.zeros(len(lengths))) / prompts.step_s
    rows = [
        (
            number(length, digits=0),
            seconds(float(prompts.step_s[place])),
            fraction(float(attention[place])),
            float(held[place]) / GIGA,
            _sequences(replica, tokens=float(length)),
        )
        for place, length in enumerate(lengths)
    ]
    heads = "tokens | prefill | attention's share | GB of cache | sequences that fit"
    return (
        table("long", "One prompt", heads, rows),
        lines("long", "Time of a prompt", x="log Tokens", y="log Prefill [s]", at=lengths,
              of={"whole": prompts.step_s.tolist(), "attention": (attention * prompts.step_s).tolist()}),
    )  # fmt: skip


def _mixers(example: Example) -> tuple[Block, ...]:
    lengths, width = _lengths(example), float(example.model.hidden_size)
    costs = {kind: length_cost(kind, tokens=np.array(lengths, dtype=float), width=width) for kind in LAYER_KINDS}
    rows = [
        (
            kind.replace("_", " "),
            number(length, digits=0),
            float(cost.prefill_flops[place]) / GIGA,
            float(cost.decode_flops[place]) / GIGA,
            float(cost.state_bytes[place]) / MEGA,
        )
        for kind, cost in costs.items()
        for place, length in enumerate(lengths)
        if length in (lengths[0], lengths[-1])
    ]
    return (
        table("mixers", f"One layer of {example.model.hidden_size} channels",
                   "layer: | tokens | GFLOP of the prompt | GFLOP of the next token | MB of state", rows),
        lines("mixers", "FLOPs of a prompt", x="log Tokens", y="log FLOPs [GFLOP]", at=lengths,
              of={kind: (cost.prefill_flops / GIGA).tolist() for kind, cost in costs.items()}),
    )  # fmt: skip


def _offload(example: Example) -> tuple[Block, ...]:
    """A decode step with more and more of the weights in host memory."""
    rows, steps = [], []
    for share in HOST_SHARES:
        spec = TechniquesSpec.model_validate({"weight_offload": share}) if share else None
        replica = example.deployed(techniques=spec)
        step, memory = example.decode(replica), memory_plan(replica)
        steps.append(float(step.step_s[0]) / MILLI)
        fits = _sequences(replica, tokens=float(example.context_tokens))
        shown = seconds(steps[-1] * MILLI, origin=example.known(step))
        rows.append((fraction(share), memory.weights_bytes / GIGA, shown, fits))
    title = f"Decode step of {example.batch_size} at {example.context_tokens} tokens"
    return (
        table("offload", title, "in host memory | GB of weights | TPOT: | sequences that fit", rows),
        lines("offload", "TPOT by share", x="Share in host memory", y="TPOT [ms]", at=HOST_SHARES, of={"TPOT": steps}),
    )


def _tiers(example: Example) -> tuple[Block, ...]:
    """A prefix computed, and loaded over the host link."""
    replica, lengths = example.deployed(), _lengths(example)
    held = kv_bytes_per_sequence(example.model, plan=example.plan, tp_size=1, context_tokens=lengths)
    computed, link = example.prefill(replica, tokens=lengths).step_s, example.hardware.host_link
    loaded = held / link.bytes_per_s_per_direction
    rows = [
        (
            number(length, digits=0),
            float(held[place]) / GIGA,
            seconds(float(computed[place])),
            seconds(float(loaded[place])),
            float(held[place] / computed[place]) / GIGA,
        )
        for place, length in enumerate(lengths)
    ]
    heads = f"tokens | GB of cache | computed | loaded over {link.kind} | GB/s that loading needs"
    return (
        table("tiers", "A prefix, computed or loaded", heads, rows),
        lines("tiers", "A prefix, computed or loaded", x="log Tokens", y="log Time [s]", at=lengths,
              of={"computed": computed.tolist(), "loaded": loaded.tolist()}),
    )  # fmt: skip
