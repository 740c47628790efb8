"""Decoders of real models' shapes with random weights, dense and with experts, in 16 and in 8 bits.

The layers hold what an engine's step computes: norms, products, rotation, attention over a cache, experts. Every layer
has memory of its own with the same numbers in it: weights are read anew by each layer, and drawn once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch.nn import functional

from validation.measure.bench import MEMORY_SHARE, Bench, random_tensor

EPSILON = 1e-5
ROPE_THETA = 500_000.0
COMPUTE = torch.bfloat16
"""Of activations, cache, norms and router, whatever the weights are kept in."""
WEIGHT_TYPES = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}
WEIGHT_SCALE = 0.02
"""Of the random weights, so that many layers neither overflow nor vanish."""
ROUTER_NOISE = 4.0
"""Standard deviation of what is added to the router's logits: random layers make tokens alike, and all would go to
the same experts; with it each token draws its experts."""

Attention = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(layer, query, key, value), each [tokens, heads, head_dim], rotated -> attended, as the query: what keeps the cache
and attends to it is the caller's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Sizes by Hugging Face's names; ``intermediate_size`` is an expert's where there are experts."""

    name: str
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    num_hidden_layers: int
    vocab_size: int
    num_experts: int = 0
    num_experts_per_tok: int = 0
    qk_norm: bool = False

    @property
    def qkv_size(self) -> int:
        """Columns of the joint projection of queries, keys and values."""
        return (self.num_attention_heads + 2 * self.num_key_value_heads) * self.head_dim

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer that are multiplied with, without norms."""
        attention = self.hidden_size * (self.qkv_size + self.num_attention_heads * self.head_dim)
        mlps = max(1, self.num_experts) * 3 * self.hidden_size * self.intermediate_size
        return attention + mlps + self.hidden_size * self.num_experts

    def footprint_bytes(self, *, layers: int, weights: str, ends: bool, tokens: int, cached_tokens: int) -> int:
        """Weights, cache, and activations of a pass over ``tokens`` [bytes]."""
        weight_bytes = layers * self.layer_parameters * WEIGHT_TYPES[weights].itemsize
        if ends:
            weight_bytes += self.vocab_size * self.hidden_size * COMPUTE.itemsize
        cache = layers * 2 * self.num_key_value_heads * self.head_dim * cached_tokens
        routed = tokens * max(1, self.num_experts_per_tok)
        activations = tokens * (self.qkv_size + 6 * self.hidden_size) + routed * (
            3 * self.intermediate_size + 2 * self.hidden_size
        )
        return weight_bytes + COMPUTE.itemsize * (cache + activations)

    def layers_that_fit(self, bench: Bench, *, weights: str) -> int:
        """Layers whose weights take five sixths of the memory that a case may use, at most the model's own."""
        room = MEMORY_SHARE * bench.memory_bytes * 5 / 6 - COMPUTE.itemsize * self.vocab_size * self.hidden_size
        return max(1, min(self.num_hidden_layers, int(room / self.layer_parameters / WEIGHT_TYPES[weights].itemsize)))


LLAMA_8B = Architecture(
    name="llama-3.1-8b",
    hidden_size=4096,
    intermediate_size=14336,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    num_hidden_layers=32,
    vocab_size=128_256,
)
LLAMA_70B = Architecture(
    name="llama-3.1-70b",
    hidden_size=8192,
    intermediate_size=28672,
    num_attention_heads=64,
    num_key_value_heads=8,
    head_dim=128,
    num_hidden_layers=80,
    vocab_size=128_256,
)
QWEN3_30B_A3B = Architecture(
    name="qwen3-30b-a3b",
    hidden_size=2048,
    intermediate_size=768,
    num_attention_heads=32,
    num_key_value_heads=4,
    head_dim=128,
    num_hidden_layers=48,
    vocab_size=151_936,
    num_experts=128,
    num_experts_per_tok=8,
    qk_norm=True,
)
"""Shapes of meta-llama/Llama-3.1-8B, meta-llama/Llama-3.1-70B and Qwen/Qwen3-30B-A3B (their config.json)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Weights as [out, in]; those of experts as [experts, out, in].

    scales : of inputs and of weights in products of 8 bits
    """

    qkv: torch.Tensor
    output: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    norm: torch.Tensor
    scales: tuple[torch.Tensor, torch.Tensor]
    head_norm: torch.Tensor | None
    router: torch.Tensor | None


def _clone(layer: Layer) -> Layer:
    """The same numbers at another address."""
    moved = {
        field.name: part.clone() if isinstance(part := getattr(layer, field.name), torch.Tensor) else part
        for field in fields(layer)
    }
    return Layer(**moved)


def _first_layer(architecture: Architecture, *, bench: Bench, weights: str) -> Layer:
    hidden, inner = architecture.hidden_size, architecture.intermediate_size
    each = (architecture.num_experts,) if architecture.num_experts else ()

    def drawn(*size: int, dtype: torch.dtype) -> torch.Tensor:
        # Numbers of 8 bits keep unit variance, and the product carries the scale.
        numbers = random_tensor(*size, bench=bench, dtype=dtype)
        return numbers.mul_(WEIGHT_SCALE) if dtype == COMPUTE else numbers

    kept = WEIGHT_TYPES[weights]
    return Layer(
        qkv=drawn(architecture.qkv_size, hidden, dtype=kept),
        output=drawn(hidden, architecture.num_attention_heads * architecture.head_dim, dtype=kept),
        gate_up=drawn(*each, 2 * inner, hidden, dtype=kept),
        down=drawn(*each, hidden, inner, dtype=kept),
        norm=torch.ones(hidden, device=bench.device, dtype=COMPUTE),
        scales=(torch.ones((), device=bench.device), torch.full((), WEIGHT_SCALE, device=bench.device)),
        head_norm=torch.ones(architecture.head_dim, device=bench.device, dtype=COMPUTE)
        if architecture.qk_norm
        else None,
        router=drawn(architecture.num_experts, hidden, dtype=COMPUTE) if each else None,
    )


def product(x: torch.Tensor, weight: torch.Tensor, scales: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """x [tokens, in] times weight [out, in] transposed; weights of 8 bits want x converted, with one scale each."""
    if weight.dtype == COMPUTE:
        return functional.linear(x, weight)
    of_x, of_weight = scales
    return torch._scaled_mm(
        x.to(weight.dtype), weight.t(), scale_a=of_x, scale_b=of_weight, out_dtype=x.dtype, use_fast_accum=True
    )


def _rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


def angles_of(positions: torch.Tensor, *, head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of positions [tokens], as [tokens, 1, head_dim]."""
    frequencies = ROPE_THETA ** (-torch.arange(0, head_dim, 2, device=positions.device) / head_dim)
    angles = torch.outer(positions.float(), frequencies).repeat(1, 2)[:, None]
    return angles.cos().to(COMPUTE), angles.sin().to(COMPUTE)


def _multiplied_by_group(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return functional.grouped_mm(x, weight.transpose(-2, -1), offs=ends)


def _routed(architecture: Architecture, layer: Layer, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Experts of each token: rows sorted by expert, two grouped products, and the weighted sum of each token's rows."""
    assert layer.router is not None
    tokens, chosen = x.shape[0], architecture.num_experts_per_tok
    logits = torch.addmm(noise[:tokens], x, layer.router.t())
    weights, experts = torch.topk(torch.softmax(logits.float(), dim=-1), chosen, dim=-1)
    ordered, order = experts.flatten().sort(stable=True)
    numbers = torch.arange(architecture.num_experts, device=x.device)
    ends = torch.searchsorted(ordered, numbers, right=True, out_int32=True)
    gate, up = _multiplied_by_group(x[order // chosen], layer.gate_up, ends).chunk(2, dim=-1)
    rows = _multiplied_by_group(functional.silu(gate) * up, layer.down, ends)
    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=x.device))
    return torch.bmm(weights.to(x.dtype)[:, None], rows[back].view(tokens, chosen, -1))[:, 0]


def before_attention(
    architecture: Architecture, layer: Layer, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x [tokens, hidden] to query, key and value [tokens, heads, head_dim], rotated."""
    heads, kv_heads, width = (architecture.num_attention_heads, architecture.num_key_value_heads, architecture.head_dim)
    normed = functional.rms_norm(x, (architecture.hidden_size,), layer.norm, EPSILON)
    qkv = product(normed, layer.qkv, layer.scales).view(len(x), heads + 2 * kv_heads, width)
    query, key, value = qkv.split((heads, kv_heads, kv_heads), dim=1)
    if layer.head_norm is not None:
        query, key = (functional.rms_norm(part, (width,), layer.head_norm, EPSILON) for part in (query, key))
    return _rotated(query, *angles), _rotated(key, *angles), value


def after_attention(
    architecture: Architecture, layer: Layer, x: torch.Tensor, attended: torch.Tensor, noise: torch.Tensor | None
) -> torch.Tensor:
    """The layer's output from its input x [tokens, hidden] and what was attended to [tokens, heads, head_dim]."""
    x = x + product(attended.flatten(1), layer.output, layer.scales)
    normed = functional.rms_norm(x, (architecture.hidden_size,), layer.norm, EPSILON)
    if noise is not None:
        return x + _routed(architecture, layer, normed, noise)
    gate, up = product(normed, layer.gate_up, layer.scales).chunk(2, dim=-1)
    return x + product(functional.silu(gate) * up, layer.down, layer.scales)


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """A layer before and after its attention: as they stand, or compiled."""

    before: Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = before_attention
    after: Callable[..., torch.Tensor] = after_attention


PLAIN = Halves()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Layers, and the embedding, which is the output head too, where it is a whole model.

    noise : [tokens at most, experts] added to the router's logits, None without experts
    """

    architecture: Architecture
    layers: tuple[Layer, ...]
    embedding: torch.Tensor | None
    noise: torch.Tensor | None

    def embedded(self, ids: torch.Tensor) -> torch.Tensor:
        """[tokens] -> [tokens, hidden]."""
        assert self.embedding is not None
        return functional.embedding(ids, self.embedding)

    def hidden(
        self,
        x: torch.Tensor,
        *,
        attention: Attention,
        angles: tuple[torch.Tensor, torch.Tensor],
        halves: Halves = PLAIN,
    ) -> torch.Tensor:
        """All layers over x [tokens, hidden]."""
        for index, layer in enumerate(self.layers):
            query, key, value = halves.before(self.architecture, layer, x, angles)
            attended = attention(index, query, key, value)
            x = halves.after(self.architecture, layer, x, attended, self.noise)
        return x

    def next_ids(self, x: torch.Tensor) -> torch.Tensor:
        """The likeliest token after each row of x [sequences, hidden]."""
        assert self.embedding is not None
        width = self.architecture.hidden_size
        normed = functional.rms_norm(x, (width,), self.layers[0].norm, EPSILON)
        return functional.linear(normed, self.embedding).argmax(-1)


def decoder_of(
    architecture: Architecture, *, bench: Bench, weights: str, layers: int, ends: bool, tokens: int
) -> Decoder:
    """Random weights on the bench's device, for passes of up to ``tokens``."""
    first = _first_layer(architecture, bench=bench, weights=weights)
    embedding = None
    if ends:
        size = architecture.vocab_size, architecture.hidden_size
        embedding = random_tensor(*size, bench=bench, dtype=COMPUTE).mul_(WEIGHT_SCALE)
    noise = None
    if architecture.num_experts:
        drawn = random_tensor(tokens, architecture.num_experts, bench=bench, dtype=COMPUTE)
        noise = drawn.mul_(ROUTER_NOISE)
    return Decoder(
        architecture=architecture,
        layers=(first, *(_clone(first) for _ in range(layers - 1))),
        embedding=embedding,
        noise=noise,
    )
